"""Which plots a run has, from its samples: each function gives those of one section of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from headrace.bench.definitions import Clock
from headrace.bench.load_point import LoadPoint
from headrace.bench.record import RequestRecord
from headrace.bench.report.plots.cdf import Curve, cdf
from headrace.bench.report.plots.good_share import good_share
from headrace.bench.report.plots.heat import heat_map
from headrace.bench.report.plots.load_curve import load_curve
from headrace.bench.report.plots.over_time import Line, over_time, per_second, time_axis
from headrace.bench.report.plots.roofline_path import roofline_path
from headrace.bench.report.plots.scatter import Marks, scatter
from headrace.bench.report.plots.timeline import close_up, timeline
from headrace.bench.report.samples import RunSamples
from headrace.bench.server_history import History, ServerHistory
from headrace.bench.slo import Slo
from headrace.bench.verdict import LEAST_ALLOWED_LAG_NS
from headrace.page.figures import compact, duration, share
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.scale import linear
from headrace.page.plots.thin import Spot

INTENDED = Key("from intended send time", "c2", "6 3", "intended")
SENT = Key("from actual send time", "c1", None, "sent")

_TITLES = {
    "ttft": "Time to first token",
    "tpot": "Time per output token",
    "itl_chunk": "Gaps between chunks (ITL)",
    "e2e": "End-to-end latency",
}

_PACES = frozenset({"tpot", "itl_chunk"})
"""Without a start: both clocks give the same."""


def limit_ms(slo: Slo | None, canonical: str) -> float | None:
    """The tightest limit on a metric of ours."""
    if slo is None:
        return None
    return min((one.limit for one in slo.conditions if one.metric == canonical), default=None)


def _some(plots: Sequence[Plot | None]) -> list[Plot]:
    return [one for one in plots if one is not None]


def latency_plots(samples: RunSamples, slo: Slo | None) -> list[Plot]:
    """Cumulative distributions, from both clocks where they differ."""
    two = samples.has_two_clocks()
    plots = []
    for canonical, title in _TITLES.items():
        clocks: list[tuple[Key, Clock]] = [(SENT, "sent")]
        if two and canonical not in _PACES:
            clocks.append((INTENDED, "intended"))
        curves = [
            # What has no clock is not to be hidden by the buttons.
            Curve(
                key if len(clocks) > 1 else Key(key.name, key.colour),
                samples.values_ms(canonical, clock),
            )
            for key, clock in clocks
        ]
        plots.append(cdf(title, curves, limit_ms=limit_ms(slo, canonical)))
    return _some(plots)


def load_plots(
    points: Sequence[LoadPoint], slo: Slo | None, wanted: float | None = None
) -> list[Plot]:
    """Throughput–latency curves of a sweep. wanted: share of requests that are to be good."""
    return _some(
        [
            load_curve("TTFT", points, lambda of: of.ttft, limit_ms=limit_ms(slo, "ttft")),
            load_curve(
                "TTFT",
                points,
                lambda of: of.ttft,
                limit_ms=limit_ms(slo, "ttft"),
                over="in flight",
            ),
            load_curve("TPOT", points, lambda of: of.tpot, limit_ms=limit_ms(slo, "tpot")),
            load_curve(
                "End-to-end latency", points, lambda of: of.e2e, limit_ms=limit_ms(slo, "e2e")
            ),
            load_curve(
                "End-to-end latency",
                points,
                lambda of: of.e2e,
                limit_ms=limit_ms(slo, "e2e"),
                over="tokens",
            ),
            good_share(points, wanted),
        ]
    )


def time_plots(samples: RunSamples, slo: Slo | None) -> list[Plot]:
    """TTFT over time and load, rates, the timeline of chunks, the heat map of gaps."""
    span = (samples.began_s, samples.ended_s)
    limit = limit_ms(slo, "ttft")
    gaps = samples.gaps
    return _some(
        [
            _ttft_over_time(samples, span, limit),
            _ttft_over_load(samples, limit),
            *_rates(samples, span),
            heat_map(*gaps, span, limit_ms=limit_ms(slo, "itl_chunk")),
            timeline(samples.records, span),
            close_up(samples.records),
        ]
    )


_ON_TIME = Key("sent on time", "c1", mark="dot")
_LATE_SENT = Key("sent late, from actual send time", "c3", class_="sent", mark="dot")
_LATE_INTENDED = Key("sent late, from intended send time", "c2", class_="intended", mark="dot")


def _ttft_marks(samples: RunSamples, across: Callable[[RequestRecord], float]) -> list[Marks]:
    """One mark of a request sent on time, two of one sent late: with its wait and without it."""
    spots: dict[Key, list[Spot]] = {_ON_TIME: [], _LATE_SENT: [], _LATE_INTENDED: []}
    sent = {one.record.index: value for one, value in samples.by_request("ttft", "sent")}
    for one, value in samples.by_request("ttft", "intended"):
        record = one.record
        late = (record.sent_ns or 0) - record.intended_ns > LEAST_ALLOWED_LAG_NS
        key = _LATE_SENT if late else _ON_TIME
        spots[key].append(Spot(across(record), sent[record.index], record.index))
        if late:
            spots[_LATE_INTENDED].append(Spot(across(record), value, record.index))
    return [Marks(key, found) for key, found in spots.items()]


_FEWEST_ON_AXIS = 10.0

_LATE_NOTE = f"A point is a request; late means more than {LEAST_ALLOWED_LAG_NS / 1e6:.0f} ms."


def _ttft_over_time(
    samples: RunSamples, span: tuple[float, float], limit: float | None
) -> Plot | None:
    return scatter(
        "Time to first token over time",
        _ttft_marks(samples, lambda record: record.intended_ns / 1e9 - span[0]),
        lambda start, end: time_axis(span, start, end),
        x_title="intended send time, seconds into the run",
        x_label=compact,
        y_title="TTFT",
        failures=[one.intended_ns / 1e9 - span[0] for one in samples.failures],
        limit_ms=limit,
        caption=_LATE_NOTE,
    )


def _ttft_over_load(samples: RunSamples, limit: float | None) -> Plot | None:
    sent = [one.record for one in samples.samples]
    beside = samples.in_flight_at([record.sent_ns or 0 for record in sent])
    running = {record.index: float(many) for record, many in zip(sent, beside, strict=True)}
    most = max(running.values(), default=0.0)
    return scatter(
        "Time to first token over load",
        _ttft_marks(samples, lambda record: running[record.index]),
        # Ticks at whole requests.
        lambda start, end: linear([max(most, _FEWEST_ON_AXIS)], start, end),
        x_title="requests in flight when it was sent",
        x_label=compact,
        y_title="TTFT",
        limit_ms=limit,
        caption=_LATE_NOTE,
    )


def _rates(samples: RunSamples, span: tuple[float, float]) -> list[Plot | None]:
    wanted = np.asarray([one.intended_ns / 1e9 for one in samples.records])
    done = [one.record.end_ns for one in samples.samples if one.record.end_ns is not None]
    failed = [one.end_ns for one in samples.failures if one.end_ns is not None]
    lines = [
        Line(Key("offered", "c2", "6 3"), per_second(wanted, np.ones(wanted.size), span)),
        Line(Key("completed", "c1"), _ended(done, span)),
    ]
    if failed:
        lines.append(Line(Key("failed", "bad", "2 3"), _ended(failed, span)))
    running = [_in_flight(samples, span)]
    tokens = [Line(Key("output", "c1"), per_second(*samples.token_moments, span))]
    return [
        over_time("Requests", lines, span_s=span, y_title="requests/s"),
        over_time("Output tokens", tokens, span_s=span, y_title="tokens/s"),
        over_time("In flight", running, span_s=span, y_title="requests", least=5),
        over_time(
            "Sent later than intended",
            _lateness(samples, span),
            span_s=span,
            y_title="late",
            y_label=duration,
            least=1,
            caption="Caused by the client: its limit of concurrency, or a slow machine.",
        ),
    ]


def _ended(at_ns: Sequence[int], span: tuple[float, float]) -> list[tuple[float, float]]:
    at = np.asarray(at_ns, dtype=float) / 1e9
    return per_second(at, np.ones(at.size), span)


def _lateness(samples: RunSamples, span: tuple[float, float]) -> list[Line]:
    """In milliseconds, by the second at which requests were wanted; the same slices as rates."""
    piles: dict[int, list[float]] = {}
    width = max(1.0, (span[1] - span[0]) / 100)
    for one in samples.samples:
        record = one.record
        late = max(0, (record.sent_ns or 0) - record.intended_ns) / 1e6
        piles.setdefault(int((record.intended_ns / 1e9 - span[0]) / width), []).append(late)
    middles = [((slot + 0.5) * width, pile) for slot, pile in sorted(piles.items())]
    return [
        Line(Key("most", "c2", "6 3"), [(at, max(pile)) for at, pile in middles]),
        Line(Key("median", "c1"), [(at, float(np.median(pile))) for at, pile in middles]),
    ]


def _in_flight(samples: RunSamples, span: tuple[float, float]) -> Line:
    moments = np.linspace(span[0], span[1], 300)
    running = samples.in_flight_at([int(at * 1e9) for at in moments])
    places = [(float(at) - span[0], float(many)) for at, many in zip(moments, running, strict=True)]
    return Line(Key("in flight", "c1"), places)


def server_plots(server: ServerHistory, samples: RunSamples) -> list[Plot]:
    """What the server told of itself; none where it told nothing."""
    span = (samples.began_s, samples.ended_s)

    def line(name: str, colour: str, places: History, dash: str | None = None) -> Line:
        inside = [(at - span[0], value) for at, value in places if span[0] <= at <= span[1]]
        return Line(Key(name, colour, dash), inside)

    use = [line("MBU", "c1", server.mbu), line("MFU", "c2", server.mfu, "6 3")]
    batch = [line("running", "c1", server.running), line("waiting", "c2", server.waiting, "6 3")]
    speed = [
        line("prompt", "c2", server.prompt_tokens_per_s, "6 3"),
        line("output", "c1", server.output_tokens_per_s),
    ]
    kv, hits = line("KV blocks in use", "c1", server.kv_use), line("hits", "c3", server.prefix_hits)
    preempted = line("preemptions", "c2", server.preemptions)
    readings = f"From {server.readings} readings of /metrics."
    plots = [
        over_time("KV cache in use", [kv], span_s=span, y_title="of blocks", y_label=share),
        over_time(
            "Prefix cache hits", [hits], span_s=span, y_title="of prompt tokens", y_label=share
        ),
        over_time("Requests on the server", batch, span_s=span, y_title="requests", least=5),
        over_time(
            "Preemptions since the start", [preempted], span_s=span, y_title="preemptions", least=5
        ),
        over_time(
            "Tokens, as the server counts", speed, span_s=span, y_title="tokens/s", caption=readings
        ),
        over_time(
            "Bandwidth and compute in use",
            use,
            span_s=span,
            y_title="of the limit",
            y_label=share,
            caption="Of the time spent in steps, between readings.",
        ),
    ]
    if server.read_limit and server.compute_limit:
        shifted = [one._replace(at_s=one.at_s - span[0]) for one in server.roofline]
        plots.append(
            roofline_path(shifted, bytes_per_s=server.read_limit, ops_per_s=server.compute_limit)
        )
    return _some(plots)
