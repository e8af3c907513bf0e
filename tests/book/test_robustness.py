"""Campaigns over every public function: valid input keeps its invariants, invalid input is refused by a ValueError that says so, files never do more than they say.

MFDL_CASES is how many cases there are in all campaigns together; `make nightly` asks for more than `make test`.
"""
import functools
import gzip
import hashlib
import importlib
import inspect
import io
import itertools
import json
import math
import os
import re
import sys
import tarfile
import threading
import warnings
from pathlib import Path

import mpmath
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from conftest import MODULES, ROOT, defined
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import mfdl
from mfdl.accounting import account as accounting
from mfdl.accounting import gaussian_dp as privacy
from mfdl.accounting import lemma14 as factorization
from mfdl.accounting import sensitivity as sensitivities
from mfdl.accounting.account import account_by
from mfdl.accounting.methods import accountant as online
from mfdl.accounting.methods import per_message_baseline as earlier_accounting
from mfdl.accounting.methods import proved_for_training, solver
from mfdl.accounting.methods.lipschitz import Lipschitz
from mfdl.base import arguments, characters, downloads, files, randomness
from mfdl.base import graph_files as links
from mfdl.evidence.methods import distances, reconstruction
from mfdl.learning import data
from mfdl.learning.methods import data_sets, dealing
from mfdl.noise import cholesky, covariance, lemma12, pairwise, space_time
from mfdl.noise.methods import buffered, coalitions, covariance_budgets, gram_matrices, insiders, newton
from mfdl.noise.methods import low_memory as lean
from mfdl.noise.methods import spectral as directions
from mfdl.noise.methods import strategies as noise
from mfdl.noise.methods.certificates import NotConverged
from mfdl.protocol import algorithms, gossip, participation
from mfdl.protocol import protocols as protocol
from mfdl.protocol import threat_models as attackers
from mfdl.protocol import workload as workloads
from mfdl.protocol.methods import checked_gossip, executable, graphs, group_seeds, message_noise, run_checks, streams, token, variants, your_algorithm
from mfdl.protocol.methods.attacker_names import parse_attackers
from mfdl.protocol.methods.secure_sums import SecureSum
from mfdl.tools import grids, names, sweeps

CASES = int(os.environ.get("MFDL_CASES", 300))
HOME = {module.split(".")[-1]: module for module in MODULES}  # name of a module -> with its part
FUZZED = {}  # public name -> its campaign
ELSEWHERE = {  # why -> names without a campaign here
    "random weights never below the bound: tests/noise/test_network_weights.py": "network_weights.* which_network.*",
    "in tests/base/test_blas_threads.py, around every entry point": "blas_threads.few_blas_threads",
    "what is refused of tables and arrays: tests/learning/test_data.py, `learning.methods.data_checks`": "data_checks.*",
    "files and back, with every byte changed: tests/learning/test_keeping.py": "keeping.*",
    "loaders, columns and tables against plain arrays: tests/learning/test_data_as_held.py": "data_as_held.* data_sets.is_divided",
    "neural networks: tests/learning/test_training.py, tests/learning/test_arguments_of_train.py": "training.* statements.* budgets.* train_arguments.*",
    "random objectives against plain loops and explicit matrices: tests/noise/test_objectives.py": "objectives.*",
    "processes, networks and what they keep: tests/tools/test_distributed.py": "distributed.* journal.* network.*",
    "the order of pairs: nbs/accounting/methods/report.ipynb": "report.worst_first",
    "a report as lines and files: tests/tools/test_inputs.py, nbs/tools/answers.ipynb": "answers.* noise_commands.* cli.line_command",
    "bars, in terminals and notebooks: tests/base/test_progress.py": "files.progress_bar files.bar_options",
    "one account after the other: tests/accounting/test_large.py": "all_attackers.*",
    "certified optima side by side: nbs/noise/20_which_noise.ipynb, tests/noise/test_kinds.py": "which_noise.* noise_kinds.* noise_and_batches.*",
    "pictures: tests/base/test_colors.py and the chapters": "figures.*",
    "what notebooks show, with labels of any kind: tests/base/test_cards.py": "cards.*",
    "commands, of which the parts are here: tests/tools/test_inputs.py, tests/tools/test_sweeps.py": "names.check_kept names.check_settings names.trust_models",
    "a page, with properties and clicks of its own: tests/tools/test_explorer.py": "explorer.* settings.* view.*",
    "registers what is called by its name: tests/tools/test_inputs.py, tests/noise/test_strategies.py": "names.on_command_line "
    "strategies.Task strategies.Named strategies.named",
    "processes and locks: tests/tools/test_sweeps.py": "sweeps.survey sweeps.run_here "
    "sweeps.sweep sweeps.dask_client sweeps.write_table sweeps.all_experiments",
    "notebooks that run: tests/book/test_notebooks.py, tests/tools/test_sweeps.py": "experiments.Result experiments.ExperimentFailed experiments.reproduce "
    "experiments.code_digest",
    "published files, whose checksums are compared: tests/learning/test_data.py, tests/tools/test_inputs.py": "data_sets.housing_table "
    "graphs.facebook graphs.facebook_circles graphs.social_network downloads.data_folders downloads.find_file graphs.GraphSource",
    "files in the layout of fedivertex, and what is too large: tests/protocol/test_networks.py": "graphs.fediverse graphs.fediverse_weeks graphs.common_nodes "
    "arguments.check_fits",
    "trains, with 200 random protocols: tests/protocol/test_protocol.py": "checking.*",
    "hundreds of random runs and reactions: tests/accounting/test_reactions.py": "flow_theorem.* best_plans.* lipschitz.* signed.* flow_plans.*",
    "random data, models and clips: `learning.methods.linear`, tests/learning/test_training.py": "linear.*",
    "tests/noise/test_space_time.py, tests/noise/test_covariance.py, nbs/noise/methods/certificates.ipynb": "certificates.*",
    "thousands of random runs against exact fractions: tests/accounting/test_fortress.py": "exact.*",
    "writers and commands that are killed or interrupted: tests/base/test_leftovers.py": "files.clear_unfinished",
    "what nobody should give: tests/book/test_hostile.py": "arguments.brief arguments.check_kind arguments.check_path arguments.check_list",
    "wrong arrays and flags by name: tests/accounting/test_fortress.py": "arguments.check_plain arguments.check_flag files.version",
    "searches and expectations, against a generic solver and enumeration: `noise.methods.expected_error`, tests/noise/test_pairwise.py": "shared_secrets.* expected_error.*",
    "the account and the exact optimum: `noise.methods.any_secrets`": "any_secrets.*", "agreement and refusals: `tools.agreement`": "agreement.*",
    "lies, keys and messages: tests/tools/test_forgery.py": "signatures.*",
    "sites that are killed, frozen and lied to: tests/tools/test_swarm.py, tests/book/test_remedies.py": "swarm.* lines.* halting.* nvflare.* site_keys.*",
    "every kind of run, to a file and back, and damaged files: `protocol.methods.protocol_files`": "protocol_files.*",
    "words and pages, against the best test by brute force: `learning.methods.handing_over`": "handing_over.*",
    "words: nbs/protocol/methods/attacker_names.ipynb, tests/tools/test_front_door.py": "attacker_names.curious_in",
    "labels and pages: tests/tools/test_explorer.py": "attacker_names.labelled cli.guard cli.counting_places cli.app_folder",
    "guesses of a mechanism that is known: `evidence.methods.one_run_audit`": "one_run_audit.*",
    "random runs and coalitions against the covariance of their noise: tests/accounting/test_noisy_gradients.py": "proved_for_training.*",
    "runs that lose digits, against exact fractions: tests/accounting/test_digits.py": "state_space.check_digits state_space.strategy_in_time",
    "sparse runs of any features: tests/accounting/test_features.py": "executable.with_full_matrices",
    "all subsets by brute force: `protocol.methods.least_separation`": "least_separation.*",
    "random records in random steps: tests/protocol/test_participation.py": "record_uses.* participation.participation_of",
    "trains: tests/evidence/test_audit.py": "audit.* worst_inputs.* replays.* distances.Interval distances.least_refutable",
    "attacks in a line, for readers: tests/accounting/test_digits.py, tests/accounting/test_reactions.py": "lemma14.view attacks.coalition_mask",
    "what was checked is not checked again: tests/protocol/test_protocol.py": "checked_gossip.GossipSequence",
    "weights that edges carry: tests/protocol/test_reading_graphs.py": "checked_gossip.given_weights",
    "takes a run that was trained: tests/evidence/test_reconstruction.py": "reconstruction.Recorded reconstruction.play reconstruction.observed reconstruction.Estimate",
    "alike steps, against the whole view: tests/accounting/test_first_pattern.py, tests/accounting/test_features.py": "first_pattern.*",
    "parts of the filter, against other routes: tests/accounting/test_streaming.py, tests/accounting/test_fortress.py, `accounting.methods.filters`": "filters.* "
    "state_space.Doubtful state_space.Stage state_space.Observed state_space.check_streamable state_space.heard_rows "
    "state_space.round_observations state_space.seen_rows",
    "against the whole view, on random runs: tests/accounting/test_large.py": "sparse_view.*",
    "against the covariance of the noise, on random runs: tests/accounting/test_noisy_gradients.py": "proved_for_training.*",
    "random runs against fractions, pseudo-inverses and loops: tests/accounting/test_schedules.py": "schedules.*",
    "steps of a run, of which campaigns make thousands: tests/protocol/test_protocol.py": "steps.*",
    "parts of the account, called by it: tests/accounting/test_accounting.py, tests/accounting/test_reactions.py": "account.account_by pairs.* ways.* "
    "eavesdropper.* "
    "paths.* report.in_short report.plot_distance report.plot_heatmap report.plot_spread report.plot_victims sensitivity.check_method shifts.best_signs",
    "steps of PyTorch, budgets, an audit: tests/learning/test_optimizers.py": "optimizers.*",
    "gradients by brute force, sensitivity, an audit: tests/learning/test_persons.py": "persons.*",
    "single gradients against autograd, and models of any kind: tests/learning/test_layers.py, tests/learning/test_training.py": "clipping.* clipped_gradients.* layers.* "
    "replaced_layers.* learner.* own_code.* "
    "noise_supply.* simulator.* exchanges.* checkpoints.*",
    "plain loops, with which the simulator is compared: tests/start/test_first_run.py": "first_run.*",
    "parts of optimisers, whose certificates are checked: tests/noise/test_covariance.py, tests/noise/test_space_time.py": "coalitions.hidden_groups "
    "covariance_solver.best_covariance covariance_solver.check_budgets covariance_solver.noise_after "
    "covariance_solver.covariance_of covariance_solver.error_factor drawing.noise_of_steps "
    "space_time_solver.block_index space_time_solver.block_multipliers space_time_solver.largest_absolute_sum mafalda.Shape mafalda.dual_value mafalda.symmetric_root",
    "coverage by simulation, and scipy's own tests: tests/tools/test_intervals.py": "intervals.*",
    "names of nodes, and files of links from a command line: tests/protocol/test_reading_graphs.py": "arguments.composed names.read_network",
    "what errors recommend: tests/book/test_remedies.py": "arguments.without_remedy names.in_options",
    "damaged logs, and random runs that are written and read: tests/tools/test_plugging.py": "logs.*",
    "optimizers of others, right and wrong: tests/tools/test_opacus.py, nbs/tools/opacus.ipynb": "opacus.*",
    "what extras bring: tests/book/test_package.py": "files.needed_for",
    "bars: tests/base/test_progress.py": "files.bars_shown files.map_with_bar files.worker_threads",
    "pictures on cards: tests/base/test_cards.py": "cards.network_card cards.draw_links",
    "what a new user types: tests/tools/test_front_door.py": "files.json_values files.check_place data_sets.as_dataset "
    "names.aside names.completes names.LineCommand",
    "batches that are drawn: tests/tools/test_random_batches.py": "drawn_batches.* randomness.secure_uniform",
    "random steps against quadrature, and what refuses them: tests/accounting/test_chance.py": "poisson.* random_participation.RandomParticipation "
    "random_participation.PoissonParticipation random_participation.RandomSchemes",
    "random batches against quadrature, and what refuses them: tests/accounting/test_bins.py": "random_batches.* importance_sampling.* "
    "random_participation.BinsParticipation",
    "one place among many against quadrature: tests/accounting/test_allocation.py": "random_allocation.*",
    "batches that are cut: tests/accounting/test_truncated.py": "truncated_poisson.* random_participation.TruncatedParticipation",
    "by what is read with them: nbs/base/characters.ipynb, tests/learning/test_data.py": "characters.pixels characters.read_characters",
    "takes nothing, or is a base without content": "randomness.fresh_secret files.package_code threat_models.TrustModel",
}


