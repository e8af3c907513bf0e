"""Run ruff, which may fail, and print places to look at, which never do: `make lint`."""
import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINE, CELL, FUNCTION, FIRST_PICTURE = 100, 60, 60, 8
REFERENCE = "symbols"  # the chapter with the table of symbols
PALETTE = "figures"  # the chapter that defines colours
A_LIST = r"\n+(?:[^#\n].*\n+)*?(?:[-*]|\d+\.) "
PARTS = {
    "a first cell with '# Title' and '> the question?'": r"\A# \S.*\n\n> \S.*\?",
    "'## What to take away' with a list": rf"^## What to take away{A_LIST}",
    "'## Try it' with a list": rf"^## Try it{A_LIST}",
    "a link to the next chapter": r"^Next: \[",
}
COLOR = re.compile(
    r"""["'](C\d|#[0-9A-Fa-f]{6}|red|blue|green|orange|purple|brown|pink|cyan|tab:\w+)["']""")
GREY = re.compile(r"#(..)\1\1", re.I)
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^$\n]+(?:\n[^$\n]+)*?)(?<!\\)\$", re.S)
NO_LETTER = re.compile(  # words in formulas, and what stands below a letter: a part of its name
    r"\\(?:text\w*|mathrm|operatorname\*?|begin|end|tag) *\{[^{}]*\}|_(?:\{[^{}]*\}|\\?\w)")
LETTER = re.compile(
    r"[A-Z]|\\(?:[Gg]amma|[Dd]elta|[Tt]heta|[Ll]ambda|[Pp]hi|[Pp]si|[Oo]mega|[Pp]i|[Ss]igma|alpha|"
    r"beta|eta|kappa|mu|nu|xi|rho|tau|chi|zeta|ell)(?![a-z])")
LINK = re.compile(r"(?<!!)\[(?:[Cc]hapters? )?(\d\d)\b(?!,\d)[^\]]*\]\((?:[\w./]*/)?(\w+)\.ipynb")


def letters(text: str) -> set[str]:
    """Capital and Greek letters in the formulas of a Markdown text, outside code."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)
    formulas = [shown or inline for shown, inline in FORMULA.findall(text)]
    spelled = (re.sub(r"\\[a-zA-Z]+", lambda m: m[0] if LETTER.fullmatch(m[0]) else " ",
                      NO_LETTER.sub(" ", formula)) for formula in formulas)
    return {letter for formula in spelled for letter in LETTER.findall(formula)}


def declared(text: str) -> set[str]:
    """Letters in the first column of the tables of a text."""
    return letters("\n".join(row[1] for row in re.finditer(r"^\|([^|]+)\|", text, re.M)))


def of_lines(source: str) -> Iterator[str]:
    """Lines that are too long, of code: the first sentence of a module is prose."""
    for line in source.splitlines():
        if len(line) > LINE and not line.startswith('"""'):
            yield f"a line of {len(line)} characters: {line.strip()[:50]!r}"


def of_code(source: str) -> Iterator[str]:
    """Long lines and long functions, docstrings aside."""
    yield from of_lines(source)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef): continue
        first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
        size = node.end_lineno - first.lineno + 1
        if size > FUNCTION:
            yield f"{node.name} has {size} lines"


def of_cell(source: str) -> Iterator[str]:
    """A long cell, docstrings aside, and colours that are not from the palette."""
    yield from of_code(source)
    lines = re.sub(r'""".*?"""|^\s*\n', "", source, flags=re.S | re.M).splitlines()
    if len(lines) > CELL:
        yield f"a cell of {len(lines)} lines: {lines[1][:50]!r}"
    colors = {color for color in COLOR.findall(source) if not GREY.fullmatch(color)}
    if colors:
        yield f"colours that are not from the palette: {', '.join(sorted(colors))}"


def is_picture(cell: dict) -> bool:
    """Whether a cell shows an image, or embeds one."""
    if cell["cell_type"] == "markdown": return "![" in "".join(cell["source"])
    kinds = {kind for out in cell.get("outputs", []) for kind in out.get("data", {})}
    return any(kind.startswith("image/") for kind in kinds)


def of_chapter(cells: list[dict], text: str, symbols: set[str]) -> Iterator[str]:
    """Parts that a chapter lacks, and letters that no table explains."""
    lacks = [part for part, pattern in PARTS.items() if not re.search(pattern, text, re.M)]
    if not any(map(is_picture, cells[:FIRST_PICTURE])):
        lacks.append(f"a picture among its first {FIRST_PICTURE} cells")
    yield from (f"lacks {part}" for part in lacks)
    unknown = letters(text) - symbols - declared(text)
    if unknown:
        yield f"letters that no table explains: {' '.join(sorted(unknown))}"


def of_links(text: str) -> Iterator[str]:
    """Links whose words have the number of another chapter."""
    for number, target in LINK.findall(text):
        if target[:2] != number:
            yield f"a link that says {number} leads to {target}"


def of_notebook(path: Path, symbols: set[str]) -> Iterator[str]:
    """All places of a notebook."""
    cells = json.loads(path.read_text())["cells"]
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    text = "\n\n".join(source for kind, source in sources if kind == "markdown")
    for kind, source in sources:
        if kind == "code" and path.stem != PALETTE: yield from of_cell(source)
    if re.match(r"\d\d_", path.name): yield from of_chapter(cells, text, symbols)
    yield from of_links(text)


def undocumented(package: Path) -> Iterator[str]:
    """Functions of `from mfdl import ...` whose docstrings lack what numpydoc asks for."""
    names = re.findall(r"from mfdl\.(\S+) import (\w+)", (package / "__init__.py").read_text())
    for module, name in sorted(set(names)):
        tree = ast.parse((package / f"{module.replace('.', '/')}.py").read_text())
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        if name not in functions: continue  # a class
        doc = ast.get_docstring(functions[name]) or ""
        lacks = [part for part in ("Parameters", "Returns") if f"{part}\n---" not in doc]
        if lacks: yield f"{module}.{name} has a docstring without {' and '.join(lacks)}"


def places(root: Path) -> Iterator[tuple[str, str]]:
    """Every place of the project, as (file, what there is to look at)."""
    notebooks = sorted((root / "nbs").glob("**/[!.]*.ipynb"))
    reference = next(path for path in notebooks if path.stem == REFERENCE)
    cells = json.loads(reference.read_text())["cells"]
    symbols = declared("\n".join("".join(cell["source"]) for cell in cells))
    for path in notebooks:
        for what in of_notebook(path, symbols): yield str(path.relative_to(root)), what
    for path in sorted([*root.glob("tools/*.py"), *root.glob("benchmarks/*.py")]):
        for what in of_code(path.read_text()): yield str(path.relative_to(root)), what
    for what in undocumented(root / "mfdl"): yield "mfdl", what


def main() -> int:
    status = subprocess.run([sys.executable, "-m", "ruff", "check", "."], cwd=ROOT).returncode
    found = list(places(ROOT))
    print(f"{len(found)} places to look at; none of them is a fault by itself")
    for file, what in found: print(f"  {file}: {what}")
    return status


if __name__ == "__main__":
    sys.exit(main())
