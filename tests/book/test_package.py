"""What is published: it is whole, holds nothing else, works where nothing but its core is installed, and is typed."""
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ROOT

from mfdl.tools.cli import app
from mfdl.tools.experiments import experiments

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, GROUPS = PYPROJECT["project"], PYPROJECT["dependency-groups"]
CORE = {"numpy", "scipy", "networkx", "pandas", "click", "tqdm", "threadpoolctl", "platformdirs", "python-flint", "lazy-loader"}
BELOW = {"python-dateutil", "six", "tzdata", "pytz", "colorama", "packaging"}  # what these need themselves, on some systems
STORY = "account florentine --attackers Medici -T 20 -p cyclic:4,5 --sigma 2"


def normal(name): return re.sub(r"[-_.]+", "-", name).lower()


def needs(requirements):
    """Names of the distributions in a list of requirements, those of other extras of this project among them."""
    names = set()
    for text in requirements:
        name, extras = re.match(r"([\w.-]+)(?:\[([\w,]+)\])?", text).groups()
        if name == PROJECT["name"]: names |= set().union(*(needs(PROJECT["optional-dependencies"][extra]) for extra in extras.split(",")))
        else: names.add(normal(name))
    return names


def run(*command, **kwargs): return subprocess.run(list(map(str, command)), capture_output=True, text=True, **kwargs)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Source distribution, the wheel that is built from it, and the folder from which both came: a copy of the project with things in it that must not go out."""
    folder, out = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("dist")
    ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "*.failed.ipynb")
    for name in ("mfdl", "nbs", "tests", "tools"): shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for path in [*ROOT.glob("*.*"), ROOT / ".gitignore", ROOT / "LICENSE", ROOT / "Makefile"]:
        if path.is_file(): shutil.copy(path, folder)
    wanted = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    for unwanted in (".venv/lib/x.py", "data/faces.csv", "figures/x.svg", "nbs/experiments/.ipynb_checkpoints/pndp.ipynb", "nbs/experiments/pndp.failed.ipynb",
                     "mfdl/__pycache__/x.pyc", "notes.txt", "dist/old.whl"):
        (folder / unwanted).parent.mkdir(parents=True, exist_ok=True)
        (folder / unwanted).write_text("not for others")
    built = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl")), wanted


def test_distributions_hold_the_project_and_nothing_else(published):
    source, wheel, wanted = published
    with tarfile.open(source) as tar: packed = {name.partition("/")[2] for name in tar.getnames()}
    assert packed - {"PKG-INFO"} == wanted - {name for name in wanted if name.startswith(".") and name != ".gitignore"}
    installed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    places = {"mfdl/": "mfdl/", "nbs/experiments/": "mfdl/_experiments/", "nbs/app/": "mfdl/_app/"}
    assert installed == {name.replace(source, place) for name in wanted for source, place in places.items() if name.startswith(source)}
    assert "mfdl/py.typed" in installed and "mfdl/_experiments/pndp.ipynb" in installed


def test_core_is_small(): assert needs(PROJECT["dependencies"]) == CORE


def imports(node, extra=None):
    """(module, extra whose `needed_for` it stands in, line) of every import below a node, but for those that only type checkers see."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING": below = node.orelse
    else: below = ast.iter_child_nodes(node)
    if isinstance(node, ast.Import): yield from ((alias.name.partition(".")[0], extra, node.lineno) for alias in node.names)
    if isinstance(node, ast.ImportFrom) and not node.level: yield node.module.partition(".")[0], extra, node.lineno
    if isinstance(node, ast.With):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        extra = next((call.args[1].value for call in calls if ast.unparse(call.func) == "needed_for"), extra)
    for child in below: yield from imports(child, extra)


