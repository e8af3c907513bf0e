"""A run tells its features, and every route of an account lists those that it handles: pairs against exact fractions, routes against fields that nobody has explained."""
from dataclasses import field, fields
from functools import partial
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
import rationals
from scipy.sparse import csr_array

from mfdl import LDP, PNDP, Lipschitz, OnlineAccountant, Participation, Protocol, Round, Schedule, ScheduledProtocol, SecLDP, Step, account
from mfdl.accounting.account import account_by
from mfdl.accounting.gaussian_dp import GaussianDP
from mfdl.accounting.lemma14 import decompose, view
from mfdl.accounting.methods import accountant as online
from mfdl.accounting.methods import all_attackers as many
from mfdl.accounting.methods import eavesdropper as overheard
from mfdl.accounting.methods import exact, paths, schedules, signed, state_space
from mfdl.accounting.methods import first_pattern as pattern
from mfdl.accounting.methods import flow_plans as promises
from mfdl.accounting.methods import poisson as chance
from mfdl.accounting.methods import random_batches as bins
from mfdl.accounting.methods import sparse_view as seen
from mfdl.accounting.methods import truncated_poisson as truncated
from mfdl.accounting.methods.all_attackers import exposure
from mfdl.accounting.methods.poisson import step_by_step
from mfdl.accounting.methods.streaming import stream
from mfdl.accounting.sensitivity import worst_sensitivities
from mfdl.learning.data import cut
from mfdl.learning.methods.noise_supply import Run, check_run
from mfdl.learning.training import train
from mfdl.protocol import protocols as protocol
from mfdl.protocol.methods import steps
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.executable import with_full_matrices
from mfdl.protocol.methods.matrices_from_elsewhere import MatrixProtocol
from mfdl.protocol.methods.steps import FEATURES, VIEW, Noise, NoiseInTime, Route, refuse
from mfdl.protocol.methods.streams import NodeNoise, deal_seeds
from mfdl.protocol.methods.tables import Messages, Variables
from mfdl.tools import logs
from mfdl.tools.logs import read_log, write_log

OF_STEPS = ("sparse", "local", "rounds", "changing", "shares", "idle", "bare", "holders", "joint", "uneven", "memory", "back", "basis")
OF_RUNS = ("matrices", "rates", "momentum", "decay")
PAIRS = [pair for pair in combinations((*OF_STEPS, *OF_RUNS), 2) if sum(name in OF_RUNS for name in pair) < 2 or "matrices" not in pair]
PAIRS = [pair for pair in PAIRS if not {"sparse"} & set(pair) or not set(OF_RUNS) & set(pair)]  # matrices and schedules of sparse networks are refused
PAIRS = [pair for pair in PAIRS if pair not in (("bare", "back"), ("bare", "basis"))]  # who adds what others, or earlier steps, have drawn adds noise
PAIRS = [pair for pair in PAIRS if not ("idle" in pair and {"momentum", "decay"} & set(pair))]  # nothing says what they do


def eighths(rng, *shape): return rng.integers(1, 9, shape) / 8


