"""The house stands: imports run one way, numbers and names are used once, links lead somewhere, and `make lint` sees what it looks for."""
import ast
import json
import re
import runpy
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter

import nbformat
import pytest
from conftest import CHAPTERS, CORE, MODULES, ROOT, defined

NOTEBOOKS = sorted((ROOT / "nbs").glob("**/[!.]*.ipynb"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), ROOT / "docs" / "course.md", ROOT / "docs" / "elsewhere.md"])


def imported(tree):
    """(level, module, names) of all that a module imports from others, not counting what only type checkers read."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) == "TYPE_CHECKING": return
    if isinstance(tree, ast.ImportFrom): yield tree.level, tree.module or "", [alias.name for alias in tree.names]
    for child in ast.iter_child_nodes(tree): yield from imported(child)


def used(source, name):
    """The modules of the package that the module `name` imports from, and parts of the package that it imports from as a whole."""
    for level, module, names in imported(ast.parse(source)):
        if not level and module.split(".")[0] != "mfdl": continue
        package = name.split(".")[:-level] if level else []
        below = ".".join([*package, *filter(None, [module.removeprefix("mfdl").removeprefix(".") if not level else module])])
        yield from [below] if below in MODULES else (f"{below}.{one}".lstrip(".") for one in names)


PARTS = ["base", "protocol", "accounting", "start", "noise", "learning", "evidence", "tools"]


def backwards(sources):
    """Imports from a later part, as (module, from where); and modules that import each other in a circle."""
    graph = {name: {*used(source, name)} for name, source in sources.items()}
    late = {(name, one) for name, found in graph.items() for one in found if PARTS.index(one.split(".")[0]) > PARTS.index(name.split(".")[0])}
    try: TopologicalSorter(graph).prepare()
    except CycleError as error: return late | {tuple(error.args[1])}
    return late


def test_imports_run_one_way():
    """A module imports from its own part and from parts before it, and never in a circle."""
    assert {module.split(".")[0] for module in MODULES} == {*PARTS}
    assert not backwards({module: (ROOT / "mfdl" / f"{module.replace('.', '/')}.py").read_text() for module in MODULES})


def test_an_import_of_a_later_part_and_a_circle_are_noticed():
    late = ("from ...accounting.account import account", "from ...accounting import account", "from mfdl.accounting.account import (\n    account,\n)",
            "def f():\n    from ...accounting.account import account")
    assert [backwards({"protocol.methods.graphs": source}) for source in late] == [{("protocol.methods.graphs", "accounting.account")}] * 4
    early = "from ...base.files import needed_for\nif TYPE_CHECKING:\n    from ...accounting.account import account"
    assert not backwards({"protocol.methods.graphs": early, "protocol.gossip": "from .methods.graphs import load_graph"})
    assert backwards({"protocol.methods.graphs": "from ..gossip import gossip_matrix", "protocol.gossip": "from .methods.graphs import load_graph"})


TRUST = {"TrustModel", "LDP", "PNDP", "SecLDP", "SecureSum"}
WATCHERS = {"trust", "trusts", "attacker", "attackers", "watcher", "watchers"}


def asks_for_type(source):
    """What a module asks of the type of a trust model: isinstance, type(..), or a comparison or a collection of their classes."""
    def named(node): return {getattr(one, "id", getattr(one, "attr", None)) for one in ast.walk(node)}
    def classes(node): return isinstance(node, ast.Tuple | ast.List | ast.Set) and node.elts and {getattr(one, "id", None) for one in node.elts} <= TRUST
    for node in ast.walk(ast.parse(source)):
        called = isinstance(node, ast.Call) and getattr(node.func, "id", None)
        by_type = called in ("type", "map") and "type" in named(node) and named(node) & WATCHERS
        if called in ("isinstance", "issubclass"): by_type = named(node.args[1]) & TRUST
        if by_type or classes(node) or isinstance(node, ast.Compare | ast.MatchClass) and named(node) & TRUST: yield ast.unparse(node)


def test_only_attackers_asks_for_the_type_of_a_trust_model():
    """What is asked of a trust model it says itself, so that a new one touches no other module."""
    sources = {module: (ROOT / "mfdl" / f"{module.replace('.', '/')}.py").read_text() for module in MODULES}
    asked = {module: found for module, source in sources.items() if (found := list(asks_for_type(source)))}
    assert {*asked} <= {"protocol.threat_models", "protocol.methods.attacks"}, asked  # the second, whether it is a trust model at all


def test_a_question_for_a_type_is_noticed():
    questions = ("type(trust) is LDP", "isinstance(one, attackers.PNDP | SecLDP)", "type(one.trust) in usual", "USUAL = (PNDP, SecureSum)", "list(map(type, trusts)) == kinds",
                 "issubclass(kind, TrustModel)", "kind == LDP")
    assert all(any(asks_for_type(question)) for question in questions)
    assert not any(any(asks_for_type(said)) for said in ("trust: LDP | PNDP = LDP()", "names = {'ldp': LDP}", "trust.hears_all", "def f(trust) -> tuple[PNDP, int]: ..."))


def test_a_trust_model_is_named_in_two_modules():
    """Where it is, and where the command line finds it by a word; the one import lists it, too."""
    sources = {module: (ROOT / "mfdl" / f"{module.replace('.', '/')}.py").read_text() for module in MODULES}
    def named(source): return {getattr(node, "id", getattr(node, "name", None)) for node in ast.walk(ast.parse(source))}
    assert {module for module, source in sources.items() if "SecureSum" in named(source)} == {"protocol.methods.secure_sums", "tools.names"}


def test_the_core_is_numbered_without_a_gap():
    core = [path.name[:2] for path in sorted(CORE, key=lambda path: path.name)]
    assert core == [f"{number:02}" for number in range(1, len(core) + 1)]
    assert len({path.stem.lstrip("0123456789_") for path in CHAPTERS}) == len(CHAPTERS)


def test_the_core_is_read_in_order():
    """A chapter leads to earlier ones and to methods, and to the next one in its last line: no later chapter than these is needed on the way."""
    links = runpy.run_path(str(ROOT / "tools" / "links.py"))
    assert not links["forward_links"]()
    text = "[a](02_gossip.ipynb), [b](../noise/14_lemma12.ipynb#A), [c](methods/solver.ipynb), [d](../27_threat_model.ipynb)\n\nNext: [16](../noise/16_mafalda.ipynb)."
    assert links["forward"](13, text) == {14, 27} and links["forward"](14, text) == {27}


def in_sight(path):
    """Lines of code of a page, without blank ones and cells that only set it up."""
    shown = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code" and not re.search(r"^#\| (hide$|default_exp)", cell.source, re.M)]
    return sum(bool(line.strip()) for source in shown for line in source.splitlines())


@pytest.mark.parametrize("path", sorted(CORE), ids=lambda path: path.stem)
def test_a_chapter_of_the_core_shows_no_more_code_than_a_person_reads(path):
    assert in_sight(path) <= 300


def own_line(path):
    """The first line of code of a tutorial that says what of it is the reader's to change, and whether its cell says so."""
    code = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    lines = [(line, source.startswith("# Change this cell to your own.")) for source in code for line in source.splitlines() if line.strip()]
    return next(((number, marked) for number, (line, marked) in enumerate(lines, 1) if re.search(r"^[^#]+# .*\byour own\b", line)), None)


