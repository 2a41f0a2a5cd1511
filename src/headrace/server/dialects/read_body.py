"""A client's body as a call of its dialect, and as our own request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from headrace.protocol.field_path import has_field, place_of
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.openai.chat import ChatCompletionRequest
from headrace.server.dialects.call_request import chat_request


class ReadBody(NamedTuple):
    """A call, and the request that it is."""

    call: ChatCall
    request: ChatCompletionRequest
    ignored: tuple[str, ...]
    """Hints that have no effect here, by the client's names."""
    has: Callable[[str], bool]
    """Whether the client's body has a field at a path."""


def read_body(
    body: bytes,
    side: ClientSide,
    path: str,
    headers: Mapping[str, str],
    *,
    adapt: Callable[[ChatCall], ChatCall] = lambda call: call,
    more: dict[str, Any] | None = None,
    continues: bool = False,
    taken: frozenset[str] = frozenset(),
) -> ReadBody:
    """Raises RequestError naming the client's field at fault.

    adapt: what this server changes of a call. more, continues, taken: as of `chat_request`.
    """
    call = adapt(side.read_call(body, path, headers))
    return with_request(call, body, side, more=more, continues=continues, taken=taken)


def with_request(
    call: ChatCall,
    body: bytes,
    side: ClientSide,
    *,
    more: dict[str, Any] | None = None,
    continues: bool = False,
    taken: frozenset[str] = frozenset(),
) -> ReadBody:
    """A call that was read from a body; arguments and errors as of `read_body`."""
    fields = _Fields(body)
    request, ignored = chat_request(
        call,
        side,
        has=fields.has,
        place=fields.place,
        more=more,
        continues=continues,
        taken=taken,
    )
    return ReadBody(call, request, ignored, fields.has)


class _Fields:
    """The fields of a body, looked up only where an error or a hint has to be named."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    @cached_property
    def _read(self) -> JsonObject:
        return JsonObject.read(self._body)

    def has(self, path: str) -> bool:
        """Whether the body has a field at a path."""
        return has_field(self._read, path)

    def place(self, path: str) -> str:
        """Where the body has the first field that a path leads to."""
        return place_of(self._read, path)
