"""Usage reports: requests, tokens, cost and times by group.

Costs are exact sums of whole nano-dollars. Requests of unknown price are counted beside them, so
that a sum is never taken for everything that was spent. A percentile is by nearest rank: the
smallest value that so many per cent of the values do not exceed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.config.load import nearest
from headrace.errors import ConfigError, shown
from headrace.gateway.ledger.days import Days
from headrace.gateway.ledger.span import Span

# Times are those of UTC.
_GROUPINGS = {
    "minute": "strftime('%Y-%m-%dT%H:%MZ', at_ms / 1000, 'unixepoch')",
    "hour": "strftime('%Y-%m-%dT%H:00Z', at_ms / 1000, 'unixepoch')",
    "day": "strftime('%Y-%m-%d', at_ms / 1000, 'unixepoch')",
    "month": "strftime('%Y-%m', at_ms / 1000, 'unixepoch')",
    "organisation": "organisation",
    "team": "team",
    "user": "user",
    "key": "key",
    "model": "model",
    "provider": "provider",
    "target": "target",
    "dialect": "dialect",
    "operation": "operation",
    "outcome": "outcome",
    "variant": "variant",
    "prompt": "prompt",
    "purpose": "purpose",
}
GROUPINGS = tuple(_GROUPINGS)

_COUNTS = {
    "requests": "purpose = ''",
    "answered": "purpose = '' AND outcome = 'answered'",
    "cut": "purpose = '' AND outcome = 'cut'",
    "failed": "purpose = '' AND outcome = 'failed'",
    "refused": "purpose = '' AND outcome = 'refused'",
    "client_gone": "purpose = '' AND outcome = 'client_gone'",
    "besides": "purpose <> ''",
    "cache_hits": "cache <> ''",
    "prompt_cache_hits": "cache = '' AND cache_read_tokens > 0",
    "estimated": "cache = '' AND usage_from = 'estimated'",
    # A client that goes before an answer leaves nothing to count, and a provider may still bill it.
    "unknown_cost": "cost_nusd IS NULL AND (usage_from <> 'none' OR outcome = 'client_gone')",
}
_SUMS = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "input_audio_tokens",
    "input_audio_s",
    "output_tokens",
    "reasoning_tokens",
    "output_audio_tokens",
    "images",
    "cost_nusd",
)
_PERCENTILES = (
    # Without a stream the first token comes with the last.
    ("first_token_ms", "purpose = '' AND stream", (50, 95, 99)),
    ("total_ms", "purpose = ''", (50, 95, 99)),
    ("overhead_us", "purpose = ''", (50, 99)),
)
_LOW_BITS = 32
_LOW = 2**_LOW_BITS - 1
# An answer from our own cache has the usage of when it was first given, which is counted there.
_OF_PROVIDERS = "SUM(CASE WHEN cache = '' THEN LINE {} END)"


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one group of requests.

    Times are None where no request has one; first_token_ms (of streams) and total_ms are from
    arrival, overhead_us is the time not spent waiting for a provider.
    """

    by: dict[str, str]
    """The group's names, in the order requested; "" where a request has none."""
    requests: int
    """All of them; each is one of answered, cut, failed, refused and client_gone."""
    answered: int
    cut: int
    failed: int
    refused: int
    client_gone: int
    besides: int
    """Side calls: answers that were paid for but not returned; their tokens and cost are in the
    sums, their times in no percentile."""
    cache_hits: int
    """Answered from the gateway's own cache, whose tokens are in no sum."""
    prompt_cache_hits: int
    """The provider read from its own cache."""
    estimated: int
    """No provider reported their tokens."""
    unknown_cost: int
    """Took something of unknown price."""
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int
    input_audio_tokens: int
    input_audio_s: int
    output_tokens: int
    reasoning_tokens: int
    output_audio_tokens: int
    images: int
    cost_nusd: int
    """In 1e-9 dollars, of requests of known price alone."""
    first_token_ms_p50: float | None = None
    first_token_ms_p95: float | None = None
    first_token_ms_p99: float | None = None
    total_ms_p50: float | None = None
    total_ms_p95: float | None = None
    total_ms_p99: float | None = None
    overhead_us_p50: int | None = None
    overhead_us_p99: int | None = None

    @property
    def failures(self) -> int:
        """Requests whose targets failed: no answer, or only a part of one."""
        return self.failed + self.cut


