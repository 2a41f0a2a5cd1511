"""What a call was, told once when it has ended: to the metrics, the request log and the trace.

An endpoint is wrapped in an `Observed`, which makes the call's record current, sees the status of
the reply, and waits for its end, the last event of a stream included. Texts are in the log only
where both settings ask for them; keys and other headers never are.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.server.api_error import CLIENT_GONE
from headrace.telemetry.call import CallRecord, as_current

if TYPE_CHECKING:
    from headrace.server.state import ServerState

logger = logging.getLogger("headrace.access")

# Longer ids of clients are cut: the log is not theirs to fill.
MAX_ID_CHARS = 128
# Headers that say which trace a call belongs to.
TRACE_HEADERS = (b"traceparent", b"tracestate")


class Observed:
    """ASGI app of one endpoint, whose calls are told of. `path` is the route's."""

    def __init__(self, path: str, app: ASGIApp, state: ServerState) -> None:
        self._path = path
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the endpoint; tell of POSTs, which are what makes tokens."""
        state = self._state
        record = CallRecord(
            request_id="",
            endpoint=self._path,
            arrival_s=state.clock(),
            began_ns=int(state.wall_clock() * 1e9),
            client_id=_header(scope, b"x-request-id")[:MAX_ID_CHARS],
            keep_text=state.config.enable_log_requests and state.config.enable_log_outputs,
        )
        if state.tracing is not None:
            record.headers = {name.decode(): _header(scope, name) for name in TRACE_HEADERS}

        # No coroutine of its own: each event of a stream passes here.
        def watched(message: Message) -> Awaitable[None]:
            if record.status is None and message["type"] == "http.response.start":
                record.status = message["status"]
                record.stream = any(
                    name.lower() == b"content-type" and value.startswith(b"text/event-stream")
                    for name, value in message.get("headers", ())
                )
            return send(message)

        with as_current(record):
            try:
                await self._app(scope, receive, watched)
            finally:
                if scope.get("method") == "POST":
                    tell(state, record)


def tell(state: ServerState, record: CallRecord) -> None:
    """The call is over: observe, log and trace it."""
    now_s = state.clock()
    if record.timelines and state.loaded:
        state.serving().requests.call_ended(record)
    if state.config.enable_log_requests:
        logger.info("request ended", extra={"fields": _fields(state, record, now_s)})
    if state.tracing is not None:
        model = state.serving().model.name if state.loaded else ""
        state.tracing.call_ended(record, model=model, ended_s=now_s)


def tell_refused(state: ServerState, endpoint: str, status: int, request_id: str) -> None:
    """A call was turned away before any endpoint heard of it, whatever its method."""
    if not state.config.enable_log_requests:
        return
    record = CallRecord(request_id, endpoint, state.clock(), status=status)
    with as_current(record):
        logger.info("request ended", extra={"fields": summary(record, record.arrival_s)})


def _fields(state: ServerState, record: CallRecord, now_s: float) -> dict[str, Any]:
    fields = summary(record, now_s)
    if record.keep_text and state.loaded:
        most = state.config.max_log_len
        fields |= _texts(record, state.serving().model.tokenizer.decode, most)
    return fields


def summary(record: CallRecord, now_s: float) -> dict[str, Any]:
    """Sizes, times (seconds) and reasons of a call that ended at `now_s`; None is not known."""
    fields: dict[str, Any] = {
        "endpoint": record.endpoint,
        "status": CLIENT_GONE if record.status is None else record.status,
        "client_request_id": record.client_id or None,
    }
    lines = record.timelines
    if lines:
        firsts = [one.first_token_s for one in lines if one.first_token_s is not None]
        started = [one.queue_s for one in lines if one.started_s is not None]
        reasons = dict.fromkeys(one.reason or "abort" for one in lines)
        fields |= {
            "engine_id": lines[0].request_id or None,
            "prompt_tokens": sum(same[0].prompt_tokens for same in record.prompts.values()),
            "cached_tokens": sum(
                max(one.cached_tokens for one in same) for same in record.prompts.values()
            ),
            "output_tokens": sum(one.generated_tokens for one in lines),
            "n": lines[0].n,
            "finish_reason": ",".join(reasons),
            "queue_s": round(max(started), 6) if started else None,
            "ttft_s": round(min(firsts) - record.arrival_s, 6) if firsts else None,
            "preemptions": sum(one.num_preemptions for one in lines),
        }
    return fields | {"e2e_s": round(now_s - record.arrival_s, 6), "stream": record.stream}


def _texts(record: CallRecord, decode: Any, most: int) -> Mapping[str, list[str]]:
    """Prompts and outputs, each cut to `most` characters."""
    # A token is a character at least, nearly always: no more of a long prompt is decoded.
    prompts = [same[0].prompt_token_ids[:most] for same in record.prompts.values()]
    return {
        "prompts": [decode(list(ids))[:most] for ids in prompts],
        "outputs": ["".join(one.text)[:most] for one in record.timelines],
    }


def _header(scope: Scope, name: bytes) -> str:
    headers: Sequence[tuple[bytes, bytes]] = scope.get("headers", ())
    return next((value.decode("latin-1") for key, value in headers if key == name), "")
