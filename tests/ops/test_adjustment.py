"""Adjusting rows of logits, on both backends, against loops over single tokens; and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ops.adjustment import check_chains, penalise
from headrace.ops.sampling_rows import (
    Chain,
    LogitsEdit,
    Penalties,
    SamplingRows,
    UnusableLogitsError,
)
from tests.engine.mock import real_ops

WIDTH = 12
IDS = st.lists(st.integers(0, WIDTH - 1), unique=True, max_size=WIDTH)


def ids(*values: int) -> npt.NDArray[np.int32]:
    return np.array(values, np.int32)


NOTHING = LogitsEdit(0, ids(), np.zeros(0, np.float32), None, ids(), None)


def slowly(row: list[np.float32], change: LogitsEdit) -> list[np.float32]:
    """The words of LogitsEdit and Penalties, a token at a time."""
    row = list(row)
    for token_id, bias in zip(change.bias_ids.tolist(), change.bias, strict=True):
        row[token_id] = row[token_id] + bias
    for token_id in range(len(row)):
        allowed = change.allowed is None or token_id in change.allowed.tolist()
        if not allowed or token_id in change.masked.tolist():
            row[token_id] = np.float32(-np.inf)
    if change.penalties is not None:
        of = change.penalties
        for token_id, count in zip(of.ids.tolist(), of.counts.tolist(), strict=True):
            by = np.float32(of.repetition)
            row[token_id] = row[token_id] / by if row[token_id] > 0 else row[token_id] * by
            if count:
                row[token_id] = row[token_id] - np.float32(of.frequency) * np.float32(count)
                row[token_id] = row[token_id] - np.float32(of.presence)
    return row


@st.composite
def adjustments(draw: st.DrawFn, row: int) -> LogitsEdit:
    biased, penalised = draw(IDS), draw(IDS)
    allowed = draw(st.none() | IDS)
    number = st.floats(-3, 3, width=32)
    return LogitsEdit(
        row,
        ids(*biased),
        np.array([draw(number) for _ in biased], np.float32),
        None if allowed is None else ids(*allowed),
        ids(*draw(IDS)),
        draw(st.none() | st.just(Penalties(
            ids(*penalised),
            ids(*(draw(st.integers(0, 5)) for _ in penalised)),
            draw(st.sampled_from([1.0, 0.5, 1.3])),
            draw(st.sampled_from([0.0, 0.3, -1.0])),
            draw(st.sampled_from([0.0, 0.7, -2.0])),
        ))),
    )  # fmt: skip


two_rows = given(first=adjustments(0), last=adjustments(2), seed=st.integers(0, 99))
backends = pytest.mark.parametrize("backend", ["reference", "cpu"])


@backends
@settings(max_examples=25)
@two_rows
def test_rows_are_changed_by_the_words(backend: str, **drawn: Any) -> None:
    check_rows(backend, **drawn)


@pytest.mark.long
@backends
@settings(max_examples=100)
@two_rows
def test_many_rows_are_changed_by_the_words(backend: str, **drawn: Any) -> None:
    check_rows(backend, **drawn)


def check_rows(backend: str, first: LogitsEdit, last: LogitsEdit, seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((3, WIDTH)).astype(np.float32) * 2
    rows[:, 5] = -np.inf
    expected = [slowly(list(rows[0]), first), list(rows[1]), slowly(list(rows[2]), last)]
    real_ops(backend).adjust(rows, [first, last])
    assert (rows == np.array(expected, np.float32)).all()


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"row": 2}, "row 2"),
        ({"row": -1}, "row -1"),
        ({"bias_ids": ids(1)}, "0 biases for 1 ids"),
        ({"bias_ids": ids(WIDTH), "bias": np.ones(1, np.float32)}, "biased id 12"),
        ({"allowed": ids(3, -1)}, "allowed id -1"),
        ({"masked": ids(0, 77)}, "masked id 77"),
        ({"penalties": Penalties(ids(12), ids(0), 1, 0, 0)}, "penalised id 12"),
        ({"penalties": Penalties(ids(1), ids(), 1, 0, 0)}, "counts"),
        ({"penalties": Penalties(ids(1), ids(-1), 1, 0, 0)}, "counts"),
        ({"penalties": Penalties(ids(), ids(), 0, 0, 0)}, "repetition 0"),
        ({"penalties": Penalties(ids(), ids(), 1, np.nan, 0)}, "frequency nan"),
        ({"penalties": Penalties(ids(), ids(), 1, 0, np.inf)}, "presence inf"),
    ],
)
def test_mistakes_are_refused_before_anything_changes(
    backend: str, change: dict[str, Any], words: str
) -> None:
    rows = np.ones((2, WIDTH), np.float32)
    good = NOTHING._replace(masked=ids(0))
    with pytest.raises(ValueError, match=words):
        real_ops(backend).adjust(rows, [good, NOTHING._replace(**change)])
    assert (rows == 1).all()
    with pytest.raises(ValueError, match="shape"):
        real_ops(backend).adjust(rows[0], [])


def test_penalised_padding_is_passed_over() -> None:
    scores = np.ones(4, np.float32)
    penalise(scores, Penalties(ids(9, 2), ids(3, 1), 1.0, 0.5, 0.0))
    assert scores.tolist() == [1, 1, 0.5, 1]


@pytest.mark.parametrize(
    ("chains", "words"),
    [
        ((Chain(("top_k",)),), "1 chains for 2 rows"),
        ((Chain(()), None), "stages"),
        ((Chain(("top_k", "top_k")), None), "each once"),
        ((None, Chain(("top_q",))), "top_q"),  # type: ignore[arg-type]
        ((None, Chain(("top_k",), Penalties(ids(), ids(), 1, 0, 0))), "no place"),
        ((None, Chain(("penalties",), Penalties(ids(99), ids(1), 1, 0, 0))), "penalised id 99"),
    ],
)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_chains_that_say_nothing_are_refused(backend: str, chains: Any, words: str) -> None:
    zeros = np.zeros(2, np.float32)
    rows = SamplingRows(
        zeros + 1, np.zeros(2, np.int32), zeros + 1, zeros, np.zeros(2), chains=chains
    )
    with pytest.raises(ValueError, match=words):
        check_chains(rows, 2, WIDTH)
    with pytest.raises(ValueError, match=words):
        real_ops(backend).sample(np.zeros((2, WIDTH), np.float32), rows, WIDTH)


@backends
@pytest.mark.parametrize("width", [31, 32, 33, 1003])
def test_a_mask_draws_as_if_its_ids_were_all_there_is(backend: str, width: int) -> None:
    """Masks of many ids and of few, in the default order of stages and in another; what is masked
    may be anything."""
    rng = np.random.default_rng(width)
    words = rng.integers(0, 2**32, (24, (width + 31) // 32), np.uint32)
    words[::2] &= rng.integers(0, 2**32, words[::2].shape, np.uint32)
    words[::2][rng.random(words[::2].shape) < 0.8] = 0
    words[1::2][rng.random(words[1::2].shape) < 0.4] = 2**32 - 1
    words[:, 0] |= 1
    logits = (rng.standard_normal((24, width)) * 4).astype(np.float32)
    expected = logits.copy()
    for row, mask in enumerate(words):
        allowed = [index for index in range(width) if mask[index // 32] >> (index % 32) & 1]
        masked = np.setdiff1d(np.arange(width), allowed)
        expected[row, masked] = -np.inf
        logits[row, masked[::3]] = np.nan
    masks: list[npt.NDArray[np.uint32] | None] = list(words)
    masks[7] = None
    logits[7] = expected[7]
    rows = SamplingRows(
        rng.choice(np.array([0, 0.5, 1.2], np.float32), 24),
        rng.choice(np.array([0, 3, 50], np.int32), 24),
        rng.choice(np.array([1, 0.8], np.float32), 24),
        rng.choice(np.array([0, 0.1], np.float32), 24),
        rng.random(24),
        chains=tuple(Chain(("top_p", "temperature", "top_k")) if row % 5 == 0 else None
                     for row in range(24)),
        masks=tuple(masks),
    )  # fmt: skip
    before = logits.copy()
    drawn = real_ops(backend).sample(logits, rows, width)
    assert (logits == before)[~np.isnan(before)].all()
    assert (drawn == real_ops(backend).sample(expected, replace(rows, masks=()), width)).all()


@backends
def test_a_mask_of_no_id_that_can_be_drawn_is_named_with_its_row(backend: str) -> None:
    zeros = np.zeros(2, np.float32)
    none = np.array([1 << (WIDTH - 1)], np.uint32)
    rows = SamplingRows(
        zeros + 1, np.zeros(2, np.int32), zeros + 1, zeros, np.zeros(2), masks=(None, none)
    )
    logits = np.zeros((2, WIDTH), np.float32)
    with pytest.raises(UnusableLogitsError, match=r"row 1 .* allows no token"):
        real_ops(backend).sample(logits, rows, WIDTH - 1)
    assert real_ops(backend).sample(logits, rows, WIDTH).tolist() == [0, WIDTH - 1]


@backends
@pytest.mark.parametrize(
    "masks",
    [
        (None,),
        (None, np.zeros(2, np.uint32)),
        (np.zeros(1, np.int32), None),
        (np.zeros((1, 1), np.uint32), None),
    ],
)
def test_masks_of_another_shape_are_refused(backend: str, masks: Any) -> None:
    zeros = np.zeros(2, np.float32)
    rows = SamplingRows(
        zeros + 1, np.zeros(2, np.int32), zeros + 1, zeros, np.zeros(2), masks=masks
    )
    with pytest.raises(ValueError, match="masks"):
        real_ops(backend).sample(np.zeros((2, WIDTH), np.float32), rows, WIDTH)
