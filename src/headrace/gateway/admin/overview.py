"""GET /api/overview: traffic, tokens, cost and times, over time and in all."""

from __future__ import annotations

import sqlite3
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace.errors import ConfigError
from headrace.gateway.admin.call import Call
from headrace.gateway.admin.errors import AdminError
from headrace.gateway.admin.reply import json_reply
from headrace.gateway.ledger.report import dollars
from headrace.gateway.ledger.span import PARTS, Part, Span, names_of, parts_of, span_of
from headrace.gateway.ledger.usage import Usage, usage_by


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a group of requests. Times are in milliseconds from a request's arrival, null
    where there are none; first_token_* is of streams."""

    requests: int = 0
    answered: int = 0
    errors: Annotated[
        int, Meta(description="Targets failed, with no answer or only a part of one.")
    ] = 0
    refused: Annotated[
        int,
        Meta(
            description="Refused for a spent budget or a limit, or because no target was available."
        ),
    ] = 0
    client_gone: Annotated[int, Meta(description="The client disconnected.")] = 0
    cache_hits: int = 0
    prompt_cache_hits: int = 0
    input_tokens: Annotated[int, Meta(description="Of all kinds.")] = 0
    output_tokens: Annotated[int, Meta(description="Of all kinds.")] = 0
    cost_nusd: Annotated[int, Meta(description="In 1e-9 dollars.")] = 0
    cost_usd: Annotated[str, Meta(description="The same as exact text.")] = "0.00"
    unknown_cost: Annotated[
        int, Meta(description="Requests of unknown price, which the cost does not include.")
    ] = 0
    total_ms_p50: float | None = None
    total_ms_p95: float | None = None
    total_ms_p99: float | None = None
    first_token_ms_p50: float | None = None
    first_token_ms_p95: float | None = None
    first_token_ms_p99: float | None = None


class Point(Numbers, frozen=True, kw_only=True):
    """Figures of one interval."""

    at_s: Annotated[int, Meta(description="Unix time at which the interval begins.")]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Totals and a time series."""

    since_s: int
    before_s: Annotated[int, Meta(description="The end, exclusive.")]
    by: Part
    totals: Numbers
    series: Annotated[
        tuple[Point, ...], Meta(description="Every interval once, also those without requests.")
    ]


async def overview(call: Call) -> Response:
    """Figures of a time span, or of the last hour, day or month."""
    by = cast("Part", call.choice("by", "hour", PARTS))
    try:
        asked = span_of(call.text("since"), call.text("until"))
        start_ms, end_ms = parts_of(asked, by, round(call.shared.wall_s() * 1000))
    except ConfigError as error:
        raise AdminError(400, str(error), "bad_request") from error

    def work(connection: sqlite3.Connection) -> tuple[Usage, list[Usage]]:
        span = Span(start_ms, end_ms)
        return usage_by(connection, (), span)[0], usage_by(connection, (by,), span)

    totals, parts = await call.read(work)
    by_name = {part.by[by]: part for part in parts}
    series = tuple(
        Point(at_s=at_ms // 1000, **(_numbers(by_name[name]) if name in by_name else {}))
        for at_ms, name in names_of(start_ms, end_ms, by)
    )
    return json_reply(
        Overview(
            since_s=start_ms // 1000, before_s=end_ms // 1000, by=by,
            totals=Numbers(**_numbers(totals)), series=series,
        )
    )  # fmt: skip


_AS_THEY_ARE = tuple(
    name
    for name in Numbers.__struct_fields__
    if name in Usage.__struct_fields__ and name not in ("input_tokens", "output_tokens")
)


def _numbers(one: Usage) -> dict[str, Any]:
    found = {name: getattr(one, name) for name in _AS_THEY_ARE}
    found["errors"] = one.failures
    found["input_tokens"] = input_tokens(one)
    found["output_tokens"] = one.output_tokens + one.reasoning_tokens + one.output_audio_tokens
    found["cost_usd"] = dollars(one.cost_nusd)
    return found


def input_tokens(one: Usage) -> int:
    """All that was read, from a cache or not."""
    return (
        one.input_tokens
        + one.cache_read_tokens
        + one.cache_write_tokens
        + one.cache_write_1h_tokens
        + one.input_audio_tokens
    )