def codes(thing) -> set:
    """What Python runs when a function, or any method of a class, is called."""
    if not inspect.isclass(thing): return {inspect.unwrap(thing).__code__}
    parts = [getattr(part, "fget", None) or getattr(part, "func", None) or getattr(part, "__func__", part) for part in vars(thing).values()]
    return {part.__code__ for part in parts if inspect.isfunction(part)}


def campaign(share: int, names: str, *cases, **named):
    """A property with `share` thousandths of all cases, which fails unless it called each of the names, 'module.function' ('*' for all of a module)."""
    covered = expanded(names)

    def wrap(test):
        for name in covered: FUZZED.setdefault(name, test.__name__)
        wanted = {name: found for name in covered if (found := codes(lookup(name)))}
        names = {code: name for name, found in wanted.items() for code in found}

        def record(frame, event, _): wanted.pop(names.get(frame.f_code), None)

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


def expanded(names: str) -> list:
    return [full for name in names.split() for full in (public(name[:-2]) if name.endswith(".*") else [f"mfdl.{HOME[name.partition('.')[0]]}.{name.partition('.')[2]}"])]


def lookup(name: str):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def public(module: str) -> list:
    """The functions and classes of a module that others may use; constants need no cases."""
    return [f"mfdl.{HOME[module]}.{name}" for name in defined(HOME[module])]


