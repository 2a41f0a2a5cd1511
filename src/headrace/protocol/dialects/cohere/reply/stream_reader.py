"""The reader of Cohere's streams: one choice, its blocks between start and end events, all closed
at message-end."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.cohere.reply.citations import read_citations
from headrace.protocol.dialects.cohere.reply.failures import failure_kind
from headrace.protocol.dialects.cohere.reply.finish import read_finish, read_logprob
from headrace.protocol.dialects.cohere.reply.usage import read_usage
from headrace.protocol.dialects.json_values import (
    json_text,
    mapping,
    objects,
    read_object,
    text,
)
from headrace.protocol.dialects.status_failure import short
from headrace.protocol.neutral.arguments import GrowingArguments
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    Kind,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.protocol.sse import DONE_DATA, SSEReader, StreamTooLargeError
from headrace.protocol.sse import Event as ServerSentEvent

# Far more than answers have; a provider must not fill our memory.
_MOST_OPEN_CALLS = 1024
_MOST_CITATION_CHARACTERS = 16 * 2**20

# Which growing part an event is of: its kind and its block's index; the plan has none.
_Place = tuple[Kind, int]
_PLAN: _Place = ("text", -1)


class CohereStreamReader:
    """A `StreamReader`. Empty pieces open no part. Citations come before the end of their text,
    which waits for what follows it, and with ChoiceEnd in Cohere's form."""

    def __init__(self) -> None:
        self._sse = SSEReader()
        self._began = False
        self._over = False
        self._parts = 0
        self._place: _Place | None = None
        self._calls: dict[int, tuple[int, GrowingArguments]] = {}
        """Number of the part, and arguments, of each open call."""
        self._citations: list[dict[str, Any]] = []
        self._uncited: list[dict[str, Any]] = []
        """Those of the open text."""
        self._citation_characters = 0

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`."""
        events: list[Event] = []
        if self._over:
            return events
        try:
            for event in self._sse.feed(piece):
                self._take(event, events)
                if self._over:
                    break
        except (DamagedReplyError, StreamTooLargeError) as error:
            self._fail(events, "damaged", str(error))
        return events

    def end(self) -> list[Event]:
        """A ReplyFailure if the stream stopped before message-end."""
        events: list[Event] = []
        if not self._over:
            self._fail(events, "network", "Cohere's stream stopped before its end")
        return events

    def _fail(self, events: list[Event], kind: FailureKind, message: str) -> None:
        self._over = True
        events.append(ReplyFailure(Failure(kind=kind, message=short(message))))

    def _take(self, one: ServerSentEvent, events: list[Event]) -> None:
        if one.data == DONE_DATA:
            self._fail(events, "network", "Cohere's stream ended without message-end")
            return
        value = read_object(one.data)
        kind = text(value.get("type")) or one.event
        if kind == "message-start":
            self._begin(events, text(value.get("id")))
            return
        message = mapping(mapping(value.get("delta")).get("message"))
        if kind == "content-delta" or kind == "content-start":
            self._take_content(value, mapping(message.get("content")), events)
        elif kind == "tool-plan-delta":
            self._grow(events, _PLAN, text(message.get("tool_plan")), None)
        elif kind == "tool-call-start":
            self._open_call(_index(value), _one(message.get("tool_calls")), events)
        elif kind == "tool-call-delta":
            self._grow_call(_index(value), _one(message.get("tool_calls")), events)
        elif kind == "tool-call-end":
            self._close_call(_index(value), events)
        elif kind == "citation-start":
            self._keep_citation(_one(message.get("citations")), len(one.data))
        elif kind == "message-end":
            self._finish(mapping(value.get("delta")), events)
        elif kind == "error" or ("type" not in value and text(value.get("message"))):
            words = text(value.get("message")) or text(mapping(value.get("error")).get("message"))
            known = failure_kind(400, words)
            self._fail(
                events,
                "server" if known == "bad_request" else known,
                words or "Cohere's stream ended with an error",
            )

    def _begin(self, events: list[Event], id: str = "") -> None:
        if not self._began:
            self._began = True
            events.append(ReplyStart(id=id, model=""))

    def _take_content(
        self, value: dict[str, Any], content: dict[str, Any], events: list[Event]
    ) -> None:
        item = value.get("logprobs")
        logprob = read_logprob(item) if isinstance(item, dict) else None
        thought = text(content.get("thinking"))
        if thought:
            self._grow(events, ("thinking", _index(value)), thought, logprob)
            logprob = None
        self._grow(events, ("text", _index(value)), text(content.get("text")), logprob)

    def _grow(
        self, events: list[Event], place: _Place, piece: str, logprob: dict[str, Any] | None
    ) -> None:
        if not piece:
            return
        if self._place != place:
            self._close_all(events)
            self._begin(events)
            events.append(PartStart(choice=0, part=self._parts, kind=place[0]))
            self._place = place
            self._parts += 1
        events.append(
            PartDelta(
                choice=0,
                part=self._parts - 1,
                text=piece,
                logprobs=None if logprob is None else [logprob],
            )
        )

    def _open_call(self, index: int, call: dict[str, Any], events: list[Event]) -> None:
        function = mapping(call.get("function"))
        name = text(function.get("name"))
        if not name:
            raise DamagedReplyError("a tool call has no name")
        if len(self._calls) >= _MOST_OPEN_CALLS:
            raise DamagedReplyError(f"more than {_MOST_OPEN_CALLS} tool calls are open")
        self._close_text(events)
        self._close_call(index, events)
        self._begin(events)
        id = text(call.get("id"))
        events.append(PartStart(choice=0, part=self._parts, kind="tool_call", id=id, name=name))
        self._calls[index] = self._parts, GrowingArguments()
        self._parts += 1
        self._grow_call(index, call, events)

    def _grow_call(self, index: int, call: dict[str, Any], events: list[Event]) -> None:
        if index not in self._calls:
            raise DamagedReplyError(f"arguments arrived for tool call {index}, which is not open")
        part, arguments = self._calls[index]
        piece = arguments.take(json_text(mapping(call.get("function")).get("arguments")))
        if piece:
            events.append(PartDelta(choice=0, part=part, text=piece))

    def _close_text(self, events: list[Event]) -> None:
        if self._place is not None:
            part = self._parts - 1
            cited, self._uncited = self._uncited, []
            if cited and self._place[0] == "text" and self._place != _PLAN:
                citations = read_citations(cited)
                events.append(PartDelta(choice=0, part=part, text="", citations=citations))
            self._place = None
            events.append(PartEnd(choice=0, part=part))

    def _close_call(self, index: int, events: list[Event]) -> None:
        if index not in self._calls:
            return
        part, arguments = self._calls.pop(index)
        if rest := arguments.end():
            events.append(PartDelta(choice=0, part=part, text=rest))
        events.append(PartEnd(choice=0, part=part))

    def _close_all(self, events: list[Event]) -> None:
        self._close_text(events)
        for index in tuple(self._calls):
            self._close_call(index, events)

    def _keep_citation(self, citation: dict[str, Any], characters: int) -> None:
        self._citation_characters += characters
        if self._citation_characters > _MOST_CITATION_CHARACTERS:
            raise DamagedReplyError(
                f"the citations together exceed {_MOST_CITATION_CHARACTERS} characters"
            )
        if citation:
            self._citations.append(citation)
            self._uncited.append(citation)

    def _finish(self, delta: dict[str, Any], events: list[Event]) -> None:
        """An answer that failed is counted all the same: what was made of it may be billed."""
        self._begin(events)
        self._close_all(events)
        finish = read_finish(text(delta.get("finish_reason")), text(delta.get("error")))
        if not isinstance(finish, Failure):
            extra = {"citations": self._citations} if self._citations else {}
            events.append(ChoiceEnd(choice=0, reason=finish, extra=extra))
        usage = read_usage(delta.get("usage"))
        if usage is not None:
            events.append(ReplyUsage(usage=usage))
        events.append(ReplyFailure(finish) if isinstance(finish, Failure) else ReplyEnd())
        self._over = True


def _index(value: dict[str, Any]) -> int:
    index = value.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) else 0


def _one(value: Any) -> dict[str, Any]:
    """The description says that there is one; some describe a list of one."""
    return next(iter(objects(value)), {}) if isinstance(value, list) else mapping(value)
