"""Acceptance of drafts by their place, as given or as measured.

    a_j = (rows whose first j drafts were accepted) / (rows whose first j - 1 were)

Read of shares with commas; of a server's /metrics or a run of `headrace bench load`
(draft_sources.py), where the counters of vLLM's names give both (rows that had fewer drafts than j
count as refused there, so that a_j is rather low); and of the card of a draft, whose table has how
many of k drafts are accepted: T(k) - T(k - 1) of all rows accept the first k. Formula S3 has one
acceptance for all places; for K drafts it is the one with which as many tokens are expected.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul
from pathlib import Path
from typing import NamedTuple

from headrace.errors import ConfigError, shown
from headrace.plan.run_file import is_run
from headrace.plan.speed.draft_sources import (
    Fetch,
    counts_of_file,
    is_address,
    read_draft_counts,
    read_text,
)
from headrace.plan.speed.speculation import expected_tokens_per_pass
from headrace.plan.validation import share

_CARD_HEADING = "drafted per pass"
_CARD_ROW = re.compile(r"^\|\s*(\d{1,3})\s*\|\s*(\d+(?:\.\d+)?)\s*\|")


class MeasuredAcceptance(NamedTuple):
    """Acceptance by place."""

    shares: tuple[float, ...]
    """Of the first draft, of the second where the first is accepted, and so on."""
    source: str
    """The option, or the file it was read of."""

    def same_for_all(self, draft_tokens: int) -> float:
        """The acceptance of formula S3 with which so many drafts yield as many tokens. Behind the
        last place that is known drafts are accepted as there."""
        count = max(1, draft_tokens)
        shares = (*self.shares, *[self.shares[-1]] * count)[:count]
        wanted = 1.0 + sum(accumulate(shares, mul))
        low, high = 0.0, 1.0
        for _ in range(60):  # halves the interval to below the spacing of floats
            middle = (low + high) / 2
            if expected_tokens_per_pass(middle, count) < wanted:
                low = middle
            else:
                high = middle
        return (low + high) / 2


def read_acceptance(option: str, text: str, fetch: Fetch | None = None) -> MeasuredAcceptance:
    """What an option states: a share, shares with commas, a server's address, or a file.

    Raises ConfigError naming the option where it is neither, or the file has no acceptance.
    """
    try:
        shares = tuple(float(each) for each in text.split(","))
    except ValueError:
        reached = _reached(option, text, fetch)
        if not reached:
            raise ConfigError(
                f"{option}: {shown(text)} has no acceptance: neither drafts above 0 that are "
                f"counted by position, nor a table of tokens {_CARD_HEADING}"
            ) from None
        return MeasuredAcceptance(
            tuple(
                min(1.0, reach / before)
                for before, reach in pairwise((1.0, *reached))
                if before > 0
            ),
            text,
        )
    for each in shares:
        share(option, each, "it is the share of drafted tokens that are accepted")
    return MeasuredAcceptance(shares, option)


def _reached(option: str, name: str, fetch: Fetch | None) -> Sequence[float]:
    """Of all rows with drafts, the shares whose first j were accepted."""
    path = Path(name).expanduser()
    if is_address(name) or is_run(path):
        return read_draft_counts(option, name, fetch).reached
    if not path.is_file():
        raise ConfigError(
            f"{option} is {shown(name)}; it must be shares with commas (0.8,0.7,0.6), a server's "
            "address, or a file: its /metrics, a result of `headrace bench load`, or the card of a "
            "draft"
        )
    text = read_text(option, path)
    counts = counts_of_file(text)
    return _reached_of_card(text) if counts is None else counts.reached


def _reached_of_card(text: str) -> list[float]:
    """The same of a card's table."""
    _, found, table = text.partition(_CARD_HEADING)
    if not found:
        return []
    taken = [0.0]
    for line in table.splitlines()[2:]:
        row = _CARD_ROW.match(line)
        if row is None or int(row[1]) != len(taken):
            break
        taken.append(float(row[2]))
    return [after - before for before, after in pairwise(taken) if after >= before]
