"""What methods and tools refuse, by module: each call is refused by an error that says so in these words."""
import json
import re

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from mfdl import (
    LDP,
    PNDP,
    Lipschitz,
    Noise,
    Objective,
    OnlineAccountant,
    Participation,
    Protocol,
    Round,
    Run,
    Schedule,
    ScheduledProtocol,
    SecLDP,
    Simulation,
    Step,
    account,
    anti_pgd,
    audit,
    check_protocol,
    corn,
    decor,
    dp_dsgd,
    dsgd,
    exposure,
    fresh_noise,
    gossip_matrix,
    load_data,
    load_graph,
    mf_dsgd,
    optimize_local,
    optimize_space_time,
    strategy,
    zip_dl,
)
from mfdl.accounting.lemma14 import view
from mfdl.accounting.methods.all_attackers import share_beyond
from mfdl.accounting.methods.flow_plans import promise
from mfdl.accounting.methods.per_message_baseline import message_by_message
from mfdl.accounting.methods.poisson import amplified
from mfdl.accounting.methods.random_batches import amplified_if_assigned
from mfdl.accounting.methods.schedules import rates_for_promises
from mfdl.accounting.methods.state_space import state_space
from mfdl.accounting.methods.truncated_poisson import amplified_if_cut
from mfdl.base.randomness import block_size, check_seed, derive_seed, grid_spacing, to_grid
from mfdl.evidence.methods.one_run_audit import epsilon_guessed
from mfdl.evidence.methods.reconstruction import estimate, image_of, picture_error, play
from mfdl.learning.data import cut
from mfdl.noise.methods.low_memory import banded_inverse, inverse_root
from mfdl.noise.methods.objectives import model_workload
from mfdl.noise.methods.strategies import estimate_squared_error, restart
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.executable import check_protocol_type
from mfdl.protocol.methods.steps import NoiseInTime
from mfdl.tools.cli import app
from mfdl.tools.grids import read_grid
from mfdl.tools.logs import read_log
from mfdl.tools.network import place_nodes
from mfdl.tools.sweeps import collect, sweep, write_table

PATH = gossip_matrix(nx.path_graph(3), "uniform")
RING = gossip_matrix(nx.cycle_graph(5))
FLORENCE = load_graph("florentine")
FAMILIES = gossip_matrix(FLORENCE)
PLAIN, TWO = dp_dsgd(RING, 4), dp_dsgd(FAMILIES, 2)
RECORDS = Participation.every_step(10)
NAMED = dp_dsgd(FAMILIES, 10, nodes=FLORENCE)
SPARSE = gossip_matrix(nx.connected_watts_strogatz_graph(3000, 6, 0.3, seed=0))
POISSON, CUT, ONCE = Participation.poisson(0.1, 4), Participation.truncated_poisson(0.2, 4, 10, 4), Participation.balls_in_bins(2, 2)
PAIR, SINGLE, HALF, FIVE = Participation.every_step(2), Participation.single(2), Participation.cyclic(10, 19), Participation.cyclic(k=5, b=8)
LONG = dp_dsgd(gossip_matrix(nx.path_graph(4)), 12)
CARRIED = ScheduledProtocol(LONG, Schedule(0.1, momentum=0.9))
MATRICES = Protocol.from_matrices(PLAIN.M_G, PLAIN.M_Z, PLAIN.messages, PLAIN.variables, None, 4)
OWN, EYE = fresh_noise(np.eye(3)), np.eye(2)
SPY = view(dsgd(FAMILIES, 6), PNDP([1]))
SIX = np.zeros((len(SPY.A), 1))
REMEMBERS = mf_dsgd(RING, 4, np.eye(4) + np.diag(np.ones(3), -1))
UNEVEN = mf_dsgd(RING, 4, np.eye(4) - np.diag(np.full(3, 0.5), -1))


def promised(run, trust, updates, **more): return promise(Attack(run, trust), PAIR, updates, **more)


def fed(*given, **more):
    """A call that feeds one step of three nodes to a new account."""
    return lambda: OnlineAccountant(*given, **more).feed(dp_dsgd(PATH, 1))


def played(run, lr=0.1, record=True):
    digits, batches = load_data("digits"), cut([[u] for u in range(run.n)], 1)
    from torch import nn
    return play(Simulation(lambda: nn.Linear(64, 10), digits, batches, [Run("a", run)], lr, 1.0, record=record))


