"""A file of links becomes the network that it holds, whatever its format; what is unclear, or says more than a network can, is refused or named."""
import bz2
import contextlib
import gzip
import io
import json
import lzma
import re
import time
import warnings
import zipfile

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
from mfdl.base.graph_files import _OTHERS, FORMATS, read_frame, read_graph, simple_graph
from mfdl.protocol.gossip import churn, gossip_matrix
from mfdl.protocol.methods.attacker_names import parse_attackers
from mfdl.protocol.methods.checked_gossip import check_gossip
from mfdl.protocol.methods.graphs import GRAPHS, load_graph
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import PNDP
from mfdl.tools.cli import app
from mfdl.tools.settings import Settings, keep_attackers, load_network

WORDS = st.text("abcdefgxyz äß'.-", min_size=2, max_size=6).map(str.strip).filter(lambda word: len(word) > 1 and not word.startswith("#"))
LINKS = st.lists(st.tuples(WORDS, WORDS).filter(lambda link: link[0] != link[1]), min_size=1, max_size=8)
QUIET = "ignore:path=.*weights are kept"
NUMBERS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda link: link[0] != link[1]), min_size=1, max_size=12)


def read(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_graph(path)


def settled(folder, name, content, columns):
    """What a text says: read at once, or refused as unclear and read with `columns`."""
    try: return read(folder, name, content)
    except ValueError as error:
        if 'load_graph(.., columns="' not in str(error): raise
    return load_graph(folder / name, columns=columns)


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
    with pytest.raises(ValueError, match="unclear which of 'person', 'friend'"): read(tmp_path, "x.csv", "person,friend\n1,2\n2,3\n")
    for columns in ("i j", "person friend", "person,friend", ["person", "friend"]): assert list(load_graph(tmp_path / "x.csv", columns=columns).edges) == [(1, 2), (2, 3)]
    assert list(read(tmp_path, "x.csv", "anna,ben\nben,carl\n").edges) == [("anna", "ben"), ("ben", "carl")]
    assert list(read(tmp_path, "x.csv", "a,1\n2,1\n2,3\n").edges) == [("a", "1"), ("1", "2"), ("2", "3")]


@pytest.mark.parametrize(("content", "message"), [
    ("source,target\na,source\n", "may be a header or a link"), ("u v\nv w\n", "may be a header or a link"), ("source,colour\na,b\n", "may be a header or a link"),
    ("id,guest,host\n1,a,b\n2,b,c\n", "may be a header or a link"), ("day guest,host\n1,a,b\n2,b,c\n", "may be a header"),
    ("1,a,b\n2,b,c\n", "no header says which"), ("x,y,z\n1,2,3\n2,3,4\n", "unclear which of 'x', 'y', 'z'"),
    ("from,to,source,target\na,b,c,d\n", "may be a header"), ("1 b c d\nb c d e\n", "4 columns"), ("source,target\n", "no edge"),
    ("source,target,w\na,b,2\nb,c,\n", "line 3: weight '': expected a number"),
    ('a,"b\nb,c\n', "quotation mark|malformed"), ("a,b\nc\n", "line 2: expected two node names"), ("a,b\n\n#\nc,\n", "line 4: expected two node names"), ("a,b 2\0\n", "not bytes"),
    ("a b {'weight': 2\n", "columns"), ("a b {'weight'}\nb c {}\n", "malformed"), ("a b 1\nb c x\n", "3 columns"), (",".join("ab" * 300), "600 columns"),
    ("a b nan\n", "3 columns"),
    ("a b {'weight': 'x'}\n", "line 1: weight 'x': expected a number"), ("\xff\xfe".encode("latin1"), "malformed"),
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
        again = settled(folder, name, written, "i j")
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
    if suffix == ".adjlist": nx.write_adjlist(graph, whole)
    elif suffix == ".npy": np.save(whole, A.toarray())
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
    if suffix != ".adjlist":  # which holds no weights
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
    with pytest.warns(UserWarning, match="weights are kept"): again = settled(folder, "g.txt", (folder / "g.txt").read_text(), "i j weight")
    assert nx.utils.graphs_equal(nx.Graph(again.edges(data=True)), nx.Graph(graph.edges(data=True)))
    both = [line for u, v, weight in graph.edges(data="weight") for line in (f"{u} {v} {weight}", f"{v} {u} {weight}")]
    assert same(settled(folder, "both.txt", "\n".join(both), "i j weight"), graph)
    for wrong in ([*both, both[0]], [both[0] + "1", *both[1:]]):
        with pytest.raises(ValueError, match="has two weights|is there twice"): settled(folder, "both.txt", "\n".join(wrong), "i j weight")


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
    ("g.mtx", "%%MatrixMarket matrix coordinate real symmetric\n3 3 1\n2 1 1 7\n", "expected what"),
    ("g.mtx", "%%MatrixMarket matrix array real symmetric\n3 2\n0\n1\n1\n0\n1\n", "square"),
    ("g.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n4 1\n", "out of bounds"),
    ("g.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n1 0\n", "out of bounds"),
    ("g.mtx", "%%MatrixMarket matrix array real general\n1000000000 1000000000\n1\n", "GB"),
    ("g.mtx", "%%MatrixMarket matrix coordinate real general\n1000000000000 1000000000000 1\n1 2 1\n", "GB"),
])
def test_damaged_files_are_refused_with_their_path(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message) as caught: read(tmp_path, name, content)
    assert str(caught.value).startswith(f"path={str(tmp_path / name)!r}") and "\n" not in str(caught.value)
    result = CliRunner().invoke(app, ["account", str(tmp_path / name)])
    assert result.exit_code == 2 and len(result.output.splitlines()) == 1


# Texts with two readings: who hears whom would be wrong, and with it mu

SEVEN = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 1), (1, 4)]
SEVEN_LINES = "".join(f"{u} {v}\n" for u, v in SEVEN)
CONTACTS = "20 1 2\n20 2 3\n40 1 4\n60 3 4\n"
COMPOSED, APART = "Zo\u00eb", "Zoe\u0308"
UNCLEAR = {  # the text: what it may be, and for columns= the links that it then has
    "6 7\n" + SEVEN_LINES: ("numbers of nodes and links", {"i j": [(6, 7), *SEVEN]}),
    "7,6\n" + SEVEN_LINES.replace(" ", ","): ("numbers of nodes and links", {"i j": [(7, 6), *SEVEN]}),
    "6 6 7\n" + "".join(f"{u} {v} 0.5\n" for u, v in SEVEN): ("numbers of nodes and links", {"i j -": [(6, 6), *SEVEN]}),
    "2 1\nanna ben\n": ("numbers of nodes and links", {}),
    "9 9\nanna ben\nben carl\n": ("numbers of nodes and links", {"i j": [("anna", "ben"), ("ben", "carl")]}),
    "4 4\n2 4\n1 3\n2 4\n1 3\n": ("numbers of nodes and links", {"i j": [(4, 4), (2, 4), (1, 3)]}),  # METIS
    CONTACTS: ("a time and two ends", {"time i j": [(1, 2), (2, 3), (1, 4), (3, 4)], "i j time": [(20, 1), (20, 2), (40, 1), (60, 3)]}),
    "1 2 7\n2 3 7\n": ("a time and two ends", {"i j weight": [(1, 2), (2, 3)], "- i j": [(2, 7), (3, 7)]}),
    "20 anna ben\n40 ben carl\n": ("3 columns", {"time i j": [("anna", "ben"), ("ben", "carl")]}),
    "person,friend\nanna,ben\nben,carl\n": ("a header or a link", {
        "person friend": [("anna", "ben"), ("ben", "carl")], "i j": [("person", "friend"), ("anna", "ben"), ("ben", "carl")]}),
    "person;friend;close\nanna;ben;2\nben;carl;2\n": ("unclear which", {"person friend close": [("anna", "ben"), ("ben", "carl")]}),
    "id,label\n1,Anna\n2,Ben\n": ("a header or a link", {"i j": [("id", "label"), ("1", "Anna"), ("2", "Ben")]}),
    "id,age\n1,30\n2,25\n3,25\n": ("unclear which", {"id age": [(1, 30), (2, 25), (3, 25)]}),
    "6 7\nsource target\n1 2\n2 3\n": ("a link or a header", {}),
    "anna ben\nben carl\nFrom To\ncarl dora\n": ("a link or a header", {"i j": [("anna", "ben"), ("ben", "carl"), ("From", "To"), ("carl", "dora")]}),
    "1 Anna\n2 Ben\n3 Carl\n": ("a table of nodes", {"i j": [("1", "Anna"), ("2", "Ben"), ("3", "Carl")]}),
    "0 1 0\n1 0 1\n0 1 0\n": ("a time and two ends", {"i j -": [(0, 1)]}),
    "0 2\n2 0\n": ("a matrix", {"i j": [(0, 2)]}),
    "0.5 0.5\n0.5 0.5\n": ("a matrix", {}),
    "0 .5 .5\n.5 0 .5\n.5 .5 0\n": ("a matrix", {}),
    "1 3\n0 2\n1 3\n0 2\n": ("the neighbours of one node", {"i j": [(1, 3), (0, 2)]}),
    "4\n1 3\n0 2\n1 3\n0 2\n": ("the neighbours of one node", {"i j": [(1, 3), (0, 2)]}),  # decentralizepy, of type adjacency
    "i j\nk l\nk m\n": ("a header or a link", {"source target": [("i", "j"), ("k", "l"), ("k", "m")], "i j": [("k", "l"), ("k", "m")]}),
    "u v\nw x\nv x\n": ("a header or a link", {"i j": [("u", "v"), ("w", "x"), ("v", "x")]}),
}


