"""Time and peak memory of the routes of an account."""
import resource
import time
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from harness import main

from mfdl import account
from mfdl.accounting.account import account_by
from mfdl.accounting.lemma14 import view
from mfdl.accounting.methods.filters import Filter
from mfdl.accounting.methods.state_space import state_space
from mfdl.accounting.methods.streaming import gramian_rows, stream
from mfdl.accounting.sensitivity import worst_sensitivities
from mfdl.base.figures import PALETTE, STYLE
from mfdl.protocol.algorithms import dp_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.graphs import load_graph
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import PNDP

ROUTES = {
    "pseudo-inverse": PALETTE["ldp"], "dense": PALETTE["squared"], "auto": PALETTE["ours"]}
COLUMNS = ("experiment", "route", "graph", "T", "attackers")
UNITS = {"seconds": "seconds", "GB": "peak memory, GB"}
NOUNS = {"seconds": "time", "GB": "memory"}


def pseudo_inverse(algorithm, attackers, participation):
    "The textbook route: C = pinv(B) @ A for each attacker."
    for trust in attackers:
        seen = view(algorithm, trust)
        C = np.linalg.pinv(seen.B) @ seen.A
        blocks = C.reshape(len(C), algorithm.T, algorithm.n).transpose(2, 1, 0)
        worst_sensitivities(blocks @ blocks.swapaxes(1, 2), participation)


def rows_only(algorithm, attackers, settled):
    """Information without certificates, by Gramians.

    Where not `settled`, every step looks different, so that nothing is reused.
    """
    space = state_space(Attack(algorithm, attackers[0]))
    if not settled:
        stages = tuple(replace(stage) for stage in space.stages)
        space = replace(space, stages=stages)
    gramian_rows(Filter(space))


def take(route, algorithm, trusts, participation):
    "Account by one route."
    if route == "pseudo-inverse":
        pseudo_inverse(algorithm, trusts, participation)
    elif route == "stream":
        stream(state_space(Attack(algorithm, trusts[0])))
    elif route in ("unsettled", "settled"):
        rows_only(algorithm, trusts, route == "settled")
    else:
        account_by(route, algorithm, trusts, participation)


def seconds_of(*case):
    "Wall time of one account; a settled one is short, and the last of three counts."
    for _ in range(3 if case[0] == "settled" else 1):
        start = time.perf_counter()
        take(*case)
    return time.perf_counter() - start


def load_late_imports():
    "An account of two nodes, so that nothing is loaded while time is taken."
    account(dp_dsgd(np.ones((2, 2)) / 2, 1), PNDP([0]), Participation.single(1))


def measure(experiment, route, graph, T, attackers):
    """Nodes, seconds and peak memory.

    `attackers` is the step through the list of nodes; 0 takes the first node only.
    """
    network = load_graph(graph)
    nodes = list(network)
    algorithm = dp_dsgd(gossip_matrix(network, "uniform"), T, nodes=nodes)
    trusts = PNDP.each(nodes[::attackers] if attackers else nodes[:1])
    load_late_imports()
    seconds = seconds_of(route, algorithm, trusts, Participation.every_step(T))
    if attackers:
        seconds *= len(nodes) / len(trusts)
    which = {0: "one", 1: "all"}.get(attackers, f"every {attackers}th, scaled to all")
    GB = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"attackers": which, "n": len(nodes), "seconds": round(seconds, 3), "GB": round(GB, 3)}


def within(limits, size):
    "The routes that take a size, of pairs of a route and its largest."
    return [route for route, most in limits if size <= most]


def all_attackers(graph, sizes):
    "Every node, one after the other; the slow routes take some of them."
    for T, step in sizes:
        for route in ROUTES:
            yield "all attackers", route, graph, T, 1 if route == "auto" else step


def growth_over_T(graph, Ts):
    "One attacker, and longer and longer runs."
    for T in Ts:
        for route in within((("pseudo-inverse", 50), ("dense", 100), ("auto", 1000)), T):
            yield "growth over T", route, graph, T, 0


def growth_over_n(ns, T):
    "One attacker in larger and larger networks."
    for n in ns:
        p = 20 / n if n > 20 else 0.5
        for route in within((("pseudo-inverse", 200), ("dense", 200), ("auto", 400)), n):
            yield "growth over n", route, f"erdos-renyi:n={n},p={p:g}", T, 0


def steps(ns, p, Ts):
    "What one more step costs."
    for n in ns:
        for route in ("unsettled", "settled"):
            for T in Ts:
                yield "steps", route, f"erdos-renyi:n={n},p={p:g}", T, 0


