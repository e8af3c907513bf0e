"""What algorithms and runs refuse, and how far messages travel."""
import re

import networkx as nx
import numpy as np
import pytest

from mfdl import Noise, Protocol, Step, corn, decor, dp_dsgd, fresh_noise, gossip_matrix, local_dsgd, mf_dsgd, muffliato, random_walk

LINE, EYE, TWO = gossip_matrix(nx.path_graph(3)), np.eye(3), np.eye(2)


@pytest.mark.parametrize("make, words", [
    (lambda: mf_dsgd(LINE, 2, np.ones((2, 2))), "C is not lower-triangular: noise of a step would depend on noise of a later one"),
    (lambda: mf_dsgd(LINE, 2, EYE), "C has shape (3, 3): expected (2, 2), one row for each step"),
    (lambda: mf_dsgd(LINE, 2, [[1, 0], [1, 0]]), "C[1, 1] = 0: expected a non-zero diagonal"),
    (lambda: mf_dsgd(LINE, 2, [TWO] * 2), "C is a list of 2 matrices: expected 3, one for each node"),
    (lambda: muffliato(LINE, 2, K=0), "K=0 is a number of gossip rounds"),
    (lambda: corn(LINE, 2, -EYE), "R has eigenvalue -1: expected a positive semi-definite covariance"),
    (lambda: corn(LINE, 2, [EYE], groups=[[0, 1]]), "groups miss 2: expected every node in at least one group"),
    (lambda: corn(LINE, 2, TWO), "R has shape (2, 2): expected (3, 3), one row for each node"),
    (lambda: corn(LINE, 2, [EYE, EYE], groups=[[0, 1, 2], [0]]), "R[1] gives noise to nodes outside group 1: expected zero there"),
    (lambda: decor(LINE, 2, graph=nx.DiGraph([(0, 2)])), "graph: (0, 2) is not an edge: W has no weight on it"),
    (lambda: decor(LINE, 2, sigma_edge=-1), "sigma_edge=-1: expected a finite number >= 0"),
    (lambda: local_dsgd(LINE, 2, every=0), "every=0 is a number of steps: expected an integer >= 1"),
    (lambda: random_walk(LINE, 2, path=[0, 1]), "path=[0, 1]: expected T + 1 = 3 nodes"),
    (lambda: random_walk(LINE, 2, path=[0, 2, 1]), "path: no way from 0 to 2 in step 0; expected neighbours"),
    (lambda: dp_dsgd(LINE, 2, offline=[[0]]), "offline: expected 2 lists of nodes, one for each step"),
    (lambda: dp_dsgd(LINE, 2, offline=2), "offline=2: expected a probability, or 2 lists of nodes"),
    (lambda: dp_dsgd(LINE, 2, trains=[[0], [3]]), "trains: 3 is not a node"),
    (lambda: dp_dsgd(LINE, 2, nodes=["a", "b"]), "expected 3"),
    (lambda: dp_dsgd(LINE, 2).index(["Borgia"], "attackers"), "'Borgia' is not a node"),
])
def test_what_is_no_run_is_refused(make, words):
    with pytest.raises(ValueError, match=re.escape(words)): make()


def test_distances_are_hops_of_messages():
    families = nx.florentine_families_graph()
    run = dp_dsgd(gossip_matrix(families), 2, nodes=families)
    assert run.distances(["Medici"]).tolist() == [nx.shortest_path_length(families, v, "Medici") for v in families]


OWN = fresh_noise(EYE)
STEP = Step(True, OWN, [])


def run_with(noise): return Protocol(None, [Step(True, noise, [])])


@pytest.mark.parametrize("make, words", [
    (lambda: Protocol(None, []), "steps=[]: expected at least one Step"),
    (lambda: Protocol(None, [STEP, EYE]), "steps[1] is a ndarray: expected a Step"),
    (lambda: Protocol(None, [STEP, Step(True, fresh_noise(TWO), [])]), "steps[1] is for 2 nodes: expected 3"),
    (lambda: Protocol(["a", "b"], [STEP]), "nodes has 2 labels: expected 3"),
    (lambda: run_with(Noise(EYE, EYE, back=np.hstack([0.5 * EYE, EYE]))), "steps[0] takes back the last 6 additions: there are 3"),
    (lambda: run_with(Noise(EYE, np.ones((3, 3)))), "steps[0]: node 0 adds noise variable 1, whose seed it does not hold"),
    (lambda: run_with(Noise(EYE, np.ones((3, 4)))), "steps[0] uses the last 4 noise variables: only 3 have been drawn"),
])
def test_what_is_no_list_of_steps_is_refused(make, words):
    with pytest.raises(ValueError, match=re.escape(words)): make()