REFUSED = {
    "accountant": [
        (lambda: OnlineAccountant(PNDP([0])).report(), "expected feed(step) before report()"), (lambda: OnlineAccountant(PNDP([0])).feed(PATH), "expected a Step, or a Protocol"),
        (lambda: OnlineAccountant(PNDP([0])).feed(anti_pgd(PATH, 2)), "noise with a memory, and the account step by step"),
        (lambda: OnlineAccountant(PNDP([0])).feed(zip_dl(PATH, 1)), "noise on single messages, and the account step by step"),
        (fed(PNDP(["Medici"])), "'Medici' is not a node"), (fed(PNDP(["a"]), "abc"), "says which row is whose"), (fed(PNDP([0]), sigma=0), "sigma=0"),
        (lambda: OnlineAccountant(PNDP([0]), b=0), "b=0: expected an integer >= 1"), (lambda: OnlineAccountant(PNDP([0])).rounds_left(-1.0), "mu=-1.0: expected a number > 0")],
    "all_attackers": [
        (lambda: exposure(NAMED, [], RECORDS), "attackers=[]: expected at least one"), (lambda: exposure(NAMED, [PNDP(["Borgia"])], RECORDS), "'Borgia' is not a node"),
        (lambda: exposure(NAMED, [PNDP(["Pazzi"])] * 2, RECORDS), "expected each attacker once"), (lambda: PNDP.sample(FLORENCE, 16, seed=0), "size=16: expected at most 15"),
        (lambda: exposure(NAMED, [PNDP(["Pazzi"])], RECORDS, results="/dev/null/x"), "/dev/null/x"), (lambda: share_beyond(30, 20), "sampled=30: expected a number from 1 to 20")],
    "flow_plans": [
        (lambda: Lipschitz(-0.1), "c=-0.1: expected a number >= 0"), (lambda: Lipschitz(float("nan")), "c=nan"),
        (lambda: Lipschitz(1, centre=2), "centre=2: expected a number between -c and c"),
        (lambda: Lipschitz.of("hinge", 1.0, 0.1), "loss='hinge'"), (lambda: Lipschitz.of("logistic", -1.0, 0.1), "feature_norm=-1.0"),
        (lambda: promised(zip_dl(FAMILIES, 2), PNDP([0]), Lipschitz(1)), "noise on single messages, and the flow theorem"), (lambda: promised(TWO, PNDP([0]), 1.0), "updates=1.0"),
        (lambda: promised(TWO, PNDP([0]), Lipschitz(np.ones(3))), "constants of shape (3,)"),
        (lambda: promised(TWO, PNDP([0]), Lipschitz(1), keep=False).verify(), "proofs were not kept"),
        (lambda: promised(TWO, PNDP([0]), Lipschitz.of("huber", 1, 0.5, 0.1), rates=[10, 1]), "rates: up to 10, but updates are for step=0.5"),
        (lambda: promised(anti_pgd(SPARSE, 2), PNDP([0]), Lipschitz(1)), "noise with a memory, and sparse gossip matrices")],
    "per_message_baseline": [
        (lambda: message_by_message(FAMILIES, 10, 15), "attacker=15: expected an index from 0 to 14"), (lambda: message_by_message(FAMILIES, 0, 0), "T=0"),
        (lambda: message_by_message(FAMILIES, 10, 0, "square"), "did you mean squared?")],
    "poisson": [
        *((lambda trust=trust: amplified(PLAIN, trust, POISSON), "nothing is proved about insiders") for trust in (PNDP([0]), SecLDP([0]), [LDP(), PNDP([1])])),
        (lambda: amplified(anti_pgd(RING, 4), LDP(), Participation.cyclic_poisson(2, 2, 0.1)), "noise with a memory of 4 steps"),
        (lambda: amplified(decor(RING, 4, 0.0, 1.0), LDP(), POISSON), "protocol='DECOR'"), (lambda: amplified(dsgd(RING, 4), LDP(), POISSON), "nodes that train and add no noise"),
        (lambda: amplified(MATRICES, LDP(), POISSON), "it is not known who draws which noise"), (lambda: amplified(PLAIN, LDP(), Participation.poisson(0.1, 5)), "covers 5 steps"),
        (lambda: amplified(PLAIN, LDP(), Participation.every_step(4)), "expected one that is drawn at random"), (lambda: amplified(PLAIN, LDP(), POISSON, sigma=0), "sigma=0"),
        (lambda: amplified(PLAIN, LDP(), POISSON).epsilon(1e-12), "expected at least 1e-10"), (lambda: amplified(PLAIN, LDP(), POISSON).delta(-1), "epsilon=-1"),
        (lambda: amplified(PLAIN, LDP(), POISSON).beta(1.5), "alpha=1.5"), (lambda: amplified(PLAIN, LDP(), POISSON).calibrate(-1, 1e-6), "epsilon=-1")],
    "random_batches": [
        *((lambda trust=trust: amplified_if_assigned(PLAIN, trust, ONCE), "nothing is proved about insiders") for trust in (PNDP([0]), SecLDP([0]))),
        (lambda: amplified_if_assigned(decor(RING, 4, 0.0, 1.0), LDP(), ONCE), "protocol='DECOR'"),
        (lambda: amplified_if_assigned(UNEVEN, LDP(), ONCE), "nothing is proved about negative ones"),
        (lambda: amplified_if_assigned(REMEMBERS, LDP(), Participation.balls_in_new_bins(2, 2)), "which are too many"),
        (lambda: amplified_if_assigned(PLAIN, LDP(), Participation.balls_in_bins(2, 3)), "covers 6 steps"),
        (lambda: amplified_if_assigned(PLAIN, LDP(), POISSON), "expected records assigned to batches"), (lambda: amplified_if_assigned(PLAIN, LDP(), ONCE, sigma=0), "sigma=0"),
        (lambda: amplified_if_assigned(PLAIN, LDP(), ONCE).with_samples().epsilon(1e-11), "expected at least 2e-10, or a smaller failure"),
        (lambda: amplified_if_assigned(PLAIN, LDP(), ONCE).with_samples(100).epsilon(1e-6), "samples=100: too few"),
        (lambda: amplified_if_assigned(PLAIN, LDP(), ONCE).with_samples(1), "samples=1"), (lambda: amplified_if_assigned(PLAIN, LDP(), ONCE).with_samples(failure=0), "failure=0"),
        (lambda: amplified_if_assigned(PLAIN, LDP(), ONCE).with_samples(keep="nowhere"), "expected a folder that exists"),
        (lambda: amplified_if_assigned(PLAIN, LDP(), ONCE).delta(-1), "epsilon=-1"), (lambda: amplified_if_assigned(PLAIN, LDP(), ONCE).calibrate(-1, 1e-6), "epsilon=-1")],
    "schedules": [
        (lambda: Schedule(0.0), "learning_rates=0.0"), (lambda: Schedule([0.1, -0.1]), "learning_rates=[0.1, -0.1]"),
        (lambda: Schedule(momentum=1.0), "momentum=1.0: expected a number in [0, 1)"),
        (lambda: Schedule(momentum=-0.1), "momentum=-0.1"), (lambda: Schedule(0.5, weight_decay=2.0), "weight_decay=2.0: expected a number in [0, 2)"),
        (lambda: Schedule(nesterov="yes"), "nesterov='yes'"), (lambda: ScheduledProtocol(LONG, Schedule([0.1, 0.2])), "or 12 of them"),
        (lambda: ScheduledProtocol(LONG, 0.1), "schedule=0.1"),
        (lambda: ScheduledProtocol(dp_dsgd(RING, 5, trains=0.5, seed=1), Schedule(momentum=0.5)), "nothing says what its velocity does"),
        (lambda: check_protocol_type(CARRIED), "has a schedule, of which this knows nothing"),
        (lambda: state_space(Attack(CARRIED, PNDP([3]))), "momentum and a schedule, and the account in one pass"),
        (lambda: rates_for_promises(CARRIED, True, [1.0] * 12), "has learning rates of its own")],
    "state_space": [
        (lambda: state_space(Attack(zip_dl(RING, 2), PNDP([0]))), "noise on single messages, and the account in one pass"),
        (lambda: state_space(Attack(mf_dsgd(RING, 4, np.eye(4) + np.tril(np.ones((4, 4)))), PNDP([0]))), "so that a state is as large as the run"),
        (lambda: state_space(Attack(dp_dsgd(RING, 2), PNDP(["Medici"]))), "'Medici' is not a node")],
    "truncated_poisson": [
        (lambda: account(PLAIN, PNDP([0]), CUT), "nothing is proved about insiders"), (lambda: account(anti_pgd(RING, 4), LDP(), CUT), "noise with a memory of 4 steps"),
        (lambda: account(PLAIN, LDP(), Participation.truncated_poisson(0.2, 5, 10, 4)), "covers 5 steps"), (lambda: account(PLAIN, LDP(), CUT, sigma=0), "sigma=0"),
        (lambda: account(PLAIN, LDP(), CUT).epsilon(1e-12), "expected at least 1e-10"),
        (lambda: amplified_if_cut(PLAIN, LDP(), Participation.poisson(0.2, 4)), "expected batches that are cut"),
        (lambda: CUT.draw(11, seed=0), "expected at most 10"), (lambda: Participation.truncated_poisson(0.2, 4, 10, 0), "largest=0"), (lambda: CUT.k, "takes part at random")],
    "randomness": [
        (lambda: check_seed("secret", -1), "secret"), (lambda: check_seed("secret", 2.0), "secret"), (lambda: derive_seed(1, 2**128), "expected"),
        (lambda: block_size(0), "expected"),
        (lambda: grid_spacing(0.0, 1.0), "scale"), (lambda: grid_spacing(1.0, np.inf), "clip"), (lambda: to_grid(np.array([1.0, 2.0]), 2.0**-24), "no place on a grid")],
    "one_run_audit": [(lambda: epsilon_guessed(11, 10, 20, 1e-5), "at most as many right ones"), (lambda: epsilon_guessed(5, 10, 20, 1e-5, 95), "confidence=95")],
    "reconstruction": [
        (lambda: estimate(dsgd(PATH, 2), np.zeros((2, 1))), "expected a View"), (lambda: estimate(SPY, np.zeros((2, 1))), "a row for each of the view"),
        (lambda: estimate(SPY, SIX + np.nan), "messages has entries that are not finite"), (lambda: estimate(SPY, SIX, scale=-1), "scale=-1"),
        (lambda: estimate(SPY, SIX, b=4), "b=4: expected a divisor of the T=6 steps"), (lambda: image_of(np.zeros(64), 10, 64), "expected at least outputs*(inputs+1) = 650"),
        (lambda: image_of(np.full(650, np.nan), 10, 64), "expected one that is determined"), (lambda: image_of(np.zeros(650), 10, 64), "gradient of the bias is zero"),
        (lambda: picture_error(np.zeros(64), np.zeros(784)), "image has shape (64,)"), (lambda: played(dsgd(PATH, 2), record=False), "expected one with record=True"),
        (lambda: played(dsgd(PATH, 2), lr=[0.1, 0.2]), "learning rates that change"), (lambda: played(zip_dl(PATH, 2)), "not all models of Zip-DL are sent")],
    "checking": [
        (lambda: check_protocol(MATRICES), "is known by its matrices only"), (lambda: check_protocol(np.eye(4)), "protocol="),
        (lambda: check_protocol(PLAIN, M_G=np.eye(3)), "M_G has shape (3, 3)"),
        (lambda: check_protocol(dp_dsgd(gossip_matrix(nx.path_graph(2001)), 4)), "expected at most 4000 gradients"),
        (lambda: audit(MATRICES, LDP(), Participation.every_step(4)), "is known by its matrices only")],
    "insiders": [
        (lambda: optimize_local(PATH, SINGLE, PNDP.each(range(3)), mu=0.0), "mu=0: expected numbers from 1e-6 to 1e6"),
        (lambda: optimize_local(PATH, SINGLE, PNDP.each(range(3)), mu=np.ones((2, 3))), "mu has shape (2, 3)"), (lambda: optimize_local(PATH, SINGLE, LDP(), mu=np.inf), "mu=inf"),
        (lambda: optimize_local(PATH, SINGLE, "PNDP"), "trust='PNDP'"), (lambda: optimize_local(PATH, SINGLE, [PNDP(["Medici"])]), "'Medici' is not a node"),
        (lambda: optimize_local(PATH, SINGLE, PNDP([2])), "reaches none of the attackers"),
        (lambda: optimize_local(PATH, Participation.min_sep(1, 2, 3), LDP()), "patterns that do not overlap"),
        (lambda: optimize_local(PATH, Participation.single(3), LDP(), tol=2), "tol=2")],
    "low_memory": [
        (lambda: inverse_root(0), "bands=0"), (lambda: inverse_root(3, 1.0), "momentum=1.0"), (lambda: banded_inverse(np.eye(100), Participation.cyclic(10, 10), 101), "bands=101"),
        (lambda: banded_inverse(np.eye(100), Participation.cyclic(8, 10)), "expected (80, 80)"),
        (lambda: banded_inverse(-np.eye(100), Participation.cyclic(10, 10)), "positive semi-definite and not zero")],
    "objectives": [
        (lambda: Objective(learning_rates=[0.1, 0.0]), "learning_rates[1]=0"),
        (lambda: model_workload(PATH, 3, Objective(learning_rates=[0.1, 0.1])), "learning_rates: 2 numbers, expected 3"),
        (lambda: Objective(momentum=1.0), "momentum=1.0"), (lambda: Objective(weights=[1, -1]), "weights[1]=-1"), (lambda: Objective(weights=[0, 0]), "weights are all zero"),
        (lambda: Objective(weights=[[1, 0], [0, -1]]), "weights[1, 1]=-1"), (lambda: Objective(weights=[[1, 0], [1, 0]], nodes=[0, 1]), "weights times nodes are all zero"),
        (lambda: Objective(weights=np.ones((3, 2)), nodes=[1, 1, 1]), "nodes: 3 numbers, expected 2"), (lambda: Objective.tail(3, 4), "s=4"), (lambda: Objective.last(0), "T=0"),
        (lambda: model_workload(PATH, 3, Objective.last(4)), "weights: 4 numbers, expected 3"),
        (lambda: model_workload(PATH, 3, Objective(nodes=[1, 1])), "nodes: 2 numbers, expected 3"),
        (lambda: model_workload(PATH, 3, Objective(weights=np.ones((3, 2)))), "weights: 2 numbers, expected 3"), (lambda: Objective(curvature=2.0), "curvature=2.0"),
        (lambda: Objective(weight_decay=-0.1), "weight_decay=-0.1"), (lambda: Objective(averaged="yes"), "averaged='yes'")],
    "spectral": [
        (lambda: optimize_space_time(FAMILIES, FIVE, method="fast"), "method='fast'"),
        (lambda: optimize_space_time([FAMILIES] * 39 + [np.eye(15)], FIVE, method="directions"), "expected the same W in every step"),
        (lambda: optimize_space_time(gossip_matrix(nx.complete_graph(4)), FIVE, trace_penalty=0.0, method="directions"), "so that more of it is always better"),
        (lambda: optimize_space_time(FAMILIES, FIVE, method="directions", objective=Objective(weights=np.ones((40, 15)))), "an objective of age alone"),
        (lambda: optimize_space_time(FAMILIES, FIVE, method="directions", trace_penalty=0.0, objective=Objective.last(40)), "so that more of it is always better"),
        (lambda: optimize_space_time(FAMILIES, FIVE, trace_penalty=np.nan), "trace_penalty=nan"), (lambda: optimize_space_time(np.ones((3, 3)), FIVE), "W is not stochastic"),
        (lambda: optimize_space_time(FAMILIES, Participation.min_sep(2, 8, 40)), "patterns that do not overlap")],
    "strategies": [
        (lambda: strategy("mafald", HALF, FAMILIES), "did you mean mafalda"), (lambda: strategy("mafalda", HALF), "W is missing"),
        (lambda: strategy("banded", HALF, FAMILIES, bands=20), "bands=20: expected at most the separation b=19"),
        (lambda: strategy("identity", HALF, bands=3), "identity has no bands"),
        (lambda: strategy("bisr", HALF, bands=191), "bands=191"),
        (lambda: strategy("mafalda", Participation.min_sep(2, 3, 9), FAMILIES), "its optimum is for steps exactly b apart"),
        (lambda: restart(strategy("identity", HALF), 0), "R=0"), (lambda: strategy("toeplitz", HALF, gossip_matrix(FLORENCE, sparse=True)), "W is sparse"),
        (lambda: strategy("toeplitz", HALF, FAMILIES, objective=Objective.last(190)), "toeplitz is made for all models and plain steps"),
        (lambda: strategy("mafalda", HALF, FAMILIES, objective=Objective.last(5)), "weights: 5 numbers, expected 190"),
        (lambda: strategy("mafalda_l", HALF, gossip_matrix(FLORENCE, sparse=True)), "probes estimate the sum over all nodes"),
        (lambda: estimate_squared_error(strategy("identity", HALF), gossip_matrix(FLORENCE, sparse=True), probes=1), "probes=1")],
    "steps": [
        (lambda: Round(np.ones((2, 2))), "W is not stochastic"), (lambda: Round(EYE, np.ones((4, 1))), "node 0 gets nothing from node 1"),
        (lambda: Round(EYE, np.ones((3, 1))), "share has shape (3, 1)"),
        (lambda: Noise(np.zeros((1, 2)), EYE), "nobody holds variable 0"), (lambda: Noise(EYE, np.eye(3)), "mix has shape (3, 3)"),
        (lambda: Noise(EYE, [[np.nan], [0]]), "mix has entries that are not finite"),
        (lambda: Noise(EYE, EYE, back=np.ones((2, 2))), "back is not lower-triangular"), (lambda: Noise(EYE, EYE, basis=np.eye(3)), "basis has shape (3, 3)"),
        (lambda: NoiseInTime(2, [1, 0]), "mix: expected a row of weights"), (lambda: NoiseInTime(2, [1], back=EYE), "back: expected a row of weights"),
        (lambda: Step(True, EYE, []), "expected a Noise"),
        (lambda: Step([1, 0, 1], OWN, []), "trains=[1, 0, 1]"), (lambda: Step(True, OWN, [np.eye(3)]), "expected Round objects"),
        (lambda: Step(True, OWN, [Round(EYE)]), "W of 2 nodes, noise of 3")],
    "network": [
        (lambda: place_nodes(None, 3, 4), "at least one node for each rank"), (lambda: place_nodes([0, 0, 2], 3, 3), "the network has 3"),
        (lambda: place_nodes([0, 1], 3, 2), "expected the ranks of 3 nodes")],
    "sweeps": [(lambda: collect("."), "no finished cell of a sweep is there"), (lambda: write_table(pd.DataFrame({"x": [1]}), "table.xlsx"), "expected one of: .csv, .parquet")],
}


