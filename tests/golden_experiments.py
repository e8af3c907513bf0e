"""The numbers of every experiment at smoke size, column by column."""
import csv
import math
import sys
import tempfile
from pathlib import Path

from inner import reproduce

sys.path.append(str(Path(__file__).parent / "book"))
from test_notebooks import SMOKE  # noqa: E402

CASES = sorted(SMOKE)


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


def result(key):
    """The table of an experiment at smoke size."""
    with tempfile.TemporaryDirectory() as folder: return columns(reproduce(key, SMOKE[key], folder, progress=False).files)
