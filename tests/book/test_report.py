"""The technical report: what it takes from the book is there, and every number in it was computed."""
import re
import shutil
import subprocess
import sys
from fractions import Fraction

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import cells
import report

OUTLINE = report.OUTLINE.read_text()


def typed_numbers(outline):
    """Digits in the prose of an outline that are neither a placeholder nor a reference: of a theorem, a paper or a year; and in formulas, more than 0, 1 or 2."""
    text = re.sub(r"^```python\n.*?^```\n", "", outline, flags=re.M | re.S).split("# References")[0]
    values = re.findall(r"\{value ([^{}]+)\}", text)
    text = re.sub(r"\{value [^{}]+\}", "", text)
    text = re.sub(r"^\{(include|box|figure|table)\} .*$", "", text, flags=re.M)
    text = re.sub(r"\]\([^)]*\)|\\(ref|label)\{\w+\}|\{#\w+\}|`[^`]*`", "", text)
    text = re.sub(r"\$\$.*?\$\$|\$.*?\$", lambda formula: re.sub(r"(?<![\d.])[012](?![\d.])", "", formula[0]), text, flags=re.S)
    text = re.sub(r"arXiv \d{4}\.\d{5}|\b20\d\d[ab]?\b|(Theorem|Lemma|Proposition|chapter|problem|node) \(?\d+\)?", "", text)
    return re.findall(r"\d[\d.,]*", text) + [value for value in values if not re.search(r"[A-Za-z_]", value.split(":")[0])]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return report.document(OUTLINE, tmp_path_factory.mktemp("report"))


def test_everything_that_the_outline_names_is_there(written):
    assert not re.search(r"\{value |^\{\w+\} |\.ipynb\)", written, re.M)
    assert len(re.findall(r"\\includegraphics", written)) == len(re.findall(r"^\{figure\}", OUTLINE, re.M))
    for picture in re.findall(r"\\includegraphics\[.*?\]\{(.*?)\}", written): assert open(picture, "rb").read(4) == b"\x89PNG"
    labels, references = (set(re.findall(pattern, written)) for pattern in (r"\\label\{(\w+)\}|\{#(\w+)\}", r"\\ref\{(\w+)\}"))
    assert references <= {first or second for first, second in labels}


def test_no_number_is_typed():
    assert typed_numbers(OUTLINE) == []


@pytest.mark.parametrize("text", ["It leaves 16% of the harm.", "The factor is {value 2.8:.1f}.", r"At $\varepsilon = 8$ it", "in 1,000 steps", r"$\mu = 0.25$"])
def test_a_typed_number_is_noticed(text):
    assert len(typed_numbers(text)) == 1
    assert not typed_numbers(r"Theorem 8 of Feldman et al. (2018), arXiv 1808.06651, with $\sigma = 1$: {value few:.2f}, Table \ref{claims1}")


def test_values_come_from_what_is_committed(written):
    """One of each part, read here by other means."""
    rows = [line.split(",") for line in (ROOT / "benchmarks" / "large.csv").read_text().splitlines()[1:]]
    largest = max(rows, key=lambda row: int(row[4]))
    assert f"in {float(largest[7]):.0f} seconds for a grown one of {int(largest[4]):,} nodes" in written
    assert cells.shown("accounting/13_flow_theorem#00000006") == (0.253, 0.361)
    assert r"$\mu =$ 0.253. With reactions that Huber losses can have, linear algebra gives 0.361" in written
    sites = (ROOT / "figures" / "consortium_complete_task-writers_size-3.csv").read_text().splitlines()
    mean, error = next((row[3], row[7]) for row in (line.split(",") for line in sites) if row[:3] == ["0", "2", "pairwise"])
    assert f"secrets of pairs & {100 * float(error):.1f} & {100 * float(mean):.1f} &" in written
    bound = next(row[4] for row in (line.split(",") for line in (ROOT / "figures" / "story_florentine.csv").read_text().splitlines()) if row[:2] == ["squared error", "space-time"])
    assert f"no noise could leave less than {100 * cells.down(float(bound), 3):.1f}%" in written
    claims = (ROOT / "figures" / "claims.csv").read_text().splitlines()[1:]
    confirmed, false = (sum(line.endswith(f",{verdict}") for line in claims) for verdict in ("confirmed", "false as stated"))
    assert f"of {len(claims)} claims of both works {confirmed} are confirmed" in written and f"{false} are false as stated" in written


def test_numbers_are_found_in_cells_records_and_pages():
    assert cells.found(r"the optimum: (\S+)", "noise/methods/spectral#00000011") == [[0.2243]]
    assert cells.found(r"2 curious, 0% missing: pairwise above mafalda by (\S+) points", "figures/consortium_complete_task-writers_size-3.json") == [[10.77]]
    assert cells.found(r"in (\d+) steps for (\d+) nodes", "benchmarks/pairwise.md") == [[320, 50]]


def test_the_report_has_its_five_parts_and_few_figures():
    parts = ["Exact accounts of a million nodes", "The flow theorem, and when it holds", "Noise that survives curious participants",
             "Certificates", "An honest reproduction", "What we do not know"]
    assert [title for title in re.findall(r"^# (.+?) \{#", OUTLINE, re.M) if title in parts] == parts
    assert len(re.findall(r"^\{(figure|box)\}", OUTLINE, re.M)) <= 5


