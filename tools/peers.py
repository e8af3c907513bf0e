"""The table of `nbs/index.ipynb` that compares with the best peer of each kind, from the tables of the benchmarks."""
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
HEAD = ["| what | best peer | time, ours / theirs | result, ours / theirs | measured |", "|---|---|---|---|---|"]
NONE = "–"
SUMMARY = "<details><summary>Time and results beside the best peer of each row</summary>\n"


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(BENCHMARKS / f"{name}.csv")


def measured(name: str, *peers: str) -> str:
    "When, and with which versions of the peers, as the report of a benchmark says."
    text = (BENCHMARKS / f"{name}.md").read_text()
    date, versions = re.search(r"^Measured (\S+) with (.+)\.$", text, re.M).groups()
    named = dict(one.rsplit(" ", 1) for one in versions.split(", "))
    return f"[{date}](../benchmarks/{name}.md), {', '.join(named[peer] for peer in peers)}"


def number(value: float) -> str:
    "Two digits, or four near 1."
    return f"{value:.4g}" if 0.9 < value < 1.1 else f"{value:.2g}"


def ratios(ours: pd.DataFrame, theirs: pd.DataFrame, column: str) -> str:
    "Of a column, in rows that belong together: one, or the smallest and the largest."
    found = sorted(ours[column].to_numpy() / theirs[column].to_numpy())
    ends = dict.fromkeys([number(found[0]), number(found[-1])])
    return " to ".join(ends)


def row(what: str, name: str, peer: str, ours: pd.DataFrame, theirs: pd.DataFrame, time: str, result: str) -> str:
    results = ratios(ours, theirs, result) if result else NONE
    return f"| {what} | {peer} | {ratios(ours, theirs, time)} | {results} | {measured(name, peer)} |"


def optima() -> Iterator[str]:
    "Of a single strategy for all nodes."
    table = read("mafalda")
    for what, peer, where in (
        ("best correlation in time, 380 steps", "jax-privacy", table["T"] == 380),
        ("the same, small, as a semidefinite program", "cvxpy", table["T"] == 12),
        ("best Toeplitz correlation, 1,024 and 4,096 steps", "opake-dpftrl", table.workload == "prefix, Toeplitz"),
    ):
        its = table[where & (table.how != "gram")]
        how = peer.removesuffix("-dpftrl")
        yield row(f"{what} (squared error)", "mafalda", peer, its[its.how == "mfdl"], its[its.how == how], "cpu", "objective")


def buffers() -> Iterator[str]:
    "Of noise with little memory."
    table = read("buffers")
    for what, where in (
        ("noise with 1 or 4 vectors of memory, 100 to 1,024 steps", table["T"] < 10_000),
        ("the same, 100,000 steps", table["T"] >= 10_000),
    ):
        its = table[where]
        ours, theirs = (its[its.who == who] for who in ("mfdl, buffers", "opake, BLT"))
        yield row(f"{what} (squared error)", "buffers", "opake-dpftrl", ours, theirs, "cpu", "error")


def chance() -> Iterator[str]:
    "Of records that take part by chance."
    table = read("chance")
    for what, name, peer in (
        ("records by chance, 16 groups in turn (epsilon)", "bands", "jax-privacy"),
        ("the same with batches of bounded size (epsilon)", "bands, cut", "jax-privacy"),
        ("one place among many, anew in each round (epsilon, certain)", "assigned anew, small delta", "pld-accounting"),
        ("one place among many, once (epsilon, certain)", "assigned once, small delta", "pld-accounting"),
    ):
        its = table[table.what == name]
        yield row(what, "chance", peer, its[its.how == "mfdl"], its[its.how == peer], "cpu", "epsilon")


def training() -> Iterator[str]:
    "Of training side by side, and of random numbers."
    table = read("training")
    ours = table[table.how == "mfdl"].set_index("seeds", drop=False)
    for peer, how in (("opacus", "Opacus loop"), ("torch", "torch.func.vmap"), ("torch", "ghost norms by hand")):
        its = table[table.how == how]
        one, twenty = (its[its.seeds <= 20].iloc[at] for at in (0, -1))
        ratio = [number(ours.loc[seeds, "per run"] / theirs["per run"]) for seeds, theirs in ((1, one), (20, twenty))]
        yield (f"| training a network with clipped gradients, 1 and 20 seeds | {how} | {' and '.join(ratio)} | {NONE} | "
               f"{measured('training', peer)} |")
    table = read("randomness").astype({"what": str})
    double = float(table[table.what == "torch.randn, float64"].time.iloc[0])
    drawn = table[table.what.isin(["650", "10000", "100000"])]
    for what, secure in (("normal numbers in float64", False), ("the same, safe against rounding attacks", True)):
        times = sorted(number(time / double) for time in drawn[drawn.secure == secure].time)
        yield f"| {what} | torch.randn | {times[0]} to {times[-1]} | {NONE} | {measured('randomness', 'torch')} |"


def table() -> str:
    "All rows, those where a peer is faster among them."
    return "\n".join([*HEAD, *optima(), *buffers(), *chance(), *training()])
