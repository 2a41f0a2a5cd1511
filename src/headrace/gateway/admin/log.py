"""GET /api/log: requests that are over, one by one, and what was tried for each."""

from __future__ import annotations

from typing import Annotated, cast, get_args

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace.errors import ConfigError
from headrace.gateway.admin.call import Call
from headrace.gateway.admin.errors import AdminError
from headrace.gateway.admin.event_stream import Events, EventStream
from headrace.gateway.admin.reply import json_reply
from headrace.gateway.feedback.report import scores_of
from headrace.gateway.feedback.score import Score
from headrace.gateway.ledger.found import Filter, cursor_of, found_page, found_with_id
from headrace.gateway.ledger.report import dollars
from headrace.gateway.request_log.errors import RequestLogError
from headrace.gateway.request_log.filters import RecordFilter
from headrace.gateway.request_log.record import LogRecord
from headrace.gateway.serving.entry import Entry, Outcome
from headrace.protocol.neutral.usage import TokenUsage

_MOST_LINES = 500
# A page draws some hundred lines a second at best; what it has no time for it asks for later.
_MOST_WAITING = 256


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A request."""

    entry: Annotated[Entry, Meta(description="Its line of the ledger.")]
    cost_usd: Annotated[str | None, Meta(description="Its cost as exact text, null if unknown.")]
    prompt_tokens: Annotated[
        int | None, Meta(description="Of all kinds, null if none were reported.")
    ]
    completion_tokens: Annotated[
        int | None, Meta(description="Of all kinds, null if none were reported.")
    ]


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of requests, newest first."""

    lines: tuple[Line, ...]
    cursor: Annotated[
        str | None, Meta(description="Continues after this page; null if there is nothing more.")
    ]
    from_ledger: Annotated[
        bool, Meta(description="false if no ledger is kept and these are the last lines in memory.")
    ]


class LogDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The details that are known about one request id."""

    lines: Annotated[
        tuple[Line, ...],
        Meta(
            description="The request, and side calls that were paid for on its way; several "
            "requests if clients used an id twice."
        ),
    ]
    record: Annotated[
        LogRecord | None,
        Meta(
            description="From the request log, with the bodies that it keeps; null if it has "
            "none with this id."
        ),
    ]
    keeps_bodies: Annotated[bool, Meta(description="Whether there is a request log.")]
    feedback: Annotated[
        tuple[Score, ...],
        Meta(description="Scores that clients gave to the answer, with their comments."),
    ]


class LiveLine(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the stream: a line, or how many the page was too slow for since the last."""

    line: Line | None = None
    lost: int = 0


async def log(call: Call) -> Response:
    """The newest, or those before a cursor."""
    wanted = filter_of(call)
    limit = call.number("limit", 50, 1, _MOST_LINES)
    cursor = call.text("cursor")
    if call.choice("in", "names", ("names", "bodies")) == "bodies":
        return json_reply(await _with_bodies(call, wanted, limit, cursor))
    if call.house.ledger_path is None:
        kept = [line_of(one) for one in reversed(call.house.feed.newest) if wanted.takes(one)]
        return json_reply(LogPage(lines=tuple(kept[:limit]), cursor=None, from_ledger=False))
    try:
        before = None if cursor is None else cursor_of(cursor)
    except ConfigError as error:
        raise AdminError(400, str(error), "bad_request") from error
    page = await call.read(lambda connection: found_page(connection, wanted, before, limit))
    following = None if page.next is None else str(page.next)
    lines = tuple(line_of(entry) for entry in page.entries)
    return json_reply(LogPage(lines=lines, cursor=following, from_ledger=True))


async def _with_bodies(call: Call, wanted: Filter, limit: int, cursor: str | None) -> LogPage:
    """A page of the request log, which searches bodies for a text."""
    kept = call.house.request_log
    if kept is None:
        raise AdminError(
            409, "requests and answers are not kept: write `request_log: {enabled: true}` into "
                "the gateway's file and restart it", "no_request_log",
        )  # fmt: skip
    asked = RecordFilter(
        model=wanted.model, key=wanted.key, outcome=wanted.outcome, text=wanted.text,
        after=cursor, limit=limit,
    )  # fmt: skip
    try:
        page = await kept.newest(asked)
    except RequestLogError as error:
        raise AdminError(503, str(error), "request_log") from error
    except ConfigError as error:
        raise AdminError(400, str(error), "bad_request") from error
    lines = tuple(_line_of_record(record) for record in page.records)
    return LogPage(lines=lines, cursor=page.next, from_ledger=False)


async def log_detail(call: Call) -> Response:
    """GET /api/log/{id}: one request."""
    id = call.path("id")
    at_s = call.seconds("at_s")
    found: tuple[Entry, ...]
    scores: tuple[Score, ...] = ()
    if call.house.ledger_path is None:
        found = tuple(one for one in call.house.feed.newest if id in (one.id, one.parent))
    else:
        found, scores = await call.read(
            lambda connection: (found_with_id(connection, id, at_s), scores_of(connection, id))
        )
        # The ledger is written a moment after a request is over.
        found = found or tuple(one for one in call.house.feed.newest if id in (one.id, one.parent))
    if not found:
        raise AdminError(404, "there is no request with this id in the ledger", "not_found")
    lines = tuple(line_of(one) for one in found)
    kept = call.house.request_log
    try:
        record = None if kept is None else await kept.find(id)
    except RequestLogError as error:
        raise AdminError(503, str(error), "request_log") from error
    return json_reply(
        LogDetail(lines=lines, record=record, keeps_bodies=kept is not None, feedback=scores)
    )


async def log_stream(call: Call) -> Response:
    """Lines as requests end."""
    wanted = filter_of(call)
    feed = call.house.feed

    async def events() -> Events:
        with feed.listening(wanted.takes, _MOST_WAITING) as listener:
            while True:
                entry = await listener.next()
                yield LiveLine(line=line_of(entry), lost=listener.take_lost())

    return EventStream(events, call.shared)


def filter_of(call: Call) -> Filter:
    """The filter in the query."""
    outcome = call.choice("outcome", None, get_args(Outcome))
    return Filter(
        call.text("model"), call.text("key"), cast("Outcome | None", outcome), call.text("text")
    )


def _line_of_record(one: LogRecord) -> Line:
    """As much of the ledger's line as the request log has; its attempts are not in it."""
    usage = None
    if one.input_tokens is not None and one.output_tokens is not None:
        usage = TokenUsage(input_tokens=one.input_tokens, output_tokens=one.output_tokens)
    same = {
        name: getattr(one, name)
        for name in Entry.__struct_fields__
        if name in LogRecord.__struct_fields__
    }
    entry = Entry(
        **same,
        attempts=(),
        usage=usage,
        usage_from="none" if usage is None else "provider",
        overhead_us=0,
    )
    return line_of(entry)


def line_of(entry: Entry) -> Line:
    """The line as pages show it."""
    usage = entry.usage
    return Line(
        entry=entry,
        cost_usd=None if entry.cost_nusd is None else dollars(entry.cost_nusd),
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        completion_tokens=None if usage is None else usage.completion_tokens,
    )
