"""Properties that every account must have, on random graphs, weights, steps and attackers."""
import subprocess
import sys
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mfdl import account
from mfdl.accounting.account import account_by
from mfdl.accounting.lemma14 import NotFactorizable, decompose, factorize, view
from mfdl.accounting.methods.lipschitz import Lipschitz
from mfdl.accounting.methods.solver import certify
from mfdl.accounting.sensitivity import sensitivity, worst_sensitivity
from mfdl.base.randomness import derive_seed, draw
from mfdl.protocol.algorithms import decor, dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import churn, gossip_matrix
from mfdl.protocol.methods.group_seeds import corn
from mfdl.protocol.methods.message_noise import zip_dl
from mfdl.protocol.methods.secure_sums import SecureSum
from mfdl.protocol.methods.streams import NodeNoise, deal_seeds
from mfdl.protocol.methods.variants import anti_pgd, dsgd, muffliato
from mfdl.protocol.participation import Participation
from mfdl.protocol.protocols import Protocol
from mfdl.protocol.threat_models import LDP, PNDP, SecLDP

TOL = 1e-8


@st.composite
def graphs(draw, least=3, most=6):
    """A connected graph: a random tree and some more edges."""
    n = draw(st.integers(least, most))
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from((v, draw(st.integers(0, v - 1))) for v in range(1, n))
    graph.add_edges_from(draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1]), max_size=n)))
    return graph


@st.composite
def runs(draw, shared=False):
    """An algorithm with noise, on fixed or changing weights; with `shared` also those whose noise is shared or sent by the message."""
    graph, T = draw(graphs()), draw(st.integers(1, 4))
    weights = draw(st.sampled_from(["metropolis", "uniform"]))
    offline = draw(st.lists(st.sets(st.sampled_from(sorted(graph)), max_size=1), min_size=T, max_size=T))
    W = churn(graph, offline, weights) if draw(st.booleans()) else gossip_matrix(graph, weights)
    kind = draw(st.sampled_from(["dp_dsgd", "anti_pgd", "muffliato", "mf_dsgd"] + (["decor", "corn", "zip_dl"] if shared else [])))
    n, rng = len(graph), np.random.default_rng(draw(st.integers(0, 2**16)))
    match kind:
        case "muffliato": return muffliato(W, T, draw(st.integers(1, 3)))
        case "mf_dsgd": return mf_dsgd(W, T, np.eye(T) + np.tril(rng.uniform(-0.9, 0.9, (n, T, T)), -1))
        case "decor": return decor(W, T, 1.0, draw(st.floats(0.1, 3)))
        case "zip_dl": return zip_dl(W, T, self_noise=True)
        case "corn":  # own noise for everyone, and seeds shared along edges
            pairs = [list(edge) for edge in graph.edges]
            return corn(W, T, [np.diag((np.isin(range(n), g)) * rng.uniform(0.5, 2)) for g in [*pairs, *([v] for v in graph)]], [*pairs, *([v] for v in graph)])
    return {"dp_dsgd": dp_dsgd, "anti_pgd": anti_pgd}[kind](W, T)


@st.composite
def runs_with_attackers(draw, colluders=1, shared=False):
    run = draw(runs(shared))
    attackers = draw(st.lists(st.sampled_from(run.nodes), min_size=colluders, max_size=colluders, unique=True))
    return run, attackers


def schemes(T): return [Participation.every_step(T), Participation.single(T)]


@given(runs_with_attackers())
def test_mu_never_exceeds_the_eavesdropper(case):
    run, attackers = case
    for scheme in schemes(run.T):
        everything = account(run, LDP(), scheme).mu
        report = account(run, PNDP(attackers), scheme)
        assert (report.mu <= everything[run.index(report.victims)] * (1 + TOL) + TOL).all()


@given(runs_with_attackers(colluders=2, shared=True))
def test_more_attackers_never_learn_less(case):
    run, attackers = case
    scheme = Participation.every_step(run.T)
    one = account(run, PNDP(attackers[:1]), scheme)
    both = dict(zip((report := account(run, PNDP(attackers), scheme)).victims, report.mu, strict=True))
    assert all(both[v] >= mu * (1 - TOL) - TOL for v, mu in zip(one.victims, one.mu, strict=True) if v in both)


@dataclass(frozen=True)
class Overhearing(PNDP):
    """A curious node that also overhears some messages that are not for it."""
    extra: tuple = ()

    def __init__(self, nodes, extra):
        super().__init__(nodes)
        object.__setattr__(self, "extra", extra)

    def sees(self, messages, coalition): return super().sees(messages, coalition) | np.isin(np.arange(len(messages.step)), self.extra)


