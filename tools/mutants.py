"""Plant small faults in modules, one at a time, and say which of them no check notices.

    python tools/mutants.py --count 5 --seed 1 mfdl/noise mfdl/accounting/account.py

A fault is planted in a copy of the project, in a temporary folder. Checked are the chapter that
exports the module, tests that import it, those that import what imports it, and chapters that
build on it, in this order, up to the first that fails. Mutants that are in the table of results
are not run again: a run can be stopped, and goes on when it is started again.
"""
import argparse
import ast
import copy
import csv
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from importlib.util import cache_from_source
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS = ["mfdl/accounting", "mfdl/noise", "mfdl/learning"]
CHAPTER = "tests/book/test_notebooks.py::test_notebook_holds_for_the_package[{}]"
OF_NUMBERS = {"test_golden.py"}  # of the tests of the whole book; others read sources and outputs

OTHER = {
    ast.Lt: [ast.LtE, ast.Gt], ast.LtE: [ast.Lt, ast.GtE], ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt, ast.LtE], ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq],
    ast.In: [ast.NotIn], ast.NotIn: [ast.In], ast.Is: [ast.IsNot], ast.IsNot: [ast.Is],
    ast.Add: [ast.Sub], ast.Sub: [ast.Add], ast.Mult: [ast.Div], ast.Div: [ast.Mult],
    ast.Pow: [ast.Mult], ast.FloorDiv: [ast.Div], ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd], ast.And: [ast.Or], ast.Or: [ast.And],
}
TWINS = [("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all"),
         ("floor", "ceil"), ("sum", "max")]
RENAMED = dict(TWINS[-1:]) | dict(TWINS[:-1]) | {two: one for one, two in TWINS[:-1]}
UNTOUCHED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.arg)
UNREAD = {"annotation", "returns", "decorator_list"}


def changed(node: ast.AST, **fields: object) -> str:
    "The source of a node with some fields replaced."
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return ast.unparse(other)


def of_number(value: object) -> list[str]:
    "Other constants in place of one."
    if isinstance(value, bool): return [repr(not value)]
    if isinstance(value, int): return [repr(value + 1), repr(value - 1)]
    if isinstance(value, float): return [repr(10 * value), repr(value / 10)] if value else ["1.0"]
    return []


def of_operator(node: ast.BinOp | ast.BoolOp | ast.AugAssign) -> list[str]:
    "Other operators in place of one."
    return [changed(node, op=other()) for other in OTHER.get(type(node.op), [])]


def of_comparison(node: ast.Compare) -> list[str]:
    "Other comparisons in place of one; none of a chain."
    if len(node.ops) > 1: return []
    return [changed(node, ops=[other()]) for other in OTHER[type(node.ops[0])]]


def of_guard(node: ast.If) -> list[str]:
    "Nothing in place of a guard that raises an error."
    raises = len(node.body) == 1 and isinstance(node.body[0], ast.Raise)
    return ["pass"] if raises and not node.orelse else []


def of_name(node: ast.Name) -> list[str]:
    "Another function in place of one."
    return [RENAMED[node.id]] if node.id in RENAMED and isinstance(node.ctx, ast.Load) else []


def of_attribute(node: ast.Attribute) -> list[str]:
    "Another method in place of one."
    return [changed(node, attr=RENAMED[node.attr])] if node.attr in RENAMED else []


OPERATORS: dict[type[ast.AST], Callable[..., list[str]]] = {
    ast.Compare: of_comparison, ast.BinOp: of_operator, ast.BoolOp: of_operator,
    ast.AugAssign: of_operator, ast.UnaryOp: lambda node: [ast.unparse(node.operand)],
    ast.Constant: lambda node: of_number(node.value), ast.If: of_guard,
    ast.Name: of_name, ast.Attribute: of_attribute,
}


def inside(node: ast.AST) -> Iterator[ast.AST]:
    "A node and all within, but for annotations, decorators, imports, and words of errors."
    if isinstance(node, UNTOUCHED) or getattr(node, "arg", "") == "strict": return
    yield node
    for name, value in ast.iter_fields(node):
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST) and name not in UNREAD:
                yield from inside(one)


