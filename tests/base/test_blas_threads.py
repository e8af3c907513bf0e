"""Numerical entry points let BLAS take one thread, and leave everything as it was: in a process that may take two."""
import os
import subprocess
import sys

PROGRAM = """
import numpy as np, networkx as nx, scipy.linalg
from threadpoolctl import threadpool_info
from unittest.mock import patch
import mfdl

def most(): return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")

W = mfdl.gossip_matrix(nx.path_graph(3))
scheme = mfdl.Participation.cyclic(2, 3)
H = mfdl.local_gram(W, 6)
seen = []

def spied(function):
    def watched(*given, **named):
        seen.append(most())
        return function(*given, **named)
    return watched

assert most() == 2
for name, ask in {
    "optimize": lambda: mfdl.optimize(H, scheme), "covariance": lambda: mfdl.optimize_covariance(W),
    "pairwise": lambda: mfdl.optimize_pairwise(W, scheme, 1), "weights": lambda: mfdl.optimize_weights(nx.path_graph(3), scheme),
    "space": lambda: mfdl.optimize_space_time(W, scheme), "local": lambda: mfdl.optimize_local(W, scheme, [mfdl.LDP(), mfdl.PNDP([0])]),
    "strategy": lambda: mfdl.strategy("mafalda", scheme, W),
    "account": lambda: mfdl.account(mfdl.mf_dsgd(W, 6, np.tri(6)), mfdl.PNDP([0]), scheme), "all": lambda: mfdl.account(mfdl.dp_dsgd(W, 6), mfdl.PNDP.each(range(3)), scheme),
    "network": lambda: mfdl.which_network(3, scheme, 3.0, 1e-6), "which": lambda: mfdl.which_noise(W, scheme, 3.0, 1e-6),
}.items():
    seen.clear()
    with patch("numpy.linalg.cholesky", spied(np.linalg.cholesky)), patch("numpy.linalg.svd", spied(np.linalg.svd)), patch("numpy.linalg.eigh", spied(np.linalg.eigh)), \\
            patch("numpy.linalg.norm", spied(np.linalg.norm)), patch("numpy.linalg.solve", spied(np.linalg.solve)), patch("scipy.linalg.svd", spied(scipy.linalg.svd)):
        ask()
    print(name, len(seen), set(seen))
    assert set(seen) <= {1} and most() == 2, (name, seen)
"""


def test_one_thread_of_blas_inside_and_two_afterwards():
    settings = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "TQDM_DISABLE": "1"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, env=settings)
    assert not done.returncode, done.stdout + done.stderr
    watched = {line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines() if line.split()[1].isdigit()}
    assert len(watched) == 11 and sum(watched.values()) > 20 and all(watched[name] for name in ("optimize", "covariance", "space"))
