"""CPU time of the optimal correlation against its peers, one thread each."""
import resource
import time

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from harness import ONE_THREAD, main

from mfdl.base.figures import PALETTE, STYLE
from mfdl.noise.cholesky import gram_factor
from mfdl.noise.methods.gram_matrices import local_gram, modes
from mfdl.noise.methods.newton import optimize
from mfdl.noise.methods.strategies import best_toeplitz, toeplitz_error
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.participation import Participation

COLORS = {
    "mfdl": PALETTE["ours"], "jax-privacy": PALETTE["squared"],
    "cvxpy": PALETTE["ldp"], "opake": PALETTE["as_plotted"],
}
COLUMNS = ("how", "workload", "k", "b", "gap")
BANDS = 16  # of Toeplitz strategies


def workload(name, T):
    "The Gram matrix of a network, or of prefix sums."
    if name == "prefix": return np.tri(T).T @ np.tri(T)
    florentine = nx.florentine_families_graph()
    graph = florentine if name == "florentine" else nx.erdos_renyi_graph(100, 0.2, seed=1)
    return local_gram(gossip_matrix(graph), T)


def by_mfdl(H, k, b, gap):
    "Newton's method."
    start = time.process_time()
    found = optimize(H, Participation.cyclic(k, b), gap)
    cpu = time.process_time() - start
    steps = found.iterations
    return {"objective": found.objective, "gap": found.gap, "cpu": cpu, "steps": steps}


def by_jax(H, k, b, gap):
    "Stops within the gap of the optimum, which it is told; compilation is not counted."
    import jax
    jax.config.update("jax_enable_x64", True)
    from jax_privacy.matrix_factorization import dense
    T = len(H)
    bound = optimize(H, Participation.cyclic(k, b), gap).lower_bound
    reached = {}

    def watch(step):
        reached.update(objective=float(step.loss) * T, steps=int(step.step))
        return reached["objective"] <= bound / (1 - gap)

    A = jax.numpy.asarray(gram_factor(H))
    dense.optimize(T, epochs=k, A=A, max_optimizer_steps=2)
    start = time.process_time()
    dense.optimize(T, epochs=k, A=A, callback=watch)
    cpu = time.process_time() - start
    return reached | {"gap": 1 - bound / reached["objective"], "cpu": cpu}


def by_cvxpy(H, k, b, gap):
    "A general solver for semidefinite programs, to its own tolerance."
    import cvxpy as cp
    T = len(H)
    patterns = [list(pattern) for pattern in Participation.cyclic(k, b).patterns()]
    X = cp.Variable((T, T), symmetric=True)
    apart = [(s, t) for pattern in patterns for i, s in enumerate(pattern) for t in pattern[:i]]
    limits = [X[s, t] == 0 for s, t in apart]
    limits += [cp.sum([X[s, s] for s in pattern]) <= 1 for pattern in patterns]
    harm = cp.sum([cp.matrix_frac(row, X) for row in gram_factor(H)])
    problem = cp.Problem(cp.Minimize(harm), limits)
    start = time.process_time()
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    cpu = time.process_time() - start
    steps = problem.solver_stats.num_iters
    return {"objective": float(problem.value), "cpu": cpu, "steps": steps, "gap": None}


def coefficients_by_opake(T):
    "Those of BandMF, and the CPU time that they took."
    import torch
    from opake.api.dpftrl.noise._band_mf import BandMfStrategy
    torch.set_num_threads(1)
    start = time.process_time()
    found = BandMfStrategy(bands=BANDS).coefficients(n_steps=T).numpy()
    return found, time.process_time() - start


def coefficients_by_mfdl(k, b):
    "The best ones, and the CPU time that they took."
    start = time.process_time()
    found = best_toeplitz(np.ones((1, 1)), Participation.cyclic(k, b), BANDS)
    return found, time.process_time() - start


def by_toeplitz(how, k, b):
    """Banded Toeplitz strategies for the prefix workload.

    Both are judged by the same sum over steps, at k full columns.
    """
    T = k * b
    c, cpu = coefficients_by_opake(T) if how == "opake" else coefficients_by_mfdl(k, b)
    harm = toeplitz_error(*modes(np.ones((1, 1))), c, T)[0]
    return {"objective": harm * (c @ c) * k, "cpu": cpu}


