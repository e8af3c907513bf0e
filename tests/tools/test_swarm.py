"""A swarm whose sites are killed, frozen and lied to: no noise goes out with two gradients, and what was spent is neither forgotten nor doubled."""
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product
from multiprocessing import get_context
from multiprocessing.connection import Client, Listener
from pathlib import Path
from threading import Thread

import networkx as nx
import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from mfdl.accounting.account import account
from mfdl.accounting.gaussian_dp import row_sensitivity
from mfdl.learning.data import Dataset, cut
from mfdl.learning.methods.budgets import Claim
from mfdl.learning.methods.halting import Budget
from mfdl.learning.methods.learner import Learner
from mfdl.learning.methods.noise_supply import Run
from mfdl.learning.methods.train_arguments import attackers_given
from mfdl.noise.pairwise import optimize_pairwise
from mfdl.protocol.algorithms import decor, dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.message_noise import zip_dl
from mfdl.protocol.methods.protocol_files import read_protocol, write_protocol
from mfdl.protocol.methods.streams import deal_seeds
from mfdl.protocol.methods.variants import local_dsgd, muffliato
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import LDP, PNDP
from mfdl.tools.distributed import Peer, cut_together
from mfdl.tools.lines import PatientLines
from mfdl.tools.logs import read_log
from mfdl.tools.network import Forged, Network, PeerLost, join
from mfdl.tools.site_keys import make_keys, pin_keys
from mfdl.tools.swarm import Plan, plan_swarm, train_site

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "mfdl.tools.swarm", "mfdl.noise.pairwise", "cryptography.hazmat.primitives.asymmetric.x25519"])
SITES = ["north", "centre", "south"]
W = gossip_matrix(nx.complete_graph(3))
SCHEME = Participation.cyclic(4, 4)
DEADLINE = 0.4
WATCHERS = attackers_given("one insider", SITES)


@cache
def pairs(): return optimize_pairwise(W, SCHEME, curious=1).protocol(W, nodes=SITES)


@cache
def most_spent():
    "What all four rounds of the plan spend, round by round, for noise of which all of them spend 8."
    plan = plan_swarm(pairs(), SCHEME, 8.0, against="one insider")
    return plan.sigma, [plan.budget(pairs()).spent(4 * r) for r in range(1, 5)]


def model():
    made = nn.Linear(3, 2)
    for part in made.parameters(): nn.init.zeros_(part)
    return made


def load(home):
    kept = np.load(home / "records.npz")
    return kept["X"], kept["y"], kept["X_test"], kept["y_test"]


def prepare(folder, sizes=(20, 12, 9), **how):
    "Folders of sites with keys and records, a plan, and the protocol in a file."
    rng = np.random.default_rng(0)
    for site, size in zip(SITES, sizes, strict=True):
        (folder / site).mkdir()
        X, y = rng.normal(size=(size + 4, 3)), rng.integers(2, size=size + 4)
        np.savez(folder / site / "records.npz", X=X[4:], y=y[4:], X_test=X[:4], y_test=[0, 1, 0, 1])
    lines = {site: make_keys(folder / site) for site in SITES}
    for site in SITES: pin_keys(folder / site, lines)
    plan = plan_swarm(pairs(), SCHEME, 8.0, against="one insider", lr=0.1, **{"deadline": DEADLINE, "timeout": 15.0, **how})
    (folder / "plan").write_text(plan.to_json())
    write_protocol(pairs(), folder / "protocol")
    return plan


class Carrier:
    "Carries what a site sends over loopback sockets, in the place of an engine; `lie` may change it on the way."
    def __init__(self, rank, ports, lie=None):
        self.rank, self.ports, self.lines, self.early, self.lie = rank, ports, None, [], lie
        self.server = Listener(("127.0.0.1", ports[rank]), authkey=b"test")
        Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            with suppress(EOFError, OSError), self.server.accept() as line:
                sender, content = line.recv()
                self.lines.take(sender, content) if self.lines else self.early.append((sender, content))
                line.send(True)

    def send(self, other, content):
        for sender, one in self.lie(self.rank, other, dict(content)) if self.lie else [(self.rank, content)]:
            try:
                with Client(("127.0.0.1", self.ports[other]), authkey=b"test") as line:
                    line.send((sender, one))
                    if not line.poll(DEADLINE): return False
                    line.recv()
            except (OSError, EOFError): return False
        return True


