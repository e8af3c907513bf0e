"""The course: times as they are computed, minutes that fit, projects with solutions that print what is said; and the names of other tools are theirs."""
import json
import re
import runpy
from importlib import import_module

import nbformat
import networkx as nx
import numpy as np
import pytest
from conftest import ROOT
from scipy.stats import binom, norm

from mfdl import gossip_matrix

COURSE = runpy.run_path(str(ROOT / "tools" / "course.py"))
TEXT = (ROOT / "docs" / "course.md").read_text()
LECTURES = re.split(r"^## (?=\d)", TEXT.partition("## How to grade")[0], flags=re.M)[1:]


def test_times_of_reading_are_those_of_the_notebooks():
    assert COURSE["rewritten"](TEXT) == TEXT, "run make contents"
    assert COURSE["rewritten"](re.sub(r"(ipynb\)|together) \| \d+ \|", r"\1 | 7 |", TEXT)) == TEXT
    rows = re.findall(r"^\| \[.+?\.ipynb\) \| (\d+) \| (\d+) \|$", TEXT, re.M)
    assert len(rows) > 20 and all(int(ran) > 0 for _, ran in rows)


def test_a_minute_is_150_words_or_15_lines_or_a_figure(tmp_path):
    cells = [nbformat.v4.new_markdown_cell("word " * 300 + "$$x$$"), nbformat.v4.new_code_cell("x = 1\n\n" * 60), nbformat.v4.new_code_cell("#| hide\n" + "x = 1\n" * 600)]
    cells[1].outputs = [nbformat.v4.new_output("display_data", {"image/png": ""})]
    for extra, minutes in ((0, 10), (300, 15)):
        made = nbformat.v4.new_notebook(cells=[*cells, nbformat.v4.new_markdown_cell("word " * extra)])
        (tmp_path / "x.ipynb").write_text(json.dumps(made))
        assert COURSE["minutes"](tmp_path / "x.ipynb") == minutes  # 2 + 1 + 4 + 1, and 2


def test_a_lecture_is_90_minutes_and_its_reading_an_evening():
    assert len(LECTURES) == 6
    for lecture in LECTURES:
        assert sum(map(int, re.findall(r"^\| (\d+) \| [A-Z`]", lecture, re.M))) == 90
        assert 60 <= int(re.search(r"^\| together \| (\d+)", lecture, re.M)[1]) <= 180


def test_every_project_has_a_lecture_and_a_solution_that_prints_what_is_said():
    names = {path.stem for path in (ROOT / "nbs" / "projects").glob("[!.]*.ipynb")}
    assert names == {path.stem for path in (ROOT / "nbs" / "projects" / "solutions").glob("[!.]*.ipynb")}
    given = [re.findall(r"\(\.\./nbs/projects/(\w+)\.ipynb\) \(\[solution\]\(\.\./nbs/projects/solutions/(\w+)\.ipynb\)\)", lecture) for lecture in LECTURES]
    assert all(len(two) == 2 and all(project == solution for project, solution in two) for two in given)
    assert {project for two in given for project, _ in two} == names
    told = dict(re.findall(r"^\| \[.+?\]\(\.\./nbs/projects/solutions/(\w+)\.ipynb\) \| (.+) \|$", TEXT, re.M))
    assert {*told} == names
    for name, said in told.items():
        cells = nbformat.read(ROOT / "nbs" / "projects" / "solutions" / f"{name}.ipynb", 4).cells
        printed = "".join(output.get("text", "") for cell in cells if cell.cell_type == "code" for output in cell.outputs)
        number = r"(?<![\w.])\d+(?:\.\d+)?%?"
        assert {*re.findall(number, said)} <= {*re.findall(number, printed)} | {"16", "1", "24"}, name  # what is given, not found


def test_numbers_of_the_lectures():
    wrong = {}
    for draws in (20, 200):  # of one pair, and of ten
        low, middle, high = (binom.pmf(range(draws + 1), draws, norm.cdf(mu / 2)) for mu in (0.5, 1, 4))
        wrong[draws] = 1 - sum(p * low[:i].sum() * high[i + 1:].sum() for i, p in enumerate(middle))
    assert "in one case of three; with those of ten pairs, in 3 of 100" in TEXT and abs(wrong[20] - 1 / 3) < 0.01 and round(100 * wrong[200]) == 3
    means = [(np.linalg.matrix_power(gossip_matrix(nx.path_graph(3), weights), 200) @ [0, 0, 9]).round(9) for weights in ("metropolis", "uniform")]
    assert "(3 and 18/7.)" in TEXT and np.allclose(means, [[3] * 3, [18 / 7] * 3])


@pytest.mark.nightly
def test_twice_as_many_rounds_read_as_many_digits_as_is_said():
    page = nbformat.read(ROOT / "nbs" / "tutorials" / "your_model.ipynb", 4).cells
    setup, own, run = (next(cell.source for cell in page if cell.cell_type == "code" and sign in cell.source) for sign in ("import mfdl", "epochs = 10 ", "done = mfdl.train"))
    read = []
    for epochs in (10, 20, 40):
        names = {}
        exec("\n".join((setup, own.replace("epochs = 10 ", f"epochs = {epochs} "), run)), names)
        last = names["done"].history.query("metric == 'accuracy'").groupby("step").value.mean().iloc[-1]
        read.append(f"{last:.0%}")
    assert "(10, 20 and 40 rounds read {}, {} and {} of the digits.)".format(*read) in TEXT


def test_a_room_without_a_network_gets_what_setup_installs():
    setup = (ROOT / "Makefile").read_text()
    assert all(re.search(pattern, setup)[0] in TEXT for pattern in (r"'\.\[\S+\]'", r"'pip>=\S+'", "--group dev"))


def named(tool):
    """What the page for those who come from another tool calls by its name, in the first column of its table."""
    text = "\n".join(cell.source for cell in nbformat.read(ROOT / "nbs" / "tutorials" / "from_other_tools.ipynb", 4).cells if cell.cell_type == "markdown")
    table = re.search(rf"^\| in `{tool}` .*\n((?:\|.*\n)+)", text, re.M)[1]
    return [f"{tool}.{name}" for row in table.splitlines() for name in re.findall(r"`([\w.]+)`", row.split("|")[1])]


@pytest.mark.parametrize("tool", ["opacus", "flwr", "nvflare", "jax_privacy"])
def test_names_of_other_tools_are_theirs(tool):
    names = named(tool)
    assert names
    pytest.importorskip(tool, reason=f"{tool} is not installed: its names are looked up where it is")
    for name in names:
        parts, thing = name.split("."), None
        for i, part in enumerate(parts):
            if thing is not None and hasattr(thing, part): thing = getattr(thing, part)
            else: thing = import_module(".".join(parts[:i + 1]))
