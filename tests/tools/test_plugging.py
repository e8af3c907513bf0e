"""What other tools take from this package, and what it takes from them: events of dp_accounting, and logs of messages."""
import json
import re
from dataclasses import replace

import dp_accounting
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from mfdl import LDP, PNDP, GaussianDP, Lipschitz, Noise, Participation, Protocol, Round, SecLDP, Step, account, dp_dsgd, dsgd, gossip_matrix, local_dsgd
from mfdl.protocol.algorithms import decor, mf_dsgd
from mfdl.protocol.methods.group_seeds import corn
from mfdl.protocol.methods.message_noise import zip_dl
from mfdl.protocol.methods.token import random_walk
from mfdl.protocol.methods.variants import anti_pgd, muffliato
from mfdl.tools.cli import app
from mfdl.tools.logs import MessageLog, read_log, write_log

W = gossip_matrix(nx.path_graph(4))
REPORT = account(dp_dsgd(W, 3), PNDP.each(range(4)), Participation.every_step(3), sigma=2.0)


def spent(accountant, *events):
    for event in events: accountant.compose(event)
    return accountant.get_epsilon(1e-6)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0, 20.0])
def test_accountants_of_others_agree_about_the_worst_pair(sigma):
    report = replace(REPORT, sigma=sigma)
    epsilon = report.epsilon(1e-6).max()
    assert epsilon > 0
    assert spent(PLDAccountant(), report.to_dp_event()) == pytest.approx(epsilon, rel=1e-3)
    orders = 1 + np.logspace(-2, 3, 400)  # RDP is an upper bound, up to a third too large (chapter 08)
    assert epsilon <= spent(RdpAccountant(orders), report.to_dp_event()) <= 1.34 * epsilon


def test_an_event_is_what_is_proved_for_training():
    assert not REPORT.adaptive and REPORT.to_dp_event() == REPORT.proved.worst.to_dp_event()
    local = account(local_dsgd(W, 3, every=3), LDP(), Participation.every_step(3))
    assert local.to_dp_event() == local.proved.worst.to_dp_event() != local.worst.to_dp_event()
    for report in (account(dp_dsgd(W, 3), LDP(), Participation.every_step(3)), account(dp_dsgd(W, 3), PNDP([0]), Participation.every_step(3), updates=Lipschitz(1))):
        assert report.to_dp_event() == report.worst.to_dp_event()


def test_events_compose_with_others_as_mus_do():
    whole = GaussianDP(0.7).compose(REPORT.proved.worst)
    assert spent(PLDAccountant(), REPORT.to_dp_event(), dp_accounting.GaussianDpEvent(1 / 0.7)) == pytest.approx(whole.epsilon(1e-6), rel=1e-3)


def test_an_event_never_promises_more_than_mu():
    for mu in np.random.default_rng(0).lognormal(0, 3, 1000): assert GaussianDP(1 / GaussianDP(mu).to_dp_event().noise_multiplier).mu >= mu
    for tiny in (5e-324, 1e-310): assert GaussianDP(tiny).to_dp_event().noise_multiplier < np.inf


def test_without_noise_an_event_is_not_private():
    bare = account(dsgd(W, 2), LDP(), Participation.single(2))
    assert bare.leaks and bare.to_dp_event() == dp_accounting.NonPrivateDpEvent()
    assert spent(RdpAccountant(), bare.to_dp_event()) == np.inf
    assert set(bare.advantage()) == {1.0} and set(bare.beta(0.2)) == {0.0}


@pytest.mark.parametrize("mu", [0.0, 0.01, 0.5, 2.0, 6.0])
def test_the_trade_off_is_that_of_two_normal_distributions(mu):
    for alpha in (1e-9, 0.05, 0.5, 0.95):
        threshold = stats.norm.isf(alpha)
        assert GaussianDP(mu).beta(alpha) == pytest.approx(stats.norm(mu, 1).cdf(threshold), rel=1e-9)
    gap = optimize.minimize_scalar(lambda x: stats.norm.cdf(x, mu) - stats.norm.cdf(x), bounds=(-2, 8), method="bounded", options={"xatol": 1e-9})
    assert GaussianDP(mu).advantage() == pytest.approx(-gap.fun, abs=1e-9)


