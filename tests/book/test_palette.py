"""A method has one colour and one name: hues are named in the chapter on figures and nowhere else; pictures are sharp, and lines have a legend."""
import ast
import base64
import json
import re
import struct
from itertools import combinations

import pandas as pd
import pytest
from conftest import ROOT

from mfdl.ground.figures import COLORMAPS, LEAST_DISTANCE, METHOD_COLORS, METHOD_NAMES, STYLE, color_distance, method_color, method_name

HOME = "04_figures.ipynb"  # where colours are defined
CHAPTERS = sorted(path for path in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts and path.name != HOME)
SCRIPTS = sorted([*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "tools").glob("*.py")])
ALLOWED = {  # colours that tell no method
    "06_cards.ipynb": {"red"},  # a setting of the reader's that must have no effect
    "76_reference.ipynb": {"#EAF2F8", "#0072B2"},  # boxes of a diagram
}
ALGORITHMS = {  # where DP-D-SGD is an algorithm among others, or the name under which a run was measured
    "04_figures.ipynb", "15_algorithms.ipynb", "28_streaming.ipynb", "35_report.ipynb", "37_schedules.ipynb", "69_claims.ipynb", "77_answers.ipynb",
    "randomness.py", "training.py"}
VARIANTS = re.compile(r"\b(Anti[ -]PGD|anti-PGD|AntiPgd|antiPGD|Mafalda|DeCoR|Decor|Corn|CORN|ZIP-DL|Zip DL|ZipDL|DP-?DSGD|[Ss]pace-time|[Ss]pace and time)\b")
CODE_NAMES = METHOD_NAMES.keys() - METHOD_COLORS.keys() - {"ldp", "DP-D-SGD"}
MAKERS = {"strategy", "optimize_covariance", "method_color", "in_time", "in_space", "test_eq", "test_close"}
TYPED = {"84_names.ipynb"}  # where names are those of the command line
NAMED_BESIDE = {"audit", "theorem6"}  # figures whose rows have names, and whose colours tell something else
HUES = re.compile(r"C\d|#[0-9A-Fa-f]{6}|red|blue|green|orange|purple|brown|pink|cyan|magenta|yellow|olive|(tab|xkcd):.+")
ROLES = {"ours", "squared", "as_plotted", "ldp", "attacker"}


def grey(color): return color.startswith("#") and color[1:3].lower() == color[3:5].lower() == color[5:7].lower()


def hues(source):
    """Literal colours that are not grey."""
    found = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {one for one in found if HUES.fullmatch(one) and not grey(one)}


def is_method(node):
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str): return False
    return node.value.partition(",")[0] in METHOD_COLORS.keys() | METHOD_NAMES.keys() - {"ldp"}


def is_color(node):
    """An entry of the palette, or the name of one."""
    if isinstance(node, ast.Tuple | ast.List): return any(map(is_color, node.elts))
    if isinstance(node, ast.Subscript): return isinstance(node.value, ast.Name) and node.value.id == "PALETTE"
    return isinstance(node, ast.Constant) and node.value in ROLES


def own_colors(source):
    """Methods to which a table of the source gives colours of its own."""
    tables = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Dict)]
    return [key.value for table in tables for key, value in zip(table.keys, table.values, strict=True) if key and is_method(key) and is_color(value)]


def test_lists_are_not_longer_than_needed():
    for path in [*CHAPTERS, *SCRIPTS]:
        here = {hue for _, source, _ in cells(path) for hue in hues(source)}
        assert ALLOWED.get(path.name, set()) <= here, path.name


