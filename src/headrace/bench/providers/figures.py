"""Every provider's figures over all its visits, and over time: what each report shows.

Latencies and rates of one stream are of the requests that were sent alone, every one a sample;
rates of a batch have one sample a visit. Intervals of medians are of the visits' own medians,
because requests of one visit depend on each other. Failed requests are in no latency and in every
count of errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.bench.providers.costs import ProviderCost, cost
from headrace.bench.providers.identity import differences, joined_briefly
from headrace.bench.providers.read_store import Contents
from headrace.bench.providers.rows import RequestRow, SeriesRow, VisitRow
from headrace.bench.providers.samples import (
    batch_pass,
    efficiency,
    latencies_ms,
    median,
    stream_rates,
)
from headrace.bench.providers.sequential import Sequential, sequential
from headrace.bench.statistics import Interval, percentile, percentile_interval


class Quartiles(msgspec.Struct, frozen=True, kw_only=True):
    """Median, quartiles and range of a figure over rounds."""

    p50: float
    q1: float
    q3: float
    least: float
    most: float
    count: int
    p50_interval: Interval
    """Where the true median lies with 95 % confidence; of visits."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One visit: medians of its requests alone, and its batch."""

    round: int
    at: float
    place: int
    outcome: str
    message: str
    ttft_ms: float | None
    tps: float | None
    tps_batch: float | None
    e2e_ms: float | None
    requests: int
    failed: int
    prompt_tokens: int
    output_tokens: int


class Said(msgspec.Struct, frozen=True):
    """A message, and the number of failed requests that had it."""

    error: str
    message: str
    requests: int


class ProviderFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One series."""

    label: str
    """Its name, with a number where there are several of that name."""
    name: str
    model: str
    type: str
    base_url: str
    region: str
    notes: str
    batch_size: int
    visits: int
    """Without those that were paused or interrupted."""
    answered: int
    """With one success at least."""
    requests: int
    failed: int
    errors: dict[str, int]
    statuses: dict[str, int]
    messages: tuple[Said, ...]
    paused: str
    ttft_ms: Quartiles | None
    tps: Quartiles | None
    tps_batch: Quartiles | None
    batching_efficiency: Quartiles | None
    e2e_ms: Quartiles | None
    batch_ttft_ms: Quartiles | None
    batch_e2e_ms: Quartiles | None
    characters_per_s: Quartiles | None
    output_tokens: Quartiles | None
    """Output tokens of each request sent alone."""
    cached_share: float | None
    client_counted: int
    """Requests whose output the server did not count."""
    short: int
    """Requests that ended before the requested length."""
    client_bound: int
    cost: ProviderCost
    sequential: Sequential | None
    over_time: tuple[Point, ...]


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """The series of all providers, side by side."""

    providers: tuple[ProviderFigures, ...]
    rounds: int
    missed: int
    """Slots of the schedule without a round."""
    began_at: float | None
    ended_at: float | None
    """With `began_at`: of the visits, seconds since the epoch."""
    workloads: tuple[dict[str, Any], ...]
    changes: tuple[str, ...]
    """What tells series of one name apart."""
    about: dict[str, Any]


# The most frequent ones of each provider; the database has all.
_MESSAGES = 4

_COUNTED = ("complete", "failing", "unreachable", "refused")


def matrix(contents: Contents) -> Matrix:
    """Of what a database holds."""
    by_series: dict[int, list[VisitRow]] = {one.id: [] for one in contents.series}
    for visit in contents.visits:
        by_series[visit.series].append(visit)
    labels, changes = _labels(contents.series)
    workloads = {one.workload_id: one.workload for one in contents.series}
    visits = contents.visits
    return Matrix(
        providers=tuple(
            _figures(one, labels[one.id], by_series[one.id]) for one in contents.series
        ),
        rounds=contents.rounds,
        missed=contents.missed,
        began_at=min((one.began_at for one in visits), default=None),
        ended_at=max((one.ended_at for one in visits), default=None),
        workloads=tuple(workloads.values()),
        changes=changes,
        about=dict(contents.about),
    )


def _labels(series: Sequence[SeriesRow]) -> tuple[dict[int, str], tuple[str, ...]]:
    labels, changes = {}, []
    seen: dict[str, SeriesRow] = {}
    counts: Counter[str] = Counter()
    for one in series:
        counts[one.name] += 1
        number = counts[one.name]
        labels[one.id] = one.name if number == 1 else f"{one.name} #{number}"
        before = seen.get(one.name)
        if before is not None:
            found = differences(before.workload, one.workload)
            found += differences(before.provider, one.provider)
            changes.append(f"{labels[one.id]}: {joined_briefly(found)}")
        seen[one.name] = one
    return labels, tuple(changes)


def _figures(of: SeriesRow, label: str, visits: Sequence[VisitRow]) -> ProviderFigures:
    counted = [one for one in visits if one.outcome in _COUNTED]
    single = [one.of("single") for one in visits]
    batch = [one.of("batch") for one in visits]
    rows = [row for one in visits for row in (*one.of("single"), *one.of("batch"))]
    failed = [row for row in rows if row.error is not None]
    good = [row for row in rows if row.error is None]
    passes = [found for one in visits if (found := batch_pass(one)) is not None]
    tps_batch = _spread([[one.tokens_per_s] for one in passes])
    text = {name: str(of.provider.get(name, "")) for name in ("model", "type", "base_url")}
    told = {name: str(of.said.get(name) or "") for name in ("region", "notes")}
    batch_size = of.workload.get("batch_size")
    messages = Counter((row.error or "", row.message or "") for row in failed)
    tps = _spread([stream_rates(some) for some in single])
    return ProviderFigures(
        label=label,
        name=of.name,
        **text,
        **told,
        batch_size=batch_size if isinstance(batch_size, int) else 0,
        visits=len(counted),
        answered=sum(any(row.error is None for row in one.requests) for one in counted),
        requests=len(rows),
        failed=len(failed),
        errors=dict(Counter(row.error or "" for row in failed).most_common()),
        statuses=dict(Counter(str(row.status) for row in failed if row.status).most_common()),
        messages=tuple(Said(*said, times) for said, times in messages.most_common(_MESSAGES)),
        paused=visits[-1].message if visits and visits[-1].outcome in ("paused", "refused") else "",
        ttft_ms=_spread([latencies_ms(some, "ttft_ns") for some in single]),
        tps=tps,
        tps_batch=tps_batch,
        batching_efficiency=_spread(
            [[gained] for one in visits if (gained := efficiency(one)) is not None]
        ),
        e2e_ms=_spread([latencies_ms(some, "e2e_ns") for some in single]),
        batch_ttft_ms=_spread([latencies_ms(some, "ttft_ns") for some in batch]),
        batch_e2e_ms=_spread([latencies_ms(some, "e2e_ns") for some in batch]),
        characters_per_s=_spread([_character_rates(some) for some in single]),
        output_tokens=_spread(
            [[float(row.output_tokens) for row in some if row.output_tokens] for some in single]
        ),
        cached_share=_cached_share(good),
        client_counted=sum(row.told_tokens is None for row in good),
        short=sum(_is_short(row) for row in good),
        client_bound=sum(one.client_bound is True for one in visits),
        cost=cost(
            of.said,
            good,
            tps=None if tps is None else tps.p50,
            tps_batch=None if tps_batch is None else tps_batch.p50,
        ),
        sequential=sequential(visits),
        over_time=tuple(_point(one) for one in visits),
    )


def _spread(by_visit: Sequence[Sequence[float]]) -> Quartiles | None:
    """Of all samples; intervals of the visits' medians."""
    values = sorted(value for some in by_visit for value in some)
    if not values:
        return None
    medians = sorted(found for some in by_visit if (found := median(some)) is not None)
    return Quartiles(
        p50=percentile(values, 0.5),
        q1=percentile(values, 0.25),
        q3=percentile(values, 0.75),
        least=values[0],
        most=values[-1],
        count=len(values),
        p50_interval=percentile_interval(medians, 0.5),
    )


