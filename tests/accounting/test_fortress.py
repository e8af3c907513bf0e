"""No number is too small: noise of all sizes and of none, against exact fractions."""
import os

import networkx as nx
import numpy as np
import pytest
import rationals
from hypothesis import given, settings
from hypothesis import strategies as st

from mfdl import LDP, PNDP, Participation, Protocol, Round, SecLDP, Step, account, corn, dsgd, mf_dsgd
from mfdl.accounting.account import account_by
from mfdl.accounting.methods.solver import certify
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.steps import fresh_noise


def test_no_noise_far_away_leaks():
    run = dsgd(gossip_matrix(nx.path_graph(30)), 30)
    report = account(run, PNDP([0]), Participation.single(30))
    assert np.isinf(report.mu).all()


def test_a_seed_that_the_attacker_holds_is_no_noise():
    run = corn(gossip_matrix(nx.path_graph(12)), 12, np.eye(12))
    assert np.isinf(account(run, PNDP([0]), Participation.single(12)).mu).all()


def test_noise_that_is_missing_in_one_direction():
    v = 2.0 ** -np.arange(20)
    v /= np.linalg.norm(v)
    W = gossip_matrix(nx.complete_graph(20))
    assert np.isinf(account(corn(W, 5, np.eye(20) - np.outer(v, v)), LDP(), Participation.single(5)).mu).all()


SIZES = st.one_of(st.just(0.0), st.floats(-16, 0).map(lambda power: 10.0**power))


@st.composite
def small_runs(draw):
    """Weights from 1e-16 to 1, seeds of groups, nodes without noise, several rounds and none, noise with a memory."""
    n, T = draw(st.integers(2, 4)), draw(st.integers(1, 4))

    def gossip():
        off = np.array([[0.0 if u == v else draw(SIZES) / n for u in range(n)] for v in range(n)])
        return Round(off + np.diag(1 - off.sum(axis=1)))

    def noise():
        q = draw(st.integers(0, n + 1))
        F = np.array([[draw(SIZES) for _ in range(q)] for _ in range(n)]).reshape(n, q)
        extra = np.array([[draw(st.integers(0, 3)) == 0 for _ in range(n)] for _ in range(q)], dtype=bool).reshape(q, n)
        holders = (F.T != 0) | extra
        holders[~holders.any(axis=1), 0] = True
        return fresh_noise(F, holders)

    fixed = draw(st.booleans())
    one = gossip()
    steps = []
    for _ in range(T):
        trains = np.array([draw(st.integers(0, 4)) > 0 for _ in range(n)])
        steps.append(Step(trains, noise(), [one if fixed else gossip() for _ in range(draw(st.integers(0, 2)))]))
    nodes = sorted(draw(st.sets(st.integers(0, n - 1), max_size=n - 1)))
    if draw(st.integers(0, 3)) == 0:
        C = np.array([[10.0 ** draw(st.integers(-8, 0)) if s == t else draw(SIZES) if s < t else 0.0 for s in range(T)] for t in range(T)])
        steps = [Step(step.trains, its.noise, step.rounds) for step, its in zip(steps, mf_dsgd(one.W, T, C).steps, strict=True)]
    trust = LDP() if not nodes else draw(st.sampled_from([PNDP(nodes), SecLDP(nodes)]))
    return Protocol(None, steps), trust, nodes


def pairs(run, trust, nodes, backend):
    """(found, exact) sensitivities of all victims, for one participation and for one in every step."""
    leaks, P = rationals.information(run, nodes, hears_all=type(trust) is SecLDP)
    exact = {"single": lambda Q: np.sqrt(np.diag(Q).max()), "every": lambda Q: np.sqrt(certify(Q).lower)}
    schemes = {"single": Participation.single(run.T), "every": Participation.every_step(run.T)}
    for name, scheme in schemes.items():
        report = account_by(backend, run, trust, scheme)
        for u, mu in zip(report.victims, report.mu, strict=True):
            yield mu, np.inf if leaks[:, u].any() else exact[name](P[u])


def resolved(run, truth):
    """Whether a finite sensitivity has to be told from a leak: below 2^25 over the largest noise."""
    return bool(np.isfinite(truth)) and truth * np.abs(run.mix.N.data).max(initial=0) < 2.0**25