@given(runs_with_attackers(shared=True), st.data())
def test_more_messages_never_teach_less(case, data):
    run, attackers = case
    extra = tuple(data.draw(st.lists(st.integers(0, len(run.M_G) - 1), max_size=4)))
    scheme = Participation.every_step(run.T)
    less, more = account(run, PNDP(attackers), scheme), account(run, Overhearing(attackers, extra), scheme)
    assert (more.mu >= less.mu * (1 - TOL) - TOL).all()


@given(runs_with_attackers(shared=True))
def test_seeing_all_teaches_no_less_than_receiving(case):
    run, attackers = case
    scheme = Participation.every_step(run.T)
    received, everything = (account(run, SecLDP(attackers, observes), scheme).mu for observes in ("received", "all"))
    assert (everything >= received * (1 - TOL) - TOL).all()
    np.testing.assert_allclose(received, account(run, PNDP(attackers), scheme).mu, rtol=1e-12)


@given(runs_with_attackers(shared=True), st.integers(0, 2**31))
def test_streams_are_the_noise_of_the_messages(case, seed):
    """What the nodes draw one by one is the noise of the stacked form, and everyone draws only what they hold."""
    run, _ = case
    Z = np.array([draw(derive_seed(seed, row), number, 2) for row, number in zip(run.variables.holder_set, run.variables.number, strict=True)])
    for u, held in deal_seeds(run, seed).items():
        assert set(held) == set(np.flatnonzero(run.variables.holder_sets[:, run.nodes.index(u)]))
        own = np.vstack(list(NodeNoise(run, u, held, 2)))
        np.testing.assert_allclose(own, (run.mix.N @ Z)[run.mix.node == u], atol=1e-12)


@given(runs_with_attackers(shared=True), st.data())
def test_an_algorithm_stopped_early_is_its_beginning(case, data):
    """The messages of its first steps, the same noise in them, and never more privacy spent than in the end."""
    run, attackers = case
    step = data.draw(st.integers(1, run.T))
    early, sent = run.until(step), run.messages.step < step
    np.testing.assert_array_equal(early.M_G, run.M_G[sent][:, :run.n * step])
    Z = np.random.default_rng(0).normal(size=(len(run.variables.step), 2))
    np.testing.assert_allclose(early.M_Z @ Z[run.variables.step < step], (run.M_Z @ Z)[sent], atol=1e-12)
    for u, held in deal_seeds(run, 5).items():
        for now, later in zip(NodeNoise(early, u, held, 2), NodeNoise(run, u, held, 2), strict=False): np.testing.assert_allclose(now, later, atol=1e-12)
    spent, in_the_end = (account(r, PNDP(attackers), Participation.every_step(r.T)).mu for r in (early, run))
    assert (spent <= in_the_end * (1 + TOL) + TOL).all()


def test_two_processes_draw_the_same_secret():
    code = "from mfdl.base.randomness import draw; print(draw(11, 5, 3).tolist())"
    first, second = (subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout for _ in range(2))
    assert first == second and eval(first) == draw(11, 5, 3).tolist() != draw(11, 6, 3).tolist() != draw(12, 5, 3).tolist()


@given(graphs(), st.integers(1, 3), st.floats(0.3, 3), st.floats(0.1, 3))
def test_corn_theorem_2_is_theorem_8(graph, T, local, edge):
    """Under an eavesdropper the information about node u is [R^-1]_uu in each step (C, Theorem 2), for DECOR and for any R."""
    R = local**2 * np.eye(len(graph)) + edge**2 * nx.laplacian_matrix(graph, sorted(graph)).toarray()
    expected = np.sqrt(T * np.diag(np.linalg.inv(R)))
    W = gossip_matrix(graph)
    for run in (decor(W, T, local, edge), corn(W, T, R)): np.testing.assert_allclose(account(run, LDP(), Participation.every_step(T)).mu, expected, rtol=1e-9)


@given(graphs(), st.integers(1, 3))
def test_noise_that_cancels_is_found(graph, T):
    """Edge secrets alone, and a covariance without the mean, hide no common direction: the sum over the network is in clear."""
    W, n = gossip_matrix(graph), len(graph)
    for run in (decor(W, T, sigma_local=0), corn(W, T, np.eye(n) - 1 / n)):
        report = account(run, LDP(), Participation.single(T))
        assert np.isinf(report.mu).all() and {leak[2] for leak in report.leaks} == set(run.nodes)


