"""What notebooks show of a report, an optimum or a training: safe, small, the same every time, quick, and with what it assumes."""
import html
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import partial

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

from mfdl.accounting.account import account
from mfdl.accounting.methods.all_attackers import exposure
from mfdl.accounting.methods.lipschitz import Lipschitz
from mfdl.accounting.methods.report import Report
from mfdl.base.cards import draw_matrix, html_card
from mfdl.noise.covariance import optimize_covariance
from mfdl.noise.methods.certificates import Optimum
from mfdl.noise.methods.coalitions import optimize_coalition
from mfdl.noise.methods.covariance_solver import Covariance
from mfdl.noise.methods.insiders import optimize_local
from mfdl.noise.methods.newton import Strategy
from mfdl.noise.methods.space_time_solver import exact_space_time
from mfdl.noise.methods.spectral import optimize_space_time
from mfdl.noise.methods.strategies import strategy
from mfdl.noise.space_time import SpaceTime
from mfdl.noise.which_noise import KINDS
from mfdl.protocol.algorithms import dp_dsgd
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import LDP, PNDP

EVERY = Participation.every_step(2)
RING = np.eye(5) / 2 + (np.roll(np.eye(5), 1, 0) + np.roll(np.eye(5), -1, 0)) / 4
LABELS = ["<script>alert(1)</script>", ("a", 1), "$x_$", "é" * 500, 7]
RUN = dp_dsgd(RING, 2, nodes=LABELS)


@pytest.fixture(autouse=True)
def closed():
    "Figures that other tests left open."
    plt.close("all")


def no_figures(): return plt.get_fignums() == []


def quickly(draw):
    """What is drawn, and the computing time of the quickest of three runs: other work on the machine only adds to it."""
    times = []
    for _ in range(3):
        began = time.process_time()
        drawn = draw()
        times.append(time.process_time() - began)
    return drawn, min(times)


def made(attackers, victims, distance, sensitivity, leaks=(), adaptive=True):
    return Report("run", EVERY, SIGMA, "exact", tuple(attackers), tuple(victims), np.array(distance, float), np.array(sensitivity, float), leaks, adaptive)


MANY = 1_000_000
SIGMA = 1.37  # of what is made by hand
REPORTS = {
    "insiders": lambda: account(RUN, PNDP.each(LABELS), EVERY, SIGMA),
    "coalition": lambda: account(RUN, PNDP([LABELS[0], 7]), EVERY, SIGMA),
    "eavesdropper": lambda: account(RUN, LDP(), EVERY, SIGMA),
    "promise": lambda: account(RUN, PNDP([7]), EVERY, SIGMA, updates=Lipschitz(1)),
    "empty": lambda: made([], [], [], []),
    "one pair": lambda: made([(0,)], [1], [1], [0.5]),
    "leaks": lambda: made([(0,)] * 2, [1, 2], [1, 2], [np.inf, np.inf], (((0,), 0, 1),)),
    "unconnected": lambda: made([(0,)] * 2, [1, 2], [np.inf, 1], [0, 0]),
    "everything heard from afar": lambda: made([(0,)] * 2, [1, 2], [np.inf, 1], [1, np.inf]),
    "overheard leak": lambda: made([()] * 2, ["a", "b"], [np.nan, np.nan], [np.inf, 1]),
}


@pytest.fixture(params=REPORTS)
def report(request): return REPORTS[request.param]()


def test_a_card_is_whole_small_and_says_what_it_assumes(report):
    card = report._repr_html_()
    words = "".join(ET.fromstring(card).itertext())  # which fails unless every element is closed
    assert "<script" not in card and len(card) < 30_000 and "<svg" in card
    assert report.assumes in words and f"{report.sigma:.4g}" in words
    assert card == report._repr_html_() and no_figures()
    rows = len(ET.fromstring(card).findall(".//tbody/tr"))
    assert rows == min(5, len(report.mu)) and (f"and {len(report.mu) - 5} more pairs" in words) == (len(report.mu) > 5)
    if report.leaks: assert "without noise" in words


def test_every_report_can_be_drawn(report):
    for kind in (None, "heatmap", "victims", "distance"):
        if kind == "distance" and () in report.attackers:
            with pytest.raises(ValueError, match="no place in the graph"): report.plot(kind)
            continue
        if kind == "heatmap" and not len(report.mu): continue
        report.plot(kind).figure.canvas.draw()
        plt.close("all")


def test_worst_come_first():
    mu = np.random.default_rng(0).permutation(20) / 10
    words = "".join(ET.fromstring(made([(0,)] * 20, range(1, 21), [1] * 20, mu)._repr_html_()).itertext())
    learned = mu / SIGMA
    order = [f"0{victim + 1}1{learned[victim]:.4g}" for victim in np.argsort(-mu)[:5]]
    assert "".join(order) in words and f"and 15 more pairs, with mu up to {np.sort(learned)[-6]:.4g}" in words


