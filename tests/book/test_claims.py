"""The table of claims: each verdict is a word of the rule and follows from its numbers, which are computed; each command exists, and the page shows every row."""
import ast
import re

import nbformat
import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from mfdl.tools.experiments import experiments

TABLE = pd.read_csv(ROOT / "figures" / "claims.csv").fillna({"except_for": "", "holds": ""})
CHAPTER, MEASURED = (nbformat.read(ROOT / "nbs" / "evidence" / name, as_version=4) for name in ("26_claims.ipynb", "methods/measured_claims.ipynb"))
VERDICTS = {"confirmed", "confirmed in part", "false as stated", "not confirmed", "not reproduced", "not tried"}
ABOUT_ALL = re.compile(r"\b(?:every|all|always|any|regardless|tightest)\b")


def plausible(row):
    """The verdicts that the least and the largest of the cases allow."""
    if np.isnan(row.measured): return {"not tried"} if row.on_what.startswith("nothing: ") else {"not reproduced"} if row.on_what.startswith("no case: ") else set()
    inside = [row.least - 1e-9 <= value <= row.most + 1e-9 for value in (row.low, row.high)]
    if all(inside): return {"confirmed"}
    if row.high < row.least or row.low > row.most: return {"not confirmed", "false as stated"}
    return {"confirmed in part", "false as stated"} if any(inside) else {"confirmed in part", "false as stated", "not confirmed"}


def test_there_are_forty_claims_of_both_papers_and_none_is_said_twice():
    assert len(TABLE) >= 40 and set(TABLE.paper) == {"U", "C"} and set(TABLE.verdict) == VERDICTS
    assert not TABLE.duplicated(["paper", "place", "claim", "on_what"]).any()


def test_the_chapter_explains_every_verdict():
    rule = next(cell.source for cell in CHAPTER.cells if cell.source.startswith("## The rule"))
    assert {word.lower() for word in re.findall(r"^- \*(.+?)\*:", rule, re.M)} == VERDICTS


def follows(row):
    """Whether the verdict of a row, and what is said beside it, are those of its numbers."""
    measured = row.verdict in ("not tried", "not reproduced") or row.low <= row.measured <= row.high
    exceptions = row.verdict == "confirmed in part" or (row.verdict == "false as stated" and row.holds != "in no case that was tried")
    condition = row.holds.startswith("when ") or row.holds == "in no case that was tried"
    return row.verdict in plausible(row) and measured and bool(row.except_for) == exceptions and condition == (row.verdict == "false as stated")


def test_verdicts_follow_from_the_numbers():
    wrong = [f"{row.paper}, {row.place}: {row.claim}" for row in TABLE.itertuples() if not follows(row)]
    assert not wrong, "\n".join(wrong)


def test_one_counterexample_makes_a_claim_about_all_cases_false():
    """What is confirmed in part and speaks of all cases has no exception but ends of intervals, or means whose interval holds what was claimed."""
    for row in TABLE[(TABLE.verdict == "confirmed in part") & TABLE.claim.str.contains(ABOUT_ALL)].itertuples():
        if "is not said" in row.claim or re.match(r"\d+ of \d+ cases", row.except_for): continue
        cases = row.except_for.split("; ")
        assert all(re.search(r"\b(low|high) end\b", case) or any(case in end and end != case for end in cases) for case in cases), row.claim


def functions_of_the_rule():
    """The cell that turns cases into a row, run by itself."""
    space = {"np": np, "pd": pd}
    exec(next(cell.source for cell in MEASURED.cells if "def judged(" in cell.source), space)
    return space


def test_a_claim_about_all_cases_falls_with_a_case_and_its_whole_interval():
    judged = functions_of_the_rule()["judged"]
    interval = {"a": 0.5, "low end at a": 0.4, "high end at a": 0.6, "b": 2.0}
    def found(least, **more): return judged("U: 1", "all of them", "two cases", interval, least, **more)["verdict"]
    assert [found(least, universal=True) for least in (0.4, 0.45, 0.55)] == ["confirmed", "confirmed in part", "confirmed in part"]
    assert found(0.7, when=("b", ["b"])) == "false as stated" and found(0.7) == "confirmed in part" and found(3.0) == "not confirmed"
    with pytest.raises(AssertionError): found(0.7, when=("a", ["a"]))  # the condition does not help
    with pytest.raises(AssertionError): found(0.7, universal=True)  # no condition is given, though there is one
    assert found(3.0, universal=True) == "false as stated"


