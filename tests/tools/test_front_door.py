"""What a new user meets: commands as they are typed for the first time, with the mistakes that are made then."""
import functools
import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import nbformat
import numpy as np
import psutil
import pytest
import torch
from click.shell_completion import ShellComplete, get_completion_class
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from nbformat import v4

from mfdl.accounting.account import account
from mfdl.accounting.methods.all_attackers import exposure
from mfdl.base.files import json_values
from mfdl.learning.data import Dataset
from mfdl.learning.methods.data_sets import as_dataset
from mfdl.learning.methods.layers import new_model
from mfdl.learning.training import train
from mfdl.noise.methods.strategies import load_strategy, save_strategy, strategy
from mfdl.noise.pairwise import optimize_pairwise
from mfdl.noise.which_noise import which_noise
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.graphs import load_graph
from mfdl.protocol.methods.message_noise import zip_dl
from mfdl.protocol.methods.token import random_walk
from mfdl.protocol.methods.variants import dsgd
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import LDP, PNDP
from mfdl.tools.cli import app
from mfdl.tools.grids import make_cells


def mfdl(*arguments): return CliRunner().invoke(app, list(map(str, arguments)))


def strict(text):
    """JSON as other languages read it, without Infinity and NaN."""
    def refuse(word): raise AssertionError(f"{word} is not JSON")
    return json.loads(text, parse_constant=refuse)


VALUES = st.recursive(st.one_of(st.floats(), st.integers(), st.text(), st.none(), st.booleans()),
                      lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner))


@given(VALUES)
def test_json_holds_what_is_not_finite(value):
    def same(one, other):
        if isinstance(one, dict): return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        if isinstance(one, list | tuple): return len(one) == len(other) and all(map(same, one, other))
        if not isinstance(one, float): return one == other and type(one) is type(other)
        return float(other) == one or math.isnan(one) and other == "nan"
    assert same(value, strict(json.dumps(json_values(value), allow_nan=False)))


def test_files_of_leaks_are_json(tmp_path):
    leaky = ["account", "path:n=4", "-a", "dsgd", "-T", 2]
    assert not mfdl(*leaky, "-t", "ldp", "-o", tmp_path / "all.json").exit_code
    pairs = strict((tmp_path / "all.json").read_text())["pairs"]
    assert {pair["mu"] for pair in pairs} == {"inf"} == {pair["epsilon"] for pair in pairs} and {pair["distance"] for pair in pairs} == {"nan"}
    assert not mfdl(*leaky, "--attackers", "0,1,2", "--results", tmp_path / "each.jsonl").exit_code
    header, *lines = map(strict, (tmp_path / "each.jsonl").read_text().splitlines())
    assert len(lines) == 3 and {row["largest"] for line in lines for row in line["rows"]} == {0.0, "inf"}


def test_infinite_results_are_read_again(tmp_path):
    run, scheme = dsgd(gossip_matrix(load_graph("path:n=4")), 2), Participation.every_step(2)
    asked = (run, PNDP.each(range(4)), scheme)
    computed, read = (exposure(*asked, results=tmp_path / "kept") for _ in range(2))
    assert read.worst.mu == computed.worst.mu == math.inf and read.table.equals(computed.table)


def test_a_sweep_refuses_what_json_cannot_hold():
    with pytest.raises(ValueError, match="sigma=inf: a sweep takes finite numbers"): make_cells("pndp", [{"sigma": math.inf}])


def test_a_strategy_and_its_place(tmp_path):
    one = strategy("identity", Participation.cyclic(2, 2))
    with pytest.raises(FileNotFoundError, match="path='nope': no such file; expected"): load_strategy("nope")
    with pytest.raises(FileNotFoundError, match=r"x/y': there is no folder '.*x'; expected the name of a file in a folder"): save_strategy(one, tmp_path / "x" / "y")
    with pytest.raises(IsADirectoryError, match="is a folder; expected the name of a file"): save_strategy(one, tmp_path)
    assert not list(tmp_path.iterdir())
    refused = mfdl("optimize", "deezer-europe", "-o", tmp_path / "x" / "y")  # before the graph is read
    assert refused.exit_code == 2 and re.fullmatch(r"error: output='.*': there is no folder '.*'; expected .*\n", refused.output)


RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 3)), RNG.integers(0, 2, 40)
WORDS = np.array(["no", "yes"])[Y]


def linear(): return torch.nn.Linear(3, 2)


def lstm(): return torch.nn.LSTM(3, 2)


@pytest.mark.parametrize("change, message", [
    ({"model": linear()}, "model is a model, a Linear: expected a function without arguments"),
    ({"model": torch.nn.Linear}, "model=Linear cannot be called without arguments: expected"),
    ({"model": None}, "model=None cannot be called without arguments: expected"),
    ({"model": lambda: 3}, "model returns an object of type int: expected"),
    ({"model": lstm}, "model returns a tuple for a record: expected a tensor"),
    ({"model": lambda: torch.nn.Bilinear(3, 3, 2)}, "model does not take a record of data 'given', of shape"),
    ({"model": lambda: torch.nn.Linear(4, 2)}, "model does not take a record of data 'given', of shape"),
    ({"data": (X, WORDS)}, "y has entries of type str.*: expected classes 0, 1, .. "),
    ({"data": (X, list(WORDS))}, "y has entries of type str"),
    ({"data": (X, WORDS.astype(object))}, "y has entries of type str"),
    ({"data": (X, Y, X, WORDS)}, "y_test has entries of type str"),
    ({"data": ([[1], [1, 2]], [0, 1])}, "X is no array of numbers: expected the features of each record"),
    ({"data": (X, Y[1:])}, "X and y have 40 and 39 records: expected equally many"),
    ({"data": (X[:1], Y[:1])}, "has 1 record: expected one to test with"),
    ({"data": (np.where(X == X[0, 0], np.nan, X), Y, X, Y)}, "X of record 0 is not finite"),
    ({"data": X}, "data is of type ndarray: expected the name of a data set, a Dataset, or arrays"),
    ({"data": None}, "data is of type NoneType: expected"),
    ({"data": (X, Y), "holdings": [[0], [1], [2], [3]]}, "holdings: a fifth of data"),
    ({"lr": -1}, "lr=-1: expected a positive number"),
    ({"delta": 2}, "delta=2: expected a probability"),
    ({"secret": -1}, "secret is a negative number"),
    ({"every": 0}, "every=0 is a number of steps"),
    ({"data": (X, Y, X, Y), "holdings": ([i] for i in range(4))}, "holdings=<generator object .*>: expected for each node"),
    ({"data": (torch.tensor(X, requires_grad=True), Y)}, r"X is no array of numbers: .* Use tensor.detach\(\)"),
    ({"feature_norm": "2"}, "feature_norm='2': expected a positive number"),
    ({"loss": "hinge"}, "loss='hinge' is not known: expected one of"),
])
def test_what_cannot_be_trained_is_refused_before_any_work(change, message, monkeypatch):
    def work(*_): raise AssertionError("a strategy was optimised first")
    monkeypatch.setattr("mfdl.learning.methods.train_arguments.named_strategy", work)
    asked = {"model": linear, "data": (X, Y), "graph": "ring:n=4", "epsilon": 8, "participation": Participation.cyclic(1, 2), "progress": False}
    with pytest.raises(ValueError, match=message): train(**asked | change)


