"""A line for each provider in each round, for spreadsheets."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.bench.providers.figures import Matrix, Point, ProviderFigures
from headrace.bench.report.csv_cells import Field, csv_line

COLUMNS = (
    "at",
    "round",
    "provider",
    "model",
    "region",
    "place",
    "outcome",
    "requests",
    "failed",
    "ttft_ms",
    "tps",
    "tps_batch",
    "batch_size",
    "e2e_ms",
    "prompt_tokens",
    "output_tokens",
    "input_usd_per_million",
    "output_usd_per_million",
    "message",
)


def csv_text(of: Matrix) -> str:
    """All of it, in the order of time; `at` is ISO 8601 in UTC."""
    lines = sorted(
        ((point, one) for one in of.providers for point in one.over_time),
        key=lambda pair: pair[0].at,
    )
    rows = [csv_line(_fields(*pair), ".6g") for pair in lines]
    return "".join([csv_line(COLUMNS), *rows])


def _fields(point: Point, of: ProviderFigures) -> tuple[Field, ...]:
    return (
        datetime.fromtimestamp(point.at, UTC).isoformat(timespec="milliseconds"),
        point.round,
        of.label,
        of.model,
        of.region,
        point.place,
        point.outcome,
        point.requests,
        point.failed,
        point.ttft_ms,
        point.tps,
        point.tps_batch,
        of.batch_size,
        point.e2e_ms,
        point.prompt_tokens,
        point.output_tokens,
        of.cost.input_usd,
        of.cost.output_usd,
        point.message,
    )