def cells(path):
    """Identifiers, sources and outputs of what is code."""
    if path.suffix == ".py": return [(path.stem, path.read_text(), [])]
    notebook = json.loads(path.read_text())
    return [(cell["id"], "".join(cell["source"]), cell["outputs"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", [*CHAPTERS, *SCRIPTS], ids=lambda path: path.stem)
def test_colors_are_those_of_the_palette(path):
    for name, source, _ in cells(path):
        assert hues(source) <= ALLOWED.get(path.name, set()), (name, "take the colour from mfdl.ground.figures")
        assert not own_colors(source), (name, "a method has the colour that method_color gives")


def density(png):
    """Dots per inch of a PNG of Matplotlib."""
    found = re.search(rb"pHYs(.{4})", png, re.DOTALL)
    return struct.unpack(">I", found.group(1))[0] * 0.0254 if found else None


def unsharp(outputs):
    """Densities below 110 of the pictures in outputs."""
    pictures = [base64.b64decode(out["data"]["image/png"]) for out in outputs if "image/png" in out.get("data", {})]
    return [dots for dots in map(density, pictures) if dots is not None and dots < 109.5]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_pictures_have_110_dots_per_inch(path):
    found = [name for name, _, outputs in cells(path) if unsharp(outputs)]
    assert not found


@pytest.mark.parametrize("path", sorted((ROOT / "figures").glob("*.png")), ids=lambda path: path.stem)
def test_figures_have_150_dots_per_inch(path):
    assert density(path.read_bytes()) >= 149.5


def labelled(source):
    """How many lines have a label for a legend, and whether the source makes one."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    drawn = {"plot", "semilogx", "semilogy", "loglog", "step", "errorbar", "scatter", "fill_between", "axhline", "axvline", "bar", "barh", "hist"}
    lines = [node for node in calls if node.func.attr in drawn and any(word.arg == "label" for word in node.keywords)]
    return len(lines), any(node.func.attr == "legend" for node in calls)


@pytest.mark.parametrize("path", [*CHAPTERS, *SCRIPTS], ids=lambda path: path.stem)
def test_lines_with_labels_have_a_legend(path):
    for name, source, outputs in cells(path):
        lines, legend = labelled(source)
        drawn = path.suffix == ".py" or any("image/png" in out.get("data", {}) for out in outputs)
        assert not drawn or not lines or legend, (name, "labels are written into a legend only")


def test_offenders_are_found():
    assert hues("ax.plot(x, color='C0'); ax.plot(y, color='#009E73'); ax.plot(z, color='#666666')") == {"C0", "#009E73"}
    assert own_colors("C = {'CorN, far ahead': PALETTE['ours'], 'mafalda': 'squared', 'node': PALETTE['ldp']}") == ["CorN, far ahead", "mafalda"]
    assert labelled("ax.plot(x, label='a'); ax.plot(y, label='b')") == (2, False)


@pytest.mark.parametrize("dpi", (72, 110))
def test_sharpness_is_read_from_the_file(dpi, tmp_path):
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(1, 1))
    figure.savefig(tmp_path / "one.png", dpi=dpi)
    coded = base64.b64encode((tmp_path / "one.png").read_bytes()).decode()
    assert bool(unsharp([{"data": {"image/png": coded}}])) == (dpi < 110)
    assert STYLE["figure.dpi"] >= 110


def test_methods_without_a_color_are_refused():
    with pytest.raises(ValueError, match="method is 'anything': expected one of no noise, independent"): method_color("anything")
    assert method_color("CorN, far ahead") == METHOD_COLORS["CorN"] == method_color("corn")
    assert len(set(METHOD_COLORS.values())) == len(METHOD_COLORS)


def constants(tree):
    """Strings of a tree, but for docstrings."""
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)]
    docstrings = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    return [node for node in strings if id(node) not in docstrings]


def callee(node):
    """The last part of the name of what is called."""
    return getattr(node.func, "attr", None) or getattr(node.func, "id", None)


def draws(source): return any(word in source for word in ("plt.", "ax.", ".plot("))


def not_shown(tree):
    """Strings that are checked, looked up or handed on."""
    asked = [node for node in ast.walk(tree) if isinstance(node, ast.Assert | ast.Compare)]
    looked_up = [node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and callee(node) in MAKERS]
    given = [word.value for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords if word.arg in ("strategy", "method")]
    return {id(one) for part in [*asked, *looked_up, *made, *given] for one in constants(part)}


def code_names(source):
    """Names of code that a picture would show, unless `method_name` finds the other."""
    tree = ast.parse(source)
    if not draws(source) or any(callee(node) == "method_name" for node in ast.walk(tree) if isinstance(node, ast.Call)): return []
    hidden = not_shown(tree)
    return [node.value for node in constants(tree) if id(node) not in hidden and node.value.partition(",")[0] in CODE_NAMES]


def other_names(source):
    """Spellings of methods that are not the book's; what is a name of code, or a variant of one, is not."""
    strings = [node.value for node in constants(ast.parse(source))]
    return [found.group() for one in strings if one.partition(",")[0] not in METHOD_NAMES for found in VARIANTS.finditer(one)]


def prose(path):
    """What a notebook says in words, without code and addresses."""
    parts = [re.sub(r"`[^`]*`|\]\([^)]*\)", "", "".join(cell["source"])) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "markdown"]
    return "\n".join(re.sub(r"^```.*?^```", "", part, flags=re.DOTALL | re.MULTILINE) for part in parts)


@pytest.mark.parametrize("path", [*CHAPTERS, *SCRIPTS], ids=lambda path: path.stem)
def test_a_method_is_shown_by_its_one_name(path):
    for name, source, _ in cells(path):
        assert not other_names(source), (name, "the name of a method is that of METHOD_NAMES")
        assert path.suffix == ".py" or bool(code_names(source)) <= (path.name in TYPED), (name, "method_name gives the name for legends")
    if path.suffix == ".ipynb": assert not VARIANTS.findall(prose(path))


@pytest.mark.parametrize("path", [*CHAPTERS, *SCRIPTS], ids=lambda path: path.stem)
def test_independent_noise_is_not_named_after_an_algorithm(path):
    if path.parent.name == "experiments": return
    found = [name for name, source, _ in cells(path) for node in constants(ast.parse(source)) if "DP-D-SGD" in node.value]
    assert bool(found) == (path.name in ALGORITHMS), found


def colormaps(source):
    """Colour maps that are named outside COLORMAPS."""
    tree = ast.parse(source)
    by_word = [word.value for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords if word.arg in ("cmap", "colorscale")]
    tables = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    in_tables = [value for table in tables for key, value in zip(table.keys, table.values, strict=True)
                 if isinstance(key, ast.Constant) and key.value in ("cmap", "colorscale")]
    looked_up = [node.args[0] for node in ast.walk(tree) if isinstance(node, ast.Call) and callee(node) == "get_cmap" and node.args]
    from_mpl = [node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript) and getattr(node.value, "attr", None) == "colormaps"]
    named = [node.value for part in (*by_word, *in_tables, *looked_up, *from_mpl) if not isinstance(part, ast.Subscript) for node in constants(part)]
    return {*named, *re.findall(r"\bcm\.(\w+)", source)} - set(COLORMAPS.values())


@pytest.mark.parametrize("path", [*CHAPTERS, *SCRIPTS], ids=lambda path: path.stem)
def test_colormaps_are_those_of_the_palette(path):
    found = {one for _, source, _ in cells(path) for one in colormaps(source)}
    assert not found, (found, "take the colour map from mfdl.ground.figures.COLORMAPS")


def methods(strings):
    """Methods that are named, without their variants."""
    return {method_name(one).partition(",")[0] for one in strings if one.partition(",")[0] in METHOD_COLORS.keys() | METHOD_NAMES.keys()}


def alike(found):
    """Pairs of methods with colours that some readers cannot tell apart."""
    return [pair for pair in combinations(sorted(found), 2) if color_distance(*map(method_color, pair)) < LEAST_DISTANCE]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_methods_in_one_cell_can_be_told_apart(path):
    for name, source, _ in cells(path):
        assert not draws(source) or not alike(methods(node.value for node in constants(ast.parse(source)))), name


@pytest.mark.parametrize("path", sorted((ROOT / "figures").glob("*.csv")), ids=lambda path: path.stem)
def test_methods_in_one_figure_can_be_told_apart(path):
    table = pd.read_csv(path)
    named = {one for column in table for one in table[column].dropna().unique() if isinstance(one, str)}
    assert bool(alike(methods(named))) == (path.stem.partition("_")[0] in NAMED_BESIDE)


def test_colors_of_methods_can_be_told_apart():
    assert alike(METHOD_COLORS) == [("AntiPGD", "CorN")]
    assert color_distance("#009E73", "#009E73") == 0 and color_distance("#000000", "#FFFFFF") == pytest.approx(100, abs=0.01)


@pytest.mark.parametrize("search, name, cell, right, wrong", [  # a cell as it is, and with a mistake in it
    (code_names, "learning/68_training", "0000003e", "method_name(name)", "name"),
    (code_names, "tutorials/which_noise", "00000004", '"MAFALDA"', '"mafalda"'),
    (code_names, "noise/59_kinds", "0e383bda", '"MAFALDA, in turn": (', '"mafalda, in turn": ('),
    (other_names, "tutorials/which_noise", "0000000a", "Noise in time and space", "Space-time"),
    (other_names, "learning/68_training", "0000003e", "With the same privacy", "Anti-PGD aside"),
    (colormaps, "accounting/27_filters", "00000007", 'plt.colormaps[COLORMAPS["more"]]', "plt.cm.viridis"),
    (colormaps, "workshop/90_noise_commands", "90c00006", 'cmap=COLORMAPS["signed"]', 'cmap="coolwarm"'),
    (colormaps, "language/13_steps", "7a10c3e5", 'cmap="RdBu"', 'cmap="bwr"'),
])
def test_mistakes_in_a_cell_are_found(search, name, cell, right, wrong):
    source, = [source for one, source, _ in cells(ROOT / "nbs" / f"{name}.ipynb") if one == cell]
    assert right in source and not search(source) and search(source.replace(right, wrong))


def test_colors_that_look_alike_are_found():
    assert alike({"AntiPGD", "CorN", "MAFALDA"}) == [("AntiPGD", "CorN")]
    assert methods(["mafalda_l", "banded, Toeplitz", "DP-D-SGD", "anything"]) == {"MAFALDA", "banded", "independent"}
