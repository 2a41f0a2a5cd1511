"""Decoding of several prompts at once in one process, and what it took; the programs' common part.

Time counts from the first token of the last stream, when all prompts are read, to the end.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.engine.core import EngineCore
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams

Clock = Callable[[], float]


class Decoded(NamedTuple):
    """The answers of some prompts."""

    token_ids: tuple[tuple[int, ...], ...]
    tokens_per_s: float
    steps: int
    tokens_per_step: float
    """Of each stream."""
    draft_tokens: int
    accepted_tokens: int
    rows_with_drafts: int


def decode(
    core: EngineCore,
    prompts: Sequence[Sequence[int]],
    params: Sequence[SamplingParams],
    *,
    salt: str,
    clock: Clock = time.perf_counter,
) -> Decoded:
    """Answers of an engine that has nothing else to do.

    salt: of the caches; one that is new keeps answers of earlier calls out of this one's drafts.
    """
    before = core.stats()
    for number, (prompt, own) in enumerate(zip(prompts, params, strict=True)):
        core.submit(Submit(str(number), list(prompt), own, cache_salt=salt))
    answers: dict[str, list[int]] = {}
    begun_s, counted, total, steps = -1.0, 0, 0, 0
    while core.has_work:
        for output in core.step():
            assert output.error is None, output.error
            answers.setdefault(output.request_id, []).extend(output.token_ids)
            total += len(output.token_ids)
        if begun_s >= 0:
            steps += 1
        elif len(answers) == len(prompts):
            begun_s, counted = clock(), total
    seconds = clock() - begun_s
    after = core.stats()
    return Decoded(
        tuple(tuple(answers[str(number)]) for number in range(len(prompts))),
        (total - counted) / seconds,
        steps,
        (total - counted) / max(1, steps) / len(prompts),
        after.spec_draft_tokens - before.spec_draft_tokens,
        after.spec_accepted_tokens - before.spec_accepted_tokens,
        after.spec_drafts - before.spec_drafts,
    )


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """An interval that holds the median of what these are drawn from in at least 95 % of cases, or
    the least and the greatest where there are too few: by the sign test's order statistics."""
    ordered, count = sorted(ratios), len(ratios)
    tail, chance, skipped = 0.0, 0.5**count, 0
    for below in range(count // 2):
        tail += chance
        if tail > 0.025:
            break
        skipped = below
        chance *= (count - below) / (below + 1)
    return ordered[skipped], ordered[count - 1 - skipped]


def in_words(ratios: Sequence[float]) -> str:
    """The median with its interval."""
    low, high = interval(ratios)
    return f"{statistics.median(ratios):.2f} [{low:.2f}..{high:.2f}]"
