"""The page of symbols, words and departures: its links lead somewhere, and every departure to a check."""
import re

import nbformat
import pytest
from conftest import ROOT

FOLDER = ROOT / "nbs" / "evidence"
PAGE = "\n\n".join(cell.source for cell in nbformat.read(FOLDER / "76_reference.ipynb", as_version=4).cells if cell.cell_type == "markdown")
LINK = re.compile(r"\]\(([\w./]+\.ipynb)(?:#([^)|]+?))?\)(?= *(?:\||,|$|\.))", re.M)


def rows(heading):
    """The rows of the tables between a heading and the next one of its kind, each as a list of cells; formulas hold no bars."""
    part = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)[1]
    lines = [line for line in part.splitlines() if line.startswith("|") and not re.match(r"\|[-| ]+\|$", line)]
    return [[text.strip() for text in line.strip("|").split("|")] for line in lines]


def section(path, anchor):
    """The cells of a notebook under the heading that an anchor names, up to the next one; all of them without an anchor."""
    inside, found = anchor is None, []
    for cell in nbformat.read(FOLDER / path, as_version=4).cells:
        headings = re.findall(r"^#+ (.+)$", cell.source, re.M) if cell.cell_type == "markdown" else []
        if headings and anchor: inside = anchor in [heading.strip().replace(" ", "-") for heading in headings]
        if inside: found.append(cell)
    return found


def checks(cells):
    """Whether code compares something with something, or shows both in a picture."""
    def shows(cell): return any("image/png" in out.get("data", {}) for out in cell.outputs)
    return any(re.search(r"\bassert\b|\btest_\w+\(|assert_allclose", cell.source) or shows(cell) for cell in cells if cell.cell_type == "code")


@pytest.mark.parametrize("row", [row for row in rows("Departures") if row[-1] != "check"], ids=lambda row: row[0][:40])
def test_departure_leads_to_a_check(row):
    links = LINK.findall(row[-1] + "|")
    assert links, f"no link in {row[-1]!r}"
    for path, anchor in links:
        assert (cells := section(path, anchor or None)), f"{path} has no heading {anchor!r}"
        assert checks(cells), f"{path}#{anchor} checks nothing"


@pytest.mark.parametrize("heading", ["Symbols", "Words"])
def test_entry_leads_to_a_chapter(heading):
    first, *entries = rows(heading)
    assert len(entries) > 20 and all(len(entry) == len(first) for entry in entries)
    for entry in entries: assert LINK.findall(entry[-1] + "|") and all((FOLDER / path).exists() for path, _ in LINK.findall(entry[-1] + "|")), entry


def test_words_are_sorted_and_defined_once():
    words = [row[0] for row in rows("Words")[1:]]
    assert words == sorted(set(words), key=str.lower)


def test_a_wrong_link_is_noticed():
    assert not section("../accounting/24_theorem8.ipynb", "No-such-heading") and not checks(section("../index.ipynb", "Licence"))
