"""Batches that nodes draw at random: as the schemes say, the same in plain loops, simulator and processes, and nowhere to be read."""
import math
import pickle

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from test_distributed import DATA, RATE, SECRET, W, machine, network, together  # noqa: F401, a fixture

from mfdl import LDP, Participation, Schedule, account, train
from mfdl.accounting.gaussian_dp import row_sensitivity
from mfdl.accounting.methods.poisson import AmplifiedReport
from mfdl.accounting.methods.random_batches import BinsReport
from mfdl.accounting.methods.truncated_poisson import TruncatedReport
from mfdl.base.randomness import secure_uniform
from mfdl.learning.data import Batches, Dataset, cut
from mfdl.learning.methods.drawn_batches import random_batches
from mfdl.learning.methods.noise_supply import Run
from mfdl.learning.simulator import Simulation
from mfdl.protocol.algorithms import dp_dsgd
from mfdl.protocol.methods.random_participation import (
    BinsParticipation,
    PoissonParticipation,
    TruncatedParticipation,
)
from mfdl.protocol.methods.streams import deal_seeds
from mfdl.protocol.methods.variants import dsgd
from mfdl.tools.distributed import Peer

SCHEMES = {"Poisson": Participation.poisson(0.3, 6), "groups": Participation.cyclic_poisson(3, 2, 0.6),
           "assigned once": Participation.balls_in_bins(2, 3), "assigned anew": Participation.balls_in_new_bins(2, 3)}
CUT = Participation.truncated_poisson(0.6, 6, 9, 5)
HELD = [list(range(u, 45, 5)) for u in range(5)]
schemes = st.one_of(st.builds(PoissonParticipation, st.integers(1, 5), st.integers(1, 4), st.floats(0.01, 1)),
                    st.builds(BinsParticipation, st.integers(1, 5), st.integers(1, 6), st.booleans()))


@settings(max_examples=60, deadline=None)
@given(schemes, st.integers(1, 30), st.integers(0, 2**128 - 1))
def test_batches_are_what_the_schemes_say(scheme, records, seed):
    taken = scheme.draw(records, seed)
    assert taken.shape == (scheme.T, records) and taken.dtype == bool and (taken == scheme.draw(records, seed)).all()
    if isinstance(scheme, BinsParticipation):
        epochs = taken.reshape(scheme.epochs, scheme.bins, records)
        assert (epochs.sum(axis=1) == 1).all() and (scheme.anew or (epochs == epochs[0]).all())
    else:
        turns = np.arange(scheme.T)[:, None] % scheme.groups == np.arange(records) % scheme.groups
        assert not (taken & ~turns).any() and (scheme.q < 1 or (taken == turns).all())


@pytest.mark.parametrize("name", SCHEMES)
def test_batches_are_fair_and_independent(name):
    """Each step as likely as its scheme says, and pairs of records as often together as independent records are: exact binomial tests, one in 10^6 each."""
    scheme, many = SCHEMES[name], 20_000
    taken = scheme.draw(many, 5)
    share = 1 / 3 if isinstance(scheme, BinsParticipation) else scheme.q / scheme.groups
    for row in taken: assert stats.binomtest(int(row.sum()), many, share).pvalue > 1e-6
    step = 2 if isinstance(scheme, PoissonParticipation) else 3
    chances = taken[:, ::scheme.groups][::scheme.groups] if isinstance(scheme, PoissonParticipation) else taken
    both = (chances[0, ::2] & chances[0, 1::2]).sum()
    single = scheme.q if isinstance(scheme, PoissonParticipation) else 1 / 3
    assert stats.binomtest(int(both), chances.shape[1] // 2, single**2).pvalue > 1e-6
    if name in ("Poisson", "assigned anew"):
        again = (taken[0] & taken[step]).sum()
        assert stats.binomtest(int(again), many, single**2).pvalue > 1e-6


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.floats(0.01, 1), st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**128 - 1), st.data())
def test_batches_are_cut_to_the_smallest_numbers(chances, groups, q, records, largest, seed, data):
    """Plain loops over steps and places; whoever holds fewer records draws the same, and leaves places empty."""
    scheme = TruncatedParticipation(chances, groups, q, records, largest)
    places = math.ceil(records / groups)
    numbers = secure_uniform(seed, 0, chances * groups * places).reshape(chances, places * groups)
    held = data.draw(st.integers(1, records))
    taken = scheme.draw(held, seed)
    for t in range(scheme.T):
        turn, group = divmod(t, groups)
        came = sorted((numbers[turn, i], i) for i in range(group, places * groups, groups) if numbers[turn, i] < q)
        assert set(np.flatnonzero(taken[t])) == {i for _, i in came[:largest] if i < held}
    with pytest.raises(ValueError, match="for which batches are cut"): scheme.draw(records + 1, seed)


