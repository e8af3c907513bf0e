"""An experiment that was stopped goes on: finished trainings are read, the one that was not is resumed, and results are those of a run without a stop."""
import itertools
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
from conftest import ROOT
from nbformat.v4 import new_code_cell, new_notebook
from torch import nn

import mfdl.learning.simulator as simulator
import mfdl.tools.experiments as experiments
from mfdl.base.files import UNFINISHED
from mfdl.learning.data import Dataset, cut, round_robin
from mfdl.learning.methods.noise_supply import Run
from mfdl.learning.simulator import Simulation
from mfdl.protocol.algorithms import dp_dsgd
from mfdl.tools.experiments import ExperimentFailed, reproduce

LINE = np.array([[0.75, 0.25, 0], [0.25, 0.5, 0.25], [0, 0.25, 0.75]])
T = 6


def classes():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(24, 4)).astype("f"), rng.integers(0, 2, 24)
    return Dataset("classes", X[:18], y[:18], X[18:], y[18:])


def training(sigma=0.5, **settings):
    runs = [Run("plain", dp_dsgd(LINE, T), sigma, seed) for seed in range(2)]
    return Simulation(lambda: nn.Linear(4, 2), classes(), cut(round_robin(18, 3), 2), runs, 0.1, 1.0, **settings)


def stopped_after(steps, made):
    """The training with a step that is interrupted, as by Ctrl-C; without steps, with none."""
    step, taken = made.step, []
    def counted():
        if len(taken) == steps: raise KeyboardInterrupt
        step()
        taken.append(made.t)
    made.step = counted
    return made, taken


@pytest.fixture
def minutes(monkeypatch, tmp_path):
    """A clock on which every step takes a minute and a half, and a folder for what is unfinished."""
    monkeypatch.setattr(simulator, "time", SimpleNamespace(monotonic=itertools.count(0, 90).__next__))
    monkeypatch.setenv(UNFINISHED, str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.mark.parametrize("every", [None, 4])
@pytest.mark.parametrize("steps", [1, 3, 5])
def test_it_goes_on_where_it_was_stopped(minutes, monkeypatch, steps, every):
    first, _ = stopped_after(steps, training())
    with pytest.raises(KeyboardInterrupt): first.run(every, progress=False)
    second, taken = stopped_after(None, training())
    history = second.run(every, progress=False)
    assert taken == list(range(steps + 1, T + 1)) and len(list(minutes.iterdir())) == 1
    monkeypatch.delenv(UNFINISHED)
    whole = training()
    expected = whole.run(every, progress=False)
    assert second.theta.equal(whole.theta) and history.steps == expected.steps
    for name, values in expected.metrics.items(): np.testing.assert_array_equal(history.metrics[name], values)


def test_what_was_finished_is_read_and_can_be_tested(minutes):
    first = training()
    first.run(progress=False)
    again, taken = stopped_after(0, training())
    again.run(progress=False)
    assert taken == [] and again.theta.equal(first.theta)
    np.testing.assert_array_equal(again.test()["loss"], first.test()["loss"])
    with pytest.raises(StopIteration, match="the run has 6 steps"): training().resume(next(minutes.iterdir())).step()


@pytest.mark.parametrize("other,every,records", [({"sigma": 0.6}, None, None), ({"on_nonfinite": "zero"}, None, None), ({}, 2, None), ({}, None, 3)])
def test_another_training_begins_anew(minutes, other, every, records):
    training().run(progress=False)
    another, taken = stopped_after(None, training(**other))
    another.run(every, records, progress=False)
    assert len(taken) == T and len(list(minutes.iterdir())) == 2


def test_what_does_not_begin_at_the_beginning_or_says_where_is_not_kept(minutes, tmp_path):
    one = training()
    one.step()
    one.run(progress=False)
    training(record=True).run(progress=False)
    training().run(progress=False, checkpoint=tmp_path / "mine")
    assert not minutes.exists() and (tmp_path / "mine").exists()


def test_short_trainings_are_not_kept(monkeypatch, tmp_path):
    monkeypatch.setenv(UNFINISHED, str(tmp_path / "kept"))
    training().run(progress=False)
    assert not (tmp_path / "kept").exists()


NOTEBOOK = """
sys.path.insert(0, tests)
from tools.test_unfinished import stopped_after, training
simulator.time = SimpleNamespace(monotonic=itertools.count(0, 90).__next__)
taken = []
for sigma, steps in ((0.1, None), (0.2, None if Path(marker).exists() else 3)):
    Path(marker).write_text(str(taken))
    made, taken = stopped_after(steps, training(sigma))
    made.run(progress=False)
Path(marker).write_text(str(taken))
"""


@pytest.mark.nightly
def test_an_experiment_that_was_stopped_goes_on_and_leaves_nothing_behind(tmp_path):
    marker, folder = tmp_path / "marker", tmp_path / "found"
    imports = "import itertools, sys\nfrom pathlib import Path\nfrom types import SimpleNamespace\nimport mfdl.learning.simulator as simulator\n"
    given = f"tests = {str(ROOT / 'tests')!r}\nmarker = {str(marker)!r}\noutput = ''"
    cells = [new_code_cell(given, metadata={"tags": ["parameters"]}), new_code_cell(imports + NOTEBOOK)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "python3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), tmp_path / "training.ipynb")
    def again(): reproduce(str(tmp_path / "training.ipynb"), folder=folder, progress=False)
    with pytest.raises(ExperimentFailed, match="KeyboardInterrupt"): again()
    kept, = folder.glob("*.unfinished")
    assert len(list(kept.iterdir())) == 2
    again()
    assert marker.read_text() == "[4, 5, 6]" and sorted(path.suffix for path in folder.iterdir()) == [".ipynb", ".json"]


def test_stopped_says_where_trainings_go_on_from(monkeypatch, tmp_path):
    def stop(source, target, parameters, trainings, progress):
        trainings.mkdir()
        raise KeyboardInterrupt
    monkeypatch.setattr(experiments, "_execute", stop)
    with pytest.raises(KeyboardInterrupt, match=r"nothing was done; trainings go on from .*pndp_ring-n-5.unfinished"):
        reproduce("pndp", {"graph": "ring:n=5"}, tmp_path, progress=False)