def links_of(graph): return {frozenset(link) for link in graph.edges}


@pytest.mark.filterwarnings(QUIET, "ignore:.*left out")
@pytest.mark.parametrize("text", UNCLEAR, ids=[text.replace("\n", "/")[:40] for text in UNCLEAR])
@pytest.mark.parametrize("form", ["plain", "windows", "blanks", "commas"])
def test_two_readings_are_refused_and_columns_chooses(tmp_path, text, form):
    may_be, meant = UNCLEAR[text]
    content = {"plain": text, "windows": "\ufeff" + text.replace("\n", "\r\n"), "blanks": text.replace("\n", "  \n"), "commas": text.replace(" ", ", ")}[form]
    with pytest.raises(ValueError, match=may_be) as caught: read(tmp_path, "x.txt", content)
    assert "; expected load_graph(.., columns=" in str(caught.value)
    result = CliRunner().invoke(app, ["account", str(tmp_path / "x.txt"), "-T", "2"])
    assert result.exit_code == 2 and '; expected --columns "' in result.output and "load_graph" not in result.output and len(result.output.splitlines()) == 1
    for columns, links in meant.items():
        assert links_of(load_graph(tmp_path / "x.txt", columns=columns)) == {frozenset(link) for link in links if link[0] != link[1]}


