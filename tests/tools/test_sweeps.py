"""Sweeps: whatever is killed, whenever, nothing is lost but what was running, and nothing passes for what it is not."""
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pandas as pd
import psutil
import pytest
from click.testing import CliRunner
from conftest import ROOT

from mfdl.tools import grids, sweeps
from mfdl.tools.cli import app
from mfdl.tools.experiments import reproduce
from mfdl.tools.grids import STATUS, make_cells, read_grid
from mfdl.tools.sweeps import collect, survey, sweep

COUNT = """import os, time
from pathlib import Path
if "LOG" in os.environ:
    with open(os.environ["LOG"], "a") as file: file.write(f"{x}\\n")
time.sleep(wait)
assert x != 13
if output: Path(f"{output}.csv").write_text(f"square,threads,pid\\n{x * x},{os.environ.get('OMP_NUM_THREADS')},{os.getpid()}\\n")"""
FAKE = """import json, os, time
from pathlib import Path
cell = json.loads(Path("cell.json").read_bytes())
x = cell["given"]["x"]
with open(os.environ["LOG"], "a") as file: file.write(f"{x}\\n")
Path("parent").write_text(str(os.getppid()))
assert x != 13
with open(cell["stem"] + ".csv", "w") as file:
    for piece in ("squ", "are\\n", str(x), "", "\\n"):
        file.write(piece if piece else str(x))
        file.flush()
        time.sleep(0.1)
"""


def write(folder, xs, wait=0.0, source=COUNT):
    "A notebook and a grid over its x."
    kernel = {"kernelspec": {"name": "python3", "language": "python", "display_name": "python3"}}
    cells = [nbformat.v4.new_code_cell('x = 1\nwait = 0.0\nlog = ""\noutput = ""', metadata={"tags": ["parameters"]}), nbformat.v4.new_code_cell(source)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / "count.ipynb")
    (folder / "grid.yaml").write_text(json.dumps({"experiment": "count.ipynb", "parameters": {"x": xs, "wait": wait}}))
    return folder / "grid.yaml"


def start(grid, results, fake=False):
    "A sweep in a process of its own; with fake cells, which are many and quick."
    (grid.parent / "cells").write_bytes(pickle.dumps(read_grid(grid)))
    code = (f"import pickle, sys; from mfdl.tools import sweeps; sweeps.MAIN = {FAKE!r} if {fake} else sweeps.MAIN\n"
            "sweeps.sweep(pickle.load(open(sys.argv[1], 'rb')), sys.argv[2], workers=2, progress=False)")
    return subprocess.Popen([sys.executable, "-c", code, str(grid.parent / "cells"), str(results)], env=os.environ | {"LOG": f"{grid.parent}/log"})


def wait_for_log(log, lines, process):
    while not log.exists() or len(log.read_text().split()) < lines:
        assert process.poll() is None, "the sweep ended before its cells began"
        time.sleep(0.05)


def states(grid, results): return [status["state"] for status in survey(read_grid(grid), results).values()]


def processes_in(folder):
    """Processes that work there, and do not end within two seconds."""
    found = []
    for process in psutil.process_iter():
        try: found += [process] if process.cwd().startswith(str(folder)) else []
        except psutil.Error: pass
    return psutil.wait_procs(found, timeout=2)[1]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 6))])
def test_killed_at_random_moments(tmp_path, seed):
    grid, results, chance, done, kills = write(tmp_path, list(range(100, 130))), tmp_path / "results", random.Random(seed), {}, 0
    while kills < 60:
        process = start(grid, results, fake=True)
        try: assert process.wait(timeout=chance.uniform(0.5, 1.5) * 1.05**kills) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
        now = {name: status for name, status in survey(read_grid(grid), results).items() if status["state"] == "done"}
        assert not any(status["state"] == "damaged" for status in survey(read_grid(grid), results).values())
        assert {name: now[name] for name in done} == done, "what was done was done again"
        done = now
        if process.returncode == 0: break
    assert kills >= 3 and len(done) == 30
    assert (collect(results)["square"] == collect(results)["x"] * 1001).all()  # every x is written twice, one after the other
    begun = (tmp_path / "log").read_text().split()
    assert set(begun) == set(map(str, range(100, 130))) and len(begun) <= 30 + 2 * kills, "a kill cost more than the two that were running"
    assert start(grid, results, fake=True).wait() == 0 and not [p for p in (results / ".running").iterdir() if p.is_dir()]
    assert (tmp_path / "log").read_text().split() == begun


