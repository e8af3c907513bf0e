"""Nothing beside the figures is stale: experiments have the code that made them and show what they show, titles say what the numbers say."""
import ast
import html
import json
import re
import runpy

import nbformat
import numpy as np
import pandas as pd
import pytest
from conftest import FIGURES, ROOT

from mfdl.tools.experiments import check_parameters, code_digest, experiment_parameters, result_stem


@pytest.fixture
def redraw(monkeypatch):
    """The tool that draws figures again."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    return runpy.run_path(str(ROOT / "tools" / "redraw.py"))


SHOW = runpy.run_path(str(ROOT / "tools" / "show.py"))
CODE_CELLS, EXPERIMENT_OF, GIVEN_TO = (SHOW[name] for name in ("code_cells", "experiment_of", "given_to"))


def read(path): return json.loads(path.read_text())


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_code_is_todays(path):
    today = [code_digest("".join(cell["source"])) for cell in CODE_CELLS(read(EXPERIMENT_OF(path)))]
    assert [cell["code"] for cell in read(path)["cells"]] == today, "run the experiment again, or python tools/redraw.py"


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_the_command_makes_the_figure_with_these_parameters(path):
    record, name = read(path), EXPERIMENT_OF(path).stem
    defaults = experiment_parameters(name)
    given = check_parameters(name, GIVEN_TO(record), defaults)
    assert record["command"].split()[:3] == ["mfdl", "reproduce", name] and result_stem(name, given, defaults) == path.stem
    assert {**record["parameters"], "output": ""} == defaults | given
    for suffix in (".csv", ".svg"): assert path.with_suffix(suffix).is_file()


@pytest.mark.parametrize("path", [path for path in FIGURES if not GIVEN_TO(read(path))], ids=lambda path: path.stem)
def test_experiment_shows_what_its_defaults_give(path):
    cells = CODE_CELLS(read(EXPERIMENT_OF(path)))
    told = ["".join(line for out in cell["outputs"] if out.get("name") == "stdout" for line in out["text"]).splitlines() for cell in cells]
    assert told[:-1] == [cell["printed"] for cell in read(path)["cells"][:-1]], "run the experiment again, and python tools/show.py"


@pytest.mark.parametrize("path", sorted((ROOT / "nbs" / "experiments").glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_program_can_read_it(path):
    nbformat.validate(read(path))


def lettering(path):
    """All words of a figure, in the order in which they are drawn; a title of two lines is one."""
    return " ".join(html.unescape(words).replace("- -", "--") for words in re.findall(r"<!-- (.+?) -->", path.with_suffix(".svg").read_text()))


def numbers(path): return pd.read_csv(path.with_suffix(".csv"))


def crossing(table, method, target):
    """Epsilon at which the loss of the last steps crosses the target for the first time, in words."""
    ended = table[(table.method == method) & table.late.notna() & np.isfinite(table.mu)]
    late = np.log(ended.groupby("epsilon").late.mean() / target)
    epsilons = np.log(late.index)
    for i, after in enumerate(late):
        if after <= 0: return f"at epsilon {np.exp(epsilons[i] - after * (epsilons[i] - epsilons[i - 1]) / (after - late.iloc[i - 1])):.2g}"
    return "at no budget"


def title_of_pndp(path, table):
    wide = table.pivot_table("renyi", ["attacker", "victim"], "method")
    return f": the exact loss is {np.median(wide.squared / wide.ours):.1f} times smaller (median)"


def title_of_covariance(path, table):
    harm = table[table.panel == "epsilon"].pivot(index="x", columns="method", values="harm_mean")
    return f"{(harm.corn / harm.ldp).iloc[0]:.2f} of independent noise"


def title_of_housing(path, table):
    names = {"identity": "independent", "mafalda": "MAFALDA"}
    return "Loss 1: " + ", ".join(f"{shown} {crossing(table, name, 1)}" for name, shown in names.items())


def title_of_quadratic(path, table):
    quiet = table[(table.variant == "read literally") & (table.panel == "epsilon") & (table.method == "no noise")]
    return f"Read literally, the gap is {np.exp(np.log(quiet.gap).mean()):.0f} without any noise"


def title_of_writers(path, table):
    mu = min(table.mu, key=lambda mu: abs(mu - 2))
    end = table[(table.step == table.step.max()) & (table.mu == mu)].groupby("method").accuracy.mean()
    return f"At {mu:g}-GDP: independent {end.identity:.0%}, MAFALDA {end.mafalda:.0%}"


def title_of_letters(path, table):
    end = table[table.step == table.step.max()].groupby("method").accuracy.mean()
    return f"At 1-GDP: independent {end.identity:.0%}, BSR {end.bsr:.0%}, MAFALDA {end.mafalda:.0%}"


def title_of_objectives(path, table):
    ended = table[(table.schedule == table.schedule.iloc[0]) & (table.judged == "last model")].pivot(index="seed", columns="method", values="loss")
    return f"BSR: {np.expm1(np.log(ended['last model'] / ended.BSR).mean()):+.1%} ("


def title_of_story(path, table):
    left = table[table.panel == "squared error"].set_index("noise").value
    return f"Noise in time and space leaves {left['space-time']:.0%} of the error"


def title_of_theorem6(path, table):
    return f"Noise covers {(table.exposed == 0).sum()} of {len(table)} pairs"


TITLES = {name.removeprefix("title_of_"): make for name, make in list(globals().items()) if name.startswith("title_of_")}


@pytest.mark.parametrize("path", [path for path in FIGURES if path.stem.split("_")[0] in TITLES], ids=lambda path: path.stem)
def test_numbers_in_titles_are_those_of_the_table(path):
    said = TITLES[path.stem.split("_")[0]](path, numbers(path))
    assert said in lettering(path), f"no title says {said!r}"


def test_other_panels_of_the_story_say_what_their_numbers_are():
    path = ROOT / "figures" / "story_florentine.json"
    table = numbers(path).set_index("noise")
    gained = 100 * table[table.panel == "accuracy above independent"].loc["space-time", ["value", "low", "high"]]
    promised = table[(table.panel == "epsilon") & (table.distance == table.distance.max())].value
    assert f"With it: {gained.value:+.0f} points of accuracy ({gained.low:.0f} to {gained.high:.0f})" in lettering(path)
    assert f"A curious node learns {table.distance.max():.0f} hops away {promised.independent:.2f} and {promised.mafalda:.2f}, not 5" in lettering(path)


@pytest.mark.parametrize("path", [path for path in FIGURES if path.stem.startswith("pndp_")], ids=lambda path: path.stem)
def test_gains_far_away_are_titled_for_both_forms(path):
    losses = numbers(path).pivot_table("renyi", "distance", "method").loc[3:]
    said = {}
    for form in ("squared", "as_plotted"):
        least, most = (f"{value:,.0f}" for value in (losses[form] / losses.ours).agg(["min", "max"]))
        said[form] = least if least == most else f"{least} to {most}"
    shown = lettering(path)
    assert f"From 3 hops on {said['squared']} times the exact loss," in shown
    assert f"and {said['as_plotted']} times with unsquared weights" in shown


def literal(node):
    """The words that stand in an expression as they are, without what is filled in."""
    if isinstance(node, ast.FormattedValue): return
    if isinstance(node, ast.Constant): yield str(node.value)
    for child in ast.iter_child_nodes(node): yield from literal(child)


def meant(node, tree):
    """An expression, or what a name is given and a function returns, wherever in a notebook."""
    yield node
    name = getattr(node, "id", "") or getattr(getattr(node, "func", None), "id", "")
    for one in ast.walk(tree):
        if isinstance(one, ast.Assign) and name in [getattr(target, "id", None) for target in one.targets]: yield one.value
        if isinstance(one, ast.FunctionDef) and one.name == name: yield from (part.value for part in ast.walk(one) if isinstance(part, ast.Return) and part.value)


def titled(source):
    """The literal parts of titles that hold digits."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call): continue
        given = node.args[:1] if getattr(node.func, "attr", "") in ("set_title", "suptitle") else []
        for words in [*given, *(one.value for one in node.keywords if one.arg == "title")]:
            yield from (part for one in meant(words, tree) for part in literal(one) if re.search(r"\d", part))