@pytest.mark.parametrize(("text", "columns", "links"), [
    (CONTACTS, "time i j", [(1, 2), (2, 3), (1, 4), (3, 4)]), ("# 6 7\n" + SEVEN_LINES, None, SEVEN), ("i,j\n" + SEVEN_LINES.replace(" ", ","), None, SEVEN),
    ("time i j\n" + CONTACTS, None, [(1, 2), (2, 3), (1, 4), (3, 4)]), ("person,friend\n1,2\n2,3\n", "person,friend", [(1, 2), (2, 3)]),
])
def test_the_command_accounts_for_the_network_that_was_meant(tmp_path, text, columns, links):
    """Against the account of a graph that is built by hand, and not that of another reading."""
    (tmp_path / "x.txt").write_text(text)
    said = ["--columns", columns] if columns else []
    result = CliRunner().invoke(app, ["account", str(tmp_path / "x.txt"), *said, "-T", "5", "--attackers", "1", "-o", str(tmp_path / "r.csv")])
    assert result.exit_code == 0, result.output
    graph = nx.Graph(links)
    report = account(dp_dsgd(gossip_matrix(graph), 5, nodes=graph), PNDP([1]), Participation.every_step(5))
    np.testing.assert_allclose(pd.read_csv(tmp_path / "r.csv").set_index("victim").mu[list(report.victims)], report.mu, rtol=1e-9)
    if text != CONTACTS: return
    for command in (["which-noise", str(tmp_path / "x.txt")], ["optimize", str(tmp_path / "x.txt"), "-o", str(tmp_path / "s")]):
        assert CliRunner().invoke(app, [*command, "-T", "2"]).exit_code == 2
        assert CliRunner().invoke(app, [*command, "-T", "2", *said]).exit_code == 0


def test_the_explorer_names_the_command_that_settles_it():
    """A page has no columns=, and says so."""
    with pytest.raises(ValueError) as caught: load_network(Settings(graph="my contacts.txt", edges=CONTACTS.encode()))
    command = "mfdl account 'my contacts.txt' --columns"
    ways = f'{command} "i j weight" or {command} "time i j", or a first line that says so, such as time,source,target'
    assert str(caught.value).startswith("file='my contacts.txt': ") and str(caught.value).endswith(f"; expected on the command line {ways}")
    known = load_network(Settings(graph="my contacts.txt", edges=b"i j\nZoe\xcc\x88 ben\nben carl\n", attackers=(APART,)))
    assert list(known) == [COMPOSED, "ben", "carl"]
    assert keep_attackers(Settings(graph="x", edges=b"i j\nZoe\xcc\x88 ben\nben carl\n", attackers=(APART,))).attackers == (APART,)


