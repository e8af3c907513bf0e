"""Sensitivities of random protocols with weights from 1e-16 to 1, groups of seeds and nodes without noise, against exact fractions."""
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from harness import ONE_THREAD, main

from mfdl.ground.figures import PALETTE, STYLE

TOLERANCE = 1e-9


def measure(backend, size):
    """What `size` protocols give: how far numbers are below and above the exact ones, relative to 1 or to the exact one, and the leaks."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from test_fortress import pairs, resolved, small_runs
    found = []

    @seed(0)
    @settings(max_examples=size, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(small_runs())
    def campaign(drawn):
        run, trust, nodes = drawn
        found.extend((mu, truth, resolved(run, truth)) for mu, truth in pairs(run, trust, nodes, backend))

    campaign()
    mu, truth, due = np.array(found, dtype=float).T
    finite = np.isfinite(mu) & np.isfinite(truth)
    error = (mu - truth)[finite] / np.maximum(truth[finite], 1)
    false = np.isinf(mu) & np.isfinite(truth)
    powers, counts = np.unique(np.floor(np.log10(truth[false])).astype(int), return_counts=True)
    return {
        "compared": len(mu), "leaks": int(np.isinf(truth).sum()), "missed": int((np.isinf(truth) & np.isfinite(mu)).sum()),
        "below": float(-error.min(initial=0)), "above": float(error.max(initial=0)),
        "false": int(false.sum()), "false_resolved": int((false & (due == 1)).sum()),
        "false_by_power": ", ".join(f"1e{power}: {count}" for power, count in zip(powers, counts, strict=True)),
    }


def cases(quick): yield from ((backend, 20 if quick else 2000) for backend in ("auto", "dense", "exact"))


def title(table):
    small = table.missed.any() or (table.below > TOLERANCE).any()
    return f"{'Some' if small else 'None'} of {table.compared.sum():,} sensitivities {'are' if small else 'is'} too small"


def draw(table):
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(6, 2.4), layout="constrained")
        at = np.arange(len(table))
        for shift, column, color in ((-0.2, "below", "ldp"), (0.2, "above", "ours")):
            ax.barh(at + shift, np.maximum(table[column], 1e-17), 0.36, color=PALETTE[color], label=f"largest error {column}")
        ax.axvline(TOLERANCE, color="0.4", lw=0.8)
        ax.text(TOLERANCE, 1.06, " allowed below", transform=ax.get_xaxis_transform(), ha="center", fontsize="small")
        ax.set(xscale="log", xlim=(1e-17, 1e-7), yticks=at, yticklabels=table.backend, xlabel="error, relative to the larger of 1 and the exact sensitivity",
               title=title(table))
        ax.invert_yaxis()
        fig.legend(loc="outside lower center", ncols=2)
    return fig


def report(table):
    lines = ["A leak is a gradient that is seen without noise; a false one, a finite sensitivity that is reported as infinite. "
             f"Errors are relative to the larger of 1 and the exact sensitivity; {TOLERANCE:g} is allowed below it.", ""]
    for row in table.itertuples():
        lines.append(f"- {row.backend}: {row.compared:,} sensitivities of {row.size:,} protocols; {row.leaks:,} leaks, {row.missed} of them missed; "
                     f"{row.false} false leaks, {row.false_resolved} of them below 2^25 over the largest noise. "
                     f"How many false leaks there are of each size: {row.false_by_power}.")
    return lines


if __name__ == "__main__": main(__file__, __doc__, ("backend", "size"), cases, measure, draw, report, ONE_THREAD)
