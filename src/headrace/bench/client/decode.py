"""From bytes and their times to the record of a request: a pure function.

However the bytes were cut, the events are the same, and an event's time is that of the piece that
completed it. A reply whose own format says that it is whole is whole, however the connection
ended. What cannot be understood becomes a failure, never an exception, and never hides what came
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from headrace.bench.client import anthropic_format, ollama_format, openai_format
from headrace.bench.client.answer import Answer, json_value
from headrace.bench.client.endpoints import EndpointKind
from headrace.bench.client.failure_text import one_line, status_message
from headrace.bench.client.raw import RawReply
from headrace.bench.client.secrets import blotted_pieces
from headrace.bench.record import Chunk, Failure, RequestRecord
from headrace.protocol.sse import SSEReader, StreamTooLargeError

# An event larger than this is no chunk of an answer; images of whole replies are not streamed.
MAX_EVENT_BYTES = 16 * 2**20
_NO_STREAM = "the server does not stream; use --no-streaming for whole replies"
_QUEUE_HEADER = "x-queue-time"  # TGI, in milliseconds


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the run planned it; the fields are those of `RequestRecord`."""

    index: int
    intended_ns: int
    measured: bool = True
    session: int | None = None
    turn: int = 0
    prompt_tokens_asked: int | None = None
    output_tokens_asked: int | None = None


class _Format(NamedTuple):
    lines: bool  # NDJSON, not server-sent events
    take_event: Callable[[Answer, int, dict[str, Any], str], None]
    take_whole: Callable[[Answer, int, dict[str, Any]], None]


_OPENAI = _Format(False, openai_format.take_event, openai_format.take_whole)
_FORMATS: dict[EndpointKind, _Format] = {
    "openai-chat": _OPENAI,
    "openai-completions": _OPENAI,
    "openai-embeddings": _OPENAI._replace(take_whole=openai_format.take_embeddings),
    "anthropic-messages": _Format(False, anthropic_format.take_event, anthropic_format.take_whole),
    "ollama": _Format(True, ollama_format.take_event, ollama_format.take_whole),
}


class _NotUnderstoodError(Exception):
    """The reply is not what the format allows; the text says how."""


def decode(
    raw: RawReply,
    asked: Asked,
    *,
    kind: EndpointKind,
    stream: bool,
    origin_ns: int,
    secrets: tuple[str, ...] = (),
) -> RequestRecord:
    """The record of one request.

    origin_ns: the clock at the start of the run, which the record's times count from;
    `asked.intended_ns` counts from there already. secrets: blotted out of every text.
    """
    answer = Answer(origin_ns)
    failure = _failure(raw, answer, _FORMATS[kind], stream)
    if answer.ended and raw.failure is not None and answer.ended_ns is not None:
        end_ns = answer.ended_ns
    else:
        end_ns = raw.end_ns
    if answer.queue_ns is None:
        answer.waited(_milliseconds(raw.headers.get(_QUEUE_HEADER)))
    if failure is not None:
        failure = Failure(failure.kind, one_line(failure.message, secrets))
    return RequestRecord(
        index=asked.index,
        measured=asked.measured,
        intended_ns=asked.intended_ns,
        streamed=stream,
        begun_ns=raw.begun_ns - origin_ns,
        sent_ns=_since(origin_ns, raw.sent_ns),
        headers_ns=_since(origin_ns, raw.headers_ns),
        end_ns=end_ns - origin_ns,
        chunks=_without(secrets, answer.chunks),
        status=raw.status,
        failure=failure,
        finish_reason=_reason(answer, secrets),
        usage=answer.usage,
        queue_ns=answer.queue_ns,
        session=asked.session,
        turn=asked.turn,
        prompt_tokens_asked=asked.prompt_tokens_asked,
        output_tokens_asked=asked.output_tokens_asked,
        new_connection=raw.new_connection,
    )


def _without(secrets: tuple[str, ...], chunks: list[Chunk]) -> tuple[Chunk, ...]:
    """The chunks with blots where they hold a secret, be it across some of one kind."""
    for kind in {chunk.kind for chunk in chunks} if secrets else ():
        places = [at for at, chunk in enumerate(chunks) if chunk.kind == kind]
        texts = blotted_pieces([chunks[at].text for at in places], secrets)
        for at, text in zip(places, texts, strict=True):
            if text != chunks[at].text:
                chunks[at] = msgspec.structs.replace(chunks[at], text=text)
    return tuple(chunks)


def _reason(answer: Answer, secrets: tuple[str, ...]) -> str | None:
    reason = answer.finish_reason
    return None if reason is None else blotted_pieces([reason], secrets)[0]


