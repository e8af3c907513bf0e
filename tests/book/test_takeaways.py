"""Each sentence of 'What to take away' has a check in its chapter: beneath a comment that quotes it, a statement that fails when it is not so. Pictures are sharp."""
import ast
import re

import nbformat
import pytest
from conftest import CHAPTERS
from test_reading import TUTORIALS, items

CONVERTED = (  # parts, or single chapters, whose takeaways are all checked
    "00_arguments",
    "01_files",
    "02_downloads",
    "03_randomness",
    "10_graphs",
    "11_gossip",
    "12_workloads",
    "13_steps",
    "14_protocol",
    "15_algorithms",
    "16_streams",
    "17_attackers",
    "18_participation",
    "19_factorization",
    "20_privacy",
    "21_shifts",
    "22_solver",
    "23_sensitivities",
    "24_theorem8",
    "25_exact",
    "26_state_space",
    "27_filters",
    "28_streaming",
    "29_paths",
    "30_reactions",
    "31_signed",
    "32_promises",
    "33_seen",
    "34_overheard",
    "35_report",
    "36_chance",
    "37_schedules",
    "38_account",
    "39_online",
    "40_exposure",
    "41_earlier",
    "42_rare",
    "43_bins",
    "44_truncated",
    "48_objectives",
    "49_lean",
    "50_certificates",
    "51_gram",
    "52_newton",
    "53_strategies",
    "54_covariance",
    "55_coalitions",
    "56_space_time",
    "57_directions",
    "58_insiders",
    "59_kinds",
    "60_data",
    "61_linear",
    "62_layers",
    "63_clipping",
    "64_noise_sources",
    "65_learner",
    "66_simulator",
    "67_checking",
    "68_training",
    "71_insiders_attack",
    "72_one_run",
    "74_reconstruction",
    "75_threats",
    "94_lots_attacked",
    "73_faults",
    "70_auditing",
    "76_reference",
    "69_claims",
    "77_answers",
    "78_journal",
    "79_network",
    "80_distributed",
    "81_experiments",
    "82_grids",
    "83_sweeps",
    "84_names",
    "85_cli",
    "86_settings",
    "90_noise_commands",
    "87_view",
    "88_explorer",
    "89_import",
    "91_logs",
    "93_intervals",
    "92_opacus",
    "04_figures",
    "06_cards",
    "07_characters",
    "05_links",
    "first_run",
    "tutorials",
)
ADVICE = {  # chapter: beginnings of sentences that state no fact: advice, a pointer, a question left open
}

PAGES = [*CHAPTERS, *TUTORIALS]
COMMENT = re.compile(r"\s*# takeaway: (.+)")
CHECKS = re.compile(r"(test_|assert_|expect_fail)")


def plain(text):
    "A text without the marks of markdown: links by their words, and no stars, backticks and dollars."
    return " ".join(re.sub(r"[*`$]", "", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)).split())


def takeaways(cells):
    "The sentences of the list of what to take away."
    listed = items("\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown"), "What to take away")
    bullets = [plain(re.sub(r"^(?:[-*]|\d+\.) +", "", item)) for item in listed]
    return [sentence for bullet in bullets for sentence in re.split(r"(?<=[.!?])\s+(?=\S)", bullet)]


def checks(source):
    "The lines with an assertion: `assert` of what is computed, or a call such as test_eq."
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert) and any(isinstance(part, ast.Name) for part in ast.walk(node.test)): yield node.lineno
        if isinstance(node, ast.Call) and CHECKS.match(getattr(node.func, "id", getattr(node.func, "attr", ""))) and (node.args or node.keywords): yield node.lineno


def quotes(cells):
    "What is quoted in comments, and whether what stands beneath (up to the next such comment) can fail and is seen by the reader."
    found = []
    for cell in cells:
        if cell.cell_type != "code" or "# takeaway: " not in cell.source: continue
        lines = [(number, match[1]) for number, line in enumerate(cell.source.splitlines(), 1) if (match := COMMENT.match(line))]
        ends = [number for number, _ in lines[1:]] + [len(cell.source)]
        hidden = re.search(r"^#\| *(hide|export|eval: *false)", cell.source, re.M) is not None
        for (number, words), end in zip(lines, ends, strict=True):
            beneath = any(number < line < end for line in checks(cell.source))
            found.append((plain(words).strip(". "), beneath and not hidden))
    return found