def test_what_is_no_list_of_nodes_or_attackers_is_refused():
    W = gossip_matrix(load_graph("ring:n=4"))
    scheme = Participation.single(2)
    for refused, message in [
        (lambda: PNDP(np.array([True, False])), "expected labels of nodes, not which of them attack"),
        (lambda: exposure(dsgd(W, 2), PNDP([0]), scheme), "expected a list, such as"),
        (lambda: random_walk(W, 2, path=iter([0, 1, 2])), "expected T . 1 = 3 nodes"),
        (lambda: zip_dl(W, 2, "False"), "self_noise='False': expected True or False"),
        (lambda: train(linear, (X, Y), "ring:n=4", 8, 1e-6, against="pndp", participation=Participation.cyclic(1, 2), progress=False), "against='pndp': .*or a trust model"),
        (lambda: account(dsgd(W, 2), LDP, scheme), "expected a trust model, such as"),
        (lambda: account(dsgd(W, 2), LDP(), scheme, memory_limit="4GB"), "memory_limit='4GB': expected a positive number"),
        (lambda: account(dsgd(W, 2), LDP(), scheme, memory_limit=math.nan), "memory_limit=nan: expected a positive number"),
    ]:
        with pytest.raises(ValueError, match=message): refused()


class Told(PNDP):
    """A node that has been told the seed of node 1."""
    def knows_noise(self, variables, coalition): return super().knows_noise(variables, coalition) | np.asarray(variables.holders[:, 1])


class Hearing(PNDP):
    """A node that hears one message of others, too."""
    def sees(self, messages, coalition): return super().sees(messages, coalition) | (np.arange(len(messages.step)) == 0)


def test_attackers_of_ones_own_are_held_to_noisy_gradients():
    asked = {"graph": "path:n=4", "epsilon": 8, "participation": Participation.cyclic(1, 2), "noise": "independent", "secret": 1, "progress": False}
    with pytest.raises(ValueError, match="no finite noise"): train(linear, (X, Y), against=Told([0]), **asked)
    both = [train(linear, (X, Y), against=kind([0]), **asked) for kind in (PNDP, Hearing)]
    assert both[0].report.sigma == both[1].report.sigma
    for one in both: assert "even if shown every noisy gradient" in one.statement and "estimate" not in one.statement


def test_arrays_are_data():
    """Of (X, y) a fifth is put aside for tests, and nothing is lost or shared."""
    asked = {"graph": "ring:n=4", "epsilon": 8, "participation": Participation.cyclic(1, 2), "noise": "independent", "secret": 1, "progress": False}
    data = as_dataset((torch.tensor(X), list(Y)))
    assert len(data.y) == 32 and sorted(map(tuple, np.vstack([data.X, data.X_test]))) == sorted(map(tuple, X.astype(np.float32)))
    both = [train(linear, one, **asked).simulation.theta for one in ((X, Y), data)]
    assert torch.equal(*both)
    given = as_dataset((X, Y, X[:5], Y[:5]))
    assert isinstance(given, Dataset) and (given.X_test == X[:5].astype(np.float32)).all() and given.classes == 2 and as_dataset(given) is given


def test_factories_that_are_no_functions():
    class Net(torch.nn.Linear):
        def __init__(self, outputs=2): super().__init__(3, outputs)
    for make in (Net, functools.partial(torch.nn.Linear, 3, 2), functools.partial(Net, outputs=5)): assert isinstance(new_model(make), torch.nn.Linear)
    with pytest.raises(ZeroDivisionError): new_model(lambda: 1 / 0)  # an error of its own stays what it is


def words(command, given):
    """What a shell is offered after a command, by click's own completion."""
    asked = ShellComplete(app, {}, "mfdl", "_MFDL_COMPLETE")
    return {(item.value, item.type) for item in asked.get_completions(command.split(), given)}


