"""What a run comes to: every figure that its records give, under one tool's definitions.

Latencies are given from the intended and from the actual send time, always both: a closed loop
hides queueing in the first, a full client in the second. Failed requests are in no latency, in
every count of errors and in the denominator of goodput. Requests sent to warm up are left out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from headrace.bench.collected import collected
from headrace.bench.concurrency import (
    Flight,
    flights,
    mean_in_flight,
    peak_in_flight,
    steady_window_of,
    whole_window,
)
from headrace.bench.cost import Cost, Prices, Spent, cost
from headrace.bench.definitions import DEFINITIONS, Clock, Definition, Measures, Row, table
from headrace.bench.goodput import Goodput, judge
from headrace.bench.pooled import pooled_distribution
from headrace.bench.record import RequestRecord, RunRecord
from headrace.bench.saturation import Saturation, saturation
from headrace.bench.server_figures import ServerFigures, server_figures
from headrace.bench.slo import Slo
from headrace.bench.statistics import Distribution, distribution
from headrace.bench.throughput import answer_moments, per_s, token_moments
from headrace.bench.token_count import TokenCount, count_tokens
from headrace.bench.verdict import ClientVerdict, client_verdict

_MS_PER_NS = 1e-6

_HEADRACE = DEFINITIONS["headrace"]
_SEED = 0
_NO_PRICES = Prices()


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A metric's distribution and the unit it is in."""

    unit: Literal["ms", "tokens/s", "tokens"]
    distribution: Distribution


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the measured requests by how they ended."""

    measured: int
    completed: int
    failed: int
    """Failed requests, without those that the end of the run cut off (`cancelled`)."""
    cancelled: int
    warmup: int
    """Requests that were not measured."""
    errors: dict[str, int]
    """Failed requests by class."""
    statuses: dict[str, int]
    """Failed requests with an HTTP status, by status."""
    finish_reasons: dict[str, int]


class Steady(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the window between filling and draining (`concurrency.steady_window`).

    tokens_per_s: of all streams, each token when it came, however its stream ended;
    requests_per_s: completed in it.
    """

    start_s: float
    end_s: float
    tokens_per_s: float
    requests_per_s: float
    in_flight: float


