"""Prompt lookup: a request's last tokens have come before in it, and what followed then may follow.

    guess = t[p : p + k],  p the latest place in t[: N - 1] with t[p - n : p] = t[N - n : N]

for the longest n that was sought. Where the guess reaches the end of the text, the text repeats
itself with the period N - p, and the guess goes on so. (Saxena, "Prompt Lookup Decoding", 2023.)

A place is sought only where the last guess was wrong: while it is right, the place moves on with
the text, and the match grows by each token. To seek is to go back through the whole text
(native/lookup/text.h), some microseconds among 16,000 tokens, which take 4 bytes each.
"""

from __future__ import annotations

from headrace.engine.drafts.lookup._lookup import Text
from headrace.engine.drafts.source import MOST_MATCH, Guess
from headrace.engine.request import Request


class PromptLookup:
    """The source of what followed the same tokens earlier in the same request."""

    name = "ngram"

    def __init__(self, least_match: int = 2, most_match: int = 6) -> None:
        """least_match, most_match: tokens that have to be the same; the longest of these and one in
        the middle is taken."""
        middle = (least_match + most_match) // 2
        self._lengths = sorted({least_match, middle, most_match})
        self._texts: dict[Request, Text] = {}

    def begin_step(self) -> None:
        """There is nothing to be done."""

    def guess(self, request: Request, most: int) -> Guess | None:
        """What followed the last tokens when they came before."""
        text = self._texts.get(request)
        if text is None:
            text = self._texts[request] = Text(self._lengths, MOST_MATCH)
        found, match = text.guess(request.token_ids[len(text) :], most)
        return Guess(found, match) if match else None

    def clear(self) -> None:
        """Nothing is kept of requests that have ended."""

    def forget(self, request: Request) -> None:
        """Drop what was read of a request."""
        self._texts.pop(request, None)