TO_READ = {"from_other_tools", "which_epsilon"}  # beside the tutorials: nothing on them is the reader's to change


@pytest.mark.parametrize("path", sorted(path for path in (ROOT / "nbs" / "tutorials").glob("[!.]*.ipynb") if path.stem not in TO_READ), ids=lambda path: path.stem)
def test_a_tutorial_starts_from_what_is_the_readers_and_ends_with_what_to_do_next(path):
    number, marked = own_line(path)
    assert number <= 10 and marked, "the reader's own file, model or function comes before long imports"
    last = re.split(r"^## ", text_of(path), flags=re.M)[-1]
    title, first, *_ = [line for line in last.splitlines() if line.strip()]
    assert title == "What to do next" and re.match(r"- With your own ", first) and "](" in last


def defined_before_use(words, path):
    """Of words, those that a notebook uses in code or text before a sentence in which they stand in bold."""
    found = "\n".join(cell.source for cell in nbformat.read(path, 4).cells)
    return [word for word in words if re.search(rf"\b{word}\b", found).start() != found.find(f"**{word}**") + 2]


def test_the_tour_says_what_its_abbreviations_are_before_it_uses_them():
    assert not defined_before_use(["LDP", "PNDP", "DECOR"], ROOT / "nbs" / "tutorials" / "tour.ipynb")


def test_a_late_own_line_and_a_word_before_its_definition_are_noticed(tmp_path):
    def page(*sources):
        nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources]), tmp_path / "page.ipynb")
        return tmp_path / "page.ipynb"
    own = "# Change this cell to your own.\nx = 1  # or your own"
    assert own_line(page("import a", own)) == (3, True) and own_line(page("import a\n" * 10, own)) == (12, True)
    assert own_line(page(own.split("\n")[1])) == (1, False) and own_line(page("x = 1\n# your own")) is None
    assert defined_before_use(["A", "B"], page("import A", "**A** is, **B** is", "B")) == ["A"]


