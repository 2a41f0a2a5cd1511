"""What a server's /metrics tell of the measured span of a run, in one figure each.

From the last reading before its first request to the first after its last answer, so that nothing
of it is missed; what the server did for others, or for the warm-up between these readings, is in
it, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from headrace.bench.concurrency import Window
from headrace.telemetry.draft_counts import DraftCounts, counts_of
from headrace.telemetry.readings import Reading, grown, read_texts, values_of, work_of


class ServerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures that the server reported during a run; None: not reported, or reported only once."""

    from_s: float
    to_s: float
    """With `from_s`: first and last reading that is looked at, of `readings`."""
    readings: int
    mbu: float | None = None
    mfu: float | None = None
    """With `mbu`: shares of the bandwidth and of the multiplications that the machine was measured
    to have, over the time of steps."""
    kv_use_most: float | None = None
    """Share of the blocks."""
    prefix_hit_share: float | None = None
    """Share of the looked-up prompt tokens that were found."""
    preemptions: float | None = None
    """Requests that were set back."""
    drafts: DraftCounts | None = None
    """What was drafted and accepted; None where no row had drafts."""


def server_figures(texts: Sequence[tuple[int, str]], measured: Window) -> ServerFigures | None:
    """texts: (ns of the run, text), in any order. None where none of them tells any of it."""
    readings = _around(read_texts(texts)[0], measured)
    if not readings:
        return None
    total: Counter[str] = Counter()
    for old, new in pairwise(readings):
        total.update(grown(old.values, new.values))
    last = readings[-1].values
    told = ServerFigures(
        from_s=readings[0].at_s,
        to_s=readings[-1].at_s,
        readings=len(readings),
        mbu=_mbu(total, last),
        mfu=_mfu(total, last),
        kv_use_most=max(values_of(readings, "kv"), default=None),
        prefix_hit_share=_share(total, "hits", "queries"),
        preemptions=total.get("preemptions"),
        drafts=counts_of(total),
    )
    figures = (
        told.mbu, told.mfu, told.kv_use_most, told.prefix_hit_share, told.preemptions, told.drafts,
    )  # fmt: skip
    return None if all(one is None for one in figures) else told


def _around(readings: Sequence[Reading], measured: Window) -> list[Reading]:
    start_s, end_s = measured.start_ns / 1e9, measured.end_ns / 1e9
    first = max((one.at_s for one in readings if one.at_s <= start_s), default=start_s)
    last = min((one.at_s for one in readings if one.at_s >= end_s), default=end_s)
    return [one for one in readings if first <= one.at_s <= last]


def _mbu(total: Counter[str], last: Mapping[str, float]) -> float | None:
    seconds, limit = total["stepped"], last.get("read_limit")
    if "bytes" not in total or not limit or seconds <= 0:
        return None
    return total["bytes"] / seconds / limit


def _mfu(total: Counter[str], last: Mapping[str, float]) -> float | None:
    seconds, limit = total["stepped"], last.get("compute_limit")
    if "operations" not in total or not limit or seconds <= 0:
        return None
    return work_of(total).computing_s(limit, last.get("attention_limit")) / seconds


def _share(total: Counter[str], part: str, whole: str) -> float | None:
    return total[part] / total[whole] if part in total and total[whole] > 0 else None
