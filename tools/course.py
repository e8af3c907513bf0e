"""Write into docs/course.md how long it takes to read each notebook: `python tools/course.py`, which `make contents` does; with `--run` also how long it takes to run.

A minute is 150 words, or 15 lines of code, or an equation on a line of its own, or a figure; what is hidden on the site does not count. Sums are rounded up to five minutes.
"""
import json
import re
import resource
import sys
from math import ceil
from pathlib import Path

ROOT = Path(__file__).parent.parent
COURSE = ROOT / "docs" / "course.md"
ROW = re.compile(r"^(\| \[.+?\]\((\S+?\.ipynb)\) \|) \d* \| (\d*) \|$")
SUM = re.compile(r"^(\| together \|) \d* \| \d* \|$")


def minutes(path: Path) -> int:
    """How long a first reading takes, exercises aside."""
    words = lines = shown = 0
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            words += len(re.findall(r"\S*\w\S*", source))
            shown += len(re.findall(r"\$\$.+?\$\$", source, re.S))
        elif not re.search(r"^#\| *(hide$|default_exp)", source, re.M):
            lines += len(re.findall(r"^.*\S", source, re.M))
            shown += sum("image/png" in output.get("data", {}) for output in cell["outputs"])
    return 5 * ceil((words / 150 + lines / 15 + shown) / 5)


def seconds(path: Path) -> int:
    """How long all its cells take one processor, with the start of a kernel."""
    import nbformat
    from nbclient import NotebookClient

    def used() -> float: return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    before = used()
    NotebookClient(nbformat.read(path, 4), timeout=900, resources={"metadata": {"path": str(path.parent)}}).execute()
    return ceil(used() - before)


def rewritten(text: str, run: bool = False) -> str:
    """The text with these times in its tables, and their sums."""
    lines, to_read, to_run = [], 0, 0
    for line in text.splitlines():
        if row := ROW.match(line):
            path = COURSE.parent / row[2]
            read, ran = minutes(path), seconds(path) if run or not row[3] else int(row[3])
            to_read, to_run = to_read + read, to_run + ran
            line = f"{row[1]} {read} | {ran} |"
        elif row := SUM.match(line):
            line = f"{row[1]} {to_read} | {to_run} |"
            to_read = to_run = 0
        lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__": COURSE.write_text(rewritten(COURSE.read_text(), "--run" in sys.argv))
