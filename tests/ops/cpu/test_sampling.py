"""Sampling and log probabilities against the reference, and rows against themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.ops.adjustment import STAGES
from headrace.ops.cpu import CpuOps
from headrace.ops.reference import ReferenceOps
from headrace.ops.sampling_rows import Chain, Penalties, SamplingRows, Stage, UnusableLogitsError
from tests.ops.cpu.cases import LEVELS

REFERENCE = ReferenceOps()


def rows_of(
    count: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 0,
) -> SamplingRows:
    return SamplingRows(
        np.full(count, temperature, np.float32),
        np.full(count, top_k, np.int32),
        np.full(count, top_p, np.float32),
        np.full(count, min_p, np.float32),
        np.random.default_rng(seed).random(count),
    )


def mixed_rows(seed: int, count: int) -> SamplingRows:
    rng = np.random.default_rng(seed)
    return SamplingRows(
        rng.choice([0, 0.3, 1, 1.7], count).astype(np.float32),
        rng.choice([0, 1, 2, 50, 10**6], count).astype(np.int32),
        rng.choice([1, 0.95, 0.5, 1e-6], count).astype(np.float32),
        rng.choice([0, 0.05, 0.5, 1], count).astype(np.float32),
        rng.random(count),
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0])
def test_samples_as_the_reference(level: str, spread: float) -> None:
    """Draws fall within 1e-6 of a boundary about once in 1e4 rows; these seeds have none."""
    ops = CpuOps(level, 2)
    logits = (np.random.default_rng(1).standard_normal((300, 1003)) * spread).astype(np.float32)
    rows = mixed_rows(2, 300)
    got = ops.sample(logits, rows, 1000)
    assert (got == REFERENCE.sample(logits, rows, 1000)).all()
    for row in (0, 150, 299):
        part = slice(row, row + 1)
        alone = SamplingRows(*(field[part] for field in vars(rows).values()))
        assert ops.sample(logits[part], alone, 1000)[0] == got[row]


def chains(seed: int, count: int, num_tokens: int) -> tuple[Chain | None, ...]:
    """Any order of some of the stages; every tenth row has the default one."""
    rng = np.random.default_rng(seed)
    made: list[Chain | None] = []
    for row in range(count):
        order = rng.permutation(len(STAGES))[: rng.integers(1, 6)]
        stages: tuple[Stage, ...] = tuple(STAGES[each] for each in order)
        ids = rng.choice(num_tokens + 3, 40, replace=False).astype(np.int32)
        of = Penalties(ids, rng.integers(0, 4, 40).astype(np.int32), 1.3, 0.25, -0.5)
        chain = Chain(stages, of if "penalties" in stages else None)
        made.append(None if row % 10 == 0 else chain)
    return tuple(made)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0])
def test_chains_sample_as_the_reference(level: str, spread: float) -> None:
    ops = CpuOps(level, 2)
    logits = (np.random.default_rng(7).standard_normal((600, 1003)) * spread).astype(np.float32)
    logits[:, 100:200] = -np.inf
    logits[:, 200:300] = np.round(logits[:, 200:300])  # ties
    rows = replace(mixed_rows(8, 600), chains=chains(9, 600, 1000))
    got = ops.sample(logits, rows, 1000)
    assert (got == REFERENCE.sample(logits, rows, 1000)).all()
    for row in (0, 151, 299):
        part = slice(row, row + 1)
        alone = SamplingRows(*(field[part] for field in vars(rows).values()))
        assert ops.sample(logits[part], alone, 1000)[0] == got[row]


@pytest.mark.parametrize("level", LEVELS)
def test_chains_change_neither_the_logits_nor_rows_without_one(level: str) -> None:
    ops = CpuOps(level, 2)
    logits = np.random.default_rng(10).standard_normal((100, 1003)).astype(np.float32)
    before, plain = logits.copy(), mixed_rows(11, 100)
    mixed = replace(plain, chains=chains(12, 100, 1000))
    got = ops.sample(logits, mixed, 1000)
    assert (logits == before).all()
    without = [row for row, chain in enumerate(mixed.chains) if chain is None]
    assert len(without) == 10
    assert (got[without] == ops.sample(logits, plain, 1000)[without]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_scores_that_leave_the_range_of_a_float_are_refused(level: str) -> None:
    logits = np.full((3, 40), 1.0, np.float32)
    logits[1, 7] = 3e38
    rows = replace(rows_of(3, temperature=0.5), chains=(None, Chain(("temperature",)), None))
    with pytest.raises(UnusableLogitsError, match=r"row 1 .* \+inf"):
        CpuOps(level, 2).sample(logits, rows, 40)


@pytest.mark.parametrize("level", LEVELS)
def test_ties_masks_and_padding(level: str) -> None:
    """The draws are spread evenly, so that each of 50 equal tokens is drawn by four of them."""
    ops, count = CpuOps(level, 1), 200
    draws = (np.arange(count) + 0.5) / count
    logits = np.zeros((count, 64), np.float32)
    logits[:, 60:] = 9  # padding: never taken
    logits[:, :10] = -np.inf

    def drawn(**settings: float) -> set[int]:
        rows = replace(rows_of(count, **settings), uniform=draws)  # type: ignore[arg-type]
        return set(ops.sample(logits, rows, 60).tolist())

    assert drawn() == set(range(10, 60))
    # Ties with the k-th are kept; top_p keeps the lowest ids among equals.
    assert drawn(top_k=3) == set(range(10, 60))
    assert drawn(top_p=0.099) == set(range(10, 15))
    assert drawn(temperature=0) == {10}
    assert drawn(top_p=1e-9) == {10}
    logits[:, 40] = 1e-6  # barely the largest
    assert drawn(top_k=1) == {40}
    assert drawn(min_p=1.0, top_k=1) == {40}


@pytest.mark.parametrize("level", LEVELS)
def test_tiny_temperatures_take_the_largest(level: str) -> None:
    ops = CpuOps(level, 1)
    logits = np.zeros((50, 33), np.float32)
    logits[:, 17] = 1e-3
    logits[:, 18] = -300
    for temperature in (1e-45, 1e-39, 1e-37, 1e-20, 1e-6):
        assert set(ops.sample(logits, rows_of(50, temperature=temperature), 33)) == {17}


@pytest.mark.parametrize("level", LEVELS)
def test_draws_follow_the_distribution(level: str) -> None:
    ops = CpuOps(level, 2)
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))
    count = 4000
    rows = rows_of(count)
    rows = SamplingRows(*list(vars(rows).values())[:4], np.arange(count) / count)
    drawn = np.bincount(ops.sample(np.tile(logits, (count, 1)), rows, 4), minlength=4) / count
    assert np.abs(drawn - [0.5, 0.25, 0.125, 0.125]).max() < 2 / count


@pytest.mark.parametrize("level", LEVELS)
def test_a_large_vocabulary(level: str) -> None:
    ops = CpuOps(level, 2)
    logits = (np.random.default_rng(3).standard_normal((6, 151936)) * 4).astype(np.float32)
    rows = SamplingRows(
        np.array([1, 1, 0.7, 1.2, 1, 0], np.float32),
        np.array([0, 40, 0, 0, 5, 0], np.int32),
        np.array([0.9, 1, 0.95, 1, 0.5, 1], np.float32),
        np.array([0, 0, 0, 0.1, 0, 0], np.float32),
        np.random.default_rng(4).random(6),
    )
    assert (ops.sample(logits, rows, 151669) == REFERENCE.sample(logits, rows, 151669)).all()


def test_more_tokens_than_sums_hold_are_refused() -> None:
    ops, logits = CpuOps("portable", 1), np.zeros((1, 1 << 21), np.float32)
    with pytest.raises(ValueError, match="num_tokens 2097152 is above 2097151"):
        ops.sample(logits, rows_of(1), 1 << 21)
    with pytest.raises(ValueError, match="num_tokens 2097152 is above 2097151"):
        ops.top_logprobs(logits, np.zeros(1, np.int32), 0, 1 << 21)
    assert ops.sample(logits, rows_of(1, temperature=0), 2097151)[0] == 0


@pytest.mark.parametrize("level", LEVELS)
def test_top_logprobs(level: str) -> None:
    ops = CpuOps(level, 2)
    logits = np.random.default_rng(5).standard_normal((50, 700)).astype(np.float32) * 4
    logits[:, 100:200] = np.round(logits[:, 100:200])  # ties
    logits[:, 300] = -np.inf
    chosen = np.random.default_rng(6).integers(0, 690, 50).astype(np.int32)
    chosen[0] = 300
    for k in (0, 1, 5, 20, 690):
        got = ops.top_logprobs(logits, chosen, k, 690)
        expected = REFERENCE.top_logprobs(logits, chosen, k, 690)
        assert (got.ids == expected.ids).all()
        assert (got.rank == expected.rank).all()
        np.testing.assert_allclose(got.chosen, expected.chosen, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(got.values, expected.values, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_mean_nothing_are_named(level: str, temperature: float) -> None:
    ops = CpuOps(level, 2)
    for bad, text in (
        (np.nan, "row 3 .* NaN"),
        (np.inf, "row 3 .* NaN"),
        (-np.inf, "row 3 .* -inf"),
    ):
        logits = np.zeros((5, 40), np.float32)
        logits[3] = bad if bad < 0 else 0
        logits[3, 17] = bad
        with pytest.raises(ValueError, match=text):
            ops.sample(logits, rows_of(5, temperature=temperature), 40)
        with pytest.raises(ValueError, match=text):
            ops.top_logprobs(logits, np.zeros(5, np.int32), 2, 40)
    # What lies past num_tokens is not looked at.
    logits = np.zeros((1, 40), np.float32)
    logits[0, 39] = np.nan
    assert 0 <= ops.sample(logits, rows_of(1, temperature=temperature), 39)[0] < 39