def refused(call, *words):
    """Whatever `call` does not accept it refuses with a ValueError (or FileNotFoundError) of its own that has one of the words; gives the result, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except (ValueError, FileNotFoundError) as error:
        assert not isinstance(error, np.linalg.LinAlgError | UnicodeError | json.JSONDecodeError), repr(error)
        assert not words or any(re.search(rf"(?<!\w){re.escape(word)}" + r"(?!\w)" * word[-1].isalnum(), str(error)) for word in words), f"{error!r} names none of {words}"


# Numbers

def scales(low: float, high: float): return st.floats(math.log10(low), math.log10(high)).map(lambda x: 10.0**x)


def exact_log_delta(mu: float, epsilon: float):
    """The logarithm of delta, with many digits."""
    with mpmath.workdps(60 + int(abs(math.log10(mu)))):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        tail = lambda x: mpmath.erfc(x / mpmath.sqrt(2)) / 2  # noqa: E731
        return float(mpmath.log(tail(epsilon / mu - mu / 2) - mpmath.exp(epsilon) * tail(epsilon / mu + mu / 2)))


@campaign(120, "gaussian_dp.GaussianDP gaussian_dp.calibrate_sigma gaussian_conversions.gaussian_log_delta gaussian_conversions.solve_epsilon gaussian_conversions.solve_mu",
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


@campaign(20, "gaussian_dp.row_sensitivity gaussian_dp.calibrate_sigma", st.sampled_from([np.float16, np.float32, np.float64, float]), scales(1e-320, 1e308), st.integers(1, 10**9))
def test_number_types_and_ends_of_the_range(kind, value, records):
    """A number keeps its value whatever its type is, and what leaves the range of floats is refused."""
    given_value = kind(min(value, float(np.finfo(kind).max)))
    row = refused(lambda: privacy.row_sensitivity(given_value, records, "replace-one"), "clip")
    assert row is None or row == 2 * float(given_value) / records and 0 < row < math.inf
    sigma = refused(lambda: privacy.calibrate_sigma(given_value, 1.0, 1e-300), "sensitivity")
    assert sigma is None or type(sigma) is float and math.isfinite(sigma) and (sigma > 0) == (given_value > 0)


# Arguments

JUNK = st.one_of(
    st.sampled_from([None, True, "", "x", "../x", b"x", object(), 1j, float("nan"), -math.inf, math.inf, -1, 0, 1.5, 2**70, 10**400, [], {}, set(), [[]], [None], [[1], [1, 2]],
                     ["a"], [["a"]], np.array(["a"]), range(2), len]),
    st.sampled_from([np.array(None), np.array([1j, 2]), np.full((2, 2), np.nan), np.eye(2, dtype=complex), np.zeros((0, 0)), np.eye(3)[:2], -np.eye(4)]),
    st.builds(list, st.lists(st.one_of(st.none(), st.text(max_size=2), st.floats(), st.integers(-9, 9)), max_size=4)), st.text(max_size=8), st.floats(),
    st.integers(max_value=0))
RING = gossip.gossip_matrix(nx.cycle_graph(4))
CYCLE = participation.Participation.cyclic(2, 2)
RUN = algorithms.dp_dsgd(RING, 4)
NEAR = attackers.PNDP([0])
H = gram_matrices.local_gram(RING, 4)
PARTS = [np.arange(0, 6), np.arange(6, 12)]
ENTRANCES = {  # what is called, with arguments that are good; each of them is replaced by junk
    arguments.check_count: {"argument": "count", "value": 3}, arguments.check_confidence: {"confidence": 0.95},
    arguments.check_choice: {"argument": "choice", "value": "a", "choices": ["a", "b"]},
    graphs.parse_spec: {"spec": "ring:n=3"},
    graphs.erdos_renyi: {"n": 5, "p": 0.9, "seed": 0}, graphs.grid: {"rows": 2, "columns": 3}, graphs.load_graph: {"name": "ring:n=5"},
    gossip.gossip_matrix: {"graph": nx.path_graph(3), "weights": "uniform"},
    checked_gossip.check_gossip: {"W": RING, "graph": nx.cycle_graph(4)}, gossip.spectral_gap: {"W": RING},
    gossip.churn: {"graph": nx.path_graph(3), "offline": [[0], []], "weights": "uniform"},
    checked_gossip.gossip_sequence: {"W": RING, "T": 2}, workloads.workload: {"W": [RING, RING], "T": 2}, workloads.workload_operator: {"W": RING, "T": 2},
    privacy.GaussianDP: {"mu": 1.0}, privacy.GaussianDP(1.0).delta: {"epsilon": 1.0}, privacy.GaussianDP(1.0).epsilon: {"delta": 1e-6}, privacy.GaussianDP(1.0).rdp: {"alpha": 2},
    privacy.GaussianDP.from_epsilon: {"epsilon": 1.0, "delta": 1e-6}, privacy.calibrate_sigma: {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-6},
    privacy.row_sensitivity: {"clip": 1.0, "batch_size": 4, "adjacency": "zero-out"}, privacy.check_delta: {"delta": 0.1}, privacy.check_sigma: {"sigma": 1.0},
    participation.Participation: {"k": 2, "b": 2, "T": 4, "separation": "exactly"}, participation.Participation.min_sep: {"k": 2, "b": 2, "T": 5},
    participation.Participation.cyclic: {"k": 2, "b": 2}, participation.Participation.parse: {"spec": "cyclic:2,2", "T": 4}, CYCLE.max_sum: {"weights": np.ones(4)},
    sensitivities.sensitivity: {"P": np.eye(2), "method": "exact"}, sensitivities.worst_sensitivity: {"P": np.eye(4), "participation": CYCLE, "method": "exact"},
    sensitivities.worst_sensitivities: {"P": np.eye(4)[None], "participation": CYCLE, "method": "bound"}, sensitivities.check_information: {"P": np.eye(2)},
    attackers.PNDP: {"nodes": [0]}, attackers.PNDP.each: {"nodes": [0, 1]}, attackers.SecLDP: {"nodes": [0], "observes": "received"},
    accounting.account: {"protocol": RUN, "trust": NEAR, "participation": CYCLE, "sigma": 1.0, "method": "exact"},
    earlier_accounting.message_by_message: {"W": RING, "T": 2, "attacker": 0, "variant": "squared"},
    accounting.account(RUN, NEAR, CYCLE).calibrate: {"epsilon": 1.0, "delta": 1e-6},
    accounting.account(RUN, NEAR, CYCLE).epsilon: {"delta": 1e-6}, RUN.until: {"step": 2},
    gram_matrices.local_gram: {"W": RING, "T": 2, "probes": 2, "seed": 0}, gram_matrices.modes: {"W": RING}, gram_matrices.probe_grams: {"W": RING, "T": 2, "V": np.eye(4)},
    newton.optimize: {"H": H, "participation": CYCLE, "tol": 1e-6, "bands": 2, "equal_norm": True},
    noise.strategy: {"name": "banded", "participation": CYCLE, "W": RING, "bands": 2, "tol": 1e-6},
    lean.banded_inverse: {"H": H, "participation": CYCLE, "bands": 2},
    lean.inverse_root: {"bands": 3, "momentum": 0.5},
    buffered.Buffered: {"poles": [0.5], "zeros": [0.2], "sizes": np.ones(4)}, buffered.best_buffers: {"W": RING, "participation": CYCLE, "buffers": 1, "price": 0.1},
    noise.restart: {"one": noise.strategy("identity", CYCLE), "R": 2},
    covariance_budgets.privacy_constraint: {"epsilon": 1.0, "delta": 1e-6, "T": 3, "clip": 1.0, "calibration": "rdp"},
    coalitions.seed_groups: {"W": RING, "family": "windows", "size": 2},
    covariance.optimize_covariance: {"W": RING, "c": 1.0, "horizon": 2, "method": "decor", "tol": 1e-6, "bound": 100.0},
    directions.optimize_space_time: {"W": RING, "participation": CYCLE, "tol": 1e-3, "trace_penalty": 1e-3, "groups": [[0, 1], [2, 3]], "method": "exact"},
    online.OnlineAccountant(NEAR).feed: {"step": RUN.steps[0]}, online.OnlineAccountant(NEAR).rounds_left: {"mu": 1.0, "step": RUN.steps[0], "max_rounds": 3},
    data.round_robin: {"records": 9, "n": 3, "seed": 0}, dealing.dirichlet: {"labels": [0, 1] * 9, "n": 3, "alpha": 1.0, "seed": 0},
    dealing.by_group: {"groups": [0, 0, 1, 2], "n": 3, "size": 1, "seed": 0}, data.cut: {"holdings": PARTS, "b": 2, "size": 3},
    data.Batches: {"index": np.arange(12).reshape(2, 3, 2)},
    data_sets.load_data: {"name": "digits"},
    algorithms.mf_dsgd: {"W": RING, "T": 2, "C": np.eye(2), "nodes": None}, algorithms.dp_dsgd: {"W": RING, "T": 2, "nodes": None},
    group_seeds.corn: {"W": RING, "T": 2, "R": np.eye(4), "nodes": None}, streams.deal_seeds: {"protocol": RUN, "secret": 1},
    randomness.derive_seed: {"secret": 1}, randomness.draw: {"seed": 1, "number": 0, "dimension": 3}, randomness.grid_spacing: {"scale": 1.0, "clip": 1.0},
    distances.interval: {"without": [0.0, 1.0, 2.0], "with_it": [0.0, 1.0], "confidence": 0.9},
    distances.epsilon_shown: {"without": [0.0, 1.0, 2.0], "with_it": [0.0, 1.0], "delta": 0.1, "confidence": 0.9},
    reconstruction.estimate: {"v": factorization.view(RUN, NEAR), "messages": np.zeros((8, 2)), "scale": 1.0, "b": 2},
    reconstruction.image_of: {"gradient": np.arange(1.0, 7.0), "outputs": 2, "inputs": 2}, reconstruction.picture_error: {"image": [1.0, 2.0], "record": [2.0, 1.0]},
}
KINDS = {noise.restart: "one", arguments.check_count: "argument"}  # arguments of which the caller is trusted
SPOKEN = {  # what messages say in place of the argument's name
    "value": ("choice", "count"), "nodes": ("nodes", "attackers"), "name": ("name", "data", "graph", "path", "file"), "spec": ("participation", "graph"),
    "holdings": ("holdings", "index")}


@campaign(50, " ".join(f"{call.__module__.split('.')[-1]}.{call.__name__}" for call in ENTRANCES if not hasattr(call, "__self__")), JUNK)
def test_junk_is_refused_by_name(junk):
    """Every argument of every function that is an entrance: junk is refused by an error that the function documents and that names the argument, unless it happens to be good."""
    for call, given_by in ENTRANCES.items():
        for name in set(given_by) - {KINDS.get(call), "choices", "equal_norm"}:
            try: refused(lambda: call(**given_by | {name: junk}), *SPOKEN.get(name, [name]))  # noqa: B023, called at once
            except NotConverged: assert call.__name__ not in mfdl.__all__ or "NotConverged" in call.__doc__


# Accounts

TOL = 1e-6


def random_gossip(kind: str, n: int, rng) -> np.ndarray:
    """A gossip matrix of one of the kinds that come up, or that should not and are legal."""
    graph = nx.Graph([(v, int(rng.integers(v))) for v in range(1, n)] + [tuple(rng.integers(n, size=2).tolist()) for _ in range(n // 2)])
    W = gossip.gossip_matrix(nx.complete_graph(n) if kind == "nearly singular" else graph, "uniform" if kind == "uniform" else "metropolis")
    match kind:
        case "directed": W = (rng.random((n, n)) < 0.5) * rng.random((n, n)) + np.eye(n)
        case "nearly singular": W = W + 1e-9 * np.eye(n)
        case "islands": W = np.kron(np.eye(2), W)[:n, :n] + 0.1 * np.eye(n)
        case "lazy": W = W + 1e3 * np.eye(n)
        case "still": W = np.eye(n)
    return W / W.sum(axis=1, keepdims=True)


KINDS_OF_GOSSIP = ("metropolis", "uniform", "directed", "nearly singular", "islands", "lazy", "still")


SEEDS = st.integers(0, 2**32 - 1)  # of sizes too: drawn one by one, these would nearly always be small


def networks(most=6, kinds=KINDS_OF_GOSSIP): return SEEDS.map(np.random.default_rng).map(lambda rng: random_gossip(rng.choice(kinds), int(rng.integers(2, most + 1)), rng))


def walk(Ws, seed: int) -> list:
    """Where a token is that follows the weights of a network."""
    rng, at = np.random.default_rng(seed), [0]
    for W in Ws: at.append(int(rng.choice(len(W), p=W[at[-1]])))
    return at


def random_run(seed: int):
    """An algorithm on a network that may change, as a function of the order of its nodes; an order, another one, a number of attackers, and whether weights are extreme."""
    rng = np.random.default_rng(seed)
    n, T = int(rng.integers(2, 7)), int(rng.integers(1, 7))
    kinds = rng.choice(KINDS_OF_GOSSIP, size=2)
    two = [random_gossip(kind, n, rng) for kind in kinds]
    Ws = [two[int(i)] for i in rng.integers(1 + rng.integers(2), size=T)]
    C, loud = np.eye(T) + np.tril(rng.uniform(-0.9, 0.9, (n, T, T)), -1), rng.uniform(0.5, 2, n)
    name = rng.choice(["dp_dsgd", "anti_pgd", "muffliato", "mf_dsgd", "banded", "decor", "corn", "zip_dl", "local", "walk", "offline", "tracking", "push"])
    away = rng.random((T, n)) < 0.3

    def make(order):
        moved, labels = [W[np.ix_(order, order)] for W in Ws], [f"node {u}" for u in order]
        match name:
            case "muffliato": return variants.muffliato(moved, T, 2, labels)
            case "mf_dsgd": return algorithms.mf_dsgd(moved, T, list(C[order]), labels)
            case "banded": return algorithms.mf_dsgd(moved, T, np.eye(T) - 0.5 * np.eye(T, k=-1), labels)
            case "decor": return algorithms.decor(moved, T, 1.0, 0.7, nodes=labels)
            case "local": return variants.local_dsgd(moved, T, 2, labels)
            case "walk": return token.random_walk(moved, T, path=[f"node {u}" for u in walk(Ws, seed)], nodes=labels)
            case "offline": return algorithms.dp_dsgd(moved, T, labels, offline=[[f"node {u}" for u in np.flatnonzero(gone)] for gone in away])
            case "tracking": return your_algorithm.gradient_tracking(moved, T, labels)
            case "push": return your_algorithm.push_sum([(W.T + np.eye(n)) / 2 for W in moved], T, labels)
            case "zip_dl": return message_noise.zip_dl(moved, T, True, labels)
            case "corn": return group_seeds.corn(moved, T, [np.diag(loud[order] * (np.arange(n) == k)) for k in range(n)] + [np.full((n, n), 0.3)],
                                                [[label] for label in labels] + [labels], labels)
        return {"dp_dsgd": algorithms.dp_dsgd, "anti_pgd": variants.anti_pgd}[name](moved, T, labels)

    return make, np.arange(n), rng.permutation(n), int(rng.integers(1, n)), bool({"lazy", "nearly singular"} & set(kinds))


def by_victim(run, trust, scheme, way="auto", **options) -> dict:
    report = account_by(way, run, trust, scheme, **options)
    assert (report.mu >= 0).all()
    return dict(zip(report.victims, report.mu.tolist(), strict=True))


def alike(one: dict, other: dict, careful: bool) -> bool:
    """Whether two routes agree; careful ones may take extreme weights for a leak."""
    return all(mu == pytest.approx(other[v], rel=1e-6, abs=1e-9) or careful and math.inf in (mu, other[v]) for v, mu in one.items())


@campaign(140, "account.account report.Report "
               "algorithms.dp_dsgd variants.anti_pgd variants.muffliato algorithms.mf_dsgd algorithms.decor group_seeds.corn message_noise.zip_dl "
               "variants.local_dsgd token.random_walk your_algorithm.gradient_tracking your_algorithm.push_sum "
               "tables.* labels.check_nodes labels.check_attackers labels.Labelled protocols.Protocol matrices_from_elsewhere.* run_checks.* "
               "executable.check_protocol_type checked_gossip.gossip_kinds "
               "algorithms.gossip_run strategy_rows.time_blocks strategy_rows.noise_of_strategy absences.each_its_own absences.left_alone absences.node_sets "
               "attacks.follow attacks.seen_alone attacks.Attack lemma14.view_of "
               "secure_sums.SecureSum threat_models.LDP threat_models.PNDP threat_models.SecLDP lemma14.View lemma14.decompose "
               "lemma14.Factorization "
               "state_space.state_space streaming.stream state_space.StateSpace state_space.NotStreamable streaming.Streamed", SEEDS.map(random_run))
def test_accounts_of_anything_legal(case):
    """Who sees or knows more learns more, routes and orders of nodes agree, nobody learns what does not arrive, and a calibrated report keeps its promise."""
    make, order, shuffled, size, extreme = case
    run = make(order)
    few, scheme = list(run.nodes[:size]), participation.Participation.every_step(run.T)
    def at_most(less, more): return all(mu <= more[v] * (1 + TOL) + TOL or extreme and mu == math.inf for v, mu in less.items() if v in more)
    near, received, everything, outside = (by_victim(run, trust, scheme) for trust in (
        attackers.PNDP(few), attackers.SecLDP(few, "received"), attackers.SecLDP(few), attackers.LDP()))
    sums = {} if run.rows > 1 else by_victim(run, SecureSum(few), scheme)
    assert at_most(sums, near) and received == near and at_most(near, everything) and at_most(outside, everything)
    if (run.variables.holder_sets.sum(axis=1) == 1).all(): assert at_most(everything, outside)
    if size > 1: assert at_most(by_victim(run, attackers.PNDP(few[:1]), scheme), near)
    assert at_most(by_victim(run, attackers.PNDP(few), participation.Participation.single(run.T)), near)
    assert at_most(near, by_victim(run, attackers.PNDP(few), scheme, method="bound"))
    dense, moved = by_victim(run, attackers.PNDP(few), scheme, "dense"), by_victim(make(shuffled), attackers.PNDP(few), scheme)
    assert alike(near, dense, extreme) and alike(near, moved, extreme)
    elsewhere = protocol.Protocol.from_matrices(run.M_G, run.M_Z, run.messages, run.variables, run.nodes, run.T)
    assert alike(near, by_victim(elsewhere, attackers.PNDP(few), scheme), extreme) and (elsewhere.hears == run.hears).all() and len(repr(elsewhere)) < 200
    with pytest.raises(ValueError, match="protocol"): executable.check_protocol_type(elsewhere)
    assert all(near[v] == 0 for v, hops in zip(run.nodes, run.distances(few), strict=True) if v in near and hops > sum(len(step.rounds) for step in run.steps))
    promise = refused(lambda: by_victim(run, attackers.PNDP(few), scheme, updates=Lipschitz(1)), "updates")
    if promise is not None: assert at_most({v: mu for v, mu in near.items() if np.isfinite(mu)}, promise)
    run_checks.check_linked(run.hears, run, "nodes")
    if run.hears.sum():
        with pytest.raises(ValueError, match="has no such link"): run_checks.check_linked(np.zeros((run.n, run.n)), run, "nodes")
    report = accounting.account(run, attackers.LDP(), scheme, sigma=2.0)
    assert "react" in repr(report)
    assert report.mu == pytest.approx([outside[v] / 2 for v in report.victims]) and len(report.to_frame()) == run.n
    if np.isfinite(report.mu).all(): assert budget_is_kept(report, report.mu, estimate=not report.adaptive) and (report.rdp(2) == report.mu**2).all()
    assert (report.proved.mu >= report.mu * (1 - 1e-6)).all()
    if np.isfinite(report.proved.mu).all(): assert budget_is_kept(report, report.proved.mu)


def budget_is_kept(report, mu, **estimate) -> bool:
    """Whether a report that is calibrated keeps its budget, or is refused where nothing comes to anybody."""
    if mu.any(): return (report.calibrate(3.0, 1e-6, **estimate).epsilon(1e-6) <= 3).all()
    with pytest.raises(ValueError, match="nothing ever comes"): report.calibrate(3.0, 1e-6, **estimate)
    return True


@campaign(10, "streaming.* variants.dsgd lemma14.factorize lemma14.NotFactorizable per_message_baseline.message_by_message arguments.real_number arguments.real_array", SEEDS)
def test_runs_of_some_more_steps(seed):
    """In one pass and from the whole view the same, where windows are many; earlier accounting never knows less; without noise there is no factorization."""
    rng = np.random.default_rng(seed)
    W, T = random_gossip(rng.choice(["metropolis", "uniform"]), 3, rng), int(rng.integers(40, 50))
    scheme = participation.Participation.every_step(T)
    for run in (algorithms.dp_dsgd(W, T), variants.muffliato(W, T, 2), algorithms.mf_dsgd(W, T, np.eye(T) - 0.5 * np.eye(T, k=-1)), algorithms.decor(W, T, 0.0)):
        for trust in (attackers.PNDP([0]), attackers.LDP()):
            one, other = (refused(lambda: by_victim(run, trust, scheme, way), "expected the whole view") for way in ("streaming", "dense"))  # noqa: B023
            assert one is None or alike(one, other, careful=False)
    earlier = earlier_accounting.message_by_message(W, T, 0)
    assert all(mu**2 <= earlier[v] * (1 + TOL) for v, mu in by_victim(algorithms.dp_dsgd(W, T), attackers.PNDP([0]), scheme).items())
    assert set(by_victim(variants.dsgd(W, 3), attackers.LDP(), participation.Participation.single(3)).values()) == {math.inf}
    seen = factorization.view(variants.dsgd(W, 3), attackers.PNDP([0]))
    if len(seen.A): assert refused(lambda: factorization.factorize(seen), "no factorization") is None
    assert factorization.factorize(factorization.view(algorithms.dp_dsgd(W, 3), attackers.LDP())).C.shape == (9, 9)
    assert arguments.real_number(np.float32(0.5)) == 0.5 and math.isnan(arguments.real_number("1"))
    assert arguments.real_number(10**400) == math.inf and arguments.real_number(-10**400) == -math.inf


@campaign(40, "randomness.derive_seed randomness.check_seed streams.deal_seeds randomness.block_size randomness.draw_block randomness.draw streams.NodeNoise streams.NoiseSupply "
              "randomness.secure_normal randomness.block_generator",
          SEEDS, st.integers(0, 2**128 - 1), st.integers(1, 9000))
def test_noise_depends_on_its_seed_only(seed, secret, dimension):
    """Each variable is what its seed and number say, whoever draws it, in whatever order and among whichever nodes; other secrets and purposes give other noise."""
    make, order, *_ = random_run(seed)
    run, rng = make(order), np.random.default_rng(seed)
    seeds = streams.deal_seeds(run, secret)
    drawn = {label: list(streams.NodeNoise(run, label, seeds[label], dimension)) for label in rng.permutation(run.nodes).tolist()}
    u = int(rng.integers(run.n))
    label = run.nodes[u]
    asked, again, T = streams.NodeNoise(run, label, seeds[label], dimension), streams.NodeNoise(run, label, seeds[label], dimension), len(run.steps)
    for t in rng.permutation(T).tolist(): assert np.array_equal(asked.noise_at(t), drawn[label][t])
    again.restore(asked.state())
    if asked.t < T: assert np.array_equal(next(again), drawn[label][asked.t])
    variables = zip(run.variables.holder_set, run.variables.number, strict=True)
    Z = np.array([randomness.draw(randomness.derive_seed(secret, row), number, dimension) for row, number in variables]).reshape(-1, dimension)
    np.testing.assert_allclose(np.vstack(drawn[run.nodes[u]]), (run.mix.N @ Z)[run.mix.node == u], atol=1e-9)
    assert len({secret, *(randomness.derive_seed(secret, *purpose) for purpose in ((), (0,), (1,), (0, 0), (0, 1)))}) == 6
    for secure in (False, True): assert (randomness.draw_block(secret, 0, dimension, secure)[0] == randomness.draw(secret, 0, dimension, secure)).all()
    piecewise = randomness.block_generator(secret, 7)
    assert all((piecewise.standard_normal(dimension) == row).all() for row in randomness.draw_block(secret, 7, dimension))
    assert randomness.block_size(dimension) * dimension <= 2**13 or randomness.block_size(dimension) == 1
    for wrong in (-1, 2**128, 1.0, True, "x", None): assert refused(lambda: randomness.derive_seed(wrong, 1), "expected an integer") is None  # noqa: B023


@campaign(20, "randomness.grid_spacing randomness.to_grid", scales(1e-12, 1e12), scales(1e-12, 1e12), SEEDS)
def test_sums_on_a_grid_are_rounded_sums(scale, clip, seed):
    """Gradient and noise on one grid add up, in float32, to the ideal sum on the grid, and all of them fit."""
    q, rng = randomness.grid_spacing(scale, clip), np.random.default_rng(seed)
    assert math.log2(q).is_integer() and 2**24 * q >= max(64 * scale, clip) > 2**23 * q
    gradient, z = randomness.to_grid(rng.uniform(-clip, clip, size=50) / 2, q), 6 * scale * rng.uniform(-1, 1, size=50)
    sums = gradient.astype(np.float32) + randomness.to_grid(z, q).astype(np.float32)
    assert (sums.astype(float) == np.round((gradient + z) / q) * q).all()
    for wrong in (2.0**24 * q, np.inf, np.nan):
        with pytest.raises(FloatingPointError): randomness.to_grid(np.array([0.0, wrong]), q)


@campaign(80, "solver.certify shifts.Certificate sensitivity.sensitivity sensitivity.worst_sensitivities",
          st.integers(1, 6), st.integers(0, 6), SEEDS, st.one_of(scales(1e-6, 1e6), st.sampled_from([1e-120, 1e120])))
def test_certificates_from_both_sides(k, rank, seed, scale):
    """Every choice of signs is below the exact value, which is below the sum, has a narrow certificate, and grows with P and with its scale."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(k, rank)) * rng.choice([1, 1e-4], size=(k, 1))
    P = scale * root @ root.T
    proof = solver.certify(P)
    signs = max((np.array(s) @ P @ s for s in itertools.product([-1, 1], repeat=k)), default=0)
    assert signs * (1 - 1e-9) <= proof.upper <= np.abs(P).sum() * (1 + 1e-9) and proof.lower <= proof.upper * (1 + 1e-12) and proof.gap < 1e-8
    value = sensitivities.sensitivity(P)
    assert value**2 == pytest.approx(float(proof.upper), rel=1e-9) and value <= sensitivities.sensitivity(P, "bound") * (1 + 1e-9)
    assert sensitivities.sensitivity(P + scale * np.eye(k)) >= value and sensitivities.sensitivity(4 * P) == pytest.approx(2 * value, rel=1e-8)
    scheme = participation.Participation.every_step(k)
    several = sensitivities.worst_sensitivities(np.array([P, 4 * P]), scheme)
    assert several == pytest.approx([value, 2 * value], rel=1e-8)
    for wrong in (np.nan, np.inf): refused(lambda: pytest.fail(str(sensitivities.worst_sensitivities(np.full((1, k, k), wrong), scheme))), "not finite")  # noqa: B023


