"""Noise with little memory: exact coefficients, sensitivities by semidefinite programs, other solvers, the noise that nodes draw, and accounts by two routes."""
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from mfdl import account
from mfdl.accounting.account import account_by
from mfdl.accounting.sensitivity import worst_sensitivity
from mfdl.learning.methods.noise_supply import Draws, NoiseSource, looks_back
from mfdl.noise.methods.gram_matrices import local_gram
from mfdl.noise.methods.low_memory import INVERSE_BANDS, banded_inverse, inverse_root
from mfdl.noise.methods.newton import optimize
from mfdl.noise.methods.objectives import Objective
from mfdl.noise.methods.strategies import load_strategy, save_strategy, strategy
from mfdl.protocol.algorithms import mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.streams import NodeNoise, deal_seeds
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import LDP, PNDP


def test_the_coefficients_of_bisr():
    """The binomial series of the root, in exact fractions; with momentum the sum of Lemma 1, term by term, as opake has it."""
    series = [Fraction(1)]
    for j in range(1, 30): series.append(-series[-1] * (Fraction(1, 2) - (j - 1)) / j)
    assert series[:4] == [1, Fraction(-1, 2), Fraction(-1, 8), Fraction(-1, 16)]
    np.testing.assert_allclose(inverse_root(30), [float(c) for c in series], rtol=1e-14)
    for beta in (Fraction(1, 2), Fraction(9, 10)):
        both = [sum(series[j] * beta**j * series[i - j] for j in range(i + 1)) for i in range(30)]
        np.testing.assert_allclose(inverse_root(30, float(beta)), [float(c) for c in both], rtol=1e-12, atol=1e-16)
    for wrong in (-0.1, 1, np.nan, "x"):
        with pytest.raises(ValueError, match="momentum="): inverse_root(3, wrong)


@settings(deadline=None, max_examples=30, derandomize=True)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.integers(0, 10**6), st.booleans())
def test_what_is_found_has_bands_and_its_sensitivity(k, b, bands, seed, cyclic):
    """No entry of C below 0, sensitivity 1 by the semidefinite program, no more squared error than BISR and independent noise, no less than the optimum."""
    scheme = Participation.cyclic(k, b) if cyclic else Participation.min_sep(k, b, k * b + 1)
    T, bands = scheme.T, min(bands, scheme.T)
    factor = np.random.default_rng(seed).normal(size=(T + 2, T))
    H = factor.T @ factor
    N = banded_inverse(H, scheme, bands)
    off = N - np.diag(np.diag(N))
    assert not np.triu(N, 1).any() and not np.tril(N, -bands).any() and (off <= 0).all() and (np.diag(N) > 0).all()
    C = np.linalg.inv(N)
    assert C.min() > -1e-12 * C.max()
    if not cyclic: return
    assert worst_sensitivity(C.T @ C, scheme) == pytest.approx(1, abs=1e-6)
    harm, root = np.trace(H @ N @ N.T), np.zeros((T, T))
    for lag, weight in enumerate(inverse_root(bands)): root += weight * np.eye(T, k=-lag)
    X = np.linalg.inv(root @ root.T)
    assert harm <= min(k * np.trace(H), np.trace(H @ root @ root.T) * worst_sensitivity(X, scheme)**2) * (1 + 1e-7)
    assert harm >= optimize(H, scheme).lower_bound * (1 - 1e-9)


def test_no_other_solver_finds_less():
    """Against a search without gradients, scalings or signs, from many starts: with two bands more freedom in the signs is of no use here."""
    scheme, T = Participation.cyclic(2, 3), 6
    H = local_gram(gossip_matrix(nx.path_graph(4)), T)
    N = banded_inverse(H, scheme, 2)
    best = np.trace(H @ N @ N.T)

    def loss(free):
        N = np.diag(np.exp(free[:T])) + np.diag(free[T:], -1)
        X = np.linalg.inv(N @ N.T)
        return np.log(np.trace(H @ N @ N.T) * worst_sensitivity(X, scheme, "bound")**2)

    rng = np.random.default_rng(0)
    others = []
    for _ in range(8):
        start = np.append(rng.normal(scale=0.2, size=T), rng.normal(scale=0.4, size=T - 1))
        for _ in range(3): start = minimize(loss, start, method="Nelder-Mead", options={"maxfev": 4000, "adaptive": True, "fatol": 1e-10}).x
        others.append(np.exp(loss(start)))
    assert best <= min(others) * (1 + 1e-7) and min(others) < best * 1.01


