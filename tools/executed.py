"""Give executed notebooks in figures/ the source of today's experiments.

Where only its form has changed; their outputs stay. Say which have other code, and let
experiments show what their defaults gave.
"""
import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FILES = re.compile(r"^\S+\.svg \S+\.png \S+\.csv\n", re.M)  # the line that says what was written


class Moved(ast.NodeTransformer):
    "Imports from the package without the chapter that they come from: chapters move."

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        "The same import, of the package."
        if (node.module or "").startswith("mfdl"):
            node.module = "mfdl"
        return node


def form(source: str) -> list[str]:
    "What code does, whatever its lines look like; imports in any order."
    body = Moved().visit(ast.parse(source)).body
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [f"{getattr(one, 'module', '')} {alias.name}" for one in imports for alias in one.names]
    return sorted(names) + [ast.dump(node) for node in body if node not in imports]


def text(cell: dict) -> str:
    "The source of a cell; links lead to other chapters, from wherever it lies."
    return "".join(cell["source"]).replace("](../nbs/", "](../")


def from_figures(cell: dict) -> list[str]:
    "The source of a cell of an experiment, with links that work beside figures."
    if cell["cell_type"] == "code": return cell["source"]
    return [line.replace("](../", "](../nbs/") for line in cell["source"]]


def experiment_of(path: Path) -> Path:
    "The experiment that an executed notebook comes from."
    return ROOT / "nbs" / "experiments" / f"{path.stem.split('_')[0]}.ipynb"


def tagged(cells: list[dict], tag: str) -> int:
    "The number of the cell with a tag; a ValueError if there is none."
    for number, cell in enumerate(cells):
        if tag in cell["metadata"].get("tags", []): return number
    raise ValueError(f"no cell is tagged {tag!r}")


def parameters(path: Path, tag: str) -> dict[str, Any]:
    "What the cell of a notebook with a tag sets."
    cells = json.loads(path.read_text())["cells"]
    body = ast.parse("".join(cells[tagged(cells, tag)]["source"])).body
    return {ast.unparse(node.targets[0]): ast.literal_eval(node.value) for node in body}


def given_to(path: Path) -> dict[str, Any]:
    "Parameters of an executed notebook beyond defaults, in the order of its name."
    defaults = parameters(experiment_of(path), "parameters")
    values = parameters(path, "injected-parameters")
    given = [key for key, value in values.items() if value != defaults.get(key) and key != "output"]
    given.sort(key=lambda key: path.stem.find(f"_{key}-"))
    return {key: values[key] for key in given}


def show(path: Path) -> None:
    "Give an experiment the outputs of its executed notebook, but for what was written."
    experiment = json.loads(experiment_of(path).read_text())
    code = [cell for cell in experiment["cells"] if cell["cell_type"] == "code"]
    done = [one for one, _ in pairs(path) if one["cell_type"] == "code"]
    for cell, one in zip(code[:-1], done[:-1], strict=True):
        cell["outputs"] = one["outputs"]
    experiment_of(path).write_text(json.dumps(experiment, indent=1, ensure_ascii=False) + "\n")


def printed(path: Path) -> str:
    "What the cells of a notebook print, but for the names of files that are written."
    cells = json.loads(path.read_text())["cells"]
    told = [out for cell in cells for out in cell.get("outputs", []) if out.get("name") == "stdout"]
    return FILES.sub("", "".join("".join(out["text"]) for out in told))


def pairs(path: Path) -> list[tuple[dict, dict]]:
    """The cells of an executed notebook, but for its parameters, and of its experiment.

    None where the experiment has other cells today.
    """
    done = json.loads(path.read_text())["cells"]
    own = [cell for cell in done if "injected-parameters" not in cell["metadata"].get("tags", [])]
    today = json.loads(experiment_of(path).read_text())["cells"]
    kinds = [[cell["cell_type"] for cell in cells] for cells in (own, today)]
    return list(zip(own, today, strict=True)) if kinds[0] == kinds[1] else []


def other_code(path: Path) -> list[int]:
    "Numbers of the cells whose code does something else than today's."
    return [
        number for number, (done, now) in enumerate(pairs(path))
        if done["cell_type"] == "code" and form(text(done)) != form(text(now))
    ]


def other_words(path: Path) -> list[int]:
    "Numbers of the cells of text that are not today's."
    return [
        number for number, (done, now) in enumerate(pairs(path))
        if done["cell_type"] == "markdown" and text(done) != text(now)
    ]


def stale(path: Path) -> bool:
    "Whether today's experiment does something else than the executed notebook did."
    return not pairs(path) or bool(other_code(path))


def refresh(path: Path) -> None:
    "Write today's source into the cells that do the same, and into those of text."
    left = other_code(path)
    today = {
        done["id"]: from_figures(now)
        for number, (done, now) in enumerate(pairs(path)) if number not in left}
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        cell["source"] = today.get(cell["id"], cell["source"])
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    "Refresh all; a line for each notebook that would have to be run again."
    for path in sorted((ROOT / "figures").glob("*.ipynb")):
        if ".failed." in path.name: continue
        refresh(path)
        told = printed(path) == printed(experiment_of(path))
        if not told and not stale(path) and not given_to(path):
            show(path)
        if stale(path):
            print(f"{path.stem}: other code in cells {other_code(path) or 'of another number'}")


if __name__ == "__main__":
    sys.exit(main())
