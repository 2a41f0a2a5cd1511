"""Past answers: what followed the same tokens in an answer that was given before.

Templates, code and sessions that are replayed repeat answers of earlier requests. Those that ended
are kept up to a number of tokens, the oldest go first, and the places behind every four tokens of
them are indexed. Requests see answers of their own cache salt alone: a draft changes no answer, but
how soon a token comes would show what others were told, as a shared prefix would.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from headrace.engine.drafts.source import MOST_MATCH, Guess, match_length
from headrace.engine.request import Request

KEY_TOKENS = 4
MOST_TOKENS = 1 << 17
"""Of answers that are kept: with their index some 45 MB."""


class _Place(NamedTuple):
    answer: Sequence[int]
    at: int
    """The place of the token that follows."""


class _Answer(NamedTuple):
    salt: str
    token_ids: Sequence[int]


class _Reading:
    """The place of a request in a past answer."""

    def __init__(self, num_read: int) -> None:
        self.num_read = num_read
        self.place: _Place | None = None
        self.match_tokens = 0


class PastAnswers:
    """The source of what followed in answers of earlier requests."""

    name = "suffix"

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        """most_tokens: of the answers that are kept."""
        self._most_tokens = most_tokens
        self._num_tokens = 0
        self._answers: deque[_Answer] = deque()
        self._places: dict[tuple[str, bytes], _Place] = {}
        self._readings: dict[Request, _Reading] = {}

    def guess(self, request: Request, most: int) -> Guess | None:
        """What followed the request's last tokens in a past answer."""
        token_ids = request.token_ids
        reading = self._readings.get(request)
        if reading is None:
            reading = self._readings[request] = _Reading(len(token_ids))
        self._follow(reading, token_ids)
        if reading.place is None and self._places and len(token_ids) >= KEY_TOKENS:
            place = self._places.get((request.cache_salt, _key(token_ids[-KEY_TOKENS:])))
            if place is not None:
                reading.place = place
                reading.match_tokens = match_length(token_ids, *place, KEY_TOKENS)
        if reading.place is None:
            return None
        answer, index = reading.place
        found = answer[index : index + most]
        return Guess(found, reading.match_tokens) if found else None

    def clear(self) -> None:
        """Drop all answers."""
        self._num_tokens = 0
        self._answers.clear()
        self._places.clear()

    def forget(self, request: Request) -> None:
        """Keep the answer of a request that has ended, unless it failed."""
        self._readings.pop(request, None)
        if request.finish_reason == "error":
            return
        token_ids = request.token_ids[request.num_prompt :][-self._most_tokens :]
        if len(token_ids) <= KEY_TOKENS:
            return
        self._answers.append(_Answer(request.cache_salt, token_ids))
        self._num_tokens += len(token_ids)
        for index in range(KEY_TOKENS, len(token_ids)):
            key = request.cache_salt, _key(token_ids[index - KEY_TOKENS : index])
            self._places[key] = _Place(token_ids, index)
        while self._num_tokens > self._most_tokens:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        salt, token_ids = self._answers.popleft()
        self._num_tokens -= len(token_ids)
        for index in range(KEY_TOKENS, len(token_ids)):
            key = salt, _key(token_ids[index - KEY_TOKENS : index])
            place = self._places.get(key)
            if place is not None and place.answer is token_ids:
                del self._places[key]

    def _follow(self, reading: _Reading, token_ids: Sequence[int]) -> None:
        """Move the place with the tokens that are new, while they are as guessed."""
        for token_id in token_ids[reading.num_read :]:
            if reading.place is None:
                break
            answer, index = reading.place
            if index < len(answer) and answer[index] == token_id:
                reading.place = _Place(answer, index + 1)
                reading.match_tokens = min(reading.match_tokens + 1, MOST_MATCH)
            else:
                reading.place = None
        reading.num_read = len(token_ids)


def _key(token_ids: Sequence[int]) -> bytes:
    return array("i", token_ids).tobytes()