@pytest.mark.parametrize("backend", ["auto", "dense"])
@settings(max_examples=int(os.environ.get("MFDL_CASES", 120)))
@given(small_runs())
def test_no_value_is_below_the_exact_one(backend, drawn):
    """And no leak is named that is none."""
    run, trust, nodes = drawn
    for mu, truth in pairs(run, trust, nodes, backend):
        assert mu >= truth * (1 - 1e-9) - 1e-9
        if np.isinf(mu): assert not resolved(run, truth)
        else: assert mu <= truth * (1 + 1e-6) + 1e-9


def tiny(y=1.0, size=1.0, records=8):
    from mfdl.learning.data import Dataset
    X = np.full((records, 2), size, dtype=np.float32)
    targets = np.zeros(records, dtype=np.float32)
    targets[0] = y
    return Dataset("tiny", X, targets, X[:2], targets[:2], None)


def linear(weight=0.0, cls=None):
    from torch import nn

    def make():
        layer = nn.Linear(2, 1, bias=False)
        nn.init.constant_(layer.weight, weight)
        return layer if cls is None else cls(layer)
    return make


def wrapped():
    from torch import nn

    class Wrapped(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x): return self.layer(x)
    return Wrapped


def simulation(make, data, clip, **more):
    from mfdl.learning.data import cut, round_robin
    from mfdl.learning.methods.noise_supply import Run
    from mfdl.learning.simulator import Simulation
    run = dsgd(gossip_matrix(nx.path_graph(2)), 2)
    return Simulation(make, data, cut(round_robin(len(data.y), 2), 2), [Run("a", run)], 0.1, clip, **more)


@pytest.mark.parametrize("size, y, clip", [(1e19, 1e-23, 1e-4), (1e15, 1e-19, 1e-5), (1e18, 1e18, 1.0), (1e-30, 1e3, 1e-15)])
@pytest.mark.parametrize("kind", ["chain", "any"])
def test_clipping_holds_where_squares_leave_float32(size, y, clip, kind):
    data = tiny(y, size)
    from torch import nn
    make = linear() if kind == "any" else lambda: nn.Sequential(linear()())
    if kind == "any": make = linear(cls=wrapped())
    sim = simulation(make, data, clip)
    change = np.array([sim.learner.changes(t).double().numpy() for t in range(2)])
    assert 0 < np.linalg.norm(change, axis=-1).max() <= clip * (1 + 1e-6) / sim.batches.size


@pytest.mark.parametrize("protect", ["record", "node"])
@pytest.mark.parametrize("kind", ["dense", "layers", "any"])
def test_a_record_that_overflows_counts_as_zero_or_stops(kind, protect):
    from torch import nn
    make = {"dense": lambda: nn.Sequential(linear(1.0)()), "layers": lambda: nn.Sequential(linear(1.0)(), nn.Identity()), "any": linear(1.0, wrapped())}[kind]
    data, plain = tiny(3e38), tiny(1.0)
    stops = simulation(make, data, 1.0, protect=protect)
    with pytest.raises(FloatingPointError, match="not a number"): [stops.learner.changes(t) for t in range(2)]
    sim, other = simulation(make, data, 1.0, protect=protect, on_nonfinite="zero"), simulation(make, plain, 1.0, protect=protect)
    changes, expected = (np.array([one.learner.changes(t).numpy() for t in range(2)]) for one in (sim, other))
    assert sim.learner.nonfinite == 1 and np.isfinite(changes).all()
    differs = np.abs(changes - expected).max(axis=(2, 3)) > 0
    assert differs.sum() <= 1 and np.linalg.norm(changes - expected, axis=-1).max() <= (1 if protect == "node" else 0.5) * (1 + 1e-6)
    with pytest.raises(ValueError, match="on_nonfinite"): simulation(make, data, 1.0, on_nonfinite="ignore")
    with pytest.raises(ValueError, match="expected a clip"): simulation(make, data, None, on_nonfinite="zero")


SHIFT = 0.0


def helper(x): return x + SHIFT