@pytest.mark.parametrize("command, given, expected", [
    ("", "acc", {("account", "plain")}),
    ("account", "flo", {("florentine", "plain")}),
    ("account", "my_ed", {("my_ed", "file")}),
    ("account florentine -a", "mu", {("muffliato", "plain")}),
    ("account florentine --trust", "secldp-", {("secldp-received", "plain")}),
    ("account florentine --strategy", "maf", {("mafalda", "plain"), ("mafalda_l", "plain")}),
    ("account florentine --weights", "u", {("uniform", "plain")}),
    ("which-noise", "karat", {("karate", "plain")}),
    ("optimize florentine --strategy", "toep", {("toeplitz", "plain")}),
    ("reproduce", "al", {("all", "plain")}),
])
def test_a_shell_completes_names(command, given, expected): assert words(command, given) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_switched_on_by_what_the_help_says(shell):
    assert f"_MFDL_COMPLETE={shell}_source mfdl" in mfdl("--help").output
    complete = get_completion_class(shell)(app, {}, "mfdl", "_MFDL_COMPLETE")
    assert f"_MFDL_COMPLETE={shell}_complete" in complete.source_template % complete.source_vars()


def test_help_is_told_whole():
    for command in ("", *app.list_commands(None)):
        for width in (60, 80, 120):
            result = CliRunner().invoke(app, [*filter(None, [command]), "--help"], terminal_width=width)
            assert not result.exit_code and "..." not in result.output.replace("[ARGS]...", ""), command


def test_the_package_is_the_command():
    done = subprocess.run([sys.executable, "-m", "mfdl", "account", "path:n=3", "-T", "1"], capture_output=True, text=True)
    assert done.stdout == mfdl("account", "path:n=3", "-T", 1).stdout and not done.returncode
    wrong = subprocess.run([sys.executable, "-m", "mfdl", "graph"], capture_output=True, text=True)
    assert wrong.returncode == 2 and wrong.stderr.startswith("Usage: mfdl ")


@pytest.mark.parametrize("arguments, message", [
    (["florentine", "--strategy", "nope.npy"], r"strategy='nope.npy': dp-dsgd takes none; expected algorithm mf-dsgd \(-a mf-dsgd\), or no strategy"),
    (["florentine:n=3"], "florentine has no parameters; expected 'florentine' alone"),
    (["florentine", "--trust", "ldp", "--attackers", "Medici"], "an eavesdropper is at no node; expected another trust model than ldp, or no attackers"),
    (["./nofile"], r"path='./nofile': no such file; expected an edge list"),
])
def test_first_mistakes(arguments, message):
    refused = mfdl("account", *arguments)
    assert refused.exit_code == 2 and re.search(message, refused.stderr) and len(refused.stderr.splitlines()) == 1


def test_first_commands(tmp_path, monkeypatch):
    blank = mfdl("account", "florentine", "--attackers", "Medici, Pazzi", "-T", 2)
    assert blank.output == mfdl("account", "florentine", "--attackers", "Medici,Pazzi", "-T", 2).output and not blank.exit_code
    assert "T=20," in mfdl("account", "florentine", "--attackers", "Medici", "-p", "cyclic:4,5").output
    monkeypatch.chdir(tmp_path)
    (tmp_path / "florentine").write_text("a b\n")
    hidden = mfdl("account", "florentine", "--attackers", "Medici", "-T", 2)
    assert not hidden.exit_code and "Pazzi" in hidden.stdout and "not the file in this folder, which is './florentine'" in hidden.stderr


@pytest.mark.alone
def test_an_interrupted_experiment_names_what_is_kept(tmp_path):
    """Ctrl-C in a terminal goes to the whole group of processes."""
    cells = [v4.new_code_cell("x = 1\noutput = ''", metadata={"tags": ["parameters"]}), v4.new_code_cell("print('of the first cell')"),
             v4.new_code_cell("import os, time\nopen(output + '.pid', 'w').write(str(os.getpid()))\ntime.sleep(60)")]
    path = tmp_path / "slow.ipynb"
    nbformat.write(v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}), path)
    begun = [sys.executable, "-m", "mfdl", "reproduce", str(path), "--folder", str(tmp_path / "out")]
    with subprocess.Popen(begun, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not (pids := [*tmp_path.glob("out/*.pid")]) or not pids[0].read_text(): time.sleep(0.05)
        interrupted = time.perf_counter()
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=60)
    assert time.perf_counter() - interrupted < 2 and process.returncode == 130, said
    kept = re.search(r"^stopped; what was done is in (.*\.failed\.ipynb)$", said[1], re.M)[1]
    assert "of the first cell" in open(kept).read() and "Traceback" not in said[0] + said[1]
    assert not psutil.pid_exists(int(pids[0].read_text()))


