"""Sensitivities of random protocols with weights from 1e-16 to 1, groups of seeds and nodes without noise, against exact fractions."""
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from harness import ONE_THREAD, main

from mfdl.base.figures import PALETTE, STYLE

TOLERANCE = 1e-9


def measure(backend, size):
    """What `size` protocols give: leaks, and how far numbers are from the exact ones.

    Below and above them, relative to 1 or to the exact one.
    """
    tests = Path(__file__).parents[1] / "tests"
    sys.path[:0] = [str(tests), str(tests / "accounting")]
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from test_fortress import pairs, resolved, small_runs
    found = []
    every = settings(
        max_examples=size, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck))

    @seed(0)
    @every
    @given(small_runs())
    def campaign(drawn):
        run, trust, nodes = drawn
        for mu, truth in pairs(run, trust, nodes, backend):
            found.append((mu, truth, resolved(run, truth)))

    campaign()
    mu, truth, due = np.array(found, dtype=float).T
    finite = np.isfinite(mu) & np.isfinite(truth)
    error = (mu - truth)[finite] / np.maximum(truth[finite], 1)
    false = np.isinf(mu) & np.isfinite(truth)
    missed = np.isinf(truth) & np.isfinite(mu)
    powers, counts = np.unique(np.floor(np.log10(truth[false])).astype(int), return_counts=True)
    by_power = [f"1e{power}: {count}" for power, count in zip(powers, counts, strict=True)]
    return {
        "compared": len(mu), "leaks": int(np.isinf(truth).sum()), "missed": int(missed.sum()),
        "below": float(-error.min(initial=0)), "above": float(error.max(initial=0)),
        "false": int(false.sum()), "false_resolved": int((false & (due == 1)).sum()),
        "false_by_power": ", ".join(by_power),
    }


def cases(quick):
    for backend in ("auto", "dense", "exact"):
        yield backend, 20 if quick else 2000


def title(table):
    small = table.missed.any() or (table.below > TOLERANCE).any()
    some, are = ("Some", "are") if small else ("None", "is")
    return f"{some} of {table.compared.sum():,} sensitivities {are} too small"


def draw(table):
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(6, 2.4), layout="constrained")
        at = np.arange(len(table))
        for shift, column, color in ((-0.2, "below", "ldp"), (0.2, "above", "ours")):
            errors = np.maximum(table[column], 1e-17)
            label = f"largest error {column}"
            ax.barh(at + shift, errors, 0.36, color=PALETTE[color], label=label)
        ax.axvline(TOLERANCE, color="0.4", lw=0.8)
        above = {"transform": ax.get_xaxis_transform(), "ha": "center", "fontsize": "small"}
        ax.text(TOLERANCE, 1.06, " allowed below", **above)
        ax.set(xscale="log", xlim=(1e-17, 1e-7), yticks=at, yticklabels=table.backend)
        ax.set_xlabel("error, relative to the larger of 1 and the exact sensitivity")
        ax.set_title(title(table))
        ax.invert_yaxis()
        fig.legend(loc="outside lower center", ncols=2)
    return fig


def report(table):
    yield ("A leak is a gradient that is seen without noise; a false one, a finite sensitivity "
           "that is reported as infinite. Errors are relative to the larger of 1 and the exact "
           f"sensitivity; {TOLERANCE:g} is allowed below it.\n")
    for row in table.itertuples():
        leaks = f"{row.leaks:,} leaks, {row.missed} of them missed"
        small = f"{row.false_resolved} of them below 2^25 over the largest noise"
        compared = f"{row.compared:,} sensitivities of {row.size:,} protocols"
        yield (f"- {row.backend}: {compared}; {leaks}; {row.false} false leaks, {small}. "
               f"How many false leaks there are of each size: {row.false_by_power}.")


if __name__ == "__main__":
    columns = ("backend", "size")
    main(__file__, __doc__, columns, cases, measure, draw, report, ONE_THREAD)
