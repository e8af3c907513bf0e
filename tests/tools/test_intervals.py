"""Intervals over seeds hold what they claim, agree with scipy's own tests, and are refused where there are none."""
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mfdl.tools.intervals import differences_over_seeds, mean_interval, means_over_seeds, paired_interval

SAMPLES = 20_000


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_intervals_hold_the_mean_as_often_as_they_claim(n, confidence):
    rng = np.random.default_rng(n)
    values = 3 + 2 * rng.standard_normal((n, SAMPLES))
    mean, low, high = mean_interval(values, confidence)
    assert mean == pytest.approx(values.mean(axis=0)) and (low < mean).all() and (mean < high).all()
    error = np.sqrt(confidence * (1 - confidence) / SAMPLES)
    assert np.mean((low <= 3) & (3 <= high)) == pytest.approx(confidence, abs=4 * error)


def test_pairs_hold_the_difference_though_seeds_differ_far_more():
    rng = np.random.default_rng(0)
    seed = 100 * rng.standard_normal((5, SAMPLES))
    first, second = (seed + shift + rng.standard_normal(seed.shape) for shift in (0.5, 0.0))
    _, low, high = paired_interval(first, second)
    assert np.mean((low <= 0.5) & (0.5 <= high)) == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / SAMPLES))
    assert np.median(high - low) < 5 < np.median(np.subtract(*mean_interval(first)[:0:-1]))


@given(st.integers(2, 9), st.integers(0, 2**32 - 1), st.floats(0.01, 0.999))
def test_the_same_as_scipy(n, seed, confidence):
    first, second = np.random.default_rng(seed).standard_cauchy((2, n, 3))
    for ours, theirs in (
        (mean_interval(first, confidence), stats.ttest_1samp(first, 0)),
        (paired_interval(first, second, confidence), stats.ttest_rel(first, second)),
    ):
        expected = theirs.confidence_interval(confidence)
        np.testing.assert_allclose(ours[1:], (expected.low, expected.high), rtol=1e-9, atol=1e-9)


def test_a_bootstrap_agrees_for_many_seeds():
    values = np.random.default_rng(1).gamma(4.0, size=400)
    resampled = stats.bootstrap((values,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(2)).confidence_interval
    assert mean_interval(values)[1:] == pytest.approx(tuple(resampled), abs=0.02)


def table(seeds=4, methods=("a", "b", "c")):
    rng = np.random.default_rng(5)
    return pd.DataFrame([{"mu": mu, "graph": graph, "method": method, "seed": seed, "loss": rng.normal()}
                         for mu in (1, 2) for graph in "xy" for method in methods for seed in range(seeds)]).sample(frac=1, random_state=0)


def test_tables_are_read_group_by_group_and_pair_by_pair():
    runs = table()
    means = means_over_seeds(runs, "loss", ["mu", "graph", "method"])
    gains = differences_over_seeds(runs, "loss", ["mu", "graph"], "b")
    assert len(means) == 12 and len(gains) == 8
    for (mu, graph, method), row in gains.iterrows():
        here = runs[(runs.mu == mu) & (runs.graph == graph)].sort_values("seed")
        of = {name: here.loss[here.method == name].to_numpy() for name in (method, "b")}
        assert tuple(row[["mean", "low", "high"]]) == pytest.approx(paired_interval(of[method], of["b"]))
        assert tuple(means.loc[mu, graph, method][["mean", "low", "high"]]) == pytest.approx(mean_interval(of[method]))
    overall = differences_over_seeds(runs[(runs.mu == 1) & (runs.graph == "x")], "loss", [], "b")
    np.testing.assert_allclose(overall, gains.loc[1, "x"])


def test_one_seed_has_a_mean_and_no_limits():
    runs = table(seeds=1)
    for found in (means_over_seeds(runs, "loss", ["mu", "graph", "method"]), differences_over_seeds(runs, "loss", ["mu", "graph"], "a")):
        assert found["mean"].notna().all() and found.low.isna().all() and found.high.isna().all() and (found.seeds == 1).all()


@pytest.mark.parametrize("values", [[], [1.0], 1.0, [1.0, np.nan], [1.0, np.inf], ["a", "b"]])
def test_what_is_no_sample_is_refused(values):
    with pytest.raises(ValueError, match="^values .*expected"): mean_interval(values)
    with pytest.raises(ValueError, match="^(first|second) .*expected"): paired_interval(values, values)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95, np.nan, "0.95", True, None])
def test_confidence_is_a_probability(confidence):
    for call in (lambda: mean_interval([1.0, 2.0], confidence), lambda: paired_interval([1.0, 2.0], [0.0, 1.0], confidence),
                 lambda: means_over_seeds(table(1), "loss", ["mu"], confidence), lambda: differences_over_seeds(table(1), "loss", ["mu", "graph"], "a", confidence)):
        with pytest.raises(ValueError, match="^confidence="): call()


def test_tables_that_cannot_be_paired_are_refused():
    runs = table()
    with pytest.raises(ValueError, match="'los' is not in the table"): means_over_seeds(runs, "los", ["mu"])
    with pytest.raises(ValueError, match="'seed' is not in the table"): differences_over_seeds(runs.drop(columns="seed"), "loss", ["mu", "graph"], "a")
    with pytest.raises(ValueError, match="several rows"): differences_over_seeds(runs, "loss", ["mu"], "a")
    with pytest.raises(ValueError, match="^reference='d'"): differences_over_seeds(runs, "loss", ["mu", "graph"], "d")
    with pytest.raises(ValueError, match="every seed with every method"): differences_over_seeds(runs.iloc[1:], "loss", ["mu", "graph"], "a")
    with pytest.raises(ValueError, match="not finite"): means_over_seeds(runs.assign(loss=np.inf), "loss", ["mu", "graph", "method"])
    with pytest.raises(ValueError, match="several rows with the same \\['mu', 'graph', 'seed'\\]"): means_over_seeds(runs, "loss", ["mu", "graph"])
    with pytest.raises(ValueError, match="not finite"): differences_over_seeds(runs.assign(loss=np.inf), "loss", ["mu", "graph"], "a")
    with pytest.raises(ValueError, match="first and second have shapes"): paired_interval([1.0, 2.0], [1.0, 2.0, 3.0])


def test_settings_without_a_number_stay():
    runs = table().query("method != 'a'").assign(mu=lambda runs: np.where(runs.method == "b", np.nan, runs.mu)).drop_duplicates(["mu", "graph", "method", "seed"])
    assert set(means_over_seeds(runs, "loss", ["mu", "graph", "method"]).reset_index().method) == set(runs.method)
