"""Accounts of large networks: from what is seen, against the whole view, on sparse tables, and what is refused."""
import signal
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from mfdl import LDP, PNDP, Lipschitz, Participation, SecLDP, SecureSum, account
from mfdl.accounting.account import account_by
from mfdl.accounting.lemma14 import decompose, view
from mfdl.accounting.methods.all_attackers import exposure
from mfdl.accounting.methods.eavesdropper import independent
from mfdl.accounting.methods.exact import cost_of_exactness
from mfdl.accounting.methods.flow_plans import promise
from mfdl.accounting.methods.sparse_view import FromSeen, expected_cost, see
from mfdl.accounting.methods.state_space import NotStreamable
from mfdl.protocol.algorithms import decor, dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.attacker_names import parse_attackers
from mfdl.protocol.methods.attacks import Attack, coalition_mask
from mfdl.protocol.methods.checked_gossip import check_gossip, gossip_kinds
from mfdl.protocol.methods.executable import check_protocol_type
from mfdl.protocol.methods.group_seeds import corn
from mfdl.protocol.methods.message_noise import zip_dl
from mfdl.protocol.methods.steps import Noise, NoiseInTime, Round, Step
from mfdl.protocol.methods.variants import local_dsgd, muffliato
from mfdl.protocol.protocols import Protocol
from mfdl.tools.cli import app


