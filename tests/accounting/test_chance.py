"""Records that take part at random: numbers against quadrature, and refusals by everything that needs known steps."""
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.linalg import toeplitz

from mfdl import LDP, PNDP, Lipschitz, Participation, account, audit
from mfdl.accounting.gaussian_dp import GaussianDP
from mfdl.accounting.methods.all_attackers import exposure
from mfdl.accounting.methods.eavesdropper import independent, overheard
from mfdl.accounting.methods.flow_plans import promise
from mfdl.accounting.methods.pairs import check_account
from mfdl.accounting.methods.poisson import AmplifiedReport, amplified
from mfdl.accounting.methods.sparse_view import FromSeen, expected_cost, see
from mfdl.accounting.methods.ways import expected_work
from mfdl.accounting.sensitivity import worst_sensitivities, worst_sensitivity
from mfdl.evidence.methods.replays import replay
from mfdl.evidence.methods.worst_inputs import worst_case
from mfdl.noise.methods.gram_matrices import local_gram
from mfdl.noise.methods.insiders import optimize_local
from mfdl.noise.methods.newton import optimize, unit_sensitivity
from mfdl.noise.methods.space_time_solver import exact_space_time, pattern_blocks, patterns_of
from mfdl.noise.methods.spectral import any_noise_bound, optimize_space_time
from mfdl.noise.methods.strategies import best_toeplitz, load_strategy, save_strategy, strategy
from mfdl.noise.which_noise import which_noise
from mfdl.protocol.algorithms import decor, dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.group_seeds import corn
from mfdl.protocol.methods.random_participation import PoissonParticipation, RandomParticipation
from mfdl.protocol.participation import check_participation
from mfdl.tools.answers import expected_cost_in_words
from mfdl.tools.logs import MessageLog, write_log
from mfdl.tools.names import build_algorithm

W = gossip_matrix(nx.cycle_graph(3))
BANDS = np.array([1, 1 / 2, 1 / 4, 1 / 8]) / np.linalg.norm([1, 1 / 2, 1 / 4, 1 / 8])
RUN = dp_dsgd(W, 4)
POISSON = Participation.poisson(0.5, 4)
TURNS = Participation.cyclic_poisson(2, 2, 0.5)


REASONS = ("at random", "amplification by subsampling", "with random batches", "patterns that do not overlap", "every-step, single", "made for Participation")


def excess(q, sigma, lengths, adjacency, epsilon):
    """delta of one or two steps of given lengths, by a sum over a grid, the larger of both directions."""
    size = {"zero-out": 1.0, "replace-one": 0.5}[adjacency]
    P, Q, cell = 1.0, 1.0, 1.0
    for length in lengths:
        x = np.linspace(-9 * sigma - length, 9 * sigma + length, 1601)
        quiet = stats.norm.pdf(x, 0, sigma)
        P = np.multiply.outer(P, (1 - q) * quiet + q * stats.norm.pdf(x, size * length, sigma))
        Q = np.multiply.outer(Q, quiet if adjacency == "zero-out" else (1 - q) * quiet + q * stats.norm.pdf(x, -size * length, sigma))
        cell *= x[1] - x[0]
    return cell * max(np.maximum(P - math.exp(epsilon) * Q, 0).sum(), np.maximum(Q - math.exp(epsilon) * P, 0).sum())


@settings(max_examples=12, deadline=None)
@given(st.floats(0.02, 0.98), st.floats(0.4, 3), st.floats(0, 1.5), st.sampled_from(["zero-out", "replace-one"]),
       st.lists(st.floats(0.5, 2), min_size=1, max_size=2))
def test_steps_of_any_length_agree_with_quadrature(q, sigma, epsilon, adjacency, lengths):
    """Independent noise whose size changes from step to step, given as a diagonal strategy."""
    run = mf_dsgd(W, len(lengths), np.diag(lengths))
    report = amplified(run, LDP(), Participation.poisson(q, len(lengths)), sigma).in_units(1.0, 1, adjacency)
    truth = excess(q, sigma, lengths, adjacency, epsilon)
    found = report.delta(epsilon).max()
    assert found >= truth * (1 - 1e-4) - 1e-9, "more is promised than is true"
    assert found <= truth * (1 + 5e-3) + 1e-6, "less is promised than could be"