@pytest.mark.alone
@pytest.mark.parametrize("heard", [False, True])
def test_a_million_pairs_take_less_than_a_second(heard):
    values = np.random.default_rng(0).random(MANY)
    attackers = [()] * MANY if heard else [(k % 1000,) for k in range(MANY)]
    large = made(attackers, range(MANY), np.full(MANY, np.nan) if heard else np.arange(MANY) % 9 + 1, values)
    card, seconds = quickly(large._repr_html_)
    assert seconds < 1 and len(card) < 30_000 and "and 999,995 more pairs" in card


def test_an_exposure_says_what_it_assumes_and_leaves_out():
    found = exposure(RUN, PNDP.each(LABELS)[:3], EVERY)
    card = found._repr_html_()
    assert "<script" not in card and len(card) < 30_000 and found.assumes in html.unescape(card) and "of the other nodes nothing is promised" in card
    assert f"<td>{int(found.by_distance().pairs.max())}</td>" in card
    assert "<svg" not in exposure(RUN, [LDP()], EVERY)._repr_html_()


def test_the_extremes_of_a_matrix_are_its_own():
    """Also where a block is drawn as one cell, and where no entry is 0."""
    M = np.full((100, 100), 3.0)
    M[0, :2] = [-4, 5]
    for matrix in (M, csr_array(M)): assert "least -4, largest 5a cell is a block" in words_of(html_card("a", [], [], [], partial(draw_matrix, matrix)))
    assert "least 3, largest 3" in html_card("a", [], [], [], partial(draw_matrix, M[50:60, :9]))


def test_pictures_do_not_depend_on_settings_or_colours_of_the_page():
    draw = lambda ax: ax.plot([0, 1])
    card = html_card("a", [], [], [], draw)
    with plt.rc_context({"font.size": 40, "axes.edgecolor": "red", "svg.fonttype": "path"}): assert html_card("a", [], [], [], draw) == card
    assert "#000000" not in card and "background" not in card and "currentColor" in card


W = RING
SCHEME = Participation.cyclic(2, 3)
OPTIMA = {  # name -> optimum, what is drawn of it
    "strategy": (lambda: strategy("mafalda", SCHEME, W), lambda found: found.C),
    "each node": (lambda: strategy("mafalda_l", SCHEME, W), lambda found: found.C[0]),
    "no network": (lambda: strategy("identity", SCHEME), lambda found: np.eye(6) / found.participation.k**0.5),
    "covariance": (lambda: optimize_covariance(W), lambda found: found.R),
    "server": (lambda: optimize_covariance(W, method="cdp"), lambda found: found.R),
    "coalition": (lambda: optimize_coalition(W, [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]], 1), lambda found: found.R),
    "space-time": (lambda: exact_space_time(W, SCHEME), lambda found: of_node_0(found)),
    "directions": (lambda: optimize_space_time(W, SCHEME, method="directions"), lambda found: of_node_0(found)),
    "local": (lambda: optimize_local(W, SCHEME, PNDP.each(range(5))), lambda found: of_node_0(found)),
}


def of_node_0(found):
    """The covariance in time of what node 0 adds, by the run."""
    own = found.protocol(W).mix.N.toarray()[::5]
    return own @ own.T


def words_of(card): return "".join(ET.fromstring(card).itertext())


@pytest.mark.parametrize("name", OPTIMA)
def test_an_optimum_shows_its_proof_and_what_that_is_a_proof_of(name):
    make, drawn = OPTIMA[name]
    found = make()
    card = found._repr_html_()
    words = words_of(card)
    assert card == found._repr_html_() and len(card) < 30_000 and no_figures()
    matrix, _ = found._shown()
    np.testing.assert_allclose(matrix, drawn(found), atol=1e-9 * np.abs(matrix).max())
    assert f"least {matrix.min():.3g}, largest {matrix.max():.3g}" in words
    if found.objective is None: assert "squared error is not known: no network" in words and "No lower bound was computed" in words and "gap" not in words
    else: assert f"squared error{found.objective:.4g}lower bound{found.lower_bound:.4g}gap{found.gap:.2g}" in words and "Lower bound: " in words
    if hasattr(found, "participation"): assert repr(found.participation) in words


def test_an_optimum_without_a_bound_or_a_picture_says_so():
    found = replace(strategy("mafalda", SCHEME, W), lower_bound=None, name="<script>alert(1)</script>")
    card = found._repr_html_()
    assert "<script" not in card and "other noise may leave less" in card and f"{found.objective:.4g}" in card and "gap" not in words_of(card)
    bare = Optimum()
    bare.objective, bare.lower_bound, bare.iterations = 2.0, 1.0, 3
    assert "<svg" not in bare._repr_html_() and "gap0.5" in words_of(bare._repr_html_())


