"""Adjusting rows of logits, on both backends, against loops over single tokens; and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ops.adjustment import check_chains, penalise
from headrace.ops.sampling_rows import Chain, LogitsEdit, Penalties, SamplingRows
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
        bits = change.allowed_bits
        allowed &= bits is None or bool(bits[token_id // 32] >> (token_id % 32) & 1)
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
        draw(st.none() | st.integers(0, 2**32 - 1).map(lambda bits: np.array([bits], np.uint32))),
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
        ({"allowed_bits": np.zeros(2, np.uint32)}, r"12 ids take uint32\[1\]"),
        ({"allowed_bits": np.zeros(1, np.int32)}, "allowed_bits are int32"),
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
def test_a_row_of_bits_masks_as_a_list_of_ids_does(backend: str, width: int) -> None:
    """Words of every kind: with all bits, with none, mixed; and a last one that is not full."""
    rng = np.random.default_rng(width)
    words = rng.integers(0, 2**32, (2, (width + 31) // 32), np.uint32)
    words[rng.random(words.shape) < 0.3] = 0
    words[rng.random(words.shape) < 0.3] = 2**32 - 1
    rows = rng.standard_normal((4, width)).astype(np.float32)
    expected = rows.copy()
    by_bits, by_ids = [], []
    for row, mask in zip((3, 1), words, strict=True):
        allowed = [index for index in range(width) if mask[index // 32] >> (index % 32) & 1]
        by_bits.append(NOTHING._replace(row=row, allowed_bits=mask))
        by_ids.append(NOTHING._replace(row=row, allowed=ids(*allowed)))
    real_ops(backend).adjust(rows, by_bits)
    real_ops("reference").adjust(expected, by_ids)
    assert (rows == expected).all()
    assert np.isfinite(rows[[0, 2]]).all()