def one_site(rank, ports, folder, attempt, answers, lie=None, pace=0.02):
    "One process: gradients differ in every attempt, as on another processor; what is sent is written down."
    os.environ["MFDL_STATE"] = str(folder / SITES[rank] / "state")
    torch.set_num_threads(1)
    log = open(folder / f"log-{rank}-{attempt}", "w", buffering=1)
    changes, swap = Learner.changes, PatientLines.swap

    def perturbed(self, t):
        time.sleep(pace)
        return changes(self, t) + 1e-3 * attempt

    def told(self, t, leaving, arriving, meanwhile):
        model = {other: tensor[:-16].numpy().tobytes() for other, tensor in leaving.items()}  # without its signature
        for content in set(model.values()): log.write(f"sent {t} {hashlib.sha256(content).hexdigest()}\n")
        return swap(self, t, leaving, arriving, meanwhile)
    Learner.changes, PatientLines.swap = perturbed, told
    try:
        carrier = Carrier(rank, ports, lie)
        plan, protocol = Plan.from_json((folder / "plan").read_text()), read_protocol(folder / "protocol")
        carrier.lines = lines = PatientLines(rank, 3, plan.deadline, carrier.send)
        for sender, content in carrier.early: lines.take(sender, content)
        peer = train_site(plan, protocol, lines, folder / SITES[rank], model, load)
        lines.close(1.0)
        answers.put((rank, {"t": peer.t, "skipped": peer.skipped, "missed": peer.exchange.missed, "model": peer.theta[0, 0].numpy()}))
    except Exception as error: answers.put((rank, f"{type(error).__name__}: {error}"))


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets: one.close()
    return ports


def start(folder, attempt, lie=None):
    ports, answers = free_ports(3), CONTEXT.Queue()
    processes = [CONTEXT.Process(target=one_site, args=(rank, ports, folder, attempt, answers, lie)) for rank in range(3)]
    for process in processes: process.start()
    return processes, answers


def sent_lines(folder, attempt):
    return sum(path.read_text().count("sent") for path in folder.glob(f"log-*-{attempt}"))


def wait_for(reached, longest=60):
    end = time.monotonic() + longest
    while not reached():
        assert time.monotonic() < end, "nothing moves"
        time.sleep(0.005)


def gather(processes, answers, expected, longest=60):
    found = dict(answers.get(timeout=longest) for _ in range(expected))
    for process in processes:
        process.join(30)
        assert not process.is_alive(), "somebody hung"
    return found


def check_unique(folder):
    "The noise of a step went out with one gradient; how many messages, and how many of them again."
    found = {}
    for path in folder.glob("log-*"):
        rank = path.name.split("-")[1]
        for line in path.read_text().splitlines():
            what, t, sha = (line.split() + ["", ""])[:3]
            if what == "sent" and len(sha) == 64: found.setdefault((rank, int(t)), []).append(sha)
    differ = [key for key, shas in found.items() if len(set(shas)) > 1]
    assert not differ, f"the noise of {differ} went out with two gradients"
    return sum(map(len, found.values())), sum(len(shas) - 1 for shas in found.values())


