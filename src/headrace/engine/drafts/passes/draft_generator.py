"""What makes drafts in passes, as the policy that decides on it sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, Protocol

from headrace.engine.request import Request

CATCH_UP_TOKENS = 128
"""Tokens of all requests that the draft has not seen and computes in a step, beside those that came
in the last ones."""
FEW_TOKENS = 16
"""Of a request, that came in the last steps: the draft computes so many whatever others need."""


class Pass(NamedTuple):
    """A pass of the draft: of so many tokens, in so many seconds."""

    num_tokens: int
    seconds: float
    is_usual: bool = True
    """Whether others of its size take as long: not one that was recorded."""


class RatedDraft(NamedTuple):
    """A draft with the probability that its maker gives it."""

    token_id: int
    probability: float


Verdict = Literal["drop", "end", "on"]
"""What is done about a draft: left out, the last one, or followed by another."""


class JudgedDraft(NamedTuple):
    """A draft that a pass has made."""

    request: Request
    place: int
    """Of the request's row of drafts, from 0."""
    probability: float
    """That its maker gives it."""
    more: bool
    """Whether another is wanted behind it."""


Judge = Callable[[Sequence[JudgedDraft]], Sequence[Verdict]]
"""What is done about the drafts of a pass, decided together: those that go on share the next."""


class DraftGenerator(Protocol):
    """A maker of drafts in passes: a draft model or a head (draft_chain.py)."""

    @property
    def passes(self) -> Sequence[Pass]:
        """Of the last call of `guess`."""

    def guess(
        self,
        wanted: Sequence[tuple[Request, int]],
        most_read: int | None = None,
        *,
        latest: bool = False,
        judge: Judge | None = None,
    ) -> dict[Request, list[int]]:
        """Drafts of each request, at most so many, where there are any. most_read: tokens of
        requests that are read for the first time, at most; latest: of what has more of them the
        last ones alone, as of a text that begins there. judge: ends drafts of a request earlier;
        None for none that does, and where all come from one pass it is not asked."""

    def rated(self, request: Request) -> Sequence[RatedDraft]:
        """Those of the last guess that were judged, with the one that was left out."""

    def lag(self, request: Request) -> int:
        """Tokens that it has to read before its first draft, at most."""

    def num_at_hand(self, request: Request) -> int:
        """Tokens of a request that it has read and that its drafts are the better for."""

    def num_passes(self, num_drafts: int) -> int:
        """Passes that so many drafts of a request take."""

    def watch(self, requests: Collection[Request] | None) -> None:
        """Have ready what drafts of these requests are made of, of all for None, from the next step
        on, and nothing of others."""

    def take_watching_s(self) -> float:
        """Seconds that this took of steps since it was asked last."""

    def num_missing(self, request: Request) -> int:
        """Tokens of a request that have to come, while it is watched, before drafts of it are as
        good as they get."""