def run_with(wanted, seed):
    """A small random run with some features, in multiples of 1/8, and with no others that these do not need."""
    rng = np.random.default_rng([13, seed, *sorted(map((*OF_STEPS, *OF_RUNS).index, wanted))])
    n, T = int(rng.integers(3, 5)), int(rng.integers(2, 5 if len(wanted) < 2 else 4))
    if {"memory", "back"} & set(wanted): T = max(T, 3)
    q, one = (2 * n if "shares" in wanted else n), np.eye(n)
    two = "joint" in wanted and seed % 2 == 0 and "basis" not in wanted  # of whom one adds what the other draws; else everybody does
    everybody = {"joint", "basis"} & set(wanted) and not two
    basis = (rng.integers(-4, 5, (n, n)) / 8 + 2 * one) if "basis" in wanted else None
    sizes = eighths(rng, n) if "uneven" in wanted else np.full(n, 0.5)
    if "bare" in wanted: sizes[-1 if two else rng.integers(n)] = 0

    def gossip():
        W = np.array([rng.multinomial(7, np.full(n, 1 / n)) for _ in range(n)]) + one
        return W / 8

    def exchange(W):
        if "shares" not in wanted: return Round(csr_array(W) if "sparse" in wanted else W)
        share = np.zeros((n, n, q))
        for u in range(n): share[:, u, n + u] = rng.integers(-4, 5, n) / 8
        return Round(W, share.reshape(n * n, q) * (W.reshape(-1, 1) > 0))

    def block(lag):
        weights = np.diag(sizes) * (1 if lag == 0 else (-1) ** seed * 0.5 * (1 + ("uneven" in wanted) * eighths(rng, n)))
        if two: weights[1, 0] = 0.25
        elif "joint" in wanted: weights = weights + rng.integers(0, 3, (n, n)) / 8 * (sizes > 0)[:, None]
        return np.hstack([weights, np.zeros((n, q - n))])

    W, trained = gossip(), np.ones(n, dtype=bool)
    if "idle" in wanted: trained[rng.integers(n)] = False
    if "bare" in wanted: trained[sizes == 0] = True
    if "idle" in wanted and trained.all(): trained[np.flatnonzero(sizes)[0]] = False
    steps = []
    for t in range(T):
        holders = np.vstack([one, one])[:q] > 0
        if everybody: holders[:] = True
        if "holders" in wanted or two: holders[0, 1] = True
        mix = np.hstack([block(1), block(0)] if "memory" in wanted and t else [block(0)])
        own = one + ("joint" in wanted and not two) * np.tril(rng.integers(0, 2, (n, n)) / 8, -1)
        earlier = np.diag(eighths(rng, n) if "uneven" in wanted else np.full(n, -0.25))
        only_now = t == 0 or ("joint" in wanted and not two)  # what others add in the same step
        back = (own if only_now else np.hstack([earlier, own])) if "back" in wanted else None
        W = gossip() if "changing" in wanted else W
        rounds = [exchange(W) for _ in range(1 + ("rounds" in wanted))]
        if "shares" in wanted and "sparse" in wanted: rounds.append(Round(csr_array(W)))
        if "local" in wanted and t % 2 == 0: rounds = []
        steps.append(Step(trained, Noise(holders, mix, back, basis), rounds))
    run = Protocol(None, steps)
    assert set(wanted) - set(OF_RUNS) <= run.features, (wanted, seed, run.features)
    return with_schedule(run, wanted, rng)


def with_schedule(run, wanted, rng):
    """The run, and the schedule that the features ask for; or its matrices alone."""
    if "matrices" in wanted: return Protocol.from_matrices(run.M_G, run.M_Z, run.messages, run.variables, None, run.T), run, None
    if not {"rates", "momentum", "decay"} & set(wanted): return run, run, None
    rates = 2.0 ** -np.arange(run.T) if "rates" in wanted else 0.5
    schedule = Schedule(rates, momentum=0.5 * ("momentum" in wanted), weight_decay=0.25 * ("decay" in wanted), nesterov=bool(rng.integers(2)))
    return ScheduledProtocol(run, schedule), run, schedule


class Truth:
    """What attackers learn, in exact fractions."""
    def __init__(self, plain, schedule, trust):
        nodes = list(trust.nodes)
        self.leaks, self.P = rationals.information(plain, nodes, type(trust) is SecLDP, schedule)
        self.victims = np.array([u for u in range(plain.n) if u not in nodes])

    def check_information(self, found, uncovered=None):
        """Of every victim, entry by entry, and which gradients leak."""
        if uncovered is None: assert not self.leaks[:, self.victims].any()
        else: np.testing.assert_array_equal(uncovered[:, self.victims], self.leaks[:, self.victims])
        for u in self.victims:
            kept = ~self.leaks[:, u]
            np.testing.assert_allclose(found.information(u)[np.ix_(kept, kept)], self.P[u][np.ix_(kept, kept)], rtol=1e-7, atol=1e-9)

    def sensitivities(self, scheme):
        """Of all victims, inf for a leak."""
        values = worst_sensitivities(self.P[self.victims], scheme, "exact")
        return np.where(self.leaks[:, self.victims].any(axis=0), np.inf, values)


ROUTES = {}


def route(listed):
    """Note down a check of a route: it is given a run that the route lists, and says whether the route took it."""
    def note(check):
        ROUTES[check.__name__] = listed, check
        return check
    return note


@route(overheard.CLOSED_FORM)
def closed_form(run, trust, truth, folder):
    if (found := overheard.independent(Attack(run, trust))) is None: return False
    truth.check_information(found)
    return True


