"""The explorer: what it shows is what the command line and the code beside it give, in the functions and in a browser, by clicking."""
import asyncio
import contextlib
import html
import http.client
import http.cookiejar
import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import psutil
import pytest
from click.testing import CliRunner
from conftest import ROOT
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from mfdl import account
from mfdl.accounting.methods.lipschitz import Lipschitz
from mfdl.base.downloads import find_file
from mfdl.base.graph_files import FORMATS, read_graph
from mfdl.protocol.algorithms import dp_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.attacker_names import labelled, parse_attackers
from mfdl.protocol.methods.graphs import load_graph
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import PNDP
from mfdl.tools import cli, explorer
from mfdl.tools import view as view_chapter
from mfdl.tools.names import ALGORITHMS, EXPECTED, TRUST
from mfdl.tools.settings import (
    EXAMPLES,
    LARGEST,
    MADE,
    WHO,
    Scene,
    Settings,
    command_line,
    explore,
    in_a_line,
    load_network,
    number,
    python_code,
    read_query,
    table_of_pairs,
    toggle,
    upload_name,
    write_query,
)
from mfdl.tools.view import DARK, LIGHT, caution, claim, distance_picture, drawn, graph_figure, text_below

EDGES = b"# who talks to whom\nanna,ben\nben,carl\ncarl,dora\ndora,anna\ndora,O'Hara & <b>\n"
SPECS = {"dp-dsgd": "dp-dsgd", "dsgd": "dsgd", "anti-pgd": "anti-pgd", "muffliato": "muffliato:K=2", "decor": "decor:sigma_edge=2", "zip-dl": "zip-dl:self_noise=1",
         "local-dsgd": "local-dsgd:every=2", "random-walk": "random-walk:seed=3", "mf-dsgd": "mf-dsgd", "pairwise": "pairwise:curious=1", "space-time": "space-time"}


def test_every_algorithm_and_attacker_is_tried():
    assert set(SPECS) == set(ALGORITHMS) and set(WHO) == set(TRUST)
    for name in EXAMPLES["algorithm"]: assert name.partition(":")[0] in SPECS


def told(text):
    """Numbers of a JSON report of the command line."""
    return np.array([float(pair[key]) for pair in json.loads(text)["pairs"] for key in ("mu", "epsilon" if "epsilon" in pair else "estimated_epsilon")])


def numbers(view):
    return view.frame[["mu", "epsilon"]].to_numpy().ravel()


@pytest.mark.parametrize("algorithm", SPECS.values())
@pytest.mark.parametrize("trust", TRUST)
def test_command_and_code_give_the_numbers_of_the_view(algorithm, trust, tmp_path):
    view = explore(Settings("ring:n=5", None, algorithm, trust, ("0", "2"), 6, "cyclic:2,3", 1.3, None, 1e-5))
    result = CliRunner().invoke(cli.app, [*shlex.split(command_line(view.settings))[1:], "-o", f"{tmp_path}/report.json"])
    assert result.exit_code == 0, result.output
    program = {}
    with redirect_stdout(io.StringIO()): exec(python_code(view), program)
    np.testing.assert_allclose(told((tmp_path / "report.json").read_text()), numbers(view), rtol=1e-12)
    np.testing.assert_allclose(program["report"].mu, view.report.mu, rtol=1e-12)
    assert program["report"].victims == view.report.victims and program["report"].adaptive == view.report.adaptive