def test_a_secret_gives_other_noise_to_another_model(monkeypatch):
    """Even where they differ by an attribute, a function in an attribute, or a global only."""
    from torch import nn

    class Scaled(nn.Module):
        def __init__(self, factor=1.0, change=None):
            super().__init__()
            self.layer, self.factor, self.change = nn.Linear(2, 1), factor, change or (lambda x: x)

        def forward(self, x): return helper(self.change(self.layer(x))) * self.factor

    def digest(**how): return simulation(lambda: Scaled(**how), tiny(), 1.0).digest(exact=False)
    plain = digest()
    assert digest() == plain
    assert digest(factor=1.001) != plain
    assert digest(change=lambda x: x * 1.001) != plain
    monkeypatch.setattr("test_fortress.SHIFT", 0.001)
    assert digest() != plain


def forged(entries):
    """An archive with the right digest, as `unseal` reads it, of raw entries."""
    import hashlib
    import io
    import zipfile
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, raw in entries.items(): archive.writestr(name, raw)
    return hashlib.sha256(content.getvalue()).digest() + content.getvalue()


def npy(header, data=b""):
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize("header", [
    "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,)}", "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (3, }", "{'descr': '<f8'}", "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", "((((", "{'descr': '<Q99', 'fortran_order': False, 'shape': (1,)}"])
def test_forged_archives_are_refused_at_once(tmp_path, header):
    import tracemalloc

    from mfdl.base.files import seal, unseal
    good = seal(tmp_path / "good", {}, {"x": np.arange(3.0)})
    assert unseal(good)[1]["x"].tolist() == [0.0, 1.0, 2.0]
    path = tmp_path / "forged"
    path.write_bytes(forged({"about.npy": npy("{'descr': '<U2', 'fortran_order': False, 'shape': ()}", "{}".encode("utf-32-le")), "array/x.npy": npy(header)}))
    tracemalloc.start()
    with pytest.raises(ValueError, match="not a file of this project"): unseal(path)
    assert tracemalloc.get_traced_memory()[1] < 1e7
    tracemalloc.stop()


def test_threads_that_save_at_once_leave_a_whole_file(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    from mfdl.base.files import seal, unseal
    path = tmp_path / "state"
    with ThreadPoolExecutor(8) as pool: list(pool.map(lambda k: seal(path, {"k": k}, {"x": np.full(2000, k)}), range(120)))
    about, arrays = unseal(path)
    assert (arrays["x"] == about["k"]).all()
    assert [p.name for p in tmp_path.iterdir()] == ["state"] and path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("seed", [165, 183, 502, 1308])
def test_budgets_far_apart_end_in_the_documented_error(seed):
    from mfdl import optimize_local
    from mfdl.noise.methods.certificates import NotConverged
    rng = np.random.default_rng(seed)
    n, T = int(rng.integers(2, 5)), int(rng.integers(2, 7))
    W = gossip_matrix(nx.path_graph(n) if rng.random() < 0.5 else nx.complete_graph(n))
    trusts = [LDP(), *PNDP.each(range(n))]
    mu = 10 ** rng.uniform(-5.9, 5.9, size=(len(trusts), n))
    try: assert optimize_local(W, Participation.every_step(T), trusts, mu, tol=0.5, max_iter=30).gap <= 0.5
    except NotConverged as error: assert "rounding" in str(error) or "gap" in str(error)


@pytest.mark.parametrize("bound", [1e4, 1e10, 1e12, 1e14])
def test_a_lower_bound_is_never_above_the_objective(bound):
    from mfdl import optimize_covariance
    from mfdl.noise.methods.certificates import NotConverged
    converged = 0
    for graph in (nx.path_graph(2), nx.path_graph(5), nx.cycle_graph(4), nx.star_graph(4), nx.complete_graph(3)):
        for weights in ("uniform", "metropolis"):
            try: found = optimize_covariance(gossip_matrix(graph, weights), bound=bound)
            except NotConverged: continue
            assert found.lower_bound <= found.objective * (1 + 1e-8)
            converged += 1
    assert converged >= 5


def test_epsilon_is_as_accurate_as_it_says():
    """Against 60 digits, for mu from 1e-5 to 100: an error of at most 1e-12 of the larger of epsilon and mu."""
    import mpmath

    from mfdl import GaussianDP
    rng = np.random.default_rng(0)
    with mpmath.workdps(60):
        for _ in range(150):
            mu, delta = 10 ** rng.uniform(-5, 2), 10 ** rng.uniform(-14, -0.31)
            found = GaussianDP(mu).epsilon(delta)
            mu = mpmath.mpf(mu)
            if not found:
                assert mpmath.erf(mu / mpmath.sqrt(8)) <= delta  # delta at an epsilon of 0
                continue

            def log_delta(e, mu=mu): return mpmath.log(mpmath.ncdf(-e / mu + mu / 2) - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2))
            radius = mpmath.mpf(1e-12) * max(found, mu)
            above, below = mpmath.mpf(found) + radius, max(mpmath.mpf(found) - radius, mpmath.mpf(0))
            assert log_delta(above) <= mpmath.log(delta) and (below == 0 or log_delta(below) >= mpmath.log(delta)), (mu, delta)


