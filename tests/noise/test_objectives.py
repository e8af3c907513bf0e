"""Squared error of other models than all, under other schedules: against explicit matrices, matrices and optima of jax-privacy, and plain loops."""
import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hankel
from scipy.sparse import csr_array
from test_strategies import networks

from mfdl.accounting.sensitivity import worst_sensitivity
from mfdl.noise.covariance import optimize_covariance
from mfdl.noise.methods.gram_matrices import gram_estimates, local_gram, probe_grams
from mfdl.noise.methods.newton import optimize
from mfdl.noise.methods.objectives import AgeWorkload, Objective, model_workload, of_age_alone
from mfdl.noise.methods.space_time_solver import patterns_of
from mfdl.noise.methods.spectral import _aged_places, _pinched_norm, _pinched_norm_of_one, optimize_space_time
from mfdl.noise.methods.strategies import STRATEGIES, estimate_squared_error, load_strategy, save_strategy, strategy
from mfdl.noise.space_time import space_time_workload
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.participation import Participation


@st.composite
def objectives(draw, T, n):
    """Any models that count, and any schedule."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    shape = (T, n) if draw(st.booleans()) else (T,)
    weights = rng.uniform(size=shape) * (rng.uniform(size=shape) < 0.6)
    weights[rng.integers(T)] = 1
    parts = {
        "weights": weights, "averaged": True, "nodes": rng.uniform(size=n), "learning_rates": rng.uniform(0.1, 1, T),
        "momentum": rng.uniform(0, 0.95), "nesterov": True, "weight_decay": rng.uniform(0, 0.5), "curvature": rng.uniform(0, 0.6),
    }
    return Objective(**{name: value for name, value in parts.items() if draw(st.booleans())})


def recursion(Ws, objective, z):  # (T, n) to all models (T, n)
    """The run as its recursion says, node by node, with the signs of a training."""
    T, n = z.shape
    rates = np.ones(T) if objective.learning_rates is None else objective.learning_rates
    theta, buffer, models = [0.0] * n, [0.0] * n, []
    for t in range(T):
        half = []
        for u in range(n):
            gradient = z[t, u] + objective.curvature * theta[u]
            buffer[u] = objective.momentum * buffer[u] + gradient
            direction = gradient + objective.momentum * buffer[u] if objective.nesterov else buffer[u]
            half.append((1 - rates[t] * objective.weight_decay) * theta[u] - rates[t] * direction)
        theta = [sum(Ws[t][u][v] * half[v] for v in range(n)) for u in range(n)]
        models.append(theta)
    return np.array(models)


def harm_of(models, objective):
    weights = np.ones(len(models)) if objective.weights is None else objective.weights
    nodes = np.ones(models.shape[1]) if objective.nodes is None else objective.nodes
    at = lambda t, u: weights[t] if weights.ndim == 1 else weights[t, u]
    if objective.averaged:
        return sum(nodes[u] * sum(at(t, u) * models[t, u] for t in range(len(models)))**2 for u in range(len(nodes)))
    return sum(at(t, u) * nodes[u] * models[t, u]**2 for t in range(len(models)) for u in range(len(nodes)))


@pytest.mark.filterwarnings("ignore:graph has")
@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.data(), networks())
def test_the_workload_is_the_recursion_and_every_gram_is_that_of_the_workload(data, Ws):
    T, n = len(Ws), len(Ws[0])
    objective = data.draw(objectives(T, n))
    A = model_workload(Ws, T, objective)
    z = np.random.default_rng(0).normal(size=(T, n))
    assert ((A @ z.ravel())**2).sum() == pytest.approx(harm_of(recursion(Ws, objective, z), objective), rel=1e-9, abs=1e-12)
    explicit = np.array([A[:, u::n].T @ A[:, u::n] for u in range(n)])
    size = np.abs(explicit).sum()
    np.testing.assert_allclose(local_gram(Ws, T, objective=objective), explicit.sum(axis=0), atol=1e-13 * T * size)
    np.testing.assert_allclose(local_gram(Ws, T, per_node=True, objective=objective), explicit, atol=1e-13 * T * size)
    V = np.random.default_rng(1).normal(size=(n, 2))
    probed = [sum(v[u] * A[:, u::n] for u in range(n)) for v in V.T]
    for given_as in (Ws, [csr_array(W) for W in Ws]):
        np.testing.assert_allclose(probe_grams(given_as, T, V, objective), [B.T @ B for B in probed], atol=1e-12 * T * size * (V**2).sum())


@pytest.mark.parametrize("W", [gossip_matrix(nx.path_graph(5)), gossip_matrix(nx.star_graph(4), "uniform"), np.random.default_rng(0).dirichlet(np.ones(4), size=4)])
def test_the_default_is_what_it_was_to_the_last_bit(W):
    plain = Objective(momentum=0.0, curvature=0)
    assert plain.plain
    for one in ({}, {"per_node": True}): np.testing.assert_array_equal(local_gram(W, 9, objective=plain, **one), local_gram(W, 9, **one))
    np.testing.assert_array_equal(local_gram(csr_array(W), 9, objective=plain), local_gram(csr_array(W), 9))
    said = Objective(weights=np.ones(9), nodes=np.ones(len(W)), learning_rates=np.ones(9))  # the same by the other route
    assert not said.plain
    np.testing.assert_allclose(local_gram(W, 9, objective=said), local_gram(W, 9), rtol=1e-12)
    np.testing.assert_array_equal(model_workload(W, 4, plain), model_workload(W, 4))


@pytest.mark.parametrize("objective", [
    Objective.last(12, momentum=0.8, learning_rates=np.geomspace(1, 0.1, 12), nodes=np.linspace(0, 2, 40)),
    Objective(weights=np.arange(480).reshape(12, 40) % 7, momentum=0.5), Objective(weights=np.arange(480).reshape(12, 40) % 7, averaged=True),
])
def test_estimates_for_sparse_networks_have_no_bias(objective):
    W = gossip_matrix(nx.barabasi_albert_graph(40, 2, seed=0))
    exact = local_gram(W, 12, objective=objective)
    estimates = gram_estimates(csr_array(W), 12, 400, 0, objective)
    error = estimates.std(axis=0, ddof=1) / 20
    assert (np.abs(estimates.mean(axis=0) - exact) < 4.5 * error + 1e-12 * exact.max()).all()
    np.testing.assert_array_equal(local_gram(csr_array(W), 12, objective=objective), gram_estimates(csr_array(W), 12, 32, 0, objective).mean(axis=0))


def test_time_weights_and_averages_are_sums_of_single_steps():
    """The squared error of weighted steps is the weighted sum of that of single steps; an average obeys the triangle inequality."""
    W, T, schedule = gossip_matrix(nx.cycle_graph(5)), 6, {"momentum": 0.7, "curvature": 0.3}
    single = [local_gram(W, T, objective=Objective(weights=np.eye(T)[t], **schedule)) for t in range(T)]
    weights = np.arange(1.0, 7)
    np.testing.assert_allclose(local_gram(W, T, objective=Objective(weights=weights, **schedule)), np.tensordot(weights, single, axes=1), rtol=1e-10)
    np.testing.assert_allclose(single[-1], local_gram(W, T, objective=Objective.last(T, **schedule)), rtol=1e-14)
    averaged = local_gram(W, T, objective=Objective.tail(T, 3, **schedule))
    for S in (np.eye(T), np.ones((T, T))):
        assert np.sqrt((averaged * S).sum()) <= sum(np.sqrt((H * S).sum()) for H in single[-3:]) / 3


@pytest.mark.filterwarnings("ignore:graph has")
@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.data(), networks())
def test_weights_of_steps_and_nodes_add_up(data, Ws):
    """The squared error is the weighted sum of those of single nodes after single steps; products of weights are both; an average is that of each node alone."""
    T, n = len(Ws), len(Ws[0])
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    schedule = {"learning_rates": rng.uniform(0.1, 1, T), "momentum": data.draw(st.sampled_from([0.0, 0.7])), "curvature": data.draw(st.sampled_from([0.0, 0.4]))}
    weights, steps, nodes = rng.uniform(size=(T, n)), rng.uniform(0.1, 1, T), rng.uniform(0.1, 1, n)
    gram = lambda **parts: local_gram(Ws, T, objective=Objective(**parts, **schedule))
    single = [[gram(weights=np.eye(T)[t], nodes=np.eye(n)[u]) for u in range(n)] for t in range(T)]
    close = {"rtol": 1e-9, "atol": 1e-11 * np.sum(single)}
    np.testing.assert_allclose(gram(weights=weights), np.tensordot(weights, single, axes=2), **close)
    np.testing.assert_allclose(gram(weights=weights, nodes=nodes), gram(weights=weights * nodes), **close)
    for averaged in (False, True):
        both = gram(weights=np.outer(steps, np.ones(n)), nodes=nodes, averaged=averaged)
        np.testing.assert_allclose(both, gram(weights=steps, nodes=nodes, averaged=averaged), **close)
    alone = [gram(weights=weights[:, u], nodes=nodes[u] * np.eye(n)[u], averaged=True) for u in range(n)]
    np.testing.assert_allclose(gram(weights=weights, nodes=nodes, averaged=True), np.sum(alone, axis=0), **close)


BY_JAX_PRIVACY = {  # 2.0.0: the last row of momentum_sgd_matrix, and the loss of dense.optimize times T and the squared sensitivity, for 1 and 3 participations
    "momentum": ({"momentum": 0.9}, [7.175704635190002, 6.8618940391, 6.5132155990000005, 6.12579511, 5.6953279, 5.217031, 4.68559, 4.0951, 3.439, 2.71, 1.9, 1.0],
                 349.7136895745627, 1136.4094921166777),
    "rates": ({"learning_rates": np.geomspace(1, 0.1, 12)}, np.geomspace(1, 0.1, 12), 15.024019292688818, 29.678343647500512),
    "both": ({"momentum": 0.8, "learning_rates": np.geomspace(1, 0.1, 12)},
             [2.8323530710863887, 2.2904413388579874, 1.8491381350853744, 1.4890061380347581, 1.1941702686426587, 0.9516176756679411, 0.750623127808035,
              0.5822744262055682, 0.43907682024656536, 0.31461884745065866, 0.2032846739442066, 0.1], 78.77171616390794, 149.21100784903373),
}


@pytest.mark.parametrize("schedule, last, once, three_times", BY_JAX_PRIVACY.values(), ids=BY_JAX_PRIVACY)
def test_one_node_has_the_matrices_and_optima_of_jax_privacy(schedule, last, once, three_times):
    alone, objective = np.ones((1, 1)), Objective(**schedule)
    np.testing.assert_allclose(model_workload(alone, 12, objective)[-1], last, rtol=1e-14)
    for k, value in ((1, once), (3, three_times)):
        found = optimize(local_gram(alone, 12, objective=objective), Participation.cyclic(k, 12 // k), tol=1e-10)
        assert found.lower_bound <= value * (1 + 1e-12) and found.objective == pytest.approx(value, rel=1e-8)


def by_cvxpy(H, participation, bound):
    """The same optimum with nothing known about orthogonality, penalties or mixtures, by Clarabel."""
    T = len(H)
    X = cp.Variable((T, T), symmetric=True)
    values, vectors = np.linalg.eigh(H)
    rows = (vectors * np.sqrt(np.maximum(values, 0))).T
    constraints = [cp.sum([cp.matrix_frac(row, X) for row in np.eye(T)]) <= bound * participation.k * T]
    for pattern in map(list, participation.patterns()):
        y = cp.Variable(len(pattern))
        constraints += [cp.diag(y) - X[pattern, :][:, pattern] >> 0, cp.sum(y) <= 1]
    harm = cp.sum([cp.matrix_frac(row, X) for row, value in zip(rows, values, strict=True) if value > 1e-12])
    return cp.Problem(cp.Minimize(harm), constraints).solve(solver=cp.CLARABEL)


LEAVING = Objective(weights=[[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]], momentum=0.3)  # each node keeps the last model that it has


@pytest.mark.parametrize("bound", [2, 3.5, 8])
@pytest.mark.parametrize("objective", [Objective.last(6), Objective.tail(6, 2, momentum=0.8), Objective(weights=[0, 0, 0, 1, 0, 2], nodes=[1, 0, 0]), LEAVING])
def test_optima_of_singular_grams_agree_with_a_generic_solver(objective, bound):
    H, scheme = local_gram(gossip_matrix(nx.path_graph(3)), 6, objective=objective), Participation.cyclic(2, 3)
    found = optimize(H, scheme, bound=bound)
    assert 0 <= found.gap <= 1e-8 and found.objective == pytest.approx(by_cvxpy(H, scheme, bound), rel=2e-5)
    assert worst_sensitivity(found.X, scheme) <= 1 + 1e-9 and np.trace(np.linalg.inv(found.X)) <= bound * 12 * (1 + 1e-9)
    # the price of variance is the slope of the optimum
    more = optimize(H, scheme, bound=bound * 1.001)
    assert found.objective - more.objective == pytest.approx(found.trace_penalty * 0.001 * bound * 12, rel=0.02, abs=2e-8 * found.objective)


def test_a_bound_that_does_not_matter_costs_nothing():
    W, scheme = gossip_matrix(nx.path_graph(4)), Participation.cyclic(3, 4)
    free, bounded = optimize(local_gram(W, 12), scheme), optimize(local_gram(W, 12), scheme, bound=50)
    assert bounded.objective == pytest.approx(free.objective, rel=2e-8) and bounded.lower_bound <= free.objective and bounded.gap <= 1e-8
    with pytest.raises(ValueError, match="positive definite matrix, or a bound"): optimize(local_gram(W, 12, objective=Objective.last(12)), scheme)
    for wrong in (1, np.nan, np.inf, "4"):
        with pytest.raises(ValueError, match="bound="): optimize(local_gram(W, 12), scheme, bound=wrong)
    with pytest.raises(ValueError, match="expected a Gram matrix"): optimize(-np.eye(12), scheme, bound=4)


@pytest.mark.parametrize("last", [
    Objective.last(12, learning_rates=np.geomspace(1, 0.2, 12), momentum=0.5), Objective(weights=np.arange(60).reshape(12, 5) % 4 % 3, momentum=0.5),
])
def test_strategies_for_an_objective(tmp_path, last):
    W, scheme = gossip_matrix(nx.star_graph(4), "uniform"), Participation.cyclic(3, 4)
    for name in ("mafalda", "bsr"):
        one, other = strategy(name, scheme, W), strategy(name, scheme, W, objective=Objective())
        np.testing.assert_array_equal(one.C, other.C)
        assert (one.objective, one.lower_bound) == (other.objective, other.lower_bound)
    H = local_gram(W, 12, objective=last)
    best = strategy("mafalda", scheme, W, objective=last)
    for name in STRATEGIES:
        if STRATEGIES[name].plain:
            with pytest.raises(ValueError, match=f"objective: {name} is made for all models"): strategy(name, scheme, W, objective=last)
            continue
        found = strategy(name, scheme, W, objective=last)
        if name == "mafalda_l": assert found.objective <= best.objective * (1 + 1e-8)
        else:
            assert found.objective == pytest.approx(np.trace(H @ np.linalg.inv(found.X)), rel=1e-9)
            if np.trace(np.linalg.inv(found.X)) <= 4 * 36: assert found.objective >= best.lower_bound
    assert load_strategy(save_strategy(best, tmp_path / "best", W)).trace_penalty == best.trace_penalty > 0
    with pytest.raises(ValueError, match="weights: 9 numbers, expected 12"): strategy("identity", scheme, W, objective=Objective.last(9))


@pytest.mark.parametrize("wrong, said", [
    (dict(learning_rates=[0.1, -0.1]), r"learning_rates\[1\]=-0.1: expected a positive"), (dict(learning_rates=0.1), "learning_rates has shape"),
    (dict(learning_rates=[0.1, np.nan]), "learning_rates has entries that are not finite"), (dict(momentum=1), "momentum=1: expected"), (dict(momentum=-0.1), "momentum=-0.1"),
    (dict(momentum="0.9"), "momentum='0.9'"), (dict(weights=[1, -2]), r"weights\[1\]=-2"), (dict(weights=[0.0, 0.0]), "weights are all zero"),
    (dict(nodes=[0, 0]), "nodes are all zero"), (dict(weights=[[[1]]]), "weights has shape"), (dict(nodes=[[1]]), "nodes has shape"),
    (dict(weights=[[1, 2], [1, -2]]), r"weights\[1, 1\]=-2"), (dict(weights=[[0, 0]]), "weights are all zero"), (dict(weights=[[1, 2], [1]]), "weights"),
    (dict(weights=[[1, np.nan]]), "weights has entries that are not finite"), (dict(weights=[[1, 0]], nodes=[0, 1]), "weights times nodes are all zero"),
    (dict(weights=[[1, 0]], nodes=[1]), "nodes: 1 numbers, expected 2, one for each node that has weights"), (dict(weights=5.0), "weights has shape"),
    (dict(weight_decay=1.0), "weight_decay=1.0"),
    (dict(curvature=np.inf), "curvature=inf"), (dict(curvature=-1), "curvature=-1"), (dict(curvature=2.0), "curvature=2.0"), (dict(nesterov=1), "nesterov=1"),
    (dict(averaged="no"), "averaged='no'"),
])
def test_what_is_no_objective_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said): Objective(**wrong)


def test_what_does_not_fit_a_run_is_refused():
    W = gossip_matrix(nx.path_graph(3))
    with pytest.raises(ValueError, match="s=5: expected a tail of at most T=4"): Objective.tail(4, 5)
    wrong = [("weights", Objective.last(4)), ("learning_rates", Objective(learning_rates=np.ones(6))), ("nodes", Objective(nodes=np.ones(4)))]
    wrong += [("weights", Objective(weights=np.ones(shape))) for shape in ((5, 4), (4, 3), (3, 5))]
    for name, one in wrong:
        for call in (local_gram, model_workload):
            with pytest.raises(ValueError, match=f"{name}: "): call(W, 5, objective=one)
        with pytest.raises(ValueError, match=f"{name}: "): local_gram(csr_array(W), 5, objective=one)


def test_what_is_no_objective_is_refused_by_all():
    W, steps = gossip_matrix(nx.path_graph(3)), Participation.every_step(4)
    calls = (
        lambda one: local_gram(W, 4, objective=one), lambda one: model_workload(W, 4, one), lambda one: optimize_covariance(W, objective=one),
        lambda one: space_time_workload(W, 4, objective=one),
        lambda one: optimize_space_time(W, steps, objective=one), lambda one: strategy("mafalda", steps, W, objective=one),
    )
    for call in calls:
        for wrong in ("last", {"T": 4}, [1.0] * 200):
            with pytest.raises(ValueError, match="objective=.*: expected an Objective") as error: call(wrong)
            assert len(str(error.value)) < 200


@pytest.mark.parametrize("nesterov, most", [(False, 3.8), (True, 3.8 / 2.8)])
def test_curvature_is_refused_from_where_one_node_diverges(nesterov, most):
    alone, schedule = np.ones((1, 1)), {"momentum": 0.9, "nesterov": nesterov}
    assert local_gram(alone, 400, objective=Objective.last(400, curvature=0.95 * most, **schedule))[0, 0] < 1
    with pytest.raises(ValueError, match="curvature"): Objective(curvature=1.001 * most, **schedule)
    beyond, z = Objective(**schedule), np.eye(400, 1)
    object.__setattr__(beyond, "curvature", 1.05 * most)
    assert abs(recursion([alone] * 400, beyond, z)[-1, 0]) > 100


@pytest.mark.parametrize("objective", [
    Objective(weights=np.arange(20).reshape(5, 4) % 3, momentum=0.6), Objective(weights=np.arange(20).reshape(5, 4) % 3, averaged=True),
    Objective.last(5), Objective.tail(5, 2, momentum=0.6), Objective(learning_rates=[1, 0.8, 0.6, 0.4, 0.2], curvature=0.3, nodes=[1, 2, 0, 1]),
])
def test_the_covariance_of_each_step_is_the_best_for_the_run(objective):
    W = np.random.default_rng(3).dirichlet(np.ones(4), size=4)
    A = model_workload(W, 5, objective)
    found = optimize_covariance(W, objective=objective)
    np.testing.assert_allclose(found.objective, np.linalg.norm(A @ np.kron(np.eye(5), np.linalg.cholesky(found.R)))**2, rtol=1e-9)
    assert -1e-8 <= found.gap <= 1e-8
    np.testing.assert_allclose(np.diag(np.linalg.inv(found.R)), 1, rtol=1e-8)
    rng = np.random.default_rng(0)
    for _ in range(20):
        R = found.R + 0.05 * (root := rng.normal(size=(4, 4))) @ root.T
        R = R * np.diag(np.linalg.inv(R)).max()
        assert np.trace(A @ np.kron(np.eye(5), R) @ A.T) >= found.lower_bound


def test_a_covariance_for_the_last_model_looks_as_far_ahead_as_there_are_steps():
    W = gossip_matrix(nx.path_graph(5))
    found, ahead = optimize_covariance(W, objective=Objective.last(4)), optimize_covariance(W, horizon=4)
    assert found.objective == pytest.approx(ahead.objective, rel=2e-8)
    for wrong, said in ((dict(objective=Objective(momentum=0.5)), "expected weights, or learning rates"), (dict(objective=Objective.last(4), horizon=4), "horizon=4"),
                        (dict(objective=Objective(weights=[0, 1], learning_rates=[1, 1, 1])), "learning_rates: 3 numbers, expected 2")):
        with pytest.raises(ValueError, match=said): optimize_covariance(W, **wrong)


@pytest.mark.parametrize("objective", [Objective.last(3, momentum=0.5), Objective(weights=np.eye(3)), Objective(weights=[[1, 2, 0], [1, 0, 0], [0, 2, 3]], averaged=True)])
def test_noise_in_space_and_time_for_the_last_model_agrees_with_a_generic_solver(objective):
    W, scheme = gossip_matrix(nx.path_graph(3)), Participation.single(3)
    A = space_time_workload(W, 3, objective)
    price = 1e-2 * (A**2).sum() / 9
    X = cp.Variable((9, 9), symmetric=True)
    harm = cp.sum([cp.matrix_frac(row, X) for row in A]) + price * cp.sum([cp.matrix_frac(row, X) for row in np.eye(9)])
    generic = cp.Problem(cp.Minimize(harm), [cp.diag(X) <= 1]).solve(solver=cp.CLARABEL)
    found = optimize_space_time(W, scheme, tol=1e-8, trace_penalty=1e-2, objective=objective)
    assert found.objective + price * np.trace(found.S) == pytest.approx(generic, rel=1e-6)
    assert found.objective == pytest.approx(np.trace(A @ found.S @ A.T), rel=1e-9) and found.lower_bound <= found.objective
    assert found.independent == pytest.approx((A**2).sum())
    assert np.diag(np.linalg.inv(found.S)).max() <= 1 + 1e-9
    with pytest.raises(ValueError, match="expected a larger one"): optimize_space_time(W, scheme, objective=objective, trace_penalty=0.0)
    assert optimize_space_time(W, scheme, objective=objective).gap < 0.05
    by_node = Objective(weights=np.ones((3, 3)))
    with pytest.raises(ValueError, match="an objective of age alone"): optimize_space_time(W, scheme, method="directions", objective=by_node)
    with pytest.raises(ValueError, match="weights: 2 numbers, expected 3"): optimize_space_time(W, scheme, objective=Objective.last(2))
    plain = optimize_space_time(W, scheme, objective=Objective(), method="directions", trace_penalty=1e-6)
    np.testing.assert_array_equal(plain.S, optimize_space_time(W, scheme, method="directions", trace_penalty=1e-6).S)


RATES = np.linspace(1, 0.2, 12)
AGED = {
    "weights": Objective(weights=np.arange(12) % 4), "last": Objective.last(12), "mean": Objective.tail(12, 5), "mean of all": Objective(averaged=True),
    "rates": Objective(learning_rates=RATES), "mean, rates": Objective.tail(12, 5, learning_rates=RATES), "nodes": Objective(nodes=[3, 0, 1, 1, 2, 5]),
    "momentum": Objective(momentum=0.8, nesterov=True, learning_rates=np.full(12, 0.3)), "decay": Objective(weight_decay=0.2, momentum=0.5),
    "pulled": Objective.last(12, curvature=0.3),
}
GOSSIP = {
    "symmetric": gossip_matrix(nx.barbell_graph(3, 0)), "directed": np.random.default_rng(1).dirichlet(np.ones(6) / 3, size=6) / 2 + np.eye(6) / 2,
    "ring": 0.7 * np.eye(6) + 0.3 * np.roll(np.eye(6), 1, axis=1),
}


@pytest.mark.parametrize("network", GOSSIP)
@pytest.mark.parametrize("name", AGED)
def test_noise_along_directions_leaves_the_squared_error_and_has_the_sensitivity_that_it_says(name, network):
    """By the explicit workload and the joint covariance; and no bound is above the optimum."""
    W, scheme, options = GOSSIP[network], Participation.cyclic(3, 4), {"trace_penalty": 1e-3, "objective": AGED[name]}
    found, exact = (optimize_space_time(W, scheme, 1e-3, method=method, **options) for method in ("directions", "exact"))
    n, m = found.basis.shape
    basis = np.hstack([found.basis, found.basis[:, 2 * m - n:].conj()])
    S = np.einsum("uk,vk,kts->tusv", basis, basis.conj(), np.concatenate([found.S, found.S[2 * m - n:].conj()])).reshape(n * 12, n * 12)
    assert np.abs(S.imag).max() < 1e-9 * np.abs(S).max()
    A, X = space_time_workload(W, 12, AGED[name]), np.linalg.inv(S.real)
    assert np.trace(A @ S.real @ A.T) == pytest.approx(found.objective, rel=1e-9)
    signs = np.array([[1, 1, 1], [1, 1, -1], [1, -1, 1], [1, -1, -1]])
    of_records = [np.einsum("is,st,it->i", signs, X[at::n, at::n][first::4, first::4], signs).max() for at in range(n) for first in range(4)]
    assert max(of_records) == pytest.approx(1, abs=1e-6)
    assert found.independent == pytest.approx(3 * (A**2).sum()) and found.lower_bound <= exact.objective * (1 + 1e-9)
    assert exact.lower_bound <= found.objective * (1 + 1e-9) and found.objective < 1.3 * found.lower_bound
    assert of_age_alone(AGED[name])


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("counts", [Objective.last(12), Objective.tail(12, 5), Objective(weights=np.linspace(0, 1, 12)**2, averaged=True)])
def test_one_combination_of_models_has_the_norm_and_derivatives_of_the_general_code(counts, turns):
    scheme, rng = Participation.cyclic(3, 4), np.random.default_rng(0)
    outputs = AgeWorkload(np.eye(5), 12, counts).outputs
    response, into = (rng.normal(size=shape) + turns * 1j * rng.normal(size=shape) for shape in ((12, 5), 5))
    blocks, (places, inside) = rng.normal(size=(5, 4, 3, 3)), _aged_places(scheme)
    slow = _pinched_norm(response, into, outputs, blocks, places, inside)
    fast = _pinched_norm_of_one(response, into, hankel(outputs[outputs.any(axis=1)][0]), blocks, patterns_of(scheme))
    for one, other in zip(slow, fast, strict=True): np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_a_direction_of_which_nothing_is_left_adds_nothing():
    steps = patterns_of(Participation.cyclic(3, 4))
    norm, by_block, by_weight = _pinched_norm_of_one(np.zeros((12, 5)), np.ones(5), hankel(np.arange(12) == 11), np.ones((5, 4, 3, 3)), steps)
    assert norm == 0 and not by_block.any() and not by_weight.any()
    W = np.full((4, 4), 0.25)  # one round, and only the mean is left
    found = optimize_space_time(W, Participation.cyclic(3, 4), method="directions", trace_penalty=1e-3, objective=Objective.last(12))
    assert 0 < found.lower_bound <= found.objective < np.inf


@pytest.mark.parametrize("other", [
    Objective(weights=np.ones((4, 2))), Objective(momentum=0.5, curvature=0.1), Objective(learning_rates=[1, 1, 1, 0.5], momentum=0.5),
    Objective(learning_rates=[1, 1, 1, 0.5], weight_decay=0.1), Objective(learning_rates=[1, 1, 1, 0.5], curvature=0.1),
])
def test_objectives_with_a_memory_that_changes_are_not_of_age_alone(other):
    assert not of_age_alone(other)


@pytest.mark.parametrize("last", [Objective.last(12, momentum=0.6), Objective(weights=np.arange(720).reshape(12, 60) % 5, averaged=True)])
def test_a_strategy_for_the_last_model_of_a_sparse_network(last):
    W, scheme = gossip_matrix(nx.barabasi_albert_graph(60, 2, seed=0)), Participation.cyclic(3, 4)
    found = strategy("mafalda", scheme, csr_array(W), objective=last)
    harm = np.trace(local_gram(W, 12, objective=last) @ np.linalg.inv(found.X))
    estimated, error = estimate_squared_error(found, csr_array(W), probes=200, objective=last)
    assert found.gap <= 1e-8 and worst_sensitivity(found.X, scheme) <= 1 + 1e-9
    assert abs(estimated - harm) < 4 * error