def check_spent(folder, plan, sites=SITES):
    "Statements and logs of all sites say what was spent; the account of the log is another way to it."
    for site in sites:
        run = folder / site / "runs" / plan.run
        said = json.loads((run / "statement.json").read_text())
        ends = Participation.cyclic(said["steps"] // plan.batches, plan.batches)
        again = account(pairs().until(said["steps"]), WATCHERS, ends, sigma=plan.sigma).proved.worst.epsilon(plan.delta)
        assert abs(said["epsilon"] - again) < 1e-6 and said["epsilon"] <= plan.epsilon * (1 + 1e-9)
        logged = read_log(run / "run.jsonl")
        assert logged.participation.T == said["steps"]
        assert logged.account(WATCHERS).proved.worst.epsilon(plan.delta) <= said["epsilon"] + 1e-6


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 10))])
def test_sites_that_are_killed_go_on_and_send_nothing_else_with_the_same_noise(tmp_path, seed):
    """Three kills a case, thirty in all; the others end meanwhile, and a new start completes the run."""
    plan, chance = prepare(tmp_path), random.Random(seed)
    for attempt in range(1, 4):
        processes, answers = start(tmp_path, attempt)
        victim, enough = chance.randrange(3), chance.randrange(40)
        wait_for(lambda: sent_lines(tmp_path, attempt) >= enough or not all(one.is_alive() for one in processes))  # noqa: B023
        processes[victim].kill()
        processes[victim].join()
        gather(processes, answers, 3 - (processes[victim].exitcode == -signal.SIGKILL))
    found = gather(*start(tmp_path, 4), 3)
    assert all(isinstance(answer, dict) and answer["t"] == 16 for answer in found.values()), found
    messages, again = check_unique(tmp_path)
    assert messages > 48 and again > 0, "no step was sent again: nothing was tested"
    check_spent(tmp_path, plan)


EACH = {(t, u, v) for t in range(16) for u in range(3) for v in range(3) if u != v}


def heard_in(path):
    "Who has heard whom in which step, by a log."
    steps = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return {(step["step"], SITES.index(u), SITES.index(v)) for step in steps for one in step["rounds"] for u, v, _ in one if u != v}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 10))])
def test_a_frozen_site_is_left_behind_and_follows(tmp_path, seed):
    plan, chance = prepare(tmp_path), random.Random(100 + seed)
    processes, answers = start(tmp_path, 1)
    victim, enough = chance.randrange(3), 3 + chance.randrange(25)
    wait_for(lambda: sent_lines(tmp_path, 1) >= enough)
    os.kill(processes[victim].pid, signal.SIGSTOP)
    time.sleep(2.5 * DEADLINE)
    os.kill(processes[victim].pid, signal.SIGCONT)
    found = gather(processes, answers, 3)
    assert all(isinstance(answer, dict) and answer["t"] == 16 for answer in found.values()), found
    others = [rank for rank in range(3) if rank != victim]
    assert all(any(rank == victim for _, rank in found[other]["missed"]) for other in others)
    check_unique(tmp_path)
    check_spent(tmp_path, plan)
    apart = {(t, u, v) for v, one in found.items() for t, u in one["missed"]}
    apart |= {(t, u, v) for w, one in found.items() for t in one["skipped"] for u in range(3) for v in range(3) if w in (u, v)}
    for rank, site in enumerate(SITES):  # who ended before another had said what it missed has all of its messages in the log
        logged = heard_in(tmp_path / site / "runs" / plan.run / "run.jsonl")
        assert EACH - apart <= logged <= EACH
        assert not logged & {(t, u, v) for t, u, v in apart if rank == v}


def flipped(said): return said[:5] + bytes([said[5] ^ 64]) + said[6:]


def letters(change):
    "Lies about letters of step 5, which the first site sends to the second."
    def lie(rank, other, content):
        if (rank, other, content.get("step")) != (0, 1, 5): return [(rank, content)]
        return change(rank, content)
    return lie


def notices(topic, change):
    "Lies about a topic of the first site."
    def lie(rank, other, content):
        if rank or not content.get("key", "").startswith(topic): return [(rank, content)]
        return [(rank, content | {"said": change(content["said"])})]
    return lie