@pytest.mark.parametrize("settings", [
    Settings("O'Hara & friends.csv", EDGES, attackers=("anna", "carl"), T=4, participation="min-sep:2,2", sigma=None, epsilon=3.0),
    Settings("erdos-renyi:n=9,p=0.4,seed=3", trust="ldp", algorithm="decor", T=7, participation="single", sigma=None, epsilon=0.1, delta=1e-9),
], ids=["edge list", "generated"])
def test_command_and_code_can_be_pasted(settings, tmp_path):
    """In a shell and in a Python of their own, for a budget, with the dropped file in the folder."""
    view = explore(settings)
    if settings.edges: (tmp_path / settings.graph).write_bytes(settings.edges)
    environment = os.environ | {"PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]}
    subprocess.run(f"{command_line(settings)} -o report.json", shell=True, cwd=tmp_path, env=environment, check=True, capture_output=True)
    report = (tmp_path / "report.json").read_text()
    assert json.loads(report)["sigma"] == pytest.approx(view.report.sigma, rel=1e-12)
    np.testing.assert_allclose(told(report), numbers(view), rtol=1e-12)
    assert view.frame.epsilon.max() == pytest.approx(settings.epsilon, rel=1e-9)
    code = python_code(view) + "print(report.sigma, *report.mu)"
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    np.testing.assert_allclose([float(x) for x in said.split()], [view.report.sigma, *view.report.mu], rtol=1e-12)


def test_by_distance_is_what_the_pairs_say():
    view = explore(Settings("path:n=6", attackers=("0",)))
    assert view.by_distance.distance.tolist() == [1, 2, 3, 4, 5] and view.by_distance.victims.tolist() == [1] * 5
    np.testing.assert_array_equal(view.by_distance.largest_mu, account_of("path:n=6", [0], 10).mu)


def account_of(graph, attackers, T, scheme=None):
    """The account of DP-D-SGD, from the library alone."""
    network = load_graph(graph) if isinstance(graph, str) else graph
    return account(dp_dsgd(gossip_matrix(network), T, nodes=network), PNDP(attackers), scheme or Participation.every_step(T))


# --- promises beside estimates

def test_a_promise_and_the_estimate_beside_it():
    """Both numbers are those of the library; the command and the code give the promise; the page says which is which."""
    settings = Settings("path:n=5", attackers=("0",), T=6, lipschitz=1.5)
    view = explore(settings)
    graph = load_graph("path:n=5")
    run, records = dp_dsgd(gossip_matrix(graph), 6, nodes=graph), Participation.every_step(6)
    promise, estimate = account(run, PNDP([0]), records, updates=Lipschitz(1.5)), account(run, PNDP([0]), records)
    np.testing.assert_array_equal(view.frame.mu, promise.mu)
    np.testing.assert_allclose(view.frame.mu_without_reactions, estimate.mu, rtol=1e-12)
    assert (promise.mu > estimate.mu * 1.01).any()
    assert "a promise for training" in text_below(view) and "Lipschitz(1.5)" in caution(view) and "no promise" not in caution(view)
    assert "no promise" in caution(explore(replace(settings, lipschitz=None)))
    program = {}
    with redirect_stdout(io.StringIO()): exec(python_code(view), program)
    np.testing.assert_array_equal(program["report"].mu, promise.mu)
    result = CliRunner().invoke(cli.app, shlex.split(command_line(settings))[1:])
    assert result.exit_code == 0 and f"mu={promise.worst.mu:.4g}" in result.output and "hold for training" in result.output
    texts = graph_figure(view, "mu")["data"][3]["hovertext"]
    assert [f"without reactions μ = {mu:.6g}" for mu in estimate.mu] == [text.rpartition("<br>")[2] for text in texts]


@pytest.mark.parametrize("trust", TRUST)
def test_a_constant_changes_nothing_where_attackers_see_every_message(trust):
    settings = Settings("ring:n=5", trust=trust, attackers=("0",), T=4, lipschitz=3.0)
    view, plain = explore(settings), explore(replace(settings, lipschitz=None))
    assert view.promises == (not plain.report.adaptive) and view.report.adaptive
    if not view.promises:
        np.testing.assert_array_equal(view.report.mu, plain.report.mu)
        assert "--lipschitz" not in command_line(settings) and "Lipschitz" not in python_code(view) + caution(view)


def test_a_promise_that_takes_too_long_is_left_to_the_command_line():
    started = time.process_time()
    with pytest.raises(ValueError, match=r"too large for this page; on the command line: .*--lipschitz=1 "):
        explore(Settings("complete:n=190", attackers=("0",), T=100, lipschitz=1.0))
    with pytest.raises(ValueError, match="expected a number >= 0"): explore(Settings(lipschitz=-1.0))
    assert time.process_time() - started < 5


# --- what is kept

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.floats(allow_nan=False)


@given(st.builds(
    Settings, graph=WORDS, algorithm=WORDS, trust=st.sampled_from([*TRUST]), attackers=st.lists(WORDS, min_size=1, max_size=4).map(tuple),
    T=st.integers(0, 10**9 - 1), participation=WORDS, sigma=st.none(), epsilon=NUMBERS, delta=NUMBERS, lipschitz=st.none() | NUMBERS, shown=st.sampled_from(["mu", "epsilon"])))
def test_a_link_has_all_settings(settings):
    """Whatever is in them; but for the bytes of a file."""
    for one in (settings, replace(settings, sigma=settings.epsilon, epsilon=None)):
        assert read_query(write_query(one)) == one == read_query("token=a-b_c&" + write_query(replace(one, edges=b"a,b")))


PARTS = st.sampled_from(["graph", "T", "sigma", "attacker", "trust", "shown", "token", "x"])


@given(st.text(max_size=40) | st.lists(st.tuples(PARTS, WORDS), max_size=5).map(urllib.parse.urlencode))
def test_a_link_is_read_or_refused_in_a_line(query):
    try: assert isinstance(read_query(query), Settings)
    except ValueError as error: assert "\n" not in in_a_line(error) and ("expected" in str(error) or "did you mean" in str(error))


def test_a_link_of_a_dropped_file_asks_for_it():
    settings = read_query(write_query(Settings("friends.csv", EDGES, attackers=("anna",))))
    with pytest.raises(ValueError, match="graph='friends.csv': a file that this page does not have; expected that it is dropped here"): explore(settings)
    assert explore(replace(settings, edges=EDGES)).trust == PNDP(["anna"])


@pytest.mark.parametrize("settings", [
    Settings(attackers=("Medici", "Pazzi")), Settings(trust="ldp", sigma=None, epsilon=2.0),
    Settings("friends.csv", b"a#b,=1+1\n=1+1,O'Hara\n", attackers=("a#b",), lipschitz=1.0)],
    ids=["coalition", "eavesdropper", "odd labels"])
def test_a_table_is_the_report_with_its_settings(settings):
    """Also as it is read again from the file."""
    view = explore(settings)
    table = pd.read_csv(io.StringIO(table_of_pairs(view).to_csv(index=False)))
    expected = view.report.to_frame()
    columns = list(expected)
    pd.testing.assert_frame_equal(table[columns], pd.read_csv(io.StringIO(expected.to_csv(index=False))))
    assert table.victim.tolist() == list(map(str, view.report.victims)) and len(table) == len(expected)
    epsilon = view.report.epsilon(settings.delta)
    np.testing.assert_allclose(table[epsilon.name], epsilon, rtol=1e-12)
    assert set(table.graph) == {settings.graph} and set(table.steps) == {10} and table.sigma.iloc[0] == pytest.approx(view.report.sigma, rel=1e-12)
    assert set(table.holds_for_training) == {settings.lipschitz is not None or settings.trust == "ldp"}
    assert table.lipschitz.dropna().unique().tolist() == ([1.0] if settings.lipschitz else [])


def luminance(colour):
    """Relative, by WCAG 2."""
    channels = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return sum(weight * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055)**2.4) for weight, c in zip((0.2126, 0.7152, 0.0722), channels, strict=True))


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_what_is_learned_most_stands_out(look):
    """From the paper, and everything that is written can be read on it."""
    import plotly.graph_objects as go
    view = explore(Settings())
    figure = graph_figure(view, "mu", look)
    drawn = go.Figure(figure)
    assert drawn.layout.paper_bgcolor == drawn.layout.plot_bgcolor == look.paper and drawn.layout.font.color == look.ink
    shades = drawn.data[3].marker
    ends = [sum(map(int, re.findall(r"\d+", colour))) for _, colour in shades.colorscale]
    strongest = ends[0] if shades.reversescale else ends[-1]
    assert (strongest == max(ends)) == look.dark and (luminance(look.paper) < 0.5) == look.dark
    with_contrast = sorted(map(luminance, (look.ink, look.paper)))
    assert (with_contrast[1] + 0.05) / (with_contrast[0] + 0.05) > 7
    assert distance_picture(view, "mu", DARK) != distance_picture(view, "mu", LIGHT) == distance_picture(view, "mu")


@given(st.floats(allow_nan=False))
def test_numbers_are_written_exactly(x): assert float(number(x)) == x


@given(st.text(max_size=30), st.integers(0, 400_000))
def test_a_name_is_no_path_and_no_option(name, size):
    try: shown = upload_name(name, size)
    except ValueError as error: assert name.lower().rstrip().endswith((".gz", *FORMATS)) and "edge list" in str(error)
    else: assert "/" not in shown.removeprefix("./") and "\\" not in shown and shown.isprintable() and not shown.startswith("-")


@given(st.binary(max_size=60))
def test_a_file_is_a_graph_or_an_error_that_names_it(content):
    try: assert load_network(Settings("mine.csv", content)).number_of_edges()
    except ValueError as error: assert str(error).startswith("file='mine.csv'") and ("expected" in str(error) or "malformed" in str(error))


@given(st.tuples(*[st.sampled_from("abc")] * 5))
def test_clicks_toggle(clicks):
    settings = Settings(attackers=())
    for label in clicks: settings = toggle(settings, label)
    assert sorted(settings.attackers) == [label for label in "abc" if clicks.count(label) % 2]


@given(st.builds(
    Settings, graph=st.sampled_from(["ring:n=5", "ring:n=-1", "complete:n=1e9", "grid:rows=2", "", "/etc/passwd", "path:n=3"]),
    algorithm=st.sampled_from([*SPECS.values(), "muffliato:K=0", "muffliato:K=1e99", "decor:sigma_local=0", "", "x:y"]),
    trust=st.sampled_from([*TRUST, "PNDP"]), attackers=st.sampled_from([(), ("0",), ("1", "1"), ("0", "2"), ("0+1",), ("a,b",), ("0", "1", "2", "3", "4")]),
    T=st.sampled_from([-1, 0, 1, 4, 6, 10**4, 10**30]), participation=st.sampled_from(["every-step", "single", "cyclic:2,3", "cyclic:0,3", "min-sep:2,2", "never"]),
    sigma=st.sampled_from([1.0, 0.0, -1.0, float("inf"), None]), epsilon=st.sampled_from([None, 1.0, 0.0, float("nan")]), delta=st.sampled_from([1e-6, 0.0, 1.0])))