def _failure(raw: RawReply, answer: Answer, form: _Format, stream: bool) -> Failure | None:
    """Fill `answer` with what can be read, and say what is wrong."""
    if raw.status is None:
        return raw.failure or Failure("protocol", "there is no reply")
    if not 200 <= raw.status < 300:
        return Failure("http", status_message(raw))
    try:
        _check_kind(raw, stream)
        if stream:
            _read_stream(raw, answer, form)
        elif raw.complete:
            form.take_whole(answer, raw.end_ns, _object(raw.body, "the reply"))
    except _NotUnderstoodError as error:
        return Failure("protocol", str(error))
    except RecursionError:
        return Failure("protocol", "the reply's JSON is nested too deeply to be read")
    if answer.error is not None:
        return Failure("stream", f"the server reported: {answer.error}")
    if answer.ended:
        return None
    if raw.failure is not None:
        return raw.failure
    if stream and answer.finish_reason is not None:
        return None  # some servers leave out the last word
    if stream and not answer.chunks:
        return Failure("protocol", _without_events(raw))
    return Failure("truncated", f"the stream ended after {len(answer.chunks)} events, unfinished")


def _without_events(raw: RawReply) -> str:
    """Why there is no event in a reply of no kind that cannot be a stream's."""
    body = raw.body
    if body[:1] == b"{":
        return f"the reply is one object in place of a stream: {_NO_STREAM}"
    kind = raw.headers.get("content-type", "no content type")
    return f"there is no event in {len(body)} bytes of {kind}"


def _check_kind(raw: RawReply, stream: bool) -> None:
    """Raise for a reply of a kind that cannot be the endpoint's."""
    encoding = raw.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise _NotUnderstoodError(
            f"the reply is compressed ({encoding}) although the request did not ask for it; a "
            "proxy in between may do so, and the times of its chunks cannot be measured"
        )
    content_type = raw.headers.get("content-type", "").lower()
    if "html" in content_type or raw.body[:64].lstrip().lower().startswith(
        (b"<!doctype", b"<html")
    ):
        wanted = "a stream of events" if stream else "JSON"
        raise _NotUnderstoodError(
            f"HTML in place of {wanted}: is this the URL of the API, or of a page or a proxy?"
        )


def _read_stream(raw: RawReply, answer: Answer, form: _Format) -> None:
    if not form.lines and "json" in raw.headers.get("content-type", "").lower():
        reply = _object(raw.body, "the reply") if raw.complete else {}
        if reply.get("error"):
            answer.failed(reply)
            return
        raise _NotUnderstoodError(
            f"the reply is one JSON object in place of a stream: {_NO_STREAM}"
        )
    try:
        events = _lines(raw) if form.lines else _server_sent(raw)
        for number, (at_ns, data, name) in enumerate(events, start=1):
            if data.strip() == openai_format.DONE_DATA:
                answer.end(at_ns)
            else:
                form.take_event(answer, at_ns, _object(data, f"event {number}"), name)
    except (StreamTooLargeError, ollama_format.LineTooLongError) as error:
        raise _NotUnderstoodError(
            f"an event of the stream is longer than {MAX_EVENT_BYTES:,} bytes: is this an API?"
        ) from error


def _server_sent(raw: RawReply) -> Iterator[tuple[int, str | bytes, str]]:
    reader = SSEReader(max_event_bytes=MAX_EVENT_BYTES)
    for at_ns, piece in raw.pieces:
        for event in reader.feed(piece):
            yield at_ns, event.data, event.event


def _lines(raw: RawReply) -> Iterator[tuple[int, str | bytes, str]]:
    reader = ollama_format.LineReader(MAX_EVENT_BYTES)
    for at_ns, piece in raw.pieces:
        for line in reader.feed(piece):
            yield at_ns, line, ""
    if raw.complete:
        for line in reader.end():
            yield raw.end_ns, line, ""


def _object(data: str | bytes, what: str) -> dict[str, Any]:
    """The JSON object in `data`; raises _NotUnderstoodError naming `what`."""
    try:
        value = json_value(data)
    except (ValueError, RecursionError) as error:
        start = one_line(
            data[:80].decode(errors="replace") if isinstance(data, bytes) else data[:80]
        )
        raise _NotUnderstoodError(f"{what} is not JSON ({error}): {start}") from error
    if not isinstance(value, dict):
        raise _NotUnderstoodError(f"{what} is JSON, but not an object")
    return value


def _milliseconds(value: str | None) -> float | None:
    """Seconds of a header in milliseconds; None for one that is no number."""
    try:
        return None if value is None else float(value) / 1000
    except ValueError:
        return None


def _since(origin_ns: int, at_ns: int | None) -> int | None:
    return None if at_ns is None else at_ns - origin_ns
