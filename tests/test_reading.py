"""Every chapter and tutorial opens with its question and a picture, and ends with what to take away, what to try and where to read on."""
import re

import nbformat
import pytest
from conftest import CHAPTERS, ROOT

TUTORIALS = sorted((ROOT / "nbs" / "tutorials").glob("*.ipynb"))


def is_picture(cell):
    "Whether a cell shows an image, or embeds one."
    if cell.cell_type == "markdown": return re.search(r"!\[[^\]]*\]\([^)]+\)", cell.source) is not None
    return any(kind.startswith("image/") for out in cell.get("outputs", []) for kind in out.get("data", {}))


def items(text, heading):
    "The items of the list under a heading."
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return re.findall(r"^(?:[-*]|\d+\.) +\S.*", found[1], re.M) if found else []


def lacks(path, within):
    "What the notebook at `path` lacks, in words; the first picture has to be among the first `within` cells."
    cells = nbformat.read(path, as_version=4).cells
    ending = "\n\n".join(c.source for c in cells if c.cell_type == "markdown")
    links = re.findall(r"(?<!!)\[[^\]]+\]\(([^)#:]+\.ipynb)[^)]*\)", ending.partition("## What to take away")[2])
    wanted = {
        "a first cell that is '# Title' and '> the question'": re.match(r"# \S.*\n\n> \S.*\S\?", cells[0].source),
        f"a picture among its first {within} cells": any(map(is_picture, cells[:within])),
        "'## What to take away' with a list": items(ending, "What to take away"),
        "'## Try it' with two things to try": len(items(ending, "Try it")) >= 2,
        "after that, a link to where one reads on": links,
        "links to notebooks that exist": all((path.parent / link).exists() for link in links),
    }
    return [part for part, there in wanted.items() if not there]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_chapter_has_its_parts(path): assert not lacks(path, within=8)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_tutorial_has_its_parts(path): assert not lacks(path, within=6)


def test_what_is_missing_is_noticed(tmp_path):
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text) for text in (
        "# Title\n\nNo question", *["words"] * 7, "![late](picture.png)", "## What to take away\n\n## Try it\n\n- one thing\n\nNext: [nowhere](nowhere.ipynb).")])
    nbformat.write(page, tmp_path / "page.ipynb")
    assert len(lacks(tmp_path / "page.ipynb", within=8)) == 5