@pytest.mark.parametrize("text", [
    "1 2\n2 3\n", "1 2\n2 3\n3 1\n", "0 1\n1 2\n2 3\n3 0\n", "0 1\n0 2\n0 3\n", SEVEN_LINES,
    "5 1\n" + SEVEN_LINES, "20 30\n" + SEVEN_LINES, "0 1\n1 0\n1 2\n", "10 20\n20 30\n30 10\n",
    "1 2\n", "7 9\n9 7\n7 8\n",
])
@pytest.mark.usefixtures("silent")
def test_plain_lists_are_read_at_once(tmp_path, text):
    assert links_of(read(tmp_path, "x.txt", text)) == {frozenset(map(int, line.split())) for line in text.splitlines()}


@given(NUMBERS, st.permutations(range(6)), st.integers(0, 20))
def test_counts_above_any_list_are_no_link(tmp_path_factory, links, order, more):
    """Numbers of nodes and of links, in either order, above any links among numbers from 1: never read as a link."""
    links = list({frozenset(link): (link[0] + 1, link[1] + 1) for link in links}.values())
    counts = [max(map(max, links)) + more, len(links)]
    text = "".join(f"{u} {v}\n" for u, v in [counts[:: 1 if order[0] % 2 else -1], *links])
    if len(links) < 2: return
    with pytest.raises(ValueError, match=r"load_graph\(\.\., columns="): read(tmp_path_factory.mktemp("g"), "x.txt", text)


def test_a_mark_of_comments_may_begin_a_name(tmp_path):
    with pytest.raises(ValueError, match="a table of nodes"): read(tmp_path, "x.txt", "# a\nb 2.0\nc 1.0\n# b\nd 1.0\n")  # LGL
    for text in ("source,target\nben,carl\n#anna,ben\n", "ben,carl\n%anna,ben\n", "#anna,ben\n#ben,carl\ncarl,#anna\n", "a b\n#b c\n"):
        with pytest.raises(ValueError, match="line [123]: '[#%].*' may be a comment or a link"): read(tmp_path, "x.csv", text)
    assert list(read(tmp_path, "x.csv", 'source,target\n"#anna",ben\nben,"#carl"\n')) == ["#anna", "ben", "#carl"]
    assert list(read(tmp_path, "x.csv", "#source,target\n## a, b\nanna,ben\n# the end, at last\n#\n#last\nben,carl\n")) == ["anna", "ben", "carl"]


ARROWS = [(1, 2), (2, 3), (3, 1)]


@pytest.mark.parametrize(("name", "begin", "line"), [
    ("x.txt", "# Directed graph (each unordered pair of nodes is saved once): x.txt\n# Nodes: 3 Edges: 3\n", "{}\t{}"),
    ("x.txt", "#directed\n", "{} {}"), ("out.x", "% asym unweighted\n% 3 3 3\n", "{} {}"),
    ("x.csv", "Source,Target,Type,Weight\n", "{},{},Directed,1.0"), ("x.gml", "graph [ directed 1 node [ id 1 ] node [ id 2 ] node [ id 3 ]\n", "edge [ source {} target {} ]"),
    ("x.net", "*Vertices 3\n*Arcs\n", "{} {} 1"),
])
@pytest.mark.usefixtures("silent")
def test_arrows_are_never_made_links_in_silence(tmp_path, name, begin, line):
    end = "]" if name.endswith("gml") else ""
    text = begin + "\n".join(line.format(*arrow) for arrow in ARROWS) + "\n" + end
    with pytest.raises(ValueError, match="between .* goes one way; expected an undirected") as caught: read(tmp_path, name, text)
    assert not name.startswith(("x.txt", "x.csv", "out")) or re.search(r"\([#%T][^)]*(directed|asym)", str(caught.value), re.I)
    both = begin + "\n".join(line.format(*arrow) for u, v in ARROWS for arrow in ((u, v), (v, u))) + "\n" + end
    assert links_of(nx.relabel_nodes(read(tmp_path, name, both), int)) == {frozenset(arrow) for arrow in ARROWS}
    for directed, undirected in (("Directed", "Undirected"), ("#directed", "# not directed"), ("asym", "sym"), ("directed 1", "directed 0"), ("*Arcs", "*Edges")):
        text = text.replace(directed, undirected)
    assert links_of(nx.relabel_nodes(read(tmp_path, name, text), int)) == {frozenset(arrow) for arrow in ARROWS}


def test_rows_of_two_types_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Directed in some rows, and Undirected in others"): read(tmp_path, "x.csv", "Source,Target,Type\na,b,Directed\nb,c,Undirected\n")


