"""The streaming account is the exact one: drawn networks that change, coalitions, algorithms; long patterns; rounds as they happen."""
import subprocess
import sys

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from conftest import ROOT
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mfdl import account
from mfdl.accounting.account import account_by
from mfdl.accounting.methods.accountant import OnlineAccountant, restore, save
from mfdl.accounting.methods.exact import exact
from mfdl.accounting.methods.filters import STEADY, Filter, Settling, innovation_rows
from mfdl.accounting.methods.lipschitz import Lipschitz
from mfdl.accounting.methods.solver import certify
from mfdl.accounting.methods.state_space import NotStreamable, _exact_rank, state_space
from mfdl.accounting.methods.streaming import gramian_rows, stream
from mfdl.protocol.algorithms import decor, dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import churn, gossip_matrix
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.group_seeds import corn
from mfdl.protocol.methods.message_noise import zip_dl
from mfdl.protocol.methods.steps import Noise, Round, Step
from mfdl.protocol.methods.variants import anti_pgd, dsgd, muffliato
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import LDP, PNDP, SecLDP

FAST = settings(deadline=None, max_examples=40)


@st.composite
def runs(draw):
    """A drawn algorithm on a network that changes, and a drawn attacker."""
    n, T, seed = draw(st.integers(3, 7)), draw(st.integers(1, 20)), draw(st.integers(0, 10**6))
    graph = nx.gnp_random_graph(n, draw(st.sampled_from([0.3, 0.6, 1.0])), seed=seed)
    rng = np.random.default_rng(seed)
    period = draw(st.integers(1, 4))
    away = [sorted(rng.choice(n, draw(st.integers(0, n - 1)), replace=False).tolist()) for _ in range(period)]
    cycle = churn(graph, away, draw(st.sampled_from(["metropolis", "uniform"])))
    Ws = [cycle[t % period] for t in range(T)]
    kind = draw(st.sampled_from(["dp_dsgd", "muffliato", "decor", "secrets", "corn", "groups", "anti_pgd", "banded", "dsgd"]))
    if kind == "dp_dsgd": run = dp_dsgd(Ws, T)
    elif kind == "muffliato": run = muffliato(Ws, T, draw(st.integers(1, 5)))
    elif kind in ("decor", "secrets"): run = decor(Ws, T, 0.0 if kind == "secrets" else 0.3, 2.0)
    elif kind in ("corn", "groups"):
        half = n // 2 + 1
        groups = [list(range(half)), list(range(half - 1, n))] if kind == "groups" else None
        roots = [rng.normal(size=(n, n)) for _ in groups or [0]]
        parts = [(X @ X.T) * np.outer(mask, mask) for X, mask in zip(roots, ([np.isin(range(n), g) for g in groups] if groups else [np.ones(n)]), strict=True)]
        run = corn(Ws, T, parts if groups else parts[0], groups)
    elif kind == "anti_pgd": run = anti_pgd(Ws, T)
    elif kind == "banded":
        C = np.eye(T) + sum(np.diag(rng.normal(size=T - j) / 2, -j) for j in range(1, min(draw(st.integers(1, 3)), T)))
        run = mf_dsgd(Ws, T, C)
    else: run = dsgd(Ws, T)
    nodes = sorted(rng.choice(n, draw(st.integers(1, n - 1)), replace=False).tolist())
    trust = draw(st.sampled_from([LDP(), PNDP(nodes), SecLDP(nodes), SecLDP(nodes, "received")]))
    return run, trust


@FAST
@given(runs())
def test_streaming_is_exact(drawn):
    run, trust = drawn
    try:
        space = state_space(Attack(run, trust))
        streamed = stream(space)
    except NotStreamable: assume(False)
    whole = exact(Attack(run, trust))
    assert not (whole.uncovered & ~streamed.uncovered).any()
    if streamed.certain: np.testing.assert_array_equal(streamed.uncovered, whole.uncovered)
    safe = streamed.victims[~streamed.uncovered[:, streamed.victims].any(axis=0)]
    if not len(safe): return
    truth = whole.information(safe)
    size = max(1.0, np.abs(truth).max())
    for method in (innovation_rows, gramian_rows):
        for s, row in enumerate(method(Filter(space))):
            np.testing.assert_allclose(row[np.searchsorted(space.victims, safe)], truth[:, s, :s + 1], rtol=0, atol=1e-10 * size)


