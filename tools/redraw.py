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

from executed import experiment_of, given_to, other_code, pairs, printed, show, tagged, text

from mfdl.workshop.experiments import reproduce


def only_imports(source: str) -> bool:
    "Whether a cell does nothing but import."
    return all(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.parse(source).body)


def check_measured(path: Path) -> int:
    """The number of the measured cell in the experiment of an executed notebook.

    A ValueError unless all up to it, but imports, does what it did when it ran.
    """
    today = [now for _, now in pairs(path)]
    if not today: raise ValueError(f"{path.stem}: today's experiment has other cells: run it again")
    measured = tagged(today, "measured")
    changed = [
        number for number in other_code(path)
        if number <= measured and not only_imports(text(today[number]))]
    if changed: raise ValueError(f"{path.stem}: cells {changed} have changed: run it again")
    return measured


def saved_table(cells: list[dict]) -> str:
    "The name of the table that is written beside the figure."
    source = "\n".join(text(cell) for cell in cells if cell["cell_type"] == "code")
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    saved = [call.args[2] for call in calls if getattr(call.func, "id", "") == "save_figure"]
    return ast.unparse(saved[0])


def numbers_in(words: str) -> list[float]:
    "All numbers; a table that is read again may write 1.0 as 1."
    return [*map(float, re.findall(r"\d+(?:\.\d+)?", words))]


def redraw(path: Path, folder: Path) -> Path:
    """Run all cells but the measured one; the executed notebook is written to a folder.

    A ValueError, and what was in the folder is kept, if they print other numbers.
    """
    measured = check_measured(path)
    before = pairs(path)[measured][0]
    told = numbers_in(printed(path))
    kept = {file: file.read_bytes() for file in folder.glob(f"{path.stem}.*")}
    experiment = json.loads(experiment_of(path).read_text())
    numbers = f"pd.read_csv({str(path.with_suffix('.csv'))!r})"
    table = saved_table(experiment["cells"])
    experiment["cells"][measured]["source"] = [f"{table} = {numbers}"]
    with tempfile.TemporaryDirectory() as aside:
        shortened = Path(aside) / experiment_of(path).name
        shortened.write_text(json.dumps(experiment))
        found = reproduce(str(shortened), given_to(path), folder).notebook
    after = json.loads(found.read_text())
    cell = after["cells"][tagged(after["cells"], "measured")]
    cell.update(source=before["source"], outputs=before["outputs"])
    found.write_text(json.dumps(after, indent=1, ensure_ascii=False) + "\n")
    if numbers_in(printed(found)) != told:
        for file, content in kept.items():
            file.write_bytes(content)
        raise ValueError(f"{path.stem}: other numbers are printed: run the experiment again")
    return found


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        print(redraw(path, path.parent))
        if not given_to(path):
            show(path)
