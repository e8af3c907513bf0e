"""What is not a gossip matrix, a graph, a scheme or a probability is refused with the argument's name, its value and what was expected."""
import gzip
import hashlib
import os
import subprocess
import sys
import tarfile

import networkx as nx
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mfdl.accounting.gaussian_dp import GaussianDP, calibrate_sigma
from mfdl.protocol.algorithms import dp_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods import graphs
from mfdl.protocol.methods.checked_gossip import check_gossip
from mfdl.protocol.methods.graphs import load_graph
from mfdl.protocol.participation import Participation
from mfdl.protocol.workload import workload
from mfdl.tools.cli import app

RING = nx.cycle_graph(5)


@given(st.integers(0, 4), st.integers(0, 4), st.floats(1e-6, 1))
def test_rows_that_do_not_sum_to_one(u, v, excess):
    W = gossip_matrix(RING)
    W[u, v] += excess
    for refuse in (check_gossip, lambda W: workload(W, 2), lambda W: dp_dsgd(W, 2)):
        with pytest.raises(ValueError, match=f"W is not stochastic: row {u} sums to"): refuse(W)


@given(st.integers(0, 4), st.floats(1e-6, 0.3))
def test_weight_off_the_graph(u, weight):
    W = gossip_matrix(RING)
    W[u, u] -= weight
    W[u, (u + 2) % 5] += weight
    with pytest.raises(ValueError, match=rf"W\[{u}, {(u + 2) % 5}\] .* off the graph"): check_gossip(W, RING)


@given(st.one_of(st.integers(max_value=0), st.floats(), st.none(), st.text(max_size=3)))
def test_steps(T):
    with pytest.raises(ValueError, match="is a number of steps: expected an integer >= 1"): dp_dsgd(gossip_matrix(RING), T)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))
def test_participation_beyond_the_run(k, b, T):
    if (k - 1) * b < T: assert Participation.min_sep(k, b, T).count >= 1
    else:
        with pytest.raises(ValueError, match=r"is more than T="): Participation.min_sep(k, b, T)


@given(st.one_of(st.floats(max_value=0), st.floats(min_value=1), st.just(float("nan"))))
def test_delta(delta):
    for refuse in (GaussianDP(1).epsilon, lambda d: GaussianDP.from_epsilon(1, d)):
        with pytest.raises(ValueError, match=r"expected a probability in \(0, 1\)"): refuse(delta)


@given(st.floats(1e-3, 50), st.floats(1e-12, 0.4))
def test_epsilon_and_back(mu, delta):
    epsilon = GaussianDP(mu).epsilon(delta)
    if epsilon > 0:
        assert GaussianDP(mu).delta(epsilon) == pytest.approx(delta, rel=1e-8)
        assert GaussianDP.from_epsilon(epsilon, delta).mu == pytest.approx(mu, rel=1e-8)
    else: assert GaussianDP(mu).delta(0.0) <= delta


def test_number_types_cost_no_digits():
    for mu in (np.float32(1), np.float16(1), np.int8(1)): assert GaussianDP(mu).epsilon(1e-6) == GaussianDP(1.0).epsilon(1e-6)
    assert GaussianDP(np.int8(100)).rdp(2) == 10000 and GaussianDP(1e-4).delta(600.0) == 0.0


def test_names_with_blanks_are_one_node(tmp_path):
    (tmp_path / "towns.csv").write_text("New York,Boston\nBoston,Salem Town\n")
    assert list(load_graph(tmp_path / "towns.csv")) == ["New York", "Boston", "Salem Town"]


@given(st.floats(0.01, 40), st.floats(1e-12, 0.1))
def test_calibrated_noise_keeps_the_promise(epsilon, delta):
    assert GaussianDP(3 / calibrate_sigma(3.0, epsilon, delta)).epsilon(delta) <= epsilon


def test_disconnected_graph_warns_with_its_components():
    with pytest.warns(UserWarning, match=r"2 components.*\{0, 1\} \(2\); \{2, 3\} \(2\)"): gossip_matrix(nx.Graph([(0, 1), (2, 3)]))


@pytest.mark.parametrize(("name", "near"), [("florentin", "florentine"), ("erdos-reny:n=5", "erdos-renyi"), ("facebook-415", "facebook-414")])
def test_unknown_graph_names_the_nearest(name, near):
    with pytest.raises(ValueError, match=f"did you mean.*{near}"): load_graph(name)


@pytest.mark.parametrize(("name", "content", "message"), [
    ("missing.csv", None, "no such file"), ("empty.txt", "", "is empty"), ("blank.txt", "\n# nothing\n", "no edge"), ("loop.txt", "a a\n", "no edge"),
    ("one.txt", "a b\nc\n", "line 2: expected two node names"), ("broken.graphml", "<graphml><graph>", "malformed"), ("broken.gml", "graph [ node [", "malformed"),
    ("cut.txt.gz", "a b\n", "not a complete gzip file"),
])
def test_bad_graph_files(tmp_path, name, content, message):
    if content is not None: (tmp_path / name).write_text(content)
    error = FileNotFoundError if content is None else ValueError
    with pytest.raises(error, match=message) as caught: load_graph(tmp_path / name)
    assert name in str(caught.value)
    result = CliRunner().invoke(app, ["account", str(tmp_path / name)])
    assert result.exit_code == 2 and message in result.output and len(result.output.splitlines()) == 1


def test_what_is_read_is_not_written(tmp_path):
    edges = tmp_path / "edges.csv"
    edges.write_text("a,b\nb,c\n")
    for asked in (["account", str(edges)], ["optimize", str(edges)]):
        result = CliRunner().invoke(app, [*asked, "-T", "2", "-o", str(tmp_path / "." / "edges.csv")])
        assert result.exit_code == 2 and "is read here, and would be lost" in result.output and edges.read_text() == "a,b\nb,c\n"