def test_every_record_is_as_likely_to_be_kept():
    """Exact binomial tests, one in 10^6 each: alone, and pairs, which a cut makes rarer than independent records."""
    scheme = TruncatedParticipation(20_000, 1, 0.5, 8, 3)
    taken = scheme.draw(8, 11)
    sizes = np.minimum(np.arange(9), 3)
    weight = stats.binom.pmf(np.arange(9), 8, 0.5)
    for record in taken.T: assert stats.binomtest(int(record.sum()), 20_000, weight @ sizes / 8).pvalue > 1e-6
    together = weight @ (sizes * (sizes - 1)) / 56
    for i in range(7): assert stats.binomtest(int((taken[:, i] & taken[:, i + 1]).sum()), 20_000, together).pvalue > 1e-6


def test_uniform_numbers_are_those_of_the_hash():
    import hashlib
    stream = hashlib.shake_256(b"mfdl coins" + (9).to_bytes(16, "big") + (2).to_bytes(8, "big")).digest(80)
    words = [int.from_bytes(stream[8 * i:8 * i + 8], "little") for i in range(10)]
    assert secure_uniform(9, 2, 10).tolist() == [((word >> 12) + 0.5) / 2**52 for word in words]


@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_uniform_numbers_are_neither_0_nor_1(monkeypatch, word):
    monkeypatch.setattr("mfdl.base.randomness._words", lambda *what: np.array([word], dtype=np.uint64))
    assert 0 < secure_uniform(9, 2, 1)[0] < 1


@pytest.mark.parametrize("name", [*SCHEMES, "cut"])
def test_plain_loops_agree(name):
    """Linear regression without noise, record by record: sums of clipped gradients, divided by the fixed number, whoever came."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(45, 3)), rng.normal(size=45)
    batches = random_batches(HELD, {**SCHEMES, "cut": CUT}[name], secret=3)
    data = Dataset("random", X, y, X[:2], y[:2])
    simulation = Simulation(lambda: torch.nn.Linear(3, 1, bias=False), data, batches, [Run("plain", dsgd(W, 6))], 0.5, 0.7)
    models = simulation.models[:, 0].numpy().astype(float)
    sizes = set()
    for t in range(6):
        moved = models.copy()
        for u in range(5):
            present = [r for r in batches.at(t)[u] if r >= 0]
            sizes.add(len(present))
            for r in present:
                gradient = 2 * (models[u] @ X[r] - y[r]) * X[r]
                moved[u] -= 0.5 * gradient * min(1, 0.7 / np.linalg.norm(gradient)) / batches.size
        models = W @ moved
        simulation.step()
    np.testing.assert_allclose(simulation.models[:, 0].numpy(), models, atol=2e-6)
    assert len(sizes) > 2, "batches of different size are what this is about"
    assert name != "cut" or max(sizes) == 5


class Together(Batches):
    """What several nodes drew, each by itself, as if it were in one place."""
    def __init__(self, alone): object.__setattr__(self, "alone", alone), object.__setattr__(self, "index", cut(HELD, 1).index)

    size = 3

    def at(self, step):
        rows = [one.at(step)[0] for one in self.alone]
        return np.array([np.pad(row, (0, 9 - len(row)), constant_values=-1) for row in rows])


def secret_of(u): return 0x5ec3e7_0f_a11_1075_0f_5ec3e7 + u


def drawn_alone(u, name): return random_batches([HELD[u]], {**SCHEMES, "cut": CUT}[name], secret=secret_of(u), size=3)


def traces_of(u, name):
    """What would tell of a node's batches: its secret as text and as bytes, and the batches of two records and more."""
    secret, drawn = secret_of(u), drawn_alone(u, name)
    batches = [drawn.at(t)[0] for t in range(6)]
    tables = [batch.astype(kind).tobytes() for batch in batches if (batch >= 0).sum() > 1 for kind in (np.int64, np.int32)]
    return [str(secret).encode(), f"{secret:x}".encode(), *(secret.to_bytes(16, order) for order in ("big", "little")), *tables]


