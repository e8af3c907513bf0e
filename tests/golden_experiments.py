"""The numbers of every experiment at smoke size, column by column; they are compared where the experiments run, in `book/test_notebooks.py`."""
import csv
import math
import sys
import tempfile
import warnings
from pathlib import Path
from statistics import median

from golden import changes as differences
from golden import kept
from inner import reproduce

sys.path.append(str(Path(__file__).parent / "book"))
from test_notebooks import SMOKE  # noqa: E402

CASES = sorted(SMOKE)
LEARNED = {  # columns of trainings and attacks, whose noise depends on the last digits of sigma
    "audit": ("best low", "best estimate", "best high", "learned low", "learned estimate", "learned high", "epsilon shown"), "correlated": ("loss", "accuracy"),
    "consortium": ("mean", "low", "high"), "deep": ("mean", "low", "high"),
    "housing": ("loss", "low", "high"), "letters": ("accuracy", "least", "largest"), "objectives": ("loss",), "quadratic": ("gap", "average"), "reactions": ("accuracy",),
    "story": ("value", "low", "high"), "together": ("loss",), "writers": ("accuracy", "least", "largest"),
}
TOLERANCES = {"seeds": 1e-4, "consortium": 1e-3}  # of a solver of semidefinite programs; otherwise 1e-6


def entry(text):
    """A number, or else a text."""
    try: number = float(f"{float(text):.9g}")
    except ValueError: return text
    return "nan" if math.isnan(number) else number


def columns(files):
    """The columns of the table among the files of an experiment; what is the same in all rows is kept once, and repetitions are counted."""
    file, = (path for path in files if path.suffix == ".csv")
    head, *rows = csv.reader(file.read_text().splitlines())
    return {name: runs([entry(row[i]) for row in rows]) for i, name in enumerate(head)}


def runs(values):
    """The values of a column, with repetitions as [value, times]."""
    found = []
    for value in values:
        if found and (found[-1][0] == value): found[-1][1] += 1
        else: found.append([value, 1])
    return [value if times == 1 else [value, times] for value, times in found]


def values(column):
    """All values of a column."""
    return [one for kept in column for one in ([kept[0]] * kept[1] if isinstance(kept, list) else [kept])]


def changes(key, files):
    """Where a table differs from the one that was kept: in numbers beyond a tolerance, but in learned ones if their middle is another one by far."""
    now, then = columns(files), kept("experiments")[key]
    if now.keys() != then.keys(): return [f"columns {[*now]}, and they were {[*then]}"]
    pairs = {name: (values(now[name]), values(then[name])) for name in now}
    found = {name: differences(*pairs[name], {}, name, TOLERANCES.get(key, 1e-6)) for name in now}
    learned = [name for name in LEARNED.get(key, ()) if found[name]]
    if learned: warnings.warn(f"{key}: other numbers were learned, {found[learned[0]][0]}", stacklevel=2)
    return [one for name in now if name not in learned for one in found[name]] + [f"{name}: {pairs[name]}" for name in learned if not alike(*pairs[name])]


def alike(now, then):
    """Whether columns are as long, and have their middle in about the same place."""
    middle, before = (median([one for one in some if isinstance(one, float) and math.isfinite(one)] or [0.0]) for some in (now, then))
    return len(now) == len(then) and abs(middle - before) <= 0.5 * max(abs(middle), abs(before)) + 0.05


def result(key):
    """The table of an experiment at smoke size."""
    with tempfile.TemporaryDirectory() as folder: return columns(reproduce(key, SMOKE[key], folder, progress=False).files)
