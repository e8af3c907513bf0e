"""Time and gap of the best covariance between nodes against generic solvers, one thread each."""
import time

import cvxpy as cp
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from harness import ONE_THREAD, main, peak_memory

from mfdl.base.figures import PALETTE, STYLE
from mfdl.noise.covariance import optimize_covariance
from mfdl.protocol.gossip import gossip_matrix

COLORS = {"mfdl": PALETTE["ours"], "Clarabel": PALETTE["ldp"], "SCS": PALETTE["squared"]}


def programs(W):
    """The three ways to write the problem.

    As C does, n inequalities of size n+1; one of size 2n; that one in R^-1, the
    fastest for SCS.
    """
    n = len(W)
    identity = np.eye(n)
    R, X, Y = (cp.Variable((n, n), symmetric=True) for _ in range(3))
    left = cp.Minimize(cp.trace(W.T @ W @ R))
    yield "n blocks", cp.Problem(left, [cp.matrix_frac(row, R) <= 1 for row in identity])
    block = cp.bmat([[R, identity], [identity, Y]])
    yield "one block", cp.Problem(left, [block >> 0, cp.diag(Y) <= 1])
    block = cp.bmat([[X, W.T], [W, Y]])
    yield "inverse", cp.Problem(cp.Minimize(cp.trace(Y)), [block >> 0, cp.diag(X) <= 1])


OPTIONS = {
    "Clarabel": {"tol_gap_rel": 1e-8, "tol_gap_abs": 1e-8},
    "SCS": {"eps": 1e-4, "max_iters": 10**6},
}


def by_mfdl(W):
    repeats = 20 if len(W) <= 100 else 1
    start = time.perf_counter()
    for _ in range(repeats):
        best = optimize_covariance(W)
    return (time.perf_counter() - start) / repeats, best.objective


def by_solver(W, how, form):  # without the time that CVXPY takes to write the problem down
    problem = dict(programs(W))[form]
    value = problem.solve(solver=how.upper(), **OPTIONS[how])
    return problem.solver_stats.solve_time, float(value)


def measure(how, form, n, p):
    W = gossip_matrix(nx.gnp_random_graph(n, p, seed=1))
    bound = optimize_covariance(W).lower_bound
    seconds, value = by_mfdl(W) if how == "mfdl" else by_solver(W, how, form)
    distance = abs(value / bound - 1)
    return {"seconds": seconds, "objective": value, "distance": distance, "GB": peak_memory()}


def cases(quick):  # how, form, n, p
    if quick:
        for how, form in (("mfdl", ""), ("Clarabel", "inverse"), ("SCS", "inverse")):
            yield how, form, 6, 0.5
        return
    for n in (10, 20, 30, 40, 50, 100, 200, 500, 1000):
        yield "mfdl", "", n, 0.5
    yield "mfdl", "", 1000, 0.02
    for form, most in (("n blocks", 20), ("one block", 40), ("inverse", 40)):
        yield from (("Clarabel", form, n, 0.5) for n in range(10, most + 1, 10))
    for form in ("one block", "inverse"):
        yield from (("SCS", form, n, 0.5) for n in (10, 20, 50, 100))


def title(table):
    "The largest case, and the largest of a generic solver."
    ends = table[table.p == 0.5].sort_values("n").groupby("how").last()
    ours = ends.loc["mfdl"]
    generic = ends.loc["Clarabel"]
    took = f"{ours.n} nodes in {ours.seconds:.2g} s"
    return f"{took}; Clarabel takes {generic.seconds:.2g} s for {generic.n}"


def draw(table):
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
        for (how, form), shown in table[table.p == 0.5].groupby(["how", "form"], sort=False):
            style = {"": "o-", "inverse": "o-", "one block": "s--", "n blocks": "^:"}[form]
            label = f"{how} {form}".strip()
            ax.plot(shown.n, shown.seconds, style, color=COLORS[how], label=label, ms=4)
        ax.set(xscale="log", yscale="log", xlabel="n", ylabel="seconds")
        ax.set_title(title(table))
        ticks = sorted(table.n.unique())
        ax.set_xticks(ticks, [str(n) for n in ticks])
        ax.minorticks_off()
        ax.legend(fontsize="small")
    return fig


def report(table):
    yield "distance: of the objective from our lower bound, relative. SCS stops at 1e-4.\n"
    ours = table[(table.how == "mfdl") & (table.p == 0.5)].set_index("n").seconds
    for (how, n), shown in table[table.how != "mfdl"].groupby(["how", "n"]):
        best = shown.loc[shown.seconds.idxmin()]
        times = f"{best.seconds / ours[n]:.0f} times faster"
        yield f"- n={n}: {times} than {how}'s best form ({best.form})"


if __name__ == "__main__":
    columns = ("how", "form", "n", "p")
    main(__file__, __doc__, columns, cases, measure, draw, report, ONE_THREAD)