def test_settings_give_a_view_or_an_expected_error(settings):
    try: assert isinstance(explore(settings), Scene)
    except EXPECTED as error: assert in_a_line(error) and "unexpected" not in in_a_line(error)


@pytest.mark.parametrize("changes,said", [
    ({"graph": "florentin"}, "did you mean florentine"), ({"attackers": ()}, "at least one node"), ({"attackers": ("Sforza",)}, "'Sforza' is not a node"),
    ({"participation": "cyclic:3,4"}, "more than T=10"), ({"participation": "sometimes"}, "expected every-step"), ({"T": 5000}, "mfdl account florentine"),
    ({"graph": "erdos-renyi:n=300"}, "more than 200 nodes"), ({"algorithm": "zip-dl", "trust": "ldp", "graph": "complete:n=30"}, "too large for this page"),
    ({"algorithm": "space-time", "participation": "min-sep:2,3"}, "expected patterns that do not overlap"),
    ({"sigma": -1.0}, "sigma=-1.0"), ({"sigma": None, "epsilon": 8.0, "algorithm": "dsgd"}, "no finite noise"),
    ({"delta": 2.0}, "delta=2.0"),
])
def test_errors_say_what_is_wrong_before_any_work(changes, said):
    started = time.process_time()
    with pytest.raises(EXPECTED) as error: explore(replace(Settings(), **changes))
    assert said in str(error.value) and time.process_time() - started < 2


def test_too_large_a_run_is_handed_to_a_command_that_is_right():
    with pytest.raises(ValueError) as error: explore(Settings("ring:n=201", attackers=("3",)))
    command = str(error.value).partition("on the command line: ")[2]
    assert CliRunner().invoke(cli.app, shlex.split(command)[1:]).exit_code == 0


def test_what_is_too_large_to_be_read_names_no_attacker_of_the_graph_before():
    page = explorer.page()
    status, graph = parts(page)
    graph.value = "ring:n=201"
    assert "--attackers=first" in status.value and "Medici" not in status.value
    command = html.unescape(status.value).partition("on the command line: ")[2]
    result = CliRunner().invoke(cli.app, shlex.split(command)[1:])
    assert result.exit_code == 0 and "ring:n=201 (201 nodes" in result.output


@pytest.mark.parametrize("algorithm", MADE)
def test_noise_that_is_made_for_the_network(algorithm):
    """It gives an eavesdropper mu = 1; in a network too large for tables the command line is named; a link and the table keep the choice."""
    settings = Settings("ring:n=7", algorithm=algorithm, trust="ldp", T=6, participation="cyclic:2,3")
    view = explore(settings)
    assert (0.9 if algorithm == "pairwise" else 0.999) < view.report.worst.mu < 1 + 1e-9
    assert re.search("σ = 1 gives an eavesdropper(, and any 1 of the nodes who hear everything,)? μ = 1 at most", claim(view))
    assert read_query(write_query(settings)) == settings and set(table_of_pairs(view).algorithm) == {algorithm}
    edges = "".join(f"{i},{i + 1}\n" for i in range(LARGEST["drawn"])).encode()
    with pytest.raises(ValueError, match=f"on the command line: mfdl account path.csv --algorithm={algorithm}"): explore(replace(settings, graph="path.csv", edges=edges))


def test_secrets_of_pairs_hide_from_as_many_nodes_as_they_were_made_for():
    def learned(curious, *attackers):
        asked = Settings("ring:n=7", attackers=attackers, trust="secldp", algorithm=f"pairwise:curious={curious}", T=6, participation="cyclic:2,3")
        exec(python_code(explore(asked)), {})  # what it prints is not looked at
        return explore(asked).report.worst.mu
    assert learned(1, "0") == pytest.approx(1, abs=1e-6) and learned(1, "0", "3") > 1.01 and learned(2, "0", "3") <= 1 + 1e-6


def test_noise_from_one_seed_hides_nothing_from_nodes():
    view = explore(Settings("ring:n=7", attackers=("0",), algorithm="space-time", T=6, participation="cyclic:2,3"))
    assert np.isinf(view.report.mu).all() and "leak" in str(graph_figure(view, "mu"))


LABELS = ["$x^2$", 'the "Duke"', "a & <b>", "it's"]


def test_labels_are_drawn_as_they_are():
    """Plotly reads tags, dollars as formulas, and knows neither &quot; nor much else by name; numbers of characters it knows."""
    network = nx.path_graph(LABELS)
    report = account_of(network, LABELS[:1], 2)
    figure = graph_figure(Scene(Settings(T=2), network, PNDP(LABELS[:1]), report), "mu")
    drawn = [text for trace in figure["data"][1:] for text in trace["text"]]
    over = [text.partition("<br>")[0] for trace in figure["data"][1:] for text in trace["hovertext"]]
    assert drawn == over and [html.unescape(text) for text in drawn] == LABELS
    for text in drawn: assert not set('<>$') & set(text) and set(re.findall("&(.*?);", text)) <= {"amp", "lt", "gt", "#36"}


@given(st.floats(1e-9, 1e9), st.floats(1.6, 1e7))
def test_every_scale_has_a_few_ticks(low, ratio):
    ticks = view_chapter._ticks(low, low * ratio)
    assert 2 <= len(ticks) <= 12 and ticks == sorted(ticks) and low * 0.999 <= ticks[0] and ticks[-1] <= low * ratio * 1.001


def test_an_eavesdropper_is_not_clicked():
    figure = graph_figure(explore(Settings(trust="ldp")), "mu")
    bar = figure["data"][3]["marker"]["colorbar"]
    assert "lick" not in figure["layout"]["title"]["text"] and len(bar["tickvals"]) == len(bar["ticktext"]) >= 2


# --- large networks

LASTFM = Settings("lastfm-asia", attackers=("0",))
NEEDS_LASTFM = pytest.mark.skipif(find_file("social_graphs/lastfm_asia.csv") is None, reason="data set social_graphs/lastfm_asia.csv is not on this machine: set MFDL_DATA")


@NEEDS_LASTFM
def test_a_large_network_is_shown_in_parts():
    """7,624 nodes: all of them in the numbers, 200 in the picture, and an answer within seconds of computing."""
    started = time.process_time()
    view = explore(LASTFM)
    figure, picture, text = graph_figure(view, "mu"), distance_picture(view, "mu"), text_below(view)
    assert time.process_time() - started < 10
    graph = load_graph("lastfm-asia")
    report = account(dp_dsgd(gossip_matrix(graph), 10, nodes=graph), PNDP([0]), Participation.every_step(10))
    np.testing.assert_array_equal(view.report.mu, report.mu)
    np.testing.assert_array_equal(view.by_distance.victims, report.to_frame().groupby("distance").size())
    labels = [label for trace in figure["data"][1:] for label in trace["customdata"]]
    assert len(labels) == len(set(labels)) == 200 and figure["layout"]["title"]["text"].endswith("(200 of 7624 nodes drawn)")
    assert {"0", *map(str, graph[0])} <= set(labels) and figure == graph_figure(view, "mu")
    assert sum(map(len, (picture, text, json.dumps(figure)))) < 500_000
    started = time.process_time()
    moved = explore(toggle(LASTFM, labels[-1]))
    assert len(moved.trust.nodes) == 2 and len(drawn(moved)) == 200 and time.process_time() - started < 5


