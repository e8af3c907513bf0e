"""Write the tables of chapters in nbs/index.ipynb from the chapters themselves: `make contents`."""
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
INDEX = ROOT / "nbs" / "index.ipynb"
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
BEGIN = "## The chapters\n"
END = "\nExperiments rest on all of them"


def opening(path: Path) -> str:
    "The first cell of a notebook."
    return "".join(json.loads(path.read_text())["cells"][0]["source"])


def public(module: str) -> list[str]:
    "What `from mfdl import ...` gives of a module."
    lines = (ROOT / "mfdl" / "__init__.py").read_text()
    return re.findall(rf"^    from {re.escape(module)} import (\w+)", lines, re.M)


def row(path: Path) -> str:
    "A notebook's row: title (of a chapter with its number), module and public names, question."
    title, question = re.match(r"# (.+)\n\n> (.+)", opening(path)).groups()
    exported = re.search(r"#\| default_exp (\S+?)[\"\\\n]", path.read_text())
    module = f"mfdl.{exported[1]}".removesuffix(".__init__") if exported else ""
    names = ", ".join(f"`{name}`" for name in public(module)) if module else ""
    module = f"`{module}`" + f": {names}" * bool(names) if module else ""
    where = path.relative_to(INDEX.parent).as_posix()
    number = re.match(r"\d\d ", path.name.replace("_", " "))
    return f"| [{number[0] if number else ''}{title}]({where}) | {module} | {question} |"


def contents() -> str:
    "All tables: the core, a part after the other, then the shelves."
    tables = []
    for folder, heading in (PARTS | SHELVES).items():
        names = "[0-9][0-9]_*.ipynb" if folder in PARTS else "[!.]*.ipynb"
        rows = [row(path) for path in sorted((INDEX.parent / folder).glob(names))]
        head = [f"### {heading}", "", "| chapter | module | question |", "|---|---|---|"]
        tables.append("\n".join(head + rows))
    return "\n\n".join(tables)


def rewritten(text: str) -> str:
    "The index with these tables in place of those that it has."
    before, _, rest = text.partition(BEGIN)
    table, end, after = rest.partition(END)
    words = table.rpartition("|\n")[2]
    return f"{before}{BEGIN}\n{contents()}\n{words}{end}{after}"


def main() -> None:
    notebook = json.loads(INDEX.read_text())
    cell = next(cell for cell in notebook["cells"] if BEGIN in cell["source"])
    cell["source"] = rewritten("".join(cell["source"])).splitlines(keepends=True)
    INDEX.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