def lone_rank(net, name, folder):
    run = Run("drawn", dp_dsgd(W, 6), 0.3)
    seeds = {net.rank: deal_seeds(run.protocol, SECRET)[net.rank]}
    peer = Peer(net, network, DATA, drawn_alone(net.rank, name), run, seeds, RATE, 0.5, placement=list(range(5)), folder=f"{folder}/{net.rank}", record=True)
    peer.run()
    return peer.models[:, 0].numpy()[0], pickle.dumps(peer.transcript)


@pytest.mark.parametrize("name", ["Poisson", "assigned anew", "cut"])
def test_processes_that_draw_alone(name, tmp_path):
    """Each rank knows its own batches only; all together learn what the simulator learns. Neither files nor transcripts tell of batches."""
    found = together(5, lone_rank, name, tmp_path)
    for answer in found:
        if isinstance(answer, Exception): raise answer
    simulation = Simulation(network, DATA, Together([drawn_alone(u, name) for u in range(5)]), [Run("drawn", dp_dsgd(W, 6), 0.3, secret=SECRET)], RATE, 0.5)
    simulation.run(progress=False)
    np.testing.assert_allclose(np.array([models for models, _ in found]), simulation.models[:, 0].numpy(), atol=3e-5)
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()] + [transcript for _, transcript in found]
    assert len(kept) > 10 and all(len(transcript) > 1000 for _, transcript in found)
    for trace in (trace for u in range(5) for trace in traces_of(u, name)): assert not any(trace in one for one in kept)


def rank_with(net, folder, secrets, names):
    "A rank that draws its batches with a secret and a scheme of its own choice."
    run = Run("drawn", dp_dsgd(W, 6), 0.3)
    batches = random_batches([HELD[net.rank]], SCHEMES[names[net.rank]], secret=secrets[net.rank], size=3)
    seeds = {net.rank: deal_seeds(run.protocol, secrets[5])[net.rank]}
    Peer(net, network, DATA, batches, run, seeds, RATE, 0.5, placement=list(range(5)), folder=f"{folder}/{net.rank}")


def test_batches_are_for_one_rank_and_one_run_and_drawn_alike(tmp_path, monkeypatch):
    monkeypatch.setenv("MFDL_STATE", str(tmp_path / "state"))
    alike, A, B = ["Poisson"] * 5, 12**35, 13**34
    for error in together(5, rank_with, tmp_path / "guessed", [1, 2, 3, 4, 5, B], alike): assert isinstance(error, ValueError) and "guess it" in str(error)
    for secrets, names, message in [([A, A + 1, A, A + 2, A + 3, B], alike, "the same seed for row batches of rank 2"),
                                    ([*range(A, A + 5), B + 1], ["Poisson", *["groups"] * 4], "has batches")]:
        for error in together(5, rank_with, tmp_path / "refused", secrets, names): assert isinstance(error, ValueError) and message in str(error), error
    assert together(5, rank_with, tmp_path / "first", [*range(A, A + 5), B + 2], alike) == [None] * 5
    again = together(5, rank_with, tmp_path / "second", [A, *range(A + 12, A + 16), B + 3], alike)
    assert any("has used those of rows batches of rank 0" in str(error) for error in again), again


def model(): return torch.nn.Linear(4, 3)


KNOWN, POISSON, ONCE, ANEW = Participation.cyclic(3, 3), Participation.poisson(1 / 3, 9), Participation.balls_in_bins(3, 3), Participation.balls_in_new_bins(3, 3)


def trained(**change):
    usual = {"epsilon": 8, "noise": "independent", "holdings": HELD, "participation": POISSON, "secret": 5, "progress": False}
    return train(model, DATA, nx.house_graph(), **usual | change)


