"""Momentum, learning rates and weight decay: matrices, accounts, the simulator and peers against plain loops and pseudo-inverses."""
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocols import random_protocol

from mfdl.accounting.account import account, account_by
from mfdl.accounting.lemma14 import view
from mfdl.accounting.methods.accountant import OnlineAccountant
from mfdl.accounting.methods.flow_plans import promise
from mfdl.accounting.methods.lipschitz import Lipschitz
from mfdl.accounting.methods.paths import paths_of
from mfdl.accounting.methods.schedules import Schedule, ScheduledProtocol, same_account
from mfdl.accounting.methods.state_space import NotStreamable, state_space
from mfdl.accounting.methods.ways import expected_work
from mfdl.accounting.sensitivity import worst_sensitivity
from mfdl.noise.methods.objectives import Objective, model_workload
from mfdl.protocol.algorithms import dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.message_noise import zip_dl
from mfdl.protocol.methods.secure_sums import SecureSum
from mfdl.protocol.methods.steps import Noise, Round, Step
from mfdl.protocol.methods.variants import muffliato
from mfdl.protocol.participation import Participation
from mfdl.protocol.protocols import Protocol
from mfdl.protocol.threat_models import LDP, PNDP, SecLDP

RING = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)])
N, T = 5, 6
W = gossip_matrix(RING)
WS = [W if t % 2 else (W + np.eye(N)) / 2 for t in range(T)]
C = np.eye(T) + 0.5 * np.eye(T, k=-1)


@st.composite
def schedules(draw, T, moving=True):
    """Any schedule of T steps."""
    rates = draw(st.one_of(st.floats(0.1, 2), st.lists(st.floats(0.1, 2), min_size=T, max_size=T)))
    if not moving: return Schedule(rates)
    decay = draw(st.sampled_from([0.0, 0.2, 0.45]))
    return Schedule(rates, draw(st.sampled_from([0.0, 0.5, 0.9])), draw(st.booleans()), decay)


def training(protocol):
    """The same with nodes that all train."""
    return Protocol(protocol.nodes, [Step(True, step.noise, step.rounds) for step in protocol.steps])


def in_fractions(run, u, s):
    """Messages of a run without noise in which the only gradient is that of node u in step s, node by node, without rounding."""
    schedule, rates = run.schedule, [Fraction(float(rate)) for rate in run.schedule.rates(run.T)]
    beta, decay = Fraction(schedule.momentum), Fraction(schedule.weight_decay)
    theta, velocity, said = [Fraction(0)] * run.n, [Fraction(0)] * run.n, []
    for t, step in enumerate(run.protocol.steps):
        for v in range(run.n):
            gradient = Fraction(int((t, v) == (s, u) and bool(step.trains[v])))
            velocity[v] = beta * velocity[v] + gradient
            direction = gradient + beta * velocity[v] if schedule.nesterov else velocity[v]
            theta[v] = (1 - rates[t] * decay) * theta[v] + rates[t] * direction
        for one in step.rounds:
            said += [theta[v] for v in one.senders]
            theta = [sum(Fraction(one.W[v, w]) * theta[w] for w in range(run.n)) for v in range(run.n)]
    return [float(x) for x in said]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.data())
def test_matrices_are_those_of_loops_in_fractions(seed, data):
    protocol = random_protocol(seed)
    moving = data.draw(st.booleans())
    if moving: protocol = training(protocol)
    run = ScheduledProtocol(protocol, data.draw(schedules(protocol.T, moving)))
    units = [(s, u) for s in range(run.T) for u in range(run.n)]
    found = np.array([in_fractions(run, u, s) for s, u in units]).T
    np.testing.assert_allclose(found.reshape(run.M_G.shape), run.M_G, atol=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.data())