@campaign(80, "participation.Participation sensitivity.worst_sensitivity", st.integers(1, 4), st.integers(1, 4), st.integers(0, 4), st.booleans(), SEEDS)
def test_patterns_are_all_there_is(k, b, more, exactly, seed):
    """Patterns, their number and the largest sum, against all subsets of steps; text is read as it is meant."""
    T = k * b + (0 if exactly else more)
    assume(T <= 9)
    scheme = participation.Participation(np.int8(k), np.int16(b), T, "exactly" if exactly else "at least")
    def legal(steps): return len(steps) <= k and all((u - v == b if exactly else u - v >= b) for v, u in itertools.pairwise(steps))
    every = [steps for size in range(1, T + 1) for steps in itertools.combinations(range(T), size) if legal(steps)]
    maximal = {steps for steps in every if not any(set(steps) < set(other) for other in every)}
    assert set(scheme.patterns()) == maximal and scheme.count == len(maximal) == len(list(scheme.patterns()))
    w = np.random.default_rng(seed).random(T)
    assert scheme.max_sum(w) == pytest.approx(max(w[list(steps)].sum() for steps in maximal))
    assert sensitivities.worst_sensitivity(np.diag(w), scheme)**2 == pytest.approx(scheme.max_sum(w))
    assert participation.Participation.parse(f"cyclic:{k},{b}" if exactly else f"min-sep:{k},{b}", T) == scheme