def test_what_is_cited_is_listed_and_what_is_listed_is_cited():
    body, listed = re.sub(r"^```python\n.*?^```\n", "", OUTLINE, flags=re.M | re.S).split("# References {-}")
    cited = set(re.findall(r"([A-Z][\w-]+(?: [A-Z]\w+)?)(?: and \w+| et al\.)? \(?(20\d\d[ab]?)\b", body))
    works = [line for line in re.findall(r"^[A-Z].*\.$", listed, re.M) if "**" not in line]
    first = [(re.match(r"(?:[A-Z][\w-]*\. )+(.+?)[,.] ", line)[1], re.findall(r"20\d\d[ab]?", line)) for line in works]
    assert len(works) > 10 and all(any(name == one and year in years for one, years in first) for name, year in cited)
    assert all(any(name == one and year in years for name, year in cited) for one, years in first)


def test_links_become_titles(written, tmp_path):
    links = "[](../nbs/accounting/12_account.ipynb), [the theorem](../nbs/accounting/13_flow_theorem.ipynb#attack-it) and [](../nbs/accounting/methods/signed.ipynb)"
    text = report.document(f"See {links}.\n\n{{table}} chapters()\nAll.", tmp_path)
    assert text.startswith("See *The account*, chapter 12, the theorem (chapter 13) and *Updates of smooth convex losses*.")
    assert r"12 & The account \\" in text and r"13 & The flow theorem \\" in text and "& Updates" not in text


@pytest.mark.parametrize(("outline", "said"), [
    ("{value nothing}", "{value nothing}: NameError"),
    ("{value float('nan'):.2f}", "is 'nan'"),
    ("{include} accounting/13_flow_theorem#nowhere", "has no cell with this id or tag"),
    ("{include} accounting/nowhere#00000000", "there is no nbs/accounting/nowhere.ipynb"),
    ('{include} accounting/13_flow_theorem#00000000 from "never said"', "does not say 'never said'"),
    ("{include} accounting/12_account#acc00006", "has no room for a table"),
    ("{figure} accounting/13_flow_theorem#00000000\nA picture.", "has no output image/png"),
    ("{figure} figures/nowhere.png\nA picture.", "there is no such picture"),
    ("{box} accounting/13_flow_theorem#00000000\nA box.", "has no displayed equation"),
    ("[](../nbs/accounting/nowhere.ipynb)", "there is no such notebook"),
    ('```python\nfound(r"no such (\\d+)", "accounting/methods/best_plans#00000012")\n```\n', "neither its code nor what it prints"),
])
def test_what_is_missing_is_named(outline, said, tmp_path):
    with pytest.raises(ValueError, match=re.escape(said)): report.document(outline, tmp_path)


def test_a_sentence_that_is_not_so_stops_the_report(tmp_path):
    with pytest.raises(AssertionError): report.document("```python\nassert table('figures/claims.csv').measured.max() < 0\n```\n", tmp_path)


@pytest.mark.parametrize("x", [0.1552, 0.29, 1e-6, 1.0000000000000002, 3.554153, 0.0, 1.5e-12, 249.97])
def test_bounds_are_rounded_to_their_safe_side(x):
    exact = Fraction(repr(x))
    for digits in (0, 1, 2, 3):
        low, high = (Fraction(repr(side(x, digits))) for side in (cells.down, cells.up))
        assert low <= exact <= high and high - low <= Fraction(1, 10**digits) and (low == high) == (exact * 10**digits == int(exact * 10**digits))
    if x:
        mantissa, exponent = re.fullmatch(r"\$(\d) \\times 10\^\{(-?\d+)\}\$", cells.power_up(x)).groups()
        assert exact <= int(mantissa) * Fraction(10)**int(exponent) < 2 * exact


def test_lower_bounds_in_the_outline_are_rounded_down_and_upper_bounds_up():
    """A bound is known by the words before it."""
    wrong = [words for words, value in re.findall(r"([^.{}]{0,60}?)\{value ([^{}]+)\}", OUTLINE)
             if re.search(r"(no less than|at least|less than|unavoidable) (a factor of )?$", words) and not value.startswith("down(")
             or re.search(r"(at most|\\le\$|comes within) (a factor of |a gap of )?$", words) and not re.match(r"up\(|power_up\(", value)]
    assert not wrong


def test_tables_keep_decimals_and_escape_what_is_special():
    text = report.tabular(cells.pd.DataFrame({"a_b": [0.25, 1.0], "50%": ["x^2", "$\\mu_1$"]}, ["one & two", "three"]), "")
    assert r" & a\_b & 50\% \\" in text and r"one \& two & 0.25 & x\^{}2 \\" in text and r"three & 1.00 & $\mu_1$ \\" in text


def test_without_latex_one_line_says_what_to_install(tmp_path):
    told = subprocess.run([sys.executable, ROOT / "tools" / "report.py"], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert told.returncode == 1 and told.stderr.count("\n") == 1 and "apt-get install pandoc texlive-latex-extra" in told.stderr


@pytest.mark.skipif(not all(map(shutil.which, report.NEEDED)), reason="needs pandoc and pdflatex")
def test_report_is_built(tmp_path):
    """Half an hour's reading, on pages on which everything has room and every reference leads somewhere."""
    made = report.build(tmp_path / "made")
    log = made.with_suffix(".log").read_text(errors="replace")
    assert made.read_bytes().startswith(b"%PDF") and 7 <= int(re.search(r"report\.pdf \((\d+) pages", log)[1]) <= 10
    assert not re.findall(r"Overfull \\hbox.*|.*undefined.*|Missing character.*", log)
