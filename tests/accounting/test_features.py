"""A run tells its features, and every route of an account lists those that it handles: pairs of features against exact fractions, routes against fields that nobody has explained."""
from dataclasses import MISSING, fields
from functools import cache
from itertools import combinations

import numpy as np
import pytest
import rationals
from scipy.sparse import csr_array

from mfdl import LDP, PNDP, Lipschitz, OnlineAccountant, Participation, Protocol, Round, Schedule, ScheduledProtocol, SecLDP, Step, account
from mfdl.accounting import exact, online, overheard, paths, promises, seen, signed, state_space
from mfdl.accounting.chance import step_by_step
from mfdl.accounting.exposure import exposure
from mfdl.accounting.privacy import GaussianDP
from mfdl.accounting.sensitivities import worst_sensitivities
from mfdl.accounting.streaming import stream
from mfdl.language import attackers
from mfdl.language.factorization import decompose
from mfdl.language.protocol import MatrixProtocol, with_full_matrices
from mfdl.language.steps import FEATURES, Noise, NoiseInTime, Route, features_of, refuse
from mfdl.workshop.logs import read_log, write_log

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
    everybody = {"joint", "basis"} & set(wanted)
    basis = (rng.integers(-4, 5, (n, n)) / 8 + 2 * one) if "basis" in wanted else None
    sizes = eighths(rng, n) if "uneven" in wanted else np.full(n, 0.5)
    if "bare" in wanted: sizes[rng.integers(n)] = 0

    def gossip():
        W = np.array([rng.multinomial(7, np.full(n, 1 / n)) for _ in range(n)]) + one
        return W / 8

    def exchange(W):
        if "shares" not in wanted: return Round(csr_array(W) if "sparse" in wanted else W)
        share = np.zeros((n, n, q))
        for u in range(n): share[:, u, n + u] = rng.integers(-4, 5, n) / 8
        return Round(W, share.reshape(n * n, q) * (W.reshape(-1, 1) > 0))

    def block(lag):
        weights = np.diag(sizes) * (1 if lag == 0 else 0.5 * (1 + ("uneven" in wanted) * eighths(rng, n)))
        if "joint" in wanted: weights = weights + rng.integers(0, 3, (n, n)) / 8 * (sizes > 0)[:, None]
        return np.hstack([weights, np.zeros((n, q - n))])

    W, trained = gossip(), np.ones(n, dtype=bool)
    if "idle" in wanted: trained[rng.integers(n)] = False
    if "bare" in wanted: trained[sizes == 0] = True
    if "idle" in wanted and trained.all(): trained[np.flatnonzero(sizes)[0]] = False
    steps = []
    for t in range(T):
        holders = np.vstack([one, one])[:q] > 0
        if everybody: holders[:] = True
        if "holders" in wanted: holders[0, 1] = True
        mix = np.hstack([block(1), block(0)] if "memory" in wanted and t else [block(0)])
        own = one + ("joint" in wanted) * np.tril(rng.integers(0, 2, (n, n)) / 8, -1)
        earlier = np.diag(eighths(rng, n) if "uneven" in wanted else np.full(n, -0.25))
        back = (np.hstack([earlier, own]) if t else own) if "back" in wanted else None
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
    if (found := overheard.independent(run, trust)) is None: return False
    truth.check_information(found)
    return True


@route(overheard.DIRECTIONS)
def directions(run, trust, truth, folder):
    if (found := overheard.overheard(run, trust)) is None: return False
    truth.check_information(found)
    return True


@route(overheard.ALIKE)
def alike(run, trust, truth, folder): return run.sparse and directions(run, trust, truth, folder)


@route(seen.SEEN)
def rows_that_are_seen(run, trust, truth, folder):
    try: found = seen.FromSeen(seen.see(run, trust))
    except state_space.NotStreamable: return False
    truth.check_information(found)
    return True


@route(state_space.ONE_PASS)
def one_pass(run, trust, truth, folder):
    try: found = stream(state_space.state_space(run, trust))
    except state_space.NotStreamable: return False
    if found.certain: truth.check_information(found, found.uncovered)
    return found.certain


