"""What attackers learn who are shown every noisy gradient: against the covariance of the noise, above every attack on reacting gradients, and what budgets are kept by."""
import itertools

import networkx as nx
import numpy as np
import pytest
from protocols import random_protocol

from mfdl import LDP, PNDP, Lipschitz, Participation, Protocol, SecLDP, SecureSum, account, anti_pgd, decor, dp_dsgd, gossip_matrix, local_dsgd, mf_dsgd, zip_dl
from mfdl.accounting.methods.proved_for_training import noisy_gradients_account
from mfdl.accounting.methods.schedules import Schedule, ScheduledProtocol


def additions(run):
    "What each node adds to its model in each step, (T, n, q), by the rules of `Noise`."
    n, q, steps = run.n, int(run.drawn[-1]), []
    added = np.zeros((0, q))
    for t, step in enumerate(run.steps):
        mix, back = step.noise.mix.toarray(), step.noise.back.toarray()
        mixed = np.zeros((n, q))
        mixed[:, run.drawn[t + 1] - mix.shape[1]:run.drawn[t + 1]] = mix
        for u in range(n):
            row = back[u][:back.shape[1] - n + u + 1]  # up to its own
            before = added[len(added) - len(row) + 1:]
            added = np.vstack([added, (mixed[u] - row[:-1] @ before) / row[-1]])
        last = added[-n:]
        steps.append(last if step.noise.basis is None else step.noise.basis @ last)
    return np.array(steps)


def coalition_of(rng, n):
    "Some nodes, or none, and who they are to the account."
    nodes = sorted(rng.permutation(n)[:rng.integers(0, n)].tolist())
    kinds = [PNDP, SecLDP, SecureSum, lambda some: SecLDP(some, "received")]
    return nodes, kinds[rng.integers(4)](nodes) if nodes else LDP()


def unknown(run, nodes):
    "Which variables nobody in a coalition holds, (q,)."
    holders = np.asarray(run.variables.holders)
    return ~holders[:, nodes].any(axis=1)


def information(A, B):
    "P of one record in all steps, A (o, T), and where no noise covers it."
    U, sizes, _ = np.linalg.svd(B)
    rank = int((sizes > 1e-9 * max(1, sizes.max(initial=0))).sum())
    covered = np.abs(U[:, rank:].T @ A).max(axis=0, initial=0) < 1e-7
    seen = (U[:, :rank] / sizes[:rank]).T @ A
    return seen.T @ seen, covered


def in_messages(run):
    "Which variables enter single messages, (q,)."
    used = np.zeros(int(run.drawn[-1]), dtype=bool)
    for t, step in enumerate(run.steps):
        for one in step.rounds:
            if one.share is None: continue
            first = run.drawn[t + 1] - one.share.shape[1]
            used[first + np.flatnonzero(np.abs(one.share.toarray()).sum(axis=0))] = True
    return used


def small_run(seed):
    "A run without noise of single messages."
    rng = np.random.default_rng(seed)
    W = gossip_matrix(nx.connected_watts_strogatz_graph(4, 2, 0.5, seed=seed), str(rng.choice(["metropolis", "uniform"])))
    T = 4
    C = np.tril(rng.uniform(-0.4, 0.4, (T, T)), -1) + np.diag(rng.uniform(0.5, 1.5, T))
    makers = [lambda: dp_dsgd(W, T), lambda: decor(W, T, 0.5, 2.0), lambda: anti_pgd(W, T), lambda: mf_dsgd(W, T, C), lambda: local_dsgd(W, T, every=2)]
    return makers[seed % 5](), rng


def test_it_is_the_covariance_of_the_noise():
    finite = infinite = 0
    for seed in range(90):
        run, rng = small_run(seed) if seed < 25 else (random_protocol(seed), np.random.default_rng(seed))
        if run.n == 1: continue
        nodes, trust = coalition_of(rng, run.n)
        N = additions(run)
        if (in_messages(run) & (N != 0).any(axis=(0, 1))).any():
            assert np.isinf(noisy_gradients_account(run, trust, Participation.single(run.T)).mu).all()
            continue
        found = [noisy_gradients_account(run, trust, scheme, method="bound") for scheme in (Participation.single(run.T), Participation.every_step(run.T))]
        B = N[:, :, unknown(run, nodes)].reshape(run.T * run.n, -1)
        for i, u in enumerate(np.setdiff1d(np.arange(run.n), nodes)):
            A = np.zeros((run.T * run.n, run.T))
            A[np.arange(run.T) * run.n + u, np.arange(run.T)] = run.trains[:, u]
            P, covered = information(A, B)
            expected = np.sqrt([P.diagonal().max(), np.abs(P).sum()]) if covered.all() else [np.inf] * 2
            np.testing.assert_allclose([one.sensitivity[i] for one in found], expected, rtol=1e-6, atol=1e-9)
            finite, infinite = finite + covered.all(), infinite + (not covered.all())
    assert finite > 30 and infinite > 30