@pytest.mark.parametrize("n", [5, 17, 60])
@pytest.mark.parametrize("scale", [1, 100, 1e-6])
def test_rounding_in_a_singular_covariance_is_not_noise(n, scale):
    run = corn(gossip_matrix(nx.cycle_graph(n)), 1, scale * (np.eye(n) - 1 / n))
    assert np.isinf(account(run, LDP(), Participation.single(1)).mu).all()


@given(graphs(), st.integers(1, 3))
def test_zip_dl_is_naked_without_self_noise(graph, T):
    W = gossip_matrix(graph)
    assert np.isinf(account(zip_dl(W, T), LDP(), Participation.every_step(T)).mu).all()
    assert np.isfinite(account(zip_dl(W, T, self_noise=True), LDP(), Participation.every_step(T)).mu).all()


@given(graphs(), st.integers(1, 4), st.randoms(use_true_random=False), st.sampled_from(["metropolis", "uniform"]))
def test_relabelling_changes_nothing(graph, T, random, weights):
    order = list(graph)
    random.shuffle(order)
    names = {v: f"name {v}" for v in graph}
    shuffled = nx.Graph()
    shuffled.add_nodes_from(names[v] for v in order)
    shuffled.add_edges_from((names[u], names[v]) for u, v in graph.edges)
    scheme, victim = Participation.every_step(T), 0
    plain = account(dp_dsgd(gossip_matrix(graph, weights), T, nodes=graph), PNDP([victim]), scheme).to_frame()
    renamed = account(dp_dsgd(gossip_matrix(shuffled, weights), T, nodes=shuffled), PNDP([names[victim]]), scheme).to_frame().set_index("victim")
    for row in plain.itertuples():
        assert renamed.mu[names[row.victim]] == pytest.approx(row.mu, rel=TOL, abs=TOL)
        assert renamed.distance[names[row.victim]] == row.distance


@given(runs_with_attackers(shared=True))
def test_exact_is_at_most_the_bound(case):
    run, attackers = case
    for scheme in schemes(run.T):
        exact, bound = (account(run, PNDP(attackers), scheme, method=m).mu for m in ("exact", "bound"))
        assert (exact <= bound * (1 + 1e-12)).all()


@given(runs_with_attackers(shared=True))
def test_information_agrees_with_the_stacked_view(case):
    """The unreduced view with all its known rows, Lemma 14 and pseudo-inverses as the paper writes them."""
    run, attackers = case
    n, coalition = run.n, np.isin(np.arange(run.n), attackers)
    seen, known_g = run.messages.receivers[:, coalition].any(axis=1), np.tile(coalition, run.T)
    known_z = run.variables.holders[:, coalition].any(axis=1)
    K, K_Z = np.eye(n * run.T)[known_g], np.eye(run.M_Z.shape[1])[known_z]
    A = np.vstack([run.M_G[seen], K, np.zeros((len(K_Z), n * run.T))]) @ (np.eye(n * run.T) - np.linalg.pinv(K) @ K)
    B = np.vstack([run.M_Z[seen], np.zeros((len(K), run.M_Z.shape[1])), K_Z])
    C = np.linalg.pinv(B, rcond=1e-10) @ A
    P = C.T @ np.linalg.pinv(B, rcond=1e-10) @ B @ C
    factorization = decompose(view(run, PNDP(attackers)))
    assume(not factorization.uncovered.any())
    for u in np.flatnonzero(~coalition): np.testing.assert_allclose(factorization.information(u), P[u::n, u::n], atol=1e-9)


@given(runs_with_attackers(shared=True), st.integers(0, 2**32 - 1))
def test_no_shift_is_easier_to_see_than_the_claim(case, seed):
    """The divergence of two Gaussians with the view's mean and covariance, for random shifts of one victim and for the worst one."""
    run, attackers = case
    seen = view(run, PNDP(attackers))
    assume(len(seen.A))
    rng = np.random.default_rng(seed)
    precision = np.linalg.pinv(seen.B @ seen.B.T, rcond=1e-10, hermitian=True)
    report = account(run, PNDP(attackers), Participation.every_step(run.T))
    for u, claim in zip(seen.victims, report.sensitivity, strict=True):
        if np.isinf(claim): continue
        A = seen.A[:, u::run.n]
        for _ in range(5):
            shift = rng.normal(size=(run.T, run.T))
            shift /= np.linalg.norm(shift, axis=1, keepdims=True)
            assert np.sqrt(np.trace(shift.T @ A.T @ precision @ A @ shift)) <= claim * (1 + TOL) + TOL
        Y = certify(decompose(seen).information(u)).Y
        assert np.sqrt(max(0, np.trace(A.T @ precision @ A @ Y))) == pytest.approx(claim, rel=1e-6, abs=1e-6)


