"""The ids of objects stored at a provider, in the bytes of a passed-through answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

MOST_ITEMS = 256
"""Items of one answer; a client that continues from it may refer to each."""

# Events that contain a whole answer, at its beginning and at its end.
_TELLING = re.compile(
    rb"response\.(?:created|completed|incomplete|failed)|message_start|message_delta"
)


class ToldIds(NamedTuple):
    """Ids in an answer."""

    stored: tuple[str, ...] = ()
    """The id of the response, then those of its items."""
    containers: tuple[str, ...] = ()
    """Containers in which the provider ran tools."""


class _Item(msgspec.Struct):
    id: Any = None
    container_id: Any = None
    environment: Any = None


class _Answer(msgspec.Struct):
    """An answer of the Responses API; `container` is of Anthropic's."""

    id: Any = None
    output: list[_Item] | None = None
    container: Any = None


class _Event(msgspec.Struct):
    response: _Answer | None = None
    message: _Answer | None = None
    delta: _Answer | None = None


_ANSWERS = msgspec.json.Decoder(_Answer)
_EVENTS = msgspec.json.Decoder(_Event)


def ids_in_answer(body: bytes) -> ToldIds:
    """Ids of a whole answer; none if it is not readable."""
    try:
        return _told([_ANSWERS.decode(body)])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ToldIds()


def ids_in_events(piece: bytes) -> ToldIds:
    """Ids in whole events of a stream; nearly all have none."""
    if _TELLING.search(piece) is None:
        return ToldIds()
    return _told(list(_in_events(piece)))


def _in_events(piece: bytes) -> Iterator[_Answer]:
    for line in piece.splitlines():
        if line.startswith(b"data:") and _TELLING.search(line) is not None:
            try:
                event = _EVENTS.decode(line[5:])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            yield from (
                answer
                for answer in (event.response, event.message, event.delta)
                if answer is not None
            )


def _told(answers: list[_Answer]) -> ToldIds:
    stored: list[Any] = []
    containers: list[Any] = []
    for answer in answers:
        stored.append(answer.id)
        containers.append(_field(answer.container, "id"))
        for item in (answer.output or ())[:MOST_ITEMS]:
            stored.append(item.id)
            containers += (item.container_id, _field(item.environment, "container_id"))
    return ToldIds(_texts(stored), _texts(containers))


def _field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _texts(values: list[Any]) -> tuple[str, ...]:
    """The texts among the values, each once."""
    return tuple(dict.fromkeys(value for value in values if value and isinstance(value, str)))