@route(overheard.DIRECTIONS)
def directions(run, trust, truth, folder):
    if (found := overheard.overheard(Attack(run, trust))) is None: return False
    truth.check_information(found)
    return True


@route(overheard.ALIKE)
def alike(run, trust, truth, folder): return run.sparse and directions(run, trust, truth, folder)


@route(overheard.SINGLE_STEPS)
def single_steps(run, trust, truth, folder):
    if (found := overheard.single_steps(Attack(run, trust))) is None: return False
    truth.check_information(found)
    return True


@route(seen.SEEN)
def rows_that_are_seen(run, trust, truth, folder):
    try: found = seen.FromSeen(seen.see(Attack(run, trust)))
    except state_space.NotStreamable: return False
    truth.check_information(found)
    return True


@route(state_space.ONE_PASS)
def one_pass(run, trust, truth, folder):
    try: found = stream(state_space.state_space(Attack(run, trust)))
    except state_space.NotStreamable: return False
    if found.certain: truth.check_information(found, found.uncovered)
    return found.certain


@route(pattern.FIRST)
def first_pattern(run, trust, truth, folder):
    """Of every number of steps in a pattern, entry by entry."""
    try: space = state_space.state_space(Attack(run, trust))
    except state_space.NotStreamable: return False
    if not pattern.all_alike(space) or (what := pattern.as_seen(space)) is None: return False
    assert not truth.leaks[:, truth.victims].any()
    np.testing.assert_allclose(pattern.first_pattern(what, run.T, 1).P, truth.P[truth.victims], rtol=1e-7, atol=1e-9)
    for k in [k for k in range(1, run.T + 1) if run.T % k == 0]:
        scheme = Participation.cyclic(k, run.T // k)
        found = pattern.first_pattern(what, k, scheme.b)
        np.testing.assert_allclose(found.sensitivities(space.victims, scheme), truth.sensitivities(scheme), rtol=1e-7, atol=1e-9)
    return True


@route(VIEW)
def whole_view(run, trust, truth, folder):
    found = decompose(view(run, trust))
    if not found.clear or not found.full: return False
    truth.check_information(found, found.uncovered)
    return True


@route(exact.EXACT)
def without_rounding(run, trust, truth, folder):
    found = exact.exact(Attack(run, trust))
    truth.check_information(found, found.uncovered)
    return True


@route(paths.PLANS)
def plans(run, trust, truth, folder):
    """No promise is below the account for gradients that do not react, which are among those that do."""
    if not trust.nodes: return False
    for scheme in (Participation.single(run.T), Participation.every_step(run.T)):
        try: made = promises.promise(Attack(run, trust), scheme, Lipschitz(1.0))
        except ValueError: return False  # a memory that nodes share
        assert (made.sensitivity >= truth.sensitivities(scheme) * (1 - 1e-7) - 1e-9).all()
    return True


@route(signed.SIGNED)
def signed_bound(run, trust, truth, folder):
    if not trust.nodes: return False
    scheme = Participation.single(run.T)
    try: made = promises.promise(Attack(run, trust), scheme, Lipschitz(1.0, 0.5))
    except ValueError: return False
    assert (made.sensitivity >= truth.sensitivities(scheme) * (1 - 1e-7) - 1e-9).all()
    return made.multipliers is not None


@route(online._ONLINE)
def step_after_step(run, trust, truth, folder):
    try: report = OnlineAccountant(trust).feed(run)
    except state_space.NotStreamable: return False
    np.testing.assert_allclose(report.sensitivity, truth.sensitivities(Participation.every_step(run.T)), rtol=1e-6, atol=1e-9)
    return True


def same_chances(run, report, truth):
    """Whether each record's chances in a report on random batches are as long as the truth says."""
    for u, case in enumerate(report.case):
        (group,) = report.cases[case]  # of groups with one chance each, the one with the longest step
        np.testing.assert_allclose(sum(length**2 * count for length, count in group), np.diag(truth.P[u]).max(), rtol=1e-6)
    rows, which = chance._lengths(run, run.T)
    np.testing.assert_allclose(rows[which.ravel()]**2, np.diagonal(truth.P, axis1=1, axis2=2), rtol=1e-7, atol=1e-9)


def by_chance(scheme_of):
    def check(run, trust, truth, folder):
        if type(trust) is not LDP: return False
        try: report = account(run, trust, scheme_of(run.T))
        except ValueError: return False
        assert not truth.leaks.any()
        same_chances(run, report, truth)
        return True
    return check


ROUTES["Poisson"] = chance._BY_CHANCE, by_chance(lambda T: Participation.cyclic_poisson(1, T, 0.5))
ROUTES["cut"] = truncated._IF_CUT, by_chance(lambda T: Participation.truncated_poisson(0.5, T, 8, 6, T))


@route(chance._STEP_BY_STEP)
def new_in_every_step(run, trust, truth, folder):
    if type(trust) is not LDP or (found := step_by_step(run)) is None: return False
    truth.check_information(found)
    return True


@route(bins._BY_ASSIGNMENT)
def assigned(run, trust, truth, folder):
    if type(trust) is not LDP: return False
    try: report = account(run, trust, Participation.balls_in_bins(1, run.T))
    except ValueError: return False
    assert not truth.leaks.any()
    for u, case in enumerate(report.case):
        found = sum((gram * count for gram, count in zip(report.cases[case].grams, report.cases[case].counts, strict=True)), np.zeros((run.T, run.T)))
        np.testing.assert_allclose(found, truth.P[u], rtol=1e-7, atol=1e-9)
    return True


@route(Route("account", frozenset(FEATURES), ""))
def by_itself(run, trust, truth, folder):
    """The route that is chosen is right; what is refused is refused in words."""
    for scheme in (Participation.single(run.T), Participation.every_step(run.T)):
        try: report = account(run, trust, scheme)
        except state_space.Doubtful: return False  # of schedules, which are accounted for in floating point alone
        np.testing.assert_allclose(report.sensitivity, truth.sensitivities(scheme), rtol=1e-6, atol=1e-9)
    return True


@route(many._MANY)
def many_attackers(run, trust, truth, folder):
    scheme = Participation.single(run.T)
    if not trust.nodes: return False
    try: found = exposure(run, [trust], scheme)
    except state_space.Doubtful: return False
    np.testing.assert_allclose(found.table.largest.max(), truth.sensitivities(scheme).max(), rtol=1e-6, atol=1e-9)
    return True


@route(logs._LOGGED)
def log(run, trust, truth, folder):
    path, scheme = folder / f"{len([*folder.iterdir()])}.jsonl", Participation.single(run.T)
    try: write_log(run, scheme, 1.0, path)
    except ValueError: return False  # a seed at a node that does not add its noise
    report = read_log(path).account(trust)
    np.testing.assert_allclose(report.mu, truth.sensitivities(scheme), rtol=1e-6, atol=1e-9)
    return True


def hold(runs, folder):
    """Check all routes; for each of them, which features it took."""
    took = {name: set() for name in ROUTES}
    for wanted, seed in runs:
        run, plain, schedule = run_with(wanted, seed)
        for trust in (LDP(), PNDP([0]), SecLDP([1])):
            truth = Truth(plain, schedule, trust)
            for name, (listed, check) in ROUTES.items():
                if listed.fits(run) and check(run, trust, truth, folder): took[name] |= run.features
    return took


ALL = [(pair, seed) for seed in range(2) for pair in PAIRS]


def test_pairs_of_features(tmp_path):
    """A tenth of all runs, whichever route accepts them."""
    hold(ALL[::10], tmp_path)


@pytest.mark.nightly
def test_all_pairs_of_features(tmp_path):
    """Two hundred runs and more; and no route lists a feature that it never takes."""
    took = hold([*ALL, *(((name,), seed) for name in (*OF_STEPS, *OF_RUNS) for seed in range(2))], tmp_path)
    assert len(ALL) >= 200
    unused = {name: sorted(listed.handles - took[name] - {"schedule"}) for name, (listed, _) in ROUTES.items()}
    assert not any(unused.values()), unused


# Fields that nobody has explained.

TOLD = [steps._TOLD, protocol._TOLD, schedules._TOLD]
EXPLAINED = [(kind, names) for told in TOLD for kind, names in told.items()]


@pytest.mark.parametrize("kind, names", EXPLAINED, ids=lambda one: getattr(one, "__name__", ""))
def test_every_field_is_explained(kind, names):
    assert {one.name for one in fields(kind)} == set(names)


def new_field(monkeypatch, kind, name="extra"):
    """A field with the default 0, as if it had been added to a class."""
    one = field(default=0)
    one.name, one._field_type = name, Step.__dataclass_fields__["noise"]._field_type
    monkeypatch.setitem(kind.__dataclass_fields__, name, one)
    monkeypatch.setattr(kind, name, 0, raising=False)


W = np.array([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0, 0.5, 0.5]])


