"""Whoever reaches the notice board or the line can stop a run, but no noise goes out with two gradients, and signed runs notice a lie."""
import hashlib
import json
import os
import random
import socket

import numpy as np
import pytest
import torch
from test_distributed import BATCHES, CONTEXT, DATA, DIRECTED, RATE, SCALE, SECRET, machine, make_peer, network, start_hosted, together  # noqa: F401, a fixture

from mfdl.learning.methods.noise_supply import Run
from mfdl.learning.simulator import Simulation
from mfdl.protocol.algorithms import dp_dsgd
from mfdl.tools.network import Forged, Network, PeerLost, join
from mfdl.tools.signatures import Signer, signing_public_key

PLACED = [0, 1, 0, 0, 1]
KEYS = [hashlib.sha256(f"rank {rank}".encode()).hexdigest() for rank in range(3)]  # the same in all processes
PUBLIC = [signing_public_key(key) for key in KEYS[:2]]


class Lying:
    "A notice board on which somebody has written something else under some keys."
    def __init__(self, store, lies): self.store, self.lies = store, lies
    def get(self, key): return self.lies.get(key) or self.store.get(key)
    def check(self, keys): return all(key in self.lies for key in keys) or self.store.check(keys)
    def set(self, key, value): self.store.set(key, value)


def lied_to(net, folder, attempt, steps, lies, own_notices_are_read=False):
    "Some steps from where the last run ended, with gradients that differ in every attempt, while the board lies to rank 0."
    if net.rank == 0: net.store = Lying(net.store, lies)
    if own_notices_are_read:
        net.written = {}
        look = Network.look.__get__(net)
        net.look = lambda topic, rank: (net.written.clear(), read_back(net, topic) if rank == net.rank else look(topic, rank))[1]
    peer = make_peer(net, folder=folder, placement=PLACED)
    changes, swap = peer.learner.changes, peer.exchange.swap
    log = open(f"{folder}/log-{net.rank}-{attempt}", "w", buffering=1)

    def told(t, k, routes, messages, meanwhile):
        for name in {name for names in routes.outgoing.values() for name in names}:
            log.write(f"{t} {name} {hashlib.sha256(messages[name].numpy().tobytes()).hexdigest()}\n")
        return swap(t, k, routes, messages, meanwhile)
    peer.learner.changes, peer.exchange.swap = lambda t: changes(t) + 1e-3 * attempt, told
    for _ in range(min(steps, 6 - peer.t)):
        peer.step()
        if peer.t % 2 == 0: peer.save()
    return peer.t


def read_back(net, topic):
    key = f"{topic}/{net.rank}"
    return json.loads(json.loads(net.store.get(key))[0]) if net.store.check([key]) else None


def notice(content): return json.dumps([json.dumps(content), ""]).encode()


def sent(folder):
    found = {}
    for path in folder.glob("log-*"):
        for line in path.read_text().splitlines():
            t, name, sha = line.split()
            found.setdefault((int(t), name), set()).add(sha)
    return found


NOTHING = {"steps": [0], "reached": 0, "known": True, "heard": {}, "spent": []}
LIES = {
    "it has sent nothing": {"usable/0": notice(NOTHING)}, "nobody has sent anything": {"usable/0": notice(NOTHING), "usable/1": notice(NOTHING)},
    "the other one is at the start": {"usable/1": notice(NOTHING | {"steps": [0, 2, 4]})}, "all have a later checkpoint": {"kept/0": notice([6]), "kept/1": notice([6])},
    "it may go on anywhere": {f"usable/{rank}": notice(NOTHING | {"steps": list(range(7))}) for rank in (0, 1)}, "all are ready": {"ready/0": notice(0), "ready/1": notice(0)},
}


@pytest.mark.parametrize("lie", LIES)
def test_no_lie_on_the_board_sends_noise_with_another_gradient(tmp_path, lie):
    assert together(2, lied_to, tmp_path, 1, 5, {}) == [5, 5]
    for attempt in (2, 3):
        for answer in together(2, lied_to, tmp_path, attempt, 2, LIES[lie], timeout=3.0): assert isinstance(answer, int | PeerLost | ValueError), answer
    assert all(len(shas) == 1 for shas in sent(tmp_path).values())
    assert {t for t, _ in sent(tmp_path)} >= set(range(5))


def test_a_rank_that_believed_the_board_would(tmp_path, monkeypatch):
    """The lie works on a rank that reads its own notices back: the journal alone then refuses to write the outcome again."""
    assert together(2, lied_to, tmp_path, 1, 5, {}) == [5, 5]
    found = together(2, lied_to, tmp_path, 2, 2, LIES["nobody has sent anything"], True, timeout=3.0)
    assert isinstance(found[0], FileExistsError) and "has been sent already" in str(found[0]), found


def test_an_old_nonce_does_not_make_a_new_run_an_old_one(tmp_path):
    """Seeds are refused in a run that is told the nonces of the run that used them."""
    assert together(2, kept_notices, tmp_path) == [2, 2]
    old = {f"settings/{rank}": (tmp_path / f"settings-{rank}").read_bytes() for rank in (0, 1)}
    for answer in together(2, kept_notices, tmp_path, old, timeout=3.0): assert isinstance(answer, ValueError) and "has used those of rows" in str(answer), answer


def kept_notices(net, folder, lies=None):
    if lies: net.store = Lying(net.store, lies)
    peer = make_peer(net, placement=PLACED)
    (folder / f"settings-{net.rank}").write_bytes(net.store.get(f"settings/{net.rank}"))
    for _ in range(2): peer.step()
    return peer.t


def told_garbage(net, topic, content):
    if net.rank == 0: net.store = Lying(net.store, {f"{topic}/1": content})
    make_peer(net, placement=PLACED).run(every=2)


