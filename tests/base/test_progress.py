"""Bars are seen in a terminal and in a notebook that somebody looks at; elsewhere there is a line now and then; short work has neither."""
import os
import pty
import re
import subprocess
import sys
import termios
import warnings
from contextlib import suppress
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
import torch
from conftest import ROOT
from jupyter_client.manager import start_new_kernel
from nbformat import v4
from tqdm import std

from mfdl.accounting.account import account, account_by
from mfdl.accounting.methods.all_attackers import exposure
from mfdl.base.files import progress_bar
from mfdl.learning.training import train
from mfdl.noise.methods.strategies import strategy
from mfdl.protocol.algorithms import dp_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.graphs import load_graph
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import PNDP


def in_kernel(monkeypatch, asks):
    """As in a kernel: somebody can be asked, as in JupyterLab, or nobody, as under nbconvert and papermill."""
    shell = SimpleNamespace(kernel=SimpleNamespace(_allow_stdin=asks), config={})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


@pytest.mark.parametrize("asks", [True, False])
def test_a_notebook_that_somebody_looks_at_has_bars(monkeypatch, asks):
    in_kernel(monkeypatch, asks)
    with warnings.catch_warnings(action="error"): bar = progress_bar(total=3, desc="steps")
    assert bar.disable != asks and progress_bar(total=3, disable=True).disable


def test_a_terminal_has_bars(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = progress_bar(total=3)
    assert not bar.disable and bar.ncols is None and bar.fp.fileno() == sys.stderr.fileno()


WORK = """
import time
import tqdm.std
from mfdl.base.files import bars_shown, progress_bar
clock = [0.0]
time.monotonic = tqdm.std.time = lambda: clock[0]  # a second for each step
def work(seconds, **options):
    for _ in progress_bar(range(seconds), **options): clock[0] += 1
work(9, desc="short", leave=False)
work(60, desc="long")
bar = progress_bar(total=60, desc="told")
for step in range(60):
    clock[0] += 1
    bar.set_postfix_str(f"cell {step}", refresh=True)
    bar.update()
bar.close()
with bars_shown(False): work(60, desc="hidden")
work(60, desc="disabled", disable=True)
print("done")
"""


def test_without_a_terminal_there_is_a_line_every_ten_seconds():
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert done.stdout == "done\n" and "\r" not in done.stderr and "\x1b" not in done.stderr
    for name in ("long", "told"):
        steps = [int(step) for line in lines for step in re.findall(rf"^{name}: +\d+% (\d+)/60 \[", line)]
        assert 5 <= len(steps) <= 6 and all(9 <= later - one <= 12 for one, later in zip([0, *steps], steps, strict=False)), lines
    assert all(line.startswith(("long: ", "told: ")) for line in lines)


def test_short_work_shows_nothing_and_long_work_a_rest(monkeypatch, capsys):
    in_kernel(monkeypatch, True)
    assert list(progress_bar(range(3))) == [0, 1, 2] and capsys.readouterr().err == ""
    bar = progress_bar(total=4, desc="steps", mininterval=0)
    bar.start_t -= 10
    bar.last_print_t -= 10
    bar.update(2)
    assert re.search(r"steps: +50%.*2/4 \[00:10<00:10", capsys.readouterr().err)


def test_there_is_one_place():
    makers = {path.name for path in Path(ROOT, "mfdl").rglob("*.py") if re.search(r"\b(from|import) tqdm", path.read_text())}
    assert makers == {"experiments.py", "files.py"}


LONG = """
import time
from mfdl.base.files import progress_bar
bar = progress_bar(total=4, mininterval=0)
bar.start_t = time.time() - 10
bar.update(2)
"""


def test_a_real_kernel():
    """It displays a bar in answer to somebody, and nothing in answer to a program."""
    manager, client = start_new_kernel()
    try:
        for asks in (True, False):
            shown = []
            reply = client.execute_interactive(LONG, allow_stdin=asks, stdin_hook=print, output_hook=shown.append, timeout=30)
            assert reply["content"]["status"] == "ok"
            kinds = {message["msg_type"] for message in shown}
            assert ("display_data" in kinds) == asks and "stream" not in kinds
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.fixture
def told(monkeypatch):
    """What bars show, from the first moment on, to somebody who looks."""
    out = StringIO()
    in_kernel(monkeypatch, True)
    monkeypatch.setattr("tqdm.auto.tqdm", lambda steps, **given: std.tqdm(steps, **given | {"delay": 0, "mininterval": 0, "file": out}))
    def names(): return set(re.findall(r"([A-Za-z ]+): ", out.getvalue()))
    return SimpleNamespace(names=names, text=out.getvalue)


RUN = dp_dsgd(gossip_matrix(load_graph("ring:n=5")), 6)
SCHEME = Participation.cyclic(3, 2)


@pytest.mark.parametrize("backend, expected", [("seen", {"victims"}), ("streaming", {"filter", "innovations", "victims"})])
def test_one_attacker_has_bars(told, backend, expected):
    account_by(backend, RUN, PNDP([0]), SCHEME)
    assert told.names() == expected and "100%" in told.text()


def test_many_attackers_have_one_bar(told):
    account(RUN, PNDP.each(range(5)), SCHEME)
    assert told.names() == {"attackers"}


def test_exposure_has_one_bar(told):
    exposure(RUN, PNDP.each(range(5)), SCHEME)
    assert told.names() == {"attackers"}


def test_a_strategy_tells_steps_and_gap(told):
    made = strategy("mafalda", SCHEME, gossip_matrix(load_graph("ring:n=5")))
    shown = [float(error) for error in re.findall(r"error=([^],\r]*), gap=inf", told.text())]  # the proof comes with the last step
    assert len(shown) == made.iterations and shown == sorted(shown, reverse=True)
    strategy("mafalda_l", SCHEME, gossip_matrix(load_graph("ring:n=5")))
    assert told.names() == {"Newton steps", "nodes"}


@pytest.mark.parametrize("shows", [True, False])
def test_a_training_tells_what_comes_before_its_first_step(told, shows):
    X, y = np.eye(40), np.arange(40) % 2
    train(partial(torch.nn.Linear, 40, 2), (X, y), "ring:n=4", 8.0, against=PNDP([0]), participation=Participation.cyclic(2, 2), progress=shows)
    assert ({"Newton steps", "training"} <= told.names()) if shows else told.text() == ""


@pytest.mark.nightly
def test_a_cell_tells_who_waits_for_it(tmp_path):
    """Its bar is behind that of the cells, and nothing of it is kept in the notebook."""
    cells = [v4.new_code_cell("output = ''", metadata={"tags": ["parameters"]}),
             v4.new_code_cell("import time\nfrom mfdl.base.files import progress_bar\nfor _ in progress_bar(range(12), desc='within'): time.sleep(0.5)")]
    nbformat.write(v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}), tmp_path / "slow.ipynb")
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 200))
    with subprocess.Popen([sys.executable, "-m", "mfdl", "reproduce", "slow.ipynb", "--folder", "out"], stdout=subprocess.DEVNULL, stderr=end, cwd=tmp_path) as process:
        os.close(end)
        said = ""
        with suppress(OSError):  # at its end
            while read := os.read(terminal, 1000): said += read.decode(errors="replace")
    os.close(terminal)
    assert not process.returncode and re.search(r"Executing:.*cell, within:  \d\d%.*<", said), said
    assert "within:" not in next(tmp_path.glob("out/*.ipynb")).read_text()
