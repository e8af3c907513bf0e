"""How the code reads: limits for every line of modules, experiments, tutorials, projects and scripts, for cells, bodies, chapters and modules, and imports that run one way."""
import ast
import importlib
import inspect
import re
import warnings
from collections import Counter

import nbformat
import pytest
from conftest import CHAPTERS, MODULES, ROOT
from numpydoc.validate import validate
from style import FUNCTION, bodies, complexity, doing, faults_of_lines, written

BODY, CELL, STRETCH, MODULE, CELLS, COMPLEXITY = 40, 30, 25, 400, 62, 12
DOCUMENTED = {"GL08", "SS03", "SS06", "PR01", "PR02", "RT01"}  # of numpydoc: a docstring, a first sentence, all parameters, what is returned
UNITS = [ROOT / "mfdl" / f"{module.replace('.', '/')}.py" for module in MODULES]
SOURCES = {path: path.read_text() for path in UNITS}
EXPERIMENTS = sorted((ROOT / "nbs" / "experiments").glob("*.ipynb"))
TUTORIALS = [path for folder in ("tutorials", "projects") for path in sorted((ROOT / "nbs" / folder).glob("*.ipynb"))]
SCRIPTS = [path for folder in ("tools", "benchmarks") for path in sorted((ROOT / folder).glob("*.py"))]


def named(path): return f"{path.parent.name}/{path.stem}"


def told(faults): return "\n".join(f"{where}: {what}" for where, what in sorted(faults))


@pytest.mark.parametrize("path", UNITS, ids=named)
def test_lines(path):
    assert not (faults := list(faults_of_lines(SOURCES[path]))), told(faults)


def faults_of_bodies(source):
    """Functions that are too long or have too many branches, as (line, what)."""
    lines = written(source)
    for function in bodies(ast.parse(source)):
        size = len(lines & set(range(function.body[0].lineno, function.end_lineno + 1)))
        if size > BODY: yield function.lineno, f"{function.name} has {size} lines"
        if complexity(function) > COMPLEXITY: yield function.lineno, f"{function.name} has complexity {complexity(function)}"


@pytest.mark.parametrize("path", UNITS, ids=named)
def test_bodies(path):
    faults = list(faults_of_bodies(SOURCES[path]))
    assert not faults, told(faults)


@pytest.mark.parametrize("path", UNITS, ids=named)
def test_size_and_names(path):
    tree = ast.parse(SOURCES[path])
    size = len(written(SOURCES[path]))
    assert size <= MODULE, f"{size} lines: two concepts"
    loaded = importlib.import_module(f"mfdl.{path.parent.name}.{path.stem}")
    for node in tree.body:
        if isinstance(node, FUNCTION | ast.ClassDef): names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
        else: continue
        unsaid = [name for name in names if not name.startswith("_") and name not in loaded.__all__]
        assert not unsaid, f"line {node.lineno}: {unsaid} are neither public nor begin with an underscore"


@pytest.mark.parametrize("module", MODULES)
def test_public_docstrings(module):
    """In the form of numpydoc, by its own validation: of functions, classes and public methods."""
    loaded, faults = importlib.import_module(f"mfdl.{module}"), []
    for name in loaded.__all__:
        thing = getattr(loaded, name)
        if not (inspect.isfunction(thing) or inspect.isclass(thing)) or thing.__module__ != loaded.__name__: continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            errors = validate(f"mfdl.{module}.{name}")["errors"]
        for code, message in errors:
            if code in DOCUMENTED and not (inspect.isclass(thing) and code == "RT01"): faults.append((name, f"{code} {message}"))
        if "References\n" not in (thing.__doc__ or ""): faults.append((name, "no References"))
    assert not faults, told(faults)


def cells(path): return nbformat.read(path, as_version=4).cells


def seen(cell): return cell.cell_type == "code" and not re.match(r"#\|\s*(hide|default_exp)", cell.source)