# Gossip, workloads and what is optimal

@campaign(60, "gossip.gossip_matrix gossip.spectral_gap gossip.links gossip.hops gossip.churn checked_gossip.check_gossip checked_gossip.check_graph "
              "checked_gossip.adjacency_of checked_gossip.square_matrix checked_gossip.warn_if_disconnected "
              "checked_gossip.warn_if_out_of_order checked_gossip.gossip_sequence checked_gossip.is_matrix "
              "workload.workload "
              "workload.workload_operator checked_gossip.gossip_sequence checked_gossip.is_matrix gram_matrices.* cholesky.gram_factor "
              "lemma12.* space_time.space_time_workload",
          networks(), st.integers(1, 5), SEEDS)
def test_workloads_and_grams(W, T, seed):
    """Rows sum to the ages of gradients, the operator is the matrix, and the Gram matrix is that of the workload, for one W, for its parts, and for one that changes."""
    n, rng = len(W), np.random.default_rng(seed)
    A, x = workloads.workload(W, T), rng.normal(size=n * T)
    assert A @ np.ones(n * T) == pytest.approx(np.repeat(np.arange(1, T + 1), n)) and workloads.workload_operator(W, T) @ x == pytest.approx(A @ x)
    assert workloads.workload_operator(W, T).T @ x == pytest.approx(A.T @ x) and 0 <= gossip.spectral_gap(W) <= 1
    changing = [W] * (T - 1) + [np.eye(n)]
    for Ws in (W, changing):
        whole = space_time.space_time_workload(Ws, T)
        each = np.einsum("rsu,rtu->ust", *[whole.reshape(-1, T, n)] * 2)
        assert gram_matrices.local_gram(Ws, T, per_node=True) == pytest.approx(each, abs=1e-9) and gram_matrices.local_gram(Ws, T) == pytest.approx(each.sum(axis=0), abs=1e-9)
        assert gram_matrices.probe_grams(Ws, T, np.eye(n)) == pytest.approx(each, abs=1e-9)
        assert np.linalg.eigvalsh(gram_matrices.gram_estimates(Ws, T, 2, seed))[:, 0].min() > 0.2  # as of the prefix matrix
    H = gram_matrices.local_gram(W, T) + np.eye(T)
    L = cholesky.gram_factor(H)
    assert L.T @ L == pytest.approx(H) and not np.triu(L, 1).any()
    moduli = refused(lambda: gram_matrices.modes(W), "W is neither")
    if np.array_equal(W, W.T): assert lemma12.symmetric_gram(W, T, True) == pytest.approx(gram_matrices.local_gram([W] * T, T, per_node=True), abs=1e-9)
    if moduli is not None: assert moduli[0] @ moduli[1] @ moduli[0] == pytest.approx(np.trace(W.T @ W))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        absent = [sorted(rng.choice(n, size=rng.integers(n), replace=False).tolist()) for _ in range(T)]
        steps = gossip.churn(nx.Graph(nx.to_networkx_graph(W + W.T)), absent, "uniform")
        gossip.gossip_matrix(nx.empty_graph(2))
    assert all((Wt[off] == np.eye(n)[off]).all() and checked_gossip.check_gossip(Wt) is not None for Wt, off in zip(steps, absent, strict=True))
    near = gossip.hops(gossip.links(W), np.arange(n) == 0)
    reach = [np.linalg.matrix_power(W, d)[0] > 0 for d in range(n)]
    assert near.tolist() == [next((float(d) for d in range(n) if reach[d][u]), np.inf) for u in range(n)]


def test_weights_whose_ratios_leave_the_range_of_floats():
    """Two peaks of the stationary weights with a valley in between that underflows: found not to be reversible, in finite time."""
    n, order = 60, [0, *range(2, 60), 1]
    W = np.zeros((n, n))
    for i, (u, v) in enumerate(itertools.pairwise(order)): W[u, v], W[v, u] = (1e-15, 0.4) if i < n // 2 else (0.4, 1e-15)
    W += np.diag(1 - W.sum(axis=1))
    with pytest.raises(ValueError, match="neither symmetric nor reversible"): gram_matrices.modes(W)
    assert np.isfinite(gram_matrices.local_gram(W, 2)).all()