KNOWN = {  # of settings, not of results
    "Where p < 1, looking ahead leaves ",
    " where p < 1",
    "From the optimum, with steps of 1/sqrt(t)",
    " seeds, 95% intervals)",
}


def test_numbers_in_titles_are_computed():
    found = {}
    for path in (ROOT / "nbs" / "experiments").glob("*.ipynb"):
        cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        found |= dict.fromkeys(titled("\n".join(cells)), path.stem)
    assert found.keys() == KNOWN, found


def test_numbers_in_titles_are_found():
    for title in ('"ten is 10"', 'words'): assert list(titled(f'words = "ten is 10"\nax.set_title({title})')) == ["ten is 10"]
    assert not list(titled('ax.set_title(f"ten is {x:.2f}")'))


@pytest.mark.nightly
def test_a_figure_that_is_drawn_again_is_the_same(tmp_path, redraw):
    path = ROOT / "figures" / "quadratic_20.json"
    redraw["redraw"](path, tmp_path)
    for suffix in (".json", ".svg", ".csv"): assert (tmp_path / path.name).with_suffix(suffix).read_bytes() == path.with_suffix(suffix).read_bytes()


@pytest.mark.nightly
def test_what_measures_something_else_is_not_drawn_again(tmp_path, redraw):
    record = read(ROOT / "figures" / "quadratic_20.json")
    cells = CODE_CELLS(read(EXPERIMENT_OF(ROOT / "figures" / "quadratic_20.json")))
    number, = (i for i, cell in enumerate(cells) if "measured" in cell["metadata"].get("tags", []))
    path = tmp_path / "quadratic_20.json"
    for changed, words in ((number - 1, "cells"), (number, "cells"), (None, "other cells")):
        other = json.loads(json.dumps(record))
        if changed is None: del other["cells"][-1]
        else: other["cells"][changed]["code"] = code_digest("seeds = 2")
        path.write_text(json.dumps(other))
        with pytest.raises(ValueError, match=words): redraw["redraw"](path, tmp_path)
    record["cells"][-2]["printed"].append("99 other numbers")
    path.write_text(json.dumps(record))
    path.with_suffix(".csv").write_bytes((ROOT / "figures" / "quadratic_20.csv").read_bytes())
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="other numbers"): redraw["redraw"](path, tmp_path)
    assert all(file.read_bytes() == content for file, content in before.items())


@pytest.mark.parametrize("one, other, same", [
    ("2.491", "2.490", True), ("2.491", "2.489", False), ("1.0", "1", True), ("0.9", "1", False), ("7", "8", False), ("3.22", "3.215", False),
    ("0.1", "0.2", False), ("0.0", "0.1", False), ("0.0", "0", True),
])
def test_only_rounding_may_differ_in_what_a_figure_that_is_drawn_again_prints(one, other, same, redraw):
    assert redraw["same_but_rounding"](one, other) == redraw["same_but_rounding"](other, one) == same


def test_pictures_in_pixels_are_those_that_pages_show():
    """The others are drawn as well, and ignored by git."""
    shown = set()
    for path in [*(ROOT / "nbs").rglob("[!.]*.ipynb"), *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        shown |= set(re.findall(r"(?:\.\./|\(|\{figure\} )figures/([\w.+-]+\.png)", path.read_text()))
    rules = (ROOT / ".gitignore").read_text().splitlines()
    assert "figures/*.png" in rules and {rule.removeprefix("!figures/") for rule in rules if rule.startswith("!figures/")} == shown
    for name in shown: assert (ROOT / "figures" / name).is_file()