LIES = {  # what is done, and which error there must be: one, none (None), or perhaps one
    "a bit is flipped": (letters(lambda rank, one: [(rank, one | {"said": flipped(one["said"])})]), Forged),
    "a letter is cut off": (letters(lambda rank, one: [(rank, one | {"said": one["said"][:-4]})]), Forged),
    "an old letter in the place of a new one": (letters(lambda rank, one: [(rank, one | {"said": flipped(one["said"]), "step": 4})]), None),
    "a letter in the name of another": (letters(lambda rank, one: [(2, one)]), "perhaps"),
    "a letter of a far step": (letters(lambda rank, one: [(rank, one | {"step": 10**6}), (rank, one)]), None),
    "a letter twice": (letters(lambda rank, one: [(rank, one), (rank, one)]), None),
    "a letter is kept back": (letters(lambda rank, one: []), None),
    "garbage on the board": (notices("usable", lambda said: "no json"), Forged),
    "other settings": (notices("settings", lambda said: said.replace("learning", "teaching")), Forged),
    "a key that is none": (notices("contribution", lambda said: said[:-8] + "0" * 8), Forged),
}


@pytest.mark.parametrize("lie", [pytest.param(lie, marks=pytest.mark.nightly if i else ()) for i, lie in enumerate(LIES)])
def test_forged_posts_stop_a_site_or_nothing(tmp_path, lie):
    """Then all start again without the liar, and the run is as good as any."""
    plan = prepare(tmp_path, timeout=4.0)
    processes, answers = start(tmp_path, 1, Lie(lie))
    found = gather(processes, answers, 3)
    stopped = [answer for answer in found.values() if isinstance(answer, str)]
    if LIES[lie][1] is None: assert not stopped, found
    if LIES[lie][1] is Forged: assert any(answer.startswith(("Forged", "ValueError")) for answer in stopped), found
    again = gather(*start(tmp_path, 2), 3)
    assert all(isinstance(answer, dict) and answer["t"] == 16 for answer in again.values()), again
    check_unique(tmp_path)
    check_spent(tmp_path, plan)


class Lie:
    "A lie by its name, which can be sent to another process."
    def __init__(self, name): self.name = name
    def __call__(self, *given): return LIES[self.name][0](*given)


def test_a_budget_halts_before_every_round_that_would_exceed_it():
    """In a network whose ranks wait for each other; what was spent is that of the rounds that took place."""
    sigma, spent = most_spent()
    claim = Claim(pairs(), WATCHERS, SCHEME)
    assert spent == sorted(spent) and abs(spent[-1] - 8) < 1e-6
    rng, alone = np.random.default_rng(0), {"rank": 0, "size": 1}
    data = Dataset("random", rng.normal(size=(41, 3)), rng.integers(2, size=41), rng.normal(size=(4, 3)), np.array([0, 1, 0, 1]))
    for r in range(5):
        just_enough = Budget(claim, sigma, spent[r - 1] * (1 + 1e-6), 1e-6) if r else Budget(claim, sigma, spent[0] * (1 - 1e-6), 1e-6)
        if r < 4: assert Budget(claim, sigma, spent[r] * (1 - 1e-6), 1e-6).last() == just_enough.last() == 4 * r
        with join(5.0, store=dist.HashStore(), **alone) as net:
            run = Run("run", pairs(), sigma * row_sensitivity(1.0, 5, "replace-one"))
            peer = Peer(net, model, data, cut([range(20), range(20, 32), range(32, 41)], 4), run, deal_seeds(pairs()), 0.1, 1.0, budget=just_enough)
            told = []
            peer.run(tell=lambda t, numbers: told.append((t, numbers["epsilon"])))  # noqa: B023
            assert peer.t == 4 * r and peer.done and told == [(4 * k, spent[k - 1]) for k in range(1, r + 1)]
            with pytest.raises(StopIteration, match="is spent|has 16 steps"): peer.step()
            if r: assert abs(account(peer.as_run(), WATCHERS, Participation.cyclic(r, 4), sigma=sigma).worst.epsilon(1e-6) - spent[r - 1]) < 1e-6