@settings(max_examples=10, deadline=None)
@given(st.floats(0.01, 1), st.integers(1, 50), st.floats(0.3, 20), st.floats(1e-8, 0.1))
def test_chance_never_promises_more_than_it_may(q, T, sigma, delta):
    """Sure participation bounds it from above; more participation, less noise and smaller deltas never help."""
    run = dp_dsgd(W, T)
    report = account(run, LDP(), Participation.poisson(q, T), sigma)
    value = report.epsilon(delta).max()
    assert 0 <= value <= GaussianDP(math.sqrt(T) / sigma).epsilon(delta) * (1 + 1e-3) + 1e-4
    rarer = account(run, LDP(), Participation.poisson(q / 2, T), sigma).epsilon(delta).max()
    quieter = account(run, LDP(), Participation.poisson(q, T), sigma * 2).epsilon(delta).max()
    assert max(rarer, quieter) <= value * (1 + 1e-3) + 1e-4
    assert report.delta(value).max() <= delta * (1 + 1e-6) + 1e-10
    for alpha in (0.0, 0.1, 0.7, 1.0):
        assert GaussianDP(math.sqrt(T) / sigma).beta(alpha) * (1 - 1e-9) <= report.beta(alpha).min() <= 1 - alpha + 1e-12


def test_sure_participation_is_the_gaussian_account():
    for T, b in ((4, 1), (6, 3)):
        sure = account(dp_dsgd(W, T), LDP(), Participation.cyclic_poisson(T // b, b, 1.0), 1.3)
        known = account(dp_dsgd(W, T), LDP(), Participation.cyclic(T // b, b), 1.3)
        np.testing.assert_allclose(sure.epsilon(1e-6), known.epsilon(1e-6), rtol=1e-9)
        np.testing.assert_allclose(sure.beta(0.2), known.beta(0.2), rtol=1e-8)


def test_blocks_of_a_banded_strategy():
    """A group's steps count with the lengths of their columns; bands that reach the next chance are refused."""
    C = np.eye(6) + np.diag([0.5, 0.1, 0.9, 0.3, 0.7], -1)
    banded = amplified(mf_dsgd(W, 6, C), LDP(), Participation.cyclic_poisson(3, 2, 0.2), 2.0)
    norms = np.linalg.norm(C, axis=0)
    alone = [amplified(mf_dsgd(W, 3, np.diag(norms[j::2])), LDP(), Participation.poisson(0.2, 3), 2.0).epsilon(1e-5).max() for j in (0, 1)]
    assert banded.epsilon(1e-5).max() == pytest.approx(max(alone), rel=1e-6)
    longer = C + np.diag(np.full(4, 1e-3), -2)
    with pytest.raises(ValueError, match="memory of 3 steps"):
        amplified(mf_dsgd(W, 6, longer), LDP(), Participation.cyclic_poisson(3, 2, 0.2), 2.0)
    amplified(mf_dsgd(W, 6, longer), LDP(), Participation.cyclic_poisson(2, 3, 0.2), 2.0)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 3), st.integers(2, 4), st.floats(0.1, 0.9), st.floats(0.5, 2), st.sampled_from(["zero-out", "replace-one"]), st.data())
def test_groups_that_are_left_out_are_no_worse_off(k, b, q, sigma, adjacency, data):
    """Each group by itself, as a run of its own steps, whatever the lengths of its steps are; some nodes and steps are away."""
    lengths = np.array(data.draw(st.lists(st.sampled_from([0.5, 0.8, 1.0, 1.2]), min_size=k * b, max_size=k * b)))
    def told(lengths, scheme): return amplified(mf_dsgd(W, len(lengths), np.diag(lengths)), LDP(), scheme, sigma).in_units(1.0, 1, adjacency)
    together = told(lengths, Participation.cyclic_poisson(k, b, q))
    apart = [told(lengths[j::b], Participation.poisson(q, k)) for j in range(b)]
    for name, argument, pick in (("epsilon", 1e-5, max), ("delta", 0.5, max), ("beta", 0.2, min)):
        alone = pick(pick(getattr(one, name)(argument)) for one in apart)
        assert pick(getattr(together, name)(argument)) == pytest.approx(alone, rel=1e-4, abs=1e-8)
    assert len(together.cases[0]) <= len({tuple(sorted(lengths[j::b])) for j in range(b)})


@pytest.mark.parametrize("sigma", [1.0, 2.0, 4.0])
def test_bands_stand_between_the_bounds_of_a_fine_grid(sigma):
    """Twenty chances of a half: dp-accounting's grid of 1e-4, rounded down and rounded up, of the steps of the longest column."""
    from dp_accounting.pld import privacy_loss_distribution as losses
    C = toeplitz(column := np.pad(BANDS, (0, 36)), 0 * column)
    found = amplified(mf_dsgd(W, 40, C), LDP(), Participation.cyclic_poisson(10, 4, 0.5), sigma).in_units(1.0, 1, "zero-out")
    low, high = (losses.from_gaussian_mechanism(sigma, pessimistic_estimate=up, value_discretization_interval=1e-4, sampling_prob=0.5)
                 .self_compose(10).get_epsilon_for_delta(1e-6) for up in (False, True))
    assert low <= found.epsilon(1e-6).max() <= high * (1 + 1e-4)
    assert found.cases[0] == (((pytest.approx(1.0), 10),),)


def test_nodes_with_equal_noise_are_solved_for_once():
    """Equal blocks are merged and their shares added up; one different node is kept apart."""
    C = np.tril(np.random.default_rng(0).uniform(0.1, 1, (4, 4))) + np.eye(4)
    for strategies, kinds in (([C] * 3, 1), ([C, 2 * C, C], 2)):
        found = overheard(Attack(mf_dsgd(W, 4, strategies), LDP()))
        assert found.X.shape == (kinds, 4, 4) and not found.paired
        np.testing.assert_allclose([found.information(u) for u in range(3)], [one.T @ one for one in strategies], rtol=1e-9)


def test_extremes():
    """Hardly any noise, hardly any participation, and a great deal of noise."""
    for q, sigma in ((0.5, 1e-3), (1e-9, 30.0), (0.5, 1e7), (0.2, 0.06)):
        report = account(dp_dsgd(W, 3), LDP(), Participation.poisson(q, 3), sigma)
        value = report.epsilon(1e-6).max()
        assert 0 <= value <= GaussianDP(math.sqrt(3) / sigma).epsilon(1e-6) * (1 + 1e-6) + 1e-6
    nobody = dp_dsgd(W, 2, offline=[[0], [0]])
    assert account(nobody, LDP(), Participation.poisson(0.5, 2), 1.0).epsilon(1e-6)[0] == 0


@pytest.mark.parametrize("scheme", [POISSON, TURNS], ids=["poisson", "cyclic"])
def test_everything_else_refuses_chance(scheme, tmp_path):
    P = np.eye(4)
    known = independent(Attack(RUN, LDP()))
    at_an_insider = FromSeen(see(Attack(RUN, PNDP([0]))))
    save_strategy(strategy("identity", Participation.cyclic(2, 2), W), tmp_path / "kept.npz")
    case = worst_case(RUN, LDP(), Participation.cyclic(2, 2))
    consumers = {
        "account against an insider": lambda: account(RUN, PNDP([0]), scheme),
        "account with a promise": lambda: account(RUN, LDP(), scheme, updates=Lipschitz(1)),
        "check_account": lambda: check_account(RUN, LDP(), scheme, 1.0, "exact"),
        "check_participation": lambda: check_participation(scheme),
        "expected_work": lambda: expected_work(RUN, LDP(), scheme),
        "expected_cost": lambda: expected_cost(see(Attack(RUN, PNDP([0]))), scheme),
        "expected_cost_in_words": lambda: expected_cost_in_words(RUN, [LDP()], scheme, "exact", None),
        "worst_sensitivity": lambda: worst_sensitivity(P, scheme),
        "worst_sensitivities": lambda: worst_sensitivities(P[None], scheme),
        "sum": lambda: known.sensitivities(np.arange(3), scheme),
        "seen": lambda: at_an_insider.sensitivities(np.array([1]), scheme),
        "promise": lambda: promise(Attack(RUN, PNDP([0])), scheme, Lipschitz(1)),
        "exposure": lambda: exposure(RUN, PNDP.each(range(3)), scheme),
        "strategy": lambda: strategy("mafalda", scheme, W),
        "identity": lambda: strategy("identity", scheme),
        "load_strategy": lambda: load_strategy(tmp_path / "kept.npz", scheme),
        "best_toeplitz": lambda: best_toeplitz(W, scheme, 2),
        "optimize": lambda: optimize(local_gram(W, 4), scheme),
        "unit_sensitivity": lambda: unit_sensitivity(P, scheme),
        "patterns_of": lambda: patterns_of(scheme),
        "pattern_blocks": lambda: pattern_blocks(scheme, 3),
        "any_noise_bound": lambda: any_noise_bound(W, scheme),
        "optimize_space_time": lambda: optimize_space_time(W, scheme),
        "exact_space_time": lambda: exact_space_time(W, scheme),
        "optimize_local": lambda: optimize_local(W, scheme, LDP()),
        "which_noise": lambda: which_noise(W, scheme, 8, 1e-6),
        "worst_case": lambda: worst_case(RUN, LDP(), scheme),
        "replay": lambda: replay(RUN, LDP(), scheme, case, 1.0, 1, [1]),
        "audit": lambda: audit(RUN, LDP(), scheme),
        "MessageLog": lambda: MessageLog(tmp_path / "log", range(3), scheme),
        "write_log": lambda: write_log(RUN, scheme, 1.0, tmp_path / "log"),
        "build_algorithm": lambda: build_algorithm("mf-dsgd", W, 4, "identity", None, scheme),
        "text": lambda: Participation.parse(f"poisson:{0.5}", 4),
    }
    faults = {}
    for name, consume in consumers.items():
        try: faults[name] = f"accepted: {consume()!r:.80}"
        except ValueError as refused:
            if not any(words in str(refused) for words in REASONS): faults[name] = str(refused)
        except Exception as error: faults[name] = repr(error)
    assert not faults, "\n".join(map(str, faults.items()))
    assert not (tmp_path / "log").exists()


def test_only_known_steps_are_participations():
    assert not isinstance(POISSON, Participation) and isinstance(POISSON, RandomParticipation)
    with pytest.raises(ValueError, match="expected one that is drawn at random"): amplified(RUN, LDP(), RandomParticipation())
    for q in (0, -0.1, 1.1, math.nan, "half", None, True + 1):
        with pytest.raises(ValueError, match="q="): Participation.poisson(q, 4)
    for counts in ((0, 1), (2.5, 1), (1, 0)):
        with pytest.raises(ValueError): PoissonParticipation(*counts, 0.5)
    assert isinstance(account(RUN, LDP(), POISSON), AmplifiedReport)


def test_calibration_is_tight_and_on_the_safe_side():
    report = account(dp_dsgd(W, 30), LDP(), Participation.poisson(0.1, 30))
    for epsilon in (0.5, 3):
        enough = report.calibrate(epsilon, 1e-5)
        assert enough.epsilon(1e-5).max() <= epsilon
        less = account(dp_dsgd(W, 30), LDP(), Participation.poisson(0.1, 30), enough.sigma * (1 - 1e-3))
        assert less.epsilon(1e-5).max() > epsilon


def swept(R, u, q, epsilon):
    """delta of a step whose noise two nodes share with covariance R, by a sum over a grid in the plane."""
    axis = np.linspace(-8, 8, 641) * math.sqrt(R.max())
    where = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    Q, moved = (stats.multivariate_normal(center, R).pdf(where) for center in (np.zeros(2), np.eye(2)[u]))
    P = (1 - q) * Q + q * moved
    return (axis[1] - axis[0]) ** 2 * max(np.maximum(P - math.exp(epsilon) * Q, 0).sum(), np.maximum(Q - math.exp(epsilon) * P, 0).sum())


@settings(max_examples=8, deadline=None)
@given(st.floats(-0.8, 0.8), st.floats(0.5, 3), st.floats(0.05, 0.95), st.floats(0, 1))
def test_shared_noise_agrees_with_quadrature(correlation, louder, q, epsilon):
    R = np.array([[1, correlation * math.sqrt(louder)], [correlation * math.sqrt(louder), louder]])
    report = account(corn(np.full((2, 2), 0.5), 1, R), LDP(), Participation.poisson(q, 1)).in_units(1.0, 1, "zero-out")
    np.testing.assert_allclose(report.delta(epsilon), [swept(R, u, q, epsilon) for u in range(2)], rtol=2e-3, atol=1e-9)


@pytest.mark.parametrize("run", [corn(W, 4, np.diag([1.0, 2.0, 3.0]) - 0.3), decor(W, 4, 1.0, 0.7)], ids=["CorN", "DECOR"])
def test_sure_participation_and_shared_noise_are_the_account_of_every_step(run):
    known = account(run, LDP(), Participation.every_step(4), 2.0).in_units(1.0, 1, "zero-out").epsilon(1e-5)
    for sure in (Participation.poisson(1.0, 4), Participation.balls_in_bins(4, 1)):
        told = account(run, LDP(), sure, 2.0).in_units(1.0, 1, "zero-out").epsilon(1e-5)
        np.testing.assert_allclose(told, known.to_numpy().ravel(), rtol=1e-8)


def test_noise_in_space_and_time_hides_one_chance_of_a_record():
    lazy = (np.eye(3) + W) / 2
    run = optimize_space_time(lazy, Participation.single(4), method="directions").protocol(lazy)
    N = run.mix.N.toarray()
    lengths = np.sqrt(np.linalg.inv(N @ N.T).diagonal().reshape(4, 3))
    apart = Participation.cyclic_poisson(1, 4, 1.0)
    told = account(run, LDP(), apart, 2.0).in_units(1.0, 1, "zero-out").epsilon(1e-5)
    np.testing.assert_allclose(told, [GaussianDP(one / 2).epsilon(1e-5) for one in lengths.max(axis=0)], rtol=1e-8)
    with pytest.raises(ValueError, match="a memory of"): account(run, LDP(), POISSON)
