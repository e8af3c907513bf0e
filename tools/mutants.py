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
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import cache_from_source, resolve_name
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS = ["mfdl/accounting", "mfdl/noise", "mfdl/learning"]
CHAPTER = "tests/book/test_notebooks.py::test_chapter_holds_for_the_package[{}]"
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
         ("floor", "ceil")]
RENAMED = dict(TWINS) | {two: one for one, two in TWINS} | {"sum": "max"}
UNTOUCHED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.arg)
UNREAD = {"annotation", "returns", "decorator_list"}


def with_other(node: ast.AST, **fields: object) -> str:
    "The source of a node with some fields replaced."
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return ast.unparse(other)


def alternatives(node: ast.AST) -> list[str]:
    "What may stand in place of an expression or a statement."
    match node:
        case ast.Constant(value=bool(value)): return [repr(not value)]
        case ast.Constant(value=int(value)): return [repr(value + 1), repr(value - 1)]
        case ast.Constant(value=float(value)):
            return [repr(10 * value), repr(value / 10)] if value else ["1.0"]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op):
            return [with_other(node, op=other()) for other in OTHER.get(type(op), [])]
        case ast.Compare(ops=[op]):
            return [with_other(node, ops=[other()]) for other in OTHER[type(op)]]
        case ast.UnaryOp(operand=operand): return [ast.unparse(operand)]
        case ast.If(body=[ast.Raise()], orelse=[]): return ["pass"]
        case ast.Name(id=name, ctx=ast.Load()) if name in RENAMED: return [RENAMED[name]]
        case ast.Attribute(attr=name) if name in RENAMED:
            return [with_other(node, attr=RENAMED[name])]
    return []


def inside(node: ast.AST) -> Iterator[ast.AST]:
    "A node and all within, but for annotations, imports, and words of errors."
    if isinstance(node, UNTOUCHED) or getattr(node, "arg", "") == "strict": return
    yield node
    for name, value in ast.iter_fields(node):
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST) and name not in UNREAD:
                yield from inside(one)