@pytest.mark.filterwarnings(QUIET)
def test_konect_and_network_repository(tmp_path):
    for columns, line in ((2, "{} {}"), (3, "{} {} 2"), (4, "{}\t{}\t2\t1082040961")):
        graph = read(tmp_path, "out.x", "% sym positive\n% 7 6 6\n" + "\n".join(line.format(*link) for link in SEVEN) + "\n")
        assert links_of(graph) == {frozenset(link) for link in SEVEN} and all(("weight" in said) == (columns > 2) for *_, said in graph.edges(data=True))
    with pytest.raises(ValueError, match="two kinds of nodes"): read(tmp_path, "out.x", "% bip unweighted\n1 1\n1 2\n")
    assert links_of(read(tmp_path, "soc-x.edges", "% a comment\n%\n" + SEVEN_LINES)) == {frozenset(link) for link in SEVEN}


@pytest.mark.usefixtures("silent")
def test_edges_of_decentralizepy(tmp_path):
    """The number of nodes, then each link in both directions; a node without links is there, too."""
    graph = read(tmp_path, "x.edges", "5\n0 1\n1 0\n1 2\n2 1\n")
    assert set(graph) == set(range(5)) and links_of(graph) == {frozenset((0, 1)), frozenset((1, 2))}
    assert set(read(tmp_path, "x.edges", "4\n1 2\n2 4\n")) == {1, 2, 3, 4}
    with pytest.raises(ValueError, match="999999999 nodes.* GB"): read(tmp_path, "x.edges", "999999999\n0 1\n1 2\n")
    for text in ("4\n1 2\n2 3\n", "2\n0 1\n1 2\n", "5\nanna ben\nben carl\n"):
        with pytest.raises(ValueError, match="nodes in the first line"): read(tmp_path, "x.edges", text)


# Readers of networkx and SciPy, and what they pass over

GML = 'Creator "x"\ngraph\n[\n  node\n  [\n    id 1\n  ]\n  node [ id 2 ] node [ id 5 ]\n'
GML += '  edge [ source 1 target 2 ] edge [ source 2 target 1 ] edge [ source 2 target 5 ] edge [ source 2 target 5 ]\n]\n'


@pytest.mark.usefixtures("silent")
def test_gml_and_pajek_without_labels_and_with_repeated_edges(tmp_path):
    for kind in ("", "multigraph 0", "multigraph 1", "directed 0"): assert list(read(tmp_path, "x.gml", GML.replace("[", f"[ {kind}", 1)).edges) == [(1, 2), (2, 5)]
    with pytest.raises(ValueError, match="two weights|is there twice"): read(tmp_path, "x.gml", GML.replace("target 5 ]", "target 5 value 3 ]"))
    for vertices in ("", "1\n2\n3\n", "2\n", '1 "1" 0.1 0.2\n'):
        assert list(read(tmp_path, "x.net", f"*Network x\n*Vertices 3\n{vertices}*Edges\n1 2\n2 3\n2 3\n").edges) == [(1, 2), (2, 3)]
    assert list(read(tmp_path, "x.net", "*vertices 3\n1 \"New York\"\n2 O'Hara_1\n*edges\n1 2\n".replace("O'Hara", "OHara"))) == ["New York", "OHara_1", "3"]
    for text in ("*Vertices 3\n*Edges :1\n1 2\n*Edges :2\n2 3\n", "*Vertices 3 2\n*Edges\n1 3\n", "*Vertices 3\n*Vertices 3\n*Edges\n1 2\n"):
        with pytest.raises(ValueError, match="one of"): read(tmp_path, "x.net", text)


def xml(graph, suffix, encoding):
    whole = io.BytesIO()
    {".graphml": nx.write_graphml, ".gexf": nx.write_gexf}[suffix](graph, whole)
    text = whole.getvalue().decode()
    begin = f"<?xml version='1.0' encoding='{encoding.replace('-sig', '')}'?>"
    return (begin + text[text.index("?>") + 2:] if "?>" in text[:60] else begin + text).encode(encoding)