def test_imports_beyond_the_core_name_the_extra_that_brings_them():
    brought, wrong, extras = packages_distributions(), [], set()
    for path in (ROOT / "mfdl").rglob("*.py"):
        for module, extra, line in imports(ast.parse(path.read_text())):
            distributions = set(map(normal, brought.get(module, [module])))
            if module in sys.stdlib_module_names or module == "mfdl" or distributions & CORE: continue
            extras.add(extra)
            if extra is None or not distributions & needs(PROJECT["optional-dependencies"][extra]): wrong.append(f"{path.name}:{line}: {module}, of extra {extra}")
    assert not wrong, f"imports that no needed_for(..., extra) surrounds, or whose extra does not bring them: {wrong}"
    assert extras >= {"data", "train", "network", "sweep", "notebooks", "explore", "sdp", "dask", "parquet", "femnist", "fediverse", "accountants"}


def parts(module, source):
    """Parts of the package that the source of a module imports something of, at any place."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import): yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("mfdl."))
        elif isinstance(node, ast.ImportFrom):
            absolute = [*module.parts[:-node.level], *(node.module or "").split(".")] if node.level else (node.module or "").split(".")[1:]
            own = node.level or (node.module or "").split(".")[0] == "mfdl"
            if own: yield from [absolute[0]] if absolute and absolute[0] else (alias.name for alias in node.names)


PARTS = {path.parent.name for path in (ROOT / "mfdl").glob("*/__init__.py")} - {"tools"}


def test_no_part_before_the_tools_imports_them():
    paths = [path for part in PARTS for path in (ROOT / "mfdl" / part).rglob("*.py")]
    used = {path.relative_to(ROOT / "mfdl"): set(parts(path.relative_to(ROOT / "mfdl"), path.read_text())) for path in paths}
    assert len(PARTS) == 7 and sum(map(bool, used.values())) > 60
    assert not {module: found for module, found in used.items() if not found <= PARTS}
    for late in ("from ..tools.cli import app", "from ..tools import cli", "from .. import tools", "def f(): import mfdl.tools.cli", "from mfdl import tools"):
        assert list(parts(Path("base/files.py"), late)) == ["tools"], late
    assert list(parts(Path("noise/methods/insiders.py"), "from ...tools import cli")) == ["tools"]


def test_whatever_the_core_installs_is_imported_without_an_extra():
    """By a part before the tools; only click, of which the command is made, is theirs."""
    brought, found = packages_distributions(), {"core": set(), "tools": set()}
    for path in (ROOT / "mfdl").rglob("*.py"):
        plain = {normal(name) for module, extra, _ in imports(ast.parse(path.read_text())) if extra is None for name in brought.get(module, [])}
        found["tools" if path.parent.name == "tools" else "core"] |= plain & CORE
    assert found["core"] == CORE - {"click"} and "click" in found["tools"]


ALONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED: raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
import json, os, tempfile
import numpy as np
import mfdl
from mfdl import *
from mfdl.base.downloads import fetch
from mfdl.noise.methods.coalitions import optimize_coalition
from mfdl.tools.agreement import public_key
from mfdl.tools.cli import app
from mfdl.tools.nvflare import swarm_job
from click.testing import CliRunner
os.environ["MFDL_DATA"] = tempfile.mkdtemp()
W = gossip_matrix(load_graph("florentine"))
run, steps = dp_dsgd(W, 6), Participation.cyclic(2, 3)
report = account(run, PNDP([0]), steps, sigma=2.0)
table = which_noise(gossip_matrix(load_graph("ring:n=5")), steps, 8.0, 1e-6)
def meet():
    with join(): pass
def command(*words):
    told = CliRunner().invoke(app, words)
    raise ImportError(told.output + told.stderr)
def cluster():
    from mfdl.tools.sweeps import dask_client
    with dask_client("tcp://127.0.0.1:9"): pass
def write():
    from mfdl.tools.sweeps import write_table
    write_table(table, "table.parquet")
refused = {}
for extra, ask in {
    "data": lambda: fetch("no/file", "0", "https://example.org/file", bytes),
    "train": lambda: train(None, "digits", "ring:n=4", epsilon=8),
    "network": meet,
    "sweep": lambda: command("sweep", GRID),
    "notebooks": lambda: report.plot(),
    "explore": lambda: command("explore"),
    "agree": lambda: public_key("0" * 64),
    "nvflare": lambda: swarm_job("job", None, run, "code.py", ""),
    "sdp": lambda: optimize_coalition(W, [[0, 1]], 1),
    "dask": cluster,
    "parquet": write,
    "femnist": lambda: load_data("femnist"),
    "fediverse": lambda: load_graph("peertube"),
    "accountants": lambda: account(run, LDP(), Participation.poisson(0.1, 6), sigma=2.0).epsilon(1e-6),
}.items():
    try: ask()
    except ImportError as error: refused[extra] = str(error)
print(json.dumps([len(mfdl.__all__), report.worst.mu, int(np.isfinite(table.squared_error).sum()), refused]))
"""