def test_a_budget_counts_no_noise_that_is_not_there():
    """Of a run with weaker noise, other units or other attackers it would count another quantity."""
    sigma, _ = most_spent()
    rng, strong = np.random.default_rng(0), sigma * row_sensitivity(1.0, 5, "replace-one")
    data = Dataset("random", rng.normal(size=(41, 3)), rng.integers(2, size=41), rng.normal(size=(4, 3)), np.array([0, 1, 0, 1]))
    batches = cut([range(20), range(20, 32), range(32, 41)], 4)
    counted = Budget(Claim(pairs(), WATCHERS, SCHEME), sigma, 8.0, 1e-6)
    others = [("weaker noise", 0.9 * strong, {}), ("weaker noise", strong, {"clip": 1.2}), ("weaker noise", 0.0, {"clip": None}), ("for Participation", 9.0, {"protect": "node"})]
    for said, scale, how in others:
        with join(5.0, store=dist.HashStore(), rank=0, size=1) as net, pytest.raises(ValueError, match=said):
            Peer(net, model, data, batches, Run("run", pairs(), scale), deal_seeds(pairs()), 0.1, **{"clip": 1.0, "budget": counted, **how})
    for wrong in ({"sigma": 0.0}, {"epsilon": np.inf}, {"delta": 0.0}, {"adjacency": "none"}, {"claim": None}, {"claim": Claim(pairs(), LDP(), Participation.min_sep(4, 4, 16))}):
        with pytest.raises(ValueError, match=next(iter(wrong))): replace(counted, **wrong)


def test_a_restart_neither_forgets_nor_doubles_what_was_spent(tmp_path):
    plan = prepare(tmp_path)
    plan = replace(plan, epsilon=most_spent()[1][1] * 1.001)
    (tmp_path / "plan").write_text(plan.to_json())
    processes, answers = start(tmp_path, 1)
    wait_for(lambda: sent_lines(tmp_path, 1) >= 12)
    for process in processes: process.kill()
    for process in processes: process.join()
    for attempt in (2, 3):
        found = gather(*start(tmp_path, attempt), 3)
        assert all(isinstance(answer, dict) and answer["t"] == 8 for answer in found.values()), found
    check_unique(tmp_path)
    check_spent(tmp_path, plan)
    said = json.loads((tmp_path / "north/runs" / plan.run / "statement.json").read_text())
    assert (said["steps"], said["planned_steps"]) == (8, 16)


@pytest.mark.parametrize("make", [lambda: zip_dl(W, 16), lambda: muffliato(W, 16, 2), lambda: local_dsgd(W, 8, 2)], ids=["shares", "several exchanges", "local steps"])
def test_runs_in_which_no_message_may_be_missing_are_refused(make):
    with pytest.raises(ValueError, match="one exchange in each step"): plan_swarm(make(), SCHEME, 8.0)


def test_plans_that_would_depend_on_who_is_late_are_refused():
    with pytest.raises(ValueError, match="batches of one size in turn"): plan_swarm(dp_dsgd(W, 16), Participation.poisson(0.25, 16), 8.0)
    for against in (PNDP([0]), [LDP()], None):
        with pytest.raises(ValueError, match="hear every message"): plan_swarm(dp_dsgd(W, 16), SCHEME, 8.0, against=against)
    with pytest.raises(ValueError, match="has 16 steps"): plan_swarm(dp_dsgd(W, 12), SCHEME, 8.0)
    with pytest.raises(ValueError, match="deadline=0"): plan_swarm(dp_dsgd(W, 16), SCHEME, 8.0, deadline=0)
    with pytest.raises(ValueError, match="Plan.to_json"): Plan.from_json("{}")
    with pytest.raises(ValueError, match="nothing ever comes"): plan_swarm(dp_dsgd(np.ones((1, 1)), 16), SCHEME, 8.0)
    plan = plan_swarm(dp_dsgd(W, 16), SCHEME, 8.0)
    with pytest.raises(ValueError, match="a name of letters and digits"): replace(plan, run="../elsewhere")


