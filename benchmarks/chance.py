"""What records that take part by chance are accounted for, here, by jax-privacy and by pld-accounting.

CPU seconds are those of a user whose imports are done: libraries are imported before the clock starts.
"""
import math
import time

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from harness import ONE_THREAD, main
from scipy.linalg import toeplitz

from mfdl.accounting.account import account
from mfdl.base.figures import PALETTE, STYLE
from mfdl.protocol.algorithms import dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import LDP

COLUMNS = ("what", "how", "k", "b", "sigma")
BANDS = np.array([1, 1 / 2, 1 / 4, 1 / 8])
Q = 0.5  # of a group that is in turn
RECORDS = 100  # of a group
LARGEST = 60  # records of a batch that is cut
DELTAS = {"bands": 1e-6, "bands, cut": 1e-6, "assigned once": 1e-2}
SAMPLES = 40_000  # of jax-privacy; where its bars end is four standard errors away
CHUNK = 20_000
SMALL = "assigned once, small delta"  # by our samples, and by bounds without samples
ANEW = "assigned anew, small delta"
OURS = 2**20  # of them; with four times as many we see what they miss


def column():
    "The first column of the strategy, of length 1."
    return BANDS / np.linalg.norm(BANDS)


def warm_up():
    "Imports that a first call would make, and what numba compiles at first."
    import dp_accounting.pld.privacy_loss_distribution  # noqa: F401
    import PLD_accounting

    import mfdl.accounting.methods.random_batches  # noqa: F401
    import mfdl.accounting.methods.truncated_poisson  # noqa: F401
    PLD_accounting.gaussian_allocation_epsilon_range(
        delta=1e-3, sigma=2.0, num_steps=4, num_epochs=2)


def participation(what, k, b):
    "How records take part."
    if what == ANEW: return Participation.balls_in_new_bins(k, b)
    if what == SMALL: return Participation.balls_in_bins(k, b)
    if what == "assigned once": return Participation.balls_in_bins(k, b)
    if what == "bands": return Participation.cyclic_poisson(k, b, Q)
    return Participation.truncated_poisson(Q, k * b, b * RECORDS, LARGEST, groups=b)


def run_of(T):
    "Three nodes on a ring, who all have the same noise."
    padded = np.pad(column(), (0, T - len(BANDS)))
    return mf_dsgd(gossip_matrix(nx.cycle_graph(3)), T, toeplitz(padded, 0 * padded))


def by_mfdl(what, k, b, sigma):
    "An account of nodes with the same noise."
    warm_up()
    run = run_of(k * b)
    start = time.process_time()
    report = account(run, LDP(), participation(what, k, b), sigma).in_units(1.0, 1, "zero-out")
    epsilon = float(report.epsilon(DELTAS[what]).max())
    return {"epsilon": epsilon, "cpu": time.process_time() - start}


def plain(what, k, b, sigma):
    "A report on independent noise, for zero-out neighbours."
    warm_up()
    report = account(dp_dsgd(gossip_matrix(nx.cycle_graph(3)), k * b), LDP(),
                     participation(what, k, b), sigma)
    return report.in_units(1.0, 1, "zero-out")


def by_our_samples(what, k, b, sigma):
    "The formal epsilon by samples, and its time; epsilon by four times as many if it is quick."
    report = plain(what, k, b, sigma)
    start = time.process_time()
    epsilon = float(report.with_samples(OURS if what == SMALL else 2**18).epsilon(1e-6).max())
    cpu = time.process_time() - start
    finer = None
    if what == SMALL: finer = float(report.with_samples(4 * OURS).epsilon(1e-6).max())
    return {"epsilon": epsilon, "low": finer, "high": epsilon, "delta": 1e-6, "cpu": cpu}


def by_our_bounds(what, k, b, sigma):
    "Bounds that hold for certain, and the time of both together."
    report = plain(what, k, b, sigma)
    assert report.certain.all()
    start = time.process_time()
    found = report.bounds(1e-6).iloc[0]
    cpu = time.process_time() - start
    start = time.process_time()
    plain(what, k, b, sigma * (1 + 1e-9)).epsilon(1e-6)  # the upper bound alone, not kept before
    return {"epsilon": float(found.epsilon), "low": float(found.lower), "high": float(found.epsilon),
            "delta": 1e-6, "cpu": cpu, "cpu_upper": time.process_time() - start}


def by_their_bounds(what, k, b, sigma):
    "Both bounds of pld-accounting, refined by itself until they are within a tenth."
    warm_up()
    from PLD_accounting import gaussian_allocation_epsilon_range
    noise, rounds = (sigma, k) if what == ANEW else (sigma / math.sqrt(k), 1)
    start = time.process_time()
    high, low = gaussian_allocation_epsilon_range(
        delta=1e-6, sigma=noise, num_steps=b, num_epochs=rounds)
    return {"epsilon": high, "low": low, "high": high, "delta": 1e-6,
            "cpu": time.process_time() - start}


