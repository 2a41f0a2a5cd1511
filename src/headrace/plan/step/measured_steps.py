"""What drafts cost as it was measured: steps of several tokens a request, and passes of a draft.

t(B, n) is the median time of a step of B requests and n tokens, of one run in which sizes took
turns, so that whatever disturbed it is in all of them. A plan takes shares of t(B, B) alone:

    step of n tokens = step of B tokens + plain · (t(B, n) / t(B, B) − 1)
    pass of a draft  = plain · pass(B) / t(B, B)

plain is the plan's own step of B tokens at the context of the measurement. K and V of a request are
read once however many drafts it has, so that what they add is the same behind other contexts.
Between two numbers of requests that were measured t is a line for the same number of drafts;
between two numbers of drafts it is a line, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import msgspec

from headrace.errors import ConfigError

_MOST_BEYOND = 2
"""Times the most drafts that were measured, up to which the line goes on: products compute 8 and 16
rows at a time, so that further on the next tile begins."""


class StepSize(msgspec.Struct, frozen=True, array_like=True):
    """The time of steps of one size. tokens: of all requests together."""

    batch: int
    tokens: int
    seconds: float


class PassSize(msgspec.Struct, frozen=True, array_like=True):
    """The time of a draft's passes of so many tokens, one of each request."""

    tokens: int
    seconds: float


class DraftPasses(msgspec.Struct, frozen=True, kw_only=True):
    """Passes of one draft model or head beside the model."""

    draft: str
    passes: tuple[PassSize, ...]
    """By ascending tokens."""

    def __post_init__(self) -> None:
        _check_ascending([(size.tokens, size.seconds) for size in self.passes])

    def seconds(self, tokens: int) -> float:
        """Of a pass of so many tokens, on lines between sizes."""
        return line_at([(size.tokens, size.seconds) for size in self.passes], tokens)


class MeasuredSteps(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Steps of a model by requests and tokens, and passes of drafts beside it."""

    measured_at: str
    """ISO 8601."""
    context_tokens: int
    """Of each request, about."""
    steps: tuple[StepSize, ...]
    """By requests, then tokens; of each number of requests also the step of a token each."""
    drafts: tuple[DraftPasses, ...] = ()

    def __post_init__(self) -> None:
        """Raises ConfigError where a size has no time, or no step of a token each beside it."""
        for batch, curve in self._curves.items():
            _check_ascending(curve)
            if batch < 1 or curve[0][0] != 0:
                raise ConfigError(
                    f"measured steps of {batch} requests lack the one of a token each, with which "
                    "others are compared: measure again"
                )
        if not self.steps:
            raise ConfigError("there are no measured steps: measure again")

    @property
    def day(self) -> str:
        return self.measured_at[:10]

    @cached_property
    def batches(self) -> tuple[int, ...]:
        """Numbers of requests that were measured."""
        return tuple(sorted({size.batch for size in self.steps}))

    @cached_property
    def _curves(self) -> Mapping[int, Sequence[tuple[float, float]]]:
        """Seconds by drafts, of each number of requests."""
        return {
            batch: sorted(
                (size.tokens - batch, size.seconds) for size in self.steps if size.batch == batch
            )
            for batch in self.batches
        }

    def knows(self, batch: int, tokens: int) -> bool:
        """Whether steps near that size were measured, so that lines through them reach it."""
        near = self._near(batch)
        return batch <= self.batches[-1] and all(
            tokens - batch <= _MOST_BEYOND * self._curves[own][-1][0] for own in near
        )

    def seconds(self, batch: int, tokens: int) -> float:
        """Of a step, behind the context that was measured."""
        points = [(own, line_at(self._curves[own], tokens - batch)) for own in self._near(batch)]
        return line_at(points, batch)

    def step_ratio(self, batch: int, tokens: int) -> float:
        """A step of so many tokens over one of a token each; not below 1, as it computes more."""
        return max(1.0, self.seconds(batch, tokens) / self.seconds(batch, batch))

    def added_s(self, batch: int, tokens: int, plain_s: Callable[[int], float]) -> float:
        """Seconds by which a step of so many tokens is longer than one of a token each. plain_s:
        the plan's step of a token each, by the context of the requests."""
        return plain_s(self.context_tokens) * (self.step_ratio(batch, tokens) - 1)

    def pass_ratio(self, draft: str, batch: int) -> float | None:
        """A pass of a draft over a step of a token each; None of one that was not measured, and of
        more requests than were."""
        found = next((known for known in self.drafts if known.draft == draft), None)
        if found is None or batch > self.batches[-1]:
            return None
        return found.seconds(batch) / self.seconds(batch, batch)

    def with_draft(self, passes: DraftPasses) -> MeasuredSteps:
        """The same with passes of a draft, in the place of earlier ones of it."""
        others = (known for known in self.drafts if known.draft != passes.draft)
        return msgspec.structs.replace(self, drafts=(*others, passes))

    def _near(self, batch: int) -> Sequence[int]:
        batches = self.batches
        if batch in self._curves:
            return (batch,)
        at = bisect_left(batches, batch)
        return batches[max(0, at - 1) : at + 1]


def line_at(points: Sequence[tuple[float, float]], at: float) -> float:
    """Through points by ascending place, before the first as there, and on beyond the last as
    before it."""
    if len(points) == 1 or at <= points[0][0]:
        return points[0][1]
    high = min(bisect_left(points, at, key=lambda point: point[0]), len(points) - 1)
    (left, below), (right, above) = points[high - 1], points[high]
    return below + (at - left) / (right - left) * (above - below)


def _check_ascending(points: Sequence[tuple[float, float]]) -> None:
    if not points or any(second <= 0 for _, second in points):
        raise ConfigError("a measured step takes no time: measure again")
    if any(left >= right for (left, _), (right, _) in pairwise(points)):
        raise ConfigError("measured steps have a size twice: measure again")
