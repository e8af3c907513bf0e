"""What is compared when noise and batches are chosen together."""
import networkx as nx
import numpy as np
import pytest

from mfdl.noise.which_noise import _candidates
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