def _character_rates(rows: Sequence[RequestRow]) -> list[float]:
    """Of each stream after its first chunk: no tokenizer has a part in it."""
    return [
        (row.characters - row.first_characters) / ((row.e2e_ns - row.ttft_ns) / 1e9)
        for row in rows
        if row.e2e_ns is not None and row.ttft_ns is not None and row.e2e_ns > row.ttft_ns
    ]


def _is_short(row: RequestRow) -> bool:
    asked, got = row.output_tokens_asked, row.output_tokens
    return asked is not None and got is not None and got < asked


def _cached_share(rows: Sequence[RequestRow]) -> float | None:
    told = [row for row in rows if row.cached_tokens is not None and row.prompt_tokens]
    prompt = sum(row.prompt_tokens or 0 for row in told)
    return sum(row.cached_tokens or 0 for row in told) / prompt if prompt else None


def _point(visit: VisitRow) -> Point:
    single = visit.of("single")
    rows = (*single, *visit.of("batch"))
    together = batch_pass(visit)
    good = [row for row in rows if row.error is None]
    return Point(
        round=visit.round,
        at=visit.began_at,
        place=visit.place,
        outcome=visit.outcome,
        message=visit.message,
        ttft_ms=median(latencies_ms(single, "ttft_ns")),
        tps=median(stream_rates(single)),
        tps_batch=None if together is None else together.tokens_per_s,
        e2e_ms=median(latencies_ms(single, "e2e_ns")),
        requests=len(rows),
        failed=sum(row.error is not None for row in rows),
        prompt_tokens=sum(row.prompt_tokens or 0 for row in good),
        output_tokens=sum(row.output_tokens or 0 for row in good),
    )