def replacements(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    "Nodes, and what may stand in their place."
    for node in inside(tree):
        for text in OPERATORS.get(type(node), lambda _: [])(node):
            yield node, f"({text})" if isinstance(node, ast.expr) else text
        bounds = [node.lower, node.upper] if isinstance(node, ast.Slice) else []
        for bound in bounds:
            if bound is not None and not isinstance(bound, ast.Constant):
                yield bound, f"({ast.unparse(bound)} + 1)"


@dataclass(frozen=True)
class Mutant:
    "A fault in a module: the first line that it changes, before and after."
    module: str
    line: int
    before: str
    after: str
    source: str


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    "All mutants of a module."
    code = source.encode()  # columns of the syntax tree count bytes
    begins = [0, *accumulate(map(len, code.splitlines(keepends=True)))]
    for node, text in replacements(ast.parse(source)):
        start = begins[node.lineno - 1] + node.col_offset
        end = begins[node.end_lineno - 1] + node.end_col_offset
        planted = (code[:start] + text.encode() + code[end:]).decode()
        pairs = enumerate(zip(source.splitlines(), planted.splitlines(), strict=False), 1)
        for line, (before, after) in pairs:
            if before != after:
                yield Mutant(module, line, before.strip(), after.strip(), planted)
                break


def homes(root: Path, package: str) -> dict[str, str]:
    "The module of each name that the package itself gives out."
    tree = ast.parse((root / package / "__init__.py").read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in found for alias in node.names}


def imported(path: Path, root: Path, package: str, given: dict[str, str]) -> set[Path]:
    "The modules of the package that a file imports."
    places = path.relative_to(root).parent.parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            above = places[:len(places) + 1 - node.level] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            names = {alias.name for alias in node.names}
            found |= {base, *(f"{base}.{name}" for name in names)}
            found |= {given[name] for name in names if base == package and name in given}
    paths = {root / f"{name.replace('.', '/')}.py" for name in found}
    return {one for one in paths if one.exists()}


def chapter_of(module: Path) -> list[str]:
    "The check of the chapter that exports a module."
    told = re.search(r"File to edit: \S*/(\w+)\.ipynb", module.read_text())
    return [CHAPTER.format(told[1])] if told else []


class Checks:
    "Which checks are about which module."

    def __init__(self, root: Path) -> None:
        self.root = root
        package = "mfdl"
        given = homes(root, package)
        modules = sorted((root / package).rglob("[!_]*.py"))
        tests = sorted((root / "tests").rglob("test_*.py"))
        tests = [one for one in tests if one.parent.name != "book" or one.name in OF_NUMBERS]
        self.modules = {one: imported(one, root, package, given) for one in modules}
        self.tests = {one: imported(one, root, package, given) for one in tests}

    def ring(self, inner: set[Path]) -> set[Path]:
        "The modules that import one of some."
        return {one for one, needs in self.modules.items() if needs & inner}

    def importing(self, modules: set[Path], part: str) -> list[str]:
        "Tests that import one of some modules, those of a part first."
        found = [one for one, needs in self.tests.items() if needs & modules]
        found.sort(key=lambda one: (one.parent.name != part, one.name in OF_NUMBERS))
        return [str(one.relative_to(self.root)) for one in found]

    def of(self, module: str) -> list[str]:
        "All that can notice a fault in a module, the nearest first."
        path = self.root / module
        seen = {path}
        near = self.ring(seen)
        found = chapter_of(path)
        found += self.importing(seen, path.parent.name) + self.importing(near, path.parent.name)
        while near - seen:
            found += [check for one in sorted(near - seen) for check in chapter_of(one)]
            seen |= near
            near = self.ring(seen)
        return list(dict.fromkeys(found))


def run_checks(root: Path, checks: list[str], seconds: float) -> tuple[str, str]:
    "What became of a mutant: killed, survived or timed out, and by which check, or after how many."
    options = ["-x", "-vv", "-p", "no:cacheprovider", "-m", "not nightly and not alone"]
    command = [sys.executable, "-m", "pytest", *options, *checks]
    settings = {"OMP_NUM_THREADS": "1"} | dict(os.environ) | {"PYTHONPATH": str(root)}
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(command, cwd=root, env=settings, stdout=told,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        told.seek(0)
        words = told.read()
    passed = f"{len(re.findall(' PASSED', words))} passed"
    if status in (0, 5): return "survived", passed  # 5: there are no checks
    if status is None: return "timed out", passed
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", words, re.M)
    return "killed", failed[1] if failed else "import"


class Laboratory:
    "A copy of a project, in which mutants are planted."

    def __init__(self, root: Path, folder: Path) -> None:
        leave = shutil.ignore_patterns(".*", "__pycache__", "_docs", "_proc", "_report")
        self.root = Path(shutil.copytree(root, folder / "copy", ignore=leave))
        self.checks = Checks(self.root)
        self.sound: dict[str, bool] = {}  # whether a check passes without a mutant

    def write(self, module: str, source: str) -> None:
        "Write a module, of which nothing compiled is left."
        Path(cache_from_source(str(self.root / module))).unlink(missing_ok=True)
        (self.root / module).write_text(source)

    def judge(self, mutant: Mutant, seconds: float) -> tuple[str, str]:
        "What becomes of a mutant; 'unclear' if the check that fails does so without it, too."
        original = (self.root / mutant.module).read_text()
        self.write(mutant.module, mutant.source)
        try:
            outcome, by = run_checks(self.root, self.checks.of(mutant.module), seconds)
        finally:
            self.write(mutant.module, original)
        if outcome == "killed" and "::" in by:
            if by not in self.sound:
                self.sound[by] = run_checks(self.root, [by], 10 * seconds)[0] == "survived"
            outcome = outcome if self.sound[by] else "unclear"
        return outcome, by


def drawn(root: Path, places: list[str], count: int, seed: int) -> list[Mutant]:
    "Some mutants of modules; a larger count adds to those of a smaller one."
    files = [one for place in places for one in sorted((root / place).rglob("[!_]*.py"))]
    files += [root / place for place in places if place.endswith(".py")]
    names = [str(one.relative_to(root)) for one in files]
    every = [one for name in names for one in mutants_of(name, (root / name).read_text())]
    random.Random(seed).shuffle(every)
    return every[:count]


def run(root: Path, places: list[str], count: int, seed: int, seconds: float, table: Path) -> None:
    "Plant mutants one after the other, and write down what becomes of them."
    asked = drawn(root, places, count, seed)
    known: dict[tuple[str, ...], str] = {}
    if table.exists():
        with table.open(newline="") as file:
            known = {tuple(row[:4]): row[4] for row in csv.reader(file)}
    with tempfile.TemporaryDirectory() as folder, table.open("a", newline="") as file:
        laboratory = Laboratory(root, Path(folder))
        for number, mutant in enumerate(asked, 1):
            key = tuple(map(str, astuple(mutant)[:4]))
            if key in known: continue
            begun = time.monotonic()
            outcome, by = laboratory.judge(mutant, seconds)
            took = f"{time.monotonic() - begun:.0f}"
            known[key] = outcome
            csv.writer(file).writerow([*key, outcome, by, took])
            file.flush()
            print(f"{number}/{count} {outcome} ({by}, {took} s) {mutant.module}:{mutant.line}\n"
                  f"    - {mutant.before}\n    + {mutant.after}", flush=True)
    outcomes = [known[tuple(map(str, astuple(one)[:4]))] for one in asked]
    print(", ".join(f"{outcomes.count(one)} {one}" for one in sorted(set(outcomes))))


def main() -> None:
    "Read the command line."
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("places", nargs="*", default=PARTS, help="modules, or folders of them")
    parser.add_argument("--count", type=int, default=20, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--seconds", type=float, default=300, help="for the checks of one mutant")
    parser.add_argument("--table", type=Path, default=ROOT / "_mutants.csv", help="of results")
    given = parser.parse_args()
    run(ROOT, given.places, given.count, given.seed, given.seconds, given.table)


if __name__ == "__main__":
    main()
