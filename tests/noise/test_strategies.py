"""Lemma 12's matrix against U's construction, and the optimal strategies against other solvers, their own certificates and each other."""
import cvxpy as cp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from mfdl import account
from mfdl.accounting.sensitivity import worst_sensitivity
from mfdl.noise.cholesky import gram_factor
from mfdl.noise.mafalda import squared_error
from mfdl.noise.methods.certificates import NotConverged
from mfdl.noise.methods.gram_matrices import gram_estimates, local_gram, probe_grams
from mfdl.noise.methods.newton import optimize
from mfdl.noise.methods.objectives import Objective
from mfdl.noise.methods.strategies import STRATEGIES, estimate_squared_error, fixed, load_strategy, save_strategy, strategy
from mfdl.protocol.gossip import churn, gossip_matrix
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import LDP
from mfdl.protocol.workload import workload


@st.composite
def networks(draw):
    """Symmetric, reversible, directed and changing gossip matrices, T of them."""
    n, T, seed = draw(st.integers(2, 6)), draw(st.integers(1, 7)), draw(st.integers(0, 10**6))
    graph = nx.gnp_random_graph(n, draw(st.sampled_from([0.0, 0.4, 1.0])), seed=seed)
    rng = np.random.default_rng(seed)
    kind = draw(st.sampled_from(["metropolis", "uniform", "directed", "churn", "changing"]))
    if kind == "churn": return churn(graph, [[int(rng.integers(n))] for _ in range(T)])
    if kind == "changing": return [rng.dirichlet(np.full(n, 0.4), size=n) for _ in range(T)]
    if kind == "directed": return [rng.dirichlet(np.full(n, 0.4), size=n)] * T
    return [gossip_matrix(graph, kind)] * T


@pytest.mark.filterwarnings("ignore:graph has")
@settings(deadline=None, max_examples=60)
@given(networks())
def test_every_closed_form_is_the_explicit_construction(Ws):
    T, n = len(Ws), len(Ws[0])
    A = workload(Ws, T)
    for t, W in enumerate(Ws): A[t * n:(t + 1) * n] = W @ A[t * n:(t + 1) * n]
    explicit = np.array([A[:, u::n].T @ A[:, u::n] for u in range(n)])
    np.testing.assert_allclose(local_gram(Ws, T, per_node=True), explicit, atol=1e-10)
    np.testing.assert_allclose(local_gram(Ws, T), explicit.sum(axis=0), atol=1e-10)
    if np.linalg.eigvalsh(explicit.sum(axis=0))[0] > 1e-8:
        L = gram_factor(explicit.sum(axis=0))
        assert not np.triu(L, 1).any()
        np.testing.assert_allclose(L.T @ L, explicit.sum(axis=0), atol=1e-9)


def test_only_a_gram_matrix_has_a_factor():
    for wrong, said in ((np.ones((2, 3)), r"H has shape \(2, 3\): expected a square matrix"), (np.ones(4), "expected a square matrix"), (np.ones((0, 0)), "a square matrix"),
                        (np.tril(np.ones((3, 3))), "H is not symmetric: expected a Gram matrix"), (np.ones((3, 3)), "not positive definite")):
        with pytest.raises(ValueError, match=said): gram_factor(wrong)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_whether_a_matrix_is_symmetric_does_not_depend_on_its_unit(unit):
    H = unit * np.array([[2.0, 1.0], [1.0, 2.0]])
    for apart, refused in ((1e-11, False), (1e-7, True)):
        skew = H * [[1, 1 + apart], [1, 1]]
        if not refused: np.testing.assert_allclose(gram_factor(skew), gram_factor(H), rtol=1e-9)
        else:
            with pytest.raises(ValueError, match="not symmetric"): gram_factor(skew)


def test_what_has_no_gram_matrix():
    W = gossip_matrix(nx.path_graph(3))
    for wrong, said in (
        (lambda: local_gram([[1, 1], [0, 1]], 3), "W is not stochastic: row 0 sums to 2"), (lambda: local_gram([W] * 3, 4), "expected T=4, one for each step"),
        (lambda: local_gram(W, 0), "T=0: expected an integer >= 1"), (lambda: local_gram(csr_array(W), 3, per_node=True), "no matrix for each"),
        (lambda: probe_grams(W, 3, np.eye(4)), "expected 3 rows, one a node"), (lambda: local_gram(W, 3, objective=Objective.last(4)), "weights: 4 numbers, expected 3"),
    ):
        with pytest.raises(ValueError, match=said): wrong()