@given(graphs(), st.integers(1, 3))
def test_without_noise_everything_that_arrives_leaks(graph, T):
    report = account(dsgd(gossip_matrix(graph), T), PNDP([0]), Participation.every_step(T))
    assert np.array_equal(np.isinf(report.mu), report.distance <= T)
    assert (report.mu[~np.isinf(report.mu)] == 0).all()
    with pytest.raises(NotFactorizable, match="no noise covers"): factorize(view(dsgd(gossip_matrix(graph), T), PNDP([0])))


@given(graphs(), st.integers(2, 3), st.data())
def test_a_node_that_adds_no_noise_is_found(graph, T, data):
    silent = data.draw(st.sampled_from(sorted(graph)[1:]))
    nodes = sorted(graph)
    run = corn(gossip_matrix(graph), T, [np.diag([float(u == v != silent) for u in nodes]) for v in nodes], [[v] for v in nodes], nodes=list(graph))
    for backend in ("streaming", "dense"):
        report = account_by(backend, run, PNDP([next(iter(graph[silent]))]), Participation.every_step(T))
        if silent in report.victims: assert np.isinf(report.mu[report.victims.index(silent)])


def test_a_short_pattern_into_which_nothing_fits_counts():
    C = np.eye(6)
    C[[1, 4, 4], [1, 1, 4]] = 3
    scheme, X = Participation.min_sep(3, 2, 6), C.T @ C
    worst = sensitivity(X[np.ix_([1, 4], [1, 4])])
    assert worst_sensitivity(X, scheme) >= worst * (1 - 1e-9)
    assert account(mf_dsgd(gossip_matrix(nx.cycle_graph(4)), 6, C), LDP(), scheme).mu.max() >= worst * (1 - 1e-9)


def test_models_that_are_never_sent_are_not_known():
    W = gossip_matrix(nx.path_graph(3))
    reports = [account(run, LDP(), Participation.single(2)) for run in (dp_dsgd(W, 2), zip_dl(W, 2, self_noise=True))]
    assert [report.adaptive for report in reports] == [True, False]


def test_a_leak_through_tiny_weights_is_not_lost_in_rounding():
    """Exact rational arithmetic gives sensitivity 1482913 for node 1: a signal of 1e-12 in a direction with noise of 1e-18."""
    W = [[0.9990243893143962, 9.304139663599396e-10, 0, 0.00097560975518984], [1 / 3, 2 / 3, 0, 0],
         [0.33333322736955406, 3.178913377471486e-07, 0.6666664547391081, 0], [0, 4.547473508862573e-13, 0.4999999999997726, 0.4999999999997726]]
    report = account(zip_dl(W, 3), PNDP([0]), Participation.every_step(3))
    assert report.mu[report.victims.index(1)] > 1e6


def test_colluders_with_long_memory_are_not_taken_for_a_leak():
    """Redundant rows and an ill-conditioned B: what is covered has to be recognised as covered."""
    T = 40
    run = mf_dsgd(gossip_matrix(nx.cycle_graph(6)), T, np.tri(T) @ np.tri(T))
    assert np.isfinite(account(run, PNDP([0, 1]), Participation.single(T)).mu).all()


@given(runs_with_attackers(), st.floats(0.1, 10))
def test_sigma_scales_mu(case, sigma):
    run, attackers = case
    scheme = Participation.every_step(run.T)
    unit, scaled = account(run, PNDP(attackers), scheme), account(run, PNDP(attackers), scheme, sigma)
    np.testing.assert_allclose(scaled.mu * sigma, unit.mu, rtol=1e-12)
    if unit.mu.max() > 1e-6: assert scaled.calibrate(4.0, 1e-6).worst.epsilon(1e-6) == pytest.approx(4.0, rel=1e-9)


W3 = gossip_matrix(nx.path_graph(3))
RUN = dp_dsgd(W3, 4)


@pytest.mark.parametrize(("arguments", "message"), [
    (dict(trust=PNDP([3])), "attackers: 3 is not a node"),
    (dict(trust=PNDP([0, 1, 2])), "every node is an attacker"),
    (dict(trust=[]), "at least one trust model"),
    (dict(sigma=0), "sigma=0: expected"), (dict(sigma=-1.0), "sigma=-1.0: expected"), (dict(sigma=float("nan")), "sigma=nan: expected"),
    (dict(participation=Participation.cyclic(5, 1)), r"k\*b = 5 steps, more than the T=4"),
    (dict(participation=Participation.cyclic(1, 3)), r"k\*b = 3 steps, not the T=4"),
    (dict(method="tight"), "method='tight' is not known"),
    (dict(protocol=W3), "expected a Protocol"),
])
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message): account(**(dict(protocol=RUN, trust=LDP(), participation=Participation.every_step(4)) | arguments))


