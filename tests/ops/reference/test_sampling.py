"""Sampling and log probabilities against the words of SamplingRows, written another way."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ops.reference import ReferenceOps
from headrace.ops.sampling_rows import SamplingRows

Floats = npt.NDArray[np.float32]
OPS = ReferenceOps()


def rows_of(
    uniform: list[float],
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> SamplingRows:
    count = len(uniform)
    return SamplingRows(
        temperature=np.full(count, temperature, np.float32),
        top_k=np.full(count, top_k, np.int32),
        top_p=np.full(count, top_p, np.float32),
        min_p=np.full(count, min_p, np.float32),
        uniform=np.array(uniform, np.float64),
    )


def sample(
    logits: list[float], uniform: list[float], num_tokens: int = 0, **options: float
) -> list[int]:
    table = np.tile(np.array(logits, np.float32), (len(uniform), 1))
    drawn = OPS.sample(table, rows_of(uniform, **options), num_tokens or len(logits))  # type: ignore[arg-type]
    assert drawn.dtype == np.int32
    return drawn.tolist()


def kept(logits: list[float], **options: float) -> set[int]:
    """Every token some draw gives."""
    return set(sample(logits, np.linspace(0, 1, 400, endpoint=False).tolist(), **options))


LOGS = [float(np.log(p)) for p in (0.1, 0.4, 0.05, 0.25, 0.2)]


def test_temperature_zero_is_the_lowest_id_of_the_largest() -> None:
    assert sample([1.0, 3.0, 3.0, 2.0], [0.99], temperature=0, top_k=1, top_p=0.1) == [1]


def test_draws_walk_up_the_ids() -> None:
    assert sample(LOGS, [0.0, 0.09, 0.11, 0.49, 0.51, 0.54, 0.56, 0.79, 0.81, 0.9999]) == [
        0, 0, 1, 1, 2, 2, 3, 3, 4, 4,
    ]  # fmt: skip


def test_a_draw_on_a_boundary_takes_the_next_token() -> None:
    assert sample([0.0, 0.0], [0.0, 0.5, np.nextafter(0.5, 0)]) == [0, 1, 0]


def test_temperature_divides_logits() -> None:
    weights = np.array([0.1, 0.4, 0.05, 0.25, 0.2]) ** 2
    edge = weights[0] / weights.sum()
    assert sample(LOGS, [edge - 1e-6, edge + 1e-6], temperature=0.5) == [0, 1]


def test_filters_keep_what_they_should() -> None:
    assert kept(LOGS, top_k=2) == {1, 3}
    assert kept([1.0, 2.0, 2.0, 0.0], top_k=1) == {1, 2}  # ties with the k-th stay
    assert kept([1.0, 2.0, 2.0, 0.0], top_p=0.01) == {1}  # at least one, the lowest id
    assert kept(LOGS, top_p=0.6) == {1, 3}
    assert kept(LOGS, top_p=0.7) == {1, 3, 4}
    assert kept(LOGS, min_p=0.49) == {1, 3, 4}  # 0.2 is half of 0.4
    assert kept(LOGS, min_p=1.0) == {1}
    assert kept(LOGS, top_k=99, top_p=1.0) == {0, 1, 2, 3, 4}


def test_top_p_counts_what_the_filters_before_it_left() -> None:
    """min_p and top_k leave 0.4, 0.25, 0.2 of 0.85; 0.75 of that is reached with two."""
    assert kept(LOGS, top_p=0.75) == {1, 3, 4}
    assert kept(LOGS, top_p=0.75, top_k=3) == {1, 3}
    assert kept(LOGS, top_p=0.75, min_p=0.45) == {1, 3}


def test_temperature_comes_before_min_p() -> None:
    assert kept(LOGS, min_p=0.49, temperature=0.5) == {1}
    assert kept(LOGS, min_p=0.49, temperature=4.0) == {0, 1, 2, 3, 4}


def test_masked_and_padding_ids_are_never_taken() -> None:
    masked = [-np.inf, 1.0, -np.inf, 0.5, 99.0]
    assert kept(masked, num_tokens=4) == {1, 3}
    assert sample(masked, [0.999999], num_tokens=4, temperature=0) == [1]
    assert sample(masked, [np.nextafter(1, 0)], num_tokens=3) == [1]


def test_rows_are_independent() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((9, 50)).astype(np.float32)
    rows = SamplingRows(
        temperature=np.array([0, 1, 0.7] * 3, np.float32),
        top_k=np.array([0, 5, 20] * 3, np.int32),
        top_p=np.array([1, 0.9, 0.5] * 3, np.float32),
        min_p=np.array([0, 0, 0.1] * 3, np.float32),
        uniform=rng.random(9),
    )
    together = OPS.sample(logits, rows, 50)
    for index in range(9):
        one = slice(index, index + 1)
        alone = OPS.sample(
            logits[one],
            SamplingRows(*(getattr(rows, name)[one] for name in rows.__dataclass_fields__)),
            50,
        )
        assert alone[0] == together[index]


any_row = given(
    logits=st.lists(st.integers(-30, 30).map(lambda i: i / 8), min_size=1, max_size=12),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.integers(0, 13),
    top_p=st.sampled_from([0.05, 0.3, 0.77, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    uniform=st.floats(0, 1, exclude_max=True),
)


@settings(max_examples=60)
@any_row
def test_sampling_by_sorting_upwards(**drawn: Any) -> None:
    check_row(**drawn)


@pytest.mark.long
@settings(max_examples=200)
@any_row
def test_sampling_many_rows_by_sorting_upwards(**drawn: Any) -> None:
    check_row(**drawn)


def check_row(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
) -> None:
    """The same filters as sets, each by its definition; near ties of top_p are left out."""
    single = float(np.float32(temperature))
    probs = np.exp(np.array(logits) / single)
    probs /= probs.sum()
    keep = probs >= float(np.float32(min_p)) * probs.max() * (1 - 1e-12)
    if 0 < top_k < len(probs):
        threshold = sorted(probs * keep)[-top_k]
        keep &= probs >= threshold
    left = probs * keep / (probs * keep).sum()
    ahead = np.array(
        [
            left[[j for j in range(len(left)) if (left[j], -j) > (left[i], -i)]].sum()
            for i in range(len(left))
        ]
    )
    limit = float(np.float32(top_p))
    if limit < 1:
        if (np.abs(ahead - limit) < 1e-9).any():
            return
        keep &= ahead < limit
    final = probs * keep
    edges = np.cumsum(final) / final.sum()
    if (np.abs(edges - uniform) < 1e-9).any():
        return
    expected = int(np.argmax(edges > uniform))
    assert sample(
        logits, [uniform], temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
    ) == [expected]


def test_logprobs_are_of_the_raw_distribution() -> None:
    rng = np.random.default_rng(2)
    logits = (rng.standard_normal((4, 40)) * 5).astype(np.float32)
    chosen = np.array([3, 0, 39, 7], np.int32)
    top = OPS.top_logprobs(logits, chosen, 5, 40)
    wide = logits.astype(np.float64)
    expected = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(top.chosen, expected[range(4), chosen], rtol=1e-6)
    for row in range(4):
        best = sorted(range(40), key=lambda i: (-logits[row, i], i))
        assert top.ids[row].tolist() == best[:5]
        assert top.rank[row] == best.index(chosen[row]) + 1
        np.testing.assert_allclose(top.values[row], expected[row, best[:5]], rtol=1e-6)
    assert (top.chosen.dtype, top.rank.dtype) == (np.float32, np.int32)
    assert (top.values.dtype, top.ids.dtype) == (np.float32, np.int32)


def test_logprobs_of_ties_padding_and_masked() -> None:
    logits = np.array([[2, 5, 5, -np.inf, 77]], np.float32)
    top = OPS.top_logprobs(logits, np.array([2], np.int32), 4, 4)
    assert top.ids.tolist() == [[1, 2, 0, 3]]
    assert top.rank.tolist() == [2]
    assert top.values[0, 3] == -np.inf
    assert OPS.top_logprobs(logits, np.array([2], np.int32), 0, 4).ids.shape == (1, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature -1.0"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"top_k": -1}, "top_k -1"),
        ({"top_p": 0.0}, "top_p 0.0"),
        ({"min_p": 1.5}, "min_p 1.5"),
    ],
)
def test_parameters_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample(LOGS, [0.5], **options)


def test_logits_nothing_can_be_drawn_from_are_refused() -> None:
    for bad, message in (
        ([np.nan, 1.0], "NaN"),
        ([np.inf, 1.0], "inf"),
        ([-np.inf, -np.inf], "-inf everywhere"),
    ):
        with pytest.raises(ValueError, match=message):
            sample(bad, [0.5])
    with pytest.raises(ValueError, match=r"uniform 1\.0"):
        sample(LOGS, [1.0])
    with pytest.raises(ValueError, match="num_tokens 9"):
        sample(LOGS, [0.5], num_tokens=9)
    with pytest.raises(ValueError, match=r"k 6 is not in \[0, 5\]"):
        OPS.top_logprobs(np.zeros((1, 5), np.float32), np.zeros(1, np.int32), 6, 5)
    with pytest.raises(ValueError, match="chosen id 5"):
        OPS.top_logprobs(np.zeros((1, 5), np.float32), np.array([5], np.int32), 1, 5)
