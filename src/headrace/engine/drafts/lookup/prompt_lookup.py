"""Prompt lookup: a request's last tokens have come before in it, and what followed then may follow.

    guess = t[p : p + k],  p the latest place in t[: N - 1] with t[p - n : p] = t[N - n : N]

for the longest n that was sought. Where the guess reaches the end of the text, the text repeats
itself with the period N - p, and the guess goes on so. (Saxena, "Prompt Lookup Decoding", 2023.)

A place is sought only where the last guess was wrong: while it is right, the place moves on with
the text, and the match grows by each token. All places of the last token are found at once, some 10
µs among 16,000 tokens, and those with the tokens before it too are kept one token after another.
That costs 4 bytes a token; a dict of places by n-gram would be as fast with a hundred times that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from headrace.engine.drafts.source import MOST_MATCH, Guess, match_length
from headrace.engine.request import Request

_FIRST_ROOM = 1024
"""Tokens for which a text has room at first."""


class PromptLookup:
    """The source of what followed the same tokens earlier in the same request."""

    name = "ngram"

    def __init__(self, least_match: int = 2, most_match: int = 6) -> None:
        """least_match, most_match: tokens that have to be the same; the longer is sought first."""
        middle = (least_match + most_match) // 2
        self._lengths = sorted({least_match, middle, most_match}, reverse=True)
        self._texts: dict[Request, _Text] = {}

    def begin_step(self) -> None:
        """There is nothing to be done."""

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
        self._ids: npt.NDArray[np.int32] = np.empty(_FIRST_ROOM, np.int32)
        self._num_read = 0

    def read(self, token_ids: Sequence[int]) -> None:
        """Read the tokens that are new, and move the place with them while they are as guessed."""
        start, end = self._num_read, len(token_ids)
        new = token_ids[start:]
        if end > len(self._ids):
            ids: npt.NDArray[np.int32] = np.empty(2 * end, np.int32)
            ids[:start] = self._ids[:start]
            self._ids = ids
        self._ids[start:end] = new
        self._num_read = end
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
        for length, place in self._found(lengths):
            self.place = place
            self.match_tokens = match_length(token_ids, token_ids, place, length)

    def _found(self, lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Each of the lengths, the shortest first, at which the last tokens came before, and the
        place behind the latest."""
        end, ids = self._num_read, self._ids
        if not end:
            return
        places = np.flatnonzero(ids[: end - 1] == ids[end - 1]) + 1
        for length in range(1, lengths[0] + 1):
            if length > 1:
                places = places[np.searchsorted(places, length) :]
                places = places[ids[places - length] == ids[end - length]]
            if not len(places):
                return
            if length in lengths:
                yield length, int(places[-1])