@pytest.mark.parametrize("apart", [1e-2, 1e-3, 1e-6, 1e-9, 1e-12, 3e-16, 0.0])
def test_messages_that_are_nearly_alike_are_told_apart_exactly_or_not_at_all(apart):
    """Two nodes whose weights differ by so little send the attacker sums, of which the difference is known to fewer than ten digits."""
    W = np.array([[0.4, 0.3, 0.3, 0, 0], [0, 0.5, 0.1, 0.2 + apart, 0.2 - apart], [0, 0.1, 0.5, 0.2, 0.2], [0, 0, 0, 0.8, 0.2], [0, 0, 0, 0.1, 0.9]])
    run, every = muffliato(W, 3, 2), Participation.every_step(3)
    exact = account_by("exact", run, PNDP([0]), every).sensitivity
    np.testing.assert_allclose(account(run, PNDP([0]), every).sensitivity, exact, rtol=1e-9)
    for backend in ("streaming", "seen"):
        if 0 < apart < 1e-5:
            with pytest.raises(NotStreamable, match="too nearly alike"): account_by(backend, run, PNDP([0]), every)
        else: np.testing.assert_allclose(account_by(backend, run, PNDP([0]), every).sensitivity, exact, rtol=1e-9)


@FAST
@given(runs(), st.sampled_from(["every", "single", "cyclic"]))
def test_every_backend_gives_one_account(drawn, scheme):
    run, trust = drawn
    halves = lambda T: Participation.cyclic(T // 2, 2) if T % 2 == 0 else Participation.every_step(T)  # noqa: E731
    participation = {"every": Participation.every_step, "single": Participation.single, "cyclic": halves}[scheme](run.T)
    auto, dense = (account_by(backend, run, trust, participation) for backend in ("auto", "dense"))
    np.testing.assert_allclose(auto.sensitivity, dense.sensitivity, rtol=1e-9, atol=1e-9)
    assert (auto.victims, auto.leaks, auto.adaptive) == (dense.victims, dense.leaks, dense.adaptive)


def test_many_attackers_are_each_attacker_alone():
    graph = nx.gnp_random_graph(9, 0.4, seed=2)
    run, every = dp_dsgd(gossip_matrix(graph), 6), Participation.cyclic(3, 2)
    trusts = [*PNDP.each(graph), LDP(), PNDP([0, 5])]
    together = account(run, trusts, every)
    alone = [account(run, trust, every) for trust in trusts]
    np.testing.assert_allclose(together.mu, np.concatenate([one.mu for one in alone]), rtol=1e-9)
    assert together.victims == sum((one.victims for one in alone), ())


def test_streaming_is_refused_where_it_does_not_apply():
    W, every = gossip_matrix(nx.path_graph(4)), Participation.every_step(3)
    with pytest.raises(NotStreamable, match="Zip-DL"): account_by("streaming", zip_dl(W, 3), PNDP([0]), every)
    assert np.isfinite(account(mf_dsgd(W, 3, np.tril(np.ones((3, 3)) + np.eye(3))), PNDP([0]), every).sensitivity).all()


def test_many_rounds_between_steps_do_not_leak():
    """Nearly parallel messages made the dense route give up; every node's noise covers its gradient, and no node learns more than an eavesdropper."""
    graph = nx.florentine_families_graph()
    run = muffliato(gossip_matrix(graph, "uniform"), 3, 20, nodes=graph)
    report = account(run, PNDP.each(graph), Participation.every_step(3))
    assert not report.leaks and (report.mu <= np.sqrt(3) * (1 + 1e-9)).all() and (report.mu > 0).all()


def test_long_patterns_are_certified():
    """More steps than the interior point takes at once: both sides feasible, a small gap, and a coarser solver agrees."""
    rng = np.random.default_rng(4)
    for k in (150, 400):
        t = np.arange(k)
        P = np.exp(-np.abs(t[:, None] - t) / 20) * np.cos((t[:, None] - t) / 7) + 0.1 * (lambda X: X @ X.T / k)(rng.normal(size=(k, k)))
        found = certify(P)
        assert np.linalg.eigvalsh(np.diag(found.y) - P)[0] >= -1e-12 * found.upper
        assert np.linalg.eigvalsh(found.Y)[0] >= -1e-9 and np.allclose(np.diag(found.Y), 1, atol=1e-12)
        assert found.gap <= 1e-6 and found.lower == pytest.approx((P * found.Y).sum(), rel=1e-12) and found.upper == pytest.approx(found.y.sum(), rel=1e-9)
    Y = cp.Variable((150, 150), PSD=True)
    P = P[:150, :150]
    assert cp.Problem(cp.Maximize(cp.trace(P @ Y)), [cp.diag(Y) == 1]).solve(solver=cp.SCS, eps=1e-5) == pytest.approx(certify(P).upper, rel=1e-3)


@settings(deadline=None, max_examples=20)
@given(st.integers(3, 6), st.integers(1, 9), st.integers(0, 10**6), st.integers(1, 3), st.sampled_from(["dp_dsgd", "muffliato", "decor", "secrets"]))
def test_online_is_the_account_of_the_rounds_so_far(n, rounds, seed, b, kind):
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(n, 0.6, seed=seed)
    Ws = churn(graph, [[int(rng.integers(n))] for _ in range(rounds)])
    algorithm = {"dp_dsgd": dp_dsgd, "muffliato": lambda Ws, T: muffliato(Ws, T, 3), "decor": decor, "secrets": lambda Ws, T: decor(Ws, T, 0.0)}[kind]
    trusts = [PNDP([0]), SecLDP([1]), LDP()]
    online = OnlineAccountant(trusts, b=b)
    run = algorithm(Ws, rounds)
    for t, step in enumerate(run.steps, start=1):
        report = online.feed(step)
        if t % b: continue
        offline = account(run.until(t), trusts, Participation.cyclic(t // b, b))
        np.testing.assert_allclose(report.sensitivity, offline.sensitivity, rtol=1e-8, atol=1e-9)
        assert report.leaks == offline.leaks and report.adaptive == offline.adaptive


def test_online_saved_anywhere_goes_on(tmp_path):
    Ws = churn(nx.cycle_graph(5), [[t % 5] for t in range(8)])
    whole = OnlineAccountant(PNDP.each(range(5)), b=2)
    for step in dp_dsgd(Ws, 8).steps: report = whole.feed(step)
    part = OnlineAccountant(PNDP.each(range(5)), b=2)
    for step in dp_dsgd(Ws, 8).steps:
        part.feed(step)
        part = restore(OnlineAccountant(PNDP.each(range(5)), b=2), save(part, tmp_path / "state"))
    np.testing.assert_array_equal(part.report().mu, report.mu)
    for other in (OnlineAccountant(PNDP.each(range(5)), b=1), OnlineAccountant(PNDP([0]), b=2), OnlineAccountant(PNDP.each(range(5)), b=2, sigma=2.0)):
        with pytest.raises(ValueError, match="about other"): restore(other, tmp_path / "state")


def test_rounds_left_is_the_last_round_within_budget():
    W = gossip_matrix(nx.cycle_graph(6))
    online, step = OnlineAccountant(PNDP.each(range(6)), sigma=3.0), dp_dsgd(W, 1)
    assert online.rounds_left(0.2, step) == 0
    left, hoped = (online.rounds_left(1.3, step, estimate=estimate) for estimate in (False, True))
    reports = [online.feed(step) for _ in range(left + 1)]
    assert reports[-2].proved.worst.mu <= 1.3 < reports[-1].proved.worst.mu and online.rounds_left(1.3) == 0
    mus = [report.mu.max() for report in reports] + [online.feed(step).mu.max() for _ in range(hoped - left)]
    assert left < hoped and mus[hoped - 1] <= 1.3 < mus[hoped]
    assert online.rounds_left(1e3, max_rounds=5) == 5


class Partly(PNDP):
    """A curious node that hears some of its neighbours only."""
    def __init__(self, node, heard):
        super().__init__([node])
        self.heard = heard

    def sees(self, messages, coalition): return super().sees(messages, coalition) & np.isin(messages.sender, [*self.nodes, *self.heard])


@pytest.mark.parametrize("heard", [[], [1], [2], [1, 2], [3], [1, 2, 3]])
@pytest.mark.parametrize("make", [dp_dsgd, anti_pgd, lambda W, T: muffliato(W, T, 2)])
def test_whoever_misses_messages_into_its_own_average_is_left_to_the_whole_view(make, heard):
    """It does not know its own model; the pass counts with one that is known, and would overstate or understate what is learned."""
    run, every = make(gossip_matrix(nx.Graph([(0, 1), (0, 2), (0, 3), (3, 4)])), 3), Participation.every_step(3)
    trust = Partly(0, heard)
    exact = account_by("exact", run, trust, every).sensitivity
    if heard == [1, 2, 3]: np.testing.assert_allclose(account_by("streaming", run, trust, every).sensitivity, exact, rtol=1e-9)
    else:
        with pytest.raises(NotStreamable, match="do not know their own models"): account_by("streaming", run, trust, every)
    np.testing.assert_allclose(account(run, trust, every).sensitivity, exact, rtol=1e-9)


class Forgetful(PNDP):
    """A curious node that does not know its own noise."""
    def knows_noise(self, variables, coalition): return np.zeros(len(variables.step), dtype=bool)


@pytest.mark.parametrize("make", [dp_dsgd, anti_pgd, lambda W, T: muffliato(W, T, 2)])
def test_whoever_does_not_know_its_own_noise_is_left_to_the_whole_view(make):
    run, every = make(gossip_matrix(nx.Graph([(0, 1), (0, 2), (0, 3), (3, 4)])), 3), Participation.every_step(3)
    exact = account_by("exact", run, Forgetful([0]), every).sensitivity
    assert (exact <= account(run, PNDP([0]), every).sensitivity * (1 + 1e-9)).all()
    with pytest.raises(NotStreamable, match="do not know their own models"): account_by("streaming", run, Forgetful([0]), every)
    np.testing.assert_allclose(account(run, Forgetful([0]), every).sensitivity, exact, rtol=1e-9)


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(2, 4), n=st.integers(2, 6))
@settings(max_examples=60, deadline=None)
def test_independent_rows_are_counted_as_by_singular_values(seed, steps, n):
    """Of what is heard in several rounds, where different nodes are heard in each."""
    rng = np.random.default_rng(seed)
    observed = [rng.integers(0, 2, size=(rng.integers(1, 4), n)).astype(float) for _ in range(steps)]
    Ws = [rng.integers(0, 3, size=(n, n)).astype(float) for _ in range(steps)]
    rows, product = [observed[0]], np.eye(n)
    for one, W in zip(observed[1:], Ws[:-1], strict=True):
        product = W @ product
        rows.append(one @ product)
    assert _exact_rank(observed, Ws) == np.linalg.matrix_rank(np.vstack(rows))


@pytest.mark.parametrize("size", [1.0, 1e3])
@pytest.mark.parametrize("ratio", [0.5, 0.9, 0.99, 0.999])
def test_what_settles_slowly_is_not_taken_for_settled(ratio, size):
    """Little change in a step is no reason, but for a change of some units in the last place: what is left is many steps."""
    settled, values = Settling(), size * (1 - ratio**np.arange(40_000.0))
    stopped = next(k for k in range(1, len(values)) if settled(values[k - 1:k], values[k:k + 1]))
    assert size - values[stopped] <= size * max(2 * STEADY, 2e-14 / (1 - ratio))


class Backwards(PNDP):
    """A curious node that puts down what it hears in another order."""
    def observation(self, run, coalition): return super().observation(run, coalition)[::-1]


@pytest.mark.parametrize("make", [dp_dsgd, anti_pgd, lambda W, T: muffliato(W, T, 2)])
def test_what_is_put_down_in_another_order_tells_the_same(make):
    """The pass takes rows round by round, so that rows in another order, by one round or by more, are for the whole view."""
    for T in (2, 4):
        run, every = make(gossip_matrix(nx.path_graph(3)), T), Participation.every_step(T)
        with pytest.raises(NotStreamable, match="several rounds"): account_by("streaming", run, Backwards([2]), every)
        np.testing.assert_allclose(account(run, Backwards([2]), every).sensitivity, account(run, PNDP([2]), every).sensitivity, rtol=1e-9)


@pytest.mark.parametrize("name", [path.stem if path.stem == "reactions" else pytest.param(path.stem, marks=pytest.mark.nightly)
                                  for path in sorted((ROOT / "benchmarks").glob("*.py")) if path.stem != "harness"])
def test_benchmark_runs(name, tmp_path):
    subprocess.run([sys.executable, ROOT / "benchmarks" / f"{name}.py", "--quick", "--output", tmp_path / "b"], check=True, capture_output=True)
    assert {p.suffix for p in tmp_path.iterdir()} == {".png", ".svg", ".csv", ".md"}


def test_doubtful_noise_is_left_to_the_dense_route():
    """Noise that rounding could hide beside stronger noise, and noise that grows without bound: refused, never a small number."""
    W, n = gossip_matrix(nx.path_graph(4), "uniform"), 4
    late = np.kron(np.eye(2), np.ones((2, 2)) / 2)
    fading = np.diag(np.where(np.arange(60) < 30, 1, 1e14))
    for run in (
        *(mf_dsgd(W, 6, [np.eye(6) * (weak if u == 1 else 1) for u in range(n)]) for weak in (1e9, 1e11, 1e13)),
        mf_dsgd(late, 60, [fading if u == 1 else np.eye(60) for u in range(n)]),
        mf_dsgd(W, 40, np.eye(40) - 2 * np.eye(40, k=-1)),
    ):
        every = Participation.every_step(run.T)
        with pytest.raises(NotStreamable): account_by("streaming", run, PNDP([0]), every)
        auto, dense = (account_by(how, run, PNDP([0]), every) for how in ("auto", "dense"))
        np.testing.assert_array_equal(auto.mu, dense.mu)


def test_online_takes_fresh_noise_only_and_keeps_its_state_on_errors():
    W, C = gossip_matrix(nx.path_graph(4)), np.eye(6) + 0.9 * np.eye(6, k=-2)
    with pytest.raises(NotStreamable, match="memory"): OnlineAccountant(LDP()).feed(mf_dsgd(W, 6, C))
    online = OnlineAccountant(PNDP([0]), b=10**6)
    assert online.feed(dp_dsgd(W, 1)).participation == Participation.single(1)
    for wrong, message in ((W, "expected a Step"), (zip_dl(W, 1), "noise on single messages"), (dp_dsgd(np.eye(3), 1), "expected those of the account")):
        with pytest.raises(ValueError, match=message): online.feed(wrong)
    assert online.t == 1
    with pytest.raises(ValueError, match="outside the coalition"): stream(state_space(Attack(dp_dsgd(W, 2), PNDP([0])))).information(0)


@pytest.mark.parametrize("updates", [None, Lipschitz(1)])
def test_an_account_that_is_gone_on_with_knows_what_each_step_was(tmp_path, updates):
    """Also of a step whose additions are divided by `back`."""
    step = Step(True, Noise(np.eye(4, dtype=bool), np.eye(4), 2 * np.eye(4)), [Round(gossip_matrix(nx.path_graph(4)))])
    accountant = OnlineAccountant(PNDP([0]), updates=updates)
    for _ in range(3): accountant.feed(step)
    again = restore(OnlineAccountant(PNDP([0]), updates=updates), save(accountant, tmp_path / "kept"))
    assert again.report().mu == pytest.approx(accountant.report().mu) and again.rounds_left(10) == accountant.rounds_left(10)
