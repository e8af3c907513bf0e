"""Campaigns over every public function: valid input keeps its invariants, invalid input is refused by a ValueError that says so, files never do more than they say.

MFDL_CASES is how many cases there are in all campaigns together; `make nightly` asks for more than `make test`.
"""
import functools
import importlib
import inspect
import json
import math
import os
import sys
import threading
import warnings

import mpmath
import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mfdl
from mfdl import accounting, algorithms, attackers, covariance, data, gossip, gram, graphs, online, participation, privacy, sensitivity, space_time, workload
from mfdl import strategies as noise

CASES = int(os.environ.get("MFDL_CASES", 1000))
FUZZED = {}  # public name -> its campaign


def codes(thing) -> set:
    """What Python runs when a function, or any method of a class, is called."""
    if not inspect.isclass(thing): return {inspect.unwrap(thing).__code__}
    parts = [getattr(part, "fget", None) or getattr(part, "func", None) or getattr(part, "__func__", part) for part in vars(thing).values()]
    return {part.__code__ for part in parts if inspect.isfunction(part)}


def campaign(share: int, names: str, *cases, **named):
    """A property with `share` thousandths of all cases, which fails unless it called each of the names, 'module.function' ('*' for all of a module)."""
    covered = [full for name in names.split() for full in (public(name[:-2]) if name.endswith(".*") else [f"mfdl.{name}"])]

    def wrap(test):
        for name in covered: FUZZED.setdefault(name, test.__name__)
        wanted = {name: codes(lookup(name)) for name in covered}

        def record(frame, event, _):
            if event == "call" and frame.f_code.co_filename.startswith(os.path.dirname(mfdl.__file__)):
                for name in [name for name, found in wanted.items() if frame.f_code in found]: del wanted[name]

        @functools.wraps(test)
        def watched(*args, **kwargs):
            if not wanted: return test(*args, **kwargs)
            sys.setprofile(record)
            threading.setprofile(record)
            try: return test(*args, **kwargs)
            finally:
                sys.setprofile(None)
                threading.setprofile(None)

        examples = settings(max_examples=max(8, CASES * share // 1000), suppress_health_check=list(HealthCheck))
        fuzz = examples(given(*cases, **named)(watched))

        @functools.wraps(test)
        def run(**fixtures):
            fuzz(**fixtures)
            assert not wanted, f"never called: {sorted(wanted)}"

        fixtures = [p for p in inspect.signature(fuzz).parameters.values()]
        run.__signature__ = inspect.Signature(fixtures)
        return run
    return wrap


def lookup(name: str):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def public(module: str) -> list:
    """The functions and classes that a module exports; constants need no cases."""
    found = importlib.import_module(f"mfdl.{module}")
    return [f"mfdl.{module}.{name}" for name in found.__all__ if callable(getattr(found, name))]


def refused(call, *words):
    """Whatever `call` does not accept it refuses with a ValueError (or FileNotFoundError) of its own that has one of the words; gives the result, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except (ValueError, FileNotFoundError) as error:
        assert not isinstance(error, np.linalg.LinAlgError | UnicodeError | json.JSONDecodeError), repr(error)
        assert not words or any(word in str(error) for word in words), f"{error!r} names none of {words}"


# Numbers

def scales(low: float, high: float): return st.floats(math.log10(low), math.log10(high)).map(lambda x: 10.0**x)


def exact_log_delta(mu: float, epsilon: float):
    """The logarithm of delta, with many digits."""
    with mpmath.workdps(60 + int(abs(math.log10(mu)))):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        tail = lambda x: mpmath.erfc(x / mpmath.sqrt(2)) / 2  # noqa: E731
        return float(mpmath.log(tail(epsilon / mu - mu / 2) - mpmath.exp(epsilon) * tail(epsilon / mu + mu / 2)))


@campaign(120, "privacy.GaussianDP privacy.log_delta privacy.mills privacy.check_delta privacy.calibrate_sigma",
          st.one_of(scales(1e-6, 1e3), st.sampled_from([1e-300, 1e-12, 1e8, 1e20, 1e154])),
          st.one_of(scales(1e-300, 0.5), st.floats(0.5, 1 - 1e-9)), st.floats(1.001, 10))
def test_epsilon_delta_and_mu(mu, delta, factor):
    """Epsilon is what many digits say, goes back to mu, and grows with mu and with 1 / delta, for any scale."""
    epsilon = privacy.GaussianDP(mu).epsilon(delta)
    assert 0 <= epsilon <= privacy.GaussianDP(mu * factor).epsilon(delta) and epsilon <= privacy.GaussianDP(mu).epsilon(delta / factor)
    assert privacy.GaussianDP(mu).rdp(2) == mu * mu and privacy.GaussianDP(0).rdp(math.inf) == 0
    if epsilon > 0:
        assert privacy.GaussianDP.from_epsilon(epsilon, delta).mu == pytest.approx(mu, rel=1e-9 / min(1, 1e3 * (1 - delta)))
        if 1e-6 <= mu <= 1e3: assert exact_log_delta(mu, epsilon) == pytest.approx(math.log(delta), rel=1e-9, abs=1e-9)
    if 1e-100 < mu < 1e100 and delta <= 0.5: assert privacy.GaussianDP(1 / privacy.calibrate_sigma(1.0, max(epsilon, 1e-3), delta)).epsilon(delta) <= max(epsilon, 1e-3)
    twice = privacy.GaussianDP(mu).compose(privacy.GaussianDP(mu))
    assert twice.mu == pytest.approx(math.sqrt(2) * mu) and 0 <= twice.delta(epsilon) <= 1


@campaign(20, "privacy.row_sensitivity privacy.calibrate_sigma", st.sampled_from([np.float16, np.float32, np.float64, float]), scales(1e-320, 1e308), st.integers(1, 10**9))
def test_number_types_and_ends_of_the_range(kind, value, records):
    """A number keeps its value whatever its type is, and what leaves the range of floats is refused."""
    given_value = kind(min(value, float(np.finfo(kind).max)))
    row = refused(lambda: privacy.row_sensitivity(given_value, records, "replace-one"), "clip")
    assert row is None or row == 2 * float(given_value) / records and 0 < row < math.inf
    sigma = refused(lambda: privacy.calibrate_sigma(given_value, 1.0, 1e-300), "sensitivity")
    assert sigma is None or type(sigma) is float and math.isfinite(sigma) and (sigma > 0) == (given_value > 0)


# Arguments

JUNK = st.one_of(
    st.sampled_from([None, True, "", "x", "../x", b"x", object(), 1j, float("nan"), -math.inf, math.inf, -1, 0, 1.5, 10**400, [], {}, set(), [[]], [None], [[1], [1, 2]], ["a"],
                     [["a"]], np.array(["a"]), range(2), len]),
    st.sampled_from([np.array(None), np.array([1j, 2]), np.full((2, 2), np.nan), np.eye(2, dtype=complex), np.zeros((0, 0)), np.eye(3)[:2], -np.eye(4)]),
    st.builds(list, st.lists(st.one_of(st.none(), st.text(max_size=2), st.floats(), st.integers(-9, 9)), max_size=4)), st.text(max_size=8), st.floats(),
    st.integers(max_value=0))
RING = gossip.gossip_matrix(nx.cycle_graph(4))
CYCLE = participation.Participation.cyclic(2, 2)
RUN = algorithms.dp_dsgd(RING, 4)
NEAR = attackers.PNDP([0])
H = gram.local_gram(RING, 4)
PARTS = [np.arange(0, 6), np.arange(6, 12)]
ENTRANCES = {  # what is called, with arguments that are good; each of them is replaced by junk
    graphs.check_count: {"argument": "count", "value": 3}, graphs.check_choice: {"argument": "choice", "value": "a", "choices": ["a", "b"]},
    graphs.parse_spec: {"spec": "ring:n=3"},
    graphs.erdos_renyi: {"n": 5, "p": 0.9, "seed": 0}, graphs.grid: {"rows": 2, "columns": 3}, graphs.load_graph: {"name": "ring:n=5"},
    gossip.gossip_matrix: {"graph": nx.path_graph(3), "weights": "uniform"},
    gossip.check_gossip: {"W": RING, "graph": nx.cycle_graph(4)}, gossip.spectral_gap: {"W": RING},
    gossip.churn: {"graph": nx.path_graph(3), "offline": [[0], []], "weights": "uniform"},
    workload.gossip_sequence: {"W": RING, "T": 2}, workload.workload: {"W": [RING, RING], "T": 2}, workload.workload_operator: {"W": RING, "T": 2},
    privacy.GaussianDP: {"mu": 1.0}, privacy.GaussianDP(1.0).delta: {"epsilon": 1.0}, privacy.GaussianDP(1.0).epsilon: {"delta": 1e-6}, privacy.GaussianDP(1.0).rdp: {"alpha": 2},
    privacy.GaussianDP.from_epsilon: {"epsilon": 1.0, "delta": 1e-6}, privacy.calibrate_sigma: {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-6},
    privacy.row_sensitivity: {"clip": 1.0, "batch_size": 4, "adjacency": "zero-out"}, privacy.check_delta: {"delta": 0.1},
    participation.Participation: {"k": 2, "b": 2, "T": 4, "separation": "exactly"}, participation.Participation.min_sep: {"k": 2, "b": 2, "T": 5},
    participation.Participation.cyclic: {"k": 2, "b": 2}, participation.Participation.parse: {"spec": "cyclic:2,2", "T": 4}, CYCLE.max_sum: {"weights": np.ones(4)},
    sensitivity.sensitivity: {"P": np.eye(2), "method": "exact"}, sensitivity.worst_sensitivity: {"P": np.eye(4), "participation": CYCLE, "method": "exact"},
    sensitivity.worst_sensitivities: {"P": np.eye(4)[None], "participation": CYCLE, "method": "bound"}, sensitivity.check_information: {"P": np.eye(2)},
    attackers.PNDP: {"nodes": [0]}, attackers.PNDP.each: {"nodes": [0, 1]}, attackers.SecLDP: {"nodes": [0], "observes": "received"},
    accounting.account: {"algorithm": RUN, "trust": NEAR, "participation": CYCLE, "sigma": 1.0, "method": "exact", "backend": "auto"},
    accounting.message_by_message: {"W": RING, "T": 2, "attacker": 0, "variant": "squared"},
    accounting.account(RUN, NEAR, CYCLE).calibrate: {"epsilon": 1.0, "delta": 1e-6},
    accounting.account(RUN, NEAR, CYCLE).epsilon: {"delta": 1e-6}, RUN.until: {"step": 2},
    gram.local_gram: {"W": RING, "T": 2}, gram.modes: {"W": RING}, noise.check_gram: {"H": np.eye(3), "T": 3},
    noise.optimize: {"H": H, "participation": CYCLE, "tol": 1e-6, "bands": 2, "equal_norm": True},
    noise.strategy: {"name": "banded", "participation": CYCLE, "W": RING, "bands": 2, "tol": 1e-6},
    noise.restart: {"one": noise.strategy("identity", CYCLE), "R": 2},
    covariance.privacy_constraint: {"epsilon": 1.0, "delta": 1e-6, "T": 3, "clip": 1.0, "calibration": "rdp"},
    covariance.seed_groups: {"W": RING, "family": "windows", "size": 2},
    covariance.optimize_covariance: {"W": RING, "c": 1.0, "horizon": 2, "method": "decor", "tol": 1e-6, "bound": 100.0},
    space_time.optimize_space_time: {"W": RING, "participation": CYCLE, "tol": 1e-3, "price": 1e-3, "groups": [[0, 1], [2, 3]], "method": "exact"},
    online.OnlineAccountant(algorithms.dp_dsgd, NEAR).feed: {"W": RING}, online.OnlineAccountant(algorithms.dp_dsgd, NEAR).rounds_left: {"mu": 1.0, "W": RING, "at_most": 3},
    data.round_robin: {"records": 9, "n": 3, "seed": 0}, data.dirichlet: {"labels": [0, 1] * 9, "n": 3, "alpha": 1.0, "seed": 0},
    data.by_group: {"groups": [0, 0, 1, 2], "n": 3, "size": 1, "seed": 0}, data.cut: {"holdings": PARTS, "b": 2, "size": 3},
    data.Batches: {"index": np.arange(12).reshape(2, 3, 2)},
    data.load_data: {"name": "digits"},
}
KINDS = {noise.restart: "one", graphs.check_count: "argument", noise.check_gram: "T"}  # arguments of which the caller is trusted
SPOKEN = {"nodes": "", "name": "", "spec": "", "value": "", "holdings": "", "argument": ""}  # what messages say in place of the argument's name


@campaign(50, " ".join(f"{call.__module__.removeprefix('mfdl.')}.{call.__name__}" for call in ENTRANCES if not hasattr(call, "__self__")), JUNK)
def test_junk_is_refused_by_name(junk):
    """Every argument of every function that is an entrance: junk is refused by an error that the function documents and that names the argument, unless it happens to be good."""
    for call, arguments in ENTRANCES.items():
        for name in set(arguments) - {KINDS.get(call), "choices", "equal_norm"}:
            try: refused(lambda: call(**arguments | {name: junk}), SPOKEN.get(name, name))  # noqa: B023, called at once
            except RuntimeError: assert "RuntimeError" in call.__doc__