def test_everything_that_runs_agrees_for_any_schedule(seed, data):
    """The simulator (in float32) and the streams of noise, for random protocols: gradients, noise of models and noise of messages."""
    pytest.importorskip("torch")
    from mfdl.learning.methods.checking import check_protocol
    protocol = random_protocol(seed)
    moving = data.draw(st.booleans())
    if moving: protocol = training(protocol)
    run = ScheduledProtocol(protocol, data.draw(schedules(protocol.T, moving)))
    assert check_protocol(run) < 1e-4
    if run.M_G.any(): assert check_protocol(run, M_G=1.01 * run.M_G) > 1e-4


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_models_after_gossip_are_the_workload_of_the_objective(data):
    schedule = data.draw(schedules(T))
    rates = schedule.rates(T)
    objective = Objective(learning_rates=rates, momentum=schedule.momentum, nesterov=schedule.nesterov, weight_decay=schedule.weight_decay)
    for weights in (W, WS):
        run = ScheduledProtocol(dp_dsgd(weights, T), schedule)
        Ws = [step.rounds[0].W for step in run.protocol.steps]
        after = np.concatenate([Ws[t] @ run.M_G[t * N:(t + 1) * N] for t in range(T)])
        np.testing.assert_allclose(after, model_workload(weights, T, objective), atol=1e-13)


def by_pinv(run, trust, scheme):
    """Sensitivity of each victim, from the matrices alone: knowledge taken away, pseudo-inverse, patterns."""
    n = run.n
    coalition = np.isin(np.arange(n), list(trust.nodes))
    seen = np.ones(len(run.messages.step), dtype=bool)
    if isinstance(trust, PNDP) and getattr(trust, "observes", "received") == "received":
        seen = np.asarray(run.messages.receivers[:, coalition]).any(axis=1)
    held = np.asarray(run.variables.holders)[:, coalition].any(axis=1)
    A = np.where(np.tile(coalition, run.T), 0, run.M_G[seen])
    B = run.M_Z[seen][:, ~held]
    K = np.linalg.pinv(B, rcond=1e-9) @ A
    if not np.allclose(B @ K, A, atol=1e-8): return None
    return [worst_sensitivity((K.T @ K)[u::n, u::n], scheme) for u in np.flatnonzero(~coalition)]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.data())