def test_confirmed_rows_have_a_computation():
    """Every row gets its cases from names or calls of the page; where a list is empty, the row says so."""
    calls = [node for cell in MEASURED.cells if cell.cell_type == "code" and "claims += [" in cell.source
             for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "judged"]
    values = [call.args[2 if isinstance(call.args[0], ast.Starred) else 3] for call in calls]
    typed = [node for node in values if not any(isinstance(part, ast.Name | ast.Call) for part in ast.walk(node))]
    assert all(ast.unparse(node) == "[]" for node in typed)
    empty = TABLE[TABLE.on_what.str.contains(r"^nothing: |^no case: ")]
    assert len(typed) <= len(empty) < len(calls) and not empty.verdict.str.startswith("confirmed").any()
    assert TABLE[TABLE.verdict.str.startswith("confirmed")].measured.notna().all()


def test_commands_name_experiments():
    for command in set(TABLE.command):
        named = re.findall(r"mfdl reproduce (\w+)", command)
        assert set(named) <= set(experiments()) and (named or command == "chapter 26"), command


def rows_shown(notebook):
    """The lines of the tables that a notebook shows, but for their heads."""
    shown = "".join(out.data["text/markdown"] for cell in notebook.cells for out in cell.get("outputs", []) if "text/markdown" in out.get("data", {}))
    return [line for line in shown.splitlines() if line.startswith("| ") and not line.startswith(("| place", "| paper"))]


def test_page_shows_every_row():
    lines = rows_shown(MEASURED)
    assert len(lines) == len(TABLE)
    for line, row in zip(lines, TABLE.itertuples(), strict=True):
        place, claim, limits, on_what, measured, verdict, command = [part.strip() for part in line.strip("|").split("|")]
        assert (place, claim, on_what, command) == (row.place, row.claim, row.on_what, f"`{row.command}`")
        assert verdict.split(";")[0] == row.verdict
        numbers = [float(word) for word in re.findall(r"-?(?:inf|[\d.]+(?:e[-+]\d+)?)", measured)]
        expected = [] if np.isnan(row.measured) else [row.measured, row.low, row.high][:1 if len(numbers) == 1 else 3]
        assert numbers == pytest.approx(expected, rel=5.1e-3, abs=1e-12)
        said = {sign: float(limit) for sign, limit in re.findall(r"([≥≤]) (\S+)", limits)}
        assert said.get("≥", 0 if row.least == 0 else -np.inf) == pytest.approx(row.least, rel=1e-3) and said.get("≤", np.inf) == pytest.approx(row.most, rel=1e-3)


def test_the_chapter_shows_main_rows_as_they_are():
    """Its one table is a part of the file: the same claims, limits, numbers and verdicts, of both papers and with each outcome that has numbers."""
    lines, seen = rows_shown(CHAPTER), []
    for line in lines:
        paper, claim, limits, measured, verdict = [part.strip() for part in line.strip("|").split("|")]
        row, = TABLE[(TABLE.paper == paper) & (TABLE.claim == claim)].itertuples()
        among = f" ({row.low:.3g} to {row.high:.3g})" if row.low < row.high else ""
        assert measured == f"{row.measured:.3g}{among}" and verdict == row.verdict + (f"; holds {row.holds}" if row.holds else "")
        said = {sign: float(limit) for sign, limit in re.findall(r"(at least|at most) (\S+)", limits)}
        assert said.get("at least", -np.inf) == pytest.approx(row.least, rel=1e-3) and said.get("at most", np.inf) == pytest.approx(row.most, rel=1e-3)
        seen.append((paper, claim, row.verdict))
    assert len({*seen}) == len(lines) >= 15 and {paper for paper, *_ in seen} == {"U", "C"} and {one[2] for one in seen} == VERDICTS - {"not tried", "not reproduced"}


def test_a_verdict_that_does_not_follow_is_noticed():
    row = TABLE[TABLE.verdict == "confirmed"].iloc[0]
    wrong = row.copy()
    wrong["low"] = wrong["high"] = wrong.least - 1
    assert plausible(wrong) == {"not confirmed", "false as stated"} and follows(row) and not follows(wrong)
    for column, value in (
        ("except_for", "one graph"), ("holds", "when it rains"), ("measured", row.high + 1), ("measured", np.nan), ("verdict", "false as stated"), ("verdict", "plausible"),
    ):
        changed = row.copy()
        changed[column] = value
        assert not follows(changed), column
