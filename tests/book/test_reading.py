"""Every chapter and tutorial opens with its question and a picture, and ends with what to take away, what to try and where to read on; a project has its task and a solution."""
import re
from collections import Counter
from itertools import pairwise

import nbformat
import pytest
from conftest import CHAPTERS, ROOT

TUTORIALS = sorted((ROOT / "nbs" / "tutorials").glob("*.ipynb"))
PROJECTS = sorted((ROOT / "nbs" / "projects").glob("*.ipynb"))
PARTS = sorted({path.parent.name for path in CHAPTERS})


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


def lacks_as_project(path):
    "What the project at `path` lacks, in words."
    cells = nbformat.read(path, as_version=4).cells
    text = "\n\n".join(c.source for c in cells if c.cell_type == "markdown")
    task, _, solution = text.partition("\n## A solution\n")
    code = [c.cell_type == "code" and re.search(r"^#\| *hide", c.source) is None for c in cells]
    begin = next((i for i, c in enumerate(cells) if "## A solution\n" in c.source), 0)
    links = re.findall(r"(?<!!)\[[^\]]+\]\(([^)#:]+\.ipynb)[^)]*\)", text)
    wanted = {
        "8 to 14 cells": 8 <= len(cells) <= 14,
        "a first cell that is '# Project: title' and '> the question'": re.match(r"# Project: \S.*\n\n> \S.*\S\?", cells[0].source),
        "'## What you need' with a link to a chapter": re.search(r"^## What you need\n[^#]*\]\(\.\./\w+/\d\d_\w+\.ipynb", task, re.M),
        "'## The task' in at least three steps": len(items(task, "The task")) >= 3,
        "'Stop here and try' before the solution": "Stop here and try" in task,
        "'## A solution' with code, and none before it": begin and any(code[begin:]) and not any(code[:begin]),
        "an assertion": any("assert " in c.source for c in cells if c.cell_type == "code"),
        "'## Where to go from here' with two extensions": len(items(solution, "Where to go from here")) >= 2,
        "links to notebooks that exist": all((path.parent / link).exists() for link in links),
    }
    return [part for part, there in wanted.items() if not there]


@pytest.mark.parametrize("path", PROJECTS, ids=lambda p: p.stem)
def test_project_has_its_parts(path): assert not lacks_as_project(path)


def test_parts_with_projects_have_two():
    parts = Counter(next(part for part in PARTS if path.stem.startswith(f"{part}_")) for path in PROJECTS)
    assert min(parts.values()) >= 2, parts


def test_what_a_project_lacks_is_noticed(tmp_path):
    words = nbformat.v4.new_markdown_cell("# A project\\n\\n> No question.\\n\\n## The task\\n\\n1. One [thing](nowhere.ipynb).")
    page = nbformat.v4.new_notebook(cells=[words, nbformat.v4.new_code_cell("x = 1")])
    nbformat.write(page, tmp_path / "page.ipynb")
    assert len(lacks_as_project(tmp_path / "page.ipynb")) == 9


def test_what_is_missing_is_noticed(tmp_path):
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text) for text in (
        "# Title\n\nNo question", *["words"] * 7, "![late](picture.png)", "## What to take away\n\n## Try it\n\n- one thing\n\nNext: [nowhere](nowhere.ipynb).")])
    nbformat.write(page, tmp_path / "page.ipynb")
    assert len(lacks(tmp_path / "page.ipynb", within=8)) == 5


LINK = re.compile(r"(?<!!)\[([^\[\]]+)\]\((?:[\w./]*/)?(\w+)\.ipynb(?:#[^)]*)?\)")
TITLES = {nbformat.read(path, as_version=4).cells[0].source.splitlines()[0].removeprefix("# ").lower(): path.stem for path in CHAPTERS}


def misnamed(stem, text):
    """Links in the text of a notebook that name another chapter than they lead to: by number, by title, or as the next or the last one."""
    order, wrong = sorted(path.stem for path in CHAPTERS), []
    for words, target in LINK.findall(text):
        name = words.lower()
        number = re.search(r"(?:^|\bchapters? )(\d\d)(?!\w|,\d)", name)
        step = {"the next chapter": 1, "the next one": 1, "the last chapter": -1}.get(name)
        if number: named = [other for other in order if other.startswith(f"{number[1]}_")]
        elif step and stem in order: named = order[order.index(stem) + step:][:1]
        else: named = [TITLES.get(name, target), name]
        if target not in named: wrong.append(f"[{words}] leads to {target}")
    return wrong


@pytest.mark.parametrize("path", [*sorted((ROOT / "nbs").glob("**/[!.]*.ipynb")), *ROOT.glob("*.md")], ids=lambda p: p.stem)
def test_links_name_the_chapter_they_lead_to(path):
    text = path.read_text() if path.suffix == ".md" else "\n\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")
    assert not misnamed(path.stem, text)


def test_a_link_to_another_chapter_is_noticed():
    text = """[34](38_account.ipynb), [chapter 66](../learning/68_training.ipynb#A-b), [Chapters 52](53_strategies.ipynb), [10 Graphs](11_gossip.ipynb),
    [the account](35_report.ipynb), [the next chapter](30_reactions.ipynb), [The last chapter](34_overheard.ipynb)"""
    assert len(misnamed("38_account", text)) == 7
    right = "[38](38_account.ipynb), [chapter 68](../learning/68_training.ipynb#A-b), [the next chapter](39_online.ipynb), [The account](38_account.ipynb)"
    assert not misnamed("38_account", right) and not misnamed("index", "[audit](experiments/audit.ipynb), [37,700 nodes](large.ipynb)")


def test_each_chapter_leads_to_the_next():
    "In the order of the site: parts as its contents have them, and chapters by number."
    parts = re.findall(r"^(\w+)/\*$", (ROOT / "docs" / "contents.md").read_text(), re.M)
    order = [path for part in parts for path in CHAPTERS if path.parent.name == part]
    assert sorted(order) == CHAPTERS
    for path, following in pairwise(order):
        leads = re.findall(r"^Next: \[[^\]]+\]\(([^)]+)\)", nbformat.read(path, as_version=4).cells[-1].source, re.M)
        assert [(path.parent / lead).resolve() for lead in leads] == [following.resolve()], path.stem
