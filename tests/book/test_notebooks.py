"""Every notebook holds for the package that it exports; run as a reader runs it, from top to bottom, it shows what is committed."""
import ast
import importlib
import os
import re

import matplotlib.pyplot as plt
import nbformat
import pytest
from conftest import ROOT
from nbclient import NotebookClient
from traitlets.config import Config

from mfdl.base.downloads import find_file
from mfdl.tools.experiments import experiments, reproduce

CHAPTERS = [path for path in sorted((ROOT / "nbs").rglob("[!.]*.ipynb")) if not {"app", "experiments", ".ipynb_checkpoints"} & set(path.parts)]
SMOKE = {  # a size at which each experiment takes seconds
    "pndp": {"graph": "ring:n=8", "T": 3}, "theorem6": {"graph": "ring:n=5", "T": 3}, "horizons": {"graph": "ring:n=6", "T": "3,30"},
    "large": {"degree": 2, "graphs": "ring:n=6,florentine", "T": 4},
    "audit": {"graph": "ring:n=4", "replays": 40},
    "deep": {"task": "lstm", "sites": 3, "epochs": 2, "b": 4, "rates": "0.5", "adam_rates": "0.03", "epsilons": "8", "seeds": 2, "tuning_seeds": 1},
    "consortium": {"task": "digits", "sites": 4, "curious": "1", "absences": "0,0.5", "epochs": 2, "b": 2, "size": 20, "rates": "0.5", "seeds": 2, "tuning_seeds": 1},
    "covariance": {"n": 5, "graphs": 2, "epsilons": "3,40", "densities": "0.7,1.0", "sizes": "4,6"}, "seeds": {"n": 4, "small": 4, "graphs": 1, "densities": "0.9"},
    "story": {"graph": "ring:n=4", "epochs": 2, "b": 3, "seeds": 2}, "housing": {"graph": "ring:n=8", "epochs": 2, "b": 8, "mus": "1,5", "seeds": 2, "every": 8},
    "quadratic": {"n": 6, "T": 20, "epsilons": "3,40", "densities": "0.7,1.0", "seeds": 2},
    "correlated": {"data": "digits", "n": 4, "T": 20, "hidden": 8, "batch": 50, "rates": "0.1,0.01", "epsilons": "3,40", "densities": "0.7,1.0", "seeds": 1},
    "together": {"task": "quadratic", "graphs": "ring:n=4 ring:n=5", "mus": "1", "seeds": 2, "epochs": 2, "b": 4},
    "objectives": {"graph": "ring:n=4", "epochs": 2, "b": 4, "tail": 2, "seeds": 2, "every": 2, "tested": 50, "peaks": "0.1,0.2"},
    "reactions": {"graph": "path:n=4", "T": 3, "data": "digits", "epochs": 2, "b": 3, "seeds": 1},
    "writers": {"graph": "ring:n=3", "mus": "1", "methods": "no noise,identity,mafalda", "size": 1, "epochs": 1, "b": 4, "every": 4, "tested": 20},
    "letters": {"graph": "ring:n=3", "methods": "no noise,identity,mafalda", "seeds": 2, "size": 40, "epochs": 1, "b": 4, "every": 4, "tested": 20},
}
HOUSES = "california_housing/cal_housing.csv"
NEEDS = {"housing": HOUSES, "objectives": HOUSES, "writers": "qmnist_writers/qmnist-train-labels-idx2-int",
         "letters": "emnist_byclass_test/emnist-byclass-test-images-idx3-ubyte"}  # experiments that cannot do without these data


def name_of(path): return path.relative_to(ROOT / "nbs").with_suffix("").as_posix()


def directive(cell, pattern): return cell.cell_type == "code" and re.search(rf"^#\|\s*{pattern}", cell.source, re.M)


def in_words(data):
    """Plain text, or what stands for it if that only names a class."""
    plain = data.get("text/plain", "")
    return data.get("text/markdown", plain) if plain.startswith("<") else plain


def shown(cell):
    """What a cell shows, but for bars of progress, which slow machines show: kinds of pictures, words, and numbers."""
    texts = [out.get("text") or in_words(out.get("data", {})) for out in cell.outputs if out.get("name") != "stderr"]
    texts = [text for text in texts if not re.search(r"(\d+it|%\|.*\| \d+/\d+) \[", text)]
    pictures = sorted(kind for out in cell.outputs for kind in out.get("data", {}) if kind.startswith("image"))
    numbers = r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?"
    values = [float(x) for x in re.findall(numbers, "".join(texts))]
    return pictures, re.sub(numbers, "#", "".join(texts)).split(), values


def executed_in_kernel(path, folder):
    config = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/k"}})
    return NotebookClient(nbformat.read(path, as_version=4), timeout=300, config=config, resources={"metadata": {"path": str(folder)}}).execute()


def executed_in_browser(path, lab):
    notebook, faults = lab.run(path.relative_to(ROOT))
    assert not faults, "\n".join(faults)
    return notebook


