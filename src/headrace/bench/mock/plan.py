"""What one request gets and when, decided before any of it happens.

Pure: settings, the request's figures and its number in; times and faults out. The random source
of a request depends on the seed and its number alone, so a run against the same program and in
the same order sees the same times, faults and lengths.

Token i of n is due at ttft + (i - 1) tpot and a chunk goes out with its last token; the first
chunk has one. So (last - first) / (n - 1) is exactly tpot, however tokens are gathered.
"""

from __future__ import annotations

from random import Random
from typing import Literal, NamedTuple

from headrace.bench.mock.settings import MockSettings
from headrace.bench.mock.spread import Spread

NS_PER_MS = 1_000_000
# As many as chat servers give where nothing says how many are wanted.
DEFAULT_OUTPUT_TOKENS = 128
# An endless stream without a pause between tokens would leave time for nothing else.
MIN_ENDLESS_GAP_NS = 1_000_000


class Wanted(NamedTuple):
    """Figures of a request. max_tokens: None where it does not say."""

    prompt_tokens: int
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False


class Step(NamedTuple):
    """One chunk of a stream: when it is due after the beginning, and tokens first..last of it."""

    offset_ns: int
    kind: Literal["role", "reasoning", "text"]
    first_token: int = 0
    tokens: int = 0


class Plan(NamedTuple):
    """A reply. `fault`: a status or FaultKind; it strikes before step `fault_step` of a stream.

    `gap_ns`: between the tokens of an endless stream, which go on after the last step.
    """

    steps: tuple[Step, ...]
    output_tokens: int
    reasoning_tokens: int
    finish_reason: Literal["stop", "length"]
    fault: str | None
    fault_step: int
    gap_ns: int

    @property
    def end_ns(self) -> int:
        """When the last content is due, after the beginning."""
        return self.steps[-1].offset_ns


class Planner:
    """Plans of one endpoint, by the number of the request."""

    def __init__(self, settings: MockSettings) -> None:
        self._settings = settings
        self._ttft = settings.ttft
        self._tpot = settings.tpot
        self._stall = settings.stall
        self._chunk_tokens = settings.chunk_tokens
        self._length = settings.length

    def plan(self, number: int, wanted: Wanted, *, role: bool = True) -> Plan:
        """The reply to request `number`; `role`: whether its format opens with a role."""
        settings = self._settings
        random = Random(f"{settings.seed}:{number}")
        fault = _fault(settings, random.random())
        first_ns = round(
            self._ttft.draw(random) * NS_PER_MS
            + settings.ttft_per_token_us * 1000 * wanted.prompt_tokens
        )
        gap_ns = round(self._tpot.draw(random) * NS_PER_MS)
        tokens, reason = _length(self._length, wanted, random)
        reasoning = min(settings.reasoning_tokens, tokens)
        contents = self._contents(random, first_ns, gap_ns, tokens, reasoning)
        opening: tuple[Step, ...] = ()
        if role and settings.role_chunk != "none":
            opening = (Step(0 if settings.role_chunk == "at-once" else first_ns, "role"),)
        # In the middle: after the first content, before the last, where there are so many.
        inside = len(opening) + (random.randint(1, len(contents) - 1) if len(contents) > 1 else 1)
        return Plan(
            steps=opening + contents,
            output_tokens=tokens,
            reasoning_tokens=reasoning,
            finish_reason=reason,
            fault=fault,
            fault_step=inside,
            gap_ns=max(gap_ns, MIN_ENDLESS_GAP_NS),
        )

    def first_ns(self, number: int, wanted: Wanted) -> int:
        """When an embedding is ready: there is nothing but a first result."""
        return self.plan(number, wanted._replace(max_tokens=1), role=False).steps[0].offset_ns

    def _contents(
        self, random: Random, first_ns: int, gap_ns: int, tokens: int, reasoning: int
    ) -> tuple[Step, ...]:
        sizes = self._sizes(random, tokens, reasoning)
        stalled_at, stall_ns = 0, 0
        if len(sizes) > 1 and random.random() < self._settings.stall_rate:
            stalled_at = random.randint(1, len(sizes) - 1)
            stall_ns = round(self._stall.draw(random) * NS_PER_MS)
        jitter_ns = self._settings.jitter_ms * NS_PER_MS
        steps: list[Step] = []
        given = before_ns = 0
        for index, size in enumerate(sizes):
            due_ns = first_ns + gap_ns * (given + size - 1)
            if stall_ns and index >= stalled_at:
                due_ns += stall_ns
            if jitter_ns and index:
                due_ns += round(random.gauss(0.0, jitter_ns))
            before_ns = max(before_ns, due_ns)  # chunks keep their order
            kind: Literal["reasoning", "text"] = "reasoning" if given < reasoning else "text"
            steps.append(Step(before_ns, kind, given, size))
            given += size
        return tuple(steps)

    def _sizes(self, random: Random, tokens: int, reasoning: int) -> list[int]:
        """Tokens of each chunk; none has both reasoning and answer."""
        sizes, given = [1], 1
        while given < tokens:
            end = reasoning if given < reasoning else tokens
            sizes.append(min(self._chunk_tokens.draw_whole(random), end - given))
            given += sizes[-1]
        return sizes


def _length(
    spread: Spread | None, wanted: Wanted, random: Random
) -> tuple[int, Literal["stop", "length"]]:
    most = wanted.max_tokens
    if spread is None:
        return (DEFAULT_OUTPUT_TOKENS, "stop") if most is None else (most, "length")
    drawn = max(spread.draw_whole(random), wanted.min_tokens)
    if most is None or (drawn < most and not wanted.ignore_eos):
        return drawn, "stop"
    return most, "length"


def _fault(settings: MockSettings, draw: float) -> str | None:
    """The error that request gets whose number between 0 and 1 is `draw`."""
    for kind, rate in settings.errors:
        if draw < rate:
            return kind
        draw -= rate
    return None
