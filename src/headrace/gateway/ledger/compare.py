"""Comparison of the variants of an A/B test in the ledger.

A request counts for the variant it was assigned to, whichever answered it: one that another variant
answered is a failure. Requests that were refused or whose client disconnected count for no variant.
Failures are compared as two proportions.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence

import msgspec

from headrace.errors import ConfigError, shown
from headrace.gateway.ledger.days import Days

# Of the normal distribution, for 95 %.
_Z = 1.959963984540054
_MOST_ALIASES = 500


class SideFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one variant.

    Shares are between 0 and 1, with Wilson's interval of 95 %. Times are of whole answers of this
    variant; None where there are none.
    """

    variant: str
    requests: int
    """Those that were answered, cut or failed."""
    failures: int
    """Requests not answered as a whole, or not by this variant."""
    stood_in: int
    """Failures that another variant or model answered."""
    failure_share: float | None
    failure_share_low: float | None
    failure_share_high: float | None
    p_value: float | None
    """How likely failures would differ this much from `control` if both were alike; None for the
    control itself, and where it cannot be computed."""
    first_token_ms_p50: float | None
    first_token_ms_p95: float | None
    total_ms_p50: float | None
    total_ms_p95: float | None
    input_tokens: int
    """Tokens are those of its requests' own answers."""
    output_tokens: int
    cost_nusd: int
    """In 1e-9 dollars, side calls included."""
    unknown_cost: int


def compare_sides(
    connection: sqlite3.Connection,
    models: Sequence[str],
    days: Days | None = None,
    *,
    control: str | None = None,
) -> list[SideFigures]:
    """The control first, then the others by name. models: names and aliases of one model. control:
    None for the side with most requests. Raises ConfigError for one that no request was given to,
    and sqlite3.Error."""
    where, values = _within(models, days or Days())
    names = [
        name
        for (name,) in connection.execute(
            f"SELECT assigned FROM requests WHERE {where} AND purpose = '' "
            "GROUP BY assigned ORDER BY COUNT(*) DESC, assigned",
            values,
        )
    ]
    if not names:
        return []
    if control is None:
        control = names[0]
    elif control not in names:
        raise ConfigError(
            f"--control: no request was assigned to variant {shown(control)}; there are "
            f"{', '.join(sorted(names))}"
        )
    sides = [control, *sorted(name for name in names if name != control)]
    found: list[SideFigures] = []
    for name in sides:
        found.append(_side(connection, name, where, values, found[0] if found else None))
    return found


def wilson(failures: int, requests: int) -> tuple[float, float]:
    """The interval in which the share lies with 95 % (Wilson, 1927): also of few, also near 0."""
    share = failures / requests
    square = _Z * _Z
    middle = (share + square / (2 * requests)) / (1 + square / requests)
    spread = math.sqrt(share * (1 - share) / requests + square / (4 * requests * requests))
    half = _Z * spread / (1 + square / requests)
    return max(0.0, middle - half), min(1.0, middle + half)


def two_proportions(failures: int, requests: int, others: int, of: int) -> float | None:
    """Two-sided p of the z-test with the pooled share; None where neither or all failed."""
    if not requests or not of:
        return None
    pooled = (failures + others) / (requests + of)
    variance = pooled * (1 - pooled) * (1 / requests + 1 / of)
    if variance <= 0:
        return None
    z = abs(failures / requests - others / of) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def _side(
    connection: sqlite3.Connection,
    name: str,
    where: str,
    values: list[str | int],
    control: SideFigures | None,
) -> SideFigures:
    of = f"FROM requests WHERE {where} AND assigned = ?"
    given = [*values, name]
    own = "purpose = '' AND outcome IN ('answered', 'cut', 'failed')"
    requests, failures, stood_in = connection.execute(
        "SELECT COUNT(*), "
        "COUNT(CASE WHEN outcome <> 'answered' OR variant <> assigned THEN 1 END), "
        f"COUNT(CASE WHEN outcome = 'answered' AND variant <> assigned THEN 1 END) {of} AND {own}",
        given,
    ).fetchone()
    reads, writes, unknown = connection.execute(
        "SELECT SUM(CASE WHEN purpose = '' THEN COALESCE(input_tokens, 0) "
        "+ COALESCE(cache_read_tokens, 0) + COALESCE(cache_write_tokens, 0) "
        "+ COALESCE(cache_write_1h_tokens, 0) + COALESCE(input_audio_tokens, 0) END), "
        "SUM(CASE WHEN purpose = '' THEN COALESCE(output_tokens, 0) "
        "+ COALESCE(reasoning_tokens, 0) + COALESCE(output_audio_tokens, 0) END), "
        f"COUNT(CASE WHEN cost_nusd IS NULL AND usage_from <> 'none' THEN 1 END) {of} "
        "AND cache = ''",
        given,
    ).fetchone()
    cost = sum(
        one for (one,) in connection.execute(f"SELECT cost_nusd {of} AND cost_nusd > 0", given)
    )
    times = f"{of} AND purpose = '' AND outcome = 'answered' AND variant = assigned AND cache = ''"
    first = _times(connection, "first_token_ms", f"{times} AND stream", given)
    total = _times(connection, "total_ms", times, given)
    low, high = wilson(failures, requests) if requests else (None, None)
    p_value = None
    if control is not None:
        p_value = two_proportions(failures, requests, control.failures, control.requests)
    return SideFigures(
        variant=name,
        requests=requests,
        failures=failures,
        stood_in=stood_in,
        failure_share=failures / requests if requests else None,
        failure_share_low=low,
        failure_share_high=high,
        p_value=p_value,
        first_token_ms_p50=_rank(first, 50),
        first_token_ms_p95=_rank(first, 95),
        total_ms_p50=_rank(total, 50),
        total_ms_p95=_rank(total, 95),
        input_tokens=reads or 0,
        output_tokens=writes or 0,
        cost_nusd=cost,
        unknown_cost=unknown,
    )


def _times(
    connection: sqlite3.Connection, measure: str, of: str, given: list[str | int]
) -> list[float]:
    rows = connection.execute(
        f"SELECT {measure} {of} AND {measure} IS NOT NULL ORDER BY {measure}", given
    )
    return [one for (one,) in rows]


def _rank(ordered: Sequence[float], percent: int) -> float | None:
    return ordered[math.ceil(percent / 100 * len(ordered)) - 1] if ordered else None


def _within(models: Sequence[str], days: Days) -> tuple[str, list[str | int]]:
    """A condition on these models, including names with a suffix: `chat:floor` is chat."""
    names = list(models)[:_MOST_ALIASES]
    each = " OR ".join("model = ? OR substr(model, 1, ?) = ?" for _ in names)
    values: list[str | int] = []
    for name in names:
        values += [name, len(name) + 1, f"{name}:"]
    text = f"assigned <> '' AND ({each})"
    for condition, value in (("at_ms >= ?", days.since_ms), ("at_ms < ?", days.before_ms)):
        if value is not None:
            text += f" AND {condition}"
            values.append(value)
    return text, values