@pytest.mark.nightly
def test_killed_with_real_cells(tmp_path):
    grid, results, chance = write(tmp_path, [1, 2, 3, 4], wait=0.5), tmp_path / "results", random.Random(0)
    for _ in range(4):
        process = start(grid, results)
        time.sleep(chance.uniform(1.5, 6))
        process.kill()
        process.wait()
        before = states(grid, results)
    deadline = time.time() + 10
    while processes_in(results) and time.time() < deadline: time.sleep(0.1)
    assert not processes_in(results), "a cell outlived its sweep"
    assert start(grid, results).wait() == 0
    assert before.count("missing") + before.count("done") == 4 and states(grid, results) == ["done"] * 4 and collect(results)["square"].tolist() == [1, 4, 9, 16]


@pytest.mark.nightly
@pytest.mark.parametrize("victim", ["kernel", "cell"])
def test_a_killed_worker_fails_its_cell_only(tmp_path, victim):
    grid, results = write(tmp_path, [1, 2], wait=8.0), tmp_path / "results"
    process = start(grid, results)
    wait_for_log(tmp_path / "log", 2, process)
    place = next(path for path in (results / ".running").glob("*.*") if (path / "cell.json").exists() and json.loads((path / "cell.json").read_bytes())["given"]["x"] == 1)
    assert states(grid, results) == ["running", "running"]
    here = [p for p in processes_in(place) if ("ipykernel_launcher" in " ".join(p.cmdline())) == (victim == "kernel")]
    here[0].kill()
    assert process.wait() == 0
    statuses = list(survey(read_grid(grid), results).values())
    assert [status["state"] for status in statuses] == ["failed", "done"]
    assert "killed" in statuses[0]["error"] or "Kernel died" in statuses[0]["error"] or "DeadKernel" in statuses[0]["error"]
    assert start(grid, results).wait() == 0 and states(grid, results) == ["done", "done"]


