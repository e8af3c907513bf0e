"""Time and peak memory of the routes of an account."""
import resource
import time
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from harness import main

from mfdl import account
from mfdl.accounting.filters import Filter
from mfdl.accounting.sensitivities import worst_sensitivities
from mfdl.accounting.state_space import state_space
from mfdl.accounting.streaming import gramian_rows, stream
from mfdl.ground.figures import PALETTE, STYLE
from mfdl.language.algorithms import dp_dsgd
from mfdl.language.attackers import PNDP, view
from mfdl.language.gossip import gossip_matrix
from mfdl.language.graphs import load_graph
from mfdl.language.participation import Participation

ROUTES = {"pseudo-inverse": "C0", "dense": "C1", "auto": "C2"}


def pseudo_inverse(algorithm, attackers, participation):
    "The textbook route: C = pinv(B) @ A for each attacker."
    for trust in attackers:
        seen, n = view(algorithm, trust), algorithm.n
        C = np.linalg.pinv(seen.B) @ seen.A
        blocks = C.reshape(len(C), algorithm.T, n).transpose(2, 1, 0)
        worst_sensitivities(blocks @ blocks.swapaxes(1, 2), participation)


def rows_only(algorithm, attackers, settled):
    "Information without certificates, by Gramians; `settled=False` makes every step look different, so that nothing is reused."
    space = state_space(algorithm, attackers[0])
    if not settled: space = replace(space, stages=tuple(replace(stage) for stage in space.stages))
    gramian_rows(Filter(space))


def measure(experiment, route, graph, T, attackers):
    "Run one case here: n, seconds and peak memory. `attackers` is the step through the list of nodes; 0 takes the first node only."
    network = load_graph(graph)
    nodes = list(network)
    algorithm, participation = dp_dsgd(gossip_matrix(network, "uniform"), T, nodes=nodes), Participation.every_step(T)
    trusts = PNDP.each(nodes[::attackers] if attackers else nodes[:1])
    account(dp_dsgd(np.ones((2, 2)) / 2, 1), PNDP([0]), Participation.single(1))  # loads what is imported late
    start = time.perf_counter()
    if route == "pseudo-inverse": pseudo_inverse(algorithm, trusts, participation)
    elif route == "stream": stream(state_space(algorithm, trusts[0]))
    elif route in ("unsettled", "settled"):
        for _ in range(1 if route == "unsettled" else 3):  # a settled one is short: the last of three
            start = time.perf_counter()
            rows_only(algorithm, trusts, route == "settled")
    else: account(algorithm, trusts, participation, backend=route)
    seconds = (time.perf_counter() - start) * (len(nodes) / len(trusts) if attackers else 1)
    which = {0: "one", 1: "all"}.get(attackers, f"every {attackers}th, scaled to all")
    return {"attackers": which, "n": len(nodes), "seconds": round(seconds, 3), "GB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)}


def cases(quick):  # experiment, route, graph, T, attackers
    facebook = "karate" if quick else "facebook-414"
    for T, step in ((10, 1), (50, 12)) if not quick else ((4, 1),):
        for route in ROUTES: yield "all attackers", route, facebook, T, 1 if route == "auto" else step
    for T in (10, 20, 50, 100, 200, 500, 1000) if not quick else (4, 8):
        for route, most in (("pseudo-inverse", 50), ("dense", 100), ("auto", 1000)):
            if T <= most: yield "growth over T", route, facebook, T, 0
    for n in (50, 100, 200, 400) if not quick else (10, 20):
        for route, most in (("pseudo-inverse", 200), ("dense", 200), ("auto", 400)):
            if n <= most: yield "growth over n", route, f"erdos-renyi:n={n},p={20 / n if n > 20 else 0.5:g}", 30 if not quick else 3, 0
    if not quick: yield "large", "auto", "facebook-0", 1000, 0
    for n in (100, 200, 400) if not quick else (10, 20):
        for route in ("unsettled", "settled"):
            for T in (256, 768) if not quick else (32, 64): yield "steps", route, f"erdos-renyi:n={n},p=0.2" if not quick else f"erdos-renyi:n={n},p=0.5", T, 0


def exponent(x, y): return np.polyfit(np.log(x), np.log(y), 1)[0]


def per_step(table):  # DataFrame: route, n, ms for each added step
    "What the second half of the steps costs, for each of them."
    steps = table[table.experiment == "steps"].pivot(index=["route", "n"], columns="T", values="seconds")
    short, long = steps.columns
    return ((steps[long] - steps[short]) / (long - short) * 1000).rename("ms").reset_index()


def plain_ticks(ax, ticks):
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()


def draw(table):
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, 4, figsize=(15, 3.4), layout="constrained")
        for ax, experiment, x, y in ((axes[0], "growth over T", "T", "seconds"), (axes[1], "growth over T", "T", "GB"), (axes[2], "growth over n", "n", "seconds")):
            for route, color in ROUTES.items():
                shown = table[(table.experiment == experiment) & (table.route == route)]
                ax.plot(shown[x], shown[y], "o-", color=color, label=route)
            ax.set(xscale="log", yscale="log", xlabel=x, ylabel={"seconds": "seconds", "GB": "peak memory, GB"}[y])
            plain_ticks(ax, sorted(table[table.experiment == experiment][x].unique()))
        axes[0].legend(title="backend")
        axes[0].set_title("Streaming takes more steps in less time")
        axes[1].set_title("and in a fraction of the memory")
        axes[2].set_title("More nodes cost it less, too")
        for (route, shown), color in zip(per_step(table).groupby("route"), (PALETTE["ours"], PALETTE["squared"]), strict=True):
            axes[3].plot(shown.n, shown.ms, "o-", color=color, label=f"{route}: n^{exponent(shown.n, np.maximum(shown.ms, 1e-3)):.1f}")
        axes[3].set(xscale="log", yscale="log", xlabel="n", ylabel="ms for one more step", title="Once the filter settles, a step is cheap")
        plain_ticks(axes[3], sorted(per_step(table).n.unique()))
        axes[3].legend()
    return fig


def report(table):
    "The ratios and the fitted exponents."
    for T, group in table[table.experiment == "all attackers"].groupby("T"):
        seconds = group.set_index("route").seconds
        faster = {route: f"{seconds[route] / seconds['auto']:.1f} times faster than {route}" for route in ("pseudo-inverse", "dense")}
        yield f"- all attackers, T={T}: auto is " + ", ".join(faster.values())
    steps = table[(table.experiment == "steps") & (table.n == table[table.experiment == "steps"].n.max())]
    for route, shown in steps.groupby("route"): yield f"- {route}, without certificates, n={shown.n.max()}: seconds grow like T^{exponent(shown['T'], shown.seconds):.2f}"
    for route, shown in per_step(table).groupby("route"):
        each = ", ".join(f"{ms:.2f} ms at n={n}" for n, ms in zip(shown.n, shown.ms, strict=True))
        yield f"- {route}: one more step costs n^{exponent(shown.n, np.maximum(shown.ms, 1e-3)):.2f}, {each}"


if __name__ == "__main__": main(__file__, __doc__, ("experiment", "route", "graph", "T", "attackers"), cases, measure, draw, report)