def unchecked(cells, advice=()):
    "What is wrong with the takeaways of a chapter, in words."
    sentences, quoted, wrong = takeaways(cells), quotes(cells), []
    for words, checked in quoted:
        if len(words.split()) < 3: wrong.append(f"quotes less than three words: {words!r}")
        elif sum(words in sentence for sentence in sentences) != 1: wrong.append(f"is not in exactly one sentence: {words!r}")
        elif not checked: wrong.append(f"no check that the reader sees beneath the comment: {words!r}")
    wrong += [f"no takeaway begins so: {words!r}" for words in advice if sum(s.startswith(plain(words)) for s in sentences) != 1]
    excused = [s for s in sentences if any(s.startswith(plain(words)) for words in advice)]
    return wrong + [f"no check: {s!r}" for s in sentences if s not in excused and not any(words in s for words, checked in quoted if checked)]


def is_converted(path): return path.parent.name in CONVERTED or path.stem in CONVERTED


@pytest.mark.parametrize("path", [*filter(is_converted, PAGES)], ids=lambda p: p.stem)
def test_takeaways_are_checked(path):
    assert not unchecked(nbformat.read(path, as_version=4).cells, ADVICE.get(path.stem, ()))


def dots(cells):
    "Dots an inch of the pictures of a chapter, where a cell gives the size in inches."
    for cell in cells:
        inches = re.search(r"figsize=\(([\d.]+), ", cell.source)
        for out in cell.get("outputs", []) if inches else ():
            size = re.match(r"<Figure size (\d+)x", out.get("data", {}).get("text/plain", ""))
            if size: yield int(size[1]) / float(inches[1])


@pytest.mark.parametrize("path", [*filter(is_converted, PAGES)], ids=lambda p: p.stem)
def test_pictures_are_sharp(path):
    assert all(found > 109 for found in dots(nbformat.read(path, as_version=4).cells))


def test_what_is_said_to_be_converted_exists():
    names = {path.stem for path in PAGES} | {path.parent.name for path in PAGES}
    assert set(CONVERTED) <= names and set(ADVICE) <= {path.stem for path in PAGES if is_converted(path)}


def page(*sources):
    "A chapter of code cells, with three sentences to take away."
    ending = "## What to take away\n\n- `W` has *two* rows and [one](10_graphs.ipynb) column. Its first entry is $x$.\n- Use it with care.\n\n## Try it\n"
    return [*map(nbformat.v4.new_code_cell, sources), nbformat.v4.new_markdown_cell(ending)]


def test_a_takeaway_without_a_check_is_noticed():
    rows, entry = "W = np.eye(2)\n# takeaway: has two rows and one column\ntest_eq(W.shape, (2, 1))", "# takeaway: Its first entry is $x$.\nfor w in W:\n    assert w[0] == x"
    assert takeaways(page()) == ["W has two rows and one column.", "Its first entry is x.", "Use it with care."]
    assert not unchecked(page(rows, entry), ["Use it with"])
    assert not unchecked(page(f"{rows}\n{entry}"), ["Use it with"])
    assert unchecked(page(rows), ["Use it with"]) == ["no check: 'Its first entry is x.'"]
    assert len(unchecked(page())) == 3
    for wrong in (entry.replace("w[0] == x", "True"), entry.replace("assert ", ""), "#| hide\n" + entry,  # what cannot fail, or is not seen
                  "assert x == 1\n# takeaway: Its first entry is x\nx = 2",  # the check stands above
                  "# takeaway: Its first entry is x\n" + rows):  # the check is of another sentence
        assert len(unchecked(page(*([] if rows in wrong else [rows]), wrong), ["Use it with"])) == 2
    for stale in ("# takeaway: has three rows\ntest_eq(1, x)", "# takeaway: it\ntest_eq(1, x)"):
        assert len(unchecked(page(rows, entry, stale), ["Use it with"])) == 1
    assert unchecked(page(rows, entry), ["Use it with", "Never use"]) == ["no takeaway begins so: 'Never use'"]


