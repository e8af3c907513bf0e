"""Five hundred random accounts over all features of a run, all attackers, participations and options, each drawn from its number; some of them step by step, too."""
from itertools import product

import networkx as nx
import numpy as np
from scipy.sparse import csr_array

from mfdl import (
    LDP,
    PNDP,
    Lipschitz,
    Noise,
    OnlineAccountant,
    Participation,
    Protocol,
    Round,
    Schedule,
    ScheduledProtocol,
    SecLDP,
    SecureSum,
    Step,
    account,
    anti_pgd,
    corn,
    decor,
    dp_dsgd,
    dsgd,
    gossip_matrix,
    local_dsgd,
    mf_dsgd,
    muffliato,
    random_walk,
    zip_dl,
)
from mfdl.accounting.account import account_by

CASES = [*(str(number) for number in range(500)), *(f"{number}, online" for number in range(0, 500, 9)), *(f"{number}, rows" for number in range(0, 500, 25))]
PARTS = ("holders", "joint", "uneven", "memory", "back", "basis", "bare", "idle", "local", "rounds", "changing", "shares")


def a_network(rng, n):
    """A gossip matrix of n nodes in which everybody is heard: symmetric, row-stochastic or directed."""
    graph = nx.cycle_graph(n) if n > 2 else nx.path_graph(2)
    graph.add_edges_from((u, v) for u in range(n) for v in range(u) if rng.random() < 0.25)
    kind = int(rng.integers(3))
    if kind < 2: return gossip_matrix(graph, ("metropolis", "uniform")[kind])
    W = rng.random((n, n)) * (rng.random((n, n)) < 0.4) + np.eye(n) + 0.5 * np.eye(n)[:, np.roll(np.arange(n), 1)]
    return W / W.sum(axis=1, keepdims=True)


