"""An answer on its way to the client: passed through, or translated into the client's dialect.

From here on no other target can be tried. If the provider breaks off, the client gets an error in
the stream, so that half an answer is never taken for a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.gateway.serving.aside import Aside, with_asides
from headrace.gateway.serving.attempt import Opened, has_media
from headrace.gateway.serving.composed.heartbeat import Heartbeats
from headrace.gateway.serving.ending import Bill, bill_of
from headrace.gateway.serving.error_detail import ErrorDetail, broken_off
from headrace.gateway.serving.incoming import Incoming, Sink
from headrace.gateway.serving.named import Names
from headrace.gateway.serving.passed_on import passing
from headrace.gateway.serving.passed_scrub import PassedScrub, without_errors
from headrace.gateway.serving.prepared import Prepared
from headrace.gateway.serving.reply_headers import cost_header, dropped_headers, retry_after
from headrace.gateway.serving.scrub import without_secrets
from headrace.gateway.serving.stepped import SteppedAnswer
from headrace.gateway.serving.tally import Tally
from headrace.gateway.serving.told_error import as_client_reads, error_body
from headrace.gateway.upstream.connection import Reply
from headrace.gateway.upstream.errors import UpstreamError
from headrace.protocol.neutral.dialect import AnswerTooLongError
from headrace.protocol.neutral.event import Event, ReplyFailure
from headrace.protocol.neutral.failure import Failure

Header = tuple[str, str]


async def answer_whole(
    opened: Opened,
    prepared: Prepared,
    incoming: Incoming,
    sink: Sink,
    tally: Tally,
    headers: list[Header],
    names: Names,
    asides: Sequence[Aside] = (),
) -> Bill:
    """Send a reply that is not streamed, with its cost, side calls included, in a header.

    The returned bill does not contain the side calls.
    """
    assert opened.body is not None
    body = opened.body
    if opened.glance is not None and not tally.keeps_all:
        tally.take_glance(opened.glance)
    else:
        tally.take_reply(opened.read())
    if not opened.ready.passed_on:
        answer = names.reply(opened.read())
        body = incoming.side.write_reply(answer, prepared.call)
        headers += dropped_headers(tally.lost_citations(incoming.side.cited_sources))
    bill = bill_of(opened, tally, None)
    headers = [
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        *headers,
        cost_header(with_asides(bill.cost_nusd, asides)),
    ]
    await sink.start(200, headers)
    await sink.last(body)
    return bill


async def answer_stream(
    opened: Opened,
    prepared: Prepared,
    incoming: Incoming,
    sink: Sink,
    tally: Tally,
    headers: list[Header],
    names: Names,
    clock_ns: Callable[[], int],
    detail: ErrorDetail = "full",
) -> None:
    """Send the part of a stream that has arrived, then the rest as it arrives. `detail` is what the
    client reads of failures."""
    headers = [
        ("content-type", incoming.side.stream_type()),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
        *headers,
    ]
    await sink.start(200, headers)
    if opened.ready.passed_on and opened.reader is not None:
        await _pass_on(opened, prepared, incoming, sink, tally, clock_ns, detail)
    else:
        await _translate(opened, prepared, incoming, sink, tally, names, clock_ns, detail)
    await sink.end()


async def _translate(
    opened: Opened,
    prepared: Prepared,
    incoming: Incoming,
    sink: Sink,
    tally: Tally,
    names: Names,
    clock_ns: Callable[[], int],
    detail: ErrorDetail,
) -> None:
    target = opened.candidate.target.name
    writer = incoming.side.stream_writer(prepared.call)
    reply, reader = opened.reply, opened.reader
    began_ns = clock_ns()
    events: list[Event] = names.events(opened.events)
    while True:
        out = bytearray()
        for event in events:
            if isinstance(event, ReplyFailure):
                event = ReplyFailure(without_secrets(event.failure, opened.secret_headers))
            tally.take(event)
            if isinstance(event, ReplyFailure):
                event = ReplyFailure(broken_off(event.failure, target, detail))
            try:
                out += writer.write(event)
            except AnswerTooLongError as error:
                failed = ReplyFailure(Failure(kind="damaged", message=str(error)))
                tally.take(failed)
                out += writer.write(failed)
                break
        tally.worked_ns += clock_ns() - began_ns
        if out:
            await sink.write(bytes(out))
        if tally.ended or tally.failure is not None:
            return
        try:
            if isinstance(reply, SteppedAnswer):
                events = await reply.events()
                began_ns = clock_ns()
                continue
            if reader is None:  # it came whole
                return
            piece = await reply.piece()
            began_ns = clock_ns()
            events = reader.feed(piece) if piece else reader.end()
            opened.took(piece, events)
        except UpstreamError as error:
            began_ns = clock_ns()
            events = [ReplyFailure(error.failure)]


async def _pass_on(
    opened: Opened,
    prepared: Prepared,
    incoming: Incoming,
    sink: Sink,
    tally: Tally,
    clock_ns: Callable[[], int],
    detail: ErrorDetail,
) -> None:
    reply, reader = opened.reply, opened.reader
    assert reader is not None and isinstance(reply, Reply)
    whole = passing(incoming.side.stream_type(), hides_usage=opened.ready.hides_usage)
    scrub = PassedScrub(opened.secret_headers)
    began_ns = clock_ns()
    for event in opened.events:
        _take(event, opened, scrub, tally)
    piece = b"".join(opened.held)
    failed: ReplyFailure | None = None
    while True:
        out = scrub.clean(whole.feed(piece))
        hides = failed is not None and _hides(failed, detail)
        if hides:
            out = without_errors(out)
        tally.worked_ns += clock_ns() - began_ns
        if out:
            await sink.write(out)
        if hides:
            break
        failed = None
        try:
            if whole.too_long:
                raise UpstreamError("too_large", "an event of the stream does not end")
            piece = await reply.piece()
            began_ns = clock_ns()
            events = reader.feed(piece) if piece else reader.end()
            opened.took(piece, events)
        except UpstreamError as error:
            if not tally.ended:  # otherwise only the end of the connection was lost
                failed = ReplyFailure(error.failure)
                tally.take(failed)
            break
        for event in events:
            failed = _take(event, opened, scrub, tally) or failed
        if opened.idle_s is not None and (tally.has_content or has_media(reader)):
            opened.content_came()
        if not piece:
            # The last event may lack its end; a client could not read one that was cut.
            if tally.ended and (rest := scrub.clean(whole.end())):
                await sink.write(rest)
            break
    if failed is not None:  # the stream stopped without the mark that it was whole
        failure = broken_off(failed.failure, opened.candidate.target.name, detail)
        await _tell(ReplyFailure(failure), prepared, incoming, sink)


def _hides(failed: ReplyFailure, detail: ErrorDetail) -> bool:
    """Whether the client does not read the provider's own words."""
    return broken_off(failed.failure, "", detail) is not failed.failure


