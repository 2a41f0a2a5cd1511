"""One request at one target, until it is known whether it answers.

For a stream that is at its first content; where the stream is passed through, at the first event
that is more than a beginning. Until then another target may be tried, as the client has seen
nothing; after that the target's answer is the answer, whatever happens to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from headrace.gateway.routing.decision import Candidate
from headrace.gateway.serving.prepared import Prepared, Ready
from headrace.gateway.serving.scrub import without_secrets
from headrace.gateway.serving.sent import Sent
from headrace.gateway.serving.stepped import SteppedAnswer
from headrace.gateway.serving.stream_watch import StreamWatch
from headrace.gateway.serving.told_error import with_body
from headrace.gateway.targets.auth import Credential, Outgoing, all_rest
from headrace.gateway.upstream.connection import Reply
from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.limits import Timeouts
from headrace.gateway.upstream.request import request_bytes
from headrace.gateway.within import Within
from headrace.protocol.neutral.collect import collected, replayed
from headrace.protocol.neutral.dialect import (
    DamagedReplyError,
    PartialContentReader,
    ReplySide,
    StreamReader,
    UsageSummary,
)
from headrace.protocol.neutral.event import (
    Event,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
    has_content,
)
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply
from headrace.protocol.sse import MAX_EVENT_BYTES

_MOST_ERROR_BYTES = 1 << 20
# Role chunks, echoes of the request and pings may come before content and are held back. A stream
# that is passed through is held back no longer than this; a translated one may have long events.
_MOST_HELD_BYTES = 1 << 20
_MOST_HELD_EVENTS = 4096
# How stream readers classify a stream that breaks its API's rules or ends too early.
_UNREADABLE = ("damaged", "network")


class AttemptFailedError(Exception):
    """An attempt at one target failed.

    `credential` is the one it was sent with, None if it was not sent. `was_sent` says whether the
    provider may have received it. `no_reply` says that it was sent and neither an error nor a
    usable reply came back, so that it may be billed.
    """

    def __init__(
        self,
        failure: Failure,
        credential: Credential | None = None,
        *,
        was_sent: bool = False,
        no_reply: bool = False,
    ) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.credential = credential
        self.was_sent = was_sent
        self.no_reply = no_reply


@dataclass(kw_only=True, slots=True)
class Opened:
    """A target's answer that has begun."""

    candidate: Candidate
    ready: Ready
    sent_ns: int
    """When the request was sent."""
    first_ns: int
    """When the first content arrived."""
    reply: Reply | SteppedAnswer
    """The source of the rest of a stream."""
    body: bytes | None = None
    """A whole answer; None for a stream."""
    glance: UsageSummary | None = None
    """The usage of a whole answer that need not be parsed further."""
    answer: ChatReply | None = None
    """A whole answer once it has been parsed; see `read`."""
    reader: StreamReader | None = None
    events: list[Event] = field(default_factory=list)
    """Events of a stream that have arrived so far."""
    held: list[bytes] = field(default_factory=list)
    """The bytes of those events, where the stream is passed through."""
    proof: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Headers that authenticated the request."""
    watch: StreamWatch | None = None
    """Limits the rest of a stream; None for a whole answer, and for one that takes several
    requests."""
    idle_s: float | None = None
    """Longest pause between two pieces once content arrives, where a stream is passed through
    before its first content."""

    def content_came(self) -> None:
        """Call once, when the first content of a stream with `idle_s` arrives."""
        assert isinstance(self.reply, Reply)
        self.reply.limit_idle(self.idle_s)
        self.idle_s = None

    def took(self, piece: bytes, events: Sequence[Event]) -> None:
        """Call for each piece of the rest of a stream. Raises UpstreamError where it is to end."""
        if self.watch is not None:
            # Before the first content a provider may think in silence, as long as it may at all.
            thinks = self.idle_s is not None
            media = self.reader is not None and has_media(self.reader)
            self.watch.took(piece, events, silent=not (thinks or media))

    def read(self) -> ChatReply:
        """A whole answer in neutral form, parsed on first use; not for streams."""
        if self.answer is None:
            assert self.body is not None
            self.answer = self.replies.read_reply(self.body)
        return self.answer

    @property
    def secret_headers(self) -> tuple[tuple[str, str], ...]:
        """Headers that only the provider may see."""
        proof = self.reply.proof if isinstance(self.reply, SteppedAnswer) else self.proof
        return (*proof, *self.candidate.target.provider.headers)

    @property
    def replies(self) -> ReplySide:
        """The dialect that reads the target's replies."""
        return self.ready.replies or self.candidate.target.provider.side


