"""Sources of guessed drafts: what each of them is, and what it says of its own guess."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.engine.request import Request

MOST_MATCH = 64
"""Tokens of a match that are counted; a longer one says nothing more."""


class Guess(NamedTuple):
    """A guess of what follows a request's tokens."""

    token_ids: Sequence[int]
    """At least one."""
    match_tokens: int = 0
    """How many of the request's last tokens are those that came before where the guess is from: the
    longer, the likelier it is right."""


class DraftSource(Protocol):
    """A source of guesses. It may keep what it has read of a request until that is forgotten."""

    name: str
    """Its `method` in `--speculative-config`."""

    def begin_step(self) -> None:
        """A step begins: what is to be done by and by may be gone on with."""
        ...

    def guess(self, request: Request, most: int) -> Guess | None:
        """At most so many tokens, 1 or more; None where it knows nothing."""
        ...

    def clear(self) -> None:
        """Drop what is kept of requests that have ended."""
        ...

    def forget(self, request: Request) -> None:
        """The request has ended."""
        ...