def test_the_core_works_alone_and_names_the_extra_that_is_missing(tmp_path):
    """Everything that is not the core's, as if it were not installed; what is asked for beyond the core is refused in words that name its extra."""
    extras = {name: needs(some) for name, some in PROJECT["optional-dependencies"].items()}
    groups = [needs(one for one in some if isinstance(one, str)) for some in GROUPS.values()]
    refused = [module for module, names in packages_distributions().items() if {*map(normal, names)} & set().union(*extras.values(), *groups) and not {*map(normal, names)} & CORE]
    (tmp_path / "grid.yaml").write_text("experiment: pndp\nparameters: {T: [3]}\n")
    code = ALONE.replace("REFUSED", repr(set(refused))).replace("GRID", repr(str(tmp_path / "grid.yaml")))
    told = run(sys.executable, "-c", code, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert told.returncode == 0, told.stderr
    names, mu, kinds, messages = json.loads(told.stdout)
    assert names > 60 and mu > 0 and kinds > 3
    assert {extra for extra, message in messages.items() if f"pip install 'mfdl[{extra}]'" in message} == {*extras}, messages


CLIENT = """
from typing import assert_type
import numpy as np
import pandas as pd
from mfdl import LDP, PNDP, GaussianDP, Participation, Protocol, Report, Round, Step, account, dp_dsgd, fresh_noise, gossip_matrix, load_graph

florentine = load_graph("florentine")
W = gossip_matrix(florentine)
run = dp_dsgd(W, T=20, nodes=florentine)
report = account(run, PNDP(["Medici"]), Participation.cyclic(k=4, b=5), sigma=2.0)
assert_type(run, Protocol)
own = Protocol(florentine, [Step(True, fresh_noise(np.eye(15)), [Round(W)])] * 20, "mine")
assert_type(report, Report)
assert_type(report.worst, GaussianDP)
assert_type(report.worst.epsilon(1e-6), float)
assert_type(report.to_frame(), pd.DataFrame)
numbers: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = report.mu
epsilon: "pd.Series[float]" = report.epsilon(1e-6)
against_each = account(run, PNDP.each(florentine), Participation.every_step(20))
assert_type(account(run, LDP(), Participation.every_step(20)).calibrate(epsilon=8, delta=1e-6).sigma, float)
account(run, "Medici", Participation.every_step(20), sigma="2")
"""
INSIDE = """
import importlib, json, pkgutil
from importlib.metadata import distributions
import mfdl
for module in pkgutil.walk_packages(mfdl.__path__, "mfdl."): importlib.import_module(module.name)
print(json.dumps([mfdl.__file__, [d.name for d in distributions()], sorted(mfdl.tools.experiments.experiments())]))
"""
LACKING = {  # command: what it ends with
    "account florentine -o picture.png": "error: drawing needs matplotlib: pip install 'mfdl[notebooks]'",
    "reproduce pndp": "error: an experiment needs nbformat: pip install 'mfdl[notebooks]'",
    "sweep grid.yaml": "error: a sweep needs yaml: pip install 'mfdl[sweep]'",
}


@pytest.fixture(scope="module")
def core(published, tmp_path_factory):
    """A virtual environment with the wheel and what it requires, and a function that runs a program of it: as a user would, in a folder of the user's own."""
    home, outside = tmp_path_factory.mktemp("venv"), tmp_path_factory.mktemp("outside")
    venv.create(home, symlinks=os.name != "nt")
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    installed = run(sys.executable, "-m", "pip", "--python", programs / "python", "install", "-q", "--no-compile", "-c", ROOT / "constraints.txt", published[1])
    assert installed.returncode == 0, installed.stderr
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return programs, lambda program, *arguments: run(programs / program, *arguments, cwd=outside, env=env)


def test_wheel_works_where_only_its_core_is_installed(core, tmp_path, monkeypatch):
    programs, inside = core
    found = inside("python", "-c", INSIDE)
    assert found.returncode == 0, found.stderr
    where, distributions, offered = json.loads(found.stdout)
    assert Path(where).is_relative_to(programs.parent)
    assert CORE | {PROJECT["name"]} <= set(map(normal, distributions)) <= CORE | BELOW | {PROJECT["name"]}
    assert offered == sorted(experiments())

    here, there = tmp_path / "here.json", tmp_path / "there.json"
    told = inside("mfdl", *STORY.split(), "-o", there)
    assert CliRunner().invoke(app, [*STORY.split(), "-o", str(here)]).exit_code == told.returncode == 0, told.stderr
    expected, got = json.loads(here.read_text()), json.loads(there.read_text())
    assert "worst pair: mu=1 by an estimate; proved for training: mu=1, epsilon=4.887" in told.stdout and len(got["pairs"]) == 14
    for numbers in ("mu", "proved_mu", "estimated_epsilon", "proved_epsilon"):
        assert [pair.pop(numbers) for pair in got["pairs"]] == pytest.approx([pair.pop(numbers) for pair in expected["pairs"]], rel=1e-9)
    assert got == expected
    assert inside("mfdl", "graphs").stdout == CliRunner().invoke(app, ["graphs"]).output


def test_what_lacks_an_extra_says_which(core, tmp_path):
    _, inside = core
    (tmp_path / "grid.yaml").write_text("experiment: pndp\nparameters: {T: [3]}\n")
    for command, message in LACKING.items():
        ended = inside("mfdl", *command.replace("grid.yaml", str(tmp_path / "grid.yaml")).split())
        assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", message + "\n")
    trained = inside("python", "-c", "from mfdl import train; train(None, 'digits', 'ring:n=4', epsilon=8)")
    assert re.search(r"\nImportError: training data needs sklearn: pip install 'mfdl\[train\]'$", trained.stderr.rstrip())


@pytest.mark.nightly
def test_a_script_with_the_installed_package_is_type_checked(core, tmp_path):
    """Strictly, and by the types that the wheel has (and pandas-stubs, for pandas): all is well but for the last line, whose arguments fit no overload."""
    programs, inside = core
    packages = Path(inside("python", "-c", "import pandas; print(pandas.__file__)").stdout).parents[1]
    (packages / "pandas-stubs").symlink_to(Path(find_spec("pandas").origin).parents[1] / "pandas-stubs")
    (script := tmp_path / "script.py").write_text(CLIENT)
    checked = run(sys.executable, "-m", "mypy", "--strict", "--python-executable", programs / "python", "--cache-dir", tmp_path / "cache", script,
                  cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""})
    errors = re.findall(r"script.py:(\d+): error: .*\[([\w-]+)\]$", checked.stdout, re.M)
    assert errors == [(str(CLIENT.count("\n")), "call-overload")], checked.stdout + checked.stderr


def test_package_is_typed():
    checked = run(sys.executable, "-m", "mypy", cwd=ROOT)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_versions_agree():
    version = re.search(r'__version__ = "(.+)"', (ROOT / "mfdl" / "__init__.py").read_text())[1]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\nversion = {version}\n" in (ROOT / "settings.ini").read_text()
    assert re.search(r"^## \[(\d.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] == version
