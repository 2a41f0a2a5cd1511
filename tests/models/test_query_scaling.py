"""Queries that are scaled by position: the factors, and that they depend on nothing else."""

from __future__ import annotations

import math

import numpy as np

from headrace.models.query_scaling import QueryScaling


def test_factors_grow_at_each_multiple_of_the_length() -> None:
    scaling = QueryScaling(beta=0.1, length=16)
    positions = np.array([0, 15, 16, 31, 32, 47, 1600], np.int32)
    steps = (0, 0, 1, 1, 2, 2, 100)
    expected = np.array([1 + 0.1 * math.log(1 + step) for step in steps], np.float32)
    factors = scaling.factors(positions)
    assert (factors == expected).all()
    for at, position in enumerate(positions):
        alone = scaling.factors(positions[at : at + 1])
        assert alone == factors[at]
        assert alone == 1 if position < 16 else alone > 1


def test_the_first_position_may_count_as_one() -> None:
    scaling = QueryScaling(beta=0.5, length=8, offset=1)
    factors = scaling.factors(np.arange(6, 9, dtype=np.int32))
    grown = np.float32(1 + 0.5 * math.log(2))
    assert factors.tolist() == [1.0, grown, grown]


def test_factors_are_one_before_the_length() -> None:
    for length, offset in ((16, 0), (16, 1)):
        scaling = QueryScaling(beta=0.1, length=length, offset=offset)
        near = np.arange(length - offset, dtype=np.int32)
        assert scaling.factors(near).tolist() == [1.0] * len(near)
    far = np.array([2**31 - 1], np.int32)
    assert QueryScaling(beta=0.1, length=2**31 - 1, offset=1).factors(far) > 1


def test_layers_that_scale_may_be_listed() -> None:
    assert QueryScaling(0.1, 16).applies_to(5)
    some = QueryScaling(0.1, 16, layers=(False, True))
    assert [some.applies_to(layer) for layer in (0, 1)] == [False, True]