def test_of_a_single_node_nothing_is_sent():
    assert not noisy_gradients_account(dp_dsgd(np.eye(1), 3), LDP(), Participation.every_step(3)).mu.any()


def attack(run, nodes, hears_all, react):
    "View of a coalition if gradients react to their nodes' models: coefficients of gradients (o, T, n), and of unknown noise (o, q)."
    n, T, q = run.n, run.T, int(run.drawn[-1])
    N, models, seen = additions(run), np.zeros((n, T * n + q)), []
    for t, step in enumerate(run.steps):
        gradients = react[t][:, None] * models * step.trains[:, None]
        gradients[np.arange(n), t * n + np.arange(n)] += step.trains
        models = models + gradients
        models[:, T * n:] += N[t]
        for one in step.rounds:
            heard = [u for u in range(n) if (np.delete(one.W[:, u], u).any() if hears_all else any(one.W[v, u] and v != u for v in nodes))]
            seen += [models[u] for u in heard]
            models = one.W @ models
    rows = np.array(seen).reshape(-1, T * n + q)
    return rows[:, :T * n].reshape(-1, T, n), rows[:, T * n:][:, unknown(run, nodes)]


def test_no_linear_reaction_reaches_it():
    beyond = closest = 0
    for seed in range(40):
        run, rng = small_run(seed)
        nodes = [] if rng.random() < 0.3 else rng.permutation(4)[:rng.integers(1, 3)].tolist()
        hears_all = not nodes or rng.random() < 0.3
        trust = LDP() if not nodes else (SecLDP if hears_all else PNDP)(nodes)
        one, every = (account(run, trust, scheme) for scheme in (Participation.single(run.T), Participation.every_step(run.T)))
        assert (one.proved.mu >= one.mu * (1 - 1e-9)).all() and (every.proved.mu >= every.mu * (1 - 1e-9)).all()
        for strength in (0.5, 3.0, 30.0):
            A, B = attack(run, nodes, hears_all, strength * rng.uniform(-1, 1, (run.T, 4)))
            for i, u in enumerate(np.setdiff1d(np.arange(4), nodes)):
                P, covered = information(A[:, :, u], B)
                assert covered.all() or np.isinf(every.proved.mu[i])
                if not np.isfinite(every.proved.mu[i]): continue
                signs = np.array([*itertools.product([-1, 1], repeat=run.T)])
                reached = np.sqrt([P.diagonal().max(), max(d @ P @ d for d in signs)])
                assert (reached <= np.array([one.proved.mu[i], every.proved.mu[i]]) * (1 + 1e-6)).all()
                beyond += bool(reached[1] > 1.01 * every.mu[i])
                closest = max(closest, reached[1] / every.proved.mu[i])
    assert beyond > 20 and closest > 0.9  # attacks that exceed the estimate, and come close to what is proved


def test_promises_are_below_it_where_noise_is_fresh_and_of_each_node_alone():
    W, scheme = gossip_matrix(nx.path_graph(5)), Participation.cyclic(2, 3)
    for run in (dp_dsgd(W, 6), local_dsgd(W, 6, every=3)):
        promised = account(run, PNDP([0]), scheme, updates=Lipschitz(1))
        assert (promised.mu <= account(run, PNDP([0]), scheme).proved.mu * (1 + 1e-6)).all()


def test_insiders_of_shared_noise_get_the_smaller_number():
    run, scheme = decor(gossip_matrix(nx.cycle_graph(5)), 6, 0.5, 2.0), Participation.cyclic(2, 3)
    shown, promised = account(run, PNDP([0]), scheme).proved, account(run, PNDP([0]), scheme, updates=Lipschitz(1))
    assert (promised.mu <= shown.mu * (1 + 1e-9)).all() and "noisy gradients" in promised.routes
    np.testing.assert_allclose(shown.mu, account(run, SecLDP([0]), scheme).mu, rtol=1e-9)  # gradients are sent one by one


