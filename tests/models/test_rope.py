"""Frequencies of each rope kind."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.errors import UnsupportedModelError
from headrace.models.rope import RopeConfig, RopeFactors

LLAMA3 = RopeConfig(5e5, "llama3", 8.0, 1.0, 4.0, 8192)


def test_default_and_linear() -> None:
    plain = RopeConfig(theta=10000.0).rotation(8).frequencies
    np.testing.assert_allclose(plain, [1, 1e-1, 1e-2, 1e-3], rtol=1e-15)
    assert np.array_equal(RopeConfig(1e4, "linear", 4.0).rotation(8).frequencies, plain / 4)


def test_llama3_keeps_short_waves_and_slows_long_ones() -> None:
    plain, scaled = (
        RopeConfig(theta=5e5).rotation(128).frequencies,
        LLAMA3.rotation(128).frequencies,
    )
    wavelength = 2 * np.pi / plain
    short, long = wavelength < 8192 / 4, wavelength > 8192
    assert short.any() and long.any() and (~short & ~long).any()
    assert np.array_equal(scaled[short], plain[short])
    assert np.array_equal(scaled[long], plain[long] / 8)
    between = ~short & ~long
    blend = (8192 / wavelength[between] - 1) / 3
    expected = plain[between] * ((1 - blend) / 8 + blend)
    np.testing.assert_allclose(scaled[between], expected, rtol=1e-6)


def test_stored_divisors_divide() -> None:
    """rope_freqs.weight: frequencies are divided by it; multiplying would pass on short prompts."""
    divisors = np.array([1, 2, 4, 8], np.float32)
    plain = RopeConfig(theta=10000.0).rotation(8).frequencies
    divided = RopeConfig(theta=10000.0).rotation(8, RopeFactors(divisors)).frequencies
    assert np.array_equal(divided, plain / divisors)


def test_llama3_stated_twice_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="stated twice"):
        LLAMA3.rotation(8, RopeFactors(np.ones(4, np.float32)))