def test_two_sweeps_on_one_folder_divide_the_work(tmp_path):
    grid, results = write(tmp_path, [*range(100, 140), 13]), tmp_path / "results"
    both = [start(grid, results, fake=True) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert states(grid, results) == ["done"] * 40 + ["failed"]
    assert sorted((tmp_path / "log").read_text().split()) == sorted(map(str, [13, *range(100, 140)])), "a cell was run twice"
    parents = [int(path.read_text()) for path in results.glob("*/parent")]
    assert len(parents) == 41 and {parents.count(process.pid) > 0 for process in both} == {True}, "one did everything"


@pytest.mark.nightly
def test_interrupted_sweep_leaves_nothing_running(tmp_path):
    grid, results = write(tmp_path, [1, 2], wait=60.0), tmp_path / "results"
    process = subprocess.Popen([str(Path(sys.executable).parent / "mfdl"), "sweep", str(grid), "--folder", str(results)], stderr=subprocess.PIPE, text=True,
                               env=os.environ | {"LOG": f"{tmp_path}/log"})
    wait_for_log(tmp_path / "log", 1, process)
    process.send_signal(signal.SIGINT)
    assert "the same command goes on" in process.communicate(timeout=20)[1] and process.returncode == 130
    assert not processes_in(results) and set(states(grid, results)) == {"missing"}


def test_failure_keeps_traceback_and_notebook_and_the_sweep_goes_on(tmp_path):
    grid = write(tmp_path, [12, 13, 14])
    result = CliRunner().invoke(app, ["sweep", str(grid), "--workers", "2"])
    assert result.exit_code == 1 and "3 cells: 2 done, 1 failed" in result.output
    failed = next(path.parent for path in (tmp_path / "grid").glob("*/traceback.txt"))
    assert "AssertionError" in (failed / "traceback.txt").read_text() and str(failed) in result.output
    assert any("AssertionError" in str(cell.get("outputs")) for cell in nbformat.read(next(failed.glob("*.failed.ipynb")), 4).cells)
    assert "1 failed" in CliRunner().invoke(app, ["sweep", str(grid), "--status"]).output


@pytest.mark.nightly
def test_a_failure_of_a_clock_that_was_ahead_is_tried_again(tmp_path):
    grid = write(tmp_path, [13])
    CliRunner().invoke(app, ["sweep", str(grid)])
    path, = (tmp_path / "grid").glob(f"*/{STATUS}")
    failed = json.loads(path.read_text())
    path.write_text(json.dumps(failed | {"began": failed["began"] + 1e6}))
    CliRunner().invoke(app, ["sweep", str(grid)])
    again = json.loads(path.read_text())
    assert failed["began"] < again["began"] < failed["began"] + 1e5


def test_changed_notebook_parameters_or_package_are_other_cells(tmp_path, monkeypatch):
    grid = write(tmp_path, [1])
    first, = read_grid(grid)
    other_parameter, = read_grid(write(tmp_path, [2]))
    other_notebook, = read_grid(write(tmp_path, [1], source=COUNT + "\n"))
    write(tmp_path, [1])
    assert read_grid(grid)[0] == first
    (tmp_path / "edges.csv").write_text("a,b\n")
    with_file, = make_cells("pndp", [{"graph": str(tmp_path / "edges.csv")}])
    (tmp_path / "edges.csv").write_text("a,b\nb,c\n")
    changed_file, = make_cells("pndp", [{"graph": str(tmp_path / "edges.csv")}])
    code = grids.package_code()
    monkeypatch.setattr(grids, "package_code", lambda: code | {"code": "other"})
    other_code, = read_grid(grid)
    monkeypatch.setattr(grids, "package_code", lambda: code | {"version": "9.9"})
    other_version, = read_grid(grid)
    assert len({cell.key for cell in (first, other_parameter, other_notebook, with_file, changed_file, other_code, other_version)}) == 7


def test_code_that_changes_while_a_sweep_runs_is_noticed(tmp_path):
    cells = read_grid(write(tmp_path, [1]))
    write(tmp_path, [1], source=COUNT.replace("x * x", "x * x * x"))
    status, = sweep(cells, tmp_path / "results", progress=False).values()
    assert status["state"] == "failed" and "notebook is not what it was when the sweep began" in status["error"]


@pytest.mark.nightly
def test_threads_are_shared_out(tmp_path, monkeypatch):
    for name in sweeps.THREADS: monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("joblib.cpu_count", lambda: 6)
    sweep(read_grid(write(tmp_path, [1, 2])), tmp_path / "results", workers=2, progress=False)
    assert collect(tmp_path / "results").threads.tolist() == [3, 3]


@pytest.mark.nightly
def test_damage_is_noticed_and_mended(tmp_path):
    grid, results = write(tmp_path, [1, 2, 3]), tmp_path / "results"
    sweep(read_grid(grid), results, progress=False)
    for k, path in enumerate(sorted(results.glob("count*"))):
        if k == 0: (path / "status.json").write_bytes((path / "status.json").read_bytes()[:-9])  # as a disk that lost power might
        elif k == 1: next(path.glob("*.csv")).unlink()
    assert sorted(states(grid, results)) == ["damaged", "damaged", "done"] and len(collect(results)) == 1
    sweep(read_grid(grid), results, progress=False)
    assert states(grid, results) == ["done"] * 3 and len(collect(results)) == 3


@pytest.mark.nightly
def test_the_same_grid_on_dask(tmp_path):
    distributed = pytest.importorskip("distributed")
    grid, results = write(tmp_path, [1, 2, 13]), tmp_path / "results"
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        result = CliRunner().invoke(app, ["sweep", str(grid), "--folder", str(results), "--scheduler", cluster.scheduler_address])
        assert result.exit_code == 1 and "3 cells: 2 done, 1 failed" in result.output, result.output
    assert collect(results)["square"].tolist() == [1, 4] and not processes_in(results)


@pytest.mark.nightly
def test_an_interrupted_sweep_takes_back_what_no_dask_worker_has_begun(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    grid, results = write(tmp_path, [*range(20, 26)], wait=0.5), tmp_path / "results"
    waits = iter([sweeps.wait, sweeps.wait])
    def interrupted(running, **options):
        for one in waits: return one(running, **options | {"timeout": 60})
        raise KeyboardInterrupt
    monkeypatch.setattr(sweeps, "wait", interrupted)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        with pytest.raises(KeyboardInterrupt): sweep(read_grid(grid), results, scheduler=cluster.scheduler_address, progress=False)
        while "running" in states(grid, results): time.sleep(0.1)  # the cell that was begun is finished
        time.sleep(3)
        assert 2 <= states(grid, results).count("done") <= 3 and "missing" in states(grid, results) and not processes_in(results)


@pytest.mark.nightly
def test_unreachable_scheduler(tmp_path):
    pytest.importorskip("distributed")
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        result = CliRunner().invoke(app, ["sweep", str(write(tmp_path, [1])), "--scheduler", address])
        assert result.exit_code == 2 and f"scheduler='{address}'" in result.output and "Traceback" not in result.output
    assert not (tmp_path / "grid").exists(), "something was done before the scheduler was asked"


@pytest.mark.parametrize("text, message", [
    ("experiment: pndp\nparameters: {grpah: ring}", "did you mean graph"), ("- experiment: pndp\n- experiment: pndp\n  parameters: {sigma: '1'}", "is a cell of block 1 already"),
    ("experiment: pndp\nparameters: {T: [1, [2]]}", "expected a value like the default"), ("experiment: pndp\nparameter: {T: 1}", "did you mean parameters"),
    ("experiment: pndp\nparameters: {T: 1e1}", "expected a value like the default"),
    ("experiment: pndp\nparameters: []", "expected `experiment:`"), ("experiment: pndp\nparameters: {participation: " + "x" * 300 + "}", "the results would have a name of"),
    (f"experiment: pndp\nparameters: {{T: {list(range(1, 1001))}, sigma: {list(range(1, 1001))}}}", "1000000 cells: expected at most"), ("[" * 5000, "not YAML"),
    ("parameters: {T: 1}", "expected `experiment:`"), ("{", "not YAML"), ("experiment: pndp\nparameters: [T]", "expected `experiment:`"),
    ("!!python/object/apply:os.system ['true']", "not YAML"), ("experiment: grid.yaml.ipynb", "no such notebook"), ("experiment: pndp\nparameters: {1: 2}", "is not known"),
])
def test_grids_that_are_refused(tmp_path, text, message):
    (tmp_path / "grid.yaml").write_text(text)
    result = CliRunner().invoke(app, ["sweep", str(tmp_path / "grid.yaml")])
    assert result.exit_code == 2 and message in result.output and result.output.startswith("error: grid="), result.output
    assert os.listdir(tmp_path) == ["grid.yaml"]


def test_collect(tmp_path):
    grid = write(tmp_path, [1, 2])
    sweep(read_grid(grid), tmp_path / "grid", progress=False)
    sweep(read_grid(write(tmp_path, [2], source=COUNT + "\n")), tmp_path / "grid", progress=False)
    result = CliRunner().invoke(app, ["collect", str(tmp_path / "grid"), "-o", str(tmp_path / "t.parquet")])
    assert result.exit_code == 0 and "made by other code" in result.stderr
    table = pd.read_parquet(tmp_path / "t.parquet")
    assert sorted(zip(table["x"], table["square"], strict=True)) == [(1, 1), (2, 4), (2, 4)] and table.code.nunique() == 2
    assert CliRunner().invoke(app, ["collect", str(tmp_path / "nothing")]).exit_code == 2


def test_every_committed_figure_is_a_cell_of_the_book():
    made = {cell.stem for cell in sweeps.all_experiments()}
    assert made == {path.stem for path in (ROOT / "figures").glob("*.json")}
    assert CliRunner().invoke(app, ["reproduce", "all", "-p", "T", "3"]).exit_code == 2


def test_reproduce_all_puts_results_into_one_folder(tmp_path, monkeypatch):
    cells = read_grid(write(tmp_path, [1, 13]))
    monkeypatch.setattr("mfdl.tools.cli.all_experiments", lambda: cells)
    result = CliRunner().invoke(app, ["reproduce", "all", "--folder", str(tmp_path / "figures"), "--workers", "2"])
    assert result.exit_code == 1 and "1 done, 1 failed" in result.output
    notebook = (tmp_path / "figures" / f"{cells[0].stem}.ipynb").read_bytes()
    assert reproduce(cells[0].experiment, cells[0].given, tmp_path / "figures", progress=False).notebook.read_bytes() == notebook
    record = (tmp_path / "figures" / f"{cells[0].stem}.json").read_text()
    assert json.loads(record)["parameters"]["x"] == 1 and str(tmp_path) not in record
    assert (tmp_path / "figures" / f"{cells[0].stem}.csv").is_file() and not (tmp_path / "figures" / f"{cells[1].stem}.csv").exists()


@pytest.mark.nightly
def test_files_as_parameters(tmp_path, monkeypatch):
    "They lie beside the grid, and their content is part of the cell."
    source = 'from pathlib import Path\nif output: Path(f"{output}.csv").write_text("size\\n" + str(len(Path(log).read_text())))'
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write(tmp_path, [1], source=source)
    grid = tmp_path / "grid.yaml"
    grid.write_text("experiment: count.ipynb\nparameters: {log: data.txt}")
    keys = set()
    for text in ("four", "three", "four"):
        (tmp_path / "data.txt").write_text(text)
        assert set(status["state"] for status in sweep(read_grid(grid), tmp_path / "results", progress=False).values()) == {"done"}
        keys.add(read_grid(grid)[0].key)
    table = collect(tmp_path / "results")
    assert len(keys) == 2 and sorted(table["size"]) == [4, 5] and set(table["log"]) == {"data.txt"}
    (tmp_path / "link.txt").symlink_to(tmp_path / "data.txt")
    grid.write_text("experiment: count.ipynb\nparameters: {log: link.txt}")
    assert [status["state"] for status in sweep(read_grid(grid), tmp_path / "linked", progress=False).values()] == ["done"]
    grid.write_text("experiment: count.ipynb\nparameters: {log: ./elsewhere}")
    with pytest.raises(ValueError, match="is a folder, whose contents a cell does not follow"): read_grid(grid)


@pytest.mark.nightly
def test_a_notebook_may_write_folders(tmp_path):
    grid = write(tmp_path, [1, 2], source='from pathlib import Path\nPath("deep/er").mkdir(parents=True)\nPath("deep/er/x").write_text(str(x))\nPath("gone").symlink_to("nowhere")')
    assert [status["state"] for status in sweep(read_grid(grid), tmp_path / "results", progress=False).values()] == ["done", "done"]
    next((tmp_path / "results").glob("*_2*/deep/er/x")).write_text("3")
    assert states(grid, tmp_path / "results") == ["done", "damaged"]
    with pytest.raises(ValueError, match="has no table, count_1"): collect(tmp_path / "results")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    result = CliRunner().invoke(app, ["sweep", str(write(tmp_path, [1])), "--folder", "/proc/nowhere"])
    assert result.exit_code == 2 and result.output.startswith("error: ") and "Traceback" not in result.output
