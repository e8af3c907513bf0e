"""Secure noise, rounded to a grid, has the probabilities of the normal distribution, point by point and far out."""
import hashlib

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri

from mfdl.base.randomness import grid_spacing, secure_normal


def share(z):
    """Probability that the sampler gives at least z > 0, exactly: the places, of 2^64, that inversion sends that far, counted through a search among floats."""
    low, high = (int(np.float64(edge).view(np.int64)) for edge in (1e-22, 2.0**63))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if -ndtri(np.int64(middle).view(np.float64) * 2.0**-64) >= z else (low, middle)
    place = mpmath.mpf(float(np.int64(low).view(np.float64)))
    return (place if place < 2**52 else mpmath.floor(place - 0.5) + 1) / mpmath.mpf(2)**64  # below, 64 more bits; from there on, halves of odd numbers


@pytest.mark.parametrize("z", [0.5, 1, 2, 3, 3.45, 3.55, 4, 5, 6, 7, 8, 9, 10, 12, 13])
def test_points_of_the_grid_have_their_probability(z):
    """To a factor of 1 +- 2^-30, out to 13 standard deviations."""
    q = grid_spacing(1.0, 1.0)
    with mpmath.workdps(50):
        for k in range(20):
            point = round(z / q + 7 * k) * q
            exact = mpmath.ncdf(-(mpmath.mpf(point) - q / 2)) - mpmath.ncdf(-(mpmath.mpf(point) + q / 2))
            assert abs((share(point - q / 2) - share(point + q / 2)) / exact - 1) < 2.0**-30


def test_places_far_out_have_more_bits(monkeypatch):
    """Words that lie below 2^52 among 2^63 places are told apart by 64 more bits; the others are halves of odd numbers, as they are counted above."""
    words = {b"mfdl noise": [2 * 5, 2 * 5 + 1, 2 * (2**52 - 1), 2 * 2**52, 2 * 2**62 + 1], b"mfdl tails": [0, 2**63, 2**64 - 1]}

    class Stub:
        def __init__(self, content): self.words = words[content[:10]]
        def digest(self, size): return b"".join(word.to_bytes(8, "little") for word in self.words)[:size]
    monkeypatch.setattr(hashlib, "shake_256", Stub)
    places = np.array([5 + 2.0**-65, 5.5, 2.0**52, 2.0**52 + 0.5, 2.0**62 + 0.5])
    np.testing.assert_allclose(secure_normal(0, 0, 5), ndtri(places * 2.0**-64) * [-1, 1, -1, -1, 1], rtol=1e-15)