def test_an_output_that_cannot_be_written_is_refused_before_the_account(tmp_path, monkeypatch):
    monkeypatch.setattr("mfdl.tools.cli.read_network", lambda *_: pytest.fail("the graph was loaded first"))
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["account", "florentine", "-o", str(tmp_path / "file" / "report.csv")])
    assert result.exit_code == 2 and "cannot be written; expected a name in a folder of yours" in result.output


def test_a_parameter_that_is_given_twice_is_refused():
    result = CliRunner().invoke(app, ["reproduce", "pndp", "-p", "T", "5", "-p", "T", "50"])
    assert result.exit_code == 2 and "one is there twice" in result.output


def test_a_strategy_without_a_bound_says_so(tmp_path):
    result = CliRunner().invoke(app, ["optimize", "florentine", "--strategy", "bsr", "-T", "3", "-o", str(tmp_path / "bsr")])
    assert result.exit_code == 0 and "no bound" in result.output and "nan" not in result.output


@pytest.mark.parametrize("argument", ["offline", "trains"])
def test_a_mask_is_no_list_of_nodes(argument):
    mask = np.eye(3, 4, dtype=bool)
    for sets in (mask, mask.tolist()):
        with pytest.raises(ValueError, match=f"{argument}: a mask"): dp_dsgd(gossip_matrix(nx.path_graph(4)), 3, **{argument: sets})


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda e: e[0] != e[1]), min_size=1, max_size=20))
def test_graph_files_round_trip(tmp_path_factory, edges):
    graph, folder = nx.Graph(edges), tmp_path_factory.mktemp("graphs")
    nx.write_edgelist(graph, folder / "g.edges", data=False)
    nx.write_graphml(graph, folder / "g.graphml")
    (folder / "g.csv.gz").write_bytes(gzip.compress("\n".join(f"{u},{v}" for u, v in graph.edges).encode()))
    for name in ("g.edges", "g.csv.gz", "g.graphml"):
        try: again = load_graph(folder / name)
        except ValueError as error:
            assert 'expected load_graph(.., columns="i j")' in str(error) and name != "g.graphml"
            again = load_graph(folder / name, columns="i j")
        assert nx.utils.edges_equal(nx.relabel_nodes(again, int).edges, graph.edges)


def test_facebook_graph(facebook_file):
    graph = load_graph("facebook-414", path=facebook_file)
    assert list(graph) == list(range(148)) and graph.number_of_edges() == 1692 and nx.diameter(graph) == 7


def test_data_resolution(tmp_path, monkeypatch):
    """Explicit path, then MFDL_DATA, then the user's cache, then the archive of the canonical source (here: a local copy of its layout)."""
    content = b"1 2\n2 1\n2 3\n3 2\n8 9\n9 8\n"
    monkeypatch.setitem(graphs.FACEBOOK_SHA256, 414, hashlib.sha256(content).hexdigest())
    data, cache = tmp_path / "data", tmp_path / "cache"
    monkeypatch.setenv("MFDL_DATA", str(data))
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: cache)
    archive = tmp_path / "facebook.tar.gz"
    (tmp_path / "414.edges").write_bytes(content)
    with tarfile.open(archive, "w:gz") as tar: tar.add(tmp_path / "414.edges", "facebook/414.edges")
    fetched = []
    monkeypatch.setattr("pooch.retrieve", lambda url, **_: fetched.append(url) or str(archive))

    assert sorted(load_graph("facebook-414").edges) == [(0, 1), (1, 2)] and fetched == [graphs.FACEBOOK_URL]
    assert (cache / "facebook_ego" / "414.edges").read_bytes() == content and not list(cache.rglob("*.part"))
    load_graph("facebook-414")
    assert len(fetched) == 1, "the second time it comes from the cache"
    (data / "facebook_ego").mkdir(parents=True)
    (data / "facebook_ego" / "414.edges.gz").write_bytes(gzip.compress(b"damaged"))
    with pytest.raises(ValueError, match="damaged or changed"): load_graph("facebook-414")
    assert len(load_graph("facebook-414", path=tmp_path / "414.edges")) == 3


def test_download_that_fails_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("MFDL_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: tmp_path)
    def offline(*_, **__): raise ConnectionError("no route")
    monkeypatch.setattr("pooch.retrieve", offline)
    with pytest.raises(FileNotFoundError, match="could not be downloaded.*set MFDL_DATA"): load_graph("facebook-414")
    assert not list(tmp_path.rglob("*.edges"))


def test_a_network_of_servers_needs_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "fedivertex", None)
    with pytest.raises(ImportError, match=r"graph='peertube' needs fedivertex: pip install 'mfdl\[fediverse\]'"): load_graph("peertube")


@given(st.integers(2, 8), st.integers(1, 4))
def test_workload_is_the_simulation(n, T):
    rng = np.random.default_rng([n, T])
    Ws = rng.random((T, n, n))
    Ws /= Ws.sum(axis=2, keepdims=True)
    G = rng.normal(size=(T, n, 3))
    theta, sent = np.zeros((n, 3)), []
    for W, g in zip(Ws, G, strict=True):
        sent.append(theta + g)
        theta = W @ sent[-1]
    np.testing.assert_allclose(workload(Ws, T) @ G.reshape(-1, 3), np.vstack(sent), atol=1e-12)


def test_a_command_whose_reader_is_gone_ends_without_a_word():
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as closed:
        done = subprocess.run([sys.executable, "-c", "from mfdl.tools.cli import app; app()", "graphs"], stdout=closed, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "")