class Concurrency(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in flight: mean by sweep line, by Little's law (completed ones only), and most."""

    mean: float | None
    little: float | None
    peak: int


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """The longest gap between two chunks of one stream; `at_s` is when it began."""

    request: int
    gap_ms: float
    at_s: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Rates are per second of `duration_s`, first start to last end, what is drained included."""

    definition: str
    source: str
    table: tuple[Row, ...]
    requests: Requests
    duration_s: float | None
    offered_per_s: float | None
    """Rate of the intended send times."""
    rps: float | None
    tps_system: float | None
    """Output tokens of completed requests."""
    tps_total: float | None
    """With those of their prompts."""
    from_intended: dict[str, Spread]
    from_sent: dict[str, Spread]
    """With `from_intended`: metrics under the names of the definitions' tool."""
    queue: Spread | None
    """Time in the queue, as the server reported it."""
    prompt_tokens: Spread | None
    output_tokens: Spread | None
    longest_stall: Stall | None
    steady: Steady | None
    concurrency: Concurrency
    tokens: TokenCount
    goodput: Goodput | None
    client: ClientVerdict
    saturation: Saturation | None = None
    """Whether the server kept up with what was due; None of a closed loop, and where all came at
    once."""
    server: ServerFigures | None = None
    """Figures of its `/metrics`; None where it has none."""
    cost: Cost = Cost()


def summarize(
    run: RunRecord,
    *,
    definition: Definition = _HEADRACE,
    slo: Slo | None = None,
    prices: Prices = _NO_PRICES,
    source: random.Random | None = None,
) -> Summary:
    """Of the measured requests of a run.

    The SLO is judged by our own definitions, from the intended send time, whatever the rest is
    reported under. source: of chance, for the intervals of pooled gaps; None: one that is the same
    each time, so that a run that is kept has the same figures whenever it is shown.
    """
    definition = definition.of_api(run.api)
    source = random.Random(_SEED) if source is None else source
    records = [record for record in run.requests if record.measured]
    intended = _measures(records, definition, "intended")
    sent = _measures(records, definition, "sent")
    done = [record for record in records if record.failure is None and record.sent_ns is not None]
    flown = flights(records)
    whole = whole_window(flown)
    seconds = whole.seconds if whole is not None else 0.0
    output = sum(one.output_tokens or 0 for one in sent)
    prompt = sum(one.prompt_tokens or 0 for one in sent)
    ours = sent if definition is _HEADRACE else _measures(records, _HEADRACE, "sent")
    ttft = distribution([one.times_ns["ttft"] for one in ours if "ttft" in one.times_ns])
    mean_in = mean_in_flight(flown, whole) if whole is not None else None
    from_sent = _spreads(sent, definition, source)
    lived_s = sum(one.times_ns["e2e"] for one in ours) / 1e9
    return Summary(
        definition=definition.name,
        source=definition.source,
        table=table([definition]),
        requests=_requests(run.requests, len(sent)),
        duration_s=seconds or None,
        offered_per_s=_offered(records),
        rps=len(sent) / seconds if seconds else None,
        tps_system=output / seconds if seconds else None,
        tps_total=(output + prompt) / seconds if seconds else None,
        from_intended=_spreads(intended, definition, source, from_sent),
        from_sent=from_sent,
        queue=_spread([record.queue_ns for record in done], "ms", _MS_PER_NS),
        prompt_tokens=_spread([one.prompt_tokens for one in sent], "tokens"),
        output_tokens=_spread([one.output_tokens for one in sent], "tokens"),
        longest_stall=_longest_stall(done),
        steady=_steady(run, records, flown),
        concurrency=Concurrency(
            mean=mean_in,
            little=lived_s / seconds if seconds else None,
            peak=peak_in_flight(flown),
        ),
        tokens=count_tokens(done),
        goodput=None if slo is None else judge(slo, records, seconds),
        client=client_verdict(
            run.health,
            None if ttft is None else ttft.p50,
            has_rate=run.about.get("open_loop") is not False,
        ),
        saturation=None if run.about.get("open_loop") is False else _saturation(records),
        server=None if whole is None else server_figures(run.server_metrics, whole),
        cost=cost(prices, _spent(done, seconds)),
    )


def _saturation(records: Sequence[RequestRecord]) -> Saturation | None:
    came = sorted(record.intended_ns for record in records)
    if not came:
        return None
    over = [record for record in records if record.end_ns is not None]
    return saturation(
        came,
        sorted(one.end_ns or 0 for one in over if one.failure is None),
        sorted(one.intended_ns for one in over if (one.end_ns or 0) <= came[-1]),
        came[-1],
    )


def _spent(done: Sequence[RequestRecord], seconds: float) -> Spent:
    """Counted by the server, who bills, and by the client where the server does not tell."""
    return Spent(
        requests=len(done),
        prompt_tokens=sum(one.prompt_tokens or 0 for one in done),
        longest_prompt_tokens=max((one.prompt_tokens or 0 for one in done), default=0),
        output_tokens=sum(one.output_tokens or 0 for one in done),
        cached_tokens=sum(one.usage.cached_tokens or 0 for one in done),
        # Who counts the prompt and no output has none: an embedding.
        uncounted=sum(
            one.prompt_tokens is None
            or (one.output_tokens is None and one.usage.prompt_tokens is None)
            for one in done
        ),
        seconds=seconds,
    )


def _measures(
    records: Sequence[RequestRecord], definition: Definition, clock: Clock
) -> list[Measures]:
    return [got for one in records if (got := definition.measure(one, clock)) is not None]


def _spreads(
    measured: Sequence[Measures],
    definition: Definition,
    source: random.Random,
    known: dict[str, Spread] | None = None,
) -> dict[str, Spread]:
    """Every metric of the definition of which there is a value. known: by the other clock."""
    spreads: dict[str, Spread] = {}
    for metric in definition.metrics:
        gaps = metric.each == "gap"
        if gaps and known is not None:
            # Between two chunks there is no start, and drawing requests anew takes its time.
            spreads |= {metric.name: known[metric.name]} if metric.name in known else {}
            continue
        of = collected(measured, definition, metric)
        degrees = definition.degrees
        if gaps:
            found = pooled_distribution(of, source=source, degrees=degrees)
        else:
            found = distribution(
                of.ordered, of.weights, interpolation=of.interpolation, degrees=degrees
            )
        if found is not None:
            unit: Literal["ms", "tokens/s"] = "tokens/s" if metric.each == "rate" else "ms"
            spreads[metric.name] = Spread(unit=unit, distribution=found)
    return spreads


def _spread(
    values: Sequence[int | None], unit: Literal["ms", "tokens"], scale: float = 1.0
) -> Spread | None:
    found = distribution([value for value in values if value is not None], scale=scale)
    return None if found is None else Spread(unit=unit, distribution=found)


def _requests(every: Sequence[RequestRecord], completed: int) -> Requests:
    records = [record for record in every if record.measured]
    kinds = Counter(record.failure.kind for record in records if record.failure is not None)
    cancelled = kinds.pop("cancelled", 0)
    return Requests(
        measured=len(records),
        completed=completed,
        failed=len(records) - completed - cancelled,
        cancelled=cancelled,
        warmup=len(every) - len(records),
        errors=dict(kinds.most_common()),
        statuses=dict(
            Counter(
                str(record.status)
                for record in records
                if record.failure is not None and record.status is not None
            ).most_common()
        ),
        finish_reasons=dict(
            Counter(
                record.finish_reason for record in records if record.finish_reason is not None
            ).most_common()
        ),
    )


def _offered(records: Sequence[RequestRecord]) -> float | None:
    """Gaps between the intended send times over the time they take; None without any."""
    wanted = [record.intended_ns for record in records]
    if len(wanted) < 2 or max(wanted) == min(wanted):
        return None
    return (len(wanted) - 1) * 1e9 / (max(wanted) - min(wanted))


def _longest_stall(done: Sequence[RequestRecord]) -> Stall | None:
    gaps = [
        (after.at_ns - before.at_ns, before.at_ns, record.index)
        for record in done
        if record.streamed
        for before, after in pairwise(record.content)
    ]
    if not gaps:
        return None
    gap_ns, at_ns, index = max(gaps)
    return Stall(request=index, gap_ms=gap_ns * _MS_PER_NS, at_s=at_ns / 1e9)


def _steady(
    run: RunRecord, records: Sequence[RequestRecord], flown: Sequence[Flight]
) -> Steady | None:
    window = steady_window_of(run)
    if window is None:
        return None
    return Steady(
        start_s=window.start_ns / 1e9,
        end_s=window.end_ns / 1e9,
        tokens_per_s=float(per_s(token_moments(records), window).mean()),
        requests_per_s=float(per_s(answer_moments(records), window).mean()),
        in_flight=mean_in_flight(flown, window) or 0.0,
    )
