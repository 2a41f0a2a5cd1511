"""The interface of a dialect: for clients that speak it, and for providers that do.

All of it is pure: bytes in, values out, no sockets and no clock. A dialect that clients speak has a
`ClientSide`, one that providers speak a `ProviderSide`, some have both. Readers of streams are
state machines over bytes: any way of cutting the stream gives the same events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.citation import Source
from headrace.protocol.neutral.event import Event
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.losses import FieldPaths
from headrace.protocol.neutral.reply import ChatReply, Finish
from headrace.protocol.neutral.usage import TokenUsage

Headers = Mapping[str, str]


class EncodedRequest(NamedTuple):
    """A request to a provider, without its address and key."""

    path: str
    """After the provider's base URL, with its query."""
    headers: Mapping[str, str]
    body: bytes
    dropped: tuple[str, ...] = ()
    """Settings of the call that this dialect cannot express, as names of its fields ("seed",
    "logit_bias", "extra.top_a")."""


class UsageSummary(NamedTuple):
    """The usage, finish reason and tier of a reply: all that is read of one that is passed "
    "through."""

    usage: TokenUsage
    finish: Finish
    service_tier: str | None = None


class StreamReader(Protocol):
    """A reader that is fed bytes as they come."""

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`. Damage is a ReplyFailure, never an exception."""

    def end(self) -> list[Event]:
        """After the last byte: [] after a ReplyEnd or ReplyFailure, else a ReplyFailure."""


@runtime_checkable
class ContentEndReader(Protocol):
    """A StreamReader whose ChoiceEnd events come with the end of the stream, not of the content."""

    @property
    def content_is_over(self) -> bool:
        """Whether nothing but the usage and the end is still to come."""


@runtime_checkable
class PartialContentReader(Protocol):
    """A StreamReader that has seen more than its events tell: of some parts they tell once those
    are whole, of news without a neutral form never."""

    @property
    def has_media(self) -> bool:
        """Whether anything of a picture or of sound came."""

    @property
    def has_data(self) -> bool:
        """Whether anything arrived that was not reported and is neither a ping nor only the
        beginning of an answer or of a part; includes has_media."""


@runtime_checkable
class ToolUseReader(Protocol):
    """A StreamReader that knows of tools that the provider ran, before it tells the usage."""

    @property
    def tools_used(self) -> bool:
        """Whether one of them is billed beside the tokens."""


class StreamWriter(Protocol):
    """A writer of the stream that a client reads. After a ReplyFailure or ReplyEnd nothing more is
    written."""

    def write(self, event: Event) -> bytes:
        """The bytes an event becomes; b"" for those that the dialect has no words for.

        Raises AnswerTooLongError; a ReplyFailure may be written after it.
        """

    def keep_alive(self) -> bytes:
        """Bytes that may be sent between two events to keep the connection open; b"" if there are
        none."""


class ClientSide(Protocol):
    """A dialect that clients speak."""

    @property
    def name(self) -> str:
        """The same for clients and providers of the dialect."""

    @property
    def field_paths(self) -> FieldPaths:
        """Where its clients write the fields of a neutral call."""

    @property
    def cited_sources(self) -> frozenset[Source]:
        """The sources that its answers have a form for."""

    def read_call(self, body: bytes, path: str, headers: Headers) -> ChatCall:
        """Raises RequestError naming the field at fault."""

    def write_reply(self, reply: ChatReply, call: ChatCall) -> bytes:
        """The body of a 200."""

    def stream_writer(self, call: ChatCall) -> StreamWriter:
        """A writer for one answer to `call`."""

    def stream_type(self) -> str:
        """Content type of a stream."""

    def write_failure(self, failure: Failure, status: int, request_id: str) -> bytes:
        """The body of a reply with `status`, an error in this dialect."""


class ReplySide(Protocol):
    """A reader of a provider's answers."""

    @property
    def name(self) -> str:
        """The name of the dialect."""

    def read_reply(self, body: bytes) -> ChatReply:
        """Raises DamagedReplyError if it is none."""

    def stream_reader(self, call: ChatCall) -> StreamReader:
        """A reader for one answer."""

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """Any body at all: what does not parse gives a Failure by the status alone."""


class ProviderSide(ReplySide, Protocol):
    """A dialect that providers speak. Its name is also the origin of its signatures."""

    def write_call(self, call: ChatCall, model: str) -> EncodedRequest:
        """`call` for the provider's `model`; raises RequestError if it cannot be said at all."""


@runtime_checkable
class PromptCacheSide(Protocol):
    """A ProviderSide whose provider can keep cached prompts apart."""

    @property
    def prompt_cache_field(self) -> str | None:
        """The top-level field of a request whose value does; None if this provider has none."""


class AnswerTooLongError(ValueError):
    """An answer that a stream's writer has to keep to its end does not come to one."""


class DamagedReplyError(ValueError):
    """A provider's reply does not follow its dialect; the text names the place.

    failure: the error in the reply, if it is one in spite of its status of success. usage: what it
    reports, which is billed all the same. service_tier: the one it was answered at, if reported.
    """

    def __init__(
        self,
        message: str,
        failure: Failure | None = None,
        usage: TokenUsage | None = None,
        service_tier: str | None = None,
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.usage = usage
        self.service_tier = service_tier