def test_what_would_lose_its_meaning_is_refused(tmp_path):
    import pandas as pd

    from mfdl import optimize
    from mfdl.tools.sweeps import sweep
    W, single = gossip_matrix(nx.path_graph(3)), Participation.single(2)
    masked = lambda array: np.ma.masked_array(array, mask=np.eye(len(array)))  # noqa: E731
    frame = pd.DataFrame(W, index=[0, 1, 2], columns=[0, 1, 2])
    assert (dsgd(frame, 2).steps[0].rounds[0].W == W).all()
    for call, message in (
        (lambda: dsgd(masked(W), 2), "W is a masked array"), (lambda: dsgd(frame[[2, 1, 0]], 2), "columns in another order"), (lambda: mf_dsgd(W, 2, masked(np.eye(2))), "masked"),
        (lambda: corn(W, 2, pd.DataFrame(np.eye(3), index=[2, 0, 1], columns=[0, 1, 2])), "another order"), (lambda: optimize(masked(np.eye(2)), single), "masked"),
        (lambda: gossip_matrix(nx.MultiGraph([(0, 1), (0, 1), (1, 2)])), "parallel edges"), (lambda: fresh_noise(masked(np.eye(3))), "masked"),
    ):
        with pytest.raises(ValueError, match=message): call()
    assert gossip_matrix(nx.MultiGraph([(0, 1), (1, 2)])).shape == (3, 3)
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(ValueError, match="leads in a circle"): sweep([], tmp_path / "a")


def test_training_names_what_is_wrong():
    import torch
    from torch import nn

    from mfdl import train

    class Random(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x): return self.layer(x + torch.randn_like(x))

    spectral = lambda: torch.nn.utils.parametrizations.spectral_norm(nn.Linear(2, 1))  # noqa: E731
    for options, message in (
        ({"lr": "0.1"}, "lr is not"), ({"lr": 1e300}, "below 1e30"), ({"secure": "no"}, "secure='no': expected True or False"), ({"progress": "no"}, "expected True or False"),
        ({"device": "cudaa"}, "device='cudaa'"),
        ({"device": "cuda:77"}, "device='cuda:77'"), ({"model": Random}, "record by record"), ({"model": spectral}, "record by record"),
        ({"on_nonfinite": "drop"}, "on_nonfinite='drop'"),
    ):
        usual = {"model": linear(), "data": tiny(), "graph": "path:n=2", "epsilon": 5.0, "participation": Participation.cyclic(1, 2), "noise": "independent", "progress": False}
        with pytest.raises(ValueError, match=message): train(**(usual | options))


def test_training_says_what_becomes_of_what_is_not_finite():
    from mfdl import train
    usual = {"data": tiny(3e38), "graph": "path:n=2", "epsilon": 5.0, "participation": Participation.cyclic(1, 2), "noise": "independent", "progress": False}
    with pytest.raises(FloatingPointError): train(linear(1.0), **usual)
    done = train(linear(1.0), **usual, on_nonfinite="zero")
    assert "counts as zero" in done.statement and done.simulation.learner.nonfinite == 1
    assert all(np.isfinite(p.detach().numpy()).all() for one in done.models for p in one.parameters())
    assert "stops the training" in train(linear(1.0), **usual | {"data": tiny()}).statement
