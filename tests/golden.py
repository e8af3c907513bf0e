"""Three hundred random accounts, drawn from seeds alone: what `golden_accounts.json` was computed from, and what it is compared with."""
import json
from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np

from mfdl.accounting.account import account
from mfdl.language.algorithms import (
    anti_pgd,
    corn,
    decor,
    dp_dsgd,
    dsgd,
    mf_dsgd,
    muffliato,
    zip_dl,
)
from mfdl.language.attackers import LDP, PNDP, SecLDP
from mfdl.language.gossip import gossip_matrix
from mfdl.language.participation import Participation
from mfdl.language.streams import deal_seeds, noise_stream

FILE = Path(__file__).parent / "golden_accounts.json"
COUNT = 300


def network(rng, T):
    """A gossip matrix, symmetric, row-stochastic or directed, or one for each step; in each of them everybody is heard by somebody."""
    n = int(rng.integers(3, 8))
    graph = nx.connected_watts_strogatz_graph(n, 2 + (n > 4), 0.5, seed=int(rng.integers(1000)))
    kind = rng.choice(["metropolis", "uniform", "directed", "changing"])
    if kind in ("metropolis", "uniform"): return n, gossip_matrix(graph, str(kind))
    Ws = rng.random((T, n, n)) * (rng.random((T, n, n)) < 0.4) + np.eye(n) + 0.5 * np.eye(n)[:, np.roll(np.arange(n), 1)]
    Ws /= Ws.sum(axis=2, keepdims=True)
    return n, Ws[0] if kind == "directed" else list(Ws)


def algorithm(rng, n, W, T):
    """A run of T steps."""
    M = rng.normal(size=(n, n))
    covariance = M @ M.T + np.eye(n) if rng.random() < 0.7 else M[:, :2] @ M[:, :2].T
    C = np.tril(rng.uniform(-0.4, 0.4, (T, T)), -1) + np.diag(rng.uniform(0.5, 1.5, T))
    banded = np.eye(T) + 0.5 * np.eye(T, k=-1)
    half = list(range((n + 1) // 2)), list(range(n // 2, n))
    parts = [np.where(np.isin(np.arange(n), group)[:, None] & np.isin(np.arange(n), group), covariance, 0) for group in half]
    makers = [partial(dsgd), dp_dsgd, dp_dsgd, partial(muffliato, K=int(rng.integers(2, 4))), anti_pgd, partial(mf_dsgd, C=C), partial(mf_dsgd, C=banded),
              partial(mf_dsgd, C=[C * (1 + u / n) for u in range(n)]), partial(decor, sigma_local=float(rng.uniform(0.3, 1)), sigma_edge=float(rng.uniform(0, 2))),
              partial(corn, R=covariance), partial(corn, R=parts, groups=half), zip_dl, partial(zip_dl, self_noise=True)]
    return makers[rng.integers(len(makers))](W, T)


def case(seed):
    """One account: protocol, attacker, participation, backend."""
    rng = np.random.default_rng([2026, seed])
    k, b = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    T = k * b
    n, W = network(rng, T)
    run = algorithm(rng, n, W, T)
    some = rng.permutation(n)[:rng.integers(1, 3)].tolist()
    trust = [LDP(), PNDP(some), SecLDP(some), SecLDP(some, "received")][rng.integers(4)]
    scheme = [Participation.cyclic(k, b), Participation.single(T), Participation.every_step(T), Participation.min_sep(k, b, T)][rng.integers(4)]
    return run, trust, scheme, ["auto", "auto", "dense"][rng.integers(3)]


def result(seed):
    """What is kept of a case: mu of each victim, leaks, and the noise of a secret."""
    run, trust, scheme, backend = case(seed)
    report = account(run, trust, scheme, 1.0, "exact", backend)
    seeds = deal_seeds(run, 2026)
    noise = {str(u): float(sum(np.abs(part).sum() for part in noise_stream(run, u, seeds[u], 3))) for u in run.nodes}
    return {"name": run.name, "mu": [float(mu) for mu in report.mu], "leaks": sorted([int(step), int(node)] for _, step, node in report.leaks), "noise": noise}


if __name__ == "__main__": FILE.write_text(json.dumps([result(seed) for seed in range(COUNT)], indent=None) + "\n")
