"""Protocols of any kind, by chance."""
import numpy as np

from mfdl import Protocol, Round, Step
from mfdl.protocol.methods.steps import Noise


def random_protocol(seed: int) -> Protocol:
    """Directed and changing networks, local steps, several rounds, shares, nodes that do not train, noise with a memory, noise that is recombined."""
    rng = np.random.default_rng(seed)
    n, steps = int(rng.integers(1, 5)), []
    together, held = rng.random() < 0.3, np.zeros((0, n), dtype=bool)  # additions of nodes depend on each other: everybody holds all seeds
    basis = rng.normal(size=(n, n)) if together and rng.random() < 0.5 else None
    def sparse(rows, columns): return rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < 0.5)
    for t in range(rng.integers(1, 6)):
        holders = (rng.random((rng.integers(0, 4), n)) < 0.5) | together
        holders[np.arange(len(holders)), rng.integers(0, n, len(holders))] = True
        held = np.vstack([held, holders])
        back = np.hstack([0.3 * np.tile(np.eye(n), rng.integers(0, t + 1)).reshape(n, -1), np.eye(n)])
        if together: back += 0.3 * np.pad(np.tril(sparse(n, n), -1), ((0, 0), (back.shape[1] - n, 0)))
        rounds = []
        for _ in range(rng.integers(0, 3)):
            gossip = rng.random((n, n)) * (rng.random((n, n)) < 0.5) + 0.2 * np.eye(n)
            share = sparse(n * n, len(held)) * (gossip.reshape(-1, 1) > 0) * np.tile(held.T, (n, 1))
            rounds.append(Round(gossip / gossip.sum(axis=1, keepdims=True), share if rng.random() < 0.3 else None))
        noise = Noise(holders, sparse(n, len(held)) * held.T, back if rng.random() < 0.5 else None, basis)
        steps.append(Step(rng.random(n) < 0.7, noise, rounds))
    return Protocol(None, steps)