@pytest.mark.parametrize("path", CHAPTERS, ids=named)
def test_cells(path):
    faults, stretch = [], []
    chapter = cells(path)
    assert len(chapter) <= CELLS, f"{len(chapter)} cells"
    for number, cell in enumerate(chapter):
        if cell.cell_type == "code": faults += [(number, f"line {line}: {what}") for line, what in faults_of_lines(cell.source)]
        if not seen(cell):
            stretch = stretch if cell.cell_type == "code" else []
            continue
        size = len(doing(cell.source))
        stretch.append(size)
        if size > CELL: faults.append((number, f"{size} lines in a cell"))
        if len(stretch) > 1 and sum(stretch) > STRETCH: faults.append((number, f"{sum(stretch)} lines without a word between"))
    assert not faults, told(faults)


@pytest.mark.parametrize("path", [*EXPERIMENTS, *TUTORIALS], ids=named)
def test_code_of_experiments_and_tutorials(path):
    """Lines and bodies of notebooks that export nothing have the same limits."""
    for number, cell in enumerate(cells(path)):
        if cell.cell_type != "code": continue
        faults = [*faults_of_lines(cell.source), *faults_of_bodies(cell.source)]
        assert not faults, f"cell {number}\n{told(faults)}"


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_code_of_scripts(path):
    faults = [*faults_of_lines(path.read_text()), *faults_of_bodies(path.read_text())]
    assert not faults, told(faults)


def test_numbers_and_names_of_chapters():
    """Each number is used once, and a chapter that exports a module exports the one of its own name."""
    numbers = [path.name[:2] for path in CHAPTERS]
    assert len(set(numbers)) == len(numbers)
    for path in CHAPTERS:
        module = next((found[1] for cell in cells(path) if (found := re.search(r"#\| default_exp (\S+)", cell.source))), None)
        assert module in (None, f"{path.parent.name}.{path.stem[3:]}") or path.stem == "89_import"


def test_rooms_of_tests():
    """Tests lie in folders of the parts' names; those of the book as a whole in `book`. What they share lies beside the folders."""
    rooms = {module.split(".")[0] for module in MODULES if "." in module} | {"book"}
    files = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    assert {path.parts[:-1] for path in files} == {(room,) for room in rooms}
    assert len({path.name for path in files}) == len(files)


def test_no_two_things_share_a_name():
    """What is public has a name of its own in the whole package."""
    names = Counter(name for module in MODULES for name in importlib.import_module(f"mfdl.{module}").__all__)
    assert {name for name, count in names.items() if count > 1} == set()


def imported(tree):
    """(part, module) of all that a module imports from others, not counting what only type checkers read."""
    def walk(node):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING": return
        if isinstance(node, ast.ImportFrom) and node.level: yield node.level, node.module, [alias.name for alias in node.names]
        for child in ast.iter_child_nodes(node): yield from walk(child)
    return walk(tree)


@pytest.mark.parametrize("path", UNITS, ids=named)
def test_imports_run_one_way(path):
    """A module imports only from chapters before its own, and only what is public there."""
    numbers = {path.stem[3:]: int(path.name[:2]) for path in CHAPTERS}
    for level, module, names in imported(ast.parse(SOURCES[path])):
        home = f"{path.parent.name}.{module}" if level == 1 else module or ""
        for used in [home.partition(".")[2]] if "." in home else names:
            if used in numbers: assert numbers[used] < numbers[path.stem], f"chapter {numbers[path.stem]} imports from {numbers[used]}, {used}"
        if "." in home:
            unsaid = set(names) - set(importlib.import_module(f"mfdl.{home}").__all__)
            assert not unsaid, f"{named(path)} imports {unsaid} of {home}, which are not public there"


BAD = {
    "x = 1; y = 2": "two statements",
    "for x in y: print(x)": "two statements",
    "if x:\n    y = 1\nelse: y = 2": "two statements",
    "a, b = c, d": "several assignments",
    f"x = {'+'.join(['1'] * 30)}": "tokens",
    f"x = '{'a' * 100}'": "characters",
    f'def f():\n    """{"a" * 100}"""': "characters",
}


@pytest.mark.parametrize("source", BAD)
def test_what_is_too_dense_is_noticed(source):
    assert any(BAD[source] in what for _, what in faults_of_lines(source))
    for good in ("if x: raise ValueError", "a, b = b, a", "a, b = f(c, d)", "x = 1\ny = 2", "if x:\n    y = 1\nelse:\n    y = 2"):
        assert not list(faults_of_lines(good)), good
