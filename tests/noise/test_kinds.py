"""What is compared when noise and batches are chosen together."""
import networkx as nx
import numpy as np
import pytest

from mfdl.noise.methods.noise_and_batches import _candidates, choose_strategy
from mfdl.noise.which_noise import which_noise
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.participation import Participation

EPOCHS, BATCHES = 3, 8
CANDIDATES = [(name, scheme) for name, _, scheme in _candidates(Participation.cyclic(EPOCHS, BATCHES), gossip_matrix(nx.path_graph(3)))]


def steps_taken(scheme, records):
    """In how many steps each record takes part."""
    if isinstance(scheme, Participation): return np.array([len(pattern) for pattern in scheme.patterns()])
    return scheme.draw(records, seed=1).sum(axis=0)


@pytest.mark.parametrize("name, scheme", CANDIDATES, ids=[name for name, _ in CANDIDATES])
def test_candidates_use_each_record_equally_often(name, scheme):
    """On average in as many steps as there are epochs, or less privacy would be spent on less training."""
    records = 4000
    taken = steps_taken(scheme, records)
    assert scheme.T == EPOCHS * BATCHES
    assert abs(taken.mean() - EPOCHS) <= 5 * np.sqrt(EPOCHS / records)  # no more than a Poisson's deviation


def test_all_ways_to_draw_batches_are_among_the_candidates():
    kinds = {name.partition(", ")[2] for name, _ in CANDIDATES}
    assert kinds == {"in turn", "Poisson", "assigned anew", "cyclic Poisson", "assigned once"}
    assert len({name for name, _ in CANDIDATES}) == len(CANDIDATES)


PATH, CYCLE = gossip_matrix(nx.path_graph(3)), Participation.cyclic(2, 2)
GIVEN = {"W": PATH, "k": 2, "b": 2, "epsilon": 1.0, "delta": 1e-6, "adjacency": "zero-out"}


@pytest.mark.parametrize("wrong, said", [
    (lambda: which_noise(PATH, CYCLE, epsilon=-1, delta=1e-6), "epsilon"), (lambda: which_noise(PATH[:2], CYCLE, epsilon=1, delta=1e-6), "W"),
    (lambda: which_noise(np.eye(3), CYCLE, epsilon=1, delta=1e-6), "no node hears another"),
    *[(lambda name=name, bad=bad: choose_strategy(**GIVEN | {name: bad}), name) for name, bad in (
        ("W", PATH[:2]), ("k", 0), ("b", 1.5), ("epsilon", -1), ("delta", 1), ("adjacency", "other"), ("samples", 1))],
    (lambda: choose_strategy(**GIVEN, samples=100), "too few"),
])
def test_what_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said): wrong()