def parts(kind, sparse=False):
    """A run, and its first part of some class."""
    noise = NoiseInTime(3, [1.0]) if kind is NoiseInTime else Noise(np.eye(3), np.eye(3))
    one = Round(csr_array(W) if sparse else W)
    run = Protocol(None, [Step(True, noise, [one])])
    if kind in (MatrixProtocol, Messages, Variables): run = Protocol.from_matrices(run.M_G, run.M_Z, run.messages, run.variables, None, 1)
    if kind in (Schedule, ScheduledProtocol): run = ScheduledProtocol(run, Schedule())
    here = {Round: one, type(noise): noise, type(run): run}
    if kind is Step: here[Step] = run.steps[0]
    if kind is Schedule: here[Schedule] = run.schedule
    if kind in (Messages, Variables): here |= {Messages: run.messages, Variables: run.variables}
    return run, here[kind]


def uses(run, tmp_path):
    """All that computes a number about a run, or hands it on."""
    scheme, insider = Participation.single(run.T), PNDP([0])
    for trust in (LDP(), insider, SecLDP([0])):
        for backend in ("auto", "seen", "streaming", "dense", "exact"): yield partial(account_by, backend, run, trust, scheme)
    yield lambda: account(run, insider, scheme, updates=Lipschitz(1.0))
    yield lambda: promises.promise(Attack(run, insider), scheme, Lipschitz(1.0))
    yield lambda: exposure(run, [insider], scheme)
    yield lambda: OnlineAccountant(insider).feed(run)
    yield lambda: write_log(run, scheme, 1.0, tmp_path / "log")
    if isinstance(run, Protocol):
        yield lambda: deal_seeds(run, 1)
        yield lambda: next(NodeNoise(run, 0, {0: 1}, 2))
        yield lambda: run.until(1)
        yield lambda: check_run(Run("a", run), cut([[0], [1], [2]], 1), 1.0)
    for scheme in (Participation.poisson(0.5, 1), Participation.balls_in_bins(1, 1), Participation.truncated_poisson(0.5, 1, 8, 6)): yield partial(account, run, LDP(), scheme)