@campaign(20, "strategies.strategy newton.optimize newton.Strategy strategies.save_strategy strategies.load_strategy strategies.restart "
              "strategies.fixed newton.unit_sensitivity participation.check_participation mafalda.squared_error strategies.best_toeplitz "
              "strategies.toeplitz_error strategies.toeplitz strategies.square_root strategies.estimate_squared_error low_memory.banded_inverse low_memory.inverse_root "
              "buffered.Buffered buffered.best_buffers",
          networks(4, ("metropolis", "uniform", "lazy", "nearly singular")), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_strategies_keep_what_they_claim(tmp_path_factory, W, k, b, exactly):
    """Sensitivity 1, a bound below the objective, none better than the optimum, and the same strategy from its file; a file with other content is refused."""
    scheme = participation.Participation.cyclic(k, b) if exactly else participation.Participation.min_sep(k, b, k * b + 1)
    best, folder = newton.optimize(gram_matrices.local_gram(W, scheme.T), scheme), tmp_path_factory.mktemp("c")
    for name in noise.STRATEGIES:
        one = refused(lambda: noise.strategy(name, scheme, W), name)  # noqa: B023, called at once
        if one is None: continue
        for C in one.C.reshape(-1, scheme.T, scheme.T): assert sensitivities.worst_sensitivity(C.T @ C, scheme) <= 1 + 1e-9
        if exactly and one.C.ndim == 2: assert one.objective >= best.lower_bound * (1 - 1e-9)
        if one.lower_bound is not None: assert 0 <= one.gap + 1e-8 and (one.gap <= 1e-7 or name in ("banded_inverse", "blt"))  # whose bound is that of all noise
        harm = refused(lambda: noise.estimate_squared_error(one, W), one.name)  # noqa: B023, called at once
        if harm is not None: assert harm[0] > 0 and harm[1] >= 0
        path = noise.save_strategy(one, folder / "strategy", W)
        again = noise.load_strategy(path, scheme, W)
        assert (again.C == one.C).all() and (again.participation, again.objective) == (scheme, one.objective)
        with pytest.raises(ValueError, match="another network"): noise.load_strategy(path, W=np.roll(np.eye(len(W)), 1, axis=0))
        if exactly and one.C.ndim == 2: assert sensitivities.worst_sensitivity(noise.restart(one, 2).X, participation.Participation.cyclic(2 * k, b)) <= 1 + 1e-9


@campaign(40, "covariance.optimize_covariance covariance_solver.Covariance covariance_budgets.privacy_constraint coalitions.seed_groups",
          networks(), st.integers(1, 3), scales(1e-3, 1e3), SEEDS, scales(1e-12, 0.4), scales(1e-3, 40))
def test_covariances_keep_what_they_claim(W, horizon, c, seed, delta, epsilon):
    """Budgets are kept, more freedom never leaves more squared error than less, bounds are below, and the constraint means epsilon and delta."""
    n, rng = len(W), np.random.default_rng(seed)
    budgets, found = c * rng.uniform(0.5, 2, n), {}
    for method in covariance.COVARIANCE_METHODS:
        found[method] = one = covariance.optimize_covariance(W, budgets, horizon, method, tol=1e-6)
        assert one.lower_bound <= one.objective * (1 + 1e-9) and one.gap <= 1e-6 and np.linalg.eigvalsh(one.R)[0] >= -1e-9 * np.trace(one.R) and one.sigma2 >= 0
        if method != "cdp": assert (np.diag(np.linalg.inv(one.R)) <= budgets * (1 + 1e-6)).all()
    assert found["corn"].objective <= found["decor"].objective * (1 + 2e-6) and found["decor"].objective <= found["ldp"].objective * (1 + 2e-6)
    limit = covariance_budgets.privacy_constraint(epsilon, delta, 3, c)
    assert privacy.GaussianDP(2 * c * math.sqrt(3 * limit)).epsilon(delta) <= epsilon and covariance_budgets.privacy_constraint(epsilon, delta, 3, c, "rdp") <= limit * (1 + 1e-9)
    for family in coalitions.FAMILIES:
        groups = coalitions.seed_groups(W, family)
        assert all(0 <= u < n for group in groups for u in group) and all(len(set(group)) == len(group) for group in groups)


@campaign(4, "coalitions.optimize_coalition coalitions.CoalitionCovariance",
          networks(5, ("metropolis", "uniform")), st.integers(0, 2), st.sampled_from(coalitions.FAMILIES), scales(0.01, 100))
def test_coalitions_keep_what_they_claim(W, q, family, c):
    """The account of the seeds against each coalition keeps the budget, and the bound is below."""
    groups, n = coalitions.seed_groups(W, family), len(W)
    assume(q < n)
    found = coalitions.optimize_coalition(W, groups, q, c, tol=1e-3)
    run = group_seeds.corn(W, 1, *found.seeds)
    assert found.lower_bound <= found.objective * (1 + 1e-9)
    for coalition in itertools.combinations(range(n), q):
        trust = attackers.SecLDP(coalition) if q else attackers.LDP()
        assert accounting.account(run, trust, participation.Participation.single(1)).mu.max()**2 <= c * (1 + 1e-6)
    for wrong in ([[n]], "ab", [[]], [["a"]], 5, [[-1]], [[True]]): refused(lambda: pytest.fail(str(coalitions.optimize_coalition(W, wrong, q, c))), "groups")  # noqa: B023


@campaign(12, "pairwise.optimize_pairwise pairwise_noise.PairwiseNoise",
          networks(6), st.integers(0, 2), st.sampled_from(["pairs", "edges", "three"]), st.sampled_from([0.0, 0.2]),
          st.sampled_from([CYCLE, participation.Participation.min_sep(2, 1, 3)]), SEEDS)
def test_secrets_of_pairs_keep_what_they_claim(W, curious, groups, absent, scheme, seed):
    """The account of the run against each coalition keeps the budgets, with and without absences; the bound is below, and the error is what the noise leaves."""
    n, rng = len(W), np.random.default_rng(seed)
    if curious > n - 2:
        with pytest.raises(ValueError, match=f"curious={curious}: expected a number of nodes from 0 to {n - 2}.*mafalda"): pairwise.optimize_pairwise(W, scheme, curious)
        return
    shared = [sorted(rng.choice(n, min(3, n), replace=False).tolist()) for _ in range(3)] if groups == "three" else groups
    budgets = rng.uniform(0.5, 2, n)
    try:
        found = pairwise.optimize_pairwise(W, scheme, curious, shared, absent, budgets, tol=0.05)
    except NotConverged as stopped:
        found = stopped.best
    assert found.lower_bound <= found.objective * (1 + 1e-9)
    run, names = found.protocol(W), np.arange(n)
    missing = found.protocol(W, offline=[names[rng.random(n) < 0.3].tolist() for _ in range(scheme.T)])
    worst = 0.0
    for coalition in itertools.combinations(range(n), curious):
        trust = attackers.SecLDP(coalition) if curious else attackers.LDP()
        report = proved_for_training.noisy_gradients_account(run, trust, scheme)
        kept = report.mu / budgets[[u for u in range(n) if u not in coalition]]
        worst = max(worst, kept.max())
        assert (proved_for_training.noisy_gradients_account(missing, trust, scheme).mu <= report.mu * (1 + 1e-6)).all()
    assert worst == pytest.approx(1, abs=1e-6) and found.learned(curious) == pytest.approx(1, abs=1e-6)
    if not absent:
        N, models, total = run.mix.N.toarray(), np.zeros((n, run.mix.N.shape[1])), 0.0
        for t in range(scheme.T):
            models = W @ (models + N[t * n:(t + 1) * n])
            total += (models**2).sum()
        assert total == pytest.approx(found.objective, rel=1e-6)
    for wrong in ([[n]], "ab", [[]], [["a"]], 5, [[-1]], [[True]], [[0, 0]]): refused(lambda: pytest.fail(str(pairwise.optimize_pairwise(W, scheme, curious, wrong))), "groups")  # noqa: B023
    for name, wrong in (("absent", 1.1), ("absent", "x"), ("curious", 1.5), ("curious", True), ("budgets", -1), ("budgets", [1] * (n + 1)), ("tol", 0)):
        refused(lambda: pytest.fail(str(pairwise.optimize_pairwise(W, scheme, **({"curious": curious} | {name: wrong})))), name)  # noqa: B023


@campaign(10, "spectral.optimize_space_time space_time_solver.exact_space_time space_time.SpaceTime space_time_solver.price_of_variance "
              "space_time_solver.scattered space_time_solver.pattern_blocks space_time_solver.patterns_of space_time_solver.following_blocks "
              "space_time_solver.check_optimizer space_time_solver.check_partition "
              "spectral.any_noise_bound "
              "space_time_solver.largest_square insiders.optimize_local insiders.LocalNoise",
          networks(4, ("metropolis", "uniform", "lazy", "nearly singular")), st.integers(1, 2), st.integers(1, 2),
          st.sampled_from(["exact", "directions"]), st.sampled_from([0.0, 1e-3]))
def test_noise_in_time_and_space_keeps_what_it_claims(W, k, b, method, trace_penalty):
    """The account of the noise is at most 1, its bound is below, and independent noise is no better; nearly singular W may be refused."""
    scheme = participation.Participation.cyclic(k, b)
    best = refused(lambda: directions.optimize_space_time(W, scheme, 1e-3, trace_penalty, method=method), "W: ", "trace_penalty=")
    if best is not None:
        assert 0 < best.lower_bound <= best.objective * (1 + 1e-9) and best.lower_bound <= best.independent
        assert accounting.account(best.protocol(W), attackers.LDP(), scheme).mu.max() <= 1 + 1e-6
        assert 0 < directions.any_noise_bound(W, scheme)[0] <= best.objective * (1 + 1e-9)
    local = refused(lambda: insiders.optimize_local(W, scheme, attackers.LDP(), tol=0.05, max_iter=50), "W", "mu", "trust")
    assert local is None or local.lower_bound <= local.objective * (1 + 1e-9)


@campaign(30, "accountant.OnlineAccountant accountant.save accountant.restore",
          st.lists(st.sampled_from(KINDS_OF_GOSSIP), min_size=1, max_size=4), st.integers(2, 5), st.integers(1, 2), SEEDS)
def test_round_by_round_is_the_whole(tmp_path_factory, kinds, n, b, seed):
    """After every round, and after a stop, what the account of the whole run says; the file of something else is refused."""
    rng, trusts = np.random.default_rng(seed), [attackers.PNDP([0]), attackers.LDP()]
    Ws, path = [random_gossip(kind, n, rng) for kind in kinds], tmp_path_factory.mktemp("o") / "account"
    one = online.OnlineAccountant(trusts, b=b)
    run = algorithms.dp_dsgd(Ws, len(Ws))
    for t, step in enumerate(run.steps, start=1):
        report = one.feed(step)
        online.save(one, path)
        one = online.restore(online.OnlineAccountant(trusts, b=b), path)
        if t % b: continue
        so_far = accounting.account(run.until(t), trusts, participation.Participation.cyclic(t // b, b))
        assert report.mu == pytest.approx(so_far.mu, rel=1e-6, abs=1e-9)
    assert one.rounds_left(1e9, max_rounds=2) == 2 and one.rounds_left(1e-9, max_rounds=2) == (0 if one.report().proved.mu.any() else 2)
    other = noise.save_strategy(noise.strategy("identity", CYCLE), path)
    with pytest.raises(ValueError, match="about other"): online.restore(online.OnlineAccountant(trusts, b=b), other)


# Files

def damaged(content: bytes, at: float, how: str, byte: int) -> bytes:
    """The content with one byte changed, the rest cut off, or something in between."""
    place = min(int(at * len(content)), len(content) - 1)
    match how:
        case "flip": return content[:place] + bytes([content[place] ^ byte]) + content[place + 1:]
        case "cut": return content[:place]
        case "insert": return content[:place] + bytes([byte]) * 3 + content[place:]
    return content + bytes([byte])


DAMAGE = st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(["flip", "cut", "insert", "append"]), st.integers(1, 255))
FORGED = st.one_of(st.binary(max_size=60), st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.sampled_from(["strategy", "participation", "objective", "lower_bound", "iterations", "account", "t", "training", "run", "step", "C"]), inner, max_size=5), max_leaves=8))


