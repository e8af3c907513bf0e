"""One description of a run: account, simulator, streams of noise and the online account follow from it, and what does not is noticed."""
import pickle
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from protocols import random_protocol

from mfdl import (
    LDP,
    PNDP,
    OnlineAccountant,
    Participation,
    Protocol,
    Round,
    SecLDP,
    SecureSum,
    Step,
    account,
    anti_pgd,
    audit,
    check_protocol,
    corn,
    decor,
    dp_dsgd,
    dsgd,
    fresh_noise,
    gossip_matrix,
    local_dsgd,
    mf_dsgd,
    muffliato,
    optimize_space_time,
    random_walk,
    train,
    zip_dl,
)
from mfdl.accounting.account import account_by
from mfdl.accounting.lemma14 import decompose, view
from mfdl.accounting.methods.filters import covariance_gains
from mfdl.accounting.methods.state_space import state_space
from mfdl.learning.data import Batches
from mfdl.learning.methods.noise_supply import Run
from mfdl.learning.simulator import Simulation
from mfdl.protocol.methods import checked_gossip, steps
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.checked_gossip import gossip_kinds, gossip_sequence
from mfdl.protocol.methods.steps import Noise

GRAPH = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 4)])
W, N, T = gossip_matrix(GRAPH), 5, 6
RNG = np.random.default_rng(0)
WS = RNG.random((T, N, N)) * (RNG.random((T, N, N)) < 0.5) + 0.3 * np.eye(N)
WS = list(WS / WS.sum(axis=2, keepdims=True))
C = np.tril(RNG.uniform(-0.4, 0.4, (T, T)), -1) + np.eye(T)
M = RNG.normal(size=(N, N))
SCHEME = Participation.cyclic(2, 3)
TWO = [0, 1, 2], [2, 3, 4]
COVARIANCES = [np.where(np.isin(np.arange(N), group)[:, None] & np.isin(np.arange(N), group), M @ M.T, 0) for group in TWO]
BEST = {method: optimize_space_time(W, SCHEME, trace_penalty=1e-3, method=method) for method in ("exact", "directions")}
ALGORITHMS = {
    "no noise": dsgd(WS, T), "DP-D-SGD": dp_dsgd(WS, T), "some train": dp_dsgd(W, T, trains=0.5, seed=1), "churn": dp_dsgd(WS, T, offline=0.3, seed=2),
    "Muffliato": muffliato(WS, T, 3), "AntiPGD": anti_pgd(W, T), "MF": mf_dsgd(WS, T, C), "one C each": mf_dsgd(W, T, [C * (1 + u) for u in range(N)]),
    "bands": mf_dsgd(W, T, np.eye(T) + 0.5 * np.eye(T, k=-1)), "DECOR": decor(WS, T), "CorN": corn(W, T, M @ M.T), "groups": corn(W, T, COVARIANCES, TWO),
    "Zip-DL": zip_dl(WS, T), "Zip-DL, self": zip_dl(W, T, self_noise=True), "local": local_dsgd(WS, T, 2), "walk": random_walk(W, T, seed=1),
    "space-time": BEST["exact"].protocol(W), "directions": BEST["directions"].protocol(W),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_everything_that_runs_agrees(name): assert check_protocol(ALGORITHMS[name]) < 1e-5


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_everything_that_runs_agrees_for_any_protocol(seed): assert check_protocol(random_protocol(seed)) < 1e-4


def tampered(**parts):
    """A fresh protocol with something that was derived replaced."""
    protocol = dp_dsgd(W, T)
    for name, change in parts.items(): vars(protocol)[name] = change(getattr(protocol, name))
    return protocol


@pytest.mark.parametrize("plant", [
    {"M_Z": lambda M_Z: 10 * M_Z}, {"M_G": lambda M_G: M_G + 0.01}, {"mix": lambda mix: replace(mix, D=10 * mix.D)},
    {"variables": lambda variables: replace(variables, holder_set=variables.holder_set[::-1])},
], ids=["M_Z", "M_G", "mix", "variables"])
def test_what_contradicts_the_steps_is_noticed(plant):
    assert check_protocol(dp_dsgd(W, T)) < 1e-5
    try: assert check_protocol(tampered(**plant)) > 1e-3
    except ValueError as error: assert "lacks the seed" in str(error)


def test_what_was_meant_is_compared():
    local, plain = local_dsgd(W, T, 2), dp_dsgd(W, T)
    assert check_protocol(local, local.M_G, local.M_Z) < 1e-5
    with pytest.raises(ValueError, match="M_G has shape"): check_protocol(local, plain.M_G)
    assert check_protocol(plain, M_Z=2 * plain.M_Z) > 0.1
    identity = dp_dsgd([np.eye(N), W] * 3, T)
    assert check_protocol(identity, local.M_G, local.M_Z) < 1e-5


def test_nobody_pays_for_messages_that_nobody_receives():
    """Two local steps, then an exchange: three gradients under three noises, whether they are written as local steps or with identity matrices."""
    single = Participation.single(3)
    for run in (local_dsgd(W, 3, 3), dp_dsgd([np.eye(N), np.eye(N), W], 3)):
        assert account(run, LDP(), single).mu == pytest.approx(np.full(N, 1 / np.sqrt(3)), rel=1e-9)
    assert account(dp_dsgd(np.eye(N), 3), LDP(), single).mu == pytest.approx(np.zeros(N))


def test_local_steps_are_trained_as_they_are_accounted_for():
    run = local_dsgd(gossip_matrix(nx.path_graph(3)), 4, 2)
    scheme = Participation.cyclic(2, 2)
    too_little = 0.6 * account(run, PNDP([0]), scheme).mu.max()
    fair, lie = (audit(run, PNDP([0]), scheme, replays=400, claimed=claimed) for claimed in (None, too_little))
    assert not fair.refuted and fair.tight and lie.refuted


def test_the_online_account_believes_steps_and_no_names():
    fading = Protocol(None, [Step(True, fresh_noise(0.5**t * np.eye(3)), [Round(gossip_matrix(nx.path_graph(3)))]) for t in range(5)], "DP-D-SGD (annealed)")
    online = OnlineAccountant(LDP())
    for step in fading.steps: report = online.feed(step)
    assert report.mu == pytest.approx(np.full(3, np.sqrt(sum(4.0**t for t in range(5)))), rel=1e-9)
    assert report.mu == pytest.approx(account(fading, LDP(), Participation.every_step(5)).mu, rel=1e-9)


def test_equal_networks_are_one_however_they_are_given():
    given_as = [W, [W] * T, [W.copy() for _ in range(T)], np.array([W] * T)]
    runs = [dp_dsgd(one, T) for one in given_as]
    assert all(run == runs[0] and len(run.distinct) == 1 and run.period == 1 for run in runs)
    assert all(len(set(map(id, state_space(Attack(run, PNDP([0]))).stages))) == 2 for run in runs)  # the first, and all others


def test_a_periodic_network_is_known_to_be():
    other = gossip_matrix(nx.cycle_graph(N))
    run = dp_dsgd([W, other, other] * 200, 600)
    space = state_space(Attack(run, PNDP([0])))
    assert run.period == 3 == space.period and len(set(map(id, space.stages))) == 4
    gains = list(covariance_gains(space.stages, space.period))
    slow = list(covariance_gains([replace(stage) for stage in space.stages]))
    assert len(set(map(id, gains))) < 200 and len(set(map(id, slow))) == 600
    for fast, true in zip(gains, slow, strict=True): np.testing.assert_allclose(fast.K, true.K, atol=1e-11)


TRUSTS = {"LDP": LDP(), "PNDP": PNDP([0]), "SecLDP": SecLDP([0]), "received": SecLDP([0], "received"), "sum": SecureSum([0])}


@pytest.mark.parametrize("steps", [1025, 2000, pytest.param(5000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("trust", TRUSTS)
def test_runs_of_thousands_of_steps(trust, steps):
    """By the filter, and by the whole view of a run with few exchanges; two nodes, whose account is known in closed form under LDP."""
    pair, b = np.full((2, 2), 0.5), steps // 5
    scheme = Participation.cyclic(5, b)
    mu = account(dp_dsgd(pair, steps), TRUSTS[trust], scheme, method="bound").mu
    assert (mu > 0).all() and (trust != "LDP" or mu == pytest.approx(np.full(2, np.sqrt(5))))
    few = local_dsgd(pair, steps, b)
    dense, auto = (account_by(backend, few, TRUSTS[trust], scheme, method="bound").mu for backend in ("dense", "auto"))
    assert dense == pytest.approx(auto, rel=1e-7)


@given(st.integers(0, 2**32 - 1))
def test_a_sum_never_tells_more_than_its_parts(seed):
    """Against the messages themselves, and against the sums written down as messages of matrices from elsewhere."""
    rng = np.random.default_rng(seed)
    n, T = int(rng.integers(3, 7)), int(rng.integers(1, 5))
    graph = nx.connected_watts_strogatz_graph(n, 2 + (n > 4), 0.5, seed=seed % 1000)
    run = [dp_dsgd, lambda W, T: muffliato(W, T, 2), decor, lambda W, T: local_dsgd(W, T, 2), lambda W, T: zip_dl(W, T, True)][seed % 5](gossip_matrix(graph), T)
    some, every = rng.permutation(n)[:rng.integers(1, 3)].tolist(), Participation.every_step(T)
    sums, messages, dense = (account_by(backend, run, trust, every).mu for trust, backend in ((SecureSum(some), "auto"), (PNDP(some), "auto"), (SecureSum(some), "dense")))
    assert (sums <= messages * (1 + 1e-7) + 1e-7).all()
    np.testing.assert_allclose(sums, dense, rtol=1e-6, atol=1e-8)


def test_a_sum_by_hand():
    """The centre of a star learns a sum of three gradients under three noises: a third of the information about each."""
    star = dp_dsgd(gossip_matrix(nx.star_graph(3)), 1)
    assert account(star, SecureSum([0]), Participation.single(1)).mu == pytest.approx(np.full(3, np.sqrt(1 / 3)))
    assert account(star, PNDP([0]), Participation.single(1)).mu == pytest.approx(np.ones(3))


@pytest.mark.parametrize("name", ["local", "walk", "churn", "some train"])
def test_new_algorithms_are_accounted_trained_and_audited(name):
    run = ALGORITHMS[name]
    for trust in (LDP(), PNDP([1]), SecureSum([1])):
        both = [account_by(backend, run, trust, SCHEME).mu for backend in ("auto", "dense")]
        np.testing.assert_allclose(*both, rtol=1e-7, atol=1e-9)
    found = audit(run, PNDP([1]), SCHEME, replays=300)
    assert not found.refuted and found.tight


def test_who_hears_nothing_learns_nothing():
    apart = dp_dsgd(gossip_matrix(nx.empty_graph(2)), 2)
    found = audit(apart, PNDP([0]), Participation.every_step(2), replays=50)
    assert found.claimed == 0 and not found.refuted and account(apart, PNDP([0]), Participation.every_step(2)).mu == 0


def test_matrices_from_elsewhere_are_accounted_for_and_never_run():
    run = dp_dsgd(W, T)
    elsewhere = Protocol.from_matrices(run.M_G, run.M_Z, run.messages, run.variables, None, T, "theirs")
    for trust in (LDP(), PNDP([0])):
        np.testing.assert_allclose(account(elsewhere, trust, SCHEME).mu, account(run, trust, SCHEME).mu, rtol=1e-9)
        assert not account(elsewhere, trust, SCHEME).adaptive, "nothing says what its nodes react to"
    twice = Protocol.from_matrices(run.M_G, 2 * run.M_Z, run.messages, run.variables, None, T)
    np.testing.assert_allclose(2 * account(twice, LDP(), SCHEME).mu, account(run, LDP(), SCHEME).mu, rtol=1e-9)
    np.testing.assert_array_equal(decompose(view(elsewhere, PNDP([0]))).information(1), decompose(view(run, PNDP([0]))).information(1))
    batches = Batches(np.arange(N * 3).reshape(N, 3, 1))
    for use in (
        lambda: check_protocol(elsewhere), lambda: audit(elsewhere, LDP(), SCHEME), lambda: account(elsewhere, SecureSum([0]), SCHEME),
        lambda: Simulation(None, None, batches, [Run("a", elsewhere)], 0.1, 1.0),
        lambda: train(lambda: torch.nn.Linear(64, 10), "digits", nx.path_graph(N), 1.0, noise=elsewhere),
        lambda: account_by("streaming", elsewhere, PNDP([0]), SCHEME),
    ):
        with pytest.raises(ValueError, match="theirs"): use()


def test_descriptions_are_short():
    karate = nx.karate_club_graph()
    run = mf_dsgd(gossip_matrix(karate), 20, np.tri(20), nodes=karate)
    report = account(run, PNDP.each(karate), Participation.cyclic(4, 5))
    for shown in (run, report, Protocol.from_matrices(run.M_G, run.M_Z, run.messages, run.variables, run.nodes, 20)): assert len(repr(shown)) < 600
    assert "react" in repr(report) and "20 steps" in repr(run)
    assert "replace-one" in repr(report.in_units(1.0, 10, "replace-one")) and report.in_units(1.0, 10, "replace-one").row_sensitivity == 0.2


def test_noise_of_others_is_not_taken_back_without_its_seed():
    own = Step(True, Noise(np.eye(2), np.eye(2)), [])
    back = Step(True, Noise(np.zeros((0, 2), bool), np.zeros((2, 0)), back=[[0, 1, 1, 0], [0, 0, 0, 1.0]]), [Round(np.full((2, 2), 0.5))])
    with pytest.raises(ValueError, match="adds noise variable 0, whose seed it does not hold"): Protocol(None, [own, back])
    shared = Step(True, Noise(np.ones((2, 2)), np.eye(2)), [])
    assert Protocol(None, [shared, back]).mix.N.toarray()[2].tolist() == [0, -1]
    with pytest.raises(ValueError, match="basis has entries that are not finite"): Noise(np.eye(2), np.eye(2), basis=[[1, 0], [0, np.nan]])


ONCE = {
    "dsgd": dsgd, "dp_dsgd": dp_dsgd, "muffliato": lambda W, T: muffliato(W, T, 2), "anti_pgd": anti_pgd, "mf_dsgd": lambda W, T: mf_dsgd(W, T, np.tri(T)),
    "decor": decor, "corn": lambda W, T: corn(W, T, np.eye(4)), "zip_dl": zip_dl, "local_dsgd": lambda W, T: local_dsgd(W, T, 2),
}


@pytest.mark.parametrize("name", ONCE)
def test_a_gossip_matrix_is_checked_once(name, monkeypatch):
    """Where it is given; what was checked carries that as its type, and is the run of the same matrices all the same."""
    checked, check, own = [], checked_gossip.check_gossip, steps.check_gossip
    monkeypatch.setattr(checked_gossip, "check_gossip", lambda W, **more: checked.append(W) or check(W, **more))
    monkeypatch.setattr(steps, "check_gossip", lambda W, **more: checked.append(W) or own(W, **more))
    W = gossip_matrix(nx.cycle_graph(4))
    run = ONCE[name](W, 6)
    assert len(checked) == 1 + (name == "zip_dl")  # whose noise on messages needs a round of its own
    checked.clear()
    again = ONCE[name](gossip_sequence([W] * 6, 6), 6)
    assert len(checked) == 6 + (name == "zip_dl") and again.digest == run.digest
    assert all(isinstance(one.W, np.ndarray) and not one.W.flags.writeable for step in run.distinct for one in step.rounds)


def test_checked_sequences_are_taken_as_they_are_and_others_are_checked():
    W, S = gossip_matrix(nx.path_graph(3)), gossip_matrix(nx.path_graph(3), sparse=True)
    Ws = gossip_sequence([W, W.T @ W / (W.T @ W).sum(axis=1, keepdims=True), W], 3)
    assert Ws.kinds == [0, 1, 0] and gossip_kinds(Ws, 3)[0] is Ws.different and Ws[0] is Ws[2]
    assert Round.checked(Ws[0]) == Round(W) and pickle.loads(pickle.dumps(Ws)).kinds == Ws.kinds
    with pytest.raises(ValueError, match="sparse"): gossip_kinds(gossip_sequence([S] * 3, 3, sparse=True), 3)
    with pytest.raises(ValueError, match="expected T=4"): gossip_kinds(Ws, 4)
    with pytest.raises(ValueError, match="not stochastic"): gossip_kinds([2 * one for one in Ws], 3)
    with pytest.raises(ValueError, match="not stochastic"): gossip_kinds(tuple(2 * one for one in Ws), 3)