@pytest.mark.parametrize("graph", [nx.complete_graph(2), nx.star_graph(3), nx.path_graph(4), nx.cycle_graph(5)], ids=str)
def test_absences_tell_no_more_on_ordinary_graphs(graph):
    """Any pattern of absences, against an eavesdropper and insiders, by the general account."""
    from mfdl.noise.methods.noise_kinds import insiders
    from mfdl.tools.distributed import without
    n, chance, scheme = len(graph), np.random.default_rng(len(graph)), Participation.cyclic(2, 3)
    V = gossip_matrix(graph)
    runs = [dp_dsgd(V, 6), mf_dsgd(V, 6, np.eye(6) + 0.6 * np.eye(6, k=-1)), decor(V, 6, 0.5)]
    for run, curious in product(runs, (0, 1)):
        watchers = insiders(run.nodes, curious)
        planned = account(run, watchers, scheme).proved
        for _ in range(4):
            told = [{"skipped": np.flatnonzero(chance.random(6) < 0.3).tolist(),
                     "missed": [[t, u] for t in range(6) for u in range(n) if u != v and chance.random() < 0.3]} for v in range(n)]
            there = account(without(run, np.arange(n), told), watchers, scheme).proved
            known = dict(zip(zip(map(str, planned.attackers), planned.victims, strict=True), planned.mu, strict=True))
            for attacker, victim, mu in zip(map(str, there.attackers), there.victims, there.mu, strict=True):
                assert mu <= known[attacker, victim] * (1 + 1e-9), (run.name, attacker, victim)


DIRECTED = np.array([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0.5, 0, 0, 0.5]])
SWARMS = {
    "star": gossip_matrix(nx.star_graph(3)), "directed ring": DIRECTED, "singular": np.full((4, 4), 0.25),
    "ring of 6": gossip_matrix(nx.cycle_graph(6)), "pair": gossip_matrix(nx.complete_graph(2)),
}


