"""Explicit orders of samplers against the words of `Chain`, written with sets and loops."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ops.reference import ReferenceOps
from headrace.ops.sampling_rows import Chain, Penalties, SamplingRows, UnusableLogitsError

OPS = ReferenceOps()
STAGES = ("penalties", "temperature", "min_p", "top_k", "top_p")
NEAR = 1e-6


def ids(*values: int) -> Any:
    return np.array(values, np.int32)


def rows_of(
    chain: Chain | None,
    uniform: float,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> SamplingRows:
    return SamplingRows(
        np.array([temperature], np.float32), np.array([top_k], np.int32),
        np.array([top_p], np.float32), np.array([min_p], np.float32), np.array([uniform]),
        (chain,),
    )  # fmt: skip


def kept(logits: list[float], chain: Chain, **options: Any) -> set[int]:
    """Every token some draw gives."""
    row = np.array([logits], np.float32)
    return {
        int(OPS.sample(row, rows_of(chain, draw, **options), len(logits))[0])
        for draw in np.linspace(0, 1, 400, endpoint=False)
    }


LOGS = [float(np.log(p)) for p in (0.1, 0.4, 0.05, 0.25, 0.2)]


def test_the_order_of_filters_matters() -> None:
    assert kept(LOGS, Chain(("top_k", "top_p")), top_k=3, top_p=0.75) == {1, 3}
    assert kept(LOGS, Chain(("top_p", "top_k")), top_k=3, top_p=0.75) == {1, 3, 4}
    assert kept(LOGS, Chain(("temperature", "min_p")), temperature=4, min_p=0.49) == set(range(5))
    assert kept(LOGS, Chain(("min_p", "temperature")), temperature=4, min_p=0.49) == {1, 3, 4}


def test_penalties_work_on_what_is_left_and_scaled() -> None:
    of = Penalties(ids(1, 3), ids(2, 0), 2.0, 1.0, 0.5)
    last = Chain(("top_k", "penalties"), of)
    assert kept(LOGS, last, top_k=1) == {1}, "what was dropped stays dropped"
    behind = Chain(("top_k", "penalties", "temperature"), of)
    assert kept(LOGS, behind, top_k=2, temperature=0) == {3}
    first = Chain(("temperature", "penalties", "top_k"), of)
    assert kept(LOGS, first, top_k=1, temperature=0) == {4}
    # 1.0 off scores of 2 and 0 is more behind a temperature of 4: 0.5 and 0.
    taken = Penalties(ids(0), ids(1), 1.0, 0.0, 1.0)
    assert kept([2.0, 0.0], Chain(("temperature", "penalties", "top_k"), taken),
                temperature=4, top_k=1) == {1}  # fmt: skip
    assert kept([2.0, 0.0], Chain(("penalties", "temperature", "top_k"), taken),
                temperature=4, top_k=1) == {0}  # fmt: skip


def test_temperature_zero_is_the_largest_of_what_is_left_wherever_it_stands() -> None:
    for stages in permutations(("temperature", "top_k", "top_p")):
        assert kept([1, 3, 3, 2], Chain(stages), temperature=0, top_k=3, top_p=0.5) == {1}  # type: ignore[arg-type]
    # Without a place for it a temperature is not applied.
    assert kept(LOGS, Chain(("top_k",)), temperature=0, top_k=2) == {1, 3}


def test_what_is_far_behind_is_not_lost_to_a_filter() -> None:
    far = [0.0, -300.0, -2000.0, -np.inf]
    assert kept(far, Chain(("top_k", "temperature")), top_k=2, temperature=300) == {0, 1}
    assert kept(far, Chain(("top_k", "temperature")), top_k=3, temperature=9000) == {0, 1, 2}


def test_scores_out_of_range_are_refused() -> None:
    of = Penalties(ids(0), ids(1), 1e-3, 0.0, 0.0)
    for chain in (Chain(("temperature", "top_k")), Chain(("top_k", "penalties"), of)):
        with pytest.raises(UnusableLogitsError, match=r"row 0 .* \+inf"):
            OPS.sample(
                np.array([[3e38, 0]], np.float32), rows_of(chain, 0.5, temperature=0.5, top_k=9), 2
            )


def slow_scores(
    logits: list[float],
    chain: Chain,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
) -> dict[int, float] | None:
    """Scores of what is left, by id; None where rounding could decide what that is."""
    left = {index: np.float32(value) for index, value in enumerate(logits)}
    for stage in chain.stages:
        total = sum(np.exp(float(each)) for each in left.values())
        probs = {index: np.exp(float(each)) / total for index, each in left.items()}
        most = max(probs.values())
        if stage == "penalties" and chain.penalties is not None:
            of = chain.penalties
            for token_id, count in zip(of.ids.tolist(), of.counts.tolist(), strict=True):
                if token_id in left:
                    by, score = np.float32(of.repetition), left[token_id]
                    score = score / by if score > 0 else score * by
                    if count:
                        score -= np.float32(of.frequency) * np.float32(count)
                        score -= np.float32(of.presence)
                    left[token_id] = score
        elif stage == "temperature" and temperature:
            left = {index: each / np.float32(temperature) for index, each in left.items()}
        elif stage == "min_p":
            if any(
                abs(prob - min_p * most) < NEAR * most for prob in probs.values() if prob < most
            ):
                return None
            left = {i: each for i, each in left.items() if probs[i] >= min_p * most * (1 - NEAR)}
        elif stage == "top_k" and top_k:
            worst = sorted(left.values(), reverse=True)[:top_k][-1]
            left = {index: each for index, each in left.items() if each >= worst}
        elif stage == "top_p" and top_p < 1:
            ahead = {i: sum(probs[j] for j in left if (left[j], -j) > (left[i], -i)) for i in left}
            if any(abs(each - top_p) < NEAR for each in ahead.values()):
                return None
            left = {index: each for index, each in left.items() if ahead[index] < top_p}
    return {index: float(each) for index, each in left.items()}


any_order = given(
    logits=st.lists(st.integers(-30, 30).map(lambda i: i / 8), min_size=1, max_size=10),
    stages=st.permutations(STAGES).flatmap(
        lambda order: st.integers(1, 5).map(lambda count: tuple(order[:count]))
    ),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    top_k=st.integers(0, 11),
    top_p=st.sampled_from([0.05, 0.3, 0.77, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 0.3]),
    uniform=st.floats(0, 1, exclude_max=True),
    counts=st.lists(st.integers(0, 3), max_size=10),
    repetition=st.sampled_from([1.0, 0.5, 1.7]),
)


@settings(max_examples=80)
@any_order
def test_any_order_by_its_words(**drawn: Any) -> None:
    check_order(**drawn)


@pytest.mark.smoke
@pytest.mark.long
@settings(max_examples=300)
@any_order
def test_many_orders_by_their_words(**drawn: Any) -> None:
    check_order(**drawn)


def check_order(
    logits: list[float],
    stages: Any,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    uniform: float,
    counts: list[int],
    repetition: float,
) -> None:
    of = None
    if "penalties" in stages:
        counts = counts[: len(logits)]
        of = Penalties(ids(*range(len(counts))), ids(*counts), repetition, 0.3, -0.7)
    chain = Chain(stages, of)
    single = float(np.float32(top_p)), float(np.float32(min_p))
    left = slow_scores(logits, chain, temperature, top_k, *single)
    if left is None:
        return
    if temperature == 0 and "temperature" in stages:
        expected = max(left, key=lambda index: (left[index], -index))
    else:
        weights = [np.exp(left[i] - max(left.values())) if i in left else 0.0
                   for i in range(len(logits))]  # fmt: skip
        edges = np.cumsum(weights) / sum(weights)
        if (np.abs(edges - uniform) < NEAR).any():
            return
        expected = int(np.argmax(edges > uniform))
    rows = rows_of(chain, uniform, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    assert OPS.sample(np.array([logits], np.float32), rows, len(logits))[0] == expected
