"""Write the tables of notebooks, in nbs/index.ipynb those of the core and in nbs/where.ipynb those of the shelves, from the notebooks themselves: `make contents`."""
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import peers

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "nbs"
PARTS = {
    "start": "A first run",
    "protocol": "Protocols: what a run is",
    "accounting": "Accounting: who learns how much",
    "noise": "Noise: how little will do",
    "learning": "Learning: from a budget to a model",
    "evidence": "Evidence: is it true?",
}
SHELVES = {f"{part}/methods": f"Methods of {part}" for part in PARTS if part != "start"} | {
    "tools": "Tools: how it is built", "base": "Base: what all of it stands on"}


def opening(path: Path) -> tuple[str, str]:
    "Title, with the number of a chapter, and question of a notebook."
    first = "".join(json.loads(path.read_text())["cells"][0]["source"])
    title, question = re.match(r"# (.+)\n\n> (.+)", first).groups()
    number = re.match(r"\d\d ", path.name.replace("_", " "))
    return (number[0] if number else "") + title, question


def module(path: Path) -> str:
    "The module that a notebook exports, if there is one."
    exported = re.search(r"#\| default_exp (\S+?)[\"\\\n]", path.read_text())
    return f"mfdl.{exported[1]}".removesuffix(".__init__") if exported else ""


def public(path: Path) -> str:
    "What `from mfdl import ...` gives of the module of a notebook."
    lines = (ROOT / "mfdl" / "__init__.py").read_text()
    exported = re.escape(module(path) or "nothing")
    names = re.findall(rf"^    from {exported} import (\w+)", lines, re.M)
    return ", ".join(f"`{name}`" for name in names)


def row(path: Path) -> str:
    "A notebook's row: title, module and public names, question."
    title, question = opening(path)
    exported = ": ".join(filter(None, [f"`{module(path)}`" * bool(module(path)), public(path)]))
    return f"| [{title}]({path.relative_to(NOTEBOOKS).as_posix()}) | {exported} | {question} |"


def tables(folders: dict[str, str], names: str) -> Iterator[str]:
    "The tables of some folders, each with its heading."
    for folder, heading in folders.items():
        rows = [row(path) for path in sorted((NOTEBOOKS / folder).glob(names))]
        head = [f"### {heading}", "", "| notebook | module | question |", "|---|---|---|"]
        yield "\n".join(head + rows)


def briefly(folder: str) -> str:
    "A shelf in one row: its notebooks, each with its public names."
    paths = sorted((NOTEBOOKS / folder).glob("[!.]*.ipynb"))
    links = [f"[{opening(path)[0]}]({path.relative_to(NOTEBOOKS).as_posix()})"
             + f" ({public(path)})" * bool(public(path)) for path in paths]
    return f"| {folder.partition('/')[0]} | {', '.join(links)} |"


def core() -> str:
    "The core, a part after the other, and the shelves in brief."
    shelves = ["### Methods, tools and base", "", "| part | notebooks |", "|---|---|"]
    shelves += map(briefly, SHELVES)
    return "\n\n".join([*tables(PARTS, "[0-9][0-9]_*.ipynb"), "\n".join(shelves)])


def shelves() -> str:
    "The shelves, one after the other."
    return "\n\n".join(tables(SHELVES, "[!.]*.ipynb"))


# where tables stand: what is before them, what is after them, and what makes them
PLACES = [
    (NOTEBOOKS / "index.ipynb", "## The chapters\n", "\nStart with chapter 01", core),
    (NOTEBOOKS / "index.ipynb", peers.SUMMARY, "\n</details>\n", peers.table),
    (NOTEBOOKS / "where.ipynb", "## The shelves\n", "\n## Experiments\n", shelves),
]


def rewritten(text: str, begin: str, end: str, made: Callable[[], str]) -> str:
    "The text of a cell with these tables in place of those that it has."
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{made()}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    for path, begin, end, made in PLACES:
        notebook = json.loads(path.read_text())
        cell = next(cell for cell in notebook["cells"] if begin in cell["source"])
        cell["source"] = rewritten("".join(cell["source"]), begin, end, made).splitlines(keepends=True)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
