"""Planted faults: what they change, and that checks which notice them are told from checks that do not."""
import ast
import csv
import runpy

import pytest
from conftest import ROOT

TOOL = runpy.run_path(str(ROOT / "tools" / "mutants.py"))

SOURCE = '''"""A comparison is a < b, and 1 + 1."""
from a import b

@wraps(True)
def f(x: int | None = 3, *, y: "float" = 0.5) -> "1 + 1":
    "Not 2 < 3 either."
    if x < y: raise ValueError(f"{x + 1}: expected {2}" + "more")
    if not x and y:
        x += min(y, 1)
    return x[y:], np.maximum(x, -y).sum(axis=0)
'''


def after(source): return {one.after for one in TOOL["mutants_of"]("m.py", source)}


def test_operators_change_one_thing_and_no_words():
    found = list(TOOL["mutants_of"]("m.py", SOURCE))
    for one in found:
        assert ast.dump(ast.parse(one.source)) != ast.dump(ast.parse(SOURCE))
        assert SOURCE.splitlines()[one.line - 1].strip() == one.before != one.after
        differ = [line for line, other in zip(SOURCE.splitlines(), one.source.splitlines(), strict=True) if line != other]
        assert len(differ) == 1
        assert not any(word in one.before for word in ("comparison", "import", "wraps", "either"))
        assert "pass" in one.after or 'raise ValueError(f"{x + 1}: expected {2}" + "more")' in one.after or "raise" not in one.before
    assert {one.line for one in found} == {5, 7, 8, 9, 10}
    assert after("if x < y: raise E\n") == {"if (x <= y): raise E", "if (x > y): raise E", "pass"}
    assert after("a = x[i:2]\n") == {"a = x[(i + 1):2]", "a = x[i:(3)]", "a = x[i:(1)]"}
    assert after("a = not b or c\n") == {"a = (not b and c)", "a = (b) or c"}
    assert after("a = np.minimum(b, True)\n") == {"a = (np.maximum)(b, True)", "a = np.minimum(b, (False))"}
    assert after("a = 'ä' + b\na *= 2.0\n") == {"a = ('ä' - b)", "a /= 2.0", "a *= (20.0)", "a *= (0.2)"}
    assert not after("x: int | float\ndef f(a: b < c) -> d + e: assert a < b, 'a' + 'b'\n")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A package of two modules, the second of which imports the first, and a test of the second."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # none of them is needed, and they take a while
    root = tmp_path / "project"
    for folder in ("mfdl/part", "tests/part"): (root / folder).mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['nightly', 'alone']\naddopts = '-q -ra'\n")
    (root / "mfdl/__init__.py").write_text("")
    (root / "mfdl/part/__init__.py").write_text("")
    (root / "mfdl/part/lower.py").write_text("def least(a, b):\n    return min(a, b)\n")
    (root / "mfdl/part/upper.py").write_text("from .lower import least\n\ndef clipped(x):\n    return least(x, 5)\n")
    (root / "tests/part/test_upper.py").write_text("from mfdl.part.upper import clipped\ndef test_it(): assert clipped(9) == 5\n")
    return root


def test_mutants_are_killed_survive_or_run_out_of_time(project, tmp_path, capsys):
    checks = TOOL["Checks"](project)
    assert checks.of("mfdl/part/lower.py") == checks.of("mfdl/part/upper.py") == [["tests/part/test_upper.py"]]
    before = {path: path.read_bytes() for path in project.rglob("*.*")}
    table = tmp_path / "table.csv"
    TOOL["run"](project, ["mfdl"], 9, 0, 120.0, table)
    rows = list(csv.reader(table.open()))
    changed = {"return least(x, (4))", "return least(x, (6))", "return (max)(a, b)"}
    assert {tuple(row[3:6]) for row in rows} == {(after, "killed", "tests/part/test_upper.py::test_it") for after in changed}
    assert "3 killed" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in project.rglob("*.*")} == before
    TOOL["run"](project, ["mfdl"], 9, 0, 120.0, table)
    assert len(list(csv.reader(table.open()))) == 3 and "1/3" not in capsys.readouterr().out  # nothing is run again

    (project / "mfdl/part/lower.py").write_text("def least(a, b):\n    return a if a <= b else b\n")  # a < b is the same
    laboratory = TOOL["Laboratory"](project, tmp_path)
    judged = {one.after: laboratory.judge(one, 120.0) for one in TOOL["drawn"](project, ["mfdl/part/lower.py"], 9, 0)}
    assert judged == {"return a if (a < b) else b": ("survived", "1 passed"), "return a if (a >= b) else b": ("killed", "tests/part/test_upper.py::test_it")}
    assert laboratory.judge(next(iter(TOOL["drawn"](project, ["mfdl"], 1, 0))), 0.01)[0] == "timed out"


def test_what_fails_without_a_mutant_kills_none(project, tmp_path):
    (project / "tests/part/test_upper.py").write_text("from mfdl.part.upper import clipped\ndef test_it(): assert clipped(9) == 7\n")
    laboratory = TOOL["Laboratory"](project, tmp_path)
    mutant = TOOL["drawn"](project, ["mfdl/part/upper.py"], 1, 0)[0]
    assert laboratory.judge(mutant, 120.0) == ("unclear", "tests/part/test_upper.py::test_it")


def test_checks_that_are_not_there_are_no_verdict(project, tmp_path):
    (project / "mfdl/part/upper.py").write_text("# File to edit: nbs/part/1_upper.ipynb\nLARGE = 3\n")
    mutant = TOOL["drawn"](project, ["mfdl/part/upper.py"], 1, 0)[0]
    with pytest.raises(RuntimeError, match=r"cannot collect .*1_upper"):
        TOOL["Laboratory"](project, tmp_path).judge(mutant, 120.0)


def test_the_check_of_a_chapter_is_there():
    checks = TOOL["Checks"](ROOT).of("mfdl/protocol/gossip.py")
    assert TOOL["run_checks"](ROOT, [*checks[0], "--collect-only"], 120.0)[0] == "passed"
