"""What the benchmarks share: each measurement in a process of its own, then a table, a figure and the ratios."""
import argparse
import json
import os
import resource
import subprocess
import sys
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd

from mfdl.base.figures import save_figure
from mfdl.base.files import progress_bar

ONE_THREAD = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def peak_memory():
    "Of this process, in GB."
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


PEERS = ("mfdl", "numpy", "torch", "opacus", "jax-privacy", "opake-dpftrl", "pld-accounting",
         "dp-accounting", "cvxpy")


def versions():
    "Of this project and of all peers that are installed."
    for name in PEERS:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            continue


def main(script, doc, columns, cases, measure, draw, report, environment=None):
    """Measure, draw and report, as the command line says.

    `cases(quick)` yields tuples, named by `columns`; `measure(*case)` returns a dict;
    `draw` and `report` take the table of all.
    """
    stem = Path(script).with_suffix("")
    description = f"{doc} Each measurement runs in a process of its own."
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="tiny cases, to see that it runs")
    parser.add_argument("--output", default=stem, help="path of table and figure, without suffix")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(*json.loads(given.one))))
        return
    rows = []
    for case in progress_bar(list(cases(given.quick)), desc="measurements"):
        command = [sys.executable, "-W", "ignore", script, "--one", json.dumps(case)]
        settings = os.environ | (environment or {})
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=settings)
        measured = json.loads(done.stdout.splitlines()[-1])
        rows.append(dict(zip(columns, case, strict=True)) | measured)
    table = pd.DataFrame(rows)
    save_figure(draw(table), given.output, table)
    head = [f"# {doc}", "", f"`python benchmarks/{stem.name}.py`", ""]
    shown = ["```", table.to_string(index=False, float_format="%.6g"), "```", ""]
    when = [f"Measured {date.today()} with {', '.join(versions())}.", ""]
    lines = [*head, *when, *shown, *report(table)]
    Path(given.output).with_suffix(".md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