def test_a_small_network_is_drawn_whole():
    view = explore(Settings("ring:n=200", attackers=("0",), T=2))
    assert drawn(view) is view.network and "drawn" not in graph_figure(view, "mu")["layout"]["title"]["text"]


@given(st.integers(201, 300), st.integers(0, 10**6))
@examples(max_examples=5, deadline=None)
def test_drawn_are_attackers_and_those_nearest_to_them(n, seed):
    network = nx.gnp_random_graph(n, 0.01, seed=seed)
    edges = "".join(f"{u},{v}\n" for u, v in network.edges).encode()
    network = load_network(Settings("mine.csv", edges))
    if len(network) <= 200: return
    view = SimpleNamespace(network=network, trust=SimpleNamespace(nodes=(next(iter(network)),)))
    part = drawn(view)
    far = nx.single_source_shortest_path_length(network, view.trust.nodes[0])
    shown = sorted(far.get(node, n) for node in part)
    assert len(part) == 200 and list(part) == [node for node in network if node in part]
    assert shown[:100] == sorted(far.get(node, n) for node in network)[:100] or len(far) < 100
    assert {frozenset(edge) for edge in part.edges} == {frozenset(edge) for edge in network.subgraph(part).edges}


@NEEDS_LASTFM
@pytest.mark.parametrize("changes,said", [
    ({"algorithm": "decor"}, "no table of all pairs"), ({"algorithm": "dsgd"}, "a gradient has no noise"),
    ({"algorithm": "dsgd", "trust": "ldp"}, "a gradient has no noise"), ({"trust": "secldp"}, "76230 numbers"),
    ({"T": 100}, "too large for this page"), ({"attackers": ("7199",), "T": 40}, "attackers, who see"), ({"attackers": ("nobody",)}, "'nobody' is not a node"),
])
def test_what_cannot_be_done_in_large_networks_is_said(changes, said):
    started = time.process_time()
    with pytest.raises(EXPECTED, match=said) as error: explore(replace(LASTFM, **changes))
    assert len(in_a_line(error.value)) < 600 and time.process_time() - started < 5


@NEEDS_LASTFM
def test_a_large_network_on_the_page():
    """Without a browser: the graph is typed, and the first node is curious."""
    page = explorer.page()
    status, graph = parts(page)
    started = time.process_time()
    graph.value = "lastfm-asia"
    assert status.value == "" and time.process_time() - started < 15
    figure = next(one for one in widgets(page) if type(one).__name__ == "FigureWidget")
    assert "200 of 7624" in figure.layout.title.text and sum(len(trace.customdata) for trace in figure.data[1:]) == 200
    graph.value = "florentine"
    assert "drawn" not in figure.layout.title.text


def parts(page):
    """Status and first field of a page that no browser shows."""
    _, fields, status, _ = page.children
    return status, fields.children[0].children[0]


def test_an_error_that_nobody_expected_is_a_line(monkeypatch):
    page = explorer.page()
    status, graph = parts(page)
    monkeypatch.setattr(explorer, "explore", lambda settings: 1 / 0)
    graph.value = "ring:n=4"
    assert status.value == "unexpected ZeroDivisionError: division by zero"
    monkeypatch.undo()
    graph.value = "ring:n=5"
    assert status.value == ""


def test_a_page_opens_a_link(monkeypatch):
    """What the server says of the address is in the fields, in the pictures and in the address that the page asks for."""
    settings = Settings("ring:n=6", None, "muffliato:K=2", "pndp", ("1", "4"), 4, "single", None, 2.0, 1e-5, 1.0, "epsilon")
    monkeypatch.setenv("QUERY_STRING", "token=secret&" + write_query(settings))
    page = explorer.page()
    assert parts(page)[0].value == "" and browser(page).query == write_query(settings) and browser(page).alone
    texts = {one.description: one.value for one in widgets(page) if type(one).__name__ in ("Text", "Dropdown")}
    assert (texts["graph"], texts["steps T"], texts["value"], texts["δ"]) == ("ring:n=6", "4", "2", "1e-05") and texts["shown"] == texts["given"] == "epsilon"
    figure = next(one for one in widgets(page) if type(one).__name__ == "FigureWidget")
    assert sorted(figure.data[1].customdata) == ["1", "4"] and sorted(label for trace in figure._widget_data[1:] for label in trace["customdata"]) == [*"012345"]
    assert explorer.page(Settings("path:n=3", attackers=("0",))).children[1].children[0].children[0].value == "path:n=3"


@pytest.mark.parametrize("query,said,graph", [
    ("graph=ring:n=6&T=ten", "T='ten': expected a number of steps", "florentine"), ("grahp=ring", "link='grahp'", "florentine"),
    ("graph=rinc:n=6", "did you mean ring", "rinc:n=6"), ("graph=<script>.csv", "expected that it is dropped here", "<script>.csv"),
    ("attacker=Sforza", "'Sforza' is not a node", "florentine"), ("graph=%ff%00", "is not known", "\ufffd\x00"),
    ("sigma=1&epsilon=1", "expected one of the two", "florentine")])
def test_a_link_that_is_wrong_is_answered_in_a_line(query, said, graph, monkeypatch):
    monkeypatch.setenv("QUERY_STRING", query)
    page = explorer.page()
    status, field = parts(page)
    assert said in html.unescape(status.value) and "<script>" not in status.value and field.value == graph and browser(page).query == ""
    field.value = "ring:n=5"
    if not query.startswith("sigma"): assert status.value == "" and read_query(browser(page).query).graph == "ring:n=5"


def browser(page): return next(one for one in widgets(page) if type(one).__name__ == "Browser")


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "voila.app", None)
    result = CliRunner().invoke(cli.app, ["explore", "--no-browser"])
    assert result.exit_code == 2 and "pip install 'mfdl[explore]'" in result.stderr and len(result.stderr.splitlines()) == 1


# --- in a browser

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def explorer_at(folder, package=ROOT, code="from mfdl.tools.cli import app; app()"):
    """The address of `mfdl explore`, started as a user would; ended by Ctrl-C, it leaves nothing behind and has said nothing else."""
    port = free_port()
    environment = os.environ | {"PYTHONPATH": os.fspath(package)}
    command = [sys.executable, "-c", code, "explore", "--no-browser", "--port", str(port)]
    server = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = re.fullmatch(rf"the explorer is at (http://127.0.0.1:{port}/\?token=[\w-]{{32}}) \(Ctrl-C ends it\)\n", server.stdout.readline())
        assert said
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0: break
            time.sleep(0.1)
        yield said[1], server.pid
        server.send_signal(signal.SIGINT)
        assert server.communicate(timeout=20)[0] == "" and server.returncode == 0
    finally:
        if server.poll() is None: server.kill()
    assert os.listdir(folder) == []


