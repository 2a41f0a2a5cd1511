"""requests.csv: a line for each request, for spreadsheets.

Moments are in seconds of the run, latencies in milliseconds under the definition's names with the
clock in front.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.bench.definitions import Clock, Definition, Metric
from headrace.bench.goodput import judge
from headrace.bench.record import RequestRecord
from headrace.bench.report.csv_cells import Field, csv_line
from headrace.bench.slo import Slo

_CLOCKS: tuple[Clock, ...] = ("intended", "sent")


def csv_lines(
    records: Iterable[RequestRecord], definition: Definition, slo: Slo | None = None
) -> Iterator[bytes]:
    """A header, then the requests, warm-up included, in UTF-8.

    good: whether a request met the SLO's conditions of each request; empty where nobody can say.
    """
    metrics = [metric for metric in definition.metrics if metric.each != "gap"]
    each = Slo(slo.of_each) if slo is not None and slo.of_each else None
    fixed = list(_facts(_NOBODY))
    columns = [_column(clock, metric) for clock in _CLOCKS for metric in metrics]
    yield _line([*fixed, *columns, "good"])
    for record in records:
        fields: list[Field] = list(_facts(record).values())
        for clock in _CLOCKS:
            measured = definition.measure(record, clock)
            for metric in metrics:
                fields.append(
                    None if measured is None else _value(metric, measured.times_ns, measured.rates)
                )
        yield _line([*fields, _good(record, each)])


_NOBODY = RequestRecord(index=0, measured=False, intended_ns=0)


def _column(clock: Clock, metric: Metric) -> str:
    unit = "tokens_per_s" if metric.each == "rate" else "ms"
    return f"{clock}_{metric.name}_{unit}"


def _value(metric: Metric, times_ns: dict[str, float], rates: dict[str, float]) -> float | None:
    if metric.each == "rate":
        return rates.get(metric.name)
    value = times_ns.get(metric.name)
    return None if value is None else value / 1e6


def _facts(record: RequestRecord) -> dict[str, Field]:
    failure, usage = record.failure, record.usage
    return {
        "index": record.index,
        "measured": record.measured,
        "session": record.session,
        "turn": record.turn,
        "intended_s": _seconds(record.intended_ns),
        "begun_s": _seconds(record.begun_ns),
        "sent_s": _seconds(record.sent_ns),
        "headers_s": _seconds(record.headers_ns),
        "end_s": _seconds(record.end_ns),
        "status": record.status,
        "error": None if failure is None else failure.kind,
        "message": None if failure is None else failure.message,
        "finish_reason": record.finish_reason,
        "content_chunks": len(record.content),
        "prompt_tokens_asked": record.prompt_tokens_asked,
        "output_tokens_asked": record.output_tokens_asked,
        "prompt_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cached_tokens": usage.cached_tokens,
        "client_prompt_tokens": record.client_prompt_tokens,
        "client_output_tokens": record.client_output_tokens,
        "queue_ms": None if record.queue_ns is None else record.queue_ns / 1e6,
    }


def _seconds(at_ns: int | None) -> float | None:
    return None if at_ns is None else at_ns / 1e9


def _good(record: RequestRecord, slo: Slo | None) -> bool | None:
    if slo is None or not record.measured:
        return None
    judged = judge(slo, [record], 1.0)
    return judged.good == 1 if judged.judged else None


def _line(fields: Iterable[Field]) -> bytes:
    return csv_line(fields).encode(errors="replace")
