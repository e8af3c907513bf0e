"""Noise that is nearly cancelled lets information grow, and rounding with it: every route is right to half of all digits, or says that it doubts."""
import networkx as nx
import numpy as np
import pytest
from rationals import information
from scipy.linalg import solve_triangular, toeplitz
from scipy.sparse import csr_array

from mfdl import account
from mfdl.accounting.lemma14 import decompose, view
from mfdl.accounting.methods.eavesdropper import overheard
from mfdl.accounting.methods.paths import paths_of
from mfdl.accounting.methods.sparse_view import FromSeen, see
from mfdl.accounting.methods.state_space import Doubtful, state_space, strategy_in_time
from mfdl.accounting.methods.streaming import stream
from mfdl.protocol.algorithms import mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import LDP, PNDP

TRUE = 1e-7  # relative error of information, some digits above half of all
PATH = gossip_matrix(nx.path_graph(3), "uniform")


def growing(a, T):
    """C whose inverse takes back a times the last variable: I - a S."""
    return np.tril(toeplitz(float(a)**np.arange(T)))


def errors(found, truth, u):
    """Entries of P about node u, in units of what is learned about the two steps."""
    size = np.sqrt(np.diag(truth[u]))
    return np.abs(found.information(u) - truth[u]).max(where=np.outer(size, size) > 0, initial=0) / size.max()**2


def view_of(run, trust):
    found = decompose(view(run, trust))
    if not found.clear: raise Doubtful("the account goes on without rounding")
    return found


def seen_of(run, trust): return FromSeen(see(Attack(run, trust)))
def streamed(run, trust): return stream(state_space(Attack(run, trust)))


@pytest.mark.parametrize("a, T, served", [(1, 10, 4), (1.5, 18, 2), (2, 20, 1), (-2, 17, 1), (4, 8, 1)])
def test_every_route_is_right_or_doubts(a, T, served):
    C, trust, accepted = growing(a, T), PNDP([0]), 0
    full = mf_dsgd(PATH, T, C)
    leaks, truth = information(full, [0])
    assert not leaks.any()
    for run, route in ((mf_dsgd(csr_array(PATH), T, C), seen_of), (full, seen_of), (full, streamed), (full, view_of)):
        try: found = route(run, trust)
        except Doubtful: continue
        accepted += 1
        for u in (1, 2): assert errors(found, truth, u) < TRUE, route
    assert accepted >= served


def test_strategies_that_grow_are_not_lost():
    """Before, a ring of 5 was told 1.88e8 where the truth is 5.06e8."""
    W = gossip_matrix(nx.cycle_graph(5))
    with pytest.raises(Doubtful): account(mf_dsgd(csr_array(W), 50, growing(1.5, 50)), PNDP([0]), Participation.single(50))
    with pytest.raises(Doubtful): stream(state_space(Attack(mf_dsgd(W, 40, growing(2, 40)), PNDP([0]))))
    everybody = account(mf_dsgd(csr_array(W), 50, growing(1.5, 50)), LDP(), Participation.single(50))
    np.testing.assert_allclose(everybody.sensitivity, np.sqrt((2.25**50 - 1) / 1.25), rtol=1e-9)


@pytest.mark.parametrize("a", [1.5, -1.5, 3.0])
def test_a_strategy_is_recovered_from_noise_that_grows(a):
    """C = I - a S: its inverse grows, and an inverse of that inverse is lost in rounding."""
    C = np.eye(70) - a * np.eye(70, k=-1)
    run = mf_dsgd(PATH, 70, C)
    np.testing.assert_allclose(paths_of(Attack(run, PNDP([0]))).memory, np.tile(np.abs(C), (3, 1, 1)), rtol=1e-12, atol=0)
    told = overheard(Attack(mf_dsgd(csr_array(PATH), 70, C), LDP())).information(1)
    np.testing.assert_allclose(told, C.T @ C, rtol=1e-12, atol=0)


def test_a_strategy_that_cannot_be_recovered_is_refused():
    """What is drawn and what is taken back nearly cancel: solving leaves nothing of C."""
    C = np.tril(np.random.default_rng(0).normal(size=(70, 70)))
    D = np.eye(70) - 3 * np.eye(70, k=-1)
    assert np.abs(solve_triangular(D, D @ C, lower=True) - C).max() > 1
    with pytest.raises(Doubtful): strategy_in_time(D, D @ C)
    np.testing.assert_allclose(strategy_in_time(D[:9, :9], D[:9, :9] @ C[:9, :9]), C[:9, :9], atol=1e-10)


def test_signs_that_rounding_hides_are_not_taken_for_granted():
    """Balls in bins are proved for strategies without negative entries: one far below the others is found, or it is doubted."""
    for T in (8, 16, 30, 40):
        C = growing(2, T)
        run = mf_dsgd(csr_array(PATH), T, C)
        C[T // 2, 0] *= -1e-3
        for one in (run, mf_dsgd(csr_array(PATH), T, C)) if T > 20 else (mf_dsgd(csr_array(PATH), T, C),):
            with pytest.raises(ValueError, match="negative|signs"): account(one, LDP(), Participation.balls_in_bins(2, T // 2), 1e3)