@pytest.mark.nightly
@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C")
def test_an_installed_package_has_the_page(tmp_path):
    """Laid out as the wheel is: the page is served, from the template that needs no network."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source in wheel["only-include"]: shutil.copytree(ROOT / source, tmp_path / "site" / wheel["sources"].get(source, source))
    (tmp_path / "empty").mkdir()
    with explorer_at(tmp_path / "empty", tmp_path / "site") as (address, _):
        page = urllib.request.urlopen(address, timeout=60).read().decode()
    assert 'document.title = "mfdl explore"' in page and "widget-view" in page and "cdn." not in page


def asked(address, **headers):
    """Status of a GET request, redirections not followed."""
    there = urllib.parse.urlsplit(address)
    connection = http.client.HTTPConnection(there.netloc, timeout=60)
    connection.request("GET", f"{there.path or '/'}?{there.query}", headers=headers)
    return connection.getresponse().status


@pytest.mark.nightly
@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C")
def test_a_page_that_is_closed_ends_its_kernel(tmp_path):
    """By what the browser posts when a page is left: with a token against other sites, which the page has set as a cookie."""
    cookies = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    with explorer_at(tmp_path) as (address, pid):
        page = browser.open(address, timeout=60).read().decode()
        kernel = re.search(r'"kernelId": "([\w-]+)"', page)[1]
        assert len(psutil.Process(pid).children()) == 1
        said = {cookie.name: cookie.value for cookie in cookies}
        there = f"{address.partition('?')[0]}voila/api/shutdown/{kernel}"
        assert browser.open(there, urllib.parse.urlencode({"_xsrf": said["_xsrf"]}).encode(), timeout=60).status == 204
        assert not psutil.Process(pid).children()


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C")
def test_nobody_else_can_open_a_page(tmp_path):
    """Neither without the token, nor by a name that points here (DNS rebinding), nor from another site: and no kernel is started."""
    with contextlib.suppress(AssertionError), explorer_at(tmp_path) as (address, pid):  # what was refused is said on the terminal
        refused = {"token": asked(address.partition("?")[0]), "host": asked(address, Host="rebound.example"), "site": asked(address, **{"Sec-Fetch-Site": "cross-site"})}
        kernels = psutil.Process(pid).children(recursive=True)
    assert refused == {"token": 302, "host": 403, "site": 403} and not kernels


def test_a_link_is_opened_by_the_command(monkeypatch):
    """With the token of this server, and all that the link says but its own token."""
    from voila.app import Voila
    started = []
    monkeypatch.setattr(Voila, "instance", lambda config: SimpleNamespace(initialize=lambda argv: None, start=lambda: started.append(config.Voila.token)))
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # Ctrl-C is for the tests
    monkeypatch.setenv("JUPYTER_PATH", "")
    settings = Settings("ring:n=7", attackers=("1", "4"), participation="cyclic:2,5", sigma=None, epsilon=2.0)
    asked = ["explore", "--no-browser", "--port", str(free_port())]
    result = CliRunner().invoke(cli.app, [*asked, f"http://127.0.0.1:1/?{write_query(settings)}&token=old"])
    address = result.output.split()[4]
    assert result.exit_code == 0 and read_query(address.partition("?")[2]) == settings
    assert urllib.parse.parse_qs(urllib.parse.urlsplit(address).query)["token"] == started
    result = CliRunner().invoke(cli.app, [*asked, "florentine"])
    assert result.exit_code == 2 and "link='florentine': expected the address" in result.stderr and len(started) == 1


class SlowKernels:
    """A manager of processes, of which each takes a while to start, and is not listed before."""
    def __init__(self): self.running = []

    def __len__(self): return len(self.running)

    async def start_kernel(self, fails=False):
        await asyncio.sleep(0.05)
        if fails: raise RuntimeError("no process")
        self.running.append(len(self.running))


class Request:
    """One that a server answers: the guard, something else, and then the process."""
    def __init__(self, manager, **headers):
        self.request, self.kernel_manager, self.xsrf_token, self.ended = SimpleNamespace(headers=headers), manager, b"", False

    def on_finish(self): self.ended = True

    async def answered(self, **how):
        from tornado.web import HTTPError
        try:
            cli.guard(self)
            await asyncio.sleep(0.01)
            if how.get("gone"): return "gone"
            await self.kernel_manager.start_kernel(**how)
            return 200
        except (HTTPError, RuntimeError) as error: return getattr(error, "status_code", str(error))
        finally: self.on_finish()


def test_pages_that_are_asked_for_at_once_are_counted():
    """By places that are kept before anything is awaited, and given back when a process runs or will never run."""
    manager = cli.counting_places(SlowKernels)()

    def answers(*hows):
        async def all_at_once():
            requests = [Request(manager) for _ in hows]
            found = await asyncio.gather(*(one.answered(**how) for one, how in zip(requests, hows, strict=True)))
            assert all(one.ended for one in requests)
            return found
        return asyncio.run(all_at_once())

    most = cli.MOST_PAGES
    assert answers({"fails": True}, {"gone": True}) == ["no process", "gone"] and not manager.under_way
    assert answers(*[{}] * (most + 3)) == [200] * most + [503] * 3 and len(manager) == most and not manager.under_way
    assert answers({}) == [503]
    manager.running.pop()
    assert answers({}, {}) == [200, 503]


def test_a_page_that_runs_counts_once():
    """While its request goes on, too: then there is a process, and no place is kept for it any more."""
    manager = cli.counting_places(SlowKernels)()

    async def one_after_the_other():
        for _ in range(cli.MOST_PAGES):
            cli.guard(Request(manager))
            await manager.start_kernel()
        return [len(manager), len(manager.under_way)]

    assert asyncio.run(one_after_the_other()) == [cli.MOST_PAGES, 0]


@pytest.mark.nightly
@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C")
def test_parallel_requests_start_no_more_processes_than_allowed(tmp_path):
    """Of the server itself, with room for two pages."""
    code = "from mfdl.tools import cli; cli.MOST_PAGES = 2; cli.app()"
    with contextlib.suppress(AssertionError), explorer_at(tmp_path, code=code) as (address, pid):  # what was refused is said on the terminal
        with ThreadPoolExecutor(5) as pool: statuses = sorted(pool.map(asked, [address] * 5))
        processes = len(psutil.Process(pid).children())
    assert statuses == [200, 200, 503, 503, 503] and processes == 2


def test_a_label_with_a_plus_is_a_node():
    graph = ["a", "b", "a+b", "c"]
    assert labelled(("a+b",), graph) == ("a+b",) and labelled(("a", "b"), graph) == ("a", "b")
    assert parse_attackers("x+y,z", ["x+y", "z"]) == [("x+y",), ("z",)] and parse_attackers("a+c", graph) == [("a", "c")]
    with pytest.raises(ValueError, match="is a node, and also a coalition"): parse_attackers("a+b", graph)


def test_an_upload_is_measured_as_received(monkeypatch):
    page = explorer.page()
    drops = [one for one in widgets(page) if type(one).__name__ == "EdgeList"]
    drops[0]._msg_callbacks(drops[0], {"name": "big.csv", "size": 3}, [b"a,b\n" * 2_000_000])
    assert "expected at most 5000000" in str([one.value for one in widgets(page) if hasattr(one, "value")])


def widgets(one):
    """A widget and all below it."""
    return [one, *(below for child in getattr(one, "children", ()) for below in widgets(child))]


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C")
def test_a_port_in_use_is_a_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = CliRunner().invoke(cli.app, ["explore", "--no-browser", "--port", str(taken.getsockname()[1])])
    assert result.exit_code == 2 and "is not free" in result.stderr and len(result.stderr.splitlines()) == 1


class Explorer:
    """The page as a person sees it: fields by their labels, nodes by where they are drawn."""
    USUAL = {"steps T": "10", "participation": "every-step", "algorithm": "dp-dsgd", "value": "1", "δ": "1e-6"}

    def __init__(self, browser, address):
        self.context = browser.new_context(viewport={"width": 1280, "height": 1300}, permissions=["clipboard-read", "clipboard-write"])
        self.page, self.complaints, self.requests = self.context.new_page(), [], []
        self.page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.open(address)

    def open(self, address):
        self.page.goto(address, timeout=120_000)
        self.page.wait_for_selector(".scatterlayer .point", timeout=120_000)

    def eventually(self, check):
        """What `check` returns as soon as it fails no more: the page answers when it can."""
        for patience in range(900):
            try: return check()
            except AssertionError:
                if patience == 899: raise
            self.page.wait_for_timeout(100)

    def field(self, label): return self.page.get_by_label(label, exact=True)

    def put(self, label, text):
        self.field(label).fill(text)
        self.field(label).press("Enter")

    def choose(self, label, value): self.field(label).select_option(label=value)

    def click(self, node):
        place = """node => { for (const point of document.querySelectorAll('.scatterlayer .point')) if (point.__data__.data === node) {
            const box = point.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; } }"""
        self.page.mouse.click(*self.page.evaluate(place, node))

    def begin(self, graph):
        """What the page is when nothing has been chosen but a graph: its first node is curious."""
        self.choose("given", "noise σ")
        self.choose("shown", "μ of Gaussian DP")
        self.choose("who is curious", "nodes, who see what they receive (pndp)")
        for label, value in self.USUAL.items(): self.put(label, value)
        for other in ("florentine", "path:n=2"): self.put("graph", other)  # they share no node, so that nobody of before stays curious
        self.agrees_with(account_of("path:n=2", [0], 10))
        self.put("graph", graph)

    @property
    def status(self): return self.page.inner_text(".mfdl-status")

    @property
    def stale(self): return self.page.locator(".mfdl-stale").count() == 1

    @property
    def marks(self):
        """Nodes by their kind, as they are drawn."""
        return self.page.evaluate("Object.fromEntries(document.querySelector('.js-plotly-plot').data.slice(1).map(trace => [trace.name, trace.customdata || []]))")

    @property
    def numbers(self):
        """mu and epsilon of each node, from the texts that appear over it."""
        texts = self.page.evaluate("document.querySelector('.js-plotly-plot').data.slice(1).flatMap(trace => trace.hovertext || [])")
        rows = [text.split("<br>") for text in texts if not text.endswith("<br>attacker")]
        return {html.unescape(name): (float(mu.removeprefix("μ = ")), float(epsilon.removeprefix("ε = "))) for name, mu, epsilon, *_ in rows}

    def agrees_with(self, report, delta=1e-6):
        """All that is shown, in the graph and in the table, comes to be what the account says."""
        self.eventually(lambda: self.check(report, delta))

    def check(self, report, delta):
        assert self.status == "" and not self.stale
        assert self.numbers == {str(v): pytest.approx((mu, e), rel=1e-5) for v, mu, e in zip(report.victims, report.mu, report.epsilon(delta), strict=True)}
        rows = [[float(cell) for cell in row.split("\t")] for row in self.page.inner_text(".mfdl-table tbody").splitlines()]
        assert {row[0]: (row[1], row[3]) for row in rows} == {d: (len(g), pytest.approx(g.mu.max(), rel=1e-5)) for d, g in report.to_frame().groupby("distance")}
        assert sorted(self.marks["attacker"]) == sorted(map(str, report.attackers[0]))

    def refuses(self, said):
        """The page comes to say why not, in a line; what it showed before is grey."""
        def check(): assert said in self.status and "\n" not in self.status and self.stale
        self.eventually(check)

    def shows(self, kind, count):
        """So many nodes come to be of a kind, and none of another."""
        def check(): assert {name: len(nodes) for name, nodes in self.marks.items() if nodes} == {kind: count} and self.status == "" and not self.stale
        self.eventually(check)

    def close(self):
        """End, after a look at whether anything went wrong unseen, or went elsewhere."""
        assert not self.complaints and not self.page.get_by_text("Traceback").count()
        elsewhere = [url for url in self.requests if not url.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:", "data:"))]
        assert len(self.requests) > 10 and not elsewhere
        self.context.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with explorer_at(tmp_path_factory.mktemp("empty")) as (address, pid): yield address, pid


@pytest.fixture(scope="module")
def shown(chromium, served):
    explorer = Explorer(chromium, served[0])
    explorer.agrees_with(account_of("florentine", ["Medici"], 10))
    yield explorer
    explorer.close()


@pytest.mark.browser
def test_by_clicking(shown):
    shown.begin("florentine")
    shown.agrees_with(account_of("florentine", ["Acciaiuoli"], 10))
    shown.click("Pazzi")
    shown.agrees_with(account_of("florentine", ["Acciaiuoli", "Pazzi"], 10))
    shown.click("Acciaiuoli")
    shown.agrees_with(account_of("florentine", ["Pazzi"], 10))
    shown.page.get_by_role("button", name="copy", exact=True).first.click()
    assert shown.page.evaluate("navigator.clipboard.readText()") == command_line(Settings(attackers=("Pazzi",)))


@pytest.mark.nightly
@pytest.mark.browser
def test_by_choosing(shown):
    shown.begin("ring:n=7")
    shown.put("steps T", "6")
    shown.put("participation", "cyclic:2,3")
    report = account_of("ring:n=7", [0], 6, Participation.cyclic(2, 3))
    shown.agrees_with(report)
    shown.choose("given", "budget ε")
    shown.put("value", "2.5")
    shown.agrees_with(report.calibrate(2.5, 1e-6))
    assert f"σ = {report.calibrate(2.5, 1e-6).sigma:.6g}" in shown.page.inner_text(".mfdl-answer")
    shown.choose("who is curious", "an eavesdropper on every message (ldp)")
    shown.shows("victim", 7)
    shown.put("algorithm", "dsgd")
    shown.refuses("no finite noise")
    shown.choose("given", "noise σ")
    shown.shows("leak: no noise covers it", 7)
    shown.page.locator(".mfdl-examples select").first.select_option("star:n=10")
    shown.shows("leak: no noise covers it", 10)
    assert shown.field("graph").input_value() == "star:n=10"


@pytest.mark.nightly
@pytest.mark.browser
def test_an_edge_list_is_dropped(shown, tmp_path):
    (tmp_path / "friends.csv").write_bytes(EDGES)
    shown.begin("florentine")
    choose, report = shown.page.locator("input[type=file]"), account_of(read_graph(tmp_path / "friends.csv"), ["anna"], 10)
    choose.set_input_files(tmp_path / "friends.csv")
    shown.agrees_with(report)
    assert shown.field("graph").input_value() == "friends.csv"
    shown.click("O'Hara & <b>")
    shown.agrees_with(account_of(read_graph(tmp_path / "friends.csv"), ["anna", "O'Hara & <b>"], 10))
    refused = {"list.csv": (b"a,b\nc\n", "line 2"), "no.csv": (b"\x00\xff\xfe", "file='no.csv'"), "g.graphml": (b"<xml/>", "edge list"),
               "big.csv": (b"1,2\n" * 2_000_000, "8000000 bytes")}
    for name, (content, said) in refused.items():
        choose.set_input_files({"name": name, "mimeType": "text/csv", "buffer": content})
        shown.refuses(said)
    held = shown.page.evaluate_handle("() => { const held = new DataTransfer(); held.items.add(new File(['1,2\\n2,3\\n'], 'three.csv')); return held; }")
    shown.page.dispatch_event(".mfdl-drop", "drop", {"dataTransfer": held})
    shown.agrees_with(account_of(nx.path_graph([1, 2, 3]), [1], 10))
    assert shown.page.inner_text("pre >> nth=0").startswith("mfdl account three.csv ")


@pytest.mark.nightly
@pytest.mark.browser
def test_nonsense_is_answered_in_a_line_and_the_view_is_grey_until_it_is_right(shown):
    shown.begin("florentine")
    report = account_of("florentine", ["Acciaiuoli"], 10)
    shown.agrees_with(report)
    for label, wrong, said, right in (
            ("graph", "florentin", "did you mean florentine", "florentine"), ("steps T", "ten", "T='ten'", "10"), ("steps T", "9999", "too large", "10"),
            ("participation", "cyclic:3,5", "more than T=10", "every-step"), ("algorithm", "muffliato:rounds=2", "not a parameter", "dp-dsgd"),
            ("value", "much", "sigma='much': expected a number", "1"), ("δ", "3", "delta=3.0", "1e-6")):
        shown.put(label, wrong)
        shown.refuses(said)
        shown.put(label, right)
        shown.agrees_with(report)
    shown.click("Acciaiuoli")
    shown.refuses("at least one node")
    shown.click("Pazzi")
    shown.agrees_with(account_of("florentine", ["Pazzi"], 10))


@pytest.mark.nightly
@pytest.mark.browser
def test_two_numbers_and_which_is_a_promise(shown):
    shown.begin("path:n=5")
    estimate = account_of("path:n=5", [0], 10)
    shown.agrees_with(estimate)
    assert "no promise" in shown.page.inner_text(".mfdl-caution") and "Proved for training: μ at most" in shown.page.inner_text(".mfdl-answer")
    shown.put("Lipschitz constant c of updates", "1.5")
    graph = load_graph("path:n=5")
    promise = account(dp_dsgd(gossip_matrix(graph), 10, nodes=graph), PNDP([0]), Participation.every_step(10), updates=Lipschitz(1.5))
    shown.agrees_with(promise)
    assert "a promise for training" in shown.page.inner_text(".mfdl-answer")
    others = [float(row.split("\t")[-1]) for row in shown.page.inner_text(".mfdl-table tbody").splitlines()]
    assert others == pytest.approx(estimate.to_frame().groupby("distance").mu.max().tolist(), rel=1e-5)
    shown.put("Lipschitz constant c of updates", "much")
    shown.refuses("lipschitz='much': expected a number")
    shown.put("Lipschitz constant c of updates", "")
    shown.agrees_with(estimate)
    shown.choose("who is curious", "nodes, who see every message (secldp)")
    def gone(): assert not shown.field("Lipschitz constant c of updates").is_visible() and not shown.stale
    shown.eventually(gone)
    shown.choose("who is curious", "nodes, who see what they receive (pndp)")
    shown.eventually(lambda: shown.agrees_with(estimate))
    assert shown.field("Lipschitz constant c of updates").is_visible()


def kept(explorer, button):
    """The file that a button keeps."""
    with explorer.page.expect_download() as download: explorer.page.get_by_role("button", name=button).click()
    return download.value.suggested_filename, open(download.value.path(), "rb").read()


@pytest.mark.nightly
@pytest.mark.browser
def test_what_is_kept_is_what_is_shown(shown):
    """The table is the report's; the picture is a picture of many colours; the link is the address."""
    shown.begin("karate")
    report = account_of("karate", [0], 10)
    shown.agrees_with(report)
    name, table = kept(shown, "table (CSV)")
    read = pd.read_csv(io.BytesIO(table))
    assert name == "mfdl.csv"
    expected = report.to_frame()
    pd.testing.assert_frame_equal(read[list(expected)], expected, check_dtype=False)
    from matplotlib.image import imread
    name, picture = kept(shown, "picture (PNG)")
    pixels = imread(io.BytesIO(picture), format="png")
    assert name == "mfdl.png" and min(pixels.shape[:2]) >= 800 and len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 50
    shown.page.get_by_role("button", name="copy link").click()
    link = shown.page.evaluate("navigator.clipboard.readText()")
    assert link == shown.page.url and "token" not in link and read_query(link.partition("?")[2]) == Settings("karate", attackers=("0",))


