"""Uses of records against the lists of all patterns, and the participation of what is protected."""
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfdl.protocol.methods.record_uses import Uses
from mfdl.protocol.participation import Participation, participation_of


@st.composite
def schemes(draw):
    k, b = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    if draw(st.booleans()): return Participation.cyclic(k, b)
    return Participation.min_sep(k, b, (k - 1) * b + 1 + draw(st.integers(0, b + 3)))


@given(schemes(), st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.3, 0.6]))
def test_uses_are_accepted_exactly_where_a_pattern_contains_them(scheme, seed, often):
    """Each record by itself, among others in the same batches: the step that is refused is the first after which no pattern is left."""
    taken = np.random.default_rng(seed).random((scheme.T, 3)) < often
    patterns = [set(pattern) for pattern in scheme.patterns()]

    def allowed(t): return all(any(set(np.flatnonzero(taken[:t + 1, r])) <= pattern for pattern in patterns) for r in range(3))
    uses = Uses(scheme)
    for t in range(scheme.T):
        batch = [np.int64(r) for r in np.flatnonzero(taken[t])]
        if not allowed(t):
            with pytest.raises(ValueError, match=f"and {t}, "): uses.take(batch)
            uses.take([])  # nothing was noted of the step that was refused
            break
        uses.take(batch)
    else:
        with pytest.raises(ValueError, match="no step"): uses.take([])


@pytest.mark.parametrize("records, words", [
    ([1, 2, 1], "1 is twice"), ([np.int32(1), 1], "1 is twice"), ([0.5], "no record"), ([True], "no record"), ([None], "no record"), ([[1]], "no record"),
])
def test_a_batch_names_each_record_once(records, words):
    with pytest.raises(ValueError, match=words): Uses(Participation.every_step(3)).take(records)


@given(schemes())
def test_a_node_takes_part_whenever_one_of_its_records_may(scheme):
    pattern, = participation_of("node", scheme).patterns()
    assert set(pattern) == set().union(*scheme.patterns()) == set(range(scheme.T))
    assert participation_of("record", scheme) is scheme


@pytest.mark.parametrize("make, words", [
    (lambda: Participation.parse("cyclic:5,4", 10), "more than T=10: expected k*b = T"), (lambda: Participation.parse("daily", 10), "expected every-step"),
    (lambda: Participation.cyclic(0, 5), "k=0: expected an integer >= 1"), (lambda: Participation.min_sep(5, 4, 10), "17 is more than T=10: expected at most T"),
    (lambda: Participation.single(2.5), "T=2.5: expected an integer"), (lambda: Participation.cyclic(3, 4).max_sum(np.ones(5)), "12 non-negative numbers"),
    (lambda: participation_of("nodes", Participation.cyclic(2, 3)), "protect='nodes'"),
])
def test_numbers_that_do_not_fit_are_refused(make, words):
    with pytest.raises(ValueError, match=re.escape(words)): make()
