"""The project is what its notebooks say: exported, clean, with outputs, and light to import."""
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import FIGURES, ROOT
from execnb.nbio import nb2str, read_nb
from nbdev.clean import clean_nb


def test_package_is_what_the_notebooks_export(tmp_path):
    for name in ("settings.ini", "pyproject.toml", "nbs"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    (tmp_path / "mfdl").mkdir()
    shutil.copy(ROOT / "mfdl" / "__init__.py", tmp_path / "mfdl")
    subprocess.run([sys.executable, "-c", "from nbdev.doclinks import nbdev_export; nbdev_export()"], cwd=tmp_path, check=True)
    exported, committed = ({p.name: p.read_text() for p in (folder / "mfdl").glob("*.py")} for folder in (tmp_path, ROOT))
    assert sorted(exported) == sorted(committed), "run make export: a module has no notebook, or a notebook no module"
    different = [name for name in exported if exported[name] != committed[name]]
    assert not different, f"run make export: {different} differ from their notebooks"


@pytest.mark.parametrize("path", [*sorted((ROOT / "nbs").glob("**/[!.]*.ipynb")), *FIGURES], ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_notebook_is_clean(path):
    text = path.read_text()
    assert os.fspath(ROOT) not in text, "a path of this machine is in the notebook"
    notebook = read_nb(path)
    before = json.dumps(json.loads(text), sort_keys=True)
    clean_nb(notebook, allowed_cell_metadata_keys=["tags"])
    assert json.dumps(json.loads(nb2str(notebook)), sort_keys=True) == before, f"run nbdev_clean --fname {path}"


def test_readme_comes_from_the_index(tmp_path):
    (tmp_path / "nbs").mkdir()
    shutil.copy(ROOT / "nbs" / "index.ipynb", tmp_path / "nbs")
    makefile = (ROOT / "Makefile").read_text().replace("readme: setup", "readme:").replace("BIN := .venv/bin", f"BIN := {os.path.dirname(sys.executable)}")
    (tmp_path / "Makefile").write_text(makefile)
    subprocess.run(["make", "readme"], cwd=tmp_path, check=True)
    assert (tmp_path / "README.md").read_text() == (ROOT / "README.md").read_text(), "run make readme"


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_is_light():
    timed = "import time; t = time.perf_counter(); import mfdl; print(time.perf_counter() - t)"
    assert min(float(run_python(timed)) for _ in range(3)) < 1


def test_accounting_does_without_torch():
    heavy = run_python(
        "import sys; from mfdl import account; from mfdl.algorithms import dp_dsgd; from mfdl.attackers import PNDP; from mfdl.gossip import gossip_matrix\n"
        "from mfdl.graphs import load_graph; from mfdl.participation import Participation\n"
        "r = account(dp_dsgd(gossip_matrix(load_graph('ring:n=5')), 3), PNDP([0]), Participation.every_step(3)); r.to_frame(); r.epsilon(1e-6)\n"
        "print([m for m in ('torch', 'matplotlib', 'papermill', 'cvxpy') if m in sys.modules])")
    assert heavy == "[]"
