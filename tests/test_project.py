"""The project is what its notebooks say: exported, clean, with outputs, and light to import."""
import json
import os
import re
import runpy
import shutil
import subprocess
import sys

import pytest
from conftest import FIGURES, ROOT
from execnb.nbio import nb2str, read_nb
from nbdev.clean import clean_nb
from test_reading import lacks


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


def workshop(folder, *names):
    """Files and folders of the project in another folder, where `make` finds this environment and sets up nothing."""
    for name in names: (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)
    (folder / "Makefile").write_text((ROOT / "Makefile").read_text().replace(": setup\n", ":\n"))
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def make(folder, *arguments): return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True)


def test_readme_comes_from_the_index(tmp_path):
    (tmp_path / "nbs").mkdir()
    workshop(tmp_path, "nbs/index.ipynb")
    assert make(tmp_path, "readme").returncode == 0
    assert (tmp_path / "README.md").read_text() == (ROOT / "README.md").read_text(), "run make readme"


def test_a_chapter_begins_with_one_command_and_runs_with_another(tmp_path):
    for folder in ("nbs", "mfdl"): (tmp_path / folder).mkdir()
    workshop(tmp_path, "tools", "settings.ini", "pyproject.toml", "nbs/index.ipynb", "mfdl/__init__.py")
    title = "A node's \"own\" view of $5"
    made = make(tmp_path, "chapter", "NAME=98_trial", f"TITLE={title.replace('$', '$$')}", "QUESTION=What can one see from there?", "MODULE=trial")
    assert made.returncode == 0 and "make refresh NAME=98_trial" in made.stdout and "nbs/index.ipynb" in made.stdout, made.stderr
    again = make(tmp_path, "chapter", "NAME=98_trial", "TITLE=Another")
    assert again.returncode and again.stderr.startswith("error: NAME='98_trial': 98_trial.ipynb exists")
    chapter = tmp_path / "nbs" / "98_trial.ipynb"
    assert read_nb(chapter).cells[0].source.startswith(f"# {title}\n\n> What can one see from there?\n")
    refreshed = make(tmp_path, "refresh", "NAME=98_trial")
    assert refreshed.returncode == 0, refreshed.stderr
    assert "def spread(" in (tmp_path / "mfdl" / "trial.py").read_text() and "0.000 after 8 rounds" in chapter.read_text()
    assert not lacks(chapter, within=8) and not subprocess.run([sys.executable, "-m", "ruff", "check", "-q", tmp_path / "nbs"]).returncode


@pytest.mark.parametrize("given, message", [
    (["9_trial", "T"], "NAME='9_trial': expected two digits"), (["98_Trial", "T"], "NAME='98_Trial': expected two digits"), (["", "T"], "NAME='': expected two digits"),
    (["98_trial", ""], "TITLE=''"), (["01_graphs", "T"], "NAME='01_graphs': 01_graphs.ipynb exists"), (["98_trial", "T", "No."], "QUESTION='No.'"),
    (["98_trial", "T", "", "graphs"], "MODULE='graphs': mfdl.graphs belongs"), (["98_trial", "T", "", "class"], "MODULE='class': expected"),
])
def test_a_chapter_that_cannot_be_is_refused(tmp_path, given, message):
    for folder in ("nbs", "mfdl"): (tmp_path / folder).mkdir()
    for path in ("nbs/01_graphs.ipynb", "mfdl/graphs.py"): shutil.copy(ROOT / path, tmp_path / path)
    write_chapter = runpy.run_path(str(ROOT / "tools" / "chapter.py"))["write_chapter"]
    with pytest.raises(ValueError, match=re.escape(message)): write_chapter(tmp_path / "nbs", *given, *[""] * (4 - len(given)))
    assert [path.name for path in (tmp_path / "nbs").iterdir()] == ["01_graphs.ipynb"]
    assert (tmp_path / "nbs" / "01_graphs.ipynb").read_bytes() == (ROOT / "nbs" / "01_graphs.ipynb").read_bytes()


def test_refresh_names_a_notebook_that_is_not_there(tmp_path):
    refused = make(workshop(tmp_path), "refresh", "NAME=98_trial")
    assert refused.returncode and "NAME=98_trial: there is no nbs/98_trial.ipynb" in refused.stderr


def test_hooks_pass_and_notice(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in ("nbs", "mfdl"): shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    workshop(tmp_path, ".pre-commit-config.yaml", ".gitignore", "settings.ini", "pyproject.toml", "README.md")
    env = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / ".venv-hooks"), "GIT_CONFIG_GLOBAL": os.devnull}
    def hooks(): return subprocess.run([sys.executable, "-m", "pre_commit", "run", "--all-files"], cwd=tmp_path, env=env, capture_output=True, text=True)
    for command in ("init -q", "add ."): subprocess.run(["git", *command.split()], cwd=tmp_path, env=env, check=True)
    passed = hooks()
    assert passed.returncode == 0, passed.stdout
    (tmp_path / "mfdl" / "graphs.py").write_text("by_hand = 1\n")
    dirty = json.loads((tmp_path / "nbs" / "01_graphs.ipynb").read_text())
    next(cell for cell in dirty["cells"] if cell["cell_type"] == "code")["execution_count"] = 7
    (tmp_path / "nbs" / "01_graphs.ipynb").write_text(json.dumps(dirty))
    (tmp_path / "README.md").write_text("by hand")
    (tmp_path / "nbs" / "untidy.py").write_text("import os\n")
    for command in ("add .",): subprocess.run(["git", *command.split()], cwd=tmp_path, env=env, check=True)
    assert hooks().stdout.count("Failed") == 4


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
