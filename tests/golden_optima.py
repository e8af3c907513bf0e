"""What optimizers find on small networks: objectives, lower bounds, and the noise itself; workloads, sensitivities, and what mu is in other words."""
from functools import partial

import networkx as nx
import numpy as np
from golden_features import outcome
from inner import COVARIANCE_METHODS, STRATEGIES

from mfdl import (
    LDP,
    PNDP,
    GaussianDP,
    NotConverged,
    Objective,
    Participation,
    SecLDP,
    gossip_matrix,
    local_gram,
    optimize,
    optimize_covariance,
    optimize_local,
    optimize_space_time,
    sensitivity,
    strategy,
    which_noise,
    workload,
)
from mfdl.noise.methods.coalitions import optimize_coalition

K, B = 2, 3
T = K * B
SCHEMES = {"cyclic": Participation.cyclic(K, B), "min-sep": Participation.min_sep(K, B, T), "single": Participation.single(T), "every step": Participation.every_step(T)}
DIRECTED = np.random.default_rng(50).random((4, 4)) * np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 1, 1]])
NETWORKS = {
    "path": gossip_matrix(nx.path_graph(4)), "star": gossip_matrix(nx.star_graph(4)), "singular": np.full((4, 4), 0.25), "ring": gossip_matrix(nx.cycle_graph(4), "uniform"),
    "directed": DIRECTED / DIRECTED.sum(axis=1, keepdims=True),
}
OBJECTIVES = {
    "momentum": Objective(momentum=0.5, nesterov=True), "last": Objective(weights=np.arange(T) == T - 1), "averaged": Objective(averaged=True),
    "rates": Objective(learning_rates=np.linspace(1, 0.2, T), weight_decay=0.1, curvature=0.2),
}
GROUPS = [[0, 1, 2], [2, 3]]


def in_pattern(method, k):
    """The sensitivity of one pattern of participation, for information of mixed signs."""
    M = np.random.default_rng(k).normal(size=(k, k))
    return np.array([sensitivity(M @ M.T, method)])


def in_other_words(mu):
    """Epsilon, delta, Renyi divergence, advantage, trade-off, mu of a budget, and mu of three such runs."""
    one = GaussianDP(mu)
    numbers = (*map(one.epsilon, (1e-9, 1e-5, 0.1)), *map(one.delta, (0.1, 1.0, 10.0)), one.rdp(2.0), one.advantage(), *map(one.beta, (0.01, 0.5)))
    return [float(value) for value in (*numbers, GaussianDP.from_epsilon(mu, 1e-5).mu, one.compose(one, one).mu)]


