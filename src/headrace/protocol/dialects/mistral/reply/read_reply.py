"""The reader of Mistral's replies. A finish reason of "error" means that there is no answer."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import mapping, read_object, text
from headrace.protocol.dialects.mistral.names import DIALECT
from headrace.protocol.dialects.mistral.reply.choice_reader import ChoiceReader
from headrace.protocol.dialects.mistral.reply.failures import is_error, reported_failure
from headrace.protocol.dialects.mistral.reply.usage import read_usage
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import ChoiceEnd, Event, ReplyStart, ReplyUsage
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply, Finish

_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}


def read_finish(reason: str) -> Finish | Failure:
    """The finish reason; an unknown one is "stop"."""
    if reason == "error":
        return Failure(kind="server", message="Mistral gave up on the answer", code=reason)
    return _FINISHES.get(reason, "stop")


# A choice's number goes where lists are made of it; nobody asks for so many.
MOST_CHOICES = 128


def read_reply(body: bytes) -> ChatReply:
    """Read as a stream of one event for each choice, so that both forms give the same.

    Raises DamagedReplyError, with a failure in it for the finish reason "error" and for a body
    that tells of an error in spite of its status.
    """
    reply = read_object(body)
    if is_error(reply):
        failure = reported_failure(reply)
        raise DamagedReplyError(failure.message, failure)
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices:
        raise DamagedReplyError("the reply has no choices")
    events: list[Event] = [read_began(reply)]
    seen: set[int] = set()
    for choice in map(mapping, choices):
        index = read_index(choice)
        if index in seen:
            raise DamagedReplyError(f"the reply has two choices of index {index}")
        seen.add(index)
        _read_choice(index, choice, events)
    usage = read_usage(reply.get("usage"))
    if usage is not None:
        events.append(ReplyUsage(usage=usage))
    return collected(DIALECT, events)


def read_began(reply: dict[str, Any]) -> ReplyStart:
    """The ReplyStart event of a reply or of the first event of a stream."""
    created = reply.get("created")
    whole = isinstance(created, int) and not isinstance(created, bool)
    return ReplyStart(
        id=text(reply.get("id")),
        model=text(reply.get("model")),
        created_s=created if whole else None,
    )


def read_index(choice: dict[str, Any]) -> int:
    """A choice's number, 0 if it is missing; raises DamagedReplyError for an implausible one."""
    index = choice.get("index", 0)
    if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < MOST_CHOICES:
        return index
    raise DamagedReplyError(f"a choice's index is not from 0 to {MOST_CHOICES - 1}")


def _read_choice(index: int, choice: dict[str, Any], events: list[Event]) -> None:
    message = choice.get("message")
    reason = text(choice.get("finish_reason"))
    if not isinstance(message, dict) or not reason:
        raise DamagedReplyError(f"choice {index} has no message or no finish_reason")
    finish = read_finish(reason)
    if isinstance(finish, Failure):
        raise DamagedReplyError(finish.message, finish)
    reader = ChoiceReader(index)
    reader.take(message, events, whole=True)
    reader.close(events)
    events.append(ChoiceEnd(choice=index, reason=finish))