@pytest.mark.parametrize("module", REFUSED)
def test_what_a_module_refuses(module, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for call, said in REFUSED[module]:
        with pytest.raises((ValueError, OSError, FloatingPointError), match=re.escape(said)): call()


def test_an_account_that_was_refused_a_step_is_as_it_was():
    online = OnlineAccountant(PNDP([0]))
    for _ in range(12): online.feed(dp_dsgd(PATH, 1))
    with pytest.raises(ValueError, match="expected those of the account"): online.feed(dp_dsgd(np.eye(4), 1))
    assert online.t == 12


def test_a_victim_whom_nobody_can_hide_is_infinitely_exposed():
    """One seed, which the attacker holds."""
    assert promised(corn(gossip_matrix(nx.path_graph(3)), 2, np.eye(3)), PNDP([0]), Lipschitz(1)).sensitivity.tolist() == [np.inf, np.inf]


def test_what_a_sweep_refuses(tmp_path):
    grid = tmp_path / "grid.yaml"
    grid.write_text("experiment: pndp")
    for folder, more, said in ((tmp_path, {"workers": 0}, "workers=0"), (grid, {}, "is a file; expected a folder")):
        with pytest.raises(ValueError, match=said): sweep(read_grid(grid), folder, **more)


@pytest.mark.parametrize("words, said", [
    ("which-noise florentin", "did you mean florentine?"), ("which-noise florentine --epsilon -1", "epsilon=-1.0"),
    ("optimize florentine -p cyclic:4,5 --strategy mafalde -o x", "did you mean mafalda"),
    ("account florentine -p cyclic:4,5 --strategy mafalda", "dp-dsgd takes none"), ("account florentine -p cyclic:4,5 -a mf-dsgd", "needs a strategy")])
def test_what_commands_refuse(words, said):
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2 and said in result.output


LOG = [
    {"log": "mfdl messages", "version": 1, "nodes": ["north", "south"], "steps": 1, "participation": "single", "clip": 1.0, "batch": 50, "adjacency": "zero-out"},
    {"step": 0, "trains": True, "noise": [["north", 0.04], ["south", 0.04]], "rounds": [[["north", "south", 0.5], ["south", "south", 0.5]]]}]


@pytest.mark.parametrize("old, new, line, said", [
    ('"batch": 50, ', "", 1, "'batch' is missing"), ('"clip": 1.0', '"clip": 1.0, "row_sensitivity": 0.02', 1, "'clip': expected only row_sensitivity"),
    ('["north", 0.04]', '["north", NaN]', 2, "NaN: expected finite numbers"), ('"trains": true', '"trains": ["west"]', 2, "'west' is not a node"),
    ('"step": 0', '"step": 0, "step": 0', 2, "expected each key once"), ('"step": 0', '"step": 0, "loss": 0.3', 2, "'loss': expected only step")])
def test_what_a_log_may_not_say(old, new, line, said, tmp_path):
    text = "\n".join(map(json.dumps, LOG)) + "\n"
    assert old in text
    (tmp_path / "log").write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=f"log, line {line}: .*{re.escape(said)}"): read_log(tmp_path / "log")