@pytest.mark.parametrize("make", [
    lambda: Strategy("large", np.tri(2000), Participation.every_step(2000), 1.0, 1.0),
    lambda: Covariance("corn", np.random.default_rng(0).normal(size=(2000, 2000)), np.ones(2000), 1.0, 1.0),
    lambda: SpaceTime(np.ones((500, 60, 60)), 1.0, 1.0, 1.0, 0, Participation.every_step(60), (list(range(500)),), np.eye(500)),
], ids=["strategy", "covariance", "directions"])
def test_large_optima_are_drawn_small_and_quickly(make):
    found = make()
    card, seconds = quickly(found._repr_html_)
    assert seconds < 2 and len(card) < 30_000 and "a cell is a block" in card


@pytest.fixture(scope="module")
def classes():
    """Of few records, two classes."""
    pytest.importorskip("torch")
    from mfdl.learning.data import Dataset
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = rng.integers(0, 2, 60)
    return Dataset("small", X, y, X[:20], y[:20])


def trained(data, **settings):
    from torch import nn

    from mfdl.learning.training import train
    graph = nx.relabel_nodes(nx.cycle_graph(5), dict(enumerate(LABELS)))
    usual = dict(epsilon=3.0, delta=1e-5, participation=Participation.cyclic(2, 3), lr=0.05, noise="independent", progress=False, secret=1)
    return train(lambda: nn.Linear(4, 2), data, graph, **usual | settings)


@pytest.mark.parametrize("settings, holds", [
    ({}, ["a promise"]),
    (dict(against=PNDP.each(LABELS)), ["a promise, even if shown every noisy gradient"]),
    (dict(against=PNDP.each(LABELS), estimate=True), ["a promise, even if shown every noisy gradient", "an estimate: if gradients did not react"]),
    (dict(against=PNDP.each(LABELS), feature_norm=2.0), ["a promise, as updates are Lipschitz"]),
], ids=["eavesdropper", "insiders", "estimate", "promise"])
def test_a_training_shows_beside_each_number_whether_it_is_a_promise(classes, settings, holds):
    done = trained(classes, **settings)
    card = done._repr_html_()
    words = words_of(card)
    assert "<script" not in card and len(card) < 30_000 and "<svg" in card and card == done._repr_html_() and no_figures()
    rows = [["".join(cell.itertext()) for cell in row] for row in ET.fromstring(card).findall(".//tbody/tr")]
    assert [row[-1] for row in rows] == holds and rows[-1][1:4] == ["3", "1e-05", f"{done.report.worst.mu:.4g}"]
    if len(rows) == 2: assert rows[0][1:4] == [f"{done.proved.epsilon(1e-5):.4g}", "1e-05", f"{done.proved.mu:.4g}"]
    for line in done.statement.split("\n"): assert line[:400] in words
    assert "accuracy of test records" in words and "test records, which are not protected" in words


def test_the_picture_of_a_training_survives_what_training_does(classes):
    done = trained(classes)
    history = done.simulation.history
    history.steps, history.metrics = list(range(20_000)), {"loss": [np.full((1, 5), value) for value in [np.nan, np.inf, 1e308, 0.5] * 5000]}
    card, seconds = quickly(done._repr_html_)
    assert seconds < 2 and len(card) < 30_000 and "loss of test records" in words_of(card)
    history.steps, history.metrics = [], {}
    assert "<svg" not in done._repr_html_() and "picture" not in done._repr_html_()


def kinds_of_runs():
    sparse = dp_dsgd(csr_array(np.eye(3000) / 2 + np.roll(np.eye(3000), 1, 0) / 4 + np.roll(np.eye(3000), -1, 0) / 4), 2)
    elsewhere = RUN.from_matrices(RUN.M_G, RUN.M_Z, RUN.messages, RUN.variables, LABELS, 2, "<script>alert(1)</script>")
    return {"run": RUN, "large": sparse, "matrices": elsewhere}


@pytest.mark.parametrize("name", ["run", "large", "matrices"])
def test_a_run_shows_its_size_and_who_hears_whom(name):
    run = kinds_of_runs()[name]
    card = run._repr_html_()
    words = words_of(card)
    assert "<script" not in card and len(card) < 40_000 and "<svg" in card and card == run._repr_html_() and no_figures()
    assert f"steps{run.T}nodes{run.n}messages{run.n * run.T}" in words and "who hears whom" in words and ("a cell is a block" in words) == (name == "large")
    for line in repr(run).split("\n"): assert line.strip() in words


@pytest.mark.parametrize("kind, gap, who", [
    ("mafalda", "e", "each node alone"), ("independent", "not an optimum", "each node alone"),
    ("space", "e", "also nodes together"), ("space-time", "e", "also nodes together"),
])
def test_a_kind_of_noise_shows_what_it_is(kind, gap, who):
    found = KINDS[kind](W, SCHEME)
    words = words_of(found._repr_html_())
    assert f"squared error{found.squared_error:.4g}gap" in words and gap in words.split("gap")[1][:14] and who in words and "covariance of what is added" in words
    added = found.protocol.mix.N.toarray()
    covariance = added @ added.T
    assert f"least {covariance.min():.3g}, largest {covariance.max():.3g}" in words
    assert "<svg" not in KINDS["independent"](W, Participation.every_step(401))._repr_html_()