def questions():
    """Questions to optimizers, by name."""
    W, H, cyclic = NETWORKS["path"], local_gram(NETWORKS["path"], T), SCHEMES["cyclic"]
    asked = {}
    for name in STRATEGIES:
        asked |= {f"strategy {name}, {scheme}": partial(strategy, name, one, W) for scheme, one in SCHEMES.items()}
        asked |= {f"strategy {name}, {network}": partial(strategy, name, cyclic, NETWORKS[network], bound=4.0) for network in ("star", "singular", "directed")}
        asked |= {f"strategy {name}, {objective}": partial(strategy, name, cyclic, W, objective=one) for objective, one in OBJECTIVES.items()}
        asked[f"strategy {name}, 2 bands"] = partial(strategy, name, cyclic, W, bands=2)
    asked["strategy mafalda, changing"] = partial(strategy, "mafalda", cyclic, [W, W @ W] * 3)
    asked["strategy bsr, without network"] = partial(strategy, "bsr", cyclic)
    for scheme, one in SCHEMES.items():
        asked |= {f"optimize {scheme}, {options}": partial(optimize, H, one, **options) for options in ({}, {"bands": 2}, {"equal_norm": True}, {"bound": 2.0})}
    for method in COVARIANCE_METHODS:
        asked |= {f"covariance {method}, {network}": partial(optimize_covariance, one, method=method) for network, one in NETWORKS.items()}
        asked[f"covariance {method}, horizon"] = partial(optimize_covariance, W, [1.0, 2.0, 0.5, 1.0], 3, method)
        asked[f"covariance {method}, objective"] = partial(optimize_covariance, W, method=method, objective=OBJECTIVES["rates"])
    for method in ("exact", "directions", "auto"):
        asked |= {f"space-time {method}, {network}": partial(optimize_space_time, one, cyclic, method=method) for network, one in NETWORKS.items()}
        asked |= {f"space-time {method}, {objective}": partial(optimize_space_time, W, cyclic, method=method, objective=one) for objective, one in OBJECTIVES.items()}
    asked["space-time groups"] = partial(optimize_space_time, W, cyclic, groups=[[0, 1], [2, 3]])
    asked["space-time changing"] = partial(optimize_space_time, [W, W @ W] * 3, cyclic)
    asked |= {f"coalition {q}, {network}": partial(optimize_coalition, NETWORKS[network], GROUPS, q) for q in (0, 1, 2) for network in ("path", "singular", "directed")}
    for name, trust in {"insiders": PNDP.each(range(4)), "one": [PNDP([0])], "all": [LDP(), SecLDP([1, 2])]}.items():
        asked |= {f"local {name}, {network}": partial(optimize_local, NETWORKS[network], cyclic, trust) for network in ("path", "singular", "directed")}
        asked[f"local {name}, alike"] = partial(optimize_local, W, cyclic, trust, 2.0, alike=True)
    asked |= {f"which_noise {network}": partial(which_noise, one, cyclic, 3.0, 1e-5) for network, one in NETWORKS.items()}
    asked |= {f"which_noise {scheme}": partial(which_noise, W, one, 3.0, 1e-5) for scheme, one in SCHEMES.items()}
    asked |= {f"local_gram {network}": partial(local_gram, one, 4, per_node=True) for network, one in NETWORKS.items()}
    asked |= {f"local_gram {objective}": partial(local_gram, W, T, objective=one) for objective, one in OBJECTIVES.items()}
    asked |= {f"sensitivity {method}, {k}": partial(in_pattern, method, k) for method in ("exact", "bound") for k in (1, 2, 5)}
    asked |= {f"mu={mu}": partial(in_other_words, mu) for mu in (0.01, 0.5, 1.0, 5.0, 30.0)}
    return asked | {f"workload {network}": partial(workload, one, 3) for network, one in NETWORKS.items()}


QUESTIONS = questions()
CASES = [name for first in range(10) for name in [*QUESTIONS][first::10]]  # so that a tenth has all kinds
SIGNS = np.cos(np.arange(1, 1001))


def weighed(array):
    """Two numbers that stand for an array: its norm, and its sum with fixed weights."""
    flat = np.asarray(array).ravel()
    return [float(np.linalg.norm(flat)), float(np.abs(flat @ np.resize(SIGNS, flat.size)))]


def told(found):
    """What is kept of an answer."""
    if isinstance(found, np.ndarray): return {"array": weighed(found)}
    if isinstance(found, list): return {"numbers": found}
    if hasattr(found, "to_dict"):
        numbers = found[["squared_error"]].drop("pairwise").sort_index()  # of a search, whose gap is tested elsewhere
        return {"table": {name: [None if value != value else float(value) for value in row] for name, row in zip(numbers.index, numbers.to_numpy(), strict=True)}}
    noise = next(getattr(found, name) for name in ("C", "R", "S") if hasattr(found, name))
    return {"objective": found.objective, "lower bound": found.lower_bound, "penalty": getattr(found, "trace_penalty", 0.0), "noise": weighed(noise)}


def tolerances(key):
    """How closely an answer comes out again where numbers are rounded in another order: noise less than its squared error, of which it is an optimum."""
    if key == "space-time directions, averaged": return {"objective": 2e-3, "noise": 2e-2}  # a search that ends early, as its lower bound tells
    if key.startswith("space-time directions"): return {"objective": 1e-7, "lower bound": 1e-7, "noise": 1e-6}
    if key.startswith("coalition"): return {"objective": 1e-6, "lower bound": 1e-6, "noise": np.inf}  # of a solver; several noises are best
    if key.startswith("strategy blt"): return {"objective": 1e-5, "noise": 1e-2}  # a local search, which ends where a step gains less than 1e-9
    return {"noise": 1e-6}


def result(key):
    """The answer, or the type of the error."""
    def ask():
        try: return told(QUESTIONS[key]())
        except NotConverged: return "NotConverged"
    found = outcome(ask)
    return {"error": found} if isinstance(found, str) else found
