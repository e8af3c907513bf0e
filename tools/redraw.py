"""Draw figures again from their numbers, where only the drawing has changed.

A cell tagged `measured` makes the table that lies beside the figure of an experiment. All
other cells are run again; what that cell printed stays. Where they print other numbers than
before, an error says so and all files stay as they were: then the table is no longer what
today's code would measure.
"""
import ast
import json
import re
import sys
import tempfile
from pathlib import Path

from show import code_cells, experiment_of, given_to, show

from mfdl.tools.experiments import Result, code_digest, reproduce


def text(cell: dict) -> str:
    "The source of a cell."
    return "".join(cell["source"])


def only_imports(source: str) -> bool:
    "Whether a cell does nothing but import."
    return all(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.parse(source).body)


def changed_cells(record: dict, cells: list[dict]) -> list[int]:
    "Numbers of the cells of an experiment that do something else than when the figure was made."
    if len(cells) != len(record["cells"]): raise ValueError("today's experiment has other cells: run it again")
    return [
        number for number, (cell, before) in enumerate(zip(cells, record["cells"], strict=True))
        if code_digest(text(cell)) != before["code"]]


def check_measured(record: dict, cells: list[dict]) -> int:
    """The number of the measured cell of an experiment.

    A ValueError unless all up to it, but imports, does what it did when it ran.
    """
    measured = next(
        number for number, cell in enumerate(cells)
        if "measured" in cell["metadata"].get("tags", []))
    changed = [
        number for number in changed_cells(record, cells)
        if number <= measured and not only_imports(text(cells[number]))]
    if changed: raise ValueError(f"cells {changed} have changed: run the experiment again")
    return measured


def saved_table(cells: list[dict]) -> str:
    "The name of the table that is written beside the figure."
    calls = [node for node in ast.walk(ast.parse("\n".join(map(text, cells)))) if isinstance(node, ast.Call)]
    saved = [call.args[2] for call in calls if getattr(call.func, "id", "") == "save_figure"]
    return ast.unparse(saved[0])


def numbers_in(record: dict) -> list[str]:
    "All numbers that were printed."
    words = "\n".join(line for cell in record["cells"][:-1] for line in cell["printed"])
    return re.findall(r"\d+(?:\.\d+)?", words)


def same_but_rounding(one: str, other: str) -> bool:
    """Whether printed numbers are the same, but for a unit of the last of three digits or more.

    A table that is read again may write 1.0 as 1.
    """
    apart = abs(float(one) - float(other))
    if "." not in one or "." not in other: return apart == 0
    decimals = max(len(text.partition(".")[2]) for text in (one, other))
    return apart < 1.5 * 0.1**decimals and apart <= 0.005 * float(one)


def redraw(path: Path, folder: Path) -> Result:
    """Run all cells but the measured one; what is made goes to a folder.

    A ValueError, and what was in the folder is kept, if they print other numbers.
    """
    record = json.loads(path.read_text())
    experiment = json.loads(experiment_of(path).read_text())
    cells = code_cells(experiment)
    measured = check_measured(record, cells)
    kept = {file: file.read_bytes() for file in folder.glob(f"{path.stem}.*")}
    numbers = f"pd.read_csv({str(path.with_suffix('.csv'))!r})"
    digest, table = code_digest(text(cells[measured])), saved_table(cells)
    cells[measured]["source"] = [f"{table} = {numbers}"]
    with tempfile.TemporaryDirectory() as aside:
        shortened = Path(aside) / experiment_of(path).name
        shortened.write_text(json.dumps(experiment))
        result = reproduce(str(shortened), given_to(record), folder)
    written = folder / path.name
    again = json.loads(written.read_text()) | {"command": record["command"]}
    again["cells"][measured] = record["cells"][measured] | {"code": digest}
    printed, before = numbers_in(again), numbers_in(record)
    if len(printed) != len(before) or not all(map(same_but_rounding, printed, before)):
        for file, content in kept.items():
            file.write_bytes(content)
        raise ValueError(f"{path.stem}: other numbers are printed: run the experiment again")
    written.write_text(json.dumps(again, indent=1) + "\n")
    return result


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        drawn = redraw(path, path.parent)
        print(*drawn.files, sep="\n")
        if not given_to(json.loads(path.read_text())):
            show(drawn.notebook)