LIBRARY_AT_WORK = """
import numpy as np
from mfdl.tools import noise_commands
from mfdl.tools.cli import app
def work(*_):
    large = np.random.default_rng(0).normal(size=(6000, 6000))
    print("begun", flush=True)
    np.linalg.eigvalsh(large)
noise_commands.strategy = noise_commands.which_noise = work
app()
"""


def interrupted(arguments, folder, begun):
    """What a command says on standard error when the keys are pressed in its terminal, after it began."""
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=folder) as process:
        begun(process)
        pressed = time.perf_counter()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert time.perf_counter() - pressed < 2 and process.returncode == 130 and "Traceback" not in out + err, out + err
    return err.splitlines()[-1]


@pytest.mark.alone
@pytest.mark.parametrize("command", [["which-noise", "florentine"], ["optimize", "florentine", "-o", "kept"]], ids=lambda words: words[0])
def test_an_interruption_does_not_wait_for_a_library(command, tmp_path):
    def begun(process): assert process.stdout.readline() == "begun\n"
    assert interrupted([sys.executable, "-c", LIBRARY_AT_WORK, *command], tmp_path, begun) == "stopped; nothing was written"
    assert not list(tmp_path.iterdir())


@pytest.mark.alone
@pytest.mark.parametrize("command, kept", [(["sweep", "grid.yaml"], "grid"), (["reproduce", "all", "--folder", "out"], "out/all")], ids=lambda words: words[0])
def test_an_interrupted_sweep_names_its_folder(command, kept, tmp_path):
    """No cell that was at work is taken for one that failed, and none runs on."""
    (tmp_path / "grid.yaml").write_text("experiment: pndp\nparameters: {graph: karate, T: [300, 301]}")

    def begun(_):
        while not list(tmp_path.glob(f"{kept}/.running/*/cell.json")): time.sleep(0.05)
    said = interrupted([sys.executable, "-m", "mfdl", *command], tmp_path, begun)
    assert said == f"stopped; what was done is in {kept}, and the same command goes on from there"
    assert {path.name for path in (tmp_path / kept).iterdir()} == {".running"} and {path.suffix for path in (tmp_path / kept / ".running").iterdir()} == {".lock"}


def test_errors_show_large_values_in_short():
    large, few = np.eye(40), Participation.every_step(3)
    for wrong in (lambda: account(large, LDP(), few, 1.0), lambda: account(dsgd(np.eye(2), 3), LDP(), large, 1.0), lambda: dsgd(large, large)):
        with pytest.raises(ValueError, match="expected") as error: wrong()
        assert len(str(error.value)) < 250


def test_a_table_of_a_matrix_is_no_list_of_links(tmp_path):
    np.savetxt(tmp_path / "matrix.csv", np.eye(5), delimiter=",", fmt="%d")
    with pytest.raises(ValueError, match="a matrix of links is read from a .npy"): load_graph(tmp_path / "matrix.csv")


def test_what_does_not_fit_is_refused_before_any_work():
    W, long = np.full((3, 3), 1 / 3), Participation.cyclic(999_999, 1)
    for call in (lambda: which_noise(W, long, 3, 1e-6), lambda: optimize_pairwise(W, long)):
        with pytest.raises(ValueError, match="999999 steps, which takes about .* GB; expected fewer of them"): call()
    with pytest.raises(ValueError, match=r"epsilon=1e\+308: expected a number of at most 1e150"): which_noise(W, Participation.cyclic(2, 2), 1e308, 1e-6)
