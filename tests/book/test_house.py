"""The house stands: imports run one way, numbers and names are used once, links lead somewhere, and `make lint` sees what it looks for."""
import ast
import json
import re
import runpy
from collections import Counter
from functools import cache

import nbformat
from conftest import CHAPTERS, MODULES, ROOT, defined

NOTEBOOKS = sorted((ROOT / "nbs").glob("**/[!.]*.ipynb"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md")])
NUMBERS = {path.stem[3:]: int(path.name[:2]) for path in CHAPTERS}


def imported(tree):
    """(level, module, names) of all that a module imports from others, not counting what only type checkers read."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) == "TYPE_CHECKING": return
    if isinstance(tree, ast.ImportFrom) and tree.level: yield tree.level, tree.module or "", [alias.name for alias in tree.names]
    for child in ast.iter_child_nodes(tree): yield from imported(child)


def backwards(source, name):
    """The modules that the module `name` imports from chapters that are not before its own."""
    for level, module, names in imported(ast.parse(source)):
        for used in [module.rpartition(".")[2]] if "." in module or level == 1 and module else names:
            if used in NUMBERS and NUMBERS[used] >= NUMBERS[name]: yield used


def test_imports_run_one_way():
    """A module imports only from chapters before its own."""
    sources = {module: (ROOT / "mfdl" / f"{module.replace('.', '/')}.py").read_text() for module in MODULES}
    wrong = {module: found for module, source in sources.items() if (found := list(backwards(source, module.rpartition(".")[2])))}
    assert not wrong, f"imported from later chapters: {wrong}"


def test_an_import_of_a_later_chapter_is_noticed():
    late = ("from ..accounting.account import account", "from .account import account", "from ..accounting import account", "def f():\n    from .account import account")
    assert [list(backwards(source, "graphs")) for source in late] == [["account"]] * 4
    assert not list(backwards("from ..ground.files import needed_for\nif TYPE_CHECKING:\n    from .account import account", "graphs"))


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
    assert {*asked} <= {"language.attackers"}, asked


def test_a_question_for_a_type_is_noticed():
    questions = ("type(trust) is LDP", "isinstance(one, attackers.PNDP | SecLDP)", "type(one.trust) in usual", "USUAL = (PNDP, SecureSum)", "list(map(type, trusts)) == kinds",
                 "issubclass(kind, TrustModel)", "kind == LDP")
    assert all(any(asks_for_type(question)) for question in questions)
    assert not any(any(asks_for_type(said)) for said in ("trust: LDP | PNDP = LDP()", "names = {'ldp': LDP}", "trust.hears_all", "def f(trust) -> tuple[PNDP, int]: ..."))


def test_a_trust_model_is_named_in_two_modules():
    """Where it is, and where the command line finds it by a word; the one import lists it, too."""
    sources = {module: (ROOT / "mfdl" / f"{module.replace('.', '/')}.py").read_text() for module in MODULES}
    def named(source): return {getattr(node, "id", getattr(node, "name", None)) for node in ast.walk(ast.parse(source))}
    assert {module for module, source in sources.items() if "SecureSum" in named(source)} == {"language.attackers", "workshop.names"}


def test_numbers_of_chapters_are_used_once():
    twice = {number for number, count in Counter(path.name[:2] for path in CHAPTERS).items() if count > 1}
    assert not twice and len(NUMBERS) == len(CHAPTERS)


def test_a_chapter_exports_the_module_of_its_name():
    exported = {path: re.search(r"#\| default_exp ([\w.]+)", path.read_text()) for path in CHAPTERS}
    wrong = {path.stem: found[1] for path, found in exported.items() if found and found[1] != f"{path.parent.name}.{path.stem[3:]}"}
    assert wrong == {"89_import": "__init__"}


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
    right = "[a](11_gossip.ipynb), ![b](../../figures/claims.csv), [c](#Try-it), [d](../../CONTRIBUTING.md#what-stays-as-it-is), [e](https://x.org/y), `[f](g)`"
    wrong = "[a](11_gossips.ipynb), [c](#Nothing), [d](11_gossip.ipynb#No-such-heading), [e](../../CONTRIBUTING.md#nothing)"
    path = ROOT / "nbs" / "language" / "10_graphs.ipynb"
    assert not list(astray(path, right)) and len(list(astray(path, wrong))) == 4


def places(tmp_path, *sources):
    """What `make lint` says about a chapter with one text and some code."""
    lint = runpy.run_path(str(ROOT / "tools" / "lint.py"))
    words, *code = sources
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(words), *map(nbformat.v4.new_code_cell, code)])
    (tmp_path / "98_trial.ipynb").write_text(json.dumps(made))
    return list(lint["of_notebook"](tmp_path / "98_trial.ipynb", {"W"}))


def test_lint_sees_what_it_looks_for(tmp_path):
    words = "# Title\n\n> Which?\n\n![a](b.png) $W = \\mathrm{Q}x_{R}$\n\n## What to take away\n\n- One.\n\n## Try it\n\n- Two.\n\nNext: [10](10_graphs.ipynb)."
    assert not places(tmp_path, words, "x = 1  # red", "color = '#666666'")
    for wrong, said in {
        words.replace("Which?", "Which."): "'> the question?'", words.replace("![a](b.png)", ""): "a picture", words.replace("- One.", ""): "What to take away",
        words.replace("- Two.", ""): "Try it", words.replace("[10]", "[11]"): "says 11 leads to 10_graphs", words.replace("$W", "$V"): "no table explains: V",
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

