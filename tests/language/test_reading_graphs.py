"""A file of links becomes the network that it holds, whatever its format; what is unclear, or says more than a network can, is refused or named."""
import gzip
import io
import json
import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mfdl import account, dp_dsgd
from mfdl.ground.links import FORMATS, read_frame, simple_graph
from mfdl.language.attackers import PNDP
from mfdl.language.gossip import check_gossip, churn, gossip_matrix
from mfdl.language.graphs import GRAPHS, load_graph
from mfdl.language.participation import Participation
from mfdl.workshop.cli import app

WORDS = st.text("abcdefgxyz äß'.-", min_size=2, max_size=6).map(str.strip).filter(lambda word: len(word) > 1 and not word.startswith("#"))
LINKS = st.lists(st.tuples(WORDS, WORDS).filter(lambda link: link[0] != link[1]), min_size=1, max_size=8)
QUIET = "ignore:path=.*weights are kept"
NUMBERS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda link: link[0] != link[1]), min_size=1, max_size=12)


def read(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_graph(path)


@pytest.fixture
def silent(recwarn):
    yield
    assert not [str(one.message) for one in recwarn], "a warning without need"


def same(one, other):
    return set(one) == set(other) and {frozenset(link) for link in one.edges} == {frozenset(link) for link in other.edges}


# Headers

HEADERS = ["source,target", "From,To", "SRC,DST", "sender,receiver", "u,v", "node1,node2", "Node_1,node_2", "head,tail", "ego,alter", "target_id,Source ID", '"source","target"']


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.usefixtures("silent")
def test_a_header_is_nobody(tmp_path, header, mark):
    lines = [header.replace(",", mark), f"anna{mark}ben", f"ben{mark}carl"]
    for end, begin in (("\n", ""), ("\r\n", "\ufeff"), ("\r", "# a comment\r")):
        graph = read(tmp_path, "x.csv", begin + end.join(lines) + end)
        assert {frozenset(link) for link in graph.edges} == {frozenset(("anna", "ben")), frozenset(("ben", "carl"))} and set(graph) == {"anna", "ben", "carl"}
        assert graph.graph["columns"] == [name.strip('"') for name in (header.split(",") if "target_id" not in header else ["Source ID", "target_id"])]


@pytest.mark.parametrize(("content", "columns"), [
    ("id,source,target\n0,a,b\n1,b,c\n", ["source", "target"]), (",source,target\n0,a,b\n1,b,c\n", ["source", "target"]),
    ("\tsource\ttarget\n0\ta\tb\n1\tb\tc\n", ["source", "target"]), ("to;day;from\na;7;b\nc;7;b\n", ["from", "to"]),
])
def test_other_columns_are_left_out_and_named(tmp_path, content, columns):
    with pytest.warns(UserWarning, match="are taken, .* left out"): graph = read(tmp_path, "x.csv", content)
    assert {frozenset(link) for link in graph.edges} == {frozenset("ab"), frozenset("bc")} and graph.graph["columns"] == columns and set(graph) == set("abc")


@pytest.mark.usefixtures("silent")
def test_words_above_numbers_are_a_header(tmp_path):
    assert list(read(tmp_path, "x.csv", "person,friend\n1,2\n2,3\n").edges) == [(1, 2), (2, 3)]
    assert list(read(tmp_path, "x.csv", "anna,ben\nben,carl\n").edges) == [("anna", "ben"), ("ben", "carl")]
    assert list(read(tmp_path, "x.csv", "a,1\n2,3\n").edges) == [("a", "1"), ("2", "3")]


@pytest.mark.parametrize(("content", "message"), [
    ("source,target\na,source\n", "may be a header or a link"), ("u v\nv w\n", "may be a header or a link"), ("source,colour\na,b\n", "may be a header or a link"),
    ("id,guest,host\n1,a,b\n2,b,c\n", "no header says which"), ("x,y,z\n1,2,3\n2,3,4\n", "unclear which of 'x', 'y', 'z'"),
    ("from,to,source,target\na,b,c,d\n", "4 columns"), ("a b c d\nb c d e\n", "4 columns"), ("source,target\n", "no edge"),
    ("source,target,w\na,b,2\nb,c,\n", "line 3: weight '': expected a number"),
    ('a,"b\nb,c\n', "quotation mark|malformed"), ("a,b\nc\n", "line 2: expected two node names"), ("a,b\n\n#\nc,\n", "line 4: expected two node names"), ("a,b 2\0\n", "not bytes"),
    ("a b {'weight': 2\n", "columns"), ("a b {'weight'}\nb c {}\n", "malformed"), ("a b 1\nb c x\n", "3 columns"), (",".join("ab" * 300), "600 columns"),
    ("a b nan\n", "3 columns"),
    ("a b {'weight': 'x'}\n", "columns"), ("\xff\xfe".encode("latin1"), "malformed"),
])
def test_what_is_unclear_is_refused_with_its_path(tmp_path, content, message):
    with pytest.raises(ValueError, match=message) as caught: read(tmp_path, "x.csv", content)
    assert str(caught.value).startswith(f"path={str(tmp_path / 'x.csv')!r}")


@given(LINKS, st.sampled_from([",", ", ", ";", "\t", " "]), st.booleans(), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_tables_of_names_round_trip(tmp_path_factory, links, mark, quoted, end, header):
    folder, graph = tmp_path_factory.mktemp("g"), nx.Graph(links)
    say = '"{}"'.format if quoted or " " in mark.strip(",") or any(" " in name for name in graph) else str
    lines = [mark.join(map(say, link)) for link in ([("source", "target")] if header else []) + links]
    content = end.join(["# a comment, with; marks\t", "", *lines]).encode()
    for name, written in (("g.csv", content), ("g.edges.gz", gzip.compress(content)), ("g", b"\xef\xbb\xbf" + content)):
        again = read(folder, name, written)
        assert list(again) == list(graph) and same(again, graph)


def test_marks_within_quotes_are_part_of_a_name(tmp_path):
    assert list(read(tmp_path, "x.csv", '"Doe, John";"Smith; Jane"\n"Smith; Jane";#1\n')) == ["Doe, John", "Smith; Jane", "#1"]
    assert list(read(tmp_path, "x.txt", '"New York" Boston\n')) == ["New York", "Boston"]


# Other formats

def weighted(links, seed=0):
    graph, rng = nx.Graph(), np.random.default_rng(seed)
    graph.add_nodes_from(range(12))
    graph.add_edges_from(links)
    for u, v in graph.edges: graph[u][v]["weight"] = float(rng.integers(2, 99)) / 8
    return graph


def written(graph, suffix):
    """The content of a file with this graph, by the library whose format it is."""
    whole, A = io.BytesIO(), nx.to_scipy_sparse_array(graph, format="csr")
    if suffix == ".json": return json.dumps(nx.node_link_data(graph)).encode()
    if suffix == ".npy": np.save(whole, A.toarray())
    elif suffix == ".npz": scipy.sparse.save_npz(whole, A)
    elif suffix == ".mtx": scipy.io.mmwrite(whole, A)
    else: {".graphml": nx.write_graphml, ".gml": nx.write_gml, ".gexf": nx.write_gexf, ".net": nx.write_pajek, ".paj": nx.write_pajek}[suffix](graph, whole)
    return whole.getvalue()


@pytest.mark.parametrize("suffix", FORMATS)
@given(NUMBERS)
def test_every_format_round_trips(tmp_path_factory, suffix, links):
    """Nodes without links, links and weights; weights that are all 1 are none."""
    folder, graph = tmp_path_factory.mktemp("g"), weighted(links)
    plain = nx.empty_graph(12)
    plain.add_edges_from(graph.edges)
    with pytest.warns(UserWarning, match="weights are kept, and not used unless asked for"): again = read(folder, f"g{suffix}", written(graph, suffix))
    again = nx.relabel_nodes(again, int)
    assert same(again, graph) and all(again[u][v]["weight"] == weight for u, v, weight in graph.edges(data="weight"))
    with warnings.catch_warnings(action="error", category=UserWarning): again = read(folder, f"p{suffix}", written(plain, suffix))
    assert same(nx.relabel_nodes(again, int), graph) and not any("weight" in said for *_, said in again.edges(data=True))
    packed = nx.relabel_nodes(read(folder, f"p{suffix}.gz", gzip.compress(written(plain, suffix))), int)
    assert same(packed, graph)


@pytest.mark.filterwarnings(QUIET)
@given(NUMBERS, st.sampled_from(["edgelist", "column", "named"]), st.sampled_from([",", "\t", " ", ";"]))
def test_weights_of_tables(tmp_path_factory, links, kind, mark):
    folder, graph = tmp_path_factory.mktemp("g"), weighted(links)
    graph.remove_nodes_from([*nx.isolates(graph)])
    lines = [f"{u}{mark}{v}{mark}{weight}" for u, v, weight in graph.edges(data="weight")]
    if kind == "edgelist": nx.write_edgelist(graph, folder / "g.txt")
    else: (folder / "g.txt").write_text("\n".join([f"source{mark}target{mark}weight"] * (kind == "named") + lines))
    with pytest.warns(UserWarning, match="weights are kept"): again = load_graph(folder / "g.txt")
    assert nx.utils.graphs_equal(nx.Graph(again.edges(data=True)), nx.Graph(graph.edges(data=True)))
    both = [line for u, v, weight in graph.edges(data="weight") for line in (f"{u} {v} {weight}", f"{v} {u} {weight}")]
    assert same(read(folder, "both.txt", "\n".join(both)), graph)
    for wrong in ([*both, both[0]], [both[0] + "1", *both[1:]]):
        with pytest.raises(ValueError, match="has two weights|is there twice"): read(folder, "both.txt", "\n".join(wrong))


@pytest.mark.filterwarnings(QUIET)
@pytest.mark.parametrize("suffix", [".graphml", ".gml", ".gexf", ".net", ".json"])
@given(NUMBERS)
def test_arrows_are_links_if_all_have_their_reverse(tmp_path_factory, suffix, links):
    folder, graph = tmp_path_factory.mktemp("g"), weighted(links).to_directed()
    assert same(nx.relabel_nodes(read(folder, f"g{suffix}", written(graph, suffix)), int), graph.to_undirected())
    u, v = links[0]
    graph[u][v]["weight"] += 1
    with pytest.raises(ValueError, match="has two weights"): read(folder, f"g{suffix}", written(graph, suffix))
    graph.remove_edge(u, v)
    with pytest.raises(ValueError, match=r"goes one way; .*graph\.to_undirected\(\)"): read(folder, f"g{suffix}", written(graph, suffix))
    with pytest.raises(ValueError, match="graph: .* goes one way"): load_graph(graph)


@pytest.mark.parametrize("suffix", [".graphml", ".gml", ".gexf", ".net", ".json"])
def test_parallel_edges(tmp_path, suffix):
    graph = nx.MultiGraph([("a", "b"), ("a", "b"), ("b", "c"), ("c", "c")])
    if suffix == ".gml": graph.graph["multigraph"] = 1
    assert same(read(tmp_path, f"g{suffix}", written_multi(graph, suffix)), nx.path_graph(["a", "b", "c"]))
    nx.set_edge_attributes(graph, 2.0, "weight")
    with pytest.raises(ValueError, match="is there twice, with weights"): read(tmp_path, f"g{suffix}", written_multi(graph, suffix))


def written_multi(graph, suffix):
    whole = io.BytesIO()
    if suffix == ".json": return json.dumps(nx.node_link_data(graph, edges="links")).encode()
    {".graphml": nx.write_graphml, ".gml": nx.write_gml, ".gexf": nx.write_gexf, ".net": nx.write_pajek}[suffix](graph, whole)
    return whole.getvalue()


D3 = {"nodes": [{"id": "a"}, {"id": "b"}], "links": [{"source": "a", "target": "b", "value": 3}]}
PAJEK = '*Vertices 2\n1 "a"\n2 "b"\n'


@pytest.mark.filterwarnings(QUIET)
def test_dialects(tmp_path):
    graph = read(tmp_path, "g.json", json.dumps(D3))
    assert list(graph.edges(data=True)) == [("a", "b", {"weight": 3.0})]
    assert list(read(tmp_path, "g.net", "% by hand\r\n" + PAJEK.replace("\n", "\r\n") + "*Arcs\r\n*Edges\r\n1 2 1\r\n").edges) == [("a", "b")]
    one = io.BytesIO()
    np.savez(one, A=np.ones((3, 3)))
    assert list(read(tmp_path, "g.npz", one.getvalue()).edges) == [(0, 1), (0, 2), (1, 2)]
    for symmetry in ("general", "symmetric"):
        whole, A = io.BytesIO(), np.array([[7.0, 2, 0, 3], [2, 0, 0, 5], [0, 0, 0, 6], [3, 5, 6, 1]])
        scipy.io.mmwrite(whole, A, symmetry=symmetry, precision=17)
        graph = read(tmp_path, "g.mtx", whole.getvalue())
        assert {(u, v): weight for u, v, weight in graph.edges(data="weight")} == {(u, v): A[u, v] for u, v in zip(*np.nonzero(np.triu(A, 1)), strict=True)}
    assert list(read(tmp_path, "g.MTX", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n3 1\n").edges) == [(0, 2)]


def array(values, **how):
    whole = io.BytesIO()
    np.save(whole, np.array(values, **how))
    return whole.getvalue()


def archive(**arrays):
    whole = io.BytesIO()
    np.savez(whole, **arrays)
    return whole.getvalue()


OUTSIDE = {"indices": np.array([7]), "indptr": np.array([0, 1, 1]), "data": np.ones(1), "format": np.array(b"csr"), "shape": np.array([2, 2])}


@pytest.mark.parametrize(("name", "content", "message"), [
    ("g.json", '{"directed": false}', "node-link"), ("g.json", "[1", "malformed"), ("g.json", "[" * 100_000, "malformed"), ("g.json", json.dumps(D3 | {"nodes": []}), "listed"),
    ("g.json", json.dumps(D3 | {"edges": []}), "node-link"), ("g.json", json.dumps(D3 | {"links": []}), "no edge"),
    ("g.json", json.dumps(D3 | {"links": [{"source": "a"}]}), "malformed"),
    ("g.net", PAJEK + "*Arcs\n1 2\n*Edges\n1 2\n", "one of"), ("g.net", PAJEK + "*Edgeslist\n1 2\n", "one of"), ("g.net", PAJEK + "*Edges\n1 3\n", "listed"),
    ("g.net", "1 2", "one of"),
    ("g.net", PAJEK.replace('"b"', '"a"') + "*Edges\n1 2\n", "listed"), ("g.gexf", "<gexf>", "malformed"), ("g.gexf", "<a/>", "malformed"), ("g.graphml", "<a/>", "malformed"),
    ("g.npy", array([[0, 1], [0, 0]]), r"\[0, 1\] is 1 and \[1, 0\] is 0; expected a symmetric"), ("g.npy", array([0, 1]), "square"),
    ("g.npy", array([[0, np.nan], [np.nan, 0]]), "finite"),
    ("g.npy", array([["0", "1"], ["1", "0"]]), "real numbers"), ("g.npy", array([[0, 1j], [1j, 0]]), "real numbers"),
    ("g.npy", array([[{}, 1], [1, 0]], dtype=object), "allow_pickle"),
    ("g.npy", array(np.eye(3)), "no edge"), ("g.npy", array(np.eye(3))[:-5], "malformed"), ("g.npz", array([[0, 1], [1, 0]]), "malformed"),
    ("g.npz", archive(a=np.eye(2), b=np.eye(2)), "2 arrays"),
    ("g.npz", archive(**OUTSIDE), "malformed"), ("g.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 1\n", "symmetric"), ("g.mtx", "2 2\n", "malformed"),
    ("g.mtx", "%%MatrixMarket matrix coordinate real symmetric\n4 4 4\n2 1 2.5\n3 2 2.5\n4 1 2.5\n4 3 2t\n", "malformed"),
    ("g.mtx", "%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 1\n2 1 1\n", "twice"),
    ("g.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n1 2\n", "above"),
    ("g.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n", "expected what"),
    ("g.mtx", "%%MatrixMarket matrix array real symmetric\n3 2\n0\n1\n1\n0\n1\n", "malformed"),
    ("g.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n4 1\n", "integer from 1"),
    ("g.mtx", "%%MatrixMarket matrix coordinate real general\n1000000000000 1000000000000 1\n1 2 1\n", "GB"),
])
def test_damaged_files_are_refused_with_their_path(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message) as caught: read(tmp_path, name, content)
    assert str(caught.value).startswith(f"path={str(tmp_path / name)!r}") and "\n" not in str(caught.value)
    result = CliRunner().invoke(app, ["account", str(tmp_path / name)])
    assert result.exit_code == 2 and len(result.output.splitlines()) == 1


# Tables and graphs in memory, standard input, names

@pytest.mark.usefixtures("silent")
def test_frames():
    links = pd.DataFrame({"a": ["x", "y"], "b": ["y", "z"], "day": [1, 2]})
    assert list(read_frame(links[["a", "b"]]).edges) == list(read_frame(links.rename(columns={"a": "Source", "b": "Target"})[["Source", "Target"]]).edges) == [("x", "y"),
    ("y", "z")]
    assert list(load_graph(pd.DataFrame([[1, 2], [2, 3]])).edges) == [(1, 2), (2, 3)] and load_graph(pd.DataFrame([[1, 2], [2, 3]])).graph == {}
    assert list(load_graph(pd.DataFrame([["1", "2"]], columns=["p", "q"], dtype="category")).edges) == [(1, 2)]


@pytest.mark.parametrize(("given", "message"), [
    ({}, "unclear which of 'a', 'b', 'day'"), ({"source": "a"}, "target=None: expected the names of two columns of 'a', 'b', 'day'"),
    ({"source": "a", "target": "a"}, "source='a'"),
    ({"source": "c", "target": "b"}, "source='c'"),
])
def test_frames_that_are_refused(given, message):
    links = pd.DataFrame({"a": ["x", "y"], "b": ["y", None], "day": [1, 2]})
    with pytest.raises(ValueError, match=f"graph: .*{message}"): load_graph(links, **given)
    with pytest.raises(ValueError, match="row 1: expected two node names"): load_graph(links[["a", "b"]])
    with pytest.raises(ValueError, match="not hashable"): load_graph(pd.DataFrame({"a": [["x"]], "b": [["y"]]}))
    with pytest.raises(ValueError, match="for a table only"): load_graph("florentine", source="a", target="b")


def test_columns_of_a_file_and_of_a_frame_are_named_alike(tmp_path):
    frame = pd.DataFrame({"day": [1, 2], "guest": ["x", "y"], "host": ["y", "z"]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    with pytest.warns(UserWarning, match="'guest', 'host' are taken, 'day' left out"): one = load_graph(frame, source="guest", target="host")
    with pytest.warns(UserWarning, match="'guest', 'host' are taken, 'day' left out"): other = load_graph(tmp_path / "x.csv", source="guest", target="host")
    assert nx.utils.graphs_equal(one, other) and list(one.edges) == [("x", "y"), ("y", "z")]


def test_a_graph_is_checked_and_left_as_it_was():
    graph = nx.MultiDiGraph([("a", "b"), ("b", "a"), ("a", "a")], weight=1)
    graph.add_node("c", town="Basel")
    again = load_graph(graph)
    assert type(again) is nx.Graph and list(again.edges(data=True)) == [("a", "b", {})] and again.nodes["c"] == {"town": "Basel"} and graph.number_of_edges() == 3
    with pytest.raises(ValueError, match="no edge"): simple_graph(nx.empty_graph(3))
    with pytest.raises(ValueError, match="no finite number"): simple_graph(nx.Graph([("a", "b", {"weight": "2"})]))


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"source,target\nanna,ben\nben,carl\n")))
    assert list(load_graph("-").edges) == [("anna", "ben"), ("ben", "carl")]
    result = CliRunner().invoke(app, ["account", "-", "-T", "2", "--attackers", "anna"], input="source,target\nanna,ben\nben,carl\n")
    assert result.exit_code == 0 and "3 nodes" in result.output
    assert CliRunner().invoke(app, ["account", "-"], input="").exit_code == 2


def test_names_and_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("./nofile", "folder/nofile", "nofile.txt"):
        with pytest.raises(FileNotFoundError, match="no such file"): load_graph(path)
    with pytest.raises(ValueError, match="did you mean erdos-renyi"): load_graph("erdos-reny:n=5,p=0.3")
    (tmp_path / "florentine").write_text("a b\n")
    (tmp_path / "mine").write_text("a b\n")
    with pytest.warns(UserWarning, match=r"not the file in this folder, which is './florentine'"): assert len(load_graph("florentine")) == 15
    assert list(load_graph("./florentine")) == list(load_graph(tmp_path / "florentine")) == list(load_graph("mine")) == ["a", "b"]


@pytest.mark.parametrize(("spec", "message"), [
    ("florentine:n=3", "n is not a parameter of florentine; florentine has no parameters"), ("karate:backend=3", "karate has no parameters"),
    ("ring:size=8", "size is not a parameter of ring; expected parameters of 'ring': n"), ("facebook-414:path=3", "has no parameters"), ("grid:n=3", "rows, columns"),
])
def test_parameters_that_a_graph_does_not_have(spec, message):
    with pytest.raises(ValueError, match=message): load_graph(spec)
    assert GRAPHS["erdos-renyi"].parameters == ["n", "p", "seed"]


# Weights in gossip

@given(NUMBERS, st.integers(0, 5))
def test_given_weights_are_the_table(links, seed):
    graph = weighted(links, seed)
    A = nx.to_numpy_array(graph)
    with pytest.raises(ValueError, match="at most 1 at each node; divide all by") as caught: gossip_matrix(graph, "given")
    factor = float(str(caught.value).rpartition(" ")[2])
    for u, v in graph.edges: graph[u][v]["weight"] /= factor
    with warnings.catch_warnings(action="ignore"): full, sparse = (gossip_matrix(graph, "given", sparse=kind) for kind in (False, True))
    np.testing.assert_allclose(full - np.diag(np.diag(full)), A / factor, rtol=1e-14)
    np.testing.assert_array_equal(full, sparse.toarray())
    check_gossip(full, graph)
    assert (full == full.T).all() and full.diagonal().min() >= 0


@pytest.mark.parametrize("weight", [0, -0.1, float("nan"), float("inf"), "x", None, True])
def test_given_weights_are_positive_numbers(weight):
    with pytest.raises(ValueError, match=r"between 'a' and 'b' has weight .*expected a positive number"): gossip_matrix(nx.Graph([("a", "b", {"weight": weight})]), "given")


def test_given_weights_where_nodes_are_offline_or_alone():
    graph = nx.Graph([("a", "b", {"weight": 0.25}), ("b", "c", {"weight": 0.5}), ("b", "b", {"weight": 9})])
    np.testing.assert_allclose(churn(graph, [["a"]], "given")[0], [[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]])
    with pytest.warns(UserWarning, match="components"): np.testing.assert_array_equal(gossip_matrix(nx.empty_graph(2), "given"), np.eye(2))


def test_given_weights_from_a_file_to_an_account(tmp_path):
    """A gossip matrix that was saved comes back, and the command accounts for it."""
    W = np.array([[0.5, 0.5, 0], [0.5, 0.2, 0.3], [0, 0.3, 0.7]])
    np.save(tmp_path / "W.npy", W)
    with pytest.warns(UserWarning, match="weights are kept"): graph = load_graph(tmp_path / "W.npy")
    np.testing.assert_allclose(gossip_matrix(graph, "given"), W, atol=1e-15)
    result = CliRunner().invoke(app, ["account", str(tmp_path / "W.npy"), "-w", "given", "--attackers", "0", "-T", "3", "-o", str(tmp_path / "r.csv")])
    assert result.exit_code == 0, result.output
    mu = account(dp_dsgd(W, 3), PNDP([0]), Participation.every_step(3)).mu
    np.testing.assert_allclose(pd.read_csv(tmp_path / "r.csv").sort_values("victim").mu, mu, rtol=1e-9)
    assert not np.allclose(mu, account(dp_dsgd(gossip_matrix(graph), 3), PNDP([0]), Participation.every_step(3)).mu)