def test_accounts_against_pseudo_inverses(seed, data):
    """Random small networks, fixed or changing, fresh noise or with a memory; three kinds of attackers."""
    rng = np.random.default_rng(seed)
    n, steps = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    def gossip(): return rng.dirichlet(np.ones(n), size=n)
    fixed = data.draw(st.booleans())
    weights = gossip() if fixed else [gossip() for _ in range(steps)]
    strategy = np.eye(steps) + np.tril(rng.uniform(-0.5, 0.5, (steps, steps)), -1)
    plain = dp_dsgd(weights, steps) if data.draw(st.booleans()) else mf_dsgd(weights, steps, strategy)
    run = ScheduledProtocol(plain, data.draw(schedules(steps)))
    trust = data.draw(st.sampled_from([LDP(), PNDP([0]), SecLDP([0]), SecLDP([n - 1], observes="received")]))
    scheme = data.draw(st.sampled_from([Participation.single(steps), Participation.every_step(steps)]))
    expected = by_pinv(run, trust, scheme)
    assert expected is not None
    np.testing.assert_allclose(account(run, trust, scheme).sensitivity, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(account_by("dense", run, trust, scheme).sensitivity, expected, rtol=1e-6, atol=1e-7)
    if not isinstance(same_account(Attack(run, trust)).run, Protocol): return
    np.testing.assert_allclose(by_pinv(plain, trust, scheme), expected, rtol=1e-6, atol=1e-7)


def test_a_team_that_hears_each_other():
    run = ScheduledProtocol(dp_dsgd(WS, T), Schedule(np.geomspace(1, 0.2, T), 0.8, True, 0.3))
    team, once = PNDP([0, 1]), Participation.single(T)
    found = account(run, team, once)
    np.testing.assert_allclose(found.sensitivity, by_pinv(run, team, once), rtol=1e-8)
    assert not found.adaptive


@pytest.mark.parametrize("nesterov", [False, True])
def test_one_node_is_central_training(nesterov):
    """A single node is heard by nobody; one of a pair is, and DP-SGD with momentum composes k Gaussian mechanisms, or has the sensitivity of its strategy."""
    schedule = Schedule(np.geomspace(1, 0.1, T), 0.9, nesterov, 0.2)
    scheme = Participation.cyclic(2, 3)
    central = account(ScheduledProtocol(dp_dsgd(np.eye(1), T), schedule), LDP(), scheme)
    assert central.mu.tolist() == [0]  # nobody hears it
    pair = gossip_matrix(nx.path_graph(2))
    eavesdropped = account(ScheduledProtocol(dp_dsgd(pair, T), schedule), LDP(), scheme, sigma=2.0)
    np.testing.assert_allclose(eavesdropped.mu, np.sqrt(2) / 2, rtol=1e-12)
    assert eavesdropped.adaptive
    P = C.T @ C
    strategy = account(ScheduledProtocol(mf_dsgd(pair, T, C), schedule), LDP(), scheme)
    np.testing.assert_allclose(strategy.mu, worst_sensitivity(P, scheme), rtol=1e-9)


def test_promises_take_learning_rates_and_refuse_momentum():
    rates, scheme, updates = np.geomspace(1, 0.2, T), Participation.single(T), Lipschitz(1)
    run = ScheduledProtocol(dp_dsgd(W, T), Schedule(rates))
    found = account(run, PNDP([0]), scheme, updates=updates)
    assert found.adaptive and found.protocol == run.name
    np.testing.assert_array_equal(found.mu, account(dp_dsgd(W, T), PNDP([0]), scheme, updates=updates, rates=rates).mu)
    estimate = account(run, PNDP([0]), scheme)
    assert (found.mu >= estimate.mu * (1 - 1e-9)).all()
    for schedule in (Schedule(0.1, 0.5), Schedule(0.1, weight_decay=0.1)):
        for trust in (PNDP([0]), [LDP(), PNDP([0])]):
            with pytest.raises(ValueError, match="no bound is proved"): account(ScheduledProtocol(dp_dsgd(W, T), schedule), trust, scheme, updates=updates)
    with pytest.raises(ValueError, match="learning rates of its own"): account(run, PNDP([0]), scheme, updates=updates, rates=rates)


def test_every_route_that_reads_steps_refuses():
    run, insider, once = ScheduledProtocol(dp_dsgd(WS, T), Schedule(0.1, 0.9)), PNDP([0]), Participation.single(T)
    for backend in ("seen", "streaming", "exact"):
        with pytest.raises(NotStreamable): account_by(backend, run, insider, once)
    with pytest.raises(NotStreamable): state_space(Attack(run, insider))
    with pytest.raises(ValueError, match="of which this knows nothing"): paths_of(Attack(run, insider))
    with pytest.raises(ValueError, match="of which this knows nothing"): promise(Attack(run, insider), once, Lipschitz(1))
    with pytest.raises(ValueError, match="expected a Step"): OnlineAccountant(insider, range(N), T).feed(run)
    with pytest.raises(ValueError, match="sums need the weights"): account(run, SecureSum([0]), once)
    assert account(ScheduledProtocol(dp_dsgd(W, T), Schedule(0.1, 0.9)), SecureSum([0]), once).mu.max() == pytest.approx(
        account(dp_dsgd(W, T), SecureSum([0]), once).mu.max(), rel=1e-12)
    assert expected_work(run, insider, once)[0] == "whole view" and expected_work(run, LDP(), once)[0] == "closed form"
    silent = Protocol(None, [Step(True, Noise.none(N), [Round(W)])] * T)
    with pytest.raises(NotStreamable, match="cannot tell"): account(ScheduledProtocol(silent, Schedule(np.geomspace(1, 0.1, T))), insider, once)


def test_noise_of_messages_is_no_post_processing():
    """Zip-DL: what is added to messages does not pass through momentum, so neither theorem is applied."""
    run = ScheduledProtocol(zip_dl(W, 3, self_noise=True), Schedule(0.5, 0.9))
    for trust in (LDP(), PNDP([0]), SecLDP([0])): assert same_account(Attack(run, trust)).run is run
    halves = ScheduledProtocol(zip_dl(W, 3, self_noise=True), Schedule(0.5))
    assert same_account(Attack(halves, LDP())).run is halves.protocol


def test_several_exchanges_a_step():
    plain = muffliato(W, 4, 2)
    run = ScheduledProtocol(plain, Schedule(0.3, 0.9))
    for trust in (LDP(), PNDP([0]), SecLDP([2])):
        assert same_account(Attack(run, trust)).run is plain
        a, b = view(run, trust), view(plain, trust)
        stack = lambda v: np.hstack([v.A, v.B])  # noqa: E731
        both = np.vstack([stack(a), stack(b)])  # each is a function of the other: stacking adds nothing
        assert np.linalg.matrix_rank(both, tol=1e-9) == np.linalg.matrix_rank(stack(a), tol=1e-9) == np.linalg.matrix_rank(stack(b), tol=1e-9)


@pytest.mark.parametrize(("wrong", "says"), [
    (lambda: Schedule(0.0), "learning_rates"), (lambda: Schedule([0.1, np.nan]), "learning_rates"), (lambda: Schedule([0.1, -1.0]), "learning_rates"),
    (lambda: Schedule([[0.1]]), "learning_rates"), (lambda: Schedule("fast"), "learning_rates"), (lambda: Schedule(1e40), "learning_rates"),
    (lambda: Schedule([]), "learning_rates"),
    (lambda: Schedule(momentum=1.0), "momentum=1.0"), (lambda: Schedule(momentum=-0.1), "momentum=-0.1"), (lambda: Schedule(momentum="much"), "momentum"),
    (lambda: Schedule(weight_decay=1.0), "weight_decay=1.0"), (lambda: Schedule(10.0, weight_decay=0.1), "weight_decay=0.1"), (lambda: Schedule(nesterov=1), "nesterov"),
    (lambda: ScheduledProtocol(dp_dsgd(W, T), Schedule([0.1] * 5)), "learning_rates"), (lambda: ScheduledProtocol(dp_dsgd(W, T), {"momentum": 0.9}), "schedule"),
    (lambda: ScheduledProtocol("dp-dsgd", Schedule()), "protocol"), (lambda: ScheduledProtocol(ScheduledProtocol(dp_dsgd(W, T), Schedule()), Schedule()), "protocol"),
    (lambda: ScheduledProtocol(dp_dsgd(W, T, trains=0.5, seed=1), Schedule(momentum=0.5)), "does not train"),
])
def test_bad_input_by_name(wrong, says):
    with pytest.raises(ValueError, match=says): wrong()


def simulated(run, start=0, lr=None, **change):
    """A simulation of linear models and the records that it trains on."""
    import torch

    from mfdl.learning.data import Dataset, cut, round_robin
    from mfdl.learning.simulator import Simulation
    rng = np.random.default_rng(start)
    X, y = rng.normal(size=(33, 4)).astype(np.float32), rng.normal(size=33).astype(np.float32)
    batches = cut(round_robin(23, N), 3)
    make_model = lambda: torch.nn.Linear(4, 1)  # noqa: E731
    return Simulation(make_model, Dataset("toy", X[:23], y[:23], X[23:], y[23:]), batches, [run], lr, 0.7, **change), X.astype(float), y.astype(float), batches


def clipped(gradient):
    return gradient * min(1, 0.7 / np.linalg.norm(gradient))


SCHEDULES = {
    "rates": Schedule(np.geomspace(0.3, 0.05, T)), "heavy ball": Schedule(0.1, 0.8), "Nesterov": Schedule(0.1, 0.8, True),
    "decay": Schedule(0.2, weight_decay=0.5), "all": Schedule(np.geomspace(0.05, 0.2, T), 0.7, True, 0.9),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_simulator_is_plain_loops(name):
    torch = pytest.importorskip("torch")
    from mfdl.learning.methods.noise_supply import Run
    from mfdl.protocol.methods.streams import NodeNoise, deal_seeds
    schedule, protocol = SCHEDULES[name], mf_dsgd(W, T, C)
    run = Run("run", ScheduledProtocol(protocol, schedule), 0.3, 1)
    simulation, X, y, batches = simulated(run)
    start = simulation.theta[0, 0].double().numpy()
    simulation.run(progress=False)

    streams = [NodeNoise(protocol, u, seeds, 5) for u, seeds in deal_seeds(protocol, run.noise_secret).items()]
    theta, velocity = [start] * N, [np.zeros(5)] * N
    for t, rate in enumerate(schedule.rates(T)):
        for u in range(N):
            gradient = 0.3 * next(streams[u])[0]
            for i in batches.at(t)[u]:
                if i >= 0: gradient = gradient + clipped(2 * (X[i] @ theta[u][:-1] + theta[u][-1] - y[i]) * np.append(X[i], 1)) / batches.size
            velocity[u] = schedule.momentum * velocity[u] + gradient
            direction = gradient + schedule.momentum * velocity[u] if schedule.nesterov else velocity[u]
            theta[u] = theta[u] - rate * schedule.weight_decay * theta[u] - rate * direction
        theta = [sum(W[v, u] * theta[u] for u in range(N)) for v in range(N)]
    assert isinstance(simulation.theta, torch.Tensor) and np.abs(np.array(theta) - start).max() > 0.1
    np.testing.assert_allclose(simulation.theta[0].numpy(), theta, atol=2e-5)


def test_velocities_are_kept_and_belong_to_the_run(tmp_path):
    pytest.importorskip("torch")
    from mfdl.learning.methods.noise_supply import Run
    def fresh(schedule=SCHEDULES["all"]): return simulated(Run("run", ScheduledProtocol(dp_dsgd(W, T), schedule), 0.3, 1))[0]
    whole, half = fresh(), fresh()
    whole.run(progress=False)
    for _ in range(4): half.step()
    path = half.save(tmp_path / "run")
    again = fresh().resume(path)
    assert again.learner.velocity.abs().max() > 0
    again.run(progress=False)
    np.testing.assert_array_equal(again.theta.numpy(), whole.theta.numpy())
    with pytest.raises(ValueError, match="other runs, data or settings"): fresh(SCHEDULES["Nesterov"]).resume(path)
    assert fresh(Schedule(0.1, 0.8)).digest() != fresh(Schedule(0.1, 0.8, True)).digest() != fresh(Schedule(0.1)).digest()


def test_learning_rates_alone_are_what_lr_was():
    pytest.importorskip("torch")
    from mfdl.learning.methods.noise_supply import Run
    rates = np.geomspace(0.3, 0.05, T)
    scheduled = simulated(Run("run", ScheduledProtocol(dp_dsgd(W, T), Schedule(rates)), 0.3, 1))[0]
    given = simulated(Run("run", dp_dsgd(W, T), 0.3, 1), lr=rates)[0]
    assert scheduled.digest() == given.digest()
    for one in (scheduled, given): one.run(progress=False)
    np.testing.assert_array_equal(scheduled.theta.numpy(), given.theta.numpy())


def test_training_refuses_what_does_not_fit():
    pytest.importorskip("torch")
    from mfdl.evidence.methods.reconstruction import play
    from mfdl.learning.methods.noise_supply import Run, schedule_of
    carried, plain = ScheduledProtocol(dp_dsgd(W, T), Schedule(0.1, 0.8)), dp_dsgd(W, T)
    with pytest.raises(ValueError, match="expected None"): simulated(Run("run", carried, 0.3, 1), lr=0.1)
    with pytest.raises(ValueError, match="lr"): simulated(Run("run", plain, 0.3, 1))
    with pytest.raises(ValueError, match="lr"): simulated(Run("run", plain, 0.3, 1), lr=Schedule(0.1))
    with pytest.raises(ValueError, match="different schedules"): schedule_of([Run("a", carried), Run("b", plain)], None)
    with pytest.raises(ValueError, match="momentum 0.8"): play(simulated(Run("run", carried, 0.3, 1), record=True)[0])


def test_rates_matter_where_others_act_unseen():
    """A node trains and adds noise in one step, unseen, and mixes it in a later one: how well it hides then depends on the rates."""
    alone, late = np.array([[1, 0, 0], [0, 0.5, 0.5], [0, 0, 1]]), np.array([[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]])
    run = dp_dsgd([np.eye(3), alone, late], 3, trains=[[1], [2], []])
    scheme, rates = Participation.single(3), np.array([1, 100.0, 1])
    scheduled = ScheduledProtocol(run, Schedule(rates))
    true = account(scheduled, PNDP([0]), scheme)
    assert not true.adaptive and true.mu.max() > 1.1 * account(run, PNDP([0]), scheme).mu.max()  # the plain number would be too small
    with pytest.raises(ValueError, match="expected updates=Lipschitz"): account(run, PNDP([0]), scheme, rates=rates)
    for asked in ({"protocol": run, "rates": rates}, {"protocol": scheduled}):
        promised = account(trust=PNDP([0]), participation=scheme, updates=Lipschitz(1.0), **asked)
        assert promised.adaptive and (promised.mu >= true.mu * (1 - 1e-9)).all()
    same = account(run, PNDP([0]), scheme, rates=np.full(3, 0.1))  # rates that do not change are none
    np.testing.assert_allclose(same.mu, account(run, PNDP([0]), scheme).mu)