def forged(content) -> bytes:
    """A file whose checksum is right, by somebody else: any bytes, or a description that `seal` would not be asked for."""
    if not isinstance(content, bytes):
        whole = io.BytesIO()
        np.savez(whole, about=np.array(json.dumps(content)), **{"array/C": np.eye(2)})
        content = whole.getvalue()
    return hashlib.sha256(content).digest() + content


@campaign(100, "files.seal files.unseal files.write_whole files.settle strategies.load_strategy accountant.restore",
          st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3),
          st.integers(0, 5), DAMAGE, FORGED)
def test_sealed_files(tmp_path_factory, about, size, damage, forgery):
    """What was sealed comes back; after any change of any byte, and where somebody else wrote it, it is refused; objects, which would need code to be read, are not written."""
    folder = tmp_path_factory.mktemp("sealed")
    path = files.seal(folder / "file", about, {"C": np.arange(size), "text": np.array("x")})
    again, arrays = files.unseal(path)
    assert again == about and arrays["C"].tolist() == list(range(size)) and os.listdir(folder) == ["file"]
    path.write_bytes(damaged(path.read_bytes(), *damage))
    with pytest.raises(ValueError, match="the file is damaged"): files.unseal(path)
    path.write_bytes(forged(forgery))
    account = online.OnlineAccountant(NEAR)
    for read in (files.unseal, noise.load_strategy, lambda path: online.restore(account, path)): refused(lambda: read(path), "path=")  # noqa: B023
    with pytest.raises(ValueError, match="Python objects"): files.seal(path, about, {"C": np.array([about])})
    with pytest.raises(ValueError, match="what JSON can hold"): files.seal(path, {"about": {1, 2}}, {})
    with pytest.raises(ValueError, match="is a folder"): files.unseal(folder)


EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda e: e[0] != e[1]), min_size=1, max_size=8)


def graph_file(graph, suffix) -> bytes:
    """A graph in the format of a suffix, as other libraries write it."""
    whole, A = io.BytesIO(), nx.to_scipy_sparse_array(graph, format="csr")
    if suffix == ".json": return json.dumps(nx.node_link_data(graph)).encode()
    if suffix == ".npy": np.save(whole, A.toarray())
    elif suffix == ".npz": scipy.sparse.save_npz(whole, A)
    elif suffix == ".mtx": scipy.io.mmwrite(whole, A)
    elif suffix == ".adjlist": nx.write_adjlist(graph, whole)
    else: {".graphml": nx.write_graphml, ".gml": nx.write_gml, ".gexf": nx.write_gexf, ".net": nx.write_pajek, ".paj": nx.write_pajek}[suffix](graph, whole)
    return whole.getvalue()


@campaign(100, "graph_files.read_graph graph_files.read_frame graph_files.simple_graph graph_files.are_rows downloads.read_bytes downloads.unzipped graphs.load_graph "
          "downloads.unpacked downloads.checked downloads.fetch", EDGES,
          st.sampled_from([" ", "\t", ",", ", ", ";"]), st.sampled_from(["", " {}", " {'weight': 1, 'b': 2}", " 7"]), DAMAGE, st.text(max_size=60),
          st.sampled_from([".edges", ".csv", "", *links.FORMATS]))
def test_graph_files(tmp_path_factory, edges, separator, attributes, damage, text, suffix):
    """An edge list is read whatever separates it and follows it; anything else is a graph or is refused with its path, packed or not, and from an archive."""
    folder, graph = tmp_path_factory.mktemp("g"), nx.Graph(edges)
    path = folder / "good.edges"
    tail = attributes.replace(" ", separator, 1) if attributes == " 7" else attributes
    path.write_text("# a comment, with a comma\t\n" + "".join(f"{u}{separator}{v}{tail}\n" for u, v in graph.edges))
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        try: again = graphs.load_graph(path)
        except ValueError as error:
            assert "expected load_graph(.., columns=" in str(error) and "{" not in attributes
            again = graphs.load_graph(path, columns="i j weight" if attributes else "i j")
    assert nx.utils.edges_equal(again.edges, graph.edges)
    assert nx.utils.edges_equal(graphs.load_graph(graph.to_directed()).edges, links.read_frame(pd.DataFrame(graph.edges), columns="i j").edges)
    for junk in (7, None, [text], {text: 1}, b"x", graph.nodes): refused(lambda: pytest.fail(str(graphs.load_graph(junk))), "graph=")  # noqa: B023
    content = damaged(graph_file(graph, suffix) if suffix in links.FORMATS else path.read_bytes(), *damage)
    packed = damaged(gzip.compress(content), *damage)
    for name, written in (("bad" + suffix, content), ("text" + suffix, text.encode("utf-8", "surrogatepass")), ("x.edges.gz", packed), ("n" * 400, None)):
        if written is not None: (folder / name).write_bytes(written)
        found = refused(lambda: graphs.load_graph(folder / name), "path=")  # noqa: B023
        assert found is None or isinstance(found, nx.Graph) and found.number_of_edges() and not found.is_directed() and nx.number_of_selfloops(found) == 0
    archive, wanted = folder / "a.tar.gz", hashlib.sha256(path.read_bytes()).hexdigest()
    with tarfile.open(archive, "w:gz") as tar: tar.add(path, "in/good.edges")
    assert downloads.unpacked("in/good.edges", archive) == path.read_bytes() == downloads.fetch("x", wanted, "", bytes, path)
    for member in ("in", "in/other", "../good.edges"): refused(lambda: pytest.fail(downloads.unpacked(member, archive)), "not a complete archive")  # noqa: B023
    archive.write_bytes(damaged(archive.read_bytes(), *damage))
    unpacked = refused(lambda: downloads.unpacked("in/good.edges", archive), "path=")
    assert unpacked is None or damage[1] == "append" or unpacked == path.read_bytes() or refused(lambda: downloads.checked(unpacked, wanted, "x"), "damaged") is None
    refused(lambda: downloads.read_bytes(archive), "path=")
    refused(lambda: downloads.unzipped(archive.read_bytes(), archive), "not a complete gzip file")


def in_idx(array: np.ndarray) -> bytes:
    """An array of bytes or of integers as an IDX file, which has no checksum: a damaged one can be another file."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8 if array.dtype.itemsize == 1 else 12, array.ndim]) + sizes + array.tobytes()


@campaign(60, "characters.idx characters.turned data.cut data.round_robin dealing.dirichlet dealing.by_group data.Batches data.Dataset data_sets.load_data",
          st.lists(st.integers(0, 4), min_size=1, max_size=3), st.sampled_from([np.uint8, ">i4"]), DAMAGE, st.integers(1, 4), st.integers(1, 3), SEEDS)
def test_data_files_and_how_they_are_dealt(tmp_path_factory, shape, kind, damage, n, b, seed):
    """Arrays in IDX come back or are refused, and of damaged ones nothing is read but what stands there; damaged tables are refused by their path.

    Every record is dealt to one node and one batch.
    """
    array = np.arange(math.prod(shape)).astype(kind).reshape(shape)
    content, spoilt = in_idx(array), damaged(in_idx(array), *damage)
    assert (characters.idx(content) == array).all() and characters.idx(content).shape == tuple(shape)
    broken = refused(lambda: characters.idx(spoilt), "content")
    assert broken is None or in_idx(broken) == spoilt
    refused(lambda: characters.turned(spoilt), "content")
    folder = tmp_path_factory.mktemp("femnist")
    (folder / "x.parquet").write_bytes(damaged(PARQUET, *damage))
    refused(lambda: data_sets.load_data("femnist", folder), "path=")
    (folder / "a9a").write_bytes(content)
    for name in ("a9a", "mnist", "housing"): refused(lambda: pytest.fail(str(data_sets.load_data(name, folder))), "path=", "damaged", str(folder))  # noqa: B023
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(4), 5))
    for holdings in (data.round_robin(20, n, seed), dealing.dirichlet(groups, n, 10.0, seed), dealing.by_group(groups, n, 1, seed)):
        held = np.concatenate(holdings)
        assert len(set(held.tolist())) == len(held) and (len(held) == 20 or len(held) == 5 * n)
        batches = refused(lambda: data.cut(holdings, b), "holds no record")  # noqa: B023
        assert batches is None or sorted(batches.index[batches.index >= 0]) == sorted(held)


def parquet() -> bytes:
    """A small file as those of FEMNIST."""
    import pandas as pd
    from PIL import Image
    picture, table = io.BytesIO(), io.BytesIO()
    Image.fromarray(np.zeros((28, 28), dtype=np.uint8)).save(picture, "png")
    pd.DataFrame({"image": [{"bytes": picture.getvalue(), "path": None}] * 30, "writer_id": ["f1"] * 30, "character": [1] * 30}).to_parquet(table)
    return table.getvalue()


PARQUET = parquet()
NAMES = st.one_of(
    st.sampled_from(["../x", "..", "/etc/passwd", "a/../../x", "x\0y", ".", "", "n" * 300, "~", "a/b", "\\x", "pndp", "../../pndp.ipynb", "b.ipynb"]), st.text(max_size=10))
YAML = st.one_of(
    st.sampled_from(["!!python/object/apply:os.system ['touch ran']", "!!timestamp x", "!!bool x", "!!int ''", "!!map [a]", "!!set [a]", "!!map x", "!!omap x", "2020-13-45",
                     "&a [*a]", ".nan", "{T: 1, T: 2}", "? [a]\n: b", "<<: 5", "9" * 5000, "!!float x", "[" * 2000, "'\\ud800'", "!!binary x", "!<tag:x> 1",
                     "{[]: 1}", "-" * 3000 + "1", "!!python/name:os.system x"]),
    NAMES.map(json.dumps), st.text(max_size=20), st.floats().map(str), st.integers().map(str), st.lists(st.integers(-3, 30), max_size=4).map(json.dumps))


@campaign(40, "grids.read_grid grids.make_cells grids.Cell "
              "experiments.find_notebook experiments.experiment_parameters experiments.check_parameters experiments.result_stem "
              "experiments.experiments experiments.experiments_folder",
          YAML, YAML, NAMES, st.binary(max_size=40))
def test_grids(tmp_path_factory, value, other, name, content):
    """A grid gives cells whose names are names of files in one folder, or is refused with its path; nothing in it runs, and a notebook may hold anything."""
    folder = tmp_path_factory.mktemp("grid")
    grid, notebook = folder / "grid.yaml", folder / "b.ipynb"
    for text in (f"experiment: pndp\nparameters:\n  T: {value}\n  graph: {other}\n", f"experiment: {json.dumps(name)}\nparameters: {{T: 1}}\n", value,
                 "experiment: b.ipynb\nparameters: {x: 1}\n", "experiment: pndp\nparameters: {T: [2, 3], graph: ring}\n"):
        notebook.write_bytes(content)
        grid.write_text(text, errors="replace")
        cells = refused(lambda: grids.read_grid(grid), f"grid={str(grid)!r}")  # noqa: B023
        for cell in cells or []: assert Path(cell.name).name == cell.name and Path(cell.stem).name == cell.stem and (folder / cell.name).resolve().parent == folder.resolve()
    assert sorted(os.listdir(folder)) == ["b.ipynb", "grid.yaml"] and not Path("ran").exists()


def test_aliases_that_would_fill_the_memory(tmp_path):
    """A few lines of YAML whose aliases stand for a thousand million entries are refused at once."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", *(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 9)), "experiment: pndp", "parameters: {T: *a8}"]
    (tmp_path / "grid.yaml").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="entries when its aliases are written out"): grids.read_grid(tmp_path / "grid.yaml")