async def attempt(
    candidate: Candidate,
    prepared: Prepared,
    ready: Ready,
    *,
    stream: bool,
    most_reply_bytes: int,
    most_stream_bytes: int,
    clock_ns: Callable[[], int],
    now_s: float,
    trace_headers: tuple[tuple[str, str], ...] = (),
    sent: Sent,
) -> Opened:
    """Send a request to one target and wait until it answers.

    `trace_headers` pass the trace on to the provider. `sent` is marked when the request goes out.
    Raises AttemptFailedError; the connection is then free or closed.
    """
    target = candidate.target
    provider = target.provider
    credential = provider.auth.pick(now_s, target.model)
    if credential is None:
        raise AttemptFailedError(all_rest(provider.name, provider.auth, now_s, target.model))
    reply: Reply | SteppedAnswer | None = None
    opened: Opened | None = None
    timeouts = target.timeouts or provider.timeouts
    first_token_s = timeouts.first_byte_s or provider.first_token_s
    no_reply = unsent = False
    proof: tuple[tuple[str, str], ...] = ()
    try:
        with Within(first_token_s):
            path = provider.base.joined(ready.path)
            headers = _each_once(ready.headers + trace_headers, provider.headers)
            if provider.in_steps is not None:
                reply = SteppedAnswer(
                    provider.in_steps.steps(prepared.call_at(target), target.model), provider,
                    provider.in_steps, credential, timeouts, most_reply_bytes,
                    (*trace_headers, *provider.headers),
                )  # fmt: skip
                sent_ns = clock_ns()
                opened = Opened(
                    candidate=candidate, ready=ready, sent_ns=sent_ns, first_ns=sent_ns, reply=reply
                )
                sent.mark()
                await _open_in_steps(opened, reply, stream)
                reply.content_came()
                opened.first_ns = clock_ns()
                return opened
            outgoing = Outgoing("POST", provider.base.origin.host_header, path, headers, ready.body)
            proof = await credential.headers(outgoing)
            headers += proof
            request = request_bytes("POST", provider.base.origin, path, headers, ready.body)
            sent_ns = clock_ns()
            reply = await provider.pool.send(request, timeouts.before_content(), sent.mark)
            opened = Opened(
                candidate=candidate, ready=ready, sent_ns=sent_ns, first_ns=sent_ns, reply=reply
            )
            opened.proof = proof
            if stream:
                opened.watch = StreamWatch(most_stream_bytes, timeouts.idle_s, clock_ns)
            await _open(opened, reply, prepared, stream, most_reply_bytes, timeouts)
        opened.first_ns = clock_ns()
        return opened
    except TimeoutError:
        message = f"no content within {first_token_s:g} s"
        failure, no_reply = Failure(kind="timeout", message=message), True
    except UpstreamError as error:
        failure, unsent = error.failure, error.unsent
        no_reply = error.problem in ("timeout", "cut") or isinstance(reply, Reply)
        sent.is_open = sent.is_open or error.problem == "too_large"
    except DamagedReplyError as error:
        told = f"the reply does not follow the provider's API: {error}"
        failure = error.failure or Failure(kind="damaged", message=told)
        no_reply, sent.told = error.failure is None, error.usage
        sent.told_tier = error.service_tier
    except AttemptFailedError as error:
        failure = error.failure
        # Otherwise it is an error that the provider reported.
        no_reply = isinstance(reply, Reply) and reply.status < 300 and failure.kind in _UNREADABLE
    except asyncio.CancelledError:
        if reply is not None:
            reply.abort()
        raise
    if reply is not None:
        reply.abort()
    if isinstance(reply, SteppedAnswer):
        proof = reply.proof
    failure = without_secrets(failure, (*proof, *provider.headers))
    was_sent = sent.at_ns is not None and not unsent
    if opened is not None:
        _count(opened.events, sent)
    no_reply = no_reply or sent.told is not None
    # An error's body may be cut as well, but errors cost nothing.
    refused = isinstance(reply, Reply) and reply.status >= 400
    no_reply = no_reply and was_sent and not refused
    raise AttemptFailedError(failure, credential, was_sent=was_sent, no_reply=no_reply)


