"""Write README.md, or the path that is given, from the cells of nbs/index.ipynb that are tagged `readme`: `make readme`."""
import re
import sys
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parent.parent


def as_readme(index: nbformat.NotebookNode) -> str:
    "Its tagged cells, with links as they are from the folder above."
    tagged = [cell for cell in index.cells if "readme" in cell.metadata.get("tags", ())]
    text, _ = MarkdownExporter().from_notebook_node(nbformat.v4.new_notebook(cells=tagged))
    return re.sub(r"\]\((?![a-z]+:|#)([^)]+)\)", lambda link: f"]({moved(link[1])})", text)


def moved(link: str) -> str:
    "A path from nbs/, as it is from the folder above."
    return link.removeprefix("../") if link.startswith("../") else f"nbs/{link}"


if __name__ == "__main__":
    made = as_readme(nbformat.read(ROOT / "nbs" / "index.ipynb", as_version=4))
    Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "README.md").write_text(made)