@pytest.mark.parametrize("suffix", [".graphml", ".gexf"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"])
@pytest.mark.usefixtures("silent")
def test_xml_in_other_encodings(tmp_path, suffix, encoding):
    graph = nx.path_graph(["Zürich", "Genève", "Neuchâtel"])
    assert list(read(tmp_path, f"x{suffix}", xml(graph, suffix, encoding)).edges) == list(graph.edges)


@pytest.mark.filterwarnings(QUIET)
def test_what_readers_of_xml_and_json_pass_over(tmp_path):
    graphml = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{}<graph edgedefault="undirected"><node id="a"/><node id="b"/>{}</graph>{}</graphml>'
    edge = '<edge source="a" target="b"/>'
    other = '<graph edgedefault="undirected"><node id="c"/></graph>'
    assert list(read(tmp_path, "x.graphml", graphml.format("", edge, "")).edges) == [("a", "b")]
    with pytest.raises(ValueError, match="2 graphs; expected one"): read(tmp_path, "x.graphml", graphml.format("", edge, other))
    with pytest.raises(ValueError, match="3 nodes with links, 2 listed"): read(tmp_path, "x.graphml", graphml.format("", edge + edge.replace('"b"', '"c"'), ""))
    key = '<key id="w" for="edge" attr.name="weight" attr.type="double"><default>3</default></key>'
    assert read(tmp_path, "x.graphml", graphml.format(key, edge, "")).edges["a", "b"]["weight"] == 3
    dynamic = xml(nx.path_graph(3), ".gexf", "utf-8").replace(b'mode="static"', b'mode="dynamic"')
    with pytest.warns(UserWarning, match="times of links are left out"): read(tmp_path, "x.gexf", dynamic)
    links = [{"source": "a", "target": "b", "weight": weight} for weight in (2, 3)]
    with pytest.raises(ValueError, match="has two weights"): read(tmp_path, "x.json", json.dumps({"nodes": D3["nodes"], "links": links}))


def test_matrix_market_says_what_scipy_reads():
    """The numbers that SciPy would take for others are refused; see above."""
    for content, wrong in (("real symmetric\n3 3 1\n2 1 2t\n", 2), ("real general\n3 3 1\n2 1 1 7\n", 1)):
        assert scipy.io.mmread(io.BytesIO(f"%%MatrixMarket matrix coordinate {content}".encode())).toarray()[1, 0] == wrong


# Formats that are not read, with the line of Python that converts them

def run_line(message):
    line = message.partition("this line of Python writes: ")[2]
    exec(compile(line, "line", "exec"), {})


@pytest.mark.filterwarnings(QUIET)
def test_other_formats_are_refused_with_the_line_that_converts_them(tmp_path):
    graph = nx.Graph([("a", "b"), ("b", "c")])
    numbers, frame = nx.path_graph(3), pd.DataFrame({"source": ["a", "b"], "target": ["b", "c"]})
    nx.write_graph6(numbers, tmp_path / "x.g6")
    nx.write_sparse6(numbers, tmp_path / "x.s6")
    pd.to_pickle(graph, tmp_path / "y.pickle")
    scipy.io.savemat(tmp_path / "x.mat", {"A": nx.to_scipy_sparse_array(numbers, format="csc")})
    frame.to_csv(tmp_path / "z.csv", index=False)
    (tmp_path / "z.csv.bz2").write_bytes(bz2.compress((tmp_path / "z.csv").read_bytes()))
    (tmp_path / "v.csv.xz").write_bytes(lzma.compress((tmp_path / "z.csv").read_bytes()))
    with zipfile.ZipFile(tmp_path / "w.zip", "w") as archive: archive.write(tmp_path / "z.csv", "z.csv")
    files = {"x.g6": "x.graphml", "x.s6": "x.graphml", "y.pickle": "y.graphml", "x.mat": "x.npz", "z.csv.bz2": "z.csv", "v.csv.xz": "v.csv", "w.zip": "w/z.csv"}
    for name, written in files.items():
        (tmp_path / written).unlink(missing_ok=True)
        with pytest.raises(ValueError, match=f"a file {name[name.rindex('.'):]} is not read") as caught: load_graph(tmp_path / name)
        run_line(str(caught.value))
        assert links_of(nx.relabel_nodes(load_graph(tmp_path / written), str)) == links_of(graph if name[0] not in "x" else nx.relabel_nodes(numbers, str))
    for suffix in _OTHERS:
        (tmp_path / f"q{suffix}").write_text("a b\n")
        with pytest.raises(ValueError, match=f"a file {suffix} is not read") as caught: load_graph(tmp_path / f"q{suffix}")
        compile(str(caught.value).partition("Python writes: ")[2], "line", "exec")


# Names

@pytest.mark.usefixtures("silent")
def test_names_are_equal_in_every_form(tmp_path):
    """An accent is written in two ways that nobody can tell apart: one node, whoever names it."""
    graph = read(tmp_path, "x.csv", f"{COMPOSED},ben\nben,carl\ncarl,{APART}\n")
    assert list(graph) == [COMPOSED, "ben", "carl"]
    assert list(load_graph(pd.DataFrame([[COMPOSED, "ben"], ["ben", "carl"], ["carl", APART]]))) == [COMPOSED, "ben", "carl"]
    run = dp_dsgd(gossip_matrix(graph), 3, nodes=graph)
    same = [account(run, PNDP([name]), Participation.every_step(3)).mu for name in (COMPOSED, APART)]
    np.testing.assert_array_equal(*same)
    for name in (COMPOSED, APART):
        result = CliRunner().invoke(app, ["account", str(tmp_path / "x.csv"), "-T", "2", "--attackers", f"{name}+ben"])
        assert result.exit_code == 0 and "carl" in result.output
        assert parse_attackers(f"{name},ben", graph) == [(COMPOSED,), ("ben",)]
    nx.write_graphml(nx.path_graph([COMPOSED, APART, "ben"]), tmp_path / "x.graphml")
    with pytest.raises(ValueError, match="have the same text"): load_graph(tmp_path / "x.graphml")


@pytest.mark.usefixtures("silent")
def test_nodes_are_called_by_their_labels(tmp_path):
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, dict(enumerate(["Anna", "Ben", "Carl"])), "label")
    gml = b'graph [ node [ id 0 label "Anna" ] node [ id 1 label "Ben" ] node [ id 2 label "Carl" ] edge [ source 0 target 1 ] edge [ source 1 target 2 ] ]'
    for suffix in (".graphml", ".json", ".gml"):
        content = written(graph, suffix) if suffix != ".gml" else gml
        assert list(read(tmp_path, f"x{suffix}", content).edges) == [("Anna", "Ben"), ("Ben", "Carl")]
    gexf = written(nx.path_graph(3), ".gexf").decode().replace('label="1"', 'label="Ben"')
    assert list(read(tmp_path, "x.gexf", gexf).edges) == [("0", "Ben"), ("Ben", "2")]
    result = CliRunner().invoke(app, ["account", str(tmp_path / "x.gexf"), "-T", "2", "--attackers", "Ben"])
    assert result.exit_code == 0 and "Ben" in result.output
    assert list(load_graph(graph).edges) == [(0, 1), (1, 2)]  # a graph in memory keeps its names


@pytest.mark.usefixtures("silent")
def test_files_without_labels_and_a_header_above_dictionaries(tmp_path):
    gexf = re.sub(r' label="\d"', "", written(nx.path_graph(3), ".gexf").decode())
    assert "label=" not in gexf and list(read(tmp_path, "x.gexf", gexf).edges) == [(0, 1), (1, 2)]
    assert list(read(tmp_path, "x.txt", "source target\na b {}\nb c {'weight': 1}\n").edges(data=True)) == [("a", "b", {}), ("b", "c", {})]


@pytest.mark.filterwarnings(QUIET)
def test_weights_in_dictionaries_below_a_header(tmp_path):
    graph = read(tmp_path, "x.txt", "source target\na b {'weight': 2}\nb c {'weight': 3}\n")
    assert list(graph.edges(data="weight")) == [("a", "b", 2), ("b", "c", 3)] and graph.graph["columns"] == ["source", "target", "weight"]


def test_nodes_that_are_called_by_number_are_in_order(tmp_path):
    """Where labels are 0 .. n-1, the protocol's default names are those of the file, whatever the order of its lines."""
    assert list(read(tmp_path, "x.txt", "2 0\n0 1\n")) == list(read(tmp_path, "x.graphml", written(nx.from_edgelist([(2, 0), (0, 1)]), ".graphml"))) == [0, 1, 2]
    assert list(read(tmp_path, "x.txt", "5 0\n0 1\n")) == [5, 0, 1] and list(read(tmp_path, "x.txt", "c a\na b\n")) == ["c", "a", "b"]
    with pytest.warns(UserWarning, match="2, 0, 1 in this order"): gossip_matrix(nx.from_edgelist([(2, 0), (0, 1)]))


def test_labels_that_occur_twice_are_no_names(tmp_path):
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, "Anna", "label")
    with pytest.warns(UserWarning, match="labels are missing or occur twice"): again = read(tmp_path, "x.graphml", written(graph, ".graphml"))
    assert list(again.edges) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("text", ["", "\n \n", "source,target\n", "# nothing\n", "i j weight\n", "a a\n", "\ufeff", "% sym unweighted\n"])
