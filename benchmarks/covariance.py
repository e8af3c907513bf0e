"""Time and gap of the best covariance between nodes against generic solvers, one thread each."""
import resource
import time

import cvxpy as cp
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from harness import ONE_THREAD, main

from mfdl.ground.figures import PALETTE, STYLE
from mfdl.language.gossip import gossip_matrix
from mfdl.noise.covariance import optimize_covariance

COLORS = {"mfdl": PALETTE["ours"], "Clarabel": PALETTE["ldp"], "SCS": PALETTE["squared"]}


def programs(W):
    "The three ways to write the problem: as C does, n inequalities of size n+1; one of size 2n; and that one in R^-1, the best."
    n, M = len(W), W.T @ W
    R, X, Y = (cp.Variable((n, n), symmetric=True) for _ in range(3))
    yield "n blocks", cp.Problem(cp.Minimize(cp.trace(M @ R)), [cp.matrix_frac(np.eye(n)[i], R) <= 1 for i in range(n)])
    yield "one block", cp.Problem(cp.Minimize(cp.trace(M @ R)), [cp.bmat([[R, np.eye(n)], [np.eye(n), Y]]) >> 0, cp.diag(Y) <= 1])
    yield "inverse", cp.Problem(cp.Minimize(cp.trace(Y)), [cp.bmat([[X, W.T], [W, Y]]) >> 0, cp.diag(X) <= 1])


def measure(how, form, n, p):
    W = gossip_matrix(nx.gnp_random_graph(n, p, seed=1))
    best = optimize_covariance(W)
    start = time.perf_counter()
    if how == "mfdl":
        repeats = 20 if n <= 100 else 1
        for _ in range(repeats): best = optimize_covariance(W)
        seconds, value = (time.perf_counter() - start) / repeats, best.objective
    else:
        problem = dict(programs(W))[form]
        options = {"tol_gap_rel": 1e-8, "tol_gap_abs": 1e-8} if how == "Clarabel" else {"eps": 1e-4, "max_iters": 10**6}
        value = problem.solve(solver=how.upper(), **options)
        seconds = problem.solver_stats.solve_time  # without the time that CVXPY takes to write the problem down
    return {"seconds": seconds, "objective": float(value), "distance": abs(float(value) / best.lower_bound - 1), "GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def cases(quick):  # how, form, n, p
    if quick:
        yield from (("mfdl", "", 6, 0.5), ("Clarabel", "inverse", 6, 0.5), ("SCS", "inverse", 6, 0.5))
        return
    for n in (10, 20, 30, 40, 50, 100, 200, 500, 1000): yield "mfdl", "", n, 0.5
    yield "mfdl", "", 1000, 0.02
    for form, most in (("n blocks", 20), ("one block", 40), ("inverse", 40)):
        for n in (10, 20, 30, 40):
            if n <= most: yield "Clarabel", form, n, 0.5
    for form in ("one block", "inverse"):
        for n in (10, 20, 50, 100): yield "SCS", form, n, 0.5


def draw(table):
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
        for (how, form), shown in table[table.p == 0.5].groupby(["how", "form"], sort=False):
            style = {"": "o-", "inverse": "o-", "one block": "s--", "n blocks": "^:"}[form]
            ax.plot(shown.n, shown.seconds, style, color=COLORS[how], label=f"{how} {form}".strip(), ms=4)
        ax.set(xscale="log", yscale="log", xlabel="n", ylabel="seconds", title="A thousand nodes in the time that solvers take for a few dozen")
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
        yield f"- n={n}: {best.seconds / ours[n]:.0f} times faster than {how}'s best form ({best.form})"


if __name__ == "__main__": main(__file__, __doc__, ("how", "form", "n", "p"), cases, measure, draw, report, ONE_THREAD)