def cases(quick):
    "Rows of COLUMNS."
    if quick:
        yield from all_attackers("karate", [(4, 1)])
        yield from growth_over_T("karate", (4, 8))
        yield from growth_over_n((10, 20), 3)
        yield from steps((10, 20), 0.5, (32, 64))
        return
    yield from all_attackers("facebook-414", [(10, 1), (50, 12)])
    yield from growth_over_T("facebook-414", (10, 20, 50, 100, 200, 500, 1000))
    yield from growth_over_n((50, 100, 200, 400), 30)
    yield "large", "auto", "facebook-0", 1000, 0
    yield from steps((100, 200, 400), 0.2, (256, 768))


def exponent(x, y):
    "Of the power law through some points."
    return np.polyfit(np.log(x), np.log(np.maximum(y, 1e-3)), 1)[0]


def per_step(table):
    "Milliseconds for each step of the second half of a run, by route and n."
    measured = table[table.experiment == "steps"]
    wide = measured.pivot(index=["route", "n"], columns="T", values="seconds")
    short, long = wide.columns
    return ((wide[long] - wide[short]) / (long - short) * 1000).rename("ms").reset_index()


def plain_ticks(ax, ticks):
    "Numbers as they are, in place of powers of ten."
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()


def draw_growth(ax, table, experiment, x, y):
    "Seconds or memory of each route."
    measured = table[table.experiment == experiment]
    for route, color in ROUTES.items():
        shown = measured[measured.route == route]
        ax.plot(shown[x], shown[y], "o-", color=color, label=route)
    ax.set(xscale="log", yscale="log", xlabel=x, ylabel=UNITS[y])
    plain_ticks(ax, sorted(measured[x].unique()))


def share(table, experiment, x, y):
    "Streaming against the dense route, in the largest case of both."
    both = table[table.experiment == experiment].pivot(index=x, columns="route", values=y)
    both = both.dropna(subset=["auto", "dense"])
    left = both.auto.iloc[-1] / both.dense.iloc[-1]
    return f"{x} = {both.index[-1]}: streaming takes {left:.0%} of the {NOUNS[y]}"


def draw_steps(ax, table):
    "What one more step costs, over n."
    costs = per_step(table)
    colors = {"settled": PALETTE["ours"], "unsettled": PALETTE["squared"]}
    for route, shown in costs.groupby("route"):
        label = f"{route}: n^{exponent(shown.n, shown.ms):.1f}"
        ax.plot(shown.n, shown.ms, "o-", color=colors[route], label=label)
    ax.set(xscale="log", yscale="log", xlabel="n", ylabel="ms for one more step")
    last = costs[costs.n == costs.n.max()].set_index("route").ms
    ax.set_title(f"n = {costs.n.max()}: settled, {last.settled / last.unsettled:.0%} of the time")
    plain_ticks(ax, sorted(costs.n.unique()))
    ax.legend()


def draw(table):
    "Time and memory over T and n, and time for one more step."
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, 4, figsize=(15, 3.4), layout="constrained")
        draw_growth(axes[0], table, "growth over T", "T", "seconds")
        draw_growth(axes[1], table, "growth over T", "T", "GB")
        draw_growth(axes[2], table, "growth over n", "n", "seconds")
        axes[0].legend(title="backend")
        axes[0].set_title(share(table, "growth over T", "T", "seconds"))
        axes[1].set_title(share(table, "growth over T", "T", "GB"))
        axes[2].set_title(share(table, "growth over n", "n", "seconds"))
        draw_steps(axes[3], table)
    return fig


def report_attackers(table):
    "How many times faster than the other routes, for all attackers."
    for T, group in table[table.experiment == "all attackers"].groupby("T"):
        seconds = group.set_index("route").seconds
        faster = [f"{seconds[route] / seconds['auto']:.1f} times faster than {route}"
                  for route in ("pseudo-inverse", "dense")]
        yield f"- all attackers, T={T}: auto is " + ", ".join(faster)


def report(table):
    "The ratios and the fitted exponents."
    yield from report_attackers(table)
    measured = table[table.experiment == "steps"]
    largest = measured[measured.n == measured.n.max()]
    for route, shown in largest.groupby("route"):
        power = exponent(shown["T"], shown.seconds)
        yield (f"- {route}, without certificates, n={shown.n.max()}: "
               f"seconds grow like T^{power:.2f}")
    for route, shown in per_step(table).groupby("route"):
        pairs = zip(shown.ms, shown.n, strict=True)
        each = ", ".join(f"{ms:.2f} ms at n={n}" for ms, n in pairs)
        yield f"- {route}: one more step costs n^{exponent(shown.n, shown.ms):.2f}, {each}"


if __name__ == "__main__":
    main(__file__, __doc__, COLUMNS, cases, measure, draw, report)
