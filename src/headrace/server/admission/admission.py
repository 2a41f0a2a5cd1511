"""Who may wait: a bound on queued requests and on their prompt tokens, counted before any work.

Where no place is free at all, a request is refused unread. Otherwise its places are taken when it
has been parsed, before it is rendered and tokenized, and given back when the engine starts it or it
ends, so between check and count nobody comes in: the count is exact at every moment (used from one
event loop, without a wait between the two). Who finds no place is told so at once, with the numbers
and when to come again.

Where several keys share the queue, each may have half of what the others leave of it: whatever one
sends, the next finds a place. Then `turns` decides whose request the engine gets next.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Sequence

from headrace.protocol.openai.error import RATE_LIMIT
from headrace.server.admission.engine_turns import EngineTurn, EngineTurns
from headrace.server.api_error import ApiError

# Ends that the pace of the queue is taken from: at least so many, and of four rounds of the slots,
# because requests that began together often end together.
RECENT_ENDS = 64
RECENT_ROUNDS = 4
# Retry-After in seconds: less makes clients hammer, more makes them wait when the queue is gone.
RETRY_LEAST_S, RETRY_MOST_S = 1, 60
# Told while the pace is not known yet.
RETRY_UNKNOWN_S = 5


class Admission:
    """The places of one engine's queue.

    max_requests: that may wait beyond the free slots; with 0 only what can run at once comes in.
    max_tokens: of their prompts together; one request alone may have more. slots: requests the
    engine runs at a time. clock: seconds. by_key: whether keys have shares; without, all requests
    are of one key.
    """

    def __init__(
        self,
        max_requests: int,
        max_tokens: int,
        *,
        slots: int,
        clock: Callable[[], float],
        by_key: bool = False,
    ) -> None:
        self.max_requests = max_requests
        self.max_tokens = max_tokens
        self.num_queued = 0
        """Requests that have a place and were not started."""
        self.num_running = 0
        """Requests that were started and have not ended; preempted ones among them."""
        self.num_queued_tokens = 0
        self.refused: Counter[str] = Counter()
        """Requests that found no place, by what was full: "requests" or "tokens"."""
        self.turns = EngineTurns(slots) if by_key else None
        """The order in which the engine gets requests of several keys; None for that of arrival."""
        self._slots = slots
        self._clock = clock
        self._queued_of: Counter[str] = Counter()
        self._queued_tokens_of: Counter[str] = Counter()
        self._ends: deque[float] = deque(maxlen=max(RECENT_ENDS, RECENT_ROUNDS * slots))
        self._waited_since_s = 0.0  # when the queue was last empty

    @property
    def places(self) -> int:
        """Requests that may wait now: those that a free slot waits for come on top."""
        return self.max_requests + max(0, self._slots - self.num_running)

    @property
    def num_queued_keys(self) -> int:
        """Keys with requests that have a place and were not started."""
        return len(self._queued_of)

    def check_room(self, key: str = "") -> None:
        """Raise ApiError 429 where not even one more request would find a place.

        To be asked before a body is read: most of a flood is refused at the cost of its headers.
        `enter` decides for those that pass.
        """
        self._check_places(self._sharing(key), 1, "at least 1")

    def enter(self, num_requests: int, key: str = "") -> Ticket:
        """Places for so many requests, all or none.

        Raises ApiError 429 with Retry-After where the queue is full, and 400 for a number that no
        queue of this server could take.
        """
        key = self._sharing(key)
        waiting = self.max_requests - self._kept_for_others(self.max_requests)
        most = waiting + self._slots
        if num_requests > most:
            share = ", half of the queue where keys share it" if self.turns is not None else ""
            raise ApiError(
                400,
                f"the request asks for {num_requests} answers (prompts times n or best_of); "
                f"at most {most} are accepted at once: {self._slots} running (--max-num-seqs) "
                f"and {waiting} waiting (--max-num-queued-reqs{share}). Send several "
                "requests.",
                code="too_many_choices",
            )
        self._check_places(key, num_requests, str(num_requests))
        if self.num_queued == 0:
            self._waited_since_s = self._clock()
        self.num_queued += num_requests
        self._queued_of[key] += num_requests
        return Ticket(self, num_requests, key)

    def _sharing(self, key: str) -> str:
        return "" if self.turns is None else key

    def _kept_for_others(self, left: int) -> int:
        """Of what all other keys leave, what one key leaves to those that may still come."""
        return 0 if self.turns is None else left // 2

    def _check_places(self, key: str, num_requests: int, added: str) -> None:
        mine = self._queued_of[key]
        left = self.places - (self.num_queued - mine)
        share = left - self._kept_for_others(min(left, self.max_requests))
        if mine + num_requests <= share:
            return
        self.refused["requests"] += num_requests
        if mine + num_requests > left:
            raise self._full(
                f"{self.num_queued} requests are queued and this would add {added}; the limit is "
                f"{self.places} (--max-num-queued-reqs {self.max_requests})"
            )
        raise self._full(
            f"{mine} requests of this key are queued and this would add {added}; its share is "
            f"{share}, as half of what others leave is for other keys (--max-num-queued-reqs "
            f"{self.max_requests}, --enable-key-shares)"
        )

    def _add_tokens(self, tokens: int, key: str) -> None:
        mine = self._queued_tokens_of[key]
        left = self.max_tokens - (self.num_queued_tokens - mine)
        share = left - self._kept_for_others(left)
        if self.num_queued_tokens and mine + tokens > left:
            self.refused["tokens"] += 1
            raise self._full(
                f"{self.num_queued_tokens} prompt tokens are queued and this would add {tokens}; "
                f"the limit is {self.max_tokens} (--max-num-queued-tokens)"
            )
        if mine and mine + tokens > share:
            self.refused["tokens"] += 1
            raise self._full(
                f"{mine} prompt tokens of this key are queued and this would add {tokens}; its "
                f"share is {share}, as half of what others leave is for other keys "
                f"(--max-num-queued-tokens {self.max_tokens}, --enable-key-shares)"
            )
        self.num_queued_tokens += tokens
        self._queued_tokens_of[key] += tokens

    def _leave(self, tokens: int, key: str, *, started: bool) -> None:
        self.num_queued -= 1
        self.num_queued_tokens -= tokens
        self._queued_of[key] -= 1
        self._queued_tokens_of[key] -= tokens
        if not self._queued_of[key]:
            del self._queued_of[key], self._queued_tokens_of[key]
        if started:
            self.num_running += 1

    def _end(self) -> None:
        self.num_running -= 1
        self._ends.append(self._clock())

    def _full(self, numbers: str) -> ApiError:
        wait_s = self._retry_after_s()
        return ApiError(
            429,
            f"the queue is full: {numbers}. Try again in {wait_s} s.",
            type=RATE_LIMIT,
            code="queue_full",
            headers={"retry-after": str(wait_s)},
        )

    def _retry_after_s(self) -> int:
        """How long the queue takes to empty at the pace of the latest ends, in whole seconds.

        Not until the next place is free: all who are refused now would come back for that one. Ends
        and not starts, since free slots are filled in a moment whatever the engine's pace. Ends
        from before the queue was last empty say how often somebody came, so they do not count.
        """
        since_s, count = self._waited_since_s, len(self._ends)
        if count == self._ends.maxlen and self._ends[0] > since_s:
            since_s = self._ends[0]
        else:
            count -= bisect_left(self._ends, since_s)
        if count < 2:
            return RETRY_UNKNOWN_S
        wait_s = math.ceil(self.num_queued * (self._clock() - since_s) / count)
        return min(max(wait_s, RETRY_LEAST_S), RETRY_MOST_S)


class Ticket:
    """Places of one call's requests. Each is left once, whatever is called how often."""

    def __init__(self, admission: Admission, num_requests: int, key: str) -> None:
        self._admission = admission
        self._key = key
        self._tokens = [0] * num_requests
        self._queued = set(range(num_requests))
        self._running: set[int] = set()
        self._turns: list[EngineTurn] = []

    def add_tokens(self, prompt_tokens: Sequence[int]) -> None:
        """Count the prompt of each request, in order; ApiError 429 where they are too many.

        One prompt that several requests share (choices of it) is counted for the first.
        """
        self._admission._add_tokens(sum(prompt_tokens), self._key)
        self._tokens = list(prompt_tokens)

    def ask_turns(self, priorities: Sequence[int]) -> Sequence[EngineTurn | None]:
        """A turn in the engine for each request, in order; None where keys have no shares."""
        turns = self._admission.turns
        if turns is None:
            return [None] * len(priorities)
        self._turns = [turns.ask(self._key, priority) for priority in priorities]
        return self._turns

    def started(self, index: int) -> None:
        """Request `index` left the queue and runs."""
        if index in self._queued:
            self._queued.remove(index)
            self._running.add(index)
            self._admission._leave(self._tokens[index], self._key, started=True)
            if self._turns:
                self._turns[index].begun()

    def ended(self, index: int) -> None:
        """Request `index` is over, started or not."""
        if index in self._running:
            self._running.remove(index)
            self._admission._end()
        elif index in self._queued:
            self._queued.remove(index)
            self._admission._leave(self._tokens[index], self._key, started=False)
        if self._turns:
            self._turns[index].leave()

    def close(self) -> None:
        """All are over."""
        for index in range(len(self._tokens)):
            self.ended(index)
