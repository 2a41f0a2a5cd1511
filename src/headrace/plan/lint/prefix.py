"""How much of prompts begins as another's does, and how much more could.

What could be shared is found by runs of words: one that stands in half of all prompts, wherever,
would be in a common beginning if what differs came after it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace.plan.lint.prompt_file import Prompt

_UNIT = re.compile(r"[A-Za-z0-9_]+|[^\sA-Za-z0-9_]")
_RUN_UNITS = 8
"""Shorter runs of words are equal by chance."""
_MOST_UNITS = 8_000
MOST_PROMPTS = 300
"""More are not compared: text that changes stands at the same place in all."""

_DYNAMIC = (
    ("a date or time", re.compile(
        r"\d{4}-\d{2}-\d{2}|\d{1,2}:\d{2}(:\d{2})?|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b|"
        r"\b\d{1,2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)", re.IGNORECASE)),
    ("an id", re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}|[0-9a-f]{16,}|\b(?:req|user|sess|trace)[\w-]*\d",
                         re.IGNORECASE)),
    ("a number", re.compile(r"\d")),
)  # fmt: skip


class Break(NamedTuple):
    """The place where two prompts differ."""

    first: Prompt
    second: Prompt
    offset: int
    """Number of characters that both begin with."""
    kind: str
    """Kind of text at that place."""

    @property
    def excerpts(self) -> tuple[str, str]:
        """Of both, around the place."""
        return tuple(  # type: ignore[return-value]
            one.text[max(0, self.offset - 24) : self.offset + 24]
            for one in (self.first, self.second)
        )


class Shareable(NamedTuple):
    """Characters, summed over prompts."""

    shared: int
    """Characters at the start of a prompt that another prompt starts with too."""
    reusable: int
    """Characters of passages that half of the prompts have, at any position."""
    whole: int
    """All characters."""


def common_prefix(first: Sequence[object], second: Sequence[object]) -> int:
    """How many leading elements are equal; of texts characters, of ids tokens."""
    low, high = 0, min(len(first), len(second))
    while low < high:  # the longest equal beginning, by halving: comparing slices is quick
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle - 1)
    return low


def shared_beginnings(prompts: Sequence[Prompt]) -> tuple[int, int]:
    """Characters that prompts begin with as another does, and all characters, summed."""
    texts = sorted(one.text for one in prompts[:MOST_PROMPTS])
    beside = [common_prefix(one, two) for one, two in pairwise(texts)]
    shared = sum(max(beside[max(0, at - 1) : at + 1], default=0) for at in range(len(texts)))
    return shared, max(1, sum(len(one) for one in texts))


def shareable(prompts: Sequence[Prompt]) -> Shareable:
    """Of the first prompts of a file; at least two."""
    prompts = prompts[:MOST_PROMPTS]
    texts = [one.text for one in prompts]
    counts: Counter[tuple[str, ...]] = Counter()
    spans = []
    for text in texts:
        units = [(m.group(), m.start(), m.end()) for m in _UNIT.finditer(text)][:_MOST_UNITS]
        words = [one[0] for one in units]
        runs = [tuple(words[at : at + _RUN_UNITS]) for at in range(len(words) - _RUN_UNITS + 1)]
        counts.update(set(runs))
        spans.append((units, runs))
    least = max(2, (len(texts) + 1) // 2)
    reusable = 0
    for units, runs in spans:
        end = 0
        for at, run in enumerate(runs):
            if counts[run] >= least:
                start, stop = units[at][1], units[at + _RUN_UNITS - 1][2]
                reusable += stop - max(start, end)
                end = stop
    shared, whole = shared_beginnings(prompts)
    return Shareable(shared, max(reusable, 0), whole)


def first_break(prompts: Sequence[Prompt]) -> Break | None:
    """Where the most alike of two neighbours of a file part; None where all are equal or one."""
    pairs = [
        (one, two, common_prefix(one.text, two.text))
        for one, two in pairwise(prompts[:MOST_PROMPTS])
        if one.text != two.text
    ]
    if not pairs:
        return None
    middle = sorted(pairs, key=lambda pair: pair[2])[len(pairs) // 2]
    one, two, offset = middle
    return Break(one, two, offset, _kind(one.text, two.text, offset))


def _kind(first: str, second: str, offset: int) -> str:
    around = [text[max(0, offset - 16) : offset + 12] for text in (first, second)]
    return next(
        (name for name, pattern in _DYNAMIC if all(pattern.search(one) for one in around)), "text"
    )