def test_no_link_is_no_network(tmp_path, text):
    with pytest.raises(ValueError, match="empty|no edge"): read(tmp_path, "x.csv", text)


@pytest.mark.filterwarnings(QUIET, "ignore:.*left out")
@given(LINKS, st.sampled_from([",", ";", "\t"]), st.sampled_from(["i{}j", "Source{}Target", "time{}i{}j", "i{}j{}weight", "id{}Source{}Target{}Label{}weight"]), st.booleans())
def test_known_headers_name_the_columns(tmp_path_factory, links, mark, header, loops):
    """Whatever stands in the other columns; also with loops, links that are there twice, and blanks at the end."""
    words = header.split("{}")
    weighted = "weight" in words
    links = list({frozenset(link): link for link in links}.values()) if weighted else links + links[:1]
    rows = [*links, *([(links[0][0],) * 2] if loops else [])]
    told = [{"time": str(k), "id": str(k), "Label": "", "weight": "2", "i": f'"{u}"', "Source": f'"{u}"', "j": f'"{v}"', "Target": f'"{v}"'} for k, (u, v) in enumerate(rows)]
    lines = [mark.join(row[word] for word in words) + "  " for row in told]
    graph = read(tmp_path_factory.mktemp("g"), "x.csv", "\n".join([header.replace("{}", mark), *lines]))
    assert same(graph, nx.Graph(links)) and all(("weight" in said) == weighted for *_, said in graph.edges(data=True))