chance = random.Random(4)
GARBAGE = [b"\xff\x00", b"{", b"[]", notice(None), notice([]), notice({}), notice({"settings": 7}), notice(-1), notice("x" * 99), notice([[1]]), b"[" * 9999,
           notice({"steps": [0], "reached": "7", "known": True, "heard": {}, "spent": []}), notice({"settings": {}, "seeds": [1], "nonce": ""}),
           *[notice({key: chance.choice([None, 1.5, [], {}, "a", True]) for key in NOTHING}) for _ in range(5)]]


@pytest.mark.parametrize("topic", ["settings", pytest.param("usable", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("content", [pytest.param(one, marks=() if k in (1, 5, 11, 12) else pytest.mark.nightly, id=str(k)) for k, one in enumerate(GARBAGE)])
def test_garbage_under_a_key_is_named_with_its_rank(topic, content):
    error = together(2, told_garbage, topic, content, timeout=2.0)[0]
    assert isinstance(error, Forged | PeerLost | ValueError), error
    assert f"{topic}/1" in str(error) or f"{topic}: nothing from rank 1" in str(error) or "ranks do not agree" in str(error), error


def signed_run(port, rank, key, lies, flipped, state, answers):
    os.environ |= {"MFDL_STATE": state, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        with join(5.0, signer=Signer(key, PUBLIC)) as net:
            if rank == 0: net.store = Lying(net.store, lies)
            peer = make_peer(net, placement=PLACED)
            if rank == 1 and flipped is not None: flip(peer.exchange, flipped)
            peer.run()
            answers.put((rank, peer.models[:, 0].numpy()))
    except Exception as error: answers.put((rank, error))


def flip(exchange, step):
    "Change one number of the messages of a step on their way."
    signed = exchange._signed

    def changed(t, k, rank, messages):
        row = signed(t, k, rank, messages)
        if t == step: row[0] += 1e-6
        return row
    exchange._signed = changed


def signed_ranks(keys=KEYS[:2], lies=None, flipped=None):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers = CONTEXT.Queue()
    ranks = [CONTEXT.Process(target=signed_run, args=(port, rank, key, lies or {}, flipped, os.environ["MFDL_STATE"], answers)) for rank, key in enumerate(keys)]
    for process in ranks: process.start()
    found = dict(answers.get(timeout=60) for _ in ranks)
    for process in ranks: process.join(20)
    return [found[rank] for rank in (0, 1)]


def test_signed_ranks_train_what_the_simulator_trains():
    found = signed_ranks()
    simulation = Simulation(network, DATA, BATCHES, [Run("r", dp_dsgd(DIRECTED, 6), SCALE, secret=SECRET)], RATE, 0.5)
    simulation.run(progress=False)
    for rank, models in enumerate(found):
        here = [u for u in range(5) if PLACED[u] == rank]
        np.testing.assert_allclose(models, simulation.theta[0, here].numpy(), atol=3e-5)


@pytest.mark.parametrize("topic", ["settings", "usable"])
def test_a_notice_that_is_not_signed_by_its_rank_is_refused(topic):
    signer = Signer(KEYS[2], [*PUBLIC, signing_public_key(KEYS[2])])
    said = json.dumps(NOTHING)
    for lie in (notice(NOTHING), json.dumps([said, signer.sign(["", topic], said.encode()).hex()]).encode()):
        error = signed_ranks(lies={f"{topic}/1": lie})[0]
        assert isinstance(error, Forged) and f"{topic}/1: is not signed with the key of rank 1" in str(error), error


def test_a_message_that_was_changed_on_its_way_is_refused():
    error = signed_ranks(flipped=2)[0]
    assert isinstance(error, Forged) and "step 2: a message is not signed with the key of rank 1" in str(error), error


def test_ranks_with_other_keys_do_not_meet():
    found = signed_ranks(keys=[KEYS[0], KEYS[2]])
    assert isinstance(found[1], ValueError) and "lacks the public key" in str(found[1]) and isinstance(found[0], PeerLost), found
    found = signed_ranks(keys=[KEYS[1], KEYS[0]])
    assert isinstance(found[0], ValueError) and "signer: is that of rank 1 of 2, this is rank 0 of 2" in str(found[0]), found


def listeners(port):
    with open("/proc/net/tcp") as file: lines = [line.split() for line in file][1:]
    with open("/proc/net/tcp6") as file: lines += [line.split() for line in file][1:]
    return {address for _, local, _, state, *_ in lines for address, found in [local.split(":")] if state == "0A" and int(found, 16) == port}


def addresses_of_the_board(net):
    return listeners(int(os.environ["MASTER_PORT"]))


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="Linux tells who listens")
def test_the_board_listens_at_its_address_only():
    ranks, answers = start_hosted(1, addresses_of_the_board)
    assert answers.get(timeout=30)[1] == {"0100007F"}
    ranks[0].join(20)


def test_an_address_of_another_machine_is_refused(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "192.0.2.7", "MASTER_PORT": "29512"}.items(): monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"MASTER_ADDR='192.0.2.7', MASTER_PORT=29512: rank 0 cannot host"), join(2.0): pass


def test_messages_with_a_signature_behind_them():
    """The bits of a signature survive as numbers, whatever they are."""
    every = np.arange(64, dtype=np.uint8).repeat(4)[:256]
    for bits in (every[:64], np.full(64, 255, np.uint8), np.random.default_rng(0).integers(0, 256, 64, dtype=np.uint8)):
        row = torch.cat([torch.zeros(3), torch.as_tensor(np.frombuffer(bits.tobytes(), np.float32).copy())])
        assert row[3:].numpy().tobytes() == bits.tobytes()
