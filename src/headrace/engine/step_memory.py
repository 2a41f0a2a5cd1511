"""How much a step computes at a time where memory for it ran out.

What a step takes beside weights and KV cache grows with its tokens, and a device's memory is shared
with whoever else uses it. After a step that found too little, rows are computed in parts of half as
many tokens, and chunks of prompts are no longer than that; after enough steps that found enough, in
parts of twice as many, until the limit is gone. Rows do not depend on each other, so that parts
change no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.engine.scheduling.plan import Row

RECOVER_STEPS = 64
"""Steps without want of memory after which twice as much is tried: each try may fail, which costs
a step, so that tries take about a sixtieth of the time."""

FIRST_PAUSE_S, MOST_PAUSE_S = 0.01, 1.0
"""Before the next try where not even one token could be computed: others hold the memory."""


class StepMemory:
    """The limit of tokens that are computed together; None as long as memory was never short."""

    def __init__(self, most_tokens: int) -> None:
        """most_tokens: of a step, where the limit ends."""
        self.limit: int | None = None
        self.times_short = 0
        self._most = most_tokens
        self._good_steps = 0
        self._pause_s = 0.0

    def parts(self, rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
        """The rows in order, in parts of at most the limit; a row that is longer is one alone."""
        if self.limit is None:
            yield rows
            return
        first = tokens = 0
        for index, row in enumerate(rows):
            if tokens and tokens + row.num_tokens > self.limit:
                yield rows[first:index]
                first, tokens = index, 0
            tokens += row.num_tokens
        yield rows[first:]

    def note_short(self, num_tokens: int) -> None:
        """Memory was too little for so many tokens together."""
        self.times_short += 1
        self._good_steps = 0
        self.limit = max(1, num_tokens // 2)

    def note_step(self, *, was_short: bool, computed: bool) -> float:
        """A step is over; the seconds to wait before the next one. computed: anything of it."""
        if not computed:
            self._pause_s = min(MOST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause_s))
            return self._pause_s
        self._pause_s = 0.0
        if self.limit is None or was_short:
            return 0.0
        self._good_steps += 1
        if self._good_steps >= RECOVER_STEPS:
            self._good_steps = 0
            self.limit = None if 2 * self.limit >= self._most else 2 * self.limit
        return 0.0