@pytest.mark.nightly
@pytest.mark.browser
def test_a_link_brings_everything_back(shown, chromium):
    """In the same browser, which was let in before; a wrong one is answered in a line; and a dropped file is asked for."""
    settings = Settings("ring:n=7", None, "dp-dsgd", "pndp", ("1", "4"), 6, "cyclic:2,3", 1.3, None, 1e-5, None, "epsilon")
    address = shown.page.url.partition("?")[0]
    shown.open(f"{address}?{write_query(settings)}")
    report = account(dp_dsgd(gossip_matrix(load_graph("ring:n=7")), 6), PNDP([1, 4]), Participation.cyclic(2, 3), 1.3)
    shown.agrees_with(report, 1e-5)
    assert shown.field("steps T").input_value() == "6" and "ε, what is learned" in shown.page.inner_text(".js-plotly-plot")
    shown.click("4")
    def moved(): assert read_query(shown.page.url.partition("?")[2]) == replace(settings, attackers=("1",))
    shown.eventually(moved)
    shown.page.reload()
    shown.page.wait_for_selector(".scatterlayer .point", timeout=120_000)
    shown.agrees_with(account(dp_dsgd(gossip_matrix(load_graph("ring:n=7")), 6), PNDP([1]), Participation.cyclic(2, 3), 1.3), 1e-5)
    for wrong, said in (("T=ten", "T='ten': expected a number of steps"), ("graph=<b>.csv&attacker=anna", "expected that it is dropped here")):
        shown.open(f"{address}?{wrong}")
        shown.refuses(said)
    choose = shown.page.locator("input[type=file]")
    choose.set_input_files({"name": "<b>.csv", "mimeType": "text/csv", "buffer": EDGES})
    def restored(): assert shown.status == "" and shown.marks["attacker"] == ["anna"] and not shown.stale
    shown.eventually(restored)
    shown.open(address)


