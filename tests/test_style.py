"""How the code reads: limits for every exported line, cell, body, chapter and module, and imports that run one way."""
import ast
import importlib
import inspect
import io
import re
import tokenize
import warnings

import nbformat
import pytest
from conftest import CHAPTERS, MODULES, ROOT
from numpydoc.validate import validate

LINE, DOCSTRING_LINE, TOKENS = 100, 88, 45
BODY, CELL, STRETCH, MODULE, CELLS, COMPLEXITY = 40, 30, 25, 400, 62, 12
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
DOCUMENTED = {"GL08", "SS03", "SS06", "PR01", "PR02", "RT01"}  # of numpydoc: a docstring, a first sentence, all parameters, what is returned
UNITS = [ROOT / "mfdl" / f"{module.replace('.', '/')}.py" for module in MODULES]
SOURCES = {path: path.read_text() for path in UNITS}


def named(path): return f"{path.parent.name}/{path.stem}"


def span(node): return range(node.lineno, node.end_lineno + 1)


def docstrings(tree):
    """The lines of all docstrings of a piece of code."""
    owners = (node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | FUNCTION) and node.body)
    firsts = (node.body[0] for node in owners)
    return {line for first in firsts if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str) for line in span(first)}


def tokens(source):
    """How many tokens begin in each line that has any, comments apart."""
    count = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT: count[token.start[0]] = count.get(token.start[0], 0) + 1
    return count


def written(source):
    """The lines with code: not empty, no comment, no docstring."""
    strings = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    inside = {line for node in strings for line in span(node)}
    return (set(tokens(source)) | inside) - docstrings(ast.parse(source))


def apart(tree):
    """Lines that say what there is and do nothing: imports, decorators and signatures."""
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom): lines |= set(span(node))
        if isinstance(node, FUNCTION | ast.ClassDef): lines |= set(range(min([node.lineno, *(one.lineno for one in node.decorator_list)]), node.body[0].lineno))
    return lines


def doing(source): return written(source) - apart(ast.parse(source))


def bodies(tree): return [node for node in ast.walk(tree) if isinstance(node, FUNCTION)]


def is_guard(node):
    """`if bad: raise ...`, or another way out, in one line."""
    return isinstance(node, ast.If) and not node.orelse and len(node.body) == 1 and isinstance(node.body[0], ast.Raise | ast.Return | ast.Continue | ast.Break)


def needs(node): return isinstance(node, ast.With) and "needed_for(" in ast.unparse(node.items[0])


def crowded(tree):
    """Lines on which a second statement stands: only guards and imports of what is optional may have one."""
    found = set()
    for node in ast.walk(tree):
        for block in ("body", "orelse", "finalbody"):
            inner = getattr(node, block, None)
            if not isinstance(inner, list) or not inner or isinstance(node, ast.Module): continue
            header = node.lineno if isinstance(node, ast.stmt | ast.ExceptHandler) else 0
            if block == "body" and inner[0].lineno == header and not is_guard(node) and not needs(node): found.add(header)
            if block != "body" and not isinstance(inner[0], ast.If) and "else:" in ast.unparse(node) and inner[0].col_offset > node.col_offset + 4: found.add(inner[0].lineno)
        for inner in (getattr(node, block, []) for block in ("body", "orelse", "finalbody")):
            if isinstance(inner, list): found |= {two.lineno for one, two in zip(inner, inner[1:], strict=False) if two.lineno == one.end_lineno}
    return found


def packed(tree):
    """Lines that assign several things at once, and swap none."""
    def swap(node): return {ast.unparse(one) for one in node.targets[0].elts} == {ast.unparse(one) for one in node.value.elts}
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)]
    return {node.lineno for node in assigned if not swap(node)}


def complexity(function):
    """Branches of a function and loops, without the checks that only raise."""
    def counts(node):
        if isinstance(node, ast.If): return not all(isinstance(one, ast.Raise) for one in node.body)
        return isinstance(node, ast.For | ast.While | ast.ExceptHandler | ast.comprehension)
    return 1 + sum(counts(node) for node in ast.walk(function))


def faults_of_lines(source):
    """What is wrong with single lines of a module, as (line, what)."""
    tree, lines = ast.parse(source), source.splitlines()
    question = set(span(tree.body[0])) if docstrings(tree) and ast.get_docstring(tree) else set()  # of the chapter, which is prose
    quoted, generated = docstrings(tree), {number for number, line in enumerate(lines, 1) if line.startswith(("# %%", "# AUTOGENERATED", "__all__"))}
    for number, line in enumerate(lines, 1):
        if number in generated | question or re.search(r"^\S.*__all__|^ {11}'", line): continue
        limit = DOCSTRING_LINE if number in quoted else LINE
        if len(line) > limit: yield number, f"{len(line)} characters"
    yield from ((number, f"{count} tokens") for number, count in tokens(source).items() if count > TOKENS and not lines[number - 1].startswith("__all__"))
    yield from ((number, "two statements") for number in crowded(tree))
    yield from ((number, "several assignments") for number in packed(tree))


def told(faults): return "\n".join(f"{where}: {what}" for where, what in sorted(faults))


@pytest.mark.parametrize("path", UNITS, ids=named)
def test_lines(path):
    assert not (faults := list(faults_of_lines(SOURCES[path]))), told(faults)


@pytest.mark.parametrize("path", UNITS, ids=named)
def test_bodies(path):
    lines, faults = written(SOURCES[path]), []
    for function in bodies(ast.parse(SOURCES[path])):
        size = len(lines & set(range(function.body[0].lineno, function.end_lineno + 1)))
        if size > BODY: faults.append((function.lineno, f"{function.name} has {size} lines"))
        if complexity(function) > COMPLEXITY: faults.append((function.lineno, f"{function.name} has complexity {complexity(function)}"))
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
        if cell.cell_type == "code": faults += [(number, f"{len(line)} characters: {line[:60]}") for line in cell.source.splitlines() if len(line) > LINE]
        if not seen(cell):
            stretch = stretch if cell.cell_type == "code" else []
            continue
        size = len(doing(cell.source))
        stretch.append(size)
        if size > CELL: faults.append((number, f"{size} lines in a cell"))
        if len(stretch) > 1 and sum(stretch) > STRETCH: faults.append((number, f"{sum(stretch)} lines without a word between"))
    assert not faults, told(faults)


def test_numbers_and_names_of_chapters():
    """Each number is used once, and a chapter that exports a module exports the one of its own name."""
    numbers = [path.name[:2] for path in CHAPTERS]
    assert len(set(numbers)) == len(numbers)
    for path in CHAPTERS:
        module = next((found[1] for cell in cells(path) if (found := re.search(r"#\| default_exp (\S+)", cell.source))), None)
        assert module in (None, f"{path.parent.name}.{path.stem[3:]}") or path.stem == "89_import"


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
