"""GET /api/usage: the reports of `headrace gateway usage`."""

from __future__ import annotations

import io
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace.errors import ConfigError
from headrace.gateway.admin.call import Call
from headrace.gateway.admin.errors import AdminError
from headrace.gateway.admin.reply import json_reply
from headrace.gateway.ledger.report import fields_of, write_csv
from headrace.gateway.ledger.span import span_of
from headrace.gateway.ledger.usage import groupings_of, usage_by


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Usage by group."""

    by: Annotated[tuple[str, ...], Meta(description="What it is grouped by.")]
    rows: Annotated[
        tuple[dict[str, Any], ...],
        Meta(
            description="One per group, with its names, all counts and sums of `headrace "
            "gateway usage --json`, and cost_usd as exact text."
        ),
    ]


async def usage(call: Call) -> Response:
    """GET /api/usage: as JSON or, for spreadsheets, as CSV."""
    kind = call.choice("format", "json", ("json", "csv"))
    try:
        names = groupings_of(call.text("by") or "")
        span = span_of(call.text("since"), call.text("until"))
    except ConfigError as error:
        raise AdminError(400, str(error).removeprefix("--"), "bad_request") from error
    found = await call.read(lambda connection: usage_by(connection, names, span))
    if kind == "json":
        return json_reply(UsageReport(by=names, rows=tuple(fields_of(one) for one in found)))
    text = io.StringIO()
    write_csv(text, names, found)
    headers = {"content-disposition": 'attachment; filename="usage.csv"'}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)
