"""The page of symbols, words and departures: its links lead somewhere, and every departure to a check."""
import re

import nbformat
from conftest import ROOT

FOLDER = ROOT / "nbs" / "evidence" / "methods"
PAGE = "\n\n".join(cell.source for cell in nbformat.read(FOLDER / "symbols.ipynb", as_version=4).cells if cell.cell_type == "markdown")
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


def words_of(chapters):
    """The words of some chapters, text and code."""
    return set(re.findall(r"\w+", " ".join(cell.source for path in chapters for cell in nbformat.read(FOLDER / path, as_version=4).cells).lower().replace("_", " ")))


def test_words_are_used_in_the_chapters_they_lead_to():
    """Each part of an entry, or a word that begins like it, occurs in one of them."""
    for entry, *_, links in rows("Words")[1:]:
        known = words_of([path for path, _ in LINK.findall(links + "|")])
        for part in re.split(r", | \(|\)", entry):
            tokens = [token[:5].lower() for token in re.findall(r"\w{4,}", part)]
            assert not tokens or any(word.startswith(token) for token in tokens for word in known), (entry, part)


def test_numbers_of_both_versions_stand_here_and_nowhere_else():
    """Where U is named with a number of its version without FEMNIST, that is said in the table of this page."""
    table = {row[0]: row[1] for row in rows("Numbers in both versions")[1:]}
    assert {"Theorem 6", "Theorem 8", "Lemma 12", "Remark 13", "Lemma 14"} <= set(table)
    others = [name for cell in table.values() for name in re.findall(r"(?:Theorem|Lemma) \d+", cell)]
    assert others == ["Theorem 5", "Theorem 7", "Lemma 10", "Lemma 11"]
    named = re.compile(r"\b(" + "|".join(others) + r")\b(?!\.)")
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        if path.name == "symbols.ipynb" or "_proc" in path.parts: continue
        for cell in nbformat.read(path, as_version=4).cells: assert not named.search(cell.source), (path.name, cell.source)


def test_words_are_sorted_and_defined_once():
    words = [row[0] for row in rows("Words")[1:]]
    assert words == sorted(set(words), key=str.lower)


def test_a_wrong_link_is_noticed():
    assert not section("../../accounting/11_theorem8.ipynb", "No-such-heading") and not checks(section("../../index.ipynb", "Licence"))
    for link in ("", "[24](../../accounting/11_theorem8.ipynb#No-such-heading)", "[Licence](../../index.ipynb#Licence)"): assert len(list(faults(["A departure", link]))) == 1