def test_errors_of_each_pair_stand_in_the_order_of_the_table():
    beta = REPORT.beta(0.1)
    assert list(beta) == [GaussianDP(mu).beta(0.1) for mu in REPORT.to_frame().mu]
    assert list(REPORT.advantage()) == [GaussianDP(mu).advantage() for mu in REPORT.to_frame().mu]
    assert (beta.name, REPORT.advantage().name) == ("beta", "advantage") and beta.nunique() > 1
    with pytest.raises(ValueError, match="alpha=-0.1: expected a probability"): REPORT.beta(-0.1)


def written(run, scheme, folder, sigma=1.5, **units):
    path = folder / f"{len(list(folder.iterdir()))}.jsonl"
    write_log(run, scheme, sigma, path, **units)
    return read_log(path)


M = np.random.default_rng(3).random((4, 4))
STAR, PATH, DIRECTED = gossip_matrix(nx.star_graph(3)), W, M / M.sum(axis=1, keepdims=True)
RUNS = {
    "DP-D-SGD": dp_dsgd(PATH, 4), "changing": dp_dsgd([PATH, STAR, DIRECTED, PATH], 4), "at times": dp_dsgd([PATH, STAR] * 2, 4, trains=0.5, offline=0.2, seed=3),
    "local": local_dsgd([STAR, PATH] * 2, 4, 2), "none": dsgd(PATH, 4), "rounds": muffliato([PATH, DIRECTED] * 2, 4, 3), "walk": random_walk(PATH, 4, seed=2),
    "MF": mf_dsgd(DIRECTED, 4, np.tri(4) + np.eye(4)), "AntiPGD": anti_pgd(PATH, 4), "DECOR": decor([PATH, STAR] * 2, 4, 0.5, 2.0), "CorN": corn(PATH, 4, M @ M.T),
    "sparse": dp_dsgd(gossip_matrix(nx.path_graph(4), sparse=True), 4),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_was_logged_has_the_account_of_the_run(name, tmp_path):
    run = RUNS[name]
    for scheme in (Participation.single(4), Participation.cyclic(2, 2), Participation.min_sep(2, 1, 4)):
        again = written(run, scheme, tmp_path, clip=3.0, batch=7, adjacency="replace-one")
        assert again.participation == scheme and again.rates is None and again.row_sensitivity == pytest.approx(6 / 7)
        for trust in (LDP(), PNDP.each(range(4)), SecLDP.each(range(4)), PNDP([0, 2])):
            direct, found = account(run, trust, scheme, 1.5), again.account(trust)
            assert found.mu == pytest.approx(direct.mu, rel=1e-9, abs=1e-12) and found.leaks == direct.leaks and found.victims == direct.victims
            assert (found.adjacency, found.adaptive) == ("replace-one", direct.adaptive)


def test_what_was_logged_is_the_run(tmp_path):
    for name in ("DP-D-SGD", "changing", "at times", "local", "rounds", "none"):
        again = written(RUNS[name], Participation.single(4), tmp_path)
        assert again.protocol == RUNS[name], name
        assert again.sigma == (1.0 if name == "none" else 1.5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_runs_survive_a_log(tmp_path_factory, seed):
    """Noise of any kind whose holders add it: messages and noise are the same, up to the order of variables."""
    rng = np.random.default_rng(seed)
    n, T = (int(k) for k in rng.integers(1, 5, 2))
    steps, held = [], np.zeros((0, n), dtype=bool)
    for _ in range(T):
        held = np.vstack([held, np.eye(n, dtype=bool)[rng.integers(0, n, rng.integers(0, 4))] | (rng.random(n) < 0.3)])[:, :n] if rng.random() < 0.8 else held
        gossip = rng.random((n, n)) * (rng.random((n, n)) < 0.6) + 0.1 * np.eye(n)
        rounds = [Round(gossip / gossip.sum(axis=1, keepdims=True))] * rng.integers(0, 3)
        steps.append((rng.random(n) < 0.7, rng.normal(size=(n, len(held))) * held.T, rounds, len(held)))
    added = np.zeros((len(held), n), dtype=bool)
    for _, mix, _, drawn in steps: added[:drawn] |= mix.T != 0
    keep = added.any(axis=1)  # what nobody adds cannot be in a log
    made, before = [], 0
    for trains, mix, rounds, drawn in steps:
        new = np.flatnonzero(keep[before:drawn]) + before
        made.append(Step(trains, Noise(added[new], mix[:, keep[:drawn]]), rounds))
        before = drawn
    run = Protocol(None, made)
    again = written(run, Participation.single(T), tmp_path_factory.mktemp("logs")).protocol
    assert np.allclose(again.M_G, run.M_G, rtol=0, atol=1e-15)
    def covariance(one): return one.M_Z @ one.M_Z.T
    a, b = covariance(again), covariance(run)
    assert np.allclose(a * max(b.max(initial=0), 1e-300), b * max(a.max(initial=0), 1e-300), rtol=1e-9, atol=1e-12 * max(b.max(initial=0), 1e-300) ** 2)


def test_a_log_says_what_a_loop_does(tmp_path):
    """What one gradient, or one draw of noise, changes in the messages of a loop that knows nothing of protocols is what the log's protocol says."""
    T, n, std = 3, 4, 0.5
    links = [[(0, 1), (1, 0)], [(2, 3), (3, 1)], [(1, 2), (0, 3), (2, 0)]]

    def loop(gradients, draws, log=None):
        models, messages, before = np.zeros(n), [], []
        for t in range(T):
            active = [u for u in range(n) if (t + u) % 3]
            for u in active: models[u] += gradients[t, u] + std * (draws[t, u] - (0.5 * draws[t - 1, u] if u in before else 0))
            sent, received = [], {u: [(u, models[u])] for u in range(n)}
            for u, v in links[t]:
                messages.append(models[u])
                received[v].append((u, models[u]))
            for v, inbox in received.items():
                sent += [[u, v, 1 / len(inbox)] for u, _ in inbox]
                models[v] = sum(model for _, model in inbox) / len(inbox)
            if log:
                noise = [[u, std, f"{u} in {t}"] for u in active] + [[u, -0.5 * std, f"{u} in {t - 1}"] for u in active if u in before]
                log.step(active, noise, [sent])
            before = active
        return np.array(messages)

    log = MessageLog(tmp_path / "loop.jsonl", range(n), Participation.every_step(T), row_sensitivity=0.1)
    still = np.zeros((T, n))
    loop(still, still, log)
    run = read_log(tmp_path / "loop.jsonl")
    assert run.sigma == pytest.approx(5.0)
    units = np.eye(T * n).reshape(-1, T, n)
    def distinct(columns):  # one sender's message to several receivers is one row of a protocol
        return np.unique(columns.round(9), axis=0)
    measured = np.array([loop(unit, still) for unit in units]).T
    assert np.array_equal(distinct(measured), distinct(run.protocol.M_G))
    noise = np.array([loop(still, unit) for unit in units]).T
    both = np.hstack([measured, noise @ noise.T])
    keep = [next(i for i, row in enumerate(measured) if np.allclose(row, wanted)) for wanted in run.protocol.M_G]
    assert np.allclose((std * run.protocol.M_Z) @ (std * run.protocol.M_Z).T, both[:, T * n:][np.ix_(keep, keep)])


def test_rates_that_change_need_a_promise(tmp_path):
    log = MessageLog(tmp_path / "log", range(4), Participation.single(2), row_sensitivity=1)
    sent = [[u, v, PATH[v, u]] for v, u in np.argwhere(PATH)]
    for rate in (1.0, 0.5): log.step(True, [[u, 2.0] for u in range(4)], [sent], rate)
    run = read_log(tmp_path / "log")
    assert run.rates.tolist() == [1.0, 0.5]
    assert run.account(LDP()).mu == pytest.approx(account(dp_dsgd(PATH, 2), LDP(), Participation.single(2), 2.0).mu)
    with pytest.raises(ValueError, match="updates=Lipschitz"): run.account(PNDP([0]))
    assert run.account(PNDP([0]), updates=Lipschitz(1)).adaptive


LOG = """{"log": "mfdl messages", "version": 1, "nodes": ["a", 7, "c"], "steps": 2, "participation": "single", "row_sensitivity": 0.5}
{"step": 0, "trains": ["a", 7], "noise": [["a", 1.5], [7, 1, "z"]], "rounds": [[["a", 7, 0.25], [7, 7, 0.75]], [["a", "c", 1]]]}
{"step": 1, "trains": true, "noise": [["a", 1.5], ["c", -0.5, "z"]], "rounds": [], "rate": 1}
"""
STRANGE = ["null", "true", "-1", "0", "2", "1e999", "NaN", "-Infinity", '""', '"a"', '"b"', "[]", "{}", "[[]]", '[["a"]]', "1.5", "9" * 400, '{"a": 1, "a": 2}', "[" * 2000]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_log_with_anything_else_in_it_is_refused_with_its_line_or_means_something(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    pieces = re.split(r'("[^"]*"|[\d.]+|true|[\[\]{}:,\n])', LOG)
    places = [i for i, piece in enumerate(pieces) if piece.strip()]
    for _ in range(rng.integers(1, 3)): pieces[rng.choice(places)] = rng.choice([*STRANGE, "", *(pieces[i] for i in places)])
    path = tmp_path_factory.mktemp("logs") / "log"
    path.write_text("".join(pieces))
    try: run = read_log(path)
    except ValueError as error: assert re.match(rf"{re.escape(str(path))}, line [1-9]\d*: ", str(error)), error
    else: assert isinstance(run.protocol, Protocol) and 0 < run.sigma < np.inf and (run.rates is not None or run.account(LDP()).mu.min() >= 0)


@pytest.mark.parametrize("old, new, line, message", [
    ('"version": 1', '"version": 2', 1, "version=2: expected 1"), ('"version": 1', '"version": true', 1, "version=True: expected 1"),
    ('"log": "mfdl messages"', '"log": "mfdl"', 1, "expected 'mfdl messages'"), ('["a", 7, "c"]', '["a", 7, "a"]', 1, "repeated labels"),
    ('["a", 7, "c"]', '["a", 7, 1.5]', 1, "no label"),
    ('"steps": 2', '"steps": 3', 3, "ends after 2 steps: expected 3"), ('"steps": 2', '"steps": 1', 3, "step=1: expected the steps 0 to 0"),
    ('"single"', '"cyclic:2,2"', 1, "k*b"), ("0.5}", "0}", 1, "row_sensitivity=0"), ("0.5}", '0.5, "adjacency": "remove"}', 1, "adjacency"),
    ('"step": 1', '"step": 0', 3, "step=0"), ('"step": 1', '"step": true', 3, "step=True"), ('["a", 7], "noise"', '["a", "a"], "noise"', 2, "each node once"),
    ('["a", 1.5]', '["a", -1.5]', 2, "a number >= 0"), ('["a", 1.5]', '["a", 1e999]', 2, "std=inf"), ('["a", 1.5]', '["b", 1.5]', 2, "'b' is not a node"),
    ('["a", 1.5], [7, 1, "z"]', '["a", 1.5, "z"], ["a", 1, "z"]', 2, "twice"), ('["a", 1.5]', '["a", true]', 2, "std=True"),
    ('["a", 7, 0.25]', '["a", 8, 0.25]', 2, "8 is not a node"), ('["a", 7, 0.25]', '["a", "7", 0.25]', 2, "'7' is not a node"),
    ('["a", 7, 0.25]', '["a", 7, 0.2]', 2, "weights at 7 sum to 0.95"),
    ('["a", 7, 0.25]', '["a", 7, 0.25], ["c", 7, 0]', 2, "weight 0"), ('["a", 7, 0.25]', '["a", 7, 0.25], ["a", 7, 0.25]', 2, "there twice"),
    ('"rate": 1', '"rate": 0', 3, "rate=0"), ('"rate": 1', '"rates": 1', 3, "'rates': expected only"), ("true", "true}", 3, "no JSON"),
])
def test_errors_name_the_line(tmp_path, old, new, line, message):
    assert old in LOG
    (tmp_path / "log").write_text(LOG.replace(old, new, 1))
    with pytest.raises(ValueError, match=f"log, line {line}: .*{re.escape(message)}"): read_log(tmp_path / "log")


def test_what_a_log_cannot_say_is_not_written(tmp_path):
    held = Step(True, Noise(np.ones((2, 2)), np.eye(2)), [])
    for run, message in ((zip_dl(PATH, 2), "single messages"), (Protocol(None, [held] * 2), "do not add"), (dp_dsgd(PATH, 2, nodes=[(0, 1), 1, 2, 3]), "no label")):
        with pytest.raises(ValueError, match=message): write_log(run, Participation.single(2), 1.0, tmp_path / "log")
        assert not (tmp_path / "log").exists()
    with pytest.raises(ValueError, match="sigma=0"): write_log(dp_dsgd(PATH, 2), Participation.single(2), 0, tmp_path / "log")
    write_log(dp_dsgd(PATH, 2), Participation.single(2), 1.0, tmp_path / "log")
    with pytest.raises(FileExistsError): write_log(dp_dsgd(PATH, 2), Participation.single(2), 1.0, tmp_path / "log")


def test_a_line_that_is_refused_is_not_written(tmp_path):
    log = MessageLog(tmp_path / "log", ["a"], Participation.single(1), clip=1.0, batch=2, adjacency="zero-out")
    before = (tmp_path / "log").read_text()
    for wrong in ({"trains": ["b"]}, {"noise": [["a", np.nan]]}, {"noise": [["a", -1]]}, {"rounds": [[["a", "a", 0.5]]]}, {"trains": {"a"}}):
        with pytest.raises(ValueError): log.step(**{"trains": True, "noise": [["a", 1.0]], "rounds": []} | wrong)
    assert (tmp_path / "log").read_text() == before
    log.step(np.array(["a"]).tolist(), [["a", np.float32(0.5)]], [])
    assert read_log(tmp_path / "log").sigma == 1.0


def test_the_command_answers_as_the_account_does(tmp_path):
    write_log(RUNS["DECOR"], Participation.cyclic(2, 2), 2.0, tmp_path / "log", row_sensitivity=0.1)
    def asked(*words): return CliRunner().invoke(app, ["account", *words])
    for word in ("--log", f"--log={tmp_path / 'log'}"):
        log = [word] if "=" in word else [word, str(tmp_path / "log")]
        found = asked(*log, "--trust", "ldp", "-o", str(tmp_path / "out.csv"))
        assert found.exit_code == 0, found.output
    direct = account(RUNS["DECOR"], LDP(), Participation.cyclic(2, 2), 2.0)
    assert pd.read_csv(tmp_path / "out.csv").mu.tolist() == pytest.approx(direct.mu, rel=1e-9)
    assert f"mu={direct.worst.mu:.4g}" in found.output
    (tmp_path / "log").write_text(LOG.replace("0.25", "0.5"))
    refused = asked("--log", str(tmp_path / "log"))
    assert refused.exit_code == 2 and "line 2" in refused.output and "Traceback" not in refused.output
    assert asked("--log", str(tmp_path / "none")).exit_code == 2
    assert "--log" in asked("--help").output and "account --log" in CliRunner().invoke(app, ["account", "--help"]).output
    assert asked("florentine", "-T", "2", "--rows", "1").exit_code == 0


@pytest.mark.parametrize("arguments", [["florentine"], ["--log"]])
def test_what_an_eavesdropper_learns_is_drawn(arguments, tmp_path):
    path = gossip_matrix(nx.path_graph(["Anna", "Bert", "Carl"]))
    write_log(dp_dsgd(path, 2, nodes=["Anna", "Bert", "Carl"]), Participation.single(2), 1.0, tmp_path / "log")
    asked = [*arguments, *([str(tmp_path / "log")] if "--log" in arguments else [])]
    files = [word for suffix in ("svg", "png") for word in ("-o", tmp_path / f"heard.{suffix}")]
    done = CliRunner().invoke(app, ["account", *asked, "-t", "ldp", *map(str, files)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "heard.png").read_bytes()[:4] == b"\x89PNG"
    names = ("Anna", "Bert", "Carl") if "--log" in arguments else ("Medici", "Pazzi")
    picture = (tmp_path / "heard.svg").read_text()
    assert all(f"{name} " in picture or f">{name}<" in picture for name in names)


def logged(path, participation, order, named):
    "One node that trains on batches of two records, as given; the batch of each step is named or not."
    log = MessageLog(path, ["a"], participation, row_sensitivity=1)
    for batch in order: log.step(True, [["a", 1.0]], [], records=[["a", batch]] if named else None)
    return read_log(path)


def test_records_that_a_log_names_are_checked(tmp_path):
    """Shuffled epochs in a log that declares a fixed order: refused with the step, before it is written; not named, a promise."""
    declared, batches = Participation.cyclic(2, 2), np.arange(4).reshape(2, 2)
    shuffled = [*batches, batches[1], batches[0]]
    assert logged(tmp_path / "good", declared, [*batches, *batches], True).checked
    with pytest.raises(ValueError, match=r"log, line 4: records.*2 of 'a'.*steps 1 and 2"): logged(tmp_path / "log", declared, shuffled, True)
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 3
    step = {"step": 2, "trains": True, "noise": [["a", 1.0]], "rounds": [], "records": [["a", [2, 3]]]}
    (tmp_path / "log").write_text("\n".join([*lines, json.dumps(step)]))
    with pytest.raises(ValueError, match="line 4: records.*steps 1 and 2"): read_log(tmp_path / "log")
    believed = logged(tmp_path / "believed", declared, shuffled, False)
    assert not believed.checked and "not checked" in believed.statement and "min_sep(2, 1, 4)" in believed.statement
    assert logged(tmp_path / "any", Participation.min_sep(2, 1, 4), shuffled, True).checked
    found = CliRunner().invoke(app, ["account", "--log", str(tmp_path / "believed"), "-t", "ldp"])
    assert found.exit_code == 0 and "not checked" in found.output


@pytest.mark.parametrize("records, message", [
    ([["a", [0]]], "none of 'b'"), ([["a", [0]], ["b", [1]], ["a", [2]]], "'a'; expected once each"),
    ([["a", [0]], ["b", [0, 0]]], "twice in step 0"), ([["a", [0]], ["c", [0]]], "'c'; expected once each"),
    ([["a", [0]], ["b", [0.5]]], "no label"), ([["a", 0], ["b", [1]]], "expected a list"), ([["a"]], "expected [node, [record, ..]]"), (None, "in all, or in none"),
])
def test_what_a_log_cannot_say_about_records(tmp_path, records, message):
    log = MessageLog(tmp_path / "log", ["a", "b", "c"], Participation.single(2), row_sensitivity=1)
    usual = {"trains": ["a", "b"], "noise": [["a", 1.0], ["b", 1.0]], "rounds": []}
    same_names = [["a", [0]], ["b", [0]]]  # of two nodes: different records
    if records is None: log.step(**usual, records=same_names)
    before = (tmp_path / "log").read_text()
    with pytest.raises(ValueError, match=re.escape(message)): log.step(**usual, records=records)
    assert (tmp_path / "log").read_text() == before
    log.step(**usual, records=[["a", [7]], ["b", [8]]])
    if records is None: assert read_log(tmp_path / "log").checked
