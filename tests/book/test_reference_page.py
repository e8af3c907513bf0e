"""The page of symbols, words and departures: its links lead somewhere, and every departure to a check."""
import re

import nbformat
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


def faults(row):
    """What is wrong with the links of a departure, in words."""
    links = LINK.findall(row[-1] + "|")
    if not links: yield f"{row[0][:40]}: no link in {row[-1]!r}"
    for path, anchor in links:
        cells = section(path, anchor or None)
        if not cells: yield f"{row[0][:40]}: {path} has no heading {anchor!r}"
        elif not checks(cells): yield f"{row[0][:40]}: {path}#{anchor} checks nothing"


def test_departures_lead_to_checks():
    departures = [row for row in rows("Departures") if row[-1] != "check"]
    wrong = [fault for row in departures for fault in faults(row)]
    assert len(departures) > 20 and not wrong, "\n".join(wrong)


def test_entries_lead_to_chapters():
    for heading in ("Symbols", "Words"):
        first, *entries = rows(heading)
        wrong = [entry for entry in entries if len(entry) != len(first) or not LINK.findall(entry[-1] + "|")]
        wrong += [entry for entry in entries if not all((FOLDER / path).exists() for path, _ in LINK.findall(entry[-1] + "|"))]
        assert len(entries) > 20 and not wrong, wrong


def test_words_are_sorted_and_defined_once():
    words = [row[0] for row in rows("Words")[1:]]
    assert words == sorted(set(words), key=str.lower)


def test_a_wrong_link_is_noticed():
    assert not section("../accounting/24_theorem8.ipynb", "No-such-heading") and not checks(section("../index.ipynb", "Licence"))
    for link in ("", "[24](../accounting/24_theorem8.ipynb#No-such-heading)", "[Licence](../index.ipynb#Licence)"): assert len(list(faults(["A departure", link]))) == 1
