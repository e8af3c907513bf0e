"""List the links that lead forward in the core, `python tools/links.py`: from a chapter to a later one, but for its line 'Next'."""
import json
import re
from pathlib import Path

NOTEBOOKS = Path(__file__).parent.parent / "nbs"
LINK = re.compile(r"\]\((?:[\w.]+/)*(\d\d)_\w+\.ipynb")


def forward(number: int, text: str) -> set[int]:
    """The later chapters that the text of chapter `number` leads to."""
    read = re.sub(r"^Next: .*", "", text, flags=re.M)
    return {int(target) for target in LINK.findall(read) if int(target) > number}


def forward_links(notebooks: Path = NOTEBOOKS) -> set[tuple[int, int]]:
    """All of the core, as (chapter, later chapter)."""
    found = set()
    for path in notebooks.glob("*/[0-9][0-9]_*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        found |= {(int(path.name[:2]), target) for target in forward(int(path.name[:2]), text)}
    return found


if __name__ == "__main__":
    found = sorted(forward_links())
    for chapter, target in found: print(f"{chapter:02} leads forward to {target:02}")
    print(f"{len(found)} in all")