def changing(W, T, rng):
    """A run with nodes that pause, exchanges that are left out, or a network that changes."""
    n = len(W)
    other = gossip_matrix(nx.gnp_random_graph(n, 0.6, seed=int(rng.integers(99))), "uniform")
    C = np.tril(rng.uniform(-0.5, 0.5, (T, T)), -1) + np.diag(rng.uniform(0.5, 2, T))
    make = rng.integers(7)
    if make == 0: return dp_dsgd([W, other] * (T // 2), T // 2 * 2)
    if make == 1: return muffliato(W, T, int(rng.integers(2, 4)))
    if make == 2: return local_dsgd(W, T, 2)
    if make == 3: return dp_dsgd(W, T, offline=0.3, seed=int(rng.integers(99)))
    if make == 4: return mf_dsgd(W, T, C)
    if make == 5: return mf_dsgd([W, other] * (T // 2), T // 2 * 2, C[:T // 2 * 2, :T // 2 * 2])
    return dp_dsgd(W, T)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore:graph has")
def test_what_is_seen_tells_what_the_whole_view_tells(seed):
    rng = np.random.default_rng(seed)
    n, T = int(rng.integers(3, 9)), int(rng.integers(2, 7))
    W = gossip_matrix(nx.gnp_random_graph(n, 0.5, seed=int(rng.integers(99))))
    run = changing(W, T, rng)
    nodes = rng.choice(n, int(rng.integers(1, n)), replace=False).tolist()
    trust = [PNDP(nodes), SecureSum(nodes), SecLDP(nodes), SecLDP(nodes, "received"), LDP()][int(rng.integers(5))]
    try: found = FromSeen(see(Attack(run, trust)))
    except NotStreamable: assume(False)  # it does not guess
    reduced = view(run, trust)
    other = decompose(reduced)
    assert np.allclose(found.information(reduced.victims), other.information(reduced.victims), rtol=1e-9, atol=1e-10)
    assert not other.uncovered.any() and found.seen.complete == reduced.complete


@pytest.mark.parametrize("scheme", [Participation.single(12), Participation.cyclic(3, 4), Participation.every_step(12), Participation.min_sep(2, 5, 12)])
@pytest.mark.parametrize("method", ["exact", "bound"])
@pytest.mark.parametrize("make", [lambda W: dp_dsgd(W, 12), lambda W: mf_dsgd(W, 12, np.eye(12) - 0.5 * np.eye(12, k=-1)),
                                  lambda W: mf_dsgd(W, 12, np.diag(np.linspace(1, 2, 12)))], ids=["fresh", "banded", "growing"])
def test_accounts_of_sparse_tables(make, method, scheme):
    graph = nx.barabasi_albert_graph(30, 2, seed=1)
    full, sparse = make(gossip_matrix(graph)), make(gossip_matrix(graph, sparse=True))
    for trust in (PNDP([7]), PNDP([0, 3]), LDP()):
        one, other = (account(run, trust, scheme, method=method) for run in (full, sparse))
        assert np.allclose(one.mu, other.mu, rtol=1e-8, atol=1e-12) and one.victims == other.victims and (one.distance == other.distance)[~np.isnan(one.distance)].all()
        assert one.adaptive == other.adaptive


@pytest.mark.filterwarnings("ignore:graph has")
def test_who_is_out_of_reach_has_nothing_to_fear():
    graph = nx.disjoint_union(nx.path_graph(6), nx.path_graph(3))
    report = account(dp_dsgd(gossip_matrix(graph, sparse=True), 4), PNDP([0]), Participation.every_step(4))
    mu = dict(zip(report.victims, report.mu, strict=True))
    assert all(mu[v] == 0 for v in (5, 6, 7, 8)) and mu[4] > 0 and report.distance[-1] == np.inf


def test_what_is_refused_in_sparse_networks():
    S = gossip_matrix(nx.path_graph(6), sparse=True)
    run, scheme = dp_dsgd(S, 4), Participation.every_step(4)
    with pytest.raises(ValueError, match="noise with a memory, and sparse gossip matrices"): account(mf_dsgd(S, 4, np.tri(4)), PNDP([0]), scheme, updates=Lipschitz(1.0))
    for call in (lambda: view(run, PNDP([0])),
                 lambda: decor(S, 4), lambda: corn(S, 4, np.eye(6)), lambda: run.M_G, lambda: check_gossip(S), lambda: check_protocol_type(run)):
        with pytest.raises(ValueError, match="sparse"): call()
    for wrong in (S * 2, csr_array(np.full((2, 3), 0.5)), -1 * S, csr_array(np.diag([np.nan, 1]))):
        with pytest.raises(ValueError, match="W"): check_gossip(wrong, sparse=True)
    with pytest.raises(ValueError, match="nodes share noise"): see(Attack(decor(S.toarray(), 4), PNDP([0])))
    with pytest.raises(ValueError, match="sizes"): gossip_kinds([S, gossip_matrix(nx.path_graph(5), sparse=True)], 2, sparse=True)


def test_what_does_not_fit_is_refused_before_any_work():
    run = dp_dsgd(gossip_matrix(nx.star_graph(40), sparse=True), 50)
    needed = expected_cost(see(Attack(run, PNDP([0])))).memory
    assert needed > 8 * 2000**2
    with pytest.raises(ValueError, match="memory: about .* GB are needed, .*2000 numbers that are seen of 40 nodes; expected fewer neighbours"):
        account(run, PNDP([0]), Participation.single(50), memory_limit=needed / 2)
    assert len(account(run, PNDP([0]), Participation.single(50), memory_limit=needed * 2).mu) == 40


@pytest.mark.parametrize("weeks", [False, True], ids=["one network", "one for each step"])
def test_the_memory_that_is_told_beforehand_is_taken(weeks):
    """To a fifth upwards, and never a small part of it."""
    graphs = [nx.star_graph(60), nx.barabasi_albert_graph(61, 3, seed=1)]
    run = dp_dsgd([gossip_matrix(graphs[t % (1 + weeks)], sparse=True) for t in range(24)], 24)
    attack = Attack(run, PNDP([0]))
    told = expected_cost(see(attack)).memory
    tracemalloc.start()
    account(run, PNDP([0]), Participation.single(24))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert told / 8 < peak < 1.2 * told + 2e6


def test_twice_the_nodes_from_which_something_arrives_are_twice_the_work():
    """For a leaf of a star, who sees one model in each step."""
    def work(n): return expected_cost(see(Attack(dp_dsgd(gossip_matrix(nx.star_graph(n), sparse=True), 12), PNDP([1])))).flops
    assert work(400) / work(200) == pytest.approx(2, rel=0.1)


def test_noise_with_a_memory_is_more_work():
    """The noise of all pairs of steps, for each pair of numbers that are seen."""
    W, T = gossip_matrix(nx.star_graph(40), sparse=True), 12
    plain, mixed = (expected_cost(see(Attack(run, PNDP([0])))).flops for run in (dp_dsgd(W, T), mf_dsgd(W, T, np.tri(T))))
    assert mixed > 2 * plain


def test_twice_the_steps_are_eight_times_the_work_without_rounding():
    """An elimination of all that is seen."""
    flops, memory = (np.array([cost_of_exactness(Attack(zip_dl(gossip_matrix(nx.cycle_graph(6)), T), PNDP([0])))[i] for T in (400, 800)]) for i in (0, 1))
    assert flops[1] / flops[0] == pytest.approx(8, rel=0.1) and memory[1] / memory[0] == pytest.approx(4)


@pytest.mark.parametrize("trust", [PNDP([140]), PNDP([140, 149]), SecLDP([5]), LDP()], ids=str)
def test_full_matrices_take_the_cheaper_route(trust, monkeypatch):
    """With numbers that are the same."""
    import mfdl.accounting.methods.ways as module
    run, scheme = dp_dsgd(gossip_matrix(nx.barabasi_albert_graph(150, 2, seed=0)), 5), Participation.single(5)
    slow = account_by("streaming", run, trust, scheme)
    monkeypatch.setattr(module, "stream", lambda *_: pytest.fail("the other route"))
    if trust.nodes and type(trust) is PNDP: assert np.allclose(account(run, trust, scheme).mu, slow.mu, rtol=1e-9, atol=1e-12)
    assert np.allclose(account_by("seen", run, trust, scheme).mu, slow.mu, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("more, says", [
    (("-T", 50_000, "-t", "pndp", "--attackers", "Medici"), "T=50000: pairs of steps of 14 victims, which takes about"),
    (("-T", 10**9), "steps=1000000000 of 15 nodes, which takes about"),
])
def test_too_many_steps_are_refused_before_any_work(more, says):
    done = subprocess.run(command("account", "florentine", "-t", "ldp", "--yes", *more), capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if not line.startswith("expected cost:")]
    assert done.returncode == 2 and len(said) == 1 and says in said[0] and "expected fewer" in said[0], done.stderr


def test_an_eavesdropper_on_independent_noise_is_a_sum():
    """Of as many steps as there are, without a table of their pairs; what is expensive needs a yes."""
    done = subprocess.run(command("account", "florentine", "-t", "ldp", "-T", 100_000), capture_output=True, text=True)
    assert done.returncode == 0 and "mu=316.2," in done.stdout and done.stderr == "expected cost: an eavesdropper, in closed form\n"
    done = subprocess.run(command("account", "erdos-renyi:n=1000,p=0.02", "-T", 2000, "-p", "cyclic:5,400"), capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: cost: 1,000 attackers, about ") and "sample:size=20,seed=0, or --yes" in done.stderr


def own_noise_run(seed):
    """Nodes with noise of their own, of different strengths, some of whom rest; now and then with what a sum cannot take."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    odd = rng.integers(8)  # 0 a basis, 1 noise that is shared, 2 noise that is used again, 3 a step without exchange, 4 a known seed
    basis = rng.normal(size=(n, n)) if odd == 0 else None
    steps = []
    for t in range(rng.integers(1, 5)):
        W = rng.random((n, n)) * (rng.random((n, n)) < 0.8) + 0.2 * np.eye(n)
        mix = np.diag(rng.uniform(0.3, 3, n))
        if odd == 1: mix[0, 1] = 0.5
        if odd == 2 and t: mix = np.hstack([0.5 * np.eye(n), mix])
        holders = np.eye(n, dtype=bool) | (mix[:, -n:].T != 0) | (odd == 0)
        if odd == 4: holders[:, 0] = True
        rounds = [] if odd == 3 and t else [Round(W / W.sum(axis=1, keepdims=True))] * int(rng.integers(1, 3))
        steps.append(Step(rng.random(n) < 0.8, Noise(holders, mix, basis=basis), rounds))
    return Protocol(None, steps)


def test_sums_of_who_hears_everything_are_the_whole_view():
    """Wherever the closed form is taken; it is not where noise is combined across nodes or in time."""
    taken = []
    for seed in range(400):
        run = own_noise_run(seed)
        for trust in (LDP(), SecLDP([0])):
            sums = independent(Attack(run, trust))
            taken.append(sums is not None)
            if sums is None: continue
            victims = np.flatnonzero(~coalition_mask(run, trust))
            whole = decompose(view(run, trust))
            assert not whole.uncovered[:, victims].any() and not sums.leaks
            assert np.allclose(sums.information(victims), whole.information(victims), rtol=1e-7, atol=1e-9), seed
    assert 150 < sum(taken) < 700, sum(taken)


def test_large_tables_are_sparse_unless_asked():
    graph = nx.path_graph(2001)
    assert isinstance(gossip_matrix(graph), csr_array) and isinstance(gossip_matrix(graph, sparse=False), np.ndarray)
    assert isinstance(gossip_matrix(nx.path_graph(2000)), np.ndarray)


def test_a_job_of_many_attackers_is_shared_out_and_gone_on_with(tmp_path):
    """On Dask workers, in any order, the numbers are those of one account for all."""
    from distributed import Client, LocalCluster
    graph = nx.barabasi_albert_graph(60, 2, seed=0)
    run, scheme, results = dp_dsgd(gossip_matrix(graph, sparse=True), 6), Participation.cyclic(2, 3), tmp_path / "kept.jsonl"
    exposure(run, PNDP.each(graph)[:10], scheme, results=results)
    with LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster, Client(cluster) as client:
        found = exposure(run, PNDP.each(graph), scheme, sigma=2.0, results=results, client=client)
    pairs = account(run, PNDP.each(graph), scheme, sigma=2.0).to_frame().groupby(["attacker", "distance"]).mu
    table = found.table.assign(attacker=found.table.attacker.astype(int)).set_index(["attacker", "distance"]).sort_index()
    for column, expected in (("least", pairs.min()), ("mean", pairs.mean()), ("largest", pairs.max()), ("victims", pairs.size())):
        assert np.allclose(table[column], expected.sort_index(), rtol=1e-9, atol=1e-12)
    assert len(results.read_text().splitlines()) == 61 and found.worst.mu == pytest.approx(pairs.max().max())
    with pytest.raises(ValueError, match="about another run"): exposure(run, PNDP.each(graph), Participation.single(6), results=results)
    results.write_text("a,b\n")
    with pytest.raises(ValueError, match="is no file of results"): exposure(run, PNDP.each(graph), scheme, results=results)


def command(*arguments): return [sys.executable, "-c", "from mfdl.tools.cli import app; app()", *map(str, arguments)]


def test_a_view_that_is_too_large_is_refused_before_any_work():
    with pytest.raises(ValueError, match="75000 messages of 150000 gradients and variables, in full"): view(dp_dsgd(gossip_matrix(nx.florentine_families_graph()), 5000), LDP())


def test_many_attackers_from_the_command_line(tmp_path):
    asked = f"account karate -T 6 --attackers sample:size=4,seed=0 --results {tmp_path / 'kept'} -o {tmp_path / 'table.csv'}".split()
    for _ in range(2):
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0 and "of the other nodes nothing is promised" in done.stdout and "expected cost:" in done.stderr, done.stderr
    assert len((tmp_path / "kept").read_text().splitlines()) == 5 and pd.read_csv(tmp_path / "table.csv").attacker.nunique() == 4
    for wrong, says in ((("--attackers", "sample:size=99,seed=0"), "expected at most 34"), (("--attackers", "sample:size=3"), "expected sample:size=...,seed=..."),
                        (("--results", tmp_path / "k", "--epsilon", 8), "no guarantee for others"), (("--results", tmp_path / "k", "-o", "a.png"), "expected the name of a .csv"),
                        (("--scheduler", "tcp://127.0.0.1:9"), "no Dask scheduler answers"), (("--backend", "seen"), "No such option")):
        done = CliRunner().invoke(app, ["account", "karate", "-T", "6", *map(str, wrong)])
        assert done.exit_code == 2 and says in done.stderr, done.stderr


@pytest.mark.alone
@pytest.mark.parametrize("more", [(), ("--results", "kept")], ids=["account", "many"])
def test_an_interruption_stops_within_two_seconds(more, tmp_path):
    asked = command("account", "erdos-renyi:n=200,p=0.1", "-T", 300, "--yes", *more)
    with subprocess.Popen(asked, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert "expected cost" in process.stderr.readline()
        time.sleep(1)
        begun = time.perf_counter()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        assert time.perf_counter() - begun < 2 and process.returncode == 130
    assert "stopped; " + ("what was found is in kept" if more else "nothing was written") in said


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore:graph has")
def test_rows_of_weights_are_the_tables(n, T, seed):
    """Noise in time, of a sparse network, is in every respect that of the full one."""
    rng = np.random.default_rng(seed)
    C = np.tril(rng.normal(size=(T, T)) * (rng.random((T, T)) < 0.5), -1) + np.diag(rng.uniform(0.5, 2, T))
    W = gossip_matrix(nx.gnp_random_graph(n, 0.6, seed=seed))
    full, sparse = mf_dsgd(W, T, C), mf_dsgd(csr_array(W), T, C)
    assert np.allclose(full.mix.N.toarray(), sparse.mix.N.toarray()) and np.allclose(full.mix.N.toarray(), np.kron(np.linalg.inv(C), np.eye(n)))
    assert (full.variables.holders == sparse.variables.holders.toarray()).all() and (full.kinds == sparse.kinds).all()
    for one, other in zip(full.steps, sparse.steps, strict=True):
        tables = Noise(np.eye(n), other.noise.mix, other.noise.back)
        assert isinstance(other.noise, NoiseInTime) and tables == one.noise
        for name in ("memory", "takes_back", "fresh", "alone", "q", "n"): assert getattr(one.noise, name) == getattr(other.noise, name)
        assert (one.noise.adds == other.noise.adds).all() and one.reach == other.reach


def test_strategies_need_no_tables_of_variables():
    C = np.linalg.cholesky(np.minimum.outer(np.arange(1, 61), np.arange(1, 61)) + np.eye(60))
    W = gossip_matrix(nx.cycle_graph(10_000))
    tracemalloc.start()
    run = mf_dsgd(W, 60, C)
    report = account(run, PNDP([0]), Participation.cyclic(4, 15), method="bound")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    near = [report.mu[report.victims.index(v)] for v in (1, 2, 3, 9_999)]
    assert near[0] > near[1] > near[2] > 0 and near[0] == pytest.approx(near[3])
    assert peak < 12 * 10_000 * 60 * 61 / 2 / 2  # half of what its tables would take


def test_strategy_on_the_command_line(tmp_path):
    (tmp_path / "ring.csv").write_text("\n".join(f"{v},{(v + 1) % 2001}" for v in range(2001)))
    np.save(tmp_path / "C.npy", np.tri(6) + np.eye(6))
    given = [str(tmp_path / "ring.csv"), "-a", "mf-dsgd", "--strategy", str(tmp_path / "C.npy"), "-T", "6", "-p", "cyclic:3,2"]
    for attacker in (["--trust", "ldp"], ["--attackers", "7"]):
        found = CliRunner().invoke(app, ["account", *given, *attacker])
        assert found.exit_code == 0 and "MF-D-SGD" in found.output and "2001 nodes" in found.output, found.output


def any_network(rng):
    """A small network, full and sparse, with a run that can be promised for, an attacker, a scheme and a constant."""
    n, T = int(rng.integers(4, 14)), int(rng.integers(2, 8))
    graph = nx.random_labeled_tree(n, seed=int(rng.integers(99))) if rng.random() < 0.5 else nx.gnp_random_graph(n, 0.4, seed=int(rng.integers(99)))
    make = [dp_dsgd, lambda W, T: muffliato(W, T, 2), lambda W, T: local_dsgd(W, T, 2), lambda W, T: dp_dsgd(W, T, offline=0.3, trains=0.8, seed=T)][int(rng.integers(4))]
    runs = [make(gossip_matrix(graph, sparse=sparse), T) for sparse in (False, True)]
    scheme = [Participation.single(T), Participation.every_step(T), Participation.min_sep(min(2, T), max(1, T // 3), T)][int(rng.integers(3))]
    c = rng.choice([0.5, 0.9, 1.0, 1.1, 1.4], (T, n))
    return runs, PNDP(rng.choice(n, int(rng.integers(1, 3)), replace=False).tolist()), scheme, Lipschitz([c[0, 0], c[0], c, c[:, :1]][int(rng.integers(4))])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore:graph has")
def test_promises_of_sparse_tables_are_those_of_full_ones(seed):
    (full, sparse), trust, scheme, updates = any_network(np.random.default_rng(seed))
    one, other = (promise(Attack(run, trust), scheme, updates) for run in (full, sparse))
    assert (other.sensitivity <= one.sensitivity * (1 + 1e-10)).all() and (one.victims == other.victims).all()
    if len(other.near) == full.n: assert np.allclose(one.sensitivity, other.sensitivity, rtol=1e-10, atol=0)  # everybody can be heard
    assert other.verify() < 1e-9


def cost_of_plan(made, victim, pattern, most, share):
    """Squared mu that a plan proves, by the recursion of the theorem in full tables: everybody pays `most` and no more than there is."""
    paths, d, cost = made.paths, np.zeros(made.paths.blocked.shape[1]), 0.0
    c, _ = made.updates.along(paths)
    for t in range(len(paths.blocked)):
        new = paths.moves[t] * (t in pattern) * paths.trains[t, victim]
        d[victim] += (1 - share) * new
        pays = np.where(paths.blocked[t], d, np.minimum(d, most[t]))
        shifts = pays + share * new * (np.arange(len(d)) == victim)
        cost += (shifts[shifts > 0]**2 / paths.strength[t][shifts > 0]**2).sum()
        if t + 1 < len(paths.blocked): d = np.where(paths.trains[t + 1], c[t + 1], 1) * (paths.transitions[t].toarray() @ (d - pays))
    return cost


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore:graph has")
def test_promises_near_and_far_are_proved_and_close_to_those_of_plans_for_everybody(seed):
    rng = np.random.default_rng(seed)
    (full, sparse), trust, scheme, updates = any_network(rng)
    best = promise(Attack(full, trust), scheme, updates)
    with pytest.MonkeyPatch.context() as patch:  # so that only some victims have plans of their own
        patch.setattr("mfdl.accounting.methods.flow_plans.KEPT_PROOFS", int(rng.choice([0, full.T * (full.n // 2)**2 * scheme.b])))
        made = promise(Attack(sparse, trust), scheme, updates)
    assert made.verify() < 1e-9 and (best.victims == made.victims).all()
    finite = np.isfinite(best.sensitivity)
    assert (np.isfinite(made.sensitivity) == finite).all() and ((made.sensitivity > 0) == (best.sensitivity > 0)).all()
    most = np.fmax(best.sensitivity, np.sqrt(scheme.k))  # single steps, added up, can be above the eavesdropper's
    assert (made.sensitivity >= best.lower * (1 - 1e-9))[finite].all() and (made.sensitivity <= most * (1 + 1e-9))[finite].all()
    positive = finite & (best.sensitivity > 0)
    assert (made.sensitivity[positive] <= 3 * best.sensitivity[positive]).all()
    if updates.c.max() <= 1: assert (made.sensitivity[positive] <= 1.5 * best.sensitivity[positive]).all()
    if scheme.separation != "exactly" or (made.near.size == full.n): return
    planned = made.victims[np.isin(made.victims, made.near)].tolist()
    c, _ = made.updates.along(made.paths)
    patterns = [pattern for pattern in scheme.patterns()][:1 if made.paths.begins_anywhere and (c == c[0]).all() else None]
    for victim, route, value in zip(made.victims, made.routes, made.sensitivity, strict=True):
        if not np.isfinite(value): continue
        most, worst = np.zeros((len(patterns), *made.paths.blocked.shape)), 0.0
        if route == "flow": most[:, :, made.near] = made.plans.reshape(full.T, len(made.near), len(planned), -1)[:, :, planned.index(victim)].transpose(2, 0, 1)
        for pattern, limits in zip(patterns, most, strict=True):
            shares = [0, 0.5, 1] if route == "together" else [0]
            parabola = np.polynomial.Polynomial.fit(shares, [cost_of_plan(made, victim, pattern, limits, share) for share in shares], len(shares) - 1).convert()
            best_share = np.clip(parabola.deriv().roots(), 0, 1) if parabola.degree() and parabola.coef[-1] > 0 else [0.0]
            worst = max(worst, min(cost_of_plan(made, victim, pattern, limits, share) for share in [0, 1, *best_share][:1 if route == "flow" else None]))
        assert worst <= value**2 * (1 + 1e-9) + 1e-300


def test_promises_of_a_network_of_thousands(monkeypatch):
    monkeypatch.setattr("mfdl.accounting.methods.flow_plans.KEPT_PROOFS", 2**20)
    graph = nx.random_regular_graph(4, 2500, seed=0)
    run = dp_dsgd(gossip_matrix(graph), 12)
    report = account(run, PNDP([0]), Participation.cyclic(2, 6), updates=Lipschitz(1))
    assert set(report.routes) == {"flow", "together"} and np.isnan(report.gap) and "together" in repr(report)
    assert (report.mu >= report.nonreacting * (1 - 1e-9)).all() and report.mu.max() <= np.sqrt(2) * (1 + 1e-12) and report.verify() < 1e-9
    means = [report.mu[report.distance == hops].mean() for hops in range(1, int(report.distance.max()) + 1)]
    assert (np.diff(means) < 0).all() and (report.mu[np.equal(report.routes, "flow")] > 0).all()
    several = account(run, [PNDP([0]), PNDP([7])], Participation.cyclic(2, 6), updates=Lipschitz(1))
    assert np.allclose(several.mu[:2499], report.mu, rtol=1e-12)
    with pytest.raises(ValueError, match="proofs were not kept"): several.verify()


def test_results_of_other_attackers_are_not_taken(tmp_path):
    """What an attacker overhears, who hears what, and nodes that look alike: nothing of it is read from the file of another."""
    W, scheme, kept = gossip_matrix(nx.path_graph(5)), Participation.every_step(3), tmp_path / "kept.jsonl"
    run = dp_dsgd(W, 3)
    exposure(run, [SecLDP([0], observes="received")], scheme, results=kept)
    with pytest.raises(ValueError, match="about another run"): exposure(run, [SecLDP([0])], scheme, results=kept)
    with pytest.raises(ValueError, match="of one kind"): exposure(run, [PNDP([0]), SecLDP([1])], scheme)
    exposure(run, [PNDP([0])], scheme, results=tmp_path / "promised.jsonl", updates=Lipschitz([0.1, 2, 2, 2, 2]))
    for other in (Lipschitz([2, 2, 2, 2, 0.1]), Lipschitz([0.1, 2, 2, 2, 2.0004]), Lipschitz([0.1, 2, 2, 2, 2], 0.1)):
        with pytest.raises(ValueError, match="about another run"): exposure(run, [PNDP([0])], scheme, results=tmp_path / "promised.jsonl", updates=other)
    def elsewhere(messages): return Protocol.from_matrices(run.M_G, run.M_Z, messages, run.variables, None, 3)
    deaf = replace(run.messages, receiver_sets=np.zeros_like(run.messages.receiver_sets))
    exposure(elsewhere(run.messages), [PNDP([0])], scheme, results=tmp_path / "matrices.jsonl")
    exposure(elsewhere(run.messages), [PNDP([0])], scheme, results=tmp_path / "matrices.jsonl")
    with pytest.raises(ValueError, match="about another run"): exposure(elsewhere(deaf), [PNDP([0])], scheme, results=tmp_path / "matrices.jsonl")
    alike = dp_dsgd(W, 3, nodes=[1, "1", 2, 3, 4])
    with pytest.raises(ValueError, match="have the same text"): exposure(alike, [PNDP([1])], scheme)
    with pytest.raises(ValueError, match="have the same text"): parse_attackers("1", alike.nodes)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_promise_needs_no_number_for_gradients_that_do_not_react(seed):
    """Nodes that do not train add no noise, what they send repeats itself, and floating point doubts: the promise of sparse tables stands, as of full ones."""
    W, scheme = gossip_matrix(nx.cycle_graph(9)), Participation.cyclic(3, 2)
    sparse, full = (dp_dsgd(one, 6, trains=0.5, seed=seed) for one in (csr_array(W), W))
    with pytest.raises(NotStreamable, match="W.toarray"): account(sparse, PNDP([0]), scheme)
    found, expected = (account(run, PNDP([0]), scheme, updates=Lipschitz(1.0)) for run in (sparse, full))
    np.testing.assert_allclose(found.mu, expected.mu, rtol=1e-4)
    assert found.adaptive and np.isnan(found.nonreacting).all() and not np.isnan(expected.nonreacting).any() and repr(found)