@pytest.mark.parametrize("objective", [None, Objective(momentum=0.9), Objective.last(24, learning_rates=np.geomspace(1, 0.2, 24), momentum=0.5)])
def test_strategies_with_few_bands_of_the_inverse(objective, tmp_path):
    W, scheme = gossip_matrix(nx.cycle_graph(6)), Participation.cyclic(4, 6)
    best, lean = (strategy(name, scheme, W, objective=objective) for name in ("mafalda", "banded_inverse"))
    bisr = strategy("bisr", scheme, W, objective=objective)
    assert best.lower_bound * (1 - 1e-12) <= lean.lower_bound <= best.objective <= lean.objective < bisr.objective and 0 < lean.gap < 0.5
    assert lean.objective == pytest.approx(np.trace(local_gram(W, 24, objective=objective) @ np.linalg.inv(lean.X)), rel=1e-9)
    if objective is not None: assert np.trace(np.linalg.inv(lean.X)) <= 4 * 4 * 24
    for one in (lean, bisr):
        assert worst_sensitivity(one.X, scheme) == pytest.approx(1, abs=1e-9)
        again = load_strategy(save_strategy(one, tmp_path / "C", W), scheme, W)
        for run in (one.protocol(W), again.protocol(W)):
            assert not run.mix.takes_back and 1 < max(np.diff(run.mix.N.indptr)) <= INVERSE_BANDS  # some weights may be 0
            np.testing.assert_allclose((run.mix.N @ np.kron(one.C, np.eye(6))), np.eye(144), atol=1e-12)
    known = inverse_root(4, 0.0 if objective is None else objective.momentum)
    np.testing.assert_allclose(np.linalg.inv(bisr.C)[:4, 0] / np.linalg.inv(bisr.C)[0, 0], known, atol=1e-12)


def test_at_least_so_far_apart():
    """Sensitivity by all patterns, and a lower bound where records that are exactly so far apart take part as often."""
    W = gossip_matrix(nx.path_graph(5))
    for T in (12, 14):
        scheme = Participation.min_sep(3, 4, T)
        for name in ("bisr", "banded_inverse"):
            one = strategy(name, scheme, W, bands=3)
            assert worst_sensitivity(one.X, scheme) == pytest.approx(1, abs=1e-9)
        assert (one.lower_bound is not None) == (T == 12) and one.objective < strategy("bisr", scheme, W, bands=3).objective
    assert strategy("banded_inverse", Participation.min_sep(3, 4, 12), W).lower_bound <= optimize(local_gram(W, 12), Participation.cyclic(3, 4)).objective
    with pytest.raises(ValueError, match="bands=15: expected at most the T=14 steps"): strategy("bisr", scheme, bands=15)


@settings(deadline=None, max_examples=15, derandomize=True)
@given(st.integers(1, 4), st.integers(0, 10**6), st.booleans())
def test_noise_is_the_same_however_it_is_kept(bands, seed, secure):
    """Drawn again or kept, node by node, and (if not secure) in a simulation: the bands of C^-1 times the variables."""
    rng, T, n = np.random.default_rng(seed), 9, 4
    N = np.diag(rng.uniform(0.5, 2, T)) + sum(np.diag(rng.uniform(-1, 0.4, T - lag), -lag) for lag in range(1, bands))
    run = mf_dsgd(gossip_matrix(nx.cycle_graph(n)), T, np.tril(np.linalg.inv(N)))
    assert looks_back(run) == bands - 1 and not run.mix.takes_back
    independent = mf_dsgd(gossip_matrix(nx.cycle_graph(n)), T, np.eye(T))
    together = []
    for node, seeds in deal_seeds(run, seed).items():
        kept, again = (np.vstack(list(NodeNoise(run, node, seeds, 5, secure, regenerate=way))) for way in (False, True))
        np.testing.assert_array_equal(kept, again)
        Z = np.vstack(list(NodeNoise(independent, node, seeds, 5, secure)))
        np.testing.assert_allclose(kept, N @ Z, atol=1e-12)
        together.append(kept)
    if secure: return
    source = NoiseSource([run], Draws(run.variables, [seed], 5, keep=looks_back(run)))
    np.testing.assert_allclose([next(source)[:, 0] for _ in range(T)], np.swapaxes(together, 0, 1), atol=1e-5)


def test_what_only_looks_like_a_band_is_left_alone():
    """Ill-conditioned strategies, whose inverse rounding fills, keep all of it."""
    T = 60
    C = np.tril(np.linalg.inv(np.eye(T) - 1.6 * np.eye(T, k=-1)))
    run = mf_dsgd(np.ones((1, 1)), T, C)
    np.testing.assert_allclose(run.mix.N.toarray() @ C / np.abs(C).max(), np.eye(T) / np.abs(C).max(), atol=1e-12)
    bands_of_C = np.eye(40) - 0.99 * np.eye(40, k=-1)
    assert mf_dsgd(np.ones((1, 1)), 40, bands_of_C).mix.takes_back


@pytest.mark.parametrize("name", ["bisr", "banded_inverse"])
def test_accounts_of_lean_noise_agree(name):
    """The pass through the run and the one through its matrices, for an eavesdropper, curious nodes and coalitions; the eavesdropper's is 1."""
    W, scheme = gossip_matrix(nx.path_graph(5), "uniform"), Participation.cyclic(3, 5)
    run = strategy(name, scheme, W, bands=3).protocol(W)
    assert account(run, LDP(), scheme).mu.max() == pytest.approx(1, abs=1e-6)
    for trust in (PNDP([0]), PNDP([2]), PNDP([1, 3])):
        streamed, dense = (account_by(how, run, trust, scheme).mu for how in ("streaming", "dense"))
        np.testing.assert_allclose(streamed, dense, rtol=1e-8)
        assert np.nanmax(dense) <= 1 + 1e-9