def _count(events: list[Event], sent: Sent) -> None:
    """Record the usage that was reported before the attempt failed."""
    for event in events:
        if isinstance(event, ReplyUsage):
            sent.told = event.usage
        if isinstance(event, ReplyStart | ReplyUsage):
            sent.told_tier = event.service_tier or sent.told_tier


def _each_once(
    of_request: tuple[tuple[str, str], ...], of_provider: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """Headers of both; the request's own win."""
    if not of_provider:
        return of_request
    own_names = {name.lower() for name, _ in of_request}
    return (*of_request, *(header for header in of_provider if header[0] not in own_names))


def has_media(reader: StreamReader) -> bool:
    """Whether part of an image or of audio arrived, for which events come only when it is whole."""
    return isinstance(reader, PartialContentReader) and reader.has_media


async def _open_in_steps(opened: Opened, reply: SteppedAnswer, stream: bool) -> None:
    while True:
        events = await reply.events()
        opened.events += events
        for event in events:
            if isinstance(event, ReplyFailure):
                raise AttemptFailedError(event.failure)
            if isinstance(event, ReplyEnd):
                if not stream:
                    opened.body = b""
                    side = opened.candidate.target.provider.side
                    opened.answer = collected(side.name, opened.events)
                return
            if stream and has_content(event):
                return


async def _open(
    opened: Opened,
    reply: Reply,
    prepared: Prepared,
    stream: bool,
    most_reply_bytes: int,
    timeouts: Timeouts,
) -> None:
    side = opened.replies
    if not 200 <= reply.status < 300:
        reply.limit_idle(timeouts.idle_s)
        body = await reply.body(_MOST_ERROR_BYTES)
        failure = side.read_failure(reply.status, reply.headers, body)
        failure = with_body(failure, side.name, body)
        if reply.status < 400:  # a redirect is not a verdict on the client's request
            failure = msgspec.structs.replace(failure, kind="damaged")
        raise AttemptFailedError(failure)
    kind = reply.headers.get("content-type", "")
    if not stream or kind.startswith("application/json"):
        opened.body = await reply.body(most_reply_bytes)
        glance = opened.candidate.target.provider.glance
        own = opened.ready.passed_on and opened.ready.replies is None
        if glance is not None and own and not stream:
            opened.glance = glance(opened.body)
        if opened.glance is None:
            answer = opened.read()
            if stream:  # the provider does not stream, although the request says so
                opened.events = list(replayed(answer))
        return
    reader = opened.reader = side.stream_reader(prepared.stub)
    passed_on = opened.ready.passed_on
    most_bytes = _MOST_HELD_BYTES if passed_on else MAX_EVENT_BYTES
    came_bytes = 0
    while True:
        piece = await reply.piece()
        events = reader.feed(piece) if piece else reader.end()
        opened.events += events
        came_bytes += len(piece)
        if passed_on:
            opened.held.append(piece)
        for event in events:
            if isinstance(event, ReplyFailure):
                raise AttemptFailedError(event.failure)
            if has_content(event) or isinstance(event, ReplyEnd):
                reply.limit_idle(timeouts.idle_s)
                return
        if has_media(reader):
            reply.limit_idle(timeouts.idle_s)
            return
        tells = reader if isinstance(reader, PartialContentReader) else None
        too_long = came_bytes > most_bytes or len(opened.events) > _MOST_HELD_EVENTS
        if passed_on and piece and (too_long or (tells is not None and tells.has_data)):
            # Reasoning and media made in silence may take as long as the first content.
            opened.idle_s = timeouts.idle_s
            reply.limit_idle(timeouts.first_byte_s)
            return
        if too_long or not piece:
            raise DamagedReplyError(f"{came_bytes:,} bytes of a stream without content")
