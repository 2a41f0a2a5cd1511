"""The health of a target: requests under way, speed, and its circuit breaker.

All of it is of one process. Times are handed in, in seconds of one monotonic clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headrace.gateway.settings.reliability import BreakerSettings

# Half-life of a reading's weight: latencies drift over minutes.
_HALF_LIFE_S = 10.0
# Half-life of a latency that is not renewed because other targets look better.
_FORGOTTEN_HALF_S = 120.0
# A target with requests under way and no reading yet: it comes after all that have one.
_UNKNOWN_S = 1e6

State = Literal["closed", "open", "probing"]
OnBreaker = Callable[[str, State, str], None]
"""Called with the name of a target whose breaker opened or closed, and its last failure."""


@dataclass(slots=True)
class _Mean:
    """A mean in which older readings count less."""

    value: float | None = None
    at_s: float = 0.0

    def take(self, reading: float, now_s: float, *, peak: bool) -> None:
        """Add a reading. `peak`: one above the mean replaces it (as in Finagle's peak EWMA)."""
        if self.value is None or (peak and reading > self.value):
            self.value = reading
        else:
            kept = 0.5 ** (max(0.0, now_s - self.at_s) / _HALF_LIFE_S)
            # With many readings in a moment, each still counts.
            kept = min(kept, 0.9)
            self.value = kept * self.value + (1 - kept) * reading
        self.at_s = now_s


class Health:
    """The health and the circuit breaker of one target.

    The breaker lets all requests through if `closed`, none if `open`, one at a time if `probing`.
    `taken_out` means that a person opened it.
    """

    def __init__(
        self,
        settings: BreakerSettings | None = None,
        *,
        name: str = "",
        on_breaker: OnBreaker | None = None,
    ) -> None:
        """`name` is passed to `on_breaker`."""
        self._settings = settings or BreakerSettings()
        self._name = name
        self._on_breaker = on_breaker
        self._told: State = "closed"
        self._outcomes: deque[tuple[float, bool]] = deque()
        self._failures = 0
        self._first_token = _Mean()
        self._rate = _Mean()
        self._open_until_s = -math.inf
        self._cooldown_s = self._settings.cooldown_s
        self._state: State = "closed"
        self._probes = 0
        self.in_flight = 0
        self.requests = 0
        self.failures = 0
        self.last_failure: str | None = None
        self.taken_out = False
        self.on_free: Callable[[Health], None] | None = None

    def state(self, now_s: float) -> State:
        """The state of the breaker."""
        if self.taken_out:
            return "open"
        if self._state == "open" and now_s >= self._open_until_s:
            self._state, self._probes = "probing", 0
        return self._state

    def lets_through(self, now_s: float) -> bool:
        """Whether a request may be sent now."""
        state = self.state(now_s)
        return state == "closed" or (state == "probing" and self._probes == 0)

    def take_out(self) -> None:
        """Stop sending requests to it until `put_back`, whatever it does."""
        self.taken_out = True

    def put_back(self) -> None:
        """Send requests to it again, even if failures had opened the breaker."""
        self.taken_out = False
        self._state = "closed"
        self._outcomes.clear()
        self._failures = 0
        self._cooldown_s = self._settings.cooldown_s
        self._tell("closed")

    def closed_for_s(self, now_s: float) -> float:
        """How long nothing can be sent; 0 if something can. For a target that was taken out, how
        long the breaker would be open otherwise."""
        return 0.0 if self.lets_through(now_s) else max(0.05, self._open_until_s - now_s)

    @property
    def failed_for(self) -> str:
        """Kind and status of the last failure, safe for any client, while the provider's words may
        quote another client's request; "" if nothing failed."""
        return (self.last_failure or "").partition(":")[0]

    @property
    def first_token_s(self) -> float | None:
        """Mean time to the first content; a slower one counts at once."""
        return self._first_token.value

    @property
    def tokens_per_s(self) -> float | None:
        """Mean rate of output of a request, after its first token."""
        return self._rate.value

    def load_score(self, now_s: float) -> float:
        """What a new request may expect: time to the first token times the requests before it.

        Targets not yet tried have the score 0 and so come first, for one request. A latency fades,
        because otherwise a target that was slow once would never be tried again.
        """
        seen = self._first_token
        if seen.value is None:
            return _UNKNOWN_S * self.in_flight
        halves = max(0.0, now_s - seen.at_s) / _FORGOTTEN_HALF_S
        return seen.value * math.exp2(-halves) * (self.in_flight + 1)

    def began(self, now_s: float) -> None:
        """Count a request that begins; `ended` has to follow."""
        self.in_flight += 1
        self.requests += 1
        if self.state(now_s) == "probing":
            self._probes += 1

    def ended(self) -> None:
        """Count a request that is over, whatever became of it."""
        self.in_flight -= 1
        if self.on_free is not None:
            self.on_free(self)

    def had_first_token(self, after_s: float, now_s: float) -> None:
        """Record that the first content came `after_s` after the request was sent."""
        self._first_token.take(after_s, now_s, peak=True)

    def had_rate(self, tokens_per_s: float, now_s: float) -> None:
        """Record the rate of the rest."""
        self._rate.take(tokens_per_s, now_s, peak=False)

    def succeeded(self, now_s: float) -> None:
        """Record an answer. While the breaker is open, it is ignored."""
        if self.state(now_s) == "probing":
            self._state = "closed"
            self._outcomes.clear()
            self._failures = 0
            self._cooldown_s = self._settings.cooldown_s
            self._tell("closed")
        self._note(now_s, failed=False)

    def failed(self, now_s: float, why: str, *, cool_s: float | None = None) -> None:
        """Record a failure. `cool_s` is how long it asked to be left alone (Retry-After)."""
        self.failures += 1
        self.last_failure = why
        was_probing = self.state(now_s) == "probing"
        self._note(now_s, failed=True)
        if was_probing:
            self._cooldown_s = min(2 * self._cooldown_s, self._settings.cooldown_max_s)
            self._open(now_s, max(self._cooldown_s, cool_s or 0.0))
        elif cool_s is not None:
            self._open(now_s, cool_s)
        elif self._too_many_failed():
            self._open(now_s, self._cooldown_s)

    def _too_many_failed(self) -> bool:
        attempts = len(self._outcomes)
        enough = attempts >= self._settings.min_attempts
        return enough and self._failures >= self._settings.share * attempts

    def did_not_count(self, now_s: float) -> None:
        """Allow another probe after one that showed nothing about the target."""
        if self.state(now_s) == "probing":
            self._probes = max(0, self._probes - 1)

    def _open(self, now_s: float, for_s: float) -> None:
        most_s = self._settings.cooldown_max_s
        self._state = "open"
        self._open_until_s = now_s + min(for_s, most_s)
        self._tell("open")

    def _tell(self, state: State) -> None:
        if self._on_breaker is not None and state != self._told:
            self._told = state
            self._on_breaker(self._name, state, self.last_failure or "")

    def _note(self, now_s: float, *, failed: bool) -> None:
        self._outcomes.append((now_s, failed))
        self._failures += failed
        while self._outcomes and self._outcomes[0][0] < now_s - self._settings.window_s:
            _, old = self._outcomes.popleft()
            self._failures -= old