def losses(strategy, sigma, positive):
    "Privacy losses of many samples, in the library's own words."
    from jax_privacy.experimental.monte_carlo.sample_generation import get_privacy_loss_sample
    parts = [get_privacy_loss_sample(strategy, sigma, column(), seed, positive, CHUNK)[0]
             for seed in range(SAMPLES // CHUNK)]
    return np.concatenate(parts)


def epsilon_of(found, delta, errors):
    "The epsilon for which delta is so many standard errors above the mean excess."
    low = 0.0
    high = float(found.max())
    for _ in range(60):
        middle = (low + high) / 2
        over = np.maximum(0, -np.expm1(middle - found))
        if over.mean() + errors * over.std() / math.sqrt(len(found)) > delta:
            low = middle
        else:
            high = middle
    return high


def by_samples(k, b, sigma):
    "The worse of both directions, with what is sure up to four standard errors."
    from jax_privacy.batch_selection import BallsInBinsSampling
    strategy = BallsInBinsSampling(iterations=k * b, cycle_length=b)
    start = time.process_time()
    found = [losses(strategy, sigma, positive) for positive in (True, False)]
    delta = DELTAS["assigned once"]
    ends = {name: max(epsilon_of(one, delta, errors) for one in found)
            for name, errors in (("epsilon", 0), ("low", -4), ("high", 4))}
    return ends | {"cpu": time.process_time() - start}


def by_jax(what, k, b, sigma):
    "By its event for bands, or by its samples; compilation plays no part."
    if what == "assigned once": return by_samples(k, b, sigma)
    warm_up()
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import PLDAccountant
    from jax_privacy.experimental import accounting
    relation = "REPLACE_SPECIAL" if what == "bands" else "ADD_OR_REMOVE_ONE"
    start = time.process_time()
    setting = {"num_bands": b, "sampling_prob": Q}
    if what == "bands":
        event = accounting.amplified_bandmf_event(sigma, k * b, **setting)
    else:
        event = accounting.truncated_amplified_bandmf_event(
            sigma, k * b, **setting, largest_group_size=RECORDS, truncated_batch_size=LARGEST)
    accountant = PLDAccountant(NeighboringRelation[relation])
    epsilon = accountant.compose(event).get_epsilon(DELTAS[what])
    return {"epsilon": float(epsilon), "cpu": time.process_time() - start}


def measure(what, how, k, b, sigma):
    "One row."
    if what in (SMALL, ANEW):
        ways = {"mfdl": by_our_bounds, "mfdl, samples": by_our_samples,
                "pld-accounting": by_their_bounds}
        return ways[how](what, k, b, sigma)
    way = by_mfdl if how == "mfdl" else by_jax
    return {"low": None, "high": None, "delta": DELTAS[what], **way(what, k, b, sigma)}


def cases(quick):
    "Rows of COLUMNS."
    if quick:
        yield "bands", "mfdl", 2, 4, 2.0
        yield "bands, cut", "mfdl", 2, 4, 2.0
        yield "assigned once", "mfdl", 2, 4, 2.0
        yield SMALL, "mfdl", 2, 4, 2.0
        return
    for what in DELTAS:
        for sigma in (1.0, 2.0, 4.0):
            for how in ("mfdl", "jax-privacy"):
                yield what, how, 20, 16, sigma
    for sigma in (1.0, 2.0):
        for how in ("mfdl", "mfdl, samples", "pld-accounting"):
            yield SMALL, how, 20, 16, sigma
    for how in ("mfdl", "mfdl, samples", "pld-accounting"):
        yield ANEW, how, 20, 16, 2.0
    for how in ("mfdl", "pld-accounting"):  # samples take too long
        yield ANEW, how, 10, 100, 1.0


def draw(table):
    "Epsilon, with bars where it was sampled, over sigma."
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, len(DELTAS), figsize=(10, 3.2), layout="constrained")
        for ax, what in zip(axes, DELTAS, strict=True):
            for how, color in (("mfdl", "ours"), ("jax-privacy", "squared")):
                rows = table[(table.what == what) & (table.how == how)].fillna(math.nan)
                ends = rows[["low", "high"]].astype(float)
                bars = (ends.sub(rows.epsilon, axis=0)).abs().fillna(0).T.to_numpy()
                ax.errorbar(rows.sigma, rows.epsilon, bars, fmt="o-" if how == "mfdl" else "x",
                            color=PALETTE[color], label=how, capsize=3)
            ax.set(yscale="log", xlabel="$\\sigma$", title=what)
        axes[0].set_ylabel("$\\varepsilon$")
        axes[-1].legend()
    return fig


def report(table):
    "How far apart the two are, and how long each takes."
    for (what, _, sigma), rows in table.groupby(["what", "b", "sigma"], sort=False):
        by = rows.set_index("how")
        if what in (SMALL, ANEW):
            for how, one in by.iterrows():
                low = "" if one.low is None or math.isnan(one.low) else f", at least {one.low:.4g}"
                if how == "mfdl, samples": low = ", with a failure of 1e-10 inside delta"
                alone = f" ({one.cpu_upper:.2g} s for the upper bound alone)" if how == "mfdl" else ""
                yield (f"- {what}, k, b = {one.k}, {one.b}, sigma={sigma:g}, delta={one.delta:g}, "
                       f"{how}: epsilon {one.epsilon:.4g}{low}, in {one.cpu:.2g} s{alone}")
            continue
        if len(by) < 2: continue
        ours = by.loc["mfdl"]
        theirs = by.loc["jax-privacy"]
        within = ""
        if theirs.low is not None and not math.isnan(theirs.low):
            within = f" (four standard errors: {theirs.low:.4g} to {theirs.high:.4g})"
        yield (f"- {what}, sigma={sigma:g}, delta={ours.delta:g}: "
               f"epsilon {ours.epsilon:.4g} here, {theirs.epsilon:.4g} there{within}; "
               f"{theirs.cpu / ours.cpu:.2g} times the CPU time")


if __name__ == "__main__":
    main(__file__, __doc__, COLUMNS, cases, measure, draw, report, ONE_THREAD)
