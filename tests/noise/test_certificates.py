"""All optimizers hand out the same kind of object, which keeps its promises, and the same error, which loses nothing."""
import networkx as nx
import numpy as np
import pytest

from mfdl import (
    LDP,
    PNDP,
    NotConverged,
    Participation,
    Protocol,
    SecLDP,
    account,
    gossip_matrix,
    local_gram,
    optimize,
    optimize_covariance,
    optimize_local,
    optimize_space_time,
    strategy,
)
from mfdl.noise.methods.certificates import Optimum
from mfdl.noise.methods.coalitions import optimize_coalition
from mfdl.noise.methods.space_time_solver import exact_space_time
from mfdl.noise.space_time import space_time_workload

W, SCHEME = gossip_matrix(nx.cycle_graph(5)), Participation.cyclic(2, 3)
SINGLE = Participation.single(1)
OPTIMA = {  # name -> optimum, attackers, participation under which its sensitivity is at most 1
    "optimize": (lambda: optimize(local_gram(W, 6), SCHEME), LDP(), SCHEME),
    "strategy": (lambda: strategy("mafalda", SCHEME, W), LDP(), SCHEME),
    "each node": (lambda: strategy("mafalda_l", SCHEME, W), LDP(), SCHEME),
    "covariance": (lambda: optimize_covariance(W), LDP(), SINGLE),
    "coalition": (lambda: optimize_coalition(W, [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]], 1), SecLDP([2]), SINGLE),
    "exact": (lambda: exact_space_time(W, SCHEME), LDP(), SCHEME),
    "directions": (lambda: optimize_space_time(W, SCHEME, method="directions"), LDP(), SCHEME),
    "local": (lambda: optimize_local(W, SCHEME, PNDP.each(range(5))), PNDP.each(range(5)), SCHEME),
}


@pytest.mark.parametrize("name", OPTIMA)
def test_every_optimum_has_one_shape(name):
    make, trust, scheme = OPTIMA[name]
    found = make()
    assert isinstance(found, Optimum) and found.iterations >= 0
    assert 0 < found.lower_bound <= found.objective * (1 + 1e-9)
    assert found.gap == pytest.approx((found.objective - found.lower_bound) / found.objective)
    run = found.protocol(W)
    assert isinstance(run, Protocol) and run == found.protocol(W) and run.nodes == tuple(range(5))
    assert account(run, trust, scheme).mu.max() <= 1 + 1e-6, "noise of sensitivity 1"
    assert found.protocol(W, nodes="abcde").nodes == tuple("abcde")
    if scheme is SCHEME:
        with pytest.raises(ValueError, match="for 6 steps"): found.protocol(W, T=5)
    else: assert found.protocol(W, T=4).T == 4


@pytest.mark.parametrize("name", ["optimize", "strategy", "exact", "directions", "local"])
def test_the_squared_error_of_an_optimum_is_that_of_its_run(name):
    """tr(H S), from the noise that the protocol says."""
    found = OPTIMA[name][0]()
    run = found.protocol(W)
    assert np.linalg.norm(space_time_workload(W, 6) @ run.mix.N.toarray())**2 == pytest.approx(found.objective, rel=1e-6)


@pytest.mark.parametrize("late", [
    lambda: optimize_local(W, SCHEME, LDP(), tol=1e-9, max_iter=1), lambda: exact_space_time(gossip_matrix(nx.star_graph(4)), SCHEME, trace_penalty=1e-3, tol=1e-9, max_iter=2),
    lambda: optimize(local_gram(gossip_matrix(nx.florentine_families_graph()), 60), Participation.cyclic(5, 12), tol=1e-9),
], ids=["local", "exact", "in time"])
def test_what_does_not_converge_hands_out_what_it_has(late, monkeypatch):
    monkeypatch.setattr("mfdl.noise.methods.newton.MAX_NEWTON_STEPS", 2)
    with pytest.raises(NotConverged, match="gap is") as caught: late()
    best = caught.value.best
    assert isinstance(best, Optimum) and 0 < best.lower_bound <= best.objective * (1 + 1e-9)
    assert isinstance(caught.value, RuntimeError)


def test_a_strategy_without_a_network_has_no_objective():
    assert np.isnan(strategy("identity", SCHEME).gap) and strategy("identity", SCHEME).protocol(W).T == 6
