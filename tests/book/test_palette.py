"""A method has one colour: hues are named in the chapter on figures and nowhere else; pictures are sharp, and lines have a legend."""
import ast
import base64
import json
import re
import struct

import pytest
from conftest import ROOT

from mfdl.ground.figures import METHOD_COLORS, METHOD_NAMES, STYLE, method_color

HOME = "04_figures.ipynb"  # where colours are defined
CHAPTERS = sorted(path for path in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts and path.name != HOME)
SCRIPTS = sorted([*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "tools").glob("*.py")])
TO_BE_RUN_AGAIN = {  # experiments whose figures are committed as they were made: their code changes when they are run the next time
    f"{name}.ipynb" for name in ("covariance", "objectives", "together")}
ALLOWED = {  # colours that tell no method
    "06_cards.ipynb": {"red"},  # a setting of the reader's that must have no effect
    "76_reference.ipynb": {"#EAF2F8", "#0072B2"},  # boxes of a diagram
    "streaming.py": {"C0", "C1", "C2"},  # routes of an account; drawn when it is measured again
}
BLURRED = {  # drawn by the experiments themselves, which are sharp in figures/; 77 comes next
    *(f"{name}.ipynb" for name in ("audit", "horizons", "objectives", "pndp", "theorem6", "together")),
    "77_answers.ipynb"}
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
    stale = {path.name for path in CHAPTERS if path.name in TO_BE_RUN_AGAIN and any(hues(s) or own_colors(s) for _, s, _ in cells(path))}
    assert stale == TO_BE_RUN_AGAIN
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
    if path.name in TO_BE_RUN_AGAIN: return
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
    assert bool(found) == (path.name in BLURRED), found


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