def test_no_work_is_done_before_the_check(monkeypatch):
    monkeypatch.setattr("mfdl.accounting.account.find_all", lambda *_: pytest.fail("work was done"))
    good = dict(protocol=RUN, trust=LDP(), participation=Participation.every_step(4))
    with pytest.raises(pytest.fail.Exception): account(**good)
    for arguments in (dict(sigma=0), dict(method="x"), dict(trust=[LDP(), PNDP([9])])):
        with pytest.raises(ValueError): account(**good | arguments)


def test_frame_columns():
    frame = account(RUN, [PNDP([0]), PNDP([1, 2]), LDP()], Participation.every_step(4)).to_frame()
    assert list(frame.columns) == ["attacker", "victim", "distance", "mu", "proved_mu"]
    assert list(account(RUN, LDP(), Participation.every_step(4)).to_frame().columns) == ["attacker", "victim", "distance", "mu"]
    assert frame.attacker.tolist() == [0, 0, (1, 2), None, None, None] and frame.victim.tolist() == [1, 2, 0, 0, 1, 2]
    assert frame.distance.isna().tolist() == [False] * 3 + [True] * 3


class Stolen(PNDP):
    """A curious node that has stolen the seed of node 1."""
    def knows_noise(self, variables, coalition): return super().knows_noise(variables, coalition) | np.asarray(variables.holders[:, 1])


class Partly(PNDP):
    """A curious node that hears one neighbour only."""
    def sees(self, messages, coalition): return super().sees(messages, coalition) & (messages.sender == 0)


class Insured(LDP):
    """An eavesdropper who knows the gradients of node 0."""
    def knows_gradient(self, owner, coalition): return owner == 0


class Tap(LDP):
    """One who hears only every other message, and says nothing of that."""
    def sees(self, messages, coalition): return np.arange(len(messages.step)) % 2 == 0


def test_what_a_trust_model_says_of_itself_is_not_inherited():
    """A closed form for an eavesdropper is for one who says that it hears all; a subclass is asked what it sees."""
    for usual, other in ((LDP(), Tap()), (SecLDP([0]), type("Other", (SecLDP,), {})([0])), (PNDP([0]), Partly([0])), (SecureSum([0]), type("Sums", (SecureSum,), {})([0]))):
        assert usual.knows_own and usual.describe() != repr(usual)
        assert not (other.hears_all or other.sees_messages or other.knows_own or other.eavesdrops) and other.describe() == repr(other)
    assert [trust.eavesdrops for trust in (LDP(), SecLDP([0]), PNDP([0]))] == [True, False, False]
    assert [trust.hears_all for trust in (SecLDP([0]), SecLDP([0], "received"))] == [True, False]
    run, scheme = dp_dsgd(gossip_matrix(nx.path_graph(4)), 2), Participation.single(2)
    tapped = account(run, Tap(), scheme).mu
    np.testing.assert_allclose(tapped, account_by("exact", run, Tap(), scheme).mu, rtol=1e-12)
    assert (tapped < account(run, LDP(), scheme).mu).any()


def test_attackers_of_ones_own_get_no_number_that_is_not_proved():
    W = gossip_matrix(nx.path_graph(4))
    run, scheme = mf_dsgd(W, 4, np.eye(4) + 0.5 * np.eye(4, k=-1)), Participation.single(4)
    for updates in (None, Lipschitz(1.0)): assert account(run, Stolen([0]), scheme, updates=updates).mu[0] == np.inf
    assert not account(dp_dsgd(np.full((3, 3), 1 / 3), 2), Partly([1]), Participation.single(2)).adaptive
    with pytest.raises(ValueError, match="knows a gradient of 0, which is none of its nodes"): account(run, Insured(), scheme)


def test_messages_without_noise_leak_however_small_they_are():
    base = dp_dsgd(np.full((2, 2), 0.5), 2)
    G, Z = base.M_G.copy(), base.M_Z.copy()
    G[3], Z[3] = [1e-15, 0, 0, 0], 0
    run = Protocol.from_matrices(G, Z, base.messages, base.variables, None, 2)
    for backend in ("auto", "dense", "exact"): assert account_by(backend, run, LDP(), Participation.single(2)).mu.tolist() == [np.inf, 1]
