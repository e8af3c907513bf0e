"""Nodes that keep several vectors: runs by chance against loops that know nothing of runs, algorithms against their formulas, and the promise of noisy gradients."""
import networkx as nx
import numpy as np
import pytest
from protocols import random_protocol
from torch import nn

from mfdl import (
    LDP,
    PNDP,
    Lipschitz,
    Noise,
    Participation,
    Protocol,
    Round,
    Run,
    Schedule,
    SecLDP,
    SecureSum,
    Simulation,
    Step,
    account,
    audit,
    check_protocol,
    cut,
    decor,
    dp_dsgd,
    fresh_noise,
    gossip_matrix,
    gradient_tracking,
    local_dsgd,
    mf_dsgd,
    muffliato,
    noisy_gradients_account,
    push_sum,
    round_robin,
    train,
    zip_dl,
)
from mfdl.learning.data import Dataset
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.protocol_files import read_protocol, write_protocol
from mfdl.protocol.methods.tables import Messages, Variables

GRAPHS = {"pair": nx.path_graph(2), "K3": nx.complete_graph(3), "star": nx.star_graph(3), "ring": nx.cycle_graph(5)}
SCHEME = Participation.cyclic(2, 2)


def with_rows(seed):
    "A run of nodes that keep several vectors, with signed weights and local maps by chance."
    rng = np.random.default_rng(seed)
    plain, rows = random_protocol(seed), int(rng.integers(2, 5))
    n = plain.n
    def sparse(*shape): return rng.normal(size=shape) * (rng.random(shape) < 0.5)
    def rounds():
        kinds = [lambda: Round(sparse(n * rows, n * rows), rows=rows), lambda: Round.local(sparse(rows, rows), n), lambda: Round.local(sparse(n, rows, rows), n),
                 lambda: Round.exchange(sparse(n, n), np.flatnonzero(rng.random(rows) < 0.6), rows)]
        return [kinds[rng.integers(4)]() for _ in range(rng.integers(0, 4))]
    steps = []
    for step in plain.steps:
        noise = Noise(step.noise.holders, step.noise.mix, step.noise.back, step.noise.basis)
        steps.append(Step(step.trains, noise, rounds()))
    steps[-1] = Step(steps[-1].trains, steps[-1].noise, [*steps[-1].rounds, Round(sparse(n * rows, n * rows), rows=rows)])
    return Protocol(None, steps), plain


def followed(run):
    "Messages (m, n T + q) with senders and receivers, by a loop over rounds; noise by the plain run."
    n, T, q, s = run.n, run.T, int(run.drawn[-1]), run.rows
    additions = run.mix.N.toarray()[run.mix.models]
    state, sent, whose = np.zeros((n, s, n * T + q)), [], []
    for t, step in enumerate(run.steps):
        for u in range(n):
            if step.trains[u]: state[u, -1, t * n + u] += 1
            state[u, -1, n * T:] += additions[t * n + u]
        for one in step.rounds:
            W = one.W.reshape(n, s, n, s)
            for u in range(n):
                for k in range(s):
                    heard = [v for v in range(n) if v != u and W[v, :, u, k].any()]
                    if heard: sent.append(state[u, k].copy()), whose.append((t, u, heard))
            state = np.einsum("vjuk,uka->vja", W, state)
    return np.array(sent).reshape(-1, n * T + q), whose


@pytest.mark.parametrize("seed", range(60))
def test_messages_noise_and_training_are_those_of_a_loop(seed):
    run, _ = with_rows(seed)
    sent, whose = followed(run)
    nT = run.n * run.T
    np.testing.assert_allclose(np.hstack([run.M_G, run.M_Z]), sent, atol=1e-9 * max(1, np.abs(sent).max(initial=0)))
    assert [*zip(run.messages.step, run.messages.sender, strict=True)] == [(t, u) for t, u, _ in whose]
    assert [np.flatnonzero(row).tolist() for row in np.asarray(run.messages.receivers)] == [heard for *_, heard in whose]
    assert sent[:, :nT].shape == run.M_G.shape and check_protocol(run) < 1e-4


