"""What records that take part by chance are accounted for, here and by jax-privacy."""
import math
import time

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from harness import ONE_THREAD, main
from scipy.linalg import toeplitz

from mfdl.accounting.account import account
from mfdl.base.figures import PALETTE, STYLE
from mfdl.protocol.algorithms import mf_dsgd
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
SMALL = "assigned once, small delta"  # by our samples alone
OURS = 2**20  # of them; with four times as many we see what they miss


def column():
    "The first column of the strategy, of length 1."
    return BANDS / np.linalg.norm(BANDS)


def participation(what, k, b):
    "How records take part."
    if what == "assigned once": return Participation.balls_in_bins(k, b)
    if what == "bands": return Participation.cyclic_poisson(k, b, Q)
    return Participation.truncated_poisson(Q, k * b, b * RECORDS, LARGEST, groups=b)


def run_of(T):
    "Three nodes on a ring, who all have the same noise."
    padded = np.pad(column(), (0, T - len(BANDS)))
    return mf_dsgd(gossip_matrix(nx.cycle_graph(3)), T, toeplitz(padded, 0 * padded))


def by_mfdl(what, k, b, sigma):
    "An account of nodes with the same noise."
    run = run_of(k * b)
    start = time.process_time()
    report = account(run, LDP(), participation(what, k, b), sigma).in_units(1.0, 1, "zero-out")
    epsilon = float(report.epsilon(DELTAS[what]).max())
    return {"epsilon": epsilon, "cpu": time.process_time() - start}


def by_our_samples(k, b, sigma, samples=OURS):
    "The formal epsilon by samples, its time, and epsilon by four times as many."
    report = account(run_of(k * b), LDP(), Participation.balls_in_bins(k, b), sigma)
    report = report.in_units(1.0, 1, "zero-out")
    start = time.process_time()
    epsilon = float(report.with_samples(samples).epsilon(1e-6).max())
    cpu = time.process_time() - start
    finer = float(report.with_samples(4 * samples).epsilon(1e-6).max())
    return {"epsilon": epsilon, "low": finer, "high": epsilon, "delta": 1e-6, "cpu": cpu}


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
    if what == SMALL: return by_our_samples(k, b, sigma)
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
        yield SMALL, "mfdl", 20, 16, sigma


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
    for (what, sigma), rows in table.groupby(["what", "sigma"], sort=False):
        by = rows.set_index("how")
        if what == SMALL:
            one = by.loc["mfdl"]
            yield (f"- {what}, sigma={sigma:g}, delta={one.delta:g}: epsilon {one.epsilon:.4g} by "
                   f"{OURS:,} samples in {one.cpu:.2g} s, {one.epsilon / one.low - 1:.2%} above "
                   "that by four times as many")
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