def network(name):
    "A gossip matrix by name: 'reversible n=919', or 'directed n=148'."
    n = int(name.split("=")[1])
    if name.startswith("directed"): return np.random.default_rng(0).dirichlet(np.ones(n), size=n)
    return gossip_matrix(nx.gnp_random_graph(n, 20 / n, seed=0), "uniform")


def peak():
    "Memory of this process at its highest, in GB."
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def by_gram(name, T):
    "The Gram matrix of a large network alone."
    W = network(name)
    local_gram(W[:2, :2] / W[:2, :2].sum(axis=1, keepdims=True), 2)  # what is loaded late
    before = peak()
    start = time.process_time()
    local_gram(W, T)
    return {"cpu": time.process_time() - start, "GB": peak() - before}


OPTIMA = {"mfdl": by_mfdl, "jax-privacy": by_jax, "cvxpy": by_cvxpy}


def measure(how, name, k, b, gap):
    "One row."
    T = k * b
    if how == "gram": return {"T": T, **by_gram(name, T)}
    if name == "prefix, Toeplitz": return {"T": T, **by_toeplitz(how, k, b)}
    return {"T": T, **OPTIMA[how](workload(name, T), k, b, gap)}


def small_cases():
    "Those that cvxpy solves, too."
    for name in ("florentine", "prefix"):
        for how in ("mfdl", "cvxpy"):
            yield how, name, 3, 4, 1e-8


def cases(quick):
    "Rows of COLUMNS."
    workloads = ("florentine", "erdos-renyi", "prefix")
    if quick:
        yield from (("mfdl", name, 3, 4, 1e-8) for name in workloads)
        yield from small_cases()
        return
    for name in workloads:
        for how in ("mfdl", "jax-privacy"):
            yield how, name, 20, 19, 1e-8
    yield from small_cases()
    yield "mfdl", "florentine", 32, 32, 1e-6
    yield "mfdl", "prefix", 32, 32, 1e-6
    for k in (64, 256):
        for how in ("mfdl", "opake"):
            yield how, "prefix, Toeplitz", k, 16, 0
    yield "gram", "reversible n=919", 20, 19, 0
    yield "gram", "directed n=148", 20, 16, 0


def groups_of_bars(shown):
    "Workload and steps, with their rows."
    return shown.groupby(["workload", "T"], sort=False)


def bar(ax, place, row, named):
    "The time of a row, with its number above."
    label = None if row.how in named else row.how
    ax.bar(place, row.cpu, 0.22, color=COLORS[row.how], label=label)
    ax.annotate(f"{row.cpu:.2g}", (place, row.cpu), ha="center", va="bottom", fontsize=8)
    named.add(row.how)


def title(shown):
    "How much longer peers take, over all workloads that both solved."
    ours = shown[shown.how == "mfdl"].set_index(["workload", "T"]).cpu
    peers = shown[shown.how != "mfdl"].set_index(["workload", "T"]).cpu
    times = (peers / ours).dropna()
    return f"Peers take {times.min():.0f} to {times.max():.0f} times as long"


def draw(table):
    "CPU seconds of each workload."
    shown = table[table.how != "gram"]
    fig, ax = plt.subplots(figsize=(11, 3.4), layout="constrained")
    labels = []
    named = set()
    for i, ((name, T), group) in enumerate(groups_of_bars(shown)):
        labels.append(f"{name.replace(', ', chr(10))}\nT = {T}")
        for j, row in enumerate(group.itertuples()):
            bar(ax, i + 0.25 * (j - (len(group) - 1) / 2), row, named)
    ax.legend()
    ax.set(yscale="log", ylabel="CPU seconds")
    ax.set_title(title(shown))
    ax.set_xticks(range(len(labels)), labels)
    return fig


def styled(table):
    "The figure in the style of the book."
    with plt.rc_context(STYLE):
        return draw(table)


def report(table):
    "How many times faster than each peer, and whether optima agree."
    for (name, T), group in groups_of_bars(table[table.how != "gram"]):
        ours = group[group.how == "mfdl"].iloc[0]
        for row in group[group.how != "mfdl"].itertuples():
            apart = ours.objective / row.objective - 1
            yield (f"- {name}, T={T}: {row.cpu / ours.cpu:.1f} times faster than {row.how}; "
                   f"objective relative to it: 1{apart:+.1e}")


if __name__ == "__main__":
    main(__file__, __doc__, COLUMNS, cases, measure, styled, report, ONE_THREAD)
