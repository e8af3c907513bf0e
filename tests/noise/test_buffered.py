"""Noise with buffers: products of matrices, all patterns one by one, dense Gram matrices, closed forms in long runs, and other solvers."""
import itertools
import tracemalloc

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_array

from mfdl import account
from mfdl.accounting.sensitivity import worst_sensitivity
from mfdl.noise.methods.buffered import LONGEST_GRAM, MOST_BUFFERS, Buffered, _errors, _impulse, _precisions, _shorter, best_buffers
from mfdl.noise.methods.gram_matrices import local_gram
from mfdl.noise.methods.newton import optimize
from mfdl.noise.methods.objectives import Objective
from mfdl.noise.methods.strategies import load_strategy, save_strategy, strategy
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import LDP, PNDP

ONE = np.ones((1, 1))
RING = gossip_matrix(nx.cycle_graph(6))


@st.composite
def noises(draw, T):
    "Places anywhere in (0, 1), next to each other too, and sizes with jumps."
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    d = draw(st.integers(1, 4))
    places = np.sort(rng.choice([rng.random(2 * d), 1 - 10.0 ** rng.uniform(-6, 0, 2 * d), 10.0 ** rng.uniform(-6, -0.1, 2 * d)]))[::-1]
    sizes = 0.1 + np.cumsum(rng.exponential(size=T) * (rng.random(T) < draw(st.floats(0, 1))))
    return Buffered(places[::2], places[1::2], sizes)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(noises(9), st.integers(0, 10**6))
def test_stream_matrix_and_fractions_agree(one, seed):
    """C as a product of first-order factors, its inverse applied to variables of any shape, and the variance of what is added."""
    S, C = np.eye(9, k=-1), np.eye(9)
    for pole, zero in zip(one.poles, one.zeros, strict=True): C = C @ np.linalg.solve(np.eye(9) - pole * S, np.eye(9) - zero * S)
    C /= one.sizes[:, None]
    np.testing.assert_allclose(one.C, C, rtol=1e-9, atol=1e-14 / one.sizes[0])
    xi = np.random.default_rng(seed).normal(size=(9, 2, 3))
    added = np.array(list(one.stream(xi)))
    np.testing.assert_allclose(added.reshape(9, 6), np.linalg.solve(one.C, xi.reshape(9, 6)), rtol=1e-12, atol=1e-12 * one.sizes[-1])
    np.testing.assert_allclose(added[:, 1, 2], list(one.stream(xi[:, 1, 2])), rtol=1e-13)
    assert len(list(one.stream(xi[:4]))) == 4
    assert one.variance == pytest.approx(np.trace(np.linalg.inv(C.T @ C)), rel=1e-9)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(noises(9), st.integers(1, 4), st.integers(1, 9), st.booleans())
def test_the_sensitivity_is_that_of_the_worst_of_all_patterns(one, k, b, cyclic):
    if k * b > 9: return
    if cyclic and k * b != 9: return
    scheme = Participation.cyclic(k, b) if cyclic else Participation.min_sep(k, b, 9)
    X = one.C.T @ one.C
    assert X.min() > -1e-15 * X.max()
    if cyclic: every = [range(j, 9, b) for j in range(b)]
    else: every = [p for m in range(1, k + 1) for p in itertools.combinations(range(9), m) if all(t - s >= b for s, t in itertools.pairwise(p))]
    worst = max(X[np.ix_(p, p)].sum() for p in map(list, every))
    assert one.sensitivity(scheme) ** 2 == pytest.approx(worst, rel=1e-11)
    assert one.sensitivity(scheme) == pytest.approx(worst_sensitivity(X, scheme), rel=1e-6)


def networks():
    rng = np.random.default_rng(3)
    directed, schedule = rng.dirichlet(np.full(5, 0.4), size=5), Objective(learning_rates=np.linspace(1, 0.2, 12), momentum=0.5)
    star, changing = gossip_matrix(nx.star_graph(4), "uniform"), [rng.dirichlet(np.ones(3), size=3) for _ in range(12)]
    yield from ((ONE, None), (RING, None), (star, None), (np.full((4, 4), 0.25), None), (directed, None), (changing, None))
    yield from ((ONE, Objective(momentum=0.9)), (star, Objective(momentum=0.9)), (RING, Objective(momentum=0.9, nesterov=True)), (directed, Objective(momentum=0.3)))
    yield from ((RING, Objective.last(12)), (star, Objective(averaged=True)), (RING, schedule), (star, Objective(nodes=np.arange(5.0))))


