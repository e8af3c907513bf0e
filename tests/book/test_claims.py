"""The table of claims: each verdict follows from its numbers, each command exists, and the page shows every row."""
import re

import nbformat
import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from mfdl.workshop.experiments import experiments

TABLE = pd.read_csv(ROOT / "figures" / "claims.csv").fillna({"except_for": ""})
PAGE = nbformat.read(ROOT / "nbs" / "evidence" / "69_claims.ipynb", as_version=4)
VERDICTS = {"confirmed", "confirmed with a condition", "not confirmed", "wrong", "not measured"}


def plausible(row):
    """The verdicts that the least and the largest of the cases allow."""
    if np.isnan(row.measured): return {"not measured"}
    inside = [row.least - 1e-9 <= value <= row.most + 1e-9 for value in (row.low, row.high)]
    if all(inside): return {"confirmed"}
    if row.high < row.least or row.low > row.most: return {"not confirmed", "wrong"}
    return {"confirmed with a condition"} if any(inside) else {"confirmed with a condition", "not confirmed", "wrong"}


def test_there_are_forty_claims_of_both_papers_and_none_is_said_twice():
    assert len(TABLE) >= 40 and set(TABLE.paper) == {"U", "C"} and set(TABLE.verdict) == VERDICTS
    assert not TABLE.duplicated(["paper", "place", "claim", "on_what"]).any()


def follows(row):
    """Whether the verdict of a row, and what is said beside it, are those of its numbers."""
    measured = row.verdict == "not measured" or row.low <= row.measured <= row.high
    conditional = bool(row.except_for) == (row.verdict == "confirmed with a condition")
    return row.verdict in plausible(row) and measured and conditional and row.on_what.startswith("nothing: ") == (row.verdict == "not measured")


def test_verdicts_follow_from_the_numbers():
    wrong = [f"{row.paper}, {row.place}: {row.claim}" for row in TABLE.itertuples() if not follows(row)]
    assert not wrong, "\n".join(wrong)


def test_commands_name_experiments():
    for command in set(TABLE.command):
        named = re.findall(r"mfdl reproduce (\w+)", command)
        assert set(named) <= set(experiments()) and (named or command == "chapter 69"), command


def test_page_shows_every_row():
    shown = "".join(out.data["text/markdown"] for cell in PAGE.cells for out in cell.get("outputs", []) if "text/markdown" in out.get("data", {}))
    lines = [line for line in shown.splitlines() if line.startswith("| ") and not line.startswith("| place")]
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


def test_a_verdict_that_does_not_follow_is_noticed():
    row = TABLE[TABLE.verdict == "confirmed"].iloc[0]
    wrong = row.copy()
    wrong["low"] = wrong["high"] = wrong.least - 1
    assert plausible(wrong) == {"not confirmed", "wrong"} and follows(row) and not follows(wrong)
    for column, value in (("except_for", "one graph"), ("on_what", "nothing: no data"), ("measured", row.high + 1), ("verdict", "wrong")):
        changed = row.copy()
        changed[column] = value
        assert not follows(changed), column