FULL_OR_SPARSE = [(kind, sparse) for kind, _ in EXPLAINED for sparse in (False, True) if not sparse or kind in (Round, Noise, NoiseInTime, Step, Protocol)]


@pytest.mark.parametrize("kind, sparse", FULL_OR_SPARSE, ids=lambda one: getattr(one, "__name__", one))
def test_a_field_that_nobody_has_explained_is_refused_by_all(kind, sparse, monkeypatch, tmp_path):
    new_field(monkeypatch, kind)
    run, part = parts(kind, sparse)
    plain = run.features
    assert f"{kind.__name__}.extra" not in plain
    run, part = parts(kind, sparse)
    object.__setattr__(part, "extra", 1)
    assert run.features == plain | {f"{kind.__name__}.extra"}
    assert not any(listed.fits(run) for listed, _ in ROUTES.values())
    for use in uses(run, tmp_path):
        with pytest.raises(ValueError) as refused: use()
        told = str(refused.value)
        assert "extra" in told or isinstance(run, MatrixProtocol) or "sparse" in told  # what never takes such a run says so first
    if sparse: return
    with pytest.raises(ValueError, match=f"{kind.__name__}.extra, and the whole view does not handle that; expected the default of"): view(run, LDP())


def test_a_class_of_ones_own_is_refused():
    class Louder(Noise):
        @property
        def q(self): return 3
    run = Protocol(None, [Step(True, Louder(np.eye(3), np.eye(3)), [Round(W)])])
    assert "Louder" in run.features
    with pytest.raises(ValueError, match="has Louder"): account(run, LDP(), Participation.single(1))


def test_what_is_refused_is_refused_in_words():
    run, _, _ = run_with(("basis", "shares"), 0)
    with pytest.raises(ValueError, match="noise that is recombined between nodes and noise on single messages, and by post does not handle that; expected a friend"):
        refuse(Route("by post", frozenset(FEATURES) - {"basis", "shares"}, "a friend"), run)
    with pytest.raises(ValueError, match="basos"): Route("by post", frozenset({"basos"}), "a friend")
    with pytest.raises(state_space.NotStreamable, match="in one pass"): account_by("streaming", run, LDP(), Participation.single(run.T))