def replacements(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    "Nodes, and what may stand in their place."
    for node in inside(tree):
        for text in alternatives(node):
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

    @property
    def key(self) -> tuple[str, ...]:
        "What tells it from others."
        return self.module, str(self.line), self.before, self.after


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


def given_out(root: Path) -> dict[str, str]:
    "The module of each name that the package itself gives out."
    tree = ast.parse((root / "mfdl" / "__init__.py").read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in found for alias in node.names}


def imported(path: Path, root: Path, given: dict[str, str]) -> set[Path]:
    "The modules of the package that a file imports, perhaps by a name given out."
    part = ".".join(path.relative_to(root).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom): continue
        base = resolve_name("." * node.level + (node.module or ""), part)
        names = [alias.name for alias in node.names]
        found |= {base, *(f"{base}.{name}" for name in names)}
        if base == "mfdl":
            found |= {given[name] for name in names if name in given}
    paths = {root / f"{name.replace('.', '/')}.py" for name in found}
    return {one for one in paths if one.exists()}


def chapter_of(module: Path) -> list[str]:
    "The check of the chapter that exports a module."
    told = re.search(r"File to edit: (?:\.\./)*nbs/(\S+)\.ipynb", module.read_text())
    return [CHAPTER.format(told[1])] if told else []


class Checks:
    "Which checks are about which module."

    def __init__(self, root: Path) -> None:
        self.root = root
        given = given_out(root)
        modules = sorted((root / "mfdl").rglob("[!_]*.py"))
        tests = sorted((root / "tests").rglob("test_*.py"))
        tests = [one for one in tests if one.parent.name != "book" or one.name in OF_NUMBERS]
        self.modules = {one: imported(one, root, given) for one in modules}
        self.tests = {one: imported(one, root, given) for one in tests}

    def ring(self, inner: set[Path]) -> set[Path]:
        "The modules that import one of some."
        return {one for one, needs in self.modules.items() if needs & inner}

    def importing(self, modules: set[Path], part: str) -> list[str]:
        "Tests that import one of some modules, those of a part first."
        found = [one for one, needs in self.tests.items() if needs & modules]
        found.sort(key=lambda one: (one.parent.name != part, one.name in OF_NUMBERS))
        return [str(one.relative_to(self.root)) for one in found]

    def of(self, module: str) -> list[list[str]]:
        "All that can notice a fault in a module, the nearest first, in groups."
        path = self.root / module
        seen = {path}
        near = self.ring(seen)
        direct = self.importing(seen, path.parent.name)
        found = self.importing(near, path.parent.name)
        while near - seen:
            found += [check for one in sorted(near - seen) for check in chapter_of(one)]
            seen |= near
            near = self.ring(seen)
        further = [one for one in dict.fromkeys(found) if one not in direct]
        return [group for group in (chapter_of(path), direct, further) if group]


def run_checks(root: Path, checks: list[str], seconds: float) -> tuple[str, str, int]:
    "Whether checks fail, pass or run out of time; the first that fails; how many pass."
    options = ["-x", "-vv", "-p", "no:cacheprovider", "-m", "not nightly and not alone"]
    command = [sys.executable, "-m", "pytest", *options, *checks]
    settings = {"OMP_NUM_THREADS": "1"} | dict(os.environ) | {"PYTHONPATH": str(root)}
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(command, cwd=root, env=settings, stdout=told,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        told.seek(0)
        words = told.read()
    passed = len(re.findall(" PASSED", words))
    if status is None: return "timed out", "", passed
    if status in (0, 5): return "passed", "", passed  # 5: there was nothing to run
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", words, re.M)
    return "failed", failed[1] if failed else "import", passed


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

    def passes(self, check: str, group: list[str]) -> bool:
        "Whether a check passes without a mutant; or all of a group can be imported."
        asked = [*group, "--collect-only"] if check == "import" else [check]
        if check not in self.sound:
            self.sound[check] = run_checks(self.root, asked, 1e4)[0] == "passed"
            if check == "import" and not self.sound[check]:
                raise RuntimeError(f"pytest cannot collect {' '.join(group)}")
        return self.sound[check]

    def judge(self, mutant: Mutant, seconds: float) -> tuple[str, str]:
        "What becomes of a mutant: 'unclear' if what fails does so without it, too."
        original = (self.root / mutant.module).read_text()
        until = time.monotonic() + seconds
        outcome = "survived"
        passed = 0
        for group in self.checks.of(mutant.module):
            self.write(mutant.module, mutant.source)
            try:
                left = until - time.monotonic()
                found, by, count = run_checks(self.root, group, left)
            finally:
                self.write(mutant.module, original)
            passed += count
            if found == "failed":
                return "killed" if self.passes(by, group) else "unclear", by
            if found == "timed out":
                outcome = "timed out"
                break
        return outcome, f"{passed} passed"


def drawn(root: Path, places: list[str], count: int, seed: int) -> list[Mutant]:
    "Some mutants of modules; a larger count adds to those of a smaller one."
    files = [root / place for place in places if place.endswith(".py")]
    files += [one for place in places for one in sorted((root / place).rglob("[!_]*.py"))]
    names = [str(one.relative_to(root)) for one in files]
    every = [one for name in names for one in mutants_of(name, (root / name).read_text())]
    random.Random(seed).shuffle(every)
    return every[:count]


def finished(table: Path) -> dict[tuple[str, ...], str]:
    "What became of mutants in earlier runs, by what they change."
    if not table.exists(): return {}
    with table.open(newline="") as file:
        return {tuple(row[:4]): row[4] for row in csv.reader(file)}


def run(root: Path, places: list[str], count: int, seed: int, seconds: float, table: Path) -> None:
    "Plant mutants one after the other, and write down what becomes of them."
    asked = drawn(root, places, count, seed)
    known = finished(table)
    with tempfile.TemporaryDirectory() as folder:
        laboratory = Laboratory(root, Path(folder))
        for number, mutant in enumerate(asked, 1):
            if mutant.key in known: continue
            begun = time.monotonic()
            outcome, by = laboratory.judge(mutant, seconds)
            took = f"{time.monotonic() - begun:.0f}"
            known[mutant.key] = outcome
            with table.open("a", newline="") as file:
                csv.writer(file).writerow([*mutant.key, outcome, by, took])
            where = f"{mutant.module}:{mutant.line}"
            print(f"{number}/{len(asked)} {outcome} ({by}, {took} s) {where}")
            print(f"    - {mutant.before}\n    + {mutant.after}", flush=True)
    outcomes = Counter(known[one.key] for one in asked)
    print(", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items())))


def main() -> None:
    "Read the command line."
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("places", nargs="*", default=PARTS, help="modules, or folders of them")
    parser.add_argument("--count", type=int, default=20, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--seconds", type=float, default=300, help="for the checks of one mutant")
    parser.add_argument("--table", type=Path, default=ROOT / "_mutants.csv", help="of results")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left behind
    run(ROOT, given.places, given.count, given.seed, given.seconds, given.table)


if __name__ == "__main__":
    main()
