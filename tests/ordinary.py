"""Sixty ordinary graphs: small, symmetric, lopsided or random, as users bring them."""
import networkx as nx


def _random(seed):
    return nx.compose(nx.path_graph(9), nx.gnp_random_graph(9, 0.35, seed=seed))


GRAPHS = {
    **{f"complete {n}": nx.complete_graph(n) for n in (2, 3, 4, 5, 6, 8)},
    **{f"ring {n}": nx.cycle_graph(n) for n in (4, 5, 6, 7, 8, 9, 12)},
    **{f"path {n}": nx.path_graph(n) for n in (3, 4, 5, 7, 10)},
    **{f"star {n}": nx.star_graph(n - 1) for n in (4, 5, 8, 12)},
    **{f"cube {d}": nx.convert_node_labels_to_integers(nx.hypercube_graph(d)) for d in (3, 4)},
    **{f"wheel {n}": nx.wheel_graph(n) for n in (6, 9)},
    **{f"bipartite {m} {n}": nx.complete_bipartite_graph(m, n) for m, n in ((2, 3), (3, 3), (2, 6))},
    **{f"grid {m} {n}": nx.convert_node_labels_to_integers(nx.grid_2d_graph(m, n)) for m, n in ((2, 4), (3, 3))},
    "torus": nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3, periodic=True)),
    "barbell": nx.barbell_graph(4, 0), "long barbell": nx.barbell_graph(3, 1), "lollipop": nx.lollipop_graph(4, 3),
    "caveman": nx.connected_caveman_graph(3, 4), "windmill": nx.windmill_graph(3, 3), "turan": nx.turan_graph(7, 3),
    "binary tree": nx.balanced_tree(2, 2), "tree": nx.balanced_tree(3, 2), "ladder": nx.ladder_graph(4), "prism": nx.circular_ladder_graph(5),
    "petersen": nx.petersen_graph(), "octahedron": nx.octahedral_graph(), "house": nx.house_graph(), "bull": nx.bull_graph(), "diamond": nx.diamond_graph(),
    "kite": nx.krackhardt_kite_graph(), "moebius": nx.circulant_graph(8, [1, 4]), "circulant": nx.circulant_graph(10, [1, 2]),
    "florentine": nx.florentine_families_graph(),
    **{f"random {seed}": _random(seed) for seed in range(4)},
    **{f"small world {seed}": nx.connected_watts_strogatz_graph(10, 4, 0.3, seed=seed) for seed in range(3)},
    **{f"scale-free {seed}": nx.barabasi_albert_graph(10, 2, seed=seed) for seed in range(2)},
}