# A basis beside sparse matrices, which was overlooked: what was promised was too small by its inverse.

EVERYBODY = np.ones((4, 4), dtype=bool)
RING = np.array([[0.5, 0.25, 0, 0.25], [0.25, 0.5, 0.25, 0], [0, 0.25, 0.5, 0.25], [0.25, 0, 0.25, 0.5]])


def recombined(basis, T, W=None):
    return Protocol(None, [Step(True, Noise(EVERYBODY, csr_array(np.eye(4)), basis=basis), [Round(csr_array(RING) if W is None else W)])] * T)


def test_sparse_matrices_and_a_basis():
    run = recombined(0.1 * np.eye(4), 3)
    assert account(run, LDP(), Participation.single(3)).worst.mu == pytest.approx(10.0, rel=1e-12)
    assert np.isinf(account(run, PNDP([0]), Participation.single(3)).mu).all()  # who holds all seeds
    with pytest.raises(state_space.NotStreamable, match="recombined"): account_by("seen", run, LDP(), Participation.single(3))
    with pytest.raises(state_space.NotStreamable, match="recombined"): OnlineAccountant(LDP()).feed(run)
    with pytest.raises(ValueError, match="no bound|does not handle"): account(run, PNDP([0]), Participation.single(3), updates=Lipschitz(1.0))


@pytest.mark.parametrize("scheme", [Participation.poisson(0.5, 3), Participation.balls_in_bins(1, 3), Participation.truncated_poisson(0.5, 3, 10, 8)], ids=str)
def test_sparse_matrices_and_a_basis_by_chance(scheme):
    sparse, full = (account(recombined(0.1 * np.eye(4), 3, W), LDP(), scheme, sigma=10.0) for W in (csr_array(RING), RING))
    assert 3 < sparse.epsilon(1e-5).max() == pytest.approx(full.epsilon(1e-5).max(), rel=1e-9)


def test_sparse_matrices_and_a_basis_in_a_large_network():
    """There is no room for tables, so the run is refused."""
    n = 2100
    ring = csr_array((np.full(3 * n, 1 / 3), (np.tile(np.arange(n), 3), np.concatenate([np.arange(n), np.roll(np.arange(n), 1), np.roll(np.arange(n), -1)]))), shape=(n, n))
    noise = Noise(np.ones((1, n), dtype=bool), csr_array(np.ones((n, 1))), basis=np.eye(n))
    run = Protocol(None, [Step(True, noise, [Round(ring)])] * 2)
    for trust in (LDP(), PNDP([0])):
        with pytest.raises(state_space.NotStreamable, match="recombined"): account(run, trust, Participation.single(2))
    with pytest.raises(ValueError, match="hears every model"): account(run, LDP(), Participation.poisson(0.5, 2))


def test_full_matrices_say_the_same():
    run, _, _ = run_with(("sparse", "memory"), 0)
    full = with_full_matrices(run)
    assert full.features == run.features - {"sparse"} and with_full_matrices(full) is full
    for t in range(run.T): np.testing.assert_array_equal(full.steps[t].rounds[0].W, run.steps[t].rounds[0].W.toarray())


def test_training_with_a_basis_keeps_its_budget():
    """The weakest direction has a fifth of the noise: sigma has to be five times as large."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(40, 3)), rng.normal(size=40), rng.normal(size=(8, 3)), rng.normal(size=8))
    run = recombined(np.diag([1, 0.2, 1, 1]), 3)
    done = train(lambda: torch.nn.Linear(3, 1), data, nx.cycle_graph(4), epsilon=3.0, delta=1e-5, noise=run, participation=Participation.cyclic(1, 3), secret=1, progress=False)
    leaks, P = rationals.information(run, [])
    assert not leaks.any()
    mu = np.sqrt(max(np.diag(its).max() for its in P)) / done.report.sigma
    assert mu * done.report.sigma == pytest.approx(5.0) and GaussianDP(mu).epsilon(1e-5) == pytest.approx(3.0, rel=1e-6)


def test_a_basis_is_part_of_how_large_noise_is():
    """Noise whose squares are no numbers is refused, also if a basis makes it so faint."""
    with pytest.raises(ValueError, match="below 1e-100"): account(recombined(1e-160 * np.eye(4), 3, RING), LDP(), Participation.single(3))
