"""Time and gap of the best strengths of secrets of pairs, against a generic solver, one thread each."""
import itertools
import time

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from harness import ONE_THREAD, main, peak_memory

from mfdl.base.figures import PALETTE, STYLE
from mfdl.noise.methods.expected_error import expected_error
from mfdl.noise.methods.shared_secrets import GroupSecrets, search_strengths
from mfdl.noise.pairwise import optimize_pairwise
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.graphs import load_graph
from mfdl.protocol.participation import Participation

SCHEME = Participation.cyclic(5, 8)
COLORS = {"mfdl": PALETTE["ours"], "mfdl, whole": PALETTE["as_plotted"], "Clarabel": PALETTE["squared"]}


def network(graph, n):
    spec = f"erdos-renyi:n={n},p=0.5,seed=3" if graph == "random" else f"{graph}:n={n}"
    return 0.98 * gossip_matrix(load_graph(spec)) + 0.02 * np.eye(n)


def pairs_of(n):
    return [[u] for u in range(n)] + [list(pair) for pair in itertools.combinations(range(n), 2)]


def by_solver(M, curious):
    "The semidefinite program; without the time that CVXPY takes to write it down."
    n = len(M)
    E = np.eye(n)
    own = cp.Variable(n, nonneg=True)
    pairs = list(itertools.combinations(range(n), 2))
    secrets = [E[:, pair] @ cp.Variable((2, 2), PSD=True) @ E[:, pair].T for pair in map(list, pairs)]
    limits = []
    for coalition in itertools.combinations(range(n), curious):
        others = [u for u in range(n) if u not in coalition]
        left = cp.diag(own) + sum(part for part, pair in zip(secrets, pairs, strict=True) if not set(pair) & set(coalition))
        Y = cp.Variable((len(others), len(others)), symmetric=True)
        limits += [cp.bmat([[left[others][:, others], np.eye(len(others))], [np.eye(len(others)), Y]]) >> 0, cp.diag(Y) <= 1]
    problem = cp.Problem(cp.Minimize(cp.trace(M @ (cp.diag(own) + sum(secrets)))), limits)
    value = problem.solve(solver=cp.CLARABEL)
    return problem.solver_stats.solve_time, float(value)


def measure(how, graph, n, curious):
    W = network(graph, n)
    if how == "mfdl, whole":  # correlation in time as well, three rounds
        start = time.perf_counter()
        found = optimize_pairwise(W, SCHEME if n > 50 else Participation.cyclic(10, 32), curious)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "objective": found.objective, "gap": found.gap, "GB": peak_memory()}
    M = expected_error(W, SCHEME.T).weights(SCHEME.k * np.eye(SCHEME.T))
    start = time.perf_counter()
    ours = search_strengths(GroupSecrets(M, pairs_of(n), curious, np.ones(n)), 0.01, 8000)
    seconds, value = time.perf_counter() - start, ours.error
    if how == "Clarabel": seconds, value = by_solver(M, curious)
    return {"seconds": seconds, "objective": value, "gap": 1 - ours.bound / value, "GB": peak_memory()}


def cases(quick):  # how, graph, n, curious
    if quick:
        yield from (("mfdl", "random", 5, 1), ("Clarabel", "random", 5, 1), ("mfdl, whole", "complete", 60, 1))
        return
    for curious, most in ((1, 16), (2, 12)):
        for how in ("mfdl", "Clarabel"):
            yield from ((how, "random", n, curious) for n in range(6, most + 1, 2))
    yield from (("mfdl", "random", n, 1) for n in (30, 50))
    yield from (("mfdl, whole", "random", 50, 1), ("mfdl, whole", "complete", 1000, 2), ("mfdl, whole", "ring", 300, 1))


def draw(table):
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
        for (how, curious), shown in table[table.how != "mfdl, whole"].groupby(["how", "curious"], sort=False):
            ax.plot(shown.n, shown.seconds, "o-" if curious == 1 else "s--", color=COLORS[how], label=f"{how}, {curious} curious", ms=4)
        ax.set(xscale="log", yscale="log", xlabel="nodes, of which all pairs share secrets", ylabel="seconds")
        ax.set_title("Strengths of all secrets, for given correlation in time")
        ticks = sorted(table.n[table.n <= 50].unique())
        ax.set_xticks(ticks, [str(n) for n in ticks])
        ax.minorticks_off()
        ax.legend(fontsize="small")
    return fig


def report(table):
    yield "gap: of the objective from our lower bound. mfdl, whole: correlation in time as well, in 320 steps for 50 nodes and 40 for others.\n"
    ours = table[table.how == "mfdl"].set_index(["n", "curious"])
    for row in table[table.how == "Clarabel"].itertuples():
        one = ours.loc[row.n, row.curious]
        yield f"- n={row.n}, {row.curious} curious: {row.seconds / one.seconds:.1f} times faster than Clarabel, within {one.objective / row.objective - 1:.2%} of it"


if __name__ == "__main__":
    columns = ("how", "graph", "n", "curious")
    main(__file__, __doc__, columns, cases, measure, draw, report, ONE_THREAD)