CELL = {"experiment": "pndp", "given": {}, "stem": "t", "about": {"parameters": {"T": 1}, "experiment": "pndp", "notebook": "n", "code": "c", "version": "1"}}


def keep(folder: Path, cell: dict, **written) -> dict:
    """A folder of a sweep with one cell that is done, as far as its checksums say; its status."""
    place = folder / "cell"
    place.mkdir(parents=True)
    (place / grids.CELL).write_text(json.dumps(cell))
    for name, content in written.items(): (place / name).write_text(content)
    status = {"state": "done", "files": grids.file_digests(place)}
    grids.write_json(place / grids.STATUS, status)
    return status


@campaign(50, "sweeps.collect sweeps.publish grids.read_status grids.write_json grids.file_digests names.read_strategy names.build_algorithm "
              "graphs.parse_spec attacker_names.parse_attackers",
          NAMES, st.sampled_from(["stem", "about", "experiment", "about.parameters", "about.code"]), FORGED, DAMAGE, st.text(max_size=12))
def test_results_stay_in_their_folder(tmp_path_factory, name, key, value, damage, text):
    """Whatever a sweep's folder says, only files below it are read and only files below the given folder are written; matrices and options are read or refused."""
    top = tmp_path_factory.mktemp("sweep")
    (top / "secret.csv").write_text("secret\n1\n")
    status = keep(top / "good", CELL, **{"t.csv": "x\n1\n"})
    assert sweeps.collect(top / "good").x.tolist() == [1] and [p.name for p in sweeps.publish({"cell": status}, top / "good", top / "out")] == ["t.csv"]
    if not isinstance(value, bytes):
        cell = json.loads(json.dumps(CELL))
        outer, _, inner = key.partition(".")
        (cell[outer] if inner else cell)[inner or outer] = value
        keep(top / "odd", cell, **{"t.csv": "x\n1\n"})
        found = refused(lambda: sweeps.collect(top / "odd"), "path=", "folder=")
    keep(top / "stem", CELL | {"stem": name}, **{"t.csv": "x\n1\n"})
    found = refused(lambda: sweeps.collect(top / "stem"), "path=", "folder=", "is not in")
    assert found is None or "secret" not in found
    listed = {"cell": {"state": "done", "files": {name: "", "../../secret.csv": ""}}}
    for statuses in (listed, {name: status}, {f"../good/{name}": status}):
        before = sorted(path for path in top.rglob("*") if top / "out" not in path.parents)
        refused(lambda: sweeps.publish(statuses, top / "good", top / "out"))  # noqa: B023
        assert before == sorted(path for path in top.rglob("*") if top / "out" not in path.parents)
    assert not any("secret" in path.read_text() for path in (top / "out").rglob("*") if path.is_file())
    whole = io.BytesIO()
    np.save(whole, np.eye(2))
    for suffix, content in ((".npy", damaged(whole.getvalue(), *damage)), (".npy", value if isinstance(value, bytes) else b""), (".csv", text.encode("utf-8", "surrogatepass"))):
        (top / f"C{suffix}").write_bytes(content)
        C = refused(lambda: names.read_strategy(top / f"C{suffix}"), "strategy=")  # noqa: B023
        assert C is None or isinstance(C, np.ndarray) and C.dtype != object
    for spec in (text, f"muffliato:{text}", f"ring:n={text}"): refused(lambda: graphs.parse_spec(spec), "graph=")  # noqa: B023
    refused(lambda: names.build_algorithm(f"muffliato:K={text}", RING, 2, None, None))
    for nodes in (["a", "b", text], [0, 1, 2]):
        found = refused(lambda: parse_attackers(text, nodes), "attackers=")  # noqa: B023
        assert found is None or all(node in nodes for group in found for node in group)


@pytest.mark.parametrize("target", ["/etc/hostname", "../../secret.csv"])
def test_links_are_not_followed_out_of_a_sweep(tmp_path, target):
    """A link among a cell's results does not bring a file from elsewhere into what is published or collected."""
    (tmp_path / "secret.csv").write_text("secret\n1\n")
    place = tmp_path / "sweep" / "cell"
    place.mkdir(parents=True)
    (place / grids.CELL).write_text(json.dumps(CELL))
    (place / "t.csv").symlink_to(target)
    status = {"state": "done", "files": grids.file_digests(place)}
    grids.write_json(place / grids.STATUS, status)
    with pytest.raises(ValueError, match="is not in the folder"): sweeps.publish({"cell": status}, tmp_path / "sweep", tmp_path / "out")
    with pytest.raises(ValueError, match="is not in the folder"): sweeps.collect(tmp_path / "sweep")


def test_results_in_folders_are_published(tmp_path):
    """A cell may have written folders of its own; they are published as folders."""
    place = tmp_path / "sweep" / "cell"
    (place / "deep").mkdir(parents=True)
    (place / "deep" / "x.csv").write_text("x\n")
    written = sweeps.publish({"cell": {"state": "done", "files": grids.file_digests(place)}}, tmp_path / "sweep", tmp_path / "out")
    assert written == [tmp_path / "out" / "deep" / "x.csv"] and written[0].read_text() == "x\n"


# Extreme cases

@pytest.mark.parametrize("graph", [nx.star_graph(999), nx.path_graph(1000)], ids=["star", "path"])
def test_a_thousand_nodes(graph):
    """A star and a path of 1000 nodes: who is too far away learns nothing, mu falls with distance on the path, and all leaves of the star are alike."""
    report = account_by("streaming", algorithms.dp_dsgd(gossip.gossip_matrix(graph), 3), attackers.PNDP([0]), participation.Participation.every_step(3))
    assert np.isfinite(report.mu).all() and (report.mu[report.distance > 3] == 0).all() and (report.mu <= math.sqrt(3)).all() and report.mu.max() > 0
    by_distance = [report.mu[report.distance == d] for d in (1, 2, 3)]
    if graph.degree[0] == 1: assert by_distance[0] > by_distance[1] > by_distance[2] > 0
    else: assert np.ptp(report.mu) <= 1e-12


@pytest.mark.parametrize("strength", [1e-320, 1e-200, 1e200])
def test_noise_beyond_the_range_of_squares(strength):
    """Noise whose squares are no floating-point numbers is refused, not taken for none or for all."""
    C = np.diag([1.0, strength])
    for run in (algorithms.mf_dsgd(RING, 2, C), algorithms.decor(RING, 2, strength, 0.0), algorithms.decor(RING, 2, strength, strength)):
        with pytest.raises(ValueError, match="mixes noise with coefficients"): accounting.account(run, NEAR, participation.Participation.every_step(2))


# What is covered

def test_every_public_name_has_a_campaign_or_a_reason():
    """A new public function needs a campaign here, or a reason why it has none; none has both."""
    every = {name for module in HOME for name in public(module)}
    excused = {full for names in ELSEWHERE.values() for full in expanded(names)}
    assert set(FUZZED) <= every and excused <= every, "a name that is not public"
    assert not set(FUZZED) & excused, f"with a campaign and with a reason for none: {sorted(set(FUZZED) & excused)}"
    missing = every - set(FUZZED) - excused
    assert not missing, f"neither a campaign nor a reason for none: {sorted(missing)}"
    written = re.findall(r"(?:tests|nbs)/[\w/]+\.\w+", " ".join(ELSEWHERE))
    assert [path for path in written if not (ROOT / path).exists()] == []