@pytest.mark.nightly
@pytest.mark.browser
def test_the_graph_is_zoomed(shown):
    """With the wheel and with buttons; a click leaves it zoomed, another graph does not."""
    shown.begin("florentine")
    shown.agrees_with(account_of("florentine", ["Acciaiuoli"], 10))
    def width():
        low, high = shown.page.evaluate("document.querySelector('.js-plotly-plot')._fullLayout.xaxis.range")
        return high - low
    whole = width()
    box = shown.page.locator(".js-plotly-plot .nsewdrag").bounding_box()
    shown.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    shown.page.mouse.wheel(0, -300)
    def closer(): assert width() < 0.95 * whole
    shown.eventually(closer)
    shown.page.wait_for_timeout(500)
    near = width()
    shown.page.locator('.modebar-btn[data-title="Zoom in"]').click()
    def nearer(): assert width() < 0.95 * near
    shown.eventually(nearer)
    near = width()
    shown.click("Medici")
    shown.agrees_with(account_of("florentine", ["Acciaiuoli", "Medici"], 10))
    assert width() == pytest.approx(near, rel=1e-6)
    shown.put("graph", "karate")
    shown.agrees_with(account_of("karate", [0], 10))
    inside = """() => { const area = document.querySelector('.nsewdrag').getBoundingClientRect(); return [...document.querySelectorAll('.scatterlayer .point')].every(point => {
        const box = point.getBoundingClientRect(); return box.x > area.x - 20 && box.right < area.right + 20 && box.y > area.y - 20 && box.bottom < area.bottom + 20; }); }"""
    def all_inside(): assert shown.page.evaluate(inside)
    shown.eventually(all_inside)


