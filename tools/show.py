"""Let experiments show what they printed and drew when their figures were made.

With their default parameters, from the executed copies that `mfdl reproduce` leaves beside
figures.
"""
import json
import shlex
from pathlib import Path

ROOT = Path(__file__).parent.parent


def experiment_of(path: Path) -> Path:
    "The experiment that a figure comes from, or its record."
    return ROOT / "nbs" / "experiments" / f"{path.stem.split('_')[0]}.ipynb"


def code_cells(notebook: dict) -> list[dict]:
    "The cells of code, but for parameters that were injected."
    return [
        cell for cell in notebook["cells"] if cell["cell_type"] == "code"
        and "injected-parameters" not in cell["metadata"].get("tags", [])]


def given_to(record: dict) -> dict[str, str]:
    "Parameters beyond defaults, in the order of the command."
    words = shlex.split(record["command"])[3:]
    return dict(zip(words[1::3], words[2::3], strict=True))


def show(executed: Path) -> None:
    "Give an experiment the outputs of its executed copy, but for the cell that writes files."
    path = experiment_of(executed)
    experiment, done = (json.loads(one.read_text()) for one in (path, executed))
    pairs = list(zip(code_cells(experiment), code_cells(done), strict=True))
    for cell, one in pairs[:-1]:
        if "".join(cell["source"]) == "".join(one["source"]):
            cell["outputs"] = one["outputs"]
    path.write_text(json.dumps(experiment, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for path in sorted((ROOT / "figures").glob("*.json")):
        executed = path.with_suffix(".ipynb")
        if executed.exists() and not given_to(json.loads(path.read_text())):
            show(executed)