def test_what_has_no_optimum():
    H, scheme = local_gram(gossip_matrix(nx.path_graph(3)), 4), Participation.cyclic(2, 2)
    for wrong, said in (
        (lambda: optimize(np.ones((4, 4)), scheme), "expected a positive definite matrix, or a bound on variance"),
        (lambda: optimize(H[:3, :3], scheme), r"H has shape \(3, 3\): expected \(4, 4\), one row for each step of the participation"),
        (lambda: optimize(H, scheme, tol=0), "tol=0: expected a number between 0 and 1"), (lambda: optimize(H, scheme, bound=1), "bound=1: expected a finite number, at least 2"),
        (lambda: optimize(H, scheme, bands=3), "bands=3: expected at most the separation b=2"),
    ):
        with pytest.raises(ValueError, match=said): wrong()


def by_cvxpy(H, participation):
    """The same optimum with nothing known about orthogonality: the constraint is the semidefinite dual of each pattern's sensitivity."""
    T = len(H)
    X, F = cp.Variable((T, T), symmetric=True), np.linalg.cholesky(H).T
    constraints = []
    for pattern in map(list, participation.patterns()):
        y = cp.Variable(len(pattern))
        constraints += [cp.diag(y) - X[pattern, :][:, pattern] >> 0, cp.sum(y) <= 1]
    return cp.Problem(cp.Minimize(cp.sum([cp.matrix_frac(F[i], X) for i in range(T)])), constraints).solve(solver=cp.CLARABEL)


@settings(deadline=None, max_examples=12)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 10**6))
def test_optimum_against_cvxpy(k, b, seed):
    factor = np.random.default_rng(seed).normal(size=(k * b, k * b + 2))
    H, participation = factor @ factor.T, Participation.cyclic(k, b)
    found = optimize(H, participation)
    assert found.gap <= 1e-8 and found.objective == pytest.approx(by_cvxpy(H, participation), rel=1e-4)
    assert worst_sensitivity(found.X, participation) == pytest.approx(1, abs=1e-9)


@pytest.mark.filterwarnings("ignore:graph has")
@settings(deadline=None, max_examples=25)
@given(networks(), st.sampled_from(list(STRATEGIES)), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_strategies_by_name(Ws, name, k, b, cyclic):
    W = Ws[0]
    participation = Participation.cyclic(k, b) if cyclic else Participation.min_sep(k, b, k * b + 1)
    try: found = strategy(name, participation, W)
    except ValueError as error:
        assert "reversible" in str(error) or (not cyclic and "cyclic" in str(error)) or "positive definite" in str(error)
        return
    for X in found.X.reshape(-1, participation.T, participation.T): assert worst_sensitivity(X, participation) <= 1 + 1e-9
    H = local_gram(W, participation.T, per_node=True)
    X = np.broadcast_to(found.X, H.shape)
    assert found.objective == pytest.approx(sum(np.trace(Hu @ np.linalg.inv(Xu)) for Hu, Xu in zip(H, X, strict=True)), rel=1e-8)
    if found.lower_bound is not None: assert found.gap <= 1e-8 or name in ("banded_inverse", "blt")  # whose bound is that of all noise
    if cyclic and name != "mafalda_l": assert found.objective >= strategy("mafalda", participation, W).lower_bound * (1 - 1e-12)  # rounding, where both are the optimum
    if participation.count <= 1000:
        run = found.protocol(W)
        report = account(run, LDP(), participation)
        assert (report.mu <= 1 + 1e-6).all() and report.mu.max() == pytest.approx(1.0 if len(run.messages.step) else 0.0, abs=1e-6)


def test_a_lower_bound_is_below_every_strategy():
    H, participation = local_gram(gossip_matrix(nx.cycle_graph(7)), 24), Participation.cyclic(4, 6)
    best, rng = optimize(H, participation), np.random.default_rng(1)
    for _ in range(50):
        C = best.C + 0.1 * np.tril(rng.normal(size=(24, 24))) * np.diag(best.C).mean()
        C /= worst_sensitivity(C.T @ C, participation)
        assert np.trace(H @ np.linalg.inv(C.T @ C)) >= best.lower_bound
    assert optimize(3 * H, participation).objective == pytest.approx(3 * best.objective, rel=1e-7)


@pytest.mark.filterwarnings("ignore:graph has")
@settings(deadline=None, max_examples=60)
@given(networks(), st.integers(0, 10**6))
def test_probes(Ws, seed):
    """Unit vectors are the nodes, any orthonormal probes have the sum H, all signs the mean H, and every estimate is more than the prefix matrix."""
    T, n = len(Ws), len(Ws[0])
    sparse = [csr_array(W) for W in Ws]
    H = local_gram(Ws, T)
    np.testing.assert_allclose(probe_grams(sparse, T, np.eye(n)), local_gram(Ws, T, per_node=True), atol=1e-10)
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]
    np.testing.assert_allclose(probe_grams(sparse, T, basis).sum(axis=0), H, atol=1e-9)
    prefix = T - np.maximum.outer(np.arange(T), np.arange(T))
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * n)).reshape(n, -1)
    np.testing.assert_allclose(prefix + probe_grams(sparse, T, signs - signs.mean(axis=0)).mean(axis=0), H, atol=1e-9)
    estimates = gram_estimates(sparse, T, 3, seed)
    assert np.linalg.eigvalsh(estimates - prefix).min() > -1e-9
    np.testing.assert_array_equal(local_gram(sparse, T, probes=3, seed=seed), estimates.mean(axis=0))