def test_a_chapter_exports_the_module_of_its_name():
    exported = {path: re.search(r"#\| default_exp ([\w.]+)", path.read_text()) for path in CHAPTERS}
    places = {path: ".".join([*path.relative_to(ROOT / "nbs").parent.parts, path.stem.lstrip("0123456789_")]) for path in CHAPTERS}
    assert {path.stem: found[1] for path, found in exported.items() if found and found[1] != places[path]} == {"one_import": "__init__"}


def test_no_two_things_share_a_name():
    """What others may use has a name of its own in the whole package."""
    names = Counter(name for module in MODULES for name in defined(module))
    assert not {name for name, count in names.items() if count > 1}


@cache
def text_of(path):
    """A page, or the text cells of a notebook."""
    if path.suffix != ".ipynb": return path.read_text()
    return "\n\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")


@cache
def anchors(path):
    """What a link to a place in a file can name: as Jupyter has it in notebooks, and as GitHub has it in pages and in the index, of which README is made."""
    headings = [line.strip() for line in re.findall(r"^#+ (.+)", text_of(path), re.M)]
    if path.suffix == ".ipynb" and path.stem != "index": return {heading.replace(" ", "-") for heading in headings}
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def astray(path, text):
    """Links in the text of a file that lead nowhere."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.S | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link): continue
        name, _, anchor = link.partition("#")
        there = (path.parent / name).resolve() if name else path
        if not there.exists() or anchor and there.suffix in (".ipynb", ".md") and anchor not in anchors(there): yield link


def test_links_lead_somewhere():
    wrong = {str(path.relative_to(ROOT)): found for path in [*NOTEBOOKS, *PAGES] if (found := list(astray(path, text_of(path))))}
    assert not wrong, wrong


def test_a_link_that_leads_nowhere_is_noticed():
    right = "[a](02_gossip.ipynb), ![b](../../figures/claims.csv), [c](#Try-it), [d](../../CONTRIBUTING.md#what-stays-as-it-is), [e](https://x.org/y), `[f](g)`"
    wrong = "[a](11_gossips.ipynb), [c](#Nothing), [d](02_gossip.ipynb#No-such-heading), [e](../../CONTRIBUTING.md#nothing)"
    path = ROOT / "nbs" / "protocol" / "02_gossip.ipynb"
    assert not list(astray(path, right)) and len(list(astray(path, wrong))) == 4


def places(tmp_path, *sources):
    """What `make lint` says about a chapter with one text and some code."""
    lint = runpy.run_path(str(ROOT / "tools" / "lint.py"))
    words, *code = sources
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(words), *map(nbformat.v4.new_code_cell, code)])
    (tmp_path / "98_trial.ipynb").write_text(json.dumps(made))
    return list(lint["of_notebook"](tmp_path / "98_trial.ipynb", {"W"}))


def test_lint_sees_what_it_looks_for(tmp_path):
    words = "# Title\n\n> Which?\n\n![a](b.png) $W = \\mathrm{Q}x_{R}$\n\n## What to take away\n\n- One.\n\n## Try it\n\n- Two.\n\nNext: [all chapters](index.ipynb)."
    assert not places(tmp_path, words, "x = 1  # red", "color = '#666666'")
    for wrong, said in {
        words.replace("Which?", "Which."): "'> the question?'", words.replace("![a](b.png)", ""): "a picture", words.replace("- One.", ""): "What to take away",
        words.replace("- Two.", ""): "Try it", words.replace("[all chapters](index", "[11](12_account"): "says 11 leads to 12_account",
        words.replace("$W", "$V"): "no table explains: V",
    }.items(): assert [said in line for line in places(tmp_path, wrong)] == [True], said
    for wrong, said in {"x = 1\n" * 61: "61 lines", f"x = '{'a' * 100}'": "106 characters", "plot(color='C0')": "C0", "def f():\n" + "    x = 1\n" * 61: "f has 61 lines"}.items():
        assert any(said in line for line in places(tmp_path, words, wrong)), said


def test_the_measure_of_the_house_measures():
    house = runpy.run_path(str(ROOT / "tools" / "house.py"))
    first = type("First", (), {})
    second = type("Second", (first,), {})
    third = type("_Third", (second,), {})
    other = type("Other", (), {})
    assert house["ladder"](third, {first, second, third, other}) == ["_Third", "Second", "First"] and house["ladder"](third, {third, first}) == ["_Third"]
    assert house["rungs"]({first, second, third, other}) == ["Second"]
    assert house["lines_of_code"]('"""What it is\n\nabout."""\n\n# why\nx = 1\n\ndef f():\n    "One line."\n    return x\n') == 3

    def inside(): return json.dumps({})

    path, = house["trace"](lambda: [inside(), inside()], ROOT / "tests").values()
    assert path == [(__file__, "inside")] * 2

