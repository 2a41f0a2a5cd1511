"""Past answers: what followed the same tokens in answers that were given before.

Templates, code and sessions that are replayed repeat answers of earlier requests. Those that ended
are kept up to a number of tokens, in parts of a quarter of it, each of which is a suffix automaton;
where there are more the oldest part goes. A request reads all parts of its own cache salt, and the
longest match is followed: a draft changes no answer, but how soon a token comes would show what
others were told, as a shared prefix would.

An answer that ended is entered by and by, INDEXED_TOKENS in each step, so that no step waits for a
long one. What is not entered yet counts as kept, and is caught up with when fewer decode.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from headrace.engine.drafts.lookup._lookup import Reader, SuffixAutomaton
from headrace.engine.drafts.source import MOST_MATCH, Guess
from headrace.engine.request import Request

LEAST_MATCH = 4
MOST_TOKENS = 1 << 17
"""Of answers that are kept: 13 MB of code."""
NUM_PARTS = 4
INDEXED_TOKENS = 16
"""In each step, some 4 µs."""


class _Part:
    """Answers that are dropped together."""

    def __init__(self, salt: str) -> None:
        self.salt = salt
        self.automaton = SuffixAutomaton()
        self.num_tokens = 0


class _Answer(NamedTuple):
    salt: str
    token_ids: Sequence[int]


class _Reading:
    """The places of a request in the parts it may read."""

    def __init__(self) -> None:
        self.num_read = 0
        self.version = -1
        self.readers: Sequence[Reader] = ()


class PastAnswers:
    """The source of what followed in answers of earlier requests."""

    name = "suffix"

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        """most_tokens: of the answers that are kept."""
        self._most_tokens = most_tokens
        self._num_tokens = 0
        self._parts: list[_Part] = []
        """In the order in which they began."""
        self._pending: deque[_Answer] = deque()
        self._part: _Part | None = None
        """The part that the first of those that are pending is entered into."""
        self._num_entered = 0
        """Tokens of it."""
        self._version = 0
        """Of what is found: answers that were entered, and parts dropped."""
        self._readings: dict[Request, _Reading] = {}

    def begin_step(self) -> None:
        """Enter some tokens of the answers that are pending."""
        self._enter(INDEXED_TOKENS)

    def guess(self, request: Request, most: int) -> Guess | None:
        """What followed the request's last tokens in past answers."""
        if not self._parts:
            return None
        reading = self._readings.get(request)
        if reading is None:
            reading = self._readings[request] = _Reading()
        token_ids = request.token_ids
        new = token_ids[reading.num_read :]
        if reading.version != self._version or len(new) > MOST_MATCH:
            salt, new = request.cache_salt, token_ids[-MOST_MATCH:]
            reading.version = self._version
            reading.readers = [
                Reader(part.automaton) for part in reversed(self._parts) if part.salt == salt
            ]
        reading.num_read = len(token_ids)
        best: Sequence[int] = ()
        longest = 0
        for reader in reading.readers:
            reader.read(new)
            if reader.match_tokens <= longest:
                continue
            guess, match = reader.guess(LEAST_MATCH, most)
            if guess and match > longest:
                best, longest = guess, match
        return Guess(best, min(longest, MOST_MATCH)) if best else None

    def clear(self) -> None:
        """Drop all answers."""
        self._num_tokens = 0
        self._parts.clear()
        self._pending.clear()
        self._part = None
        self._version += 1

    def forget(self, request: Request) -> None:
        """Keep the answer of a request that has ended, unless it failed."""
        self._readings.pop(request, None)
        if request.finish_reason == "error":
            return
        token_ids = request.token_ids[request.num_prompt :][-self._most_tokens :]
        if len(token_ids) <= LEAST_MATCH:
            return
        self._pending.append(_Answer(request.cache_salt, token_ids))
        self._num_tokens += len(token_ids)
        self._drop_oldest()

    def _enter(self, most: int) -> None:
        """Enter at most so many tokens of the answers that are pending."""
        while self._pending and most:
            salt, token_ids = self._pending[0]
            if self._part is None:
                self._part = self._part_for(salt, len(token_ids))
                self._part.automaton.begin()
                self._num_entered = 0
            new = token_ids[self._num_entered : self._num_entered + most]
            self._part.automaton.add(new)
            self._num_entered += len(new)
            most -= len(new)
            if self._num_entered == len(token_ids):
                self._pending.popleft()
                self._part = None
                self._version += 1

    def _part_for(self, salt: str, num_tokens: int) -> _Part:
        """The last part of a salt where there is room, or a new one; the room is taken."""
        of_salt = (part for part in reversed(self._parts) if part.salt == salt)
        part = next(of_salt, None)
        if part is None or part.num_tokens + num_tokens > self._most_tokens // NUM_PARTS:
            part = _Part(salt)
            self._parts.append(part)
            self._version += 1
        part.num_tokens += num_tokens
        return part

    def _drop_oldest(self) -> None:
        """Drop parts, then answers that are pending, until what is kept is within its bound."""
        while self._num_tokens > self._most_tokens:
            if self._parts and self._parts[0] is not self._part:
                self._num_tokens -= self._parts.pop(0).num_tokens
            elif self._part is not None:  # the answer that is being entered goes with its part
                self._parts.remove(self._part)
                self._num_tokens -= self._part.num_tokens
                self._pending.popleft()
                self._part = None
            else:
                self._num_tokens -= len(self._pending.popleft().token_ids)
            self._version += 1