def an_algorithm(rng, W, T, is_sparse):
    """A run of T steps of an algorithm that has a name."""
    Ws = csr_array(W) if is_sparse else W
    n = len(W)
    M = rng.normal(size=(n, n))
    covariance = M @ M.T + np.eye(n) if rng.random() < 0.7 else M[:, :2] @ M[:, :2].T
    lower = np.tril(rng.uniform(-0.4, 0.4, (T, T)), -1) + np.diag(rng.uniform(0.5, 1.5, T))
    banded = np.eye(T) + 0.5 * np.eye(T, k=-1)
    groups = [list(range(n // 2 + 1)), list(range(n // 2, n))]
    inside = [np.outer(*2 * [np.isin(np.arange(n), group)]) for group in groups]
    K, every, seed = int(rng.integers(2, 4)), int(rng.integers(2, 4)), int(rng.integers(100))
    edge, p = float(rng.uniform(0, 2)), float(rng.uniform(0.2, 0.8))
    makers = (
        lambda: dsgd(Ws, T), lambda: dp_dsgd(Ws, T), lambda: dp_dsgd(Ws, T, trains=p, seed=seed), lambda: dp_dsgd(Ws, T, offline=p / 2, seed=seed),
        lambda: muffliato(Ws, T, K), lambda: anti_pgd(Ws, T), lambda: mf_dsgd(Ws, T, lower), lambda: mf_dsgd(Ws, T, banded),
        lambda: mf_dsgd(Ws, T, [lower * (1 + u / n) for u in range(n)]), lambda: decor(W, T, p, edge),
        lambda: decor(W, T, 1.0, edge, nx.path_graph(n) if n == 2 else nx.cycle_graph(n)),
        lambda: corn(W, T, covariance), lambda: corn(W, T, [np.where(one, covariance, 0.0) for one in inside], groups),
        lambda: zip_dl(W, T), lambda: zip_dl(W, T, self_noise=True), lambda: local_dsgd(Ws, T, every), lambda: random_walk(W, T, seed=seed),
    )
    return makers[rng.integers(len(makers))]()


def of_steps(rng, W, T, is_sparse, never=()):
    """A run without a name, of some of the PARTS."""
    n = len(W)
    on = dict(zip(PARTS, (rng.random(len(PARTS)) < 0.25).tolist(), strict=True))
    on |= dict.fromkeys(never, False)
    shared = 2 if on["holders"] or on["joint"] else 0
    q = n + shared
    holders = np.vstack([np.eye(n, dtype=bool), np.zeros((shared, n), dtype=bool)])
    holders[n:, :2] = True
    if on["basis"]: holders[:] = True
    basis = rng.normal(size=(n, n)) + 2 * np.eye(n) if on["basis"] else None
    own = np.eye(n, q)
    if on["joint"]: own[0, n:], own[1, n:] = 0.7, -0.7
    if on["uneven"]: own *= rng.uniform(0.5, 1.5, (n, 1))
    if on["bare"]: own[rng.integers(n)] = 0
    spread = (rng.random((n * n, q)) < 0.5) * np.tile(holders.T, (n, 1)) * (W.reshape(-1, 1) > 0)
    share = rng.normal(size=spread.shape) * spread if on["shares"] and not is_sparse else None
    steps = []
    for t in range(T):
        mix = np.hstack([-0.5 * own, own]) if on["memory"] and t else own
        back = np.hstack([0.4 * np.eye(n), np.eye(n)]) if on["back"] and t else None
        if on["changing"]: W = np.where(np.eye(n) > 0, W, 0.8 * W); W = W / W.sum(axis=1, keepdims=True)
        one = Round(csr_array(W)) if is_sparse else Round(W, share)
        count = int(rng.integers(0, 2)) if on["local"] else 1
        trains = rng.random(n) < 0.7 if on["idle"] else True
        steps.append(Step(trains, Noise(holders, mix, back, basis), [one] * count * (2 if on["rounds"] else 1)))
    return Protocol(None, steps, "steps")


def of_rows(rng, run):
    """The same noise and exchanges, at nodes that keep two or three vectors and mix them at home."""
    rows, home = int(rng.integers(2, 4)), rng.normal(size=(3, 3)).round(1)
    sent = np.flatnonzero(rng.random(rows) < 0.7)
    steps = [Step(step.trains, step.noise, [Round.local(home[:rows, :rows], run.n), *(Round.exchange(one.W, sent, rows) for one in step.rounds)]) for step in run.steps]
    return Protocol(None, steps, "rows")


def attackers(rng, n):
    """A trust model, or several."""
    some = rng.permutation(n)[:int(rng.integers(1, max(2, n - 1)))].tolist()
    kinds = (LDP(), LDP(), PNDP(some[:1]), PNDP(some), PNDP(some), SecLDP(some), SecLDP(some, "received"), SecureSum(some), PNDP.each(range(n)), [LDP(), PNDP(some)])
    return kinds[rng.integers(len(kinds))]


def in_turn(kind, k, b):
    """A participation in known steps."""
    T = k * b
    kinds = (Participation.cyclic(k, b), Participation.cyclic(k, b), Participation.single(T), Participation.every_step(T))
    return (*kinds, Participation.min_sep(k, b, T), Participation.min_sep(1 + k // 2, b, T))[kind]


def at_random(kind, k, b, q):
    """A participation at random."""
    poisson = Participation.poisson(q, k * b), Participation.cyclic_poisson(k, b, q), Participation.truncated_poisson(q, k * b, 6, 4)
    return (*poisson, Participation.balls_in_bins(k, b), Participation.balls_in_new_bins(k, b))[kind]


def number(key):
    """The number of a case."""
    return int(key.partition(",")[0])


def case(key):
    """What `account` is asked."""
    seed = number(key)
    rng = np.random.default_rng([2027, seed])
    k, b = [(1, 3), (3, 1), (2, 2), (2, 3), (3, 2), (1, 6), (3, 3), (1, 1)][rng.choice(8, p=[0.15, 0.15, 0.2, 0.15, 0.15, 0.08, 0.09, 0.03])]
    T, n = k * b, int(rng.integers(2, 6))
    W = a_network(rng, n)
    is_sparse, is_scheduled = (rng.random(2) < (0.2, 0.3)).tolist()
    by_chance = seed % 20 == 19
    if key.endswith("online"): return of_steps(rng, W, T, False, ("memory", "back", "basis", "shares")), attackers(rng, n), Participation.cyclic(k, b), {"sigma": 1.0}
    if key.endswith("rows"):
        run, who = of_rows(rng, of_steps(rng, W, T, False, ("shares",))), attackers(rng, n)
        return run, PNDP([0]) if isinstance(who, SecureSum) else who, Participation.cyclic(k, b), {"sigma": 1.0}
    run = of_steps(rng, W, T, is_sparse) if seed % 5 in (1, 3) else an_algorithm(rng, W, T, is_sparse)
    if seed % 20 == 0 and not run.sparse: run = Protocol.from_matrices(run.M_G, run.M_Z, run.messages, run.variables, run.nodes, T)
    elif is_scheduled:
        rates = rng.uniform(0.5, 1.5, T) if rng.random() < 0.6 else 0.5
        damped = run.trains.all() or rng.random() < 0.2  # else momentum is refused
        momentum, decay = (float(rng.choice([0, 0, 0.5, 0.9])), float(rng.choice([0, 0.1]))) if damped else (0.0, 0.0)
        run = ScheduledProtocol(run, Schedule(rates, momentum, bool(rng.integers(2)), decay))
    trust = LDP() if by_chance else attackers(rng, n)
    q = float(rng.uniform(0.1, 0.9))
    scheme = at_random(seed // 20 % 5, k, b, q) if by_chance else in_turn(rng.integers(6), k, b)
    constants = (Lipschitz(1), Lipschitz(float(rng.uniform(0.5, 1.5))), Lipschitz(rng.uniform(0.5, 1.5, n)), Lipschitz(1.0, 0.5))
    asked = {"sigma": float(rng.uniform(0.5, 2))}
    if by_chance: return run, trust, scheme, asked
    asked["method"] = ("exact", "exact", "bound")[rng.integers(3)]
    asked["backend"] = "auto" if run.sparse else (*["auto"] * 6, "dense", "streaming", "seen", "exact")[rng.integers(10)]
    if rng.random() < (0.15 if is_scheduled or seed % 20 == 0 else 0.4):
        asked["updates"] = constants[rng.integers(len(constants))]
        if rng.random() < 0.3 and not is_scheduled: asked["rates"] = rng.uniform(0.5, 1.5, T).round(3).tolist()
    return run, trust, scheme, asked


def units(seed):
    """A clip norm, a batch size and an adjacency."""
    return [*product((0.5, 1.0, 3.0), (1, 8), ("replace-one", "zero-out"))][seed % 12]


def outcome(ask):
    """What a question gives, or the type of the error."""
    try: return ask()
    except (ValueError, ArithmeticError, np.linalg.LinAlgError, NotImplementedError) as error: return type(error).__name__


def fed(run, trust, scheme, asked):
    """The report of an accountant that is told one step after the other."""
    accountant = OnlineAccountant(trust, run.nodes, scheme.b, **asked)
    for step in run.steps: accountant.feed(step)
    return accountant.report()


def findings(run, trust, scheme, asked, key):
    """The numbers of a report."""
    backend = asked.get("backend")
    options = {name: value for name, value in asked.items() if name != "backend"}
    if key.endswith("online"): report = fed(run, trust, scheme, asked)
    else: report = account(run, trust, scheme, **asked) if backend is None else account_by(backend, run, trust, scheme, **options)
    units_of = report.in_units(*units(number(key)))
    found = {"row": units_of.row_sensitivity, "sigma": outcome(lambda: units_of.calibrate(2.0, 1e-5).sigma)} if hasattr(report, "sensitivity") else {}
    if not found: return {"row": units_of.row_sensitivity, "epsilon": outcome(lambda: [float(value) for value in units_of.epsilon(1e-5)])}
    leaks = sorted([[*map(int, who)], int(step), int(node)] for who, step, node in report.leaks)
    shown = report.noisy_gradients
    return {"sensitivity": report.sensitivity.tolist(), "adaptive": report.adaptive, "noisy gradients": shown if shown is None else shown.tolist(),
            **({"leaks": leaks} if leaks else {}), **found}


def features(key):
    """The features of the run of a case; none if there is no run."""
    made = outcome(lambda: case(key))
    return frozenset() if isinstance(made, str) else made[0].features


def tolerances(key):
    """As everywhere."""
    return {}


def result(key):
    """A case in words, and its report or the type of the error."""
    made = outcome(lambda: case(key))
    if isinstance(made, str): return {"error": made}
    run, trust, scheme, asked = made
    found = outcome(lambda: findings(run, trust, scheme, asked, key))
    words = f"{run.name}; {trust}; {scheme}; {asked}"
    return {"case": words, **({"error": found} if isinstance(found, str) else found)}