@pytest.mark.parametrize("scheme, kind", [(POISSON, AmplifiedReport), (ONCE, BinsReport), pytest.param(ANEW, BinsReport, marks=pytest.mark.nightly)])
def test_training_with_random_batches_is_accounted_for_as_they_are_drawn(scheme, kind):
    """Noise is what the report asks for, less than for known steps; the batches are those of the scheme, and forgotten with the secret."""
    done, known = trained(participation=scheme), trained(participation=KNOWN)
    assert type(done.report) is kind and done.report.epsilon(1e-6).max() <= 8 and done.report.epsilon(1e-6).max() > 7.9 and done.report.sigma < known.report.sigma
    batches = done.simulation.batches
    assert batches.scheme == done.report.participation == scheme and batches.size == 3 and done.simulation.t == 9
    assert done.simulation.runs[0].scale == pytest.approx(done.report.sigma * row_sensitivity(1.0, 3, "replace-one"))
    again = account(done.simulation.runs[0].protocol, LDP(), batches.scheme, done.report.sigma).in_units(1.0, 3, "replace-one")
    assert again.epsilon(1e-6).max() == pytest.approx(done.report.epsilon(1e-6).max(), rel=1e-3)  # fewer looks are counted
    assert "as long as nobody but a node knows its batches" in done.statement and "Each node draws its batches" in done.statement
    fresh = trained(participation=scheme, secret=None)
    with pytest.raises(ValueError, match="expected a secret"): fresh.simulation.batches.at(0)


def test_training_with_a_largest_batch_is_accounted_for_as_it_is_cut():
    cut_off = Participation.truncated_poisson(1 / 3, 9, 9, 4)
    done, uncut = trained(participation=cut_off), trained()
    assert type(done.report) is TruncatedReport and 7.9 < done.report.epsilon(1e-6).max() <= 8 and done.report.sigma >= uncut.report.sigma
    batches = done.simulation.batches
    assert batches.scheme == cut_off == done.report.participation
    assert max((batches.at(t) >= 0).sum(axis=1).max() for t in range(9)) == 4 < max((uncut.simulation.batches.at(t) >= 0).sum(axis=1).max() for t in range(9))
    assert "largest=4" in done.statement
    for records in (1, 8):
        with pytest.raises(ValueError, match=r"a node holds 9 records; expected Participation.truncated_poisson\(0.333.*, 9, 9, 4, 1\)"):
            trained(participation=Participation.truncated_poisson(1 / 3, 9, records, 4))


def test_other_settings_have_other_batches():
    """Batches of two runs with one secret are independent, as their noise is: or two accounts could not be added up."""
    def table(**change):
        batches = trained(**change).simulation.batches
        return [batches.at(t).tolist() for t in range(9)]
    first = table()
    assert table() == first
    for change in ({"secret": 6}, {"epsilon": 7}, {"lr": 0.2}, {"clip": 0.5}, {"seed": 1}): assert table(**change) != first


def test_checkpoints_hold_no_batches_and_go_on_with_the_same(tmp_path):
    whole = trained().models[0].weight
    kept = tmp_path / "kept"
    trained(checkpoint=kept)
    drawn = trained().simulation.batches.at(0).astype(np.int64).tobytes()
    assert kept.exists() and drawn not in kept.read_bytes()
    assert (trained(checkpoint=kept).models[0].weight == whole).all()
    with pytest.raises(ValueError): trained(checkpoint=kept, participation=ANEW)


def test_what_is_refused():
    for change, words in (
        ({"participation": "shuffled"}, "expected a Participation"), ({"lr": Schedule(0.1, momentum=0.5)}, "nothing is proved"),
        ({"lr": np.geomspace(0.1, 0.01, 9)}, "nothing is proved"),
        ({"feature_norm": 1.0}, "nothing is proved"), ({"noise": "mafalda"}, "a memory of|nothing is proved"),
        ({"participation": ANEW, "noise": "mafalda"}, "b\\^k|nothing is proved"),
    ):
        with pytest.raises(ValueError, match=words): trained(**change)
    with pytest.raises(ValueError, match="drawn for 6 steps"): Simulation(model, DATA, random_batches(HELD, SCHEMES["Poisson"], 1), [Run("r", dsgd(W, 12))], 0.1, 1.0)
    for bad, words in (({"scheme": Participation.cyclic(2, 3)}, "expected random steps"), ({"size": 0}, "size"), ({"holdings": [[0], [0]]}, "more than one place")):
        with pytest.raises(ValueError, match=words): random_batches(**{"holdings": HELD, "scheme": SCHEMES["Poisson"]} | bad)
    assert math.isclose(random_batches(HELD, SCHEMES["Poisson"], 1).b, 3, abs_tol=0.5)