@pytest.mark.nightly
@pytest.mark.browser
def test_dark_is_dark(shown):
    """As soon as the browser is, page and pictures; and light again."""
    shown.begin("florentine")
    shown.agrees_with(account_of("florentine", ["Acciaiuoli"], 10))
    colours = """() => [getComputedStyle(document.body).backgroundColor, document.querySelector('.js-plotly-plot')._fullLayout.paper_bgcolor,
        getComputedStyle(document.querySelector('.mfdl-table td')).color, document.querySelector('.mfdl-pictures img').src.length]"""
    light = shown.page.evaluate(colours)
    assert light[:2] == ["rgb(255, 255, 255)", LIGHT.paper]
    shown.page.emulate_media(color_scheme="dark")
    def dark():
        body, paper, ink, _ = shown.page.evaluate(colours)
        assert (body, paper) == ("rgb(27, 27, 27)", DARK.paper) and min(map(int, re.findall(r"\d+", ink)[:3])) > 180
        picture = shown.page.evaluate("atob(document.querySelector('.mfdl-pictures img').src.split(',')[1])")
        assert DARK.paper in picture and LIGHT.paper not in picture
    shown.eventually(dark)
    shown.page.emulate_media(color_scheme="light")
    def back(): assert shown.page.evaluate(colours) == light
    shown.eventually(back)


@pytest.mark.nightly
@pytest.mark.browser
def test_a_narrow_window_shows_everything(shown):
    shown.begin("florentine")
    shown.agrees_with(account_of("florentine", ["Acciaiuoli"], 10))
    shown.page.set_viewport_size({"width": 400, "height": 1300})
    outside = "[...document.querySelectorAll('.mfdl *')].filter(part => part.getBoundingClientRect().right > 401).length"
    def check(): assert shown.page.evaluate(outside) == 0
    shown.eventually(check)
    shown.page.set_viewport_size({"width": 1280, "height": 1300})


@NEEDS_LASTFM
@pytest.mark.nightly
@pytest.mark.browser
def test_a_large_network_in_the_browser(shown):
    """An answer within seconds, and a page that still can be clicked."""
    shown.begin("florentine")
    started = time.monotonic()
    shown.put("graph", "lastfm-asia")
    def check(): assert shown.status == "" and not shown.stale and sum(map(len, shown.marks.values())) == 200
    shown.eventually(check)
    assert time.monotonic() - started < 20 and "(200 of 7624 nodes drawn)" in shown.page.text_content(".gtitle")
    victim = shown.marks["victim"][-1]
    shown.click(victim)
    def clicked(): assert sorted(shown.marks["attacker"]) == sorted(["0", victim]) and not shown.stale
    shown.eventually(clicked)
    shown.put("algorithm", "decor")
    shown.refuses("no table of all pairs of nodes")
    shown.put("algorithm", "dp-dsgd")
    shown.eventually(clicked)


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.parametrize("seconds", [0.5, 3])
def test_a_page_that_is_being_made_does_not_complain_at_the_end(chromium, tmp_path, seconds):
    with explorer_at(tmp_path) as (address, _), chromium.new_context() as context:
        context.new_page().goto(address, wait_until="commit")
        time.sleep(seconds)


@pytest.mark.nightly
@pytest.mark.browser
def test_a_reload_leaves_no_kernel_behind(chromium, tmp_path):
    with explorer_at(tmp_path) as (address, pid):
        def kernels(): return len([one for one in psutil.Process(pid).children() if one.status() != psutil.STATUS_ZOMBIE])
        one = Explorer(chromium, address)
        for _ in range(2):
            one.page.reload()
            one.page.wait_for_selector(".scatterlayer .point", timeout=120_000)
        def settled(): assert kernels() == 1
        one.eventually(settled)
        other = one.context.new_page()
        one.page.close(run_before_unload=True)
        one.page = other
        def ended(): assert kernels() == 0
        one.eventually(ended)
        assert not one.complaints
        one.context.close()


@pytest.mark.nightly
@pytest.mark.browser
def test_labels_are_seen_as_they_are(shown, tmp_path):
    (tmp_path / "labels.csv").write_text("$x^2$;a & <b>\na & <b>;it's\n")
    shown.begin("florentine")
    shown.page.locator("input[type=file]").set_input_files(tmp_path / "labels.csv")
    def check(): assert sorted(shown.page.locator(".textpoint").all_text_contents()) == ["$x^2$", "a & <b>", "it's"]
    shown.eventually(check)
    shown.put("graph", "$x^2$ and $y$")
    shown.refuses("graph='$x^2$ and $y$' is not known")


@pytest.mark.nightly
@pytest.mark.browser
def test_only_this_machine_is_served_and_no_code_is_run(shown, served, tmp_path):
    _, pid = served
    listening = {connection.laddr.ip for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
                 for connection in process.net_connections(kind="inet") if connection.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}
    answers = shown.page.evaluate("""async code => {
        const kernel = JSON.parse(document.getElementById('jupyter-config-data').textContent).kernelId, heard = [];
        const socket = new WebSocket(`ws://${location.host}/api/kernels/${kernel}/channels`);
        await new Promise(resolve => socket.onopen = resolve);
        socket.onmessage = event => { if (typeof event.data === 'string') heard.push(JSON.parse(event.data).msg_type); };
        const send = (type, content) => socket.send(JSON.stringify({header: {msg_id: type, msg_type: type, username: '', session: 'x', date: '', version: '5.3'},
            parent_header: {}, metadata: {}, content, channel: 'shell', buffers: []}));
        send('execute_request', {code, silent: false, store_history: false, user_expressions: {}, allow_stdin: false});
        send('comm_info_request', {});
        await new Promise(resolve => setTimeout(resolve, 2000));
        return heard; }""", f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert "comm_info_reply" in answers and "execute_reply" not in answers and not (tmp_path / "ran").exists()


def test_the_browser_is_started_without_the_token(monkeypatch):
    """By a file that only this user may read, which leads to the page and is gone afterwards."""
    opened = {}

    def read(uri):
        page = Path(urllib.parse.unquote(urllib.parse.urlsplit(uri).path))
        opened.update(uri=uri, page=page, text=page.read_text(), mode=page.parent.stat().st_mode & 0o777)

    monkeypatch.setattr("webbrowser.open", read)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        cli._open_when_ready(f"http://127.0.0.1:{port}/?token=secret&graph=ring", port, reading=0)
    assert "secret" not in opened["uri"] and f"url=http://127.0.0.1:{port}/?token=secret&amp;graph=ring" in opened["text"]
    assert opened["mode"] == 0o700 and not opened["page"].exists()
