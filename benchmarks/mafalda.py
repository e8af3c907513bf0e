"""CPU time of the optimal correlation against its peers, one thread each."""
import resource
import time

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from harness import ONE_THREAD, main

from mfdl.ground.figures import PALETTE, STYLE
from mfdl.language.gossip import gossip_matrix
from mfdl.language.participation import Participation
from mfdl.noise.gram import gram_factor, local_gram, modes
from mfdl.noise.newton import optimize
from mfdl.noise.strategies import best_toeplitz, toeplitz_harm

COLORS = {"mfdl": PALETTE["ours"], "jax-privacy": PALETTE["squared"], "cvxpy": PALETTE["ldp"], "opake": PALETTE["as_plotted"]}


def workload(name, T):
    if name == "prefix": return np.tri(T).T @ np.tri(T)
    graph = nx.florentine_families_graph() if name == "florentine" else nx.erdos_renyi_graph(100, 0.2, seed=1)
    return local_gram(gossip_matrix(graph), T)


def by_mfdl(H, k, b, gap):
    start = time.process_time()
    found = optimize(H, Participation.cyclic(k, b), gap)
    return {"objective": found.objective, "gap": found.gap, "cpu": time.process_time() - start, "steps": found.iterations}


def by_jax(H, k, b, gap):
    "Stops as soon as its loss is within the gap of the optimum, which it is told; compilation is not counted."
    import jax
    jax.config.update("jax_enable_x64", True)
    from jax_privacy.matrix_factorization import dense
    target, T, reached = optimize(H, Participation.cyclic(k, b), gap).lower_bound / (1 - gap), len(H), {}
    A = jax.numpy.asarray(gram_factor(H))
    dense.optimize(T, epochs=k, A=A, max_optimizer_steps=2)
    start = time.process_time()

    def watch(step):
        reached.update(objective=float(step.loss) * T, steps=int(step.step))
        return reached["objective"] <= target

    dense.optimize(T, epochs=k, A=A, callback=watch)
    return reached | {"gap": 1 - target * (1 - gap) / reached["objective"], "cpu": time.process_time() - start}


def by_cvxpy(H, k, b, gap):
    import cvxpy as cp
    T, participation = len(H), Participation.cyclic(k, b)
    X, F = cp.Variable((T, T), symmetric=True), gram_factor(H)
    zeros = [X[s, t] == 0 for pattern in participation.patterns() for i, s in enumerate(pattern) for t in pattern[:i]]
    sums = [cp.sum([X[s, s] for s in pattern]) <= 1 for pattern in participation.patterns()]
    problem = cp.Problem(cp.Minimize(cp.sum([cp.matrix_frac(F[i], X) for i in range(T)])), zeros + sums)
    start = time.process_time()
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return {"objective": float(problem.value), "cpu": time.process_time() - start, "steps": problem.solver_stats.num_iters, "gap": None}


def by_toeplitz(how, k, b):
    "Banded Toeplitz strategies with 16 bands for the prefix workload; both are judged by the same sum over steps, at k full columns."
    T, bands, one = k * b, 16, np.ones((1, 1))
    if how == "opake":
        import torch
        from opake.api.dpftrl.noise._band_mf import BandMfStrategy
        torch.set_num_threads(1)
        start = time.process_time()
        c = BandMfStrategy(bands=bands).coefficients(n_steps=T).numpy()
    else:
        start = time.process_time()
        c = best_toeplitz(one, Participation.cyclic(k, b), bands)
    cpu = time.process_time() - start
    return {"objective": toeplitz_harm(*modes(one), c, T)[0] * (c @ c) * k, "cpu": cpu}


def by_gram(name, T):
    n = int(name.split("=")[1])
    if name.startswith("directed"): W = np.random.default_rng(0).dirichlet(np.ones(n), size=n)
    else: W = gossip_matrix(nx.gnp_random_graph(n, 20 / n, seed=0), "uniform")
    local_gram(W[:2, :2] / W[:2, :2].sum(axis=1, keepdims=True), 2)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    local_gram(W, T)
    return {"cpu": time.process_time() - start, "GB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20}


def measure(how, name, k, b, gap):
    if how == "gram": measured = by_gram(name, k * b)
    elif name == "prefix, Toeplitz": measured = by_toeplitz(how, k, b)
    else: measured = {"mfdl": by_mfdl, "jax-privacy": by_jax, "cvxpy": by_cvxpy}[how](workload(name, k * b), k, b, gap)
    return {"T": k * b, **measured}


def cases(quick):  # how, workload, k, b, gap
    k, b = (20, 19) if not quick else (3, 4)
    for name in ("florentine", "erdos-renyi", "prefix"):
        for how in ("mfdl", "jax-privacy") if not quick else ("mfdl",): yield how, name, k, b, 1e-8
    for name in ("florentine", "prefix"):
        for how in ("mfdl", "cvxpy"): yield how, name, 3, 4, 1e-8
    if quick: return
    for name in ("florentine", "prefix"): yield "mfdl", name, 32, 32, 1e-6
    for k in (64, 256):
        for how in ("mfdl", "opake"): yield how, "prefix, Toeplitz", k, 16, 0
    yield "gram", "reversible n=919", 20, 19, 0
    yield "gram", "directed n=148", 20, 16, 0


def draw(table):
    shown = table[table.how != "gram"]
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(11, 3.4), layout="constrained")
        labels = [f"{name.replace(', ', chr(10))}\nT = {T}" for name, T in dict.fromkeys(zip(shown.workload, shown["T"], strict=True))]
        for i, (_, group) in enumerate(shown.groupby(["workload", "T"], sort=False)):
            for j, row in enumerate(group.itertuples()):
                ax.bar(i + 0.25 * (j - (len(group) - 1) / 2), row.cpu, 0.22, color=COLORS[row.how], label=row.how)
                ax.annotate(f"{row.cpu:.2g}", (i + 0.25 * (j - (len(group) - 1) / 2), row.cpu), ha="center", va="bottom", fontsize=8)
        handles, names = ax.get_legend_handles_labels()
        ax.legend(*zip(*dict(zip(names, zip(handles, names, strict=True), strict=True)).values(), strict=True))
        ax.set(yscale="log", ylabel="CPU seconds", title="To the same gap, Newton's method needs less time than its peers", xticks=range(len(labels)))
        ax.set_xticklabels(labels)
    return fig


def report(table):
    for (name, T), group in table[table.how != "gram"].groupby(["workload", "T"], sort=False):
        ours = group[group.how == "mfdl"].iloc[0]
        for row in group[group.how != "mfdl"].itertuples():
            yield f"- {name}, T={T}: {row.cpu / ours.cpu:.1f} times faster than {row.how}; objective relative to it: 1{ours.objective / row.objective - 1:+.1e}"


if __name__ == "__main__": main(__file__, __doc__, ("how", "workload", "k", "b", "gap"), cases, measure, draw, report, ONE_THREAD)