def test_schedules_do_not_matter_and_matrices_are_not_known():
    run, scheme = dp_dsgd(gossip_matrix(nx.path_graph(4)), 6), Participation.every_step(6)
    momentum = ScheduledProtocol(run, Schedule(np.geomspace(1, 0.1, 6), momentum=0.9, weight_decay=0.1))
    np.testing.assert_allclose(noisy_gradients_account(momentum, PNDP([0]), scheme).mu, np.sqrt(6), rtol=1e-12)
    zipped = account(zip_dl(gossip_matrix(nx.cycle_graph(4)), 3, self_noise=True), PNDP([0]), Participation.every_step(3))
    assert np.isinf(zipped.proved.mu).all() and "no finite mu is proved" in repr(zipped)
    with pytest.raises(ValueError, match="nothing is proved"): zipped.calibrate(8, 1e-6)


def test_knowledge_that_no_member_holds_is_not_covered():
    class Spy(PNDP):
        def knows_noise(self, variables, coalition): return np.ones(len(variables.step), dtype=bool)
    report = account(dp_dsgd(gossip_matrix(nx.path_graph(4)), 3), Spy([0]), Participation.single(3))
    assert np.isinf(report.proved.mu).all()


def test_local_steps_hide_nothing_from_reactions():
    run, scheme = local_dsgd(gossip_matrix(nx.cycle_graph(4)), 20, every=5), Participation.cyclic(4, 5)
    for trust in (SecLDP([0]), LDP(), PNDP([0])):
        report = account(run, trust, scheme)
        assert not report.adaptive and report.worst.mu < 0.9 and "SecLDP" not in report.assumes
        np.testing.assert_allclose(report.proved.mu, 2, rtol=1e-9)
        np.testing.assert_allclose(account(run, trust, scheme, updates=Lipschitz(1)).worst.mu, 2, rtol=1e-6)
        assert report.calibrate(8, 1e-6).worst.epsilon(1e-6) == pytest.approx(8) and report.calibrate(8, 1e-6).worst.mu == pytest.approx(2 / report.calibrate(8, 1e-6).sigma)


def test_a_budget_is_kept_by_what_is_proved():
    run, scheme = dp_dsgd(gossip_matrix(nx.cycle_graph(8)), 20), Participation.cyclic(4, 5)
    report = account(run, PNDP.each(range(8)), scheme)
    for delta in (1e-6, 1e-3):
        kept, wished = report.calibrate(3, delta), report.calibrate(3, delta, estimate=True)
        assert kept.adaptive and not wished.adaptive and (kept.epsilon(delta).name, wished.epsilon(delta).name) == ("epsilon", "estimated_epsilon")
        assert kept.proved is kept and wished.proved.worst.epsilon(delta) > 3.1
        for one, limit in ((kept, 3), (wished, np.inf)):
            promised = account(run, PNDP.each(range(8)), scheme, one.sigma, updates=Lipschitz(1))
            assert promised.worst.epsilon(delta) <= limit * (1 + 1e-9)
        assert account(run, PNDP.each(range(8)), scheme, wished.sigma, updates=Lipschitz(1)).worst.epsilon(delta) > 3.1
    with pytest.raises(ValueError, match="nothing is estimated"): account(run, LDP(), scheme).calibrate(3, 1e-6, estimate=True)


def test_step_by_step_it_is_the_same():
    from mfdl.accounting.methods.accountant import OnlineAccountant
    W = gossip_matrix(nx.cycle_graph(5))
    changing = Protocol(None, [*dp_dsgd(W, 2).steps, *decor(W, 2, 2.0, 0.0).steps])
    for run in (changing, decor(W, 4, 0.5, 2.0), local_dsgd(W, 4, every=2)):
        trusts = [PNDP([0]), PNDP([1, 2]), LDP()]
        online = OnlineAccountant(trusts, b=2, sigma=1.5)
        at_once = account(run, trusts, Participation.cyclic(2, 2), 1.5)
        step_by_step = online.feed(run)
        assert not step_by_step.adaptive
        np.testing.assert_allclose(step_by_step.proved.mu, at_once.proved.mu, rtol=1e-9)


