"""Accounts, noise and optima are what they were when the files beside `golden.py` were written."""
import importlib
import json
import math

import golden
import numpy as np
import pytest
from inner import FEATURES

KEPT = json.loads(golden.FILE.read_text())


def close(now, then): return now == then or math.isclose(now, then, rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize("first", range(0, golden.COUNT, 50))
def test_accounts_and_noise_are_what_they_were(first):
    for seed in range(first, first + 50):
        now, then = golden.result(seed), KEPT[seed]
        assert now["name"] == then["name"] and now["leaks"] == then["leaks"], f"case {seed}: {now['name']}"
        assert all(map(close, now["mu"], then["mu"])) and len(now["mu"]) == len(then["mu"]), f"case {seed}: {now['name']}"
        np.testing.assert_allclose([now["noise"][u] for u in then["noise"]], list(then["noise"].values()), rtol=1e-12, err_msg=f"case {seed}: {now['name']}")


def parts(name, size, first):
    """The cases of one of golden.NAMES, so many at a time; the first ones in every run of the tests, all in the nightly one."""
    cases = importlib.import_module(f"golden_{name}").CASES
    groups = [cases[i:i + size] for i in range(0, len(cases), size)]
    return [pytest.param(group, marks=() if i < first else pytest.mark.nightly, id=group[0]) for i, group in enumerate(groups)]


def compare(name, keys):
    """Compute some results anew, and tell where they are not what they were.

    Bits are compared where this machine rounds as the one that wrote them, and a case in words may change its words.
    """
    module, wrong = importlib.import_module(f"golden_{name}"), []
    for key in keys:
        now, then = golden.shortened(module.result(key)), {**golden.kept(name)[key]}
        if now.get("digits") != then.get("digits") or golden.arithmetic() != golden.kept(name)["arithmetic"]: now.pop("bits", None), then.pop("bits", None)
        now.pop("digits", None), then.pop("digits", None)
        words = now.pop("case", ""), then.pop("case", "")
        found = golden.changes(now, then, module.tolerances(key))
        if found: wrong += [f"{name} {key}: {words[0]}", *([f"  which was {words[1]}"] if words[0] != words[1] else []), *(f" {one}" for one in found)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("keys", parts("features", 50, 1))
def test_accounts_over_all_features_are_what_they_were(keys):
    compare("features", keys)


def test_random_accounts_have_all_features_and_most_are_given():
    module = importlib.import_module("golden_features")
    kept = golden.kept("features")
    some = {*module.CASES[:100], *module.CASES[-5:]}
    assert frozenset().union(*map(module.features, some)) == FEATURES.keys()
    assert len(kept) == 1 + len(module.CASES) and sum("error" not in kept[key] for key in module.CASES) > 0.7 * len(module.CASES)


@pytest.mark.parametrize("keys", parts("noise", 13, 2))
def test_noise_of_a_secret_is_what_it_was(keys):
    compare("noise", keys)


@pytest.mark.parametrize("keys", parts("optima", 26, 1))
def test_optima_are_what_they_were(keys):
    compare("optima", keys)
