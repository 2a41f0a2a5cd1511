"""Rows of logits on their way to tokens: what the last operations of `Ops` are told and answer.

R counts the rows, V is their width. These are figures and ids only: where they come from (a
request's parameters, its tokens so far) is the engine's business. Arrays are NumPy's on every
backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class Penalties(NamedTuple):
    """The effect of the tokens so far on one row's scores.

    In float32, each result rounded once: a score above 0 is divided by `repetition`, any other is
    multiplied by it; then, where the count is above 0, `frequency` * count is taken off, and then
    `presence`. -inf stays.
    """

    ids: npt.NDArray[np.int32]
    """int32[M], distinct, of the tokens that are held against the row."""
    counts: npt.NDArray[np.int32]
    """int32[M], how often the output has each; 0 for what only the prompt has."""
    repetition: float
    """Above 0."""
    frequency: float
    presence: float


class LogitsEdit(NamedTuple):
    """The changes to one row of logits before it is sampled from, in the order of the fields.

    Ids are below V.
    """

    row: int
    bias_ids: npt.NDArray[np.int32]
    """int32[B], distinct."""
    bias: npt.NDArray[np.float32]
    """f32[B], added to the logits of bias_ids."""
    allowed: npt.NDArray[np.int32] | None
    """int32[A], all others become -inf; None allows all."""
    masked: npt.NDArray[np.int32]
    """int32[M], which become -inf."""
    penalties: Penalties | None


Stage = Literal["penalties", "temperature", "min_p", "top_k", "top_p"]


class Chain(NamedTuple):
    """An order of stages for one row; each works on the scores that the one before it left.

    stages: one or more, each once; what is absent is not applied. penalties: of the stage of that
    name, which has to be there if they are.

    Scores are float32. penalties: see there. temperature: divides them, unless it is 0. A filter
    sets what it drops to -inf and works on the softmax of what is left at that point: min_p drops
    what is less likely than min_p times the likeliest; top_k keeps the k largest scores and ties
    with the k-th; top_p drops a token once those before it (larger scores first, lower ids first
    among equals) have reached top_p. In the end a token is drawn from the softmax of what is left,
    or, where there is a stage temperature and it is 0, the largest is taken, lowest id on ties.
    """

    stages: tuple[Stage, ...]
    penalties: Penalties | None = None


@dataclass(frozen=True)
class SamplingRows:
    """The parameters by which each of R rows of logits is sampled.

    The order is vLLM's: temperature, min_p, top_k, top_p.
    """

    temperature: npt.NDArray[np.float32]
    """f32[R]; 0 means the largest logit, lowest id on ties, nothing else is looked at"""
    top_k: npt.NDArray[np.int32]
    """int32[R]; 0 means all. Ties with the k-th largest are kept"""
    top_p: npt.NDArray[np.float32]
    """f32[R] in (0, 1]; at least one token stays"""
    min_p: npt.NDArray[np.float32]
    """f32[R] in [0, 1]; 0 means off"""
    uniform: npt.NDArray[np.float64]
    """f64[R] in [0, 1): the row's draw; the token is the first, in ascending id over the kept
    tokens, whose cumulative probability exceeds it"""
    chains: tuple[Chain | None, ...] = ()
    """One per row, None for the order above; () where every row has that. A chain reads the same
    parameters."""
    masks: tuple[npt.NDArray[np.uint32] | None, ...] = ()
    """One per row, uint32[(V + 31) // 32]: an id whose bit (id % 32 of word id // 32) is 0 is not
    drawn, and what its logit is does not matter, as if it were -inf before the first stage. None
    allows all, () does in every row."""


class TopLogprobs(NamedTuple):
    """Log probabilities of the raw distribution (before temperature and filters), natural log.

    Ranks follow the order of `ids`, so the chosen token is at ids[rank - 1] where that lies within
    k.
    """

    chosen: npt.NDArray[np.float32]
    """f32[R]"""
    rank: npt.NDArray[np.int32]
    """int32[R], 1 is the most likely"""
    ids: npt.NDArray[np.int32]
    """int32[R, k], in descending order of logit, lowest id first on ties"""
    values: npt.NDArray[np.float32]
    """f32[R, k], of `ids`"""


class LogprobQuery(NamedTuple):
    """A query for the log probabilities of some draws."""

    rows: npt.NDArray[np.int32]
    """int32[W], rows of the draw."""
    logits: Any
    """f32[W, V] of the backend, of these rows, before they were edited."""
    k: int
    """The most likely ids of each."""


class DrawResult(NamedTuple):
    """The result of a draw."""

    token_ids: npt.NDArray[np.int32]
    """int32[R]; some id where there is no distribution."""
    unusable: Mapping[int, str]
    """What is wrong with the rows that hold no distribution."""
    logprobs: TopLogprobs | None = None
    """Of the rows wanted, in their order; of unusable ones anything."""


class DrawHandle(Protocol):
    """A draw that a device may not have come to yet; `FollowingBatch` (ops/kv.py) reads its ids
    there."""

    def read(self) -> DrawResult:
        """Wait for it."""


class UnusableLogitsError(ValueError):
    """A row of logits holds no distribution: NaN, +inf, or -inf everywhere.

    row: the first such row, counted in the logits the operation was given. A property of what a
    model computed for one request, where every other ValueError of an operation is the caller's
    mistake.
    """

    def __init__(self, row: int, what: str) -> None:
        super().__init__(f"row {row} of logits {what}")
        self.row = row