# Tables and graphs in memory, standard input, names

@pytest.mark.usefixtures("silent")
def test_frames():
    links = pd.DataFrame({"a": ["x", "y"], "b": ["y", "z"], "day": [1, 2]})
    assert list(read_frame(links[["a", "b"]]).edges) == list(read_frame(links.rename(columns={"a": "Source", "b": "Target"})[["Source", "Target"]]).edges) == [("x", "y"),
    ("y", "z")]
    assert list(load_graph(pd.DataFrame([[1, 2], [2, 3]])).edges) == [(1, 2), (2, 3)] and load_graph(pd.DataFrame([[1, 2], [2, 3]])).graph == {}
    assert list(load_graph(pd.DataFrame([["1", "2"]], columns=["p", "q"], dtype="category")).edges) == [(1, 2)]


@pytest.mark.parametrize(("given", "message"), [
    ({}, "unclear which of 'a', 'b', 'day'"), ({"columns": "a"}, "columns='a': expected a word for each of 3 columns.* among 'a', 'b', 'day'"),
    ({"columns": "a a"}, "columns='a a'"), ({"columns": "c b"}, "columns='c b'"), ({"columns": "i j wieght"}, "columns="), ({"columns": 3}, "columns=3"),
    ({"columns": "i j"}, "a word for each of 3 columns"),
])
def test_frames_that_are_refused(given, message):
    links = pd.DataFrame({"a": ["x", "y"], "b": ["y", None], "day": [1, 2]})
    with pytest.raises(ValueError, match=f"graph: .*{message}"): load_graph(links, **given)
    with pytest.raises(ValueError, match="row 1: expected two node names"): load_graph(links[["a", "b"]])
    with pytest.raises(ValueError, match="not hashable"): load_graph(pd.DataFrame({"a": [["x"]], "b": [["y"]]}))
    with pytest.raises(ValueError, match="for a table only"): load_graph("florentine", columns="a b")


def test_columns_of_a_file_and_of_a_frame_are_named_alike(tmp_path):
    frame = pd.DataFrame({"day": [1, 2], "guest": ["x", "y"], "host": ["y", "z"]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    with pytest.warns(UserWarning, match="'guest', 'host' are taken, 'day' left out"): one = load_graph(frame, columns=["guest", "host"])
    with pytest.warns(UserWarning, match="'guest', 'host' are taken, 'day' left out"): other = load_graph(tmp_path / "x.csv", columns="guest host")
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
    with pytest.raises(ValueError, match=r"between 'a' and 'b' has weight .*expected a positive, finite number"): gossip_matrix(nx.Graph([("a", "b", {"weight": weight})]), "given")


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


@pytest.mark.parametrize("name, text", [
    ("spaces.edgelist", "a b" + " " * 200_000 + "\nb c {}\n"), ("braces.edgelist", "a b" + ' {"x' * 50_000 + "\nb c {}\n"),
    ("lines.gml", "\n" * 200_000 + "graph [ node [ id 0 ] node [ id 1 ] edge [ source 0 target 1 ] ]"),
])
def test_long_lines_take_time_in_proportion(tmp_path, name, text):
    """A search that begins anew at each of 200,000 places would take minutes."""
    (tmp_path / name).write_text(text)
    began = time.process_time()
    with contextlib.suppress(ValueError): read_graph(tmp_path / name)
    assert time.process_time() - began < 5


def test_a_small_file_that_grows_is_refused_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr("mfdl.base.arguments._SHARE", 0.01)
    path = tmp_path / "grows.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 25_000_000, 1))
    assert path.stat().st_size < 2_000_000
    with pytest.raises(ValueError, match="grows.csv.gz.*bytes and more when it is unpacked.*expected a smaller file"): read_graph(path)


def test_only_gaps_before_attributes_are_taken_off():
    """A line without attributes stays as it is: its last column may be empty."""
    from mfdl.base.graph_files import _weighted
    lines = ["a\tb\t", "a b {}", "a, b ,\u00a0{'weight': 2}  ", "{'weight': 2}", "a b}"]
    assert _weighted(lines) == (["a\tb\t", "a b", "a, b", "{'weight': 2}", "a b}"], ["1", "1", "2", "1", "1"])