def groupings_of(text: str) -> tuple[str, ...]:
    """Names separated by commas. Raises ConfigError for an unknown one."""
    names = tuple(one.strip() for one in text.split(",") if one.strip())
    check_groupings(names)
    return names


def check_groupings(names: Sequence[str]) -> None:
    """Raises ConfigError for a name that there is not, or that is there twice."""
    for at, name in enumerate(names):
        if name not in _GROUPINGS:
            meant = nearest(name, GROUPINGS) or f"; there are {', '.join(GROUPINGS)}"
            raise ConfigError(f"--by: cannot group by {shown(name)}{meant}")
        if name in names[:at]:
            raise ConfigError(f"--by: {name} is given twice; give it once")


def usage_by(
    connection: sqlite3.Connection, by: Sequence[str] = (), days: Days | Span | None = None
) -> list[Usage]:
    """One row for each group, in the order of their names; without `by` a single one, also without
    requests. Raises ConfigError as `check_groupings`, and sqlite3.Error."""
    check_groupings(by)
    where, values = _within(days or Days())
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in connection.execute(_totals(by, where), values):
        found[row[: len(by)]] = _counted(row[len(by) :])
    for measure, of, ranks in _PERCENTILES:
        percentiles = _percentiles(by, f"{of} AND {where}", measure, ranks)
        for row in connection.execute(percentiles, values):
            names = (f"{measure}_p{rank}" for rank in ranks)
            found[row[: len(by)]].update(zip(names, row[len(by) :], strict=True))
    return [Usage(by=dict(zip(by, group, strict=True)), **found[group]) for group in sorted(found)]


def as_dict(one: Usage) -> dict[str, Any]:
    """Flat, with what it is of first: for JSON and CSV."""
    told: Mapping[str, Any] = msgspec.structs.asdict(one)
    return {**one.by, **{name: value for name, value in told.items() if name != "by"}}


def _within(days: Days | Span) -> tuple[str, list[int]]:
    wanted = (("at_ms >= ?", days.since_ms), ("at_ms < ?", days.before_ms))
    given = [(text, value) for text, value in wanted if value is not None]
    where = " AND ".join(text for text, _ in given) or "1"
    return where, [value for _, value in given]


def _totals(by: Sequence[str], where: str) -> str:
    counts = [f"COUNT(CASE WHEN {condition} THEN 1 END)" for condition in _COUNTS.values()]
    # In halves, since SQLite fails where a sum leaves 64 bits and providers may tell anything.
    sums = [
        half.replace("LINE", name)
        for name in _SUMS
        for half in (_OF_PROVIDERS.format(f">> {_LOW_BITS}"), _OF_PROVIDERS.format(f"& {_LOW}"))
    ]
    groups = [_GROUPINGS[name] for name in by]
    group = f" GROUP BY {', '.join(groups)}" if groups else ""
    return f"SELECT {', '.join([*groups, *counts, *sums])} FROM requests WHERE {where}{group}"


def _counted(values: Sequence[Any]) -> dict[str, int]:
    found = dict(zip(_COUNTS, values, strict=False))
    for at, name in enumerate(_SUMS):
        high, low = values[len(_COUNTS) + 2 * at : len(_COUNTS) + 2 * at + 2]
        found[name] = ((high or 0) << _LOW_BITS) + (low or 0)
    return found


def _percentiles(by: Sequence[str], where: str, measure: str, ranks: Sequence[int]) -> str:
    """SQLite sorts on disk where memory is short, so that any number of rows will do."""
    groups = [_GROUPINGS[name] for name in by]
    within = f"PARTITION BY {', '.join(groups)} " if groups else ""
    named = "".join(f"{one} AS by_{at}, " for at, one in enumerate(groups))
    ranked = (
        f"(SELECT {named}{measure} AS value, ROW_NUMBER() OVER ({within}ORDER BY {measure}) AS "
        f"rank, COUNT(*) OVER ({within.rstrip()}) AS size FROM requests "
        f"WHERE {measure} IS NOT NULL AND {where})"
    )
    chosen = [f"MAX(CASE WHEN rank = (size * {rank} + 99) / 100 THEN value END)" for rank in ranks]
    names = [f"by_{at}" for at in range(len(groups))]
    group = f" GROUP BY {', '.join(names)}" if names else ""
    return f"SELECT {', '.join([*names, *chosen])} FROM {ranked}{group}"
