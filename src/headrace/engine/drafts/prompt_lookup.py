"""Prompt lookup: a request's last tokens have come before in it, and what followed then may follow.

    guess = t[p : p + k],  p the latest place in t[: N - 1] with t[p - n : p] = t[N - n : N]

for the longest n that was sought. Where the guess reaches the end of the text, the text repeats
itself with the period N - p, and the guess goes on so. (Saxena, "Prompt Lookup Decoding", 2023.)

A place is sought only where the last guess was wrong: while it is right, the place moves on with
the text, and the match grows by each token. Tokens are sought as bytes, which the C library does at
some GB/s: 16,000 tokens, 64 kB, take some 20 µs.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from headrace.engine.drafts.source import MOST_MATCH, Guess, match_length
from headrace.engine.request import Request

_WIDTH = 4
"""Bytes of a token."""
_MOST_MISALIGNED = 8
"""Bytes that look like the tokens sought, and lie between tokens, that are passed over."""


class PromptLookup:
    """The source of what followed the same tokens earlier in the same request."""

    name = "ngram"

    def __init__(self, least_match: int = 2, most_match: int = 6) -> None:
        """least_match, most_match: tokens that have to be the same; the longer is sought first."""
        middle = (least_match + most_match) // 2
        self._lengths = sorted({least_match, middle, most_match}, reverse=True)
        self._texts: dict[Request, _Text] = {}

    def guess(self, request: Request, most: int) -> Guess | None:
        """What followed the last tokens when they came before."""
        text = self._texts.get(request)
        if text is None:
            text = self._texts[request] = _Text()
        text.read(request.token_ids)
        if text.match_tokens < self._lengths[-1]:
            text.seek(request.token_ids, self._lengths)
        if not text.match_tokens:
            return None
        return Guess(following(request.token_ids, text.place, most), text.match_tokens)

    def clear(self) -> None:
        """Nothing is kept of requests that have ended."""

    def forget(self, request: Request) -> None:
        """Drop what was read of a request."""
        self._texts.pop(request, None)


def following(token_ids: Sequence[int], place: int, most: int) -> Sequence[int]:
    """At most so many tokens from a place on, which repeat where the text ends."""
    found = list(token_ids[place : place + most])
    if len(found) < most and found:
        found = (found * -(-most // len(found)))[:most]
    return found


class _Text:
    """The text of one request as far as it was read, and the place from which its guess is."""

    def __init__(self) -> None:
        self.place = 0
        self.match_tokens = 0
        """0 where there is no place."""
        self._bytes = bytearray()

    def read(self, token_ids: Sequence[int]) -> None:
        """Read the tokens that are new, and move the place with them while they are as guessed."""
        num_read = len(self._bytes) // _WIDTH
        new = token_ids[num_read:]
        self._bytes += array("i", new).tobytes()
        for token_id in new:
            if not self.match_tokens:
                return
            if token_ids[self.place] == token_id:
                self.place += 1
                self.match_tokens = min(self.match_tokens + 1, MOST_MATCH)
            else:
                self.match_tokens = 0

    def seek(self, token_ids: Sequence[int], lengths: Sequence[int]) -> None:
        """Find the latest place behind as many of the last tokens as may be."""
        self.match_tokens = 0
        for length in lengths:
            place = self._find(length)
            if place is not None:
                self.place = place
                self.match_tokens = match_length(token_ids, token_ids, place, length)
                return

    def _find(self, length: int) -> int | None:
        """The place behind the latest earlier occurrence of the last tokens."""
        size = length * _WIDTH
        if len(self._bytes) <= size:
            return None
        sought, end = self._bytes[-size:], len(self._bytes) - 1
        for _ in range(_MOST_MISALIGNED):
            at = self._bytes.rfind(sought, 0, end)
            if at < 0:
                return None
            if at % _WIDTH == 0:
                return at // _WIDTH + length
            end = at + size - 1
        return None