def _take(event: Event, opened: Opened, scrub: PassedScrub, tally: Tally) -> ReplyFailure | None:
    """Count an event; for a failure, return it as the client may see it."""
    if not isinstance(event, ReplyFailure):
        tally.take(event)
        return None
    scrub.has_failed = True
    failed = ReplyFailure(without_secrets(event.failure, opened.secret_headers))
    tally.take(failed)
    return failed


async def answer_failed(
    failure: Failure,
    status: int,
    prepared: Prepared,
    incoming: Incoming,
    sink: Sink,
    headers: list[Header],
) -> None:
    """Send an error instead of an answer."""
    if has_begun(sink):
        await tell_failed(failure, prepared, incoming, sink)
        return
    headers = [("content-type", "application/json"), *headers, *retry_after(failure)]
    body = error_body(incoming.side, failure, status, incoming.id)
    headers.append(("content-length", str(len(body))))
    await sink.start(status, headers)
    await sink.write(body)
    await sink.end()


def has_begun(sink: Sink) -> bool:
    """Whether a 200 was sent before it was known which target answers."""
    return isinstance(sink, Heartbeats) and sink.begun


async def tell_failed(failure: Failure, prepared: Prepared, incoming: Incoming, sink: Sink) -> None:
    """Send an error into a stream that has begun, and end it."""
    await _tell(ReplyFailure(as_client_reads(failure)), prepared, incoming, sink)
    await sink.end()


async def _tell(failed: ReplyFailure, prepared: Prepared, incoming: Incoming, sink: Sink) -> None:
    told = incoming.side.stream_writer(prepared.stub).write(failed)
    if told:
        await sink.write(told)