@pytest.mark.parametrize(("W", "objective"), list(networks()))
def test_squared_errors_and_optima_on_any_network(W, objective):
    """Against the dense Gram matrix; sensitivity 1 by a semidefinite program; never below the optimum, nor above independent noise."""
    H = local_gram(W, 12, objective=objective)
    for scheme in (Participation.cyclic(3, 4), Participation.min_sep(2, 5, 12)):
        one = best_buffers(W, scheme, 2, objective, price=0.0 if objective is None else 0.05)
        X = one.C.T @ one.C
        assert one.squared_error(W, objective) == pytest.approx(np.trace(H @ np.linalg.inv(X)), rel=1e-9)
        assert worst_sensitivity(X, scheme) == pytest.approx(1, abs=1e-7) and one.sensitivity(scheme) == pytest.approx(1, abs=1e-12)
        tau = 0.0 if objective is None else 0.05
        assert one.squared_error(W, objective) + tau * one.variance <= scheme.k * (np.trace(H) + 12 * tau) * (1 + 1e-9)
        if scheme.separation == "exactly" and objective is None: assert one.squared_error(W) >= optimize(H, scheme).lower_bound


def test_no_other_solver_finds_less():
    """A search without gradients over one buffer and sizes in order; and sizes alone by a cone solver."""
    scheme = Participation.cyclic(2, 4)
    H = local_gram(RING, 8)
    best = best_buffers(RING, scheme, 1).squared_error(RING)

    def loss(free):
        places = 1 / (1 + np.exp(np.cumsum([free[0], np.exp(np.clip(free[1], -9, 4))])))
        one = Buffered(places[:1], places[1:], np.exp(np.append(0, np.cumsum(np.abs(free[2:])))))
        return np.log(np.trace(H @ np.linalg.inv(one.C.T @ one.C)) * worst_sensitivity(one.C.T @ one.C, scheme, "bound") ** 2)

    rng, others = np.random.default_rng(0), []
    for _ in range(2):
        start = np.append(rng.normal(size=2), 0.1 * rng.normal(size=7))
        for _ in range(3): start = minimize(loss, start, method="Nelder-Mead", options={"maxfev": 1100, "adaptive": True, "fatol": 1e-11}).x
        others.append(np.exp(loss(start)))
    assert best <= min(others) * (1 + 1e-6) and min(others) < 1.01 * best

    for _ in range(5):
        u, g = rng.exponential(size=10) + 0.05, np.sort(rng.exponential(size=10))[::-1]
        w = cp.Variable(10)
        left = cp.sum([cp.quad_over_lin(np.sqrt(x), one) for x, one in zip(g, w, strict=True)])
        error = cp.Problem(cp.Minimize(left), [(u**2) @ w <= 1, cp.diff(w) <= 0]).solve(solver=cp.CLARABEL)
        found = _precisions(u, g)
        assert (np.diff(found) <= 0).all() and (g / found).sum() * (found * u**2).sum() == pytest.approx(error, rel=1e-6)


SHORT = [Participation.single(1), Participation.every_step(2), Participation.single(2), Participation.single(7), Participation.every_step(7), Participation.min_sep(2, 3, 7)]


@pytest.mark.parametrize("scheme", SHORT)
@pytest.mark.parametrize("buffers", [None, 1, 4, MOST_BUFFERS])
def test_the_shortest_runs_and_many_buffers(scheme, buffers):
    one = best_buffers(ONE, scheme, buffers)
    assert len(one.poles) == (buffers or len(one.poles)) and len(one.poles) <= MOST_BUFFERS
    assert worst_sensitivity(one.C.T @ one.C, scheme) == pytest.approx(1, abs=1e-7)
    A = np.tri(scheme.T)
    assert one.squared_error(ONE) == pytest.approx(np.linalg.norm(A @ np.linalg.inv(one.C)) ** 2, rel=1e-9)
    assert one.squared_error(ONE) <= scheme.k * np.linalg.norm(A) ** 2 * (1 + 1e-9)