@pytest.mark.nightly
@pytest.mark.parametrize("path", CHAPTERS, ids=name_of)
def test_notebook_runs_and_shows_what_is_committed(path, request, tmp_path):
    executed = executed_in_browser(path, request.getfixturevalue("lab")) if request.config.getoption("browser") else executed_in_kernel(path, tmp_path)
    for i, (before, after) in enumerate(zip(nbformat.read(path, as_version=4).cells, executed.cells, strict=True)):
        if before.cell_type != "code": continue
        (*what, numbers), (*what_now, numbers_now) = shown(before), shown(after)
        assert what == what_now and numbers == pytest.approx(numbers_now, rel=1e-5, abs=1e-8), f"cell {i} of {path.name} was committed with other outputs: run make refresh"


@pytest.mark.browser
def test_a_tutorial_runs_in_jupyterlab(lab):
    executed_in_browser(ROOT / "nbs" / "tutorials" / "your_graph.ipynb", lab)


@pytest.mark.parametrize("path", CHAPTERS, ids=name_of)
def test_chapter_holds_for_the_package(path, tmp_path, monkeypatch):
    """The cells that are neither exported nor slow, run against the package in place of the notebook's own definitions."""
    monkeypatch.chdir(tmp_path)
    cells = nbformat.read(path, as_version=4).cells
    name = next((re.search(r"default_exp\s+([\w.]+)", c.source)[1] for c in cells if directive(c, "default_exp")), None)
    defined = vars(importlib.import_module(f"mfdl.{name}")) if name else {}
    namespace = {**defined, "__name__": "__main__", "display": print}
    for i, cell in enumerate(cells):
        if cell.cell_type == "code" and not directive(cell, "(export|default_exp|slow)"): exec(compile(cell.source, f"{path.name}[{i}]", "exec"), namespace)
    plt.close("all")


OWN = {  # what a reader writes into the one cell that is to be changed
    "your_graph": "file, curious, colluders = {!r}, 0, [1]", "your_model": "network = load_graph({!r})", "your_algorithm": "graph, curious = load_graph({!r}), 0",
    "which_noise": "network, curious = load_graph({!r}), 0", "whom_to_connect": "ours = load_graph({!r})", "tour": "network, insider = load_graph({!r}), 0",
}


def run_with(name, graph):
    """A tutorial with another network, without the checks that are marked `# on this page`."""
    namespace = {"__name__": "__main__", "display": print}
    for cell in nbformat.read(ROOT / "nbs" / "tutorials" / f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type != "code": continue
        source = cell.source + ("\n" + OWN[name].format(graph)) * cell.source.startswith("# Change this cell to your own.")
        tree, lines = ast.parse(source), source.splitlines()
        tree.body = [node for node in tree.body if not isinstance(node, ast.Assert) or "# on this page" not in "".join(lines[node.lineno - 1:node.end_lineno])]
        exec(compile(tree, name, "exec"), namespace)


@pytest.mark.nightly
@pytest.mark.parametrize("graph", ["star:n=5", "complete:n=4", "path:n=2"])
@pytest.mark.parametrize("name", OWN)
def test_a_tutorial_runs_with_another_network(name, graph, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_with(name, graph)
    plt.close("all")


@pytest.mark.parametrize("name", OWN)
def test_a_tutorial_refuses_a_network_in_parts(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "links.csv").write_text("source,target\n0,1\n0,2\n3,4\n")
    with pytest.raises(AssertionError, match="falls into parts"): run_with(name, "links.csv")
    plt.close("all")


def test_every_experiment_has_a_smoke_size():
    assert sorted(SMOKE) == sorted(experiments())


@pytest.mark.parametrize("name", [name if name == "story" else pytest.param(name, marks=pytest.mark.nightly) for name in sorted(SMOKE)])
def test_experiment_runs_at_smoke_size(name, tmp_path):
    if name in NEEDS and find_file(NEEDS[name]) is None: pytest.skip(f"data of {name} are not on this machine: set MFDL_DATA to the folder that holds {NEEDS[name]}")
    result = reproduce(name, SMOKE[name], tmp_path, progress=False)
    assert {path.suffix for path in result.files} == {".csv", ".json", ".png", ".svg"} and result.summary
    assert not [path for path in os.listdir(tmp_path) if "failed" in path]
    from golden_experiments import changes  # which takes the sizes from here
    wrong = changes(name, result.files)
    assert not wrong, "\n".join(wrong)


@pytest.mark.nightly
def test_the_demo_makes_what_is_committed(tmp_path):
    """So that `make demo` leaves the checkout as it was."""
    for path in reproduce("story", folder=tmp_path, progress=False).files:
        assert path.read_bytes() == (ROOT / "figures" / path.name).read_bytes(), f"{path.name} is another file on this machine"


def test_experiment_notebooks_are_committed_with_outputs():
    for path in experiments().values():
        tagged = [c for c in nbformat.read(path, as_version=4).cells if "summary" in c.metadata.get("tags", [])]
        assert tagged and all(c.outputs for c in tagged), f"{path} was committed without outputs"