@pytest.mark.parametrize("name", [name if i < 2 else pytest.param(name, marks=pytest.mark.nightly) for i, name in enumerate(SWARMS)])
def test_swarms_on_ordinary_graphs_spend_what_was_planned(tmp_path, monkeypatch, name):
    """Sites in another order than that of their names, unequal, one of them with fewer records than batches."""
    monkeypatch.setenv("MFDL_STATE", str(tmp_path))
    V, scheme = SWARMS[name], Participation.cyclic(2, 3)
    sites = [f"site-{k}" for k in reversed(range(len(V)))]
    protocol = mf_dsgd(V, 6, np.eye(6) + 0.6 * np.eye(6, k=-1), nodes=sites)
    plan = plan_swarm(protocol, scheme, 3.0, against="one insider", deadline=10.0, timeout=20.0)
    rng, homes = np.random.default_rng(0), {site: tmp_path / site for site in sites}
    for k, home in enumerate(homes.values()):
        home.mkdir()
        X, y = rng.normal(size=(2 + 3 * k + 4, 3)), rng.integers(2, size=2 + 3 * k + 4)
        np.savez(home / "records.npz", X=X[4:], y=y[4:], X_test=X[:4], y_test=[0, 1, 0, 1])
    lines = {site: make_keys(home) for site, home in homes.items()}
    for home in homes.values(): pin_keys(home, dict(sorted(lines.items())))
    posts, ended = {}, {}

    def one(rank, site):
        posts[rank] = mine = PatientLines(rank, len(sites), plan.deadline, lambda other, content: other in posts and (posts[other].take(rank, content), True)[1])
        try: ended[site] = train_site(plan, protocol, mine, homes[site], model, load)
        except Exception as error: ended[site] = error
        mine.close(2.0)
    threads = [Thread(target=one, args=pair) for pair in enumerate(sites)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert all(isinstance(peer, Peer) and peer.t == 6 and not peer.exchange.missed for peer in ended.values()), ended
    watchers = attackers_given("one insider", sites)
    for k, site in enumerate(sites):
        said = json.loads((homes[site] / "runs" / plan.run / "statement.json").read_text())
        assert (said["site"], said["records"]) == (site, 2 + 3 * k) and abs(said["epsilon"] - 3) < 1e-6
        assert abs(read_log(homes[site] / "runs" / plan.run / "run.jsonl").account(watchers).proved.worst.epsilon(1e-6) - 3) < 1e-6


def test_unequal_sites_cut_alike(tmp_path):
    """Each rank learns how many records the largest batch has, and nothing else."""
    store, cuts = dist.HashStore(), {}

    def one(rank, size): cuts[rank] = cut_together(Network(rank, 3, store, 5.0), [np.arange(size)], 4)
    threads = [Thread(target=one, args=pair) for pair in enumerate((20, 12, 9))]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    together = cut([range(20), range(20, 32), range(32, 41)], 4)
    assert [cuts[rank].size for rank in range(3)] == [together.size] * 3
    for rank, first in enumerate((0, 20, 32)):
        mine = together.index[rank]
        np.testing.assert_array_equal(cuts[rank].index[0], np.where(mine < 0, -1, mine - first))


@pytest.mark.nightly
@pytest.mark.parametrize("what", ["nothing", "kill", "freeze"])
def test_nvflare_runs_a_swarm_in_its_simulator(tmp_path, what):
    """Also when the process of a site is killed, or sleeps for longer than the deadline."""
    from mfdl.tools.nvflare import swarm_job
    plan = prepare(tmp_path, deadline=4.0, timeout=120.0)
    (tmp_path / "code.py").write_text("\n".join([
        "import numpy as np", "from torch import nn", "def model(): return nn.Linear(3, 2)",
        "def load(home): return [np.load(home / 'records.npz')[name] for name in ('X', 'y', 'X_test', 'y_test')]"]))
    job = swarm_job(tmp_path / "job", plan, pairs(), tmp_path / "code.py", f"{tmp_path}/{{site}}")
    command = [str(Path(sys.executable).with_name("nvflare")), "simulator", str(job), "-w", str(tmp_path / "workspace"), "-c", ",".join(SITES), "-t", "3"]
    settings = os.environ | {"OMP_NUM_THREADS": "1", "MFDL_STATE": str(tmp_path / "state")}
    process = subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, done = [], what == "nothing"
    for line in process.stdout:
        said.append(line)
        if done or "step 8 of" not in line: continue
        done = True
        south = subprocess.run(["pgrep", "-f", f"simulator_worker.*{tmp_path}.*south"], capture_output=True, text=True).stdout.split()
        assert south, "there is no process of the site"
        for pid in map(int, south): os.kill(pid, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
        if what == "freeze":
            time.sleep(6)
            for pid in map(int, south): os.kill(pid, signal.SIGCONT)
    assert process.wait(timeout=60) == 0 and done, "".join(said[-40:])
    there = SITES if what != "kill" else SITES[:2]
    check_spent(tmp_path, plan, sites=there)
    assert any("epsilon 8" in line for line in said)


@pytest.mark.nightly
def test_lost_seeds_of_a_run_that_has_begun_are_not_made_again(tmp_path):
    plan = prepare(tmp_path)
    processes, answers = start(tmp_path, 1)
    wait_for(lambda: sent_lines(tmp_path, 1) >= 9)
    for process in processes: process.kill()
    for process in processes: process.join()
    (tmp_path / "south/runs" / plan.run / "seeds.json").unlink()
    found = gather(*start(tmp_path, 2), 3)
    assert all("has lost its seeds" in answer or isinstance(answer, str) for answer in found.values()), found
    assert any("has lost its seeds" in answer for answer in found.values()), found
    assert issubclass(Forged, PeerLost)
    check_unique(tmp_path)