@route(attackers.VIEW)
def whole_view(run, trust, truth, folder):
    found = decompose(attackers.view(run, trust))
    if not found.clear or not found.full: return False
    truth.check_information(found, found.uncovered)
    return True


@route(exact.EXACT)
def without_rounding(run, trust, truth, folder):
    found = exact.exact(run, trust)
    truth.check_information(found, found.uncovered)
    return True


@route(paths.PLANS)
def plans(run, trust, truth, folder):
    """No promise is below the account for gradients that do not react, which are among those that do."""
    if not trust.nodes: return False
    for scheme in (Participation.single(run.T), Participation.every_step(run.T)):
        try: made = promises.promise(run, trust, scheme, Lipschitz(1.0))
        except ValueError: return False  # a memory that nodes share
        assert (made.sensitivity >= truth.sensitivities(scheme) * (1 - 1e-7) - 1e-9).all()
    return True


@route(signed.SIGNED)
def signed_bound(run, trust, truth, folder):
    if not trust.nodes: return False
    scheme = Participation.single(run.T)
    try: made = promises.promise(run, trust, scheme, Lipschitz(1.0, 0.5))
    except ValueError: return False
    assert (made.sensitivity >= truth.sensitivities(scheme) * (1 - 1e-7) - 1e-9).all()
    return made.multipliers is not None


@route(online._ONLINE)
def step_after_step(run, trust, truth, folder):
    try: report = OnlineAccountant(trust).feed(run)
    except state_space.NotStreamable: return False
    np.testing.assert_allclose(report.sensitivity, truth.sensitivities(Participation.every_step(run.T)), rtol=1e-6, atol=1e-9)
    return True


def same_chances(report, truth):
    """Whether each record's chances in a report by coins are as long as the truth says."""
    for u, case in enumerate(report.case):
        lengths = sorted(length**2 for group in report.cases[case] for length, count in group for _ in range(count))
        expected = sorted({*np.round(np.diag(truth.P[u])[np.diag(truth.P[u]) > 0], 12)})
        np.testing.assert_allclose(sorted({*np.round(lengths, 6)}), sorted({*np.round(expected, 6)}), rtol=1e-4)


def by_coins(scheme_of):
    def check(run, trust, truth, folder):
        if type(trust) is not LDP: return False
        try: report = account(run, trust, scheme_of(run.T))
        except ValueError: return False
        assert not truth.leaks.any()
        same_chances(report, truth)
        return True
    return check


chance, bins, truncated = (__import__(f"mfdl.accounting.{name}", fromlist=["_"]) for name in ("chance", "bins", "truncated"))
ROUTES["coins"] = chance._BY_CHANCE, by_coins(lambda T: Participation.cyclic_poisson(1, T, 0.5))
ROUTES["cut"] = truncated._IF_CUT, by_coins(lambda T: Participation.truncated_poisson(0.5, T, 8, 6, T))


@route(chance._STEP_BY_STEP)
def new_in_every_step(run, trust, truth, folder):
    if type(trust) is not LDP or (found := step_by_step(run)) is None: return False
    truth.check_information(found)
    return True


@route(bins._BY_LOT)
def lots(run, trust, truth, folder):
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


@route(exposure.__globals__["_MANY"])
def many_attackers(run, trust, truth, folder):
    scheme = Participation.single(run.T)
    if not trust.nodes: return False
    try: found = exposure(run, [trust], scheme)
    except state_space.Doubtful: return False
    np.testing.assert_allclose(found.worst.mu, truth.sensitivities(scheme).max(), rtol=1e-6, atol=1e-9)
    return True


@route(write_log.__globals__["_LOGGED"])
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
    """Two hundred runs; and no route lists a feature that it never takes."""
    took = hold([*ALL, *(((name,), seed) for name in (*OF_STEPS, *OF_RUNS) for seed in range(2))], tmp_path)
    assert len(ALL) >= 200
    idle = {name: sorted(listed.handles - took[name] - {"schedule"}) for name, (listed, _) in ROUTES.items()}
    assert not any(idle.values()), idle
