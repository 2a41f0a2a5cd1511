"""Acceptance of drafts by their place, as given or as measured.

    a_j = (rows whose first j drafts were accepted) / (rows whose first j - 1 were)

Read of shares with commas; of a server's /metrics, where the counters of vLLM's names give both
(rows that had fewer drafts than j count as refused there, so that a_j is rather low); and of the
card of a draft, whose table has how many of k drafts are accepted: T(k) - T(k - 1) of all rows
accept the first k. Formula S3 has one acceptance for all places; for K drafts it is the one with
which as many tokens are expected.
"""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from operator import mul
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from headrace.errors import ConfigError, shown
from headrace.plan.speed.speculation import expected_tokens_per_pass
from headrace.plan.validation import share

_MOST_BYTES = 64 << 20
_ROWS = "vllm:spec_decode_num_drafts_total"
_BY_PLACE = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
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


def read_acceptance(option: str, text: str) -> MeasuredAcceptance:
    """What an option states: a share, shares with commas, or a file.

    Raises ConfigError naming the option where it is neither, or the file has no acceptance.
    """
    try:
        shares = tuple(float(each) for each in text.split(","))
    except ValueError:
        return MeasuredAcceptance(_of_file(option, text), text)
    for each in shares:
        share(option, each, "it is the share of drafted tokens that are accepted")
    return MeasuredAcceptance(shares, option)


def _of_file(option: str, name: str) -> tuple[float, ...]:
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(
            f"{option} is {shown(name)}; it must be shares with commas (0.8,0.7,0.6), or a file: a "
            "server's /metrics, or the card of a draft"
        )
    with path.open("rb") as file:
        text = file.read(_MOST_BYTES).decode("utf-8", errors="replace")
    reached = _reached_of_metrics(text) if _ROWS in text else _reached_of_card(text)
    if not reached:
        raise ConfigError(
            f"{option}: {shown(name)} has no acceptance: neither {_ROWS} above 0 with {_BY_PLACE}, "
            f"nor a table of tokens {_CARD_HEADING}"
        )
    return tuple(
        min(1.0, reach / before) for before, reach in pairwise((1.0, *reached)) if before > 0
    )


def _reached_of_metrics(text: str) -> list[float]:
    """Of all rows with drafts, the shares whose first j were accepted; of several engines, of all
    together."""
    rows, accepted = 0.0, dict[int, float]()
    try:
        samples = [
            sample
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name in (_ROWS, _BY_PLACE)
        ]
        for sample in samples:
            if sample.name == _ROWS:
                rows += sample.value
            else:
                place = int(sample.labels["position"])
                accepted[place] = accepted.get(place, 0.0) + sample.value
    except (ValueError, KeyError):
        return []
    places = [place for place in range(len(accepted)) if place in accepted]
    return [accepted[place] / rows for place in places] if rows > 0 else []


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