def test_rounds_are_counted_by_what_is_proved():
    from mfdl.accounting.methods.accountant import OnlineAccountant
    run = local_dsgd(gossip_matrix(nx.cycle_graph(4)), 5, every=5)
    online = OnlineAccountant(LDP(), b=5)
    assert online.feed(run).worst.mu < 0.5
    left = online.rounds_left(1.5, run)
    for _ in range(left): last = online.feed(run.steps[-1])
    assert (last if left else online.report()).proved.worst.mu <= 1.5 < online.feed(run).proved.worst.mu
    fresh = OnlineAccountant(LDP(), b=5)
    fresh.feed(run)
    assert fresh.rounds_left(1.5, run, 40, estimate=True) > fresh.rounds_left(1.5, run, 40) == left


def test_a_command_and_a_page_keep_a_budget_by_what_is_proved():
    import re
    from dataclasses import replace

    from click.testing import CliRunner

    from mfdl.tools.cli import app
    from mfdl.tools.settings import Settings, explore, table_of_pairs
    from mfdl.tools.view import answer, caution
    asked = ["account", "ring:n=4", "-a", "local-dsgd:every=5", "--trust", "secldp", "--attackers", "0", "-p", "cyclic:4,5"]
    plain, kept, wished = (CliRunner().invoke(app, asked + more).stdout for more in ([], ["--epsilon", "8"], ["--epsilon", "8", "--estimate"]))
    assert "mu=0.8944 by an estimate; proved for training: mu=2" in plain and "estimated_epsilon" in plain and not re.search(r"\bepsilon\b(?!=)", plain.split("\n\n")[1])
    assert "epsilon=8 at" in kept and "estimate" not in kept and "by an estimate; proved for training" in wished
    sigma = {text: float(re.search(r"sigma=([\d.]+)", text)[1]) for text in (kept, wished)}
    assert sigma[kept] / sigma[wished] == pytest.approx(np.sqrt(5), rel=1e-4)
    assert CliRunner().invoke(app, [*asked, "--estimate"]).exit_code
    page = Settings("ring:n=4", algorithm="local-dsgd:every=5", trust="secldp", attackers=("0",), T=20, participation="cyclic:4,5")
    view = explore(page)
    assert "an estimate" in answer(view) and "Proved for training: μ at most 2," in answer(view) and "no promise" in caution(view)
    table = table_of_pairs(view)
    assert "epsilon" not in table.columns and table.proved_mu.to_numpy() == pytest.approx(2)
    promised = explore(replace(page, sigma=None, epsilon=8.0))
    assert promised.report.adaptive and promised.report.sigma == pytest.approx(sigma[kept], rel=1e-5) and "a promise for training" in answer(promised)
    assert "whatever the model" in caution(promised) and table_of_pairs(promised).epsilon.to_numpy() == pytest.approx(8)


def test_results_of_earlier_versions_are_refused(tmp_path):
    import json

    from mfdl.accounting.methods.all_attackers import exposure
    run, scheme, path = dp_dsgd(gossip_matrix(nx.path_graph(4)), 4), Participation.every_step(4), tmp_path / "kept.jsonl"
    found = exposure(run, PNDP.each(range(4)), scheme, results=path)
    assert found.worst.mu == pytest.approx(2) and found.table.largest.max() <= 2 * (1 + 1e-9) and exposure(run, PNDP.each(range(4)), scheme, results=path).worst == found.worst
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({"exposure": json.loads(header)["exposure"]}), *lines, ""]))
    with pytest.raises(ValueError, match="written by another version.*what is proved for training"): exposure(run, PNDP.each(range(4)), scheme, results=path)


def test_of_whom_nothing_ever_comes_nothing_is_learned():
    """Two networks without a path between them: for any reactions, at once and step by step; within one, the number stays."""
    from mfdl.accounting.methods.accountant import OnlineAccountant
    W = np.kron(np.eye(2), gossip_matrix(nx.path_graph(3)))
    run, trusts = dp_dsgd(W, 4), [PNDP([0]), SecLDP([0], "received"), SecureSum([0])]
    for report in (account(run, trusts, Participation.cyclic(2, 2)), OnlineAccountant(trusts, b=2).feed(run)):
        far = np.array([v > 2 for v in report.victims])
        assert not report.proved.mu[far].any() and (report.proved.mu[~far] == pytest.approx(np.sqrt(2)))
    assert account(run, SecLDP([0]), Participation.cyclic(2, 2)).proved.mu == pytest.approx(np.sqrt(2))
