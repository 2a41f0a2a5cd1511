"""What the scheduler hands out: the rows of a step, and the counts of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from headrace.engine.request import NO_POSITIONS, Request

Preemption = Literal["blocks", "priority"]
"""Why one is preempted: a running request had to grow, or one that comes before it took its place.
"""


class Row(NamedTuple):
    """Tokens [start, start + num_tokens) of a request; `samples` when they are all it wants, and
    the last of them gives a new one. scored: positions whose logits prompt_logprobs want.
    """

    request: Request
    start: int
    num_tokens: int
    samples: bool
    scored: range = NO_POSITIONS


class StepPlan(NamedTuple):
    """The rows of one step, at least one token each, and how many requests were preempted.

    started: requests that left the queue for the first time. copies: blocks, and those they are
    copied to before the rows are computed, in this order.
    """

    rows: list[Row]
    num_tokens: int
    num_preempted: int
    started: list[Request]
    copies: Sequence[tuple[int, int]] = ()


@dataclass(slots=True)
class Totals:
    """Counters since start; prompt and prefix counts are of first admissions only.

    preemptions: by their reasons.
    """

    steps: int = 0
    timeouts: int = 0
    preemptions: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    generation_tokens: int = 0
    computed_tokens: int = 0
    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    miss_reasons: Counter[str] = field(default_factory=Counter)
