"""What makes drafts in passes, as those that decide on it see it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from headrace.engine.request import Request


class Pass(NamedTuple):
    """A pass of the draft: of so many tokens, in so many seconds."""

    num_tokens: int
    seconds: float


class PassModel(Protocol):
    """A draft model or a head (draft_chain.py)."""

    @property
    def passes(self) -> Sequence[Pass]:
        """Of the last call of `guess`."""

    def guess(
        self,
        wanted: Sequence[tuple[Request, int]],
        most_read: int | None = None,
        *,
        latest: bool = False,
    ) -> dict[Request, list[int]]:
        """Drafts of each request, at most so many, where there are any. most_read: tokens of
        requests that are read for the first time, at most; latest: of what has more of them the
        last ones alone, as of a text that begins there."""

    def lag(self, request: Request) -> int:
        """Tokens that it has to read before its first draft, at most."""

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