def test_more_buffers_do_not_do_worse():
    for W, scheme in ((ONE, Participation.cyclic(4, 64)), (RING, Participation.min_sep(5, 30, 200))):
        errors = [best_buffers(W, scheme, buffers).squared_error(W) for buffers in (1, 2, 3, 4)]
        assert all(more <= fewer * (1 + 1e-6) for fewer, more in itertools.pairwise(errors)) and errors[1] < 0.995 * errors[0]
        chosen = best_buffers(W, scheme)
        assert chosen.squared_error(W) <= 1.011 * errors[3]


@pytest.mark.parametrize("scheme", [Participation.cyclic(10, 10_000), Participation.cyclic(1000, 100), Participation.min_sep(7, 9_000, 100_000)])
def test_a_hundred_thousand_steps(scheme):
    """Sensitivity and error by sums of powers in extended precision: no table of partial sums, no filters."""
    one = best_buffers(ONE, scheme, 3)
    k, b, T = scheme.k, scheme.b, scheme.T
    theta, zeta, sizes = (x.astype(np.longdouble) for x in (one.poles, one.zeros, one.sizes))
    omega = np.array([np.prod(p - zeta) / np.prod(p - np.delete(theta, i)) for i, p in enumerate(theta)])
    t = np.arange(T)
    block, inside = np.minimum(t // b, k - 1), t % b
    u = ((inside == 0) & (t // b < k)).astype(np.longdouble)
    for w, p in zip(omega, theta, strict=True):  # columns begun at 0, b, .., block * b have faded for age, age + b, .. steps
        age = t - block * b
        first = np.where(age > 0, p ** np.maximum(age - 1, 0), p ** np.longdouble(b - 1))
        count = np.where(age > 0, block + 1, block)
        u += w * first * (1 - p ** (count * np.longdouble(b))) / (1 - p**b)
    assert float(((u / sizes) ** 2).sum()) == pytest.approx(1, rel=1e-9) and one.sensitivity(scheme) == pytest.approx(1, abs=1e-12)
    places = np.append(np.longdouble(1), zeta)
    rho = np.array([p * np.prod(p - theta) / np.prod(p - np.delete(places, i)) / p for i, p in enumerate(places)])
    y = sum(r * p ** t.astype(np.longdouble) for r, p in zip(rho, places, strict=True))
    assert float((sizes**2 * np.cumsum(y**2)[::-1]).sum()) == pytest.approx(one.squared_error(ONE), rel=1e-8)
    assert one.squared_error(ONE) < 0.1 * k * T * (T + 1) / 2
    short = _shorter(scheme)
    assert short.T < T and short.k <= k and short.b <= b and short.separation == scheme.separation


def test_a_node_remembers_its_buffers_and_nothing_else():
    """What a stream holds at any time, in vectors of the model, in short and long runs."""
    dimension, held = 20_000, {}
    for T in (20, 200):
        one = Buffered([0.99, 0.7, 0.3], [0.9, 0.5, 0.1], np.ones(T))
        rng = np.random.default_rng(0)
        tracemalloc.start()
        for _ in one.stream(rng.standard_normal(dimension) for _ in range(T)): pass
        held[T] = tracemalloc.get_traced_memory()[1] / (8 * dimension)
        tracemalloc.stop()
    assert 3 <= held[200] < 3 + 5.1 and abs(held[200] - held[20]) < 0.1  # the variable, what is added, and sums on the way


def test_what_is_refused():
    far, four = Participation.single(LONGEST_GRAM + 1), Participation.single(4)
    for wrong, said in (
        (lambda: Buffered([0.5], [0.6], [1.0]), "do not alternate"), (lambda: Buffered([0.5, 0.4], [0.45], [1.0]), "do not alternate"),
        (lambda: Buffered([], [], [1.0]), "do not alternate"), (lambda: Buffered([1.0], [0.6], [1.0]), "do not alternate"),
        (lambda: Buffered([0.5], [0.0], [1.0]), "do not alternate"),
        (lambda: Buffered([0.5], [0.2], [1.0, 0.9]), "never fall"), (lambda: Buffered([0.5], [0.2], []), "one for each step"),
        (lambda: Buffered([0.5], [0.2], [0.0, 1.0]), "positive"),
        (lambda: Buffered([0.5], [np.nan], [1.0]), "zeros"), (lambda: Buffered([0.5], [0.2], np.ones(3)).sensitivity(four), "for 4 steps; expected 3"),
        (lambda: best_buffers(ONE, four, 0), "buffers=0"), (lambda: best_buffers(ONE, four, 17), "expected at most 16"), (lambda: best_buffers(ONE, four, price=-1), "price=-1"),
        (lambda: best_buffers(ONE, Participation.poisson(0.1, 4)), "participation"), (lambda: best_buffers([[0.5, 0.4], [0, 1]], four), "not stochastic"),
        (lambda: best_buffers(ONE, far, objective=Objective(momentum=0.5, nesterov=True)), "expected at most 8192"),
        (lambda: best_buffers(ONE, four, objective=Objective.last(5)), "expected 4"), (lambda: strategy("blt", four), "W is missing"),
        (lambda: strategy("blt", four, RING, bands=17), "bands=17: expected at most 16 buffers"),
    ):
        with pytest.raises(ValueError, match=said): wrong()
    one = Buffered([0.5], [0.2], np.ones(3))
    with pytest.raises(ValueError, match="read-only"): one.sizes[0] = 0


@pytest.mark.parametrize("objective", [None, Objective(momentum=0.9), Objective.last(24, learning_rates=np.geomspace(1, 0.2, 24), momentum=0.5)])
def test_the_strategy_by_name(objective, tmp_path):
    scheme = Participation.cyclic(4, 6)
    best, few = (strategy(name, scheme, RING, objective=objective) for name in ("mafalda", "blt"))
    H = local_gram(RING, 24, objective=objective)
    assert few.name == "blt" and few.objective == pytest.approx(np.trace(H @ np.linalg.inv(few.X)), rel=1e-9)
    assert best.lower_bound * (1 - 1e-9) <= few.lower_bound <= best.objective * (1 + 1e-9) and few.lower_bound <= few.objective and 0 < few.gap < 0.6
    if objective is not None:
        assert np.trace(np.linalg.inv(few.X)) <= 4 * 4 * 24 * (1 + 1e-9)
        assert strategy("blt", scheme, RING, objective=objective, bound=2.0).objective >= few.objective * (1 - 1e-3)
    assert (load_strategy(save_strategy(few, tmp_path / "C", RING), scheme, RING).C == few.C).all()
    run = few.protocol(RING)
    assert account(run, LDP(), scheme).mu.max() == pytest.approx(1, abs=1e-6) and np.nanmax(account(run, PNDP([0]), scheme).mu) <= 1 + 1e-6


def test_strategies_at_least_so_far_apart_and_on_sparse_networks():
    spread = Participation.min_sep(3, 4, 14)
    one = strategy("blt", spread, RING, bands=1)
    assert one.lower_bound is None and worst_sensitivity(one.X, spread) == pytest.approx(1, abs=1e-7)
    assert strategy("blt", Participation.min_sep(3, 4, 12), RING).lower_bound is not None
    estimated = strategy("blt", spread, csr_array(RING))
    assert worst_sensitivity(estimated.X, spread) == pytest.approx(1, abs=1e-7)
    assert (np.tril(estimated.C) == estimated.C).all()
    H = local_gram(RING, 14)
    assert np.trace(H @ np.linalg.inv(estimated.X)) < 1.1 * one.objective


def test_derivatives_of_squared_errors():
    rng = np.random.default_rng(5)
    q, V, turn = _impulse(np.array([0.9]), np.array([0.5]), 12), rng.random(12), 1e-6 * rng.normal(size=12)
    for W, objective in networks():
        errors = _errors(W, 12, objective, 0.3)
        assert errors(q)[1](V) @ turn == pytest.approx(V @ (errors(q + turn)[0] - errors(q - turn)[0]) / 2, rel=1e-5)