@pytest.mark.parametrize("kind", ["metropolis", "uniform", "directed", "churn"])
def test_estimates_are_without_bias(kind):
    graph, T = nx.barabasi_albert_graph(60, 2, seed=2), 8
    if kind == "churn": W = churn(graph, [[t, 3 * t] for t in range(T)])
    else: W = np.random.default_rng(0).dirichlet(np.full(60, 0.05), size=60) if kind == "directed" else gossip_matrix(graph, kind)
    exact = local_gram(W, T)
    estimates = gram_estimates(W, T, 400, seed=3)
    error = estimates.std(axis=0, ddof=1) / 20
    assert (np.abs(estimates.mean(axis=0) - exact) <= 5 * error + 1e-9).all() and (error < 0.1 * exact).all()
    assert (gram_estimates(W, T, 1, seed=4) != estimates[:1]).any()


def test_optima_of_large_networks(tmp_path):
    """On 300 nodes, given as sparse: sensitivity 1, next to no squared error too much, and an estimate of it that is as good as it says."""
    W, participation = gossip_matrix(nx.barabasi_albert_graph(300, 2, seed=1), sparse=True), Participation.cyclic(4, 10)
    H = local_gram(W.toarray(), 40)
    for name in ("mafalda", "banded", "equal_norm", "identity", "bsr"):
        found, best = strategy(name, participation, W), strategy(name, participation, W.toarray())
        harm = squared_error(H, found.X)[0]
        estimate, error = estimate_squared_error(found, W)
        assert worst_sensitivity(found.X, participation) <= 1 + 1e-9 and abs(harm / best.objective - 1) < 1e-4
        assert abs(estimate - harm) < 4 * error and error < 0.03 * harm and abs(found.objective / harm - 1) < 0.1
        assert (load_strategy(save_strategy(found, tmp_path / "C", W), participation, W).C == found.C).all()
    for name in ("toeplitz", "mafalda_l"):
        with pytest.raises(ValueError, match="sparse|expected a full W"): strategy(name, participation, W)
    with pytest.raises(ValueError, match="another network"): load_strategy(tmp_path / "C", W=gossip_matrix(nx.cycle_graph(300), sparse=True))
    with pytest.raises(ValueError, match="probes=1"): estimate_squared_error(found, W, probes=1)


def test_what_is_scaled_to_sensitivity_one_has_it():
    for scheme in (Participation.single(20), Participation.cyclic(4, 5)):
        whole = fixed("mine", np.tri(20), scheme, None)
        for C in (np.tri(20, dtype=bool), np.tri(20, dtype=np.uint8), np.tri(20) * 1e-161, np.tri(20) * 1e170, np.tri(20) * 2.0**-400):
            np.testing.assert_allclose(fixed("mine", C, scheme, None).C, whole.C, rtol=1e-12)
    with pytest.raises(ValueError, match="entries other than zero"): fixed("mine", np.zeros((20, 20)), Participation.single(20), None)


def test_what_an_objective_or_a_bound_needs_is_asked_for(tmp_path):
    scheme, W = Participation.cyclic(2, 3), gossip_matrix(nx.cycle_graph(5))
    with pytest.raises(ValueError, match="expected W as well"): strategy("bisr", scheme, objective=Objective(momentum=0.9))
    for bound in (0.5, np.nan):
        with pytest.raises(ValueError, match="bound"): strategy("banded_inverse", scheme, W, bound=bound)
    weights = np.ones(6)
    objective = Objective(weights=weights)
    weights[:] = -1
    assert (objective.weights == 1).all() and not objective.weights.flags.writeable
    made = strategy("identity", scheme, W)
    save_strategy(made, tmp_path / "one", pd.DataFrame(W))
    assert load_strategy(tmp_path / "one", W=W).objective == made.objective
    with pytest.raises(ValueError, match="another network"): load_strategy(tmp_path / "one", W=pd.DataFrame(gossip_matrix(nx.complete_graph(5))))


def test_a_bound_above_the_objective_is_no_certificate():
    with pytest.raises((NotConverged, ValueError, np.linalg.LinAlgError)):
        strategy("mafalda", Participation.cyclic(4, 5), gossip_matrix(nx.cycle_graph(5)), objective=Objective(learning_rates=np.full(20, 1e76)))
