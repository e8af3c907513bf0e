"""Accounts and noise are what they were when `golden_accounts.json` was written (see `golden.py`)."""
import json
import math

import golden
import numpy as np
import pytest

KEPT = json.loads(golden.FILE.read_text())


def close(now, then): return now == then or math.isclose(now, then, rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize("first", range(0, golden.COUNT, 50))
def test_accounts_and_noise_are_what_they_were(first):
    for seed in range(first, first + 50):
        now, then = golden.result(seed), KEPT[seed]
        assert now["name"] == then["name"] and now["leaks"] == then["leaks"], f"case {seed}: {now['name']}"
        assert all(map(close, now["mu"], then["mu"])) and len(now["mu"]) == len(then["mu"]), f"case {seed}: {now['name']}"
        np.testing.assert_allclose([now["noise"][u] for u in then["noise"]], list(then["noise"].values()), rtol=1e-12, err_msg=f"case {seed}: {now['name']}")