@pytest.mark.parametrize("seed", range(60))
def test_accounts_are_those_of_the_messages(seed):
    """Single steps of one record: the covariance of what is seen says how much it tells, and of which no noise covers anything."""
    run, _ = with_rows(seed)
    if run.n < 2: return
    rng, (sent, whose) = np.random.default_rng(seed), followed(run)
    nodes = sorted(rng.permutation(run.n)[:rng.integers(0, run.n)].tolist())
    trust = (PNDP(nodes) if seed % 2 else SecLDP(nodes)) if nodes else LDP()
    seen = [bool(not nodes or (seed % 2 == 0) or set(heard) & set(nodes)) for *_, heard in whose]
    hidden = ~np.asarray(run.variables.holders)[:, nodes].any(axis=1)
    A, B = sent[seen][:, :run.n * run.T], sent[seen][:, run.n * run.T:][:, hidden]
    report = account(run, trust, Participation.single(run.T))
    U, sizes, _ = np.linalg.svd(B) if B.size else (np.eye(len(A)), np.zeros(0), None)
    rank = int((sizes > 1e-9 * max(1, sizes.max(initial=0))).sum())
    if rank and sizes[:rank].min() < 1e-4 * max(1.0, sizes.max()): return  # not clear in floating point
    others = ~np.isin(np.arange(run.n * run.T) % run.n, nodes)
    A = A * others
    for victim, mu in zip(report.victims, report.mu, strict=True):
        columns = A[:, victim::run.n]
        bare = np.abs(U[:, rank:].T @ columns).max(initial=0) > 1e-7
        expected = np.inf if bare else np.linalg.norm((U[:, :rank].T @ columns) / sizes[:rank, None], axis=0).max(initial=0)
        np.testing.assert_allclose(mu, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_nobody_learns_more_than_who_is_shown_all_noisy_gradients(seed):
    run, plain = with_rows(seed)
    if run.n < 2: return
    trusts = [LDP(), PNDP([0]), SecLDP([run.n - 1])]
    scheme = Participation.single(run.T)
    shown = noisy_gradients_account(run, trusts, scheme)
    assert np.array_equal(shown.mu, noisy_gradients_account(plain, trusts, scheme).mu) or any(step.shares for step in plain.distinct)
    found = account(run, trusts, scheme)
    assert (found.mu <= shown.mu * (1 + 1e-6) + 1e-9).all()
    assert (found.proved.mu <= shown.mu * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("make", [
    lambda W: dp_dsgd(W, 4), lambda W: muffliato(W, 4, 2), lambda W: decor(W, 4), lambda W: mf_dsgd(W, 4, np.tri(4)), lambda W: dp_dsgd(W, 4, trains=0.5),
    lambda W: local_dsgd(W, 4, 2)])
def test_a_second_row_where_gradients_enter_changes_nothing(make, name):
    plain = make(gossip_matrix(GRAPHS[name]))
    enter = Round.local([[1, 1], [0, 0]], plain.n)
    steps = [Step(step.trains, step.noise, [enter, *(Round.exchange(one.W, [0], 2) for one in step.rounds)]) for step in plain.steps]
    run = Protocol(None, steps)
    assert np.allclose(run.M_G, plain.M_G) and np.allclose(run.M_Z, plain.M_Z)
    for trust in LDP(), PNDP([0]), SecLDP([1]):
        one, other = (account(which, trust, SCHEME) for which in (run, plain))
        np.testing.assert_allclose(one.mu, other.mu, rtol=1e-6)
        assert Attack(run, trust).knows_models == Attack(plain, trust).knows_models
        np.testing.assert_allclose(one.proved.mu, other.proved.mu, rtol=1e-6)


def extra(W, T):
    "EXTRA, with independent noise."
    n = len(W)
    model, before, gap, last, new = range(5)  # x, (I + W) x / 2 of the last step, x + W x, g, g
    move, then = np.zeros((5, 5)), np.eye(5)
    move[model, [gap, before, new, last]] = 1, -1, 1, -1
    move[before, before] = move[gap, gap] = move[last, new] = 1
    move[before] = 0
    move[before, gap] = 0.5
    move[gap] = move[model]
    then[gap, [gap, model]] = 1, 1
    return Protocol(None, [Step(True, fresh_noise(np.eye(n)), [Round.local(move, n), Round.exchange(W, [gap], 5), Round.local(then, n)])] * T)


def test_extra_as_its_authors_write_it():
    W, T = gossip_matrix(nx.cycle_graph(5)), 6
    run, n = extra(W, T), 5
    G = np.random.default_rng(0).normal(size=(T, n, 2))
    xs = [np.zeros((n, 2)), G[0]]  # x1 = W x0 + g0, from zero
    for g, g0 in zip(G[1:], G, strict=False):
        xs.append((np.eye(n) + W) @ xs[-1] - (np.eye(n) + W) / 2 @ xs[-2] + g - g0)
    assert np.allclose(run.M_G @ G.reshape(-1, 2), np.concatenate(xs[1:])) and check_protocol(run) < 1e-5


@pytest.mark.parametrize("seed", range(8))
def test_push_sum_on_directed_networks_that_change(seed):
    rng, n, T = np.random.default_rng(seed), 4, 5
    A = [(rng.random((n, n)) < 0.5) * rng.random((n, n)) + np.eye(n) for _ in range(T)]
    A = [one / one.sum(axis=0) for one in A]
    run = push_sum(A, T, nodes="abcd")
    G = rng.normal(size=(T, n, 2))
    x, w, sent = np.zeros((n, 2)), np.ones(n), []
    for g, one in zip(G, A, strict=True):
        sends = [u for u in range(n) if any(one[v, u] > 0 for v in range(n) if v != u)]
        sent.append(((x + g) / w[:, None])[sends])
        x, w = one @ (x + g), one @ w
    assert np.allclose(run.M_G @ G.reshape(-1, 2), np.concatenate(sent)) and check_protocol(run) < 1e-5


X = np.random.default_rng(3).normal(size=(48, 3)).astype(np.float32)
DATA = (X, (X[:, 0] > 0).astype(int), X[:9], np.array([0, 1, 0, 1, 0, 1, 0, 1, 1]))
HOW = {"participation": Participation.cyclic(2, 3), "progress": False, "lr": 0.3, "secret": 5}


def model(): return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.mark.parametrize("against", [None, PNDP([0]), "2 insiders"])
@pytest.mark.parametrize("name", ["K3", "star", "ring"])
def test_a_budget_is_kept_by_all_noisy_gradients(name, against):
    W = gossip_matrix(GRAPHS[name])
    if against == "2 insiders" and len(W) < 4: against = "one insider"
    for run in gradient_tracking(W, 6), push_sum(W.T, 6):
        done = train(model, DATA, GRAPHS[name], 6.0, noise=run, against=against, **HOW)
        assert abs(done.report.worst.epsilon(1e-6) - 6) < 1e-6
        shown = noisy_gradients_account(run, LDP(), HOW["participation"], sigma=done.report.sigma)
        assert np.isclose(shown.worst.mu, done.report.worst.mu) and "every noisy gradient" in done.statement or against is None
        assert done.simulation.runs[0].scale > 0


def test_random_batches_are_paid_for_by_noisy_gradients_too():
    how = HOW | {"participation": Participation.poisson(0.2, 6)}
    one, other = (train(model, DATA, GRAPHS["ring"], 6.0, noise=run, **how) for run in (gradient_tracking(gossip_matrix(GRAPHS["ring"]), 6), "independent"))
    assert np.isclose(one.report.sigma, other.report.sigma)


def test_training_without_noise_is_gradient_tracking(tmp_path):
    W = gossip_matrix(GRAPHS["ring"])
    quiet = Protocol(None, [Step(True, Noise.none(5), step.rounds) for step in gradient_tracking(W, 6).steps])
    data, batches = Dataset("random", *DATA), cut(round_robin(48, 5), 3)
    def fresh(): return Simulation(model, data, batches, [Run("quiet", quiet), Run("again", quiet, seed=1)], 0.3, 0.5)
    simulation = fresh()
    x = simulation.models.double().numpy().copy()
    y = g = np.zeros_like(x)
    mix = lambda part: np.einsum("vu,urd->vrd", W, part)  # noqa: E731
    for t in range(6):
        new = simulation.learner.changes(t).double().numpy()
        y, g = y + new - g, new
        x, y = mix(x - 0.3 * y), mix(y)
        simulation.step()
        np.testing.assert_allclose(simulation.models.numpy(), x, atol=1e-5)
        if t == 3: simulation.save(tmp_path / "some")
    later = fresh().resume(tmp_path / "some")
    while later.t < 6: later.step()
    assert np.array_equal(later.models.numpy(), simulation.models.numpy())


@pytest.mark.parametrize("protect", ["record", "node"])
def test_an_audit_of_gradient_tracking_is_consistent_and_tight(protect):
    scheme = SCHEME if protect == "record" else Participation.every_step(4)
    run = gradient_tracking(gossip_matrix(GRAPHS["K3"]), 4)
    found = audit(run, LDP(), scheme, 1.0, victim=0, replays=1000, secret=1, protect=protect)
    assert not found.refuted and found.tight
    assert audit(run, LDP(), scheme, 1.0, victim=0, replays=1000, secret=1, protect=protect, claimed=0.4 * found.claimed).refuted


@pytest.mark.parametrize("seed", range(40))
def test_matrices_of_the_same_run_keep_what_is_proved(seed):
    run = random_protocol(seed)
    if run.n < 2: return
    same = Protocol.from_matrices(run.M_G, run.M_Z, run.messages, run.variables, run.nodes, run.T)
    for trust in LDP(), PNDP([0]), SecLDP([run.n - 1]):
        shown, found = (noisy_gradients_account(one, trust, Participation.single(run.T)).mu for one in (run, same))
        if run.M_G.any(axis=0)[run.trains.ravel()].all():  # or what never comes to anybody is not shown
            assert (found >= 0.999 * shown).all()  # never less than of the steps
        assert (found >= account(same, trust, Participation.single(run.T)).mu * (1 - 1e-6)).all()


@pytest.mark.parametrize("make", [lambda W: dp_dsgd(W, 4), lambda W: muffliato(W, 4, 2), lambda W: decor(W, 4), lambda W: mf_dsgd(W, 4, np.tri(4)),
                                  lambda W: gradient_tracking(W, 4)])
@pytest.mark.parametrize("name", GRAPHS)
def test_matrices_of_usual_runs_have_the_proof_of_their_steps(make, name):
    run = make(gossip_matrix(GRAPHS[name]))
    same = Protocol.from_matrices(run.M_G, run.M_Z, run.messages, run.variables, run.nodes, run.T)
    for trust in LDP(), PNDP([0]), SecLDP([1]):
        np.testing.assert_allclose(account(same, trust, SCHEME).proved.mu, noisy_gradients_account(run, trust, SCHEME).mu, rtol=1e-6)


def test_matrices_of_which_noise_is_no_part_of_gradients_have_no_proof():
    run = zip_dl(gossip_matrix(GRAPHS["ring"]), 4)
    early = dp_dsgd(gossip_matrix(GRAPHS["K3"]), 4)
    from_the_future = early.M_G @ np.roll(np.eye(12), -3, axis=0)  # the noise of the next step
    for one, M_Z in ((run, run.M_Z), (early, from_the_future)):
        same = Protocol.from_matrices(one.M_G, M_Z, one.messages, one.variables, one.nodes, one.T)
        assert np.isinf(noisy_gradients_account(same, LDP(), SCHEME).mu).all()


def of_matrices(M_G, M_Z, held, heard, T):
    "A run of two nodes whose messages all come from node 0."
    nodes = np.zeros(len(M_G), dtype=int)
    messages = Messages(np.full(len(M_G), T - 1), nodes, nodes, np.array([heard], dtype=bool), nodes)
    variables = Variables(np.zeros(len(held), dtype=int), np.array(held, dtype=bool), np.arange(len(held)))
    return Protocol.from_matrices(M_G, M_Z, messages, variables, None, T)


def test_a_gradient_that_is_in_no_message_may_be_in_a_model():
    """Node 0 takes a step of its own, and sends only the next gradient, which reacts to it: ten times as much noise there hides nothing of the first."""
    own = Round.local([[1, 1], [0, 0]], 2)
    steps = [Step([True, False], fresh_noise([[1.0], [0]]), [own]), Step([True, False], fresh_noise([[10.0], [0]]), [Round.exchange([[1, 0], [1, 1]], [1], 2), own])]
    run = Protocol(None, steps)
    same = Protocol.from_matrices(run.M_G, run.M_Z, run.messages, run.variables, None, 2)
    assert account(run, LDP(), Participation.single(2)).proved.mu.max() == pytest.approx(1.0)
    assert np.isinf(account(same, LDP(), Participation.single(2)).proved.mu).any()


@pytest.mark.parametrize("M_G, M_Z, held", [
    ([[1, 0]], [[1.0]], [[0, 1]]), ([[1, 0], [0, 1], [0, 0]], [[1e6, 0], [0, 1], [0, 1e-5]], np.eye(2)), ([[1, 0], [0, 1], [0, 0]], [[1, 0], [0, 1], [0, 1e-11]], np.eye(2)),
])
def test_matrices_prove_nothing_where_noise_is_held_by_others_or_seen_alone(M_G, M_Z, held):
    run = of_matrices(np.array(M_G, dtype=float), np.array(M_Z), held, [False, True], 1)
    for trust in LDP(), PNDP([1]):
        report = account(run, trust, Participation.single(1))
        assert (report.proved.mu >= report.mu).all() and np.isinf(report.proved.mu).any()


def test_a_report_on_matrices_does_not_say_who_adds_the_noise():
    report = account(of_matrices(np.array([[1.0, 0]]), np.array([[1.0]]), [[0, 1]], [False, True], 1), LDP(), Participation.single(1))
    assert "no insider learns more" not in repr(report) and "no insider learns more" in repr(account(dp_dsgd(np.full((2, 2), 0.5), 1), LDP(), Participation.single(1)))


def test_what_is_too_large_is_refused_before_any_work(monkeypatch):
    def work(*_): raise AssertionError("the view was made first")
    monkeypatch.setattr("mfdl.accounting.methods.ways.view_of", work)
    run = gradient_tracking(gossip_matrix(nx.cycle_graph(60)), 60)
    with pytest.raises(ValueError, match="noisy_gradients_account"): account(run, LDP(), Participation.every_step(60))
    assert noisy_gradients_account(run, LDP(), Participation.every_step(60)).worst.mu == pytest.approx(np.sqrt(60))


def test_runs_with_and_without_an_exchange_in_a_step_train_together():
    W = gossip_matrix(GRAPHS["ring"])
    step = gradient_tracking(W, 1).steps[0]
    quiet = Noise.none(5)
    runs = [Protocol(None, [Step(True, quiet, first), Step(True, quiet, step.rounds)]) for first in (step.rounds, [])]
    def models(some):
        simulation = Simulation(model, Dataset("random", *DATA), cut(round_robin(48, 5), 2), [Run(f"{k}", run) for k, run in enumerate(some)], 0.3, 0.5)
        for _ in range(2): simulation.step()
        return simulation.models
    both = models(runs)
    for k, run in enumerate(runs): assert np.allclose(both[:, k], models([run])[:, 0], atol=1e-6)


def test_a_run_begins_at_the_initial_weights_whatever_its_rows_do_with_them():
    """EXTRA without noise, from weights that are not zero: a row that is thrown away takes no weights with it."""
    W = gossip_matrix(nx.cycle_graph(5))
    run = Protocol(None, [Step(True, Noise.none(5), step.rounds) for step in extra(W, 6).steps])
    data, batches = Dataset("random", *DATA), cut(round_robin(48, 5), 3)
    simulation = Simulation(model, data, batches, [Run("quiet", run)], 0.3, 0.5)
    xs, G = [simulation.models.double().numpy()[:, 0]], []
    for t in range(6):
        G.append(-0.3 * simulation.learner.changes(t).double().numpy()[:, 0])
        xs.append(xs[0] + G[0] if t == 0 else (np.eye(5) + W) @ xs[-1] - (np.eye(5) + W) / 2 @ xs[-2] + G[t] - G[t - 1])
        simulation.step()
        np.testing.assert_allclose(simulation.models.numpy()[:, 0], xs[-1], atol=1e-5)


def test_files_keep_vectors(tmp_path):
    for run in gradient_tracking(gossip_matrix(GRAPHS["ring"]), 4), push_sum(np.full((3, 3), 1 / 3), 4):
        assert read_protocol(write_protocol(run, tmp_path / "a")) == run
        assert run.until(2).rows == run.rows and run.until(2).T == 2


RING = gossip_matrix(GRAPHS["ring"])
TRACKS = gradient_tracking(RING, 6)


@pytest.mark.parametrize("wrong, said", [
    (lambda: Round(RING, rows=2), "expected \\(n rows, n rows\\)"), (lambda: Round(RING, rows=0), "rows=0"), (lambda: Round(np.eye(4) * np.nan, rows=2), "finite"),
    (lambda: Round(np.eye(4), np.zeros((16, 1)), rows=2), "expected None, and noise that enters with gradients"),
    (lambda: Round.local(np.eye(2)[0], 3), "a row for each vector"), (lambda: Round.local(np.ones((2, 2, 2)), 3), "or 3 of them"),
    (lambda: Round.exchange(RING[0], [0], 2), "square"),
    (lambda: Round.exchange(RING, [True], 2), "from 0 to 1"), (lambda: Round.exchange(RING, 0, 2), "a list of vectors"),
    (lambda: Step(True, fresh_noise(np.eye(5)), [Round.local(np.eye(2), 5), Round.local(np.eye(3), 5)]), "the same number in all"),
    (lambda: account(TRACKS, SecureSum([0]), Participation.every_step(6)), "sums are of one vector"),
    (lambda: account(TRACKS, PNDP([0]), Participation.every_step(6), updates=Lipschitz(1.0)), "several vectors"),
    (lambda: push_sum(RING[0], 4), "A"), (lambda: push_sum([[0, 1.0], [0, 0]], 4), "sums to 0"), (lambda: push_sum([np.eye(2)] * 3, 4), "expected T=4"),
    (lambda: push_sum([np.eye(2), np.eye(3)], 2), "all of one size"), (lambda: push_sum([[0.5, 0.0], [0.5, 1.0]], 2000), "the weight of node 0 vanishes"),
    (lambda: push_sum([[1.0, 1.0], [0.0, 0.0]], 4), "the weight of node 1 vanishes"), (lambda: gradient_tracking(RING[:3], 4), "W"),
    *[(lambda change=change: train(**{"model": model, "data": DATA, "graph": GRAPHS["ring"], "epsilon": 6.0, "noise": TRACKS} | HOW | change), said) for change, said in [
        ({"lr": Schedule(0.1, momentum=0.9)}, "expected a number as lr"), ({"lr": np.linspace(1, 2, 6)}, "expected a number as lr"),
        ({"optimizer": "adam"}, "expected a number as lr"),
        ({"estimate": True, "against": PNDP([0])}, "nothing has to be estimated"), ({"feature_norm": 2.0, "model": lambda: nn.Linear(3, 2)}, "several|vectors")]],
])
def test_what_does_not_fit_is_refused_by_name(wrong, said):
    with pytest.raises(ValueError, match=said): wrong()
