"""What must not change while modules are moved: accounts, noise, optima and the numbers of experiments, each kept in a file beside this one.

The first three hundred accounts are here, drawn from seeds alone, and kept in `golden_accounts.json`. The others are in the modules golden_*. To write a file anew,
remove it, or the lines that are to change, and run `python tests/golden.py features noise optima experiments`: what is in a file stays, and what is missing is computed.
"""
import hashlib
import importlib
import json
import math
import sys
from functools import cache, partial
from pathlib import Path

import networkx as nx
import numpy as np
from inner import NodeNoise, deal_seeds

from mfdl import (
    LDP,
    PNDP,
    Participation,
    SecLDP,
    anti_pgd,
    corn,
    decor,
    dp_dsgd,
    dsgd,
    gossip_matrix,
    mf_dsgd,
    muffliato,
    zip_dl,
)
from mfdl.accounting.account import account_by

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
    report = account_by(backend, run, trust, scheme)
    seeds = deal_seeds(run, 2026)
    noise = {str(u): float(sum(np.abs(part).sum() for part in NodeNoise(run, u, seeds[u], 3))) for u in run.nodes}
    return {"name": run.name, "mu": [float(mu) for mu in report.mu], "leaks": sorted([int(step), int(node)] for _, step, node in report.leaks), "noise": noise}



NAMES = ("features", "noise", "optima", "experiments")


@cache
def kept(name):
    """What was written of one of NAMES: a dict of results."""
    file = FILE.with_name(f"golden_{name}.json")
    return json.loads(file.read_text()) if file.exists() else {}


def write(name):
    """Compute what is missing of one of NAMES, one line for each result, and save it after each of them."""
    module, found = importlib.import_module(f"golden_{name}"), {"arithmetic": arithmetic(), **kept(name)}
    for key in module.CASES:
        if key in found: continue
        found[key] = shortened(module.result(key))
        print(name, key, flush=True)
        lines = (f"{json.dumps(one)}: {json.dumps(found[one], separators=(',', ':'))}" for one in ("arithmetic", *module.CASES) if one in found)
        FILE.with_name(f"golden_{name}.json").write_text("{" + ",\n".join(lines) + "}\n")


def shortened(value):
    """The same with numbers of twelve digits."""
    if isinstance(value, dict): return {key: shortened(one) for key, one in value.items()}
    if isinstance(value, list | tuple): return [shortened(one) for one in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def changes(now, then, tolerances, where="", within=1e-9):
    """Where a result differs from what was kept, in numbers by more than a tolerance, 1e-9 if none is given for their key: relatively, and below 1 absolutely."""
    if isinstance(now, int | float) and isinstance(then, int | float):
        same = math.isclose(now, then, rel_tol=within, abs_tol=within) or math.isnan(now) and math.isnan(then)
        return [] if same else [f"{where}: {now!r}, and it was {then!r}"]
    if isinstance(now, dict) and isinstance(then, dict) and now.keys() == then.keys():
        return [one for key in now for one in changes(now[key], then[key], tolerances, f"{where} {key}", tolerances.get(key, within))]
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [one for i, pair in enumerate(zip(now, then, strict=True)) for one in changes(*pair, tolerances, f"{where}[{i}]", within)]
    return [] if now == then else [f"{where}: {now!r:.300}, and it was {then!r:.300}"]


@cache
def arithmetic():
    """A digest of how this machine rounds: where it is the same, results have the same bits."""
    import torch
    rng, sha = np.random.default_rng(0), hashlib.sha256()
    for size in (3, 5, 16):
        A = rng.normal(size=(size, size))
        products = A @ A, A.astype("f4") @ A.astype("f4"), np.linalg.norm(A), np.exp(A), np.log(np.abs(A))
        for part in (*products, np.linalg.cholesky(A @ A.T + np.eye(size)), np.linalg.eigvalsh(A + A.T)):
            sha.update(np.asarray(part).tobytes())
        single = torch.as_tensor(A, dtype=torch.float32)
        sha.update((single @ single).numpy().tobytes())
    return sha.hexdigest()[:16]


if __name__ == "__main__":
    for name in sys.argv[1:]: write(name)
