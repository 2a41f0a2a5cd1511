"""From logits to tokens: the operations of a backend that change, draw from and explain them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.ops.operands import Array
from headrace.ops.sampling_rows import (
    DrawHandle,
    LogitsEdit,
    LogprobQuery,
    SamplingRows,
    TopLogprobs,
)


class SamplingOps(ABC):
    """The part of a backend that takes logits f32[R, V], a row for each token that is wanted."""

    name: str

    @abstractmethod
    def adjust(self, logits: Array, adjustments: Sequence[LogitsEdit]) -> None:
        """Change the rows of f32[R, V] that `adjustments` name, in place; no other is touched.

        ValueError for rows and ids outside, for penalties out of range and for lengths that do not
        agree; the logits are as they were then.
        """

    @abstractmethod
    def sample(self, logits: Array, rows: SamplingRows, num_tokens: int) -> npt.NDArray[np.int32]:
        """One token id per row of f32[R, V]; ids >= num_tokens (padding of V) are never taken.

        Raises UnusableLogitsError, and no other error for this cause, where a row holds NaN or
        +inf below num_tokens or is -inf all over; ValueError for shapes that do not agree and
        parameters out of range, whatever the logits are.
        """

    def begin_draw(
        self,
        logits: Array,
        rows: SamplingRows,
        num_tokens: int,
        wanted: LogprobQuery | None = None,
    ) -> DrawHandle:
        """What `sample` gives and the log probabilities of some of it, without waiting for it.

        A row without a distribution spoils no other. Raises ValueError as `sample` does, and
        RuntimeError where the backend is not asynchronous.
        """
        raise RuntimeError(f"the backend {self.name} computes at once: use sample")

    @abstractmethod
    def top_logprobs(
        self, logits: Array, chosen: npt.NDArray[np.int32], k: int, num_tokens: int
    ) -> TopLogprobs:
        """Log probabilities of `chosen` and of the k most likely ids below num_tokens.

        Raises as `sample` does.
        """
