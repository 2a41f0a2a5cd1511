"""References in a request to objects that a provider stores for all who share its key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from headrace.errors import RequestError
from headrace.protocol.json_object import JsonObject

RESPONSES = "openai-responses"
PREVIOUS = "previous_response_id"
ITEM = "item_reference"
PICTURE = "image_generation_call"
TOLD = frozenset({PREVIOUS, ITEM, PICTURE, "container", "container_id"})
"""References to objects whose ids answers contain."""
COPIED = "code_interpreter_call.container_id"
"""The container of an earlier tool call, in the client's copy of that answer."""

_FIELDS = frozenset({"messages", "input", "tools", "tool_resources", "container", "prompt"})
_LISTS = frozenset({"file_ids", "vector_store_ids"})
_ID_FIELDS = _LISTS | {"file_id", "container", "container_id"}
# Schemas and arguments are the client's own; the others repeat what an answer contained.
_WORDS = frozenset(
    {"parameters", "input_schema", "schema", "metadata", "annotations", "results", "outputs"}
)
# Made once: lists may have millions of strings, each of which is looked at.
_NESTED = (list, dict)
# Variables of OpenAI's stored prompts, whose names are the client's own.
_VARIABLES = "variables"


class StoredReference(NamedTuple):
    """A reference to a stored object: the name of the field it stands in, and the id."""

    field: str
    id: str


def stored_references(dialect: str, body: JsonObject) -> Iterator[StoredReference]:
    """All references of a request, in no particular order, found lazily: there may be millions.
    Raises RequestError for a body that is not readable."""
    if not _may_have(dialect, body):
        return
    try:
        asked = msgspec.json.decode(body.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is not readable: {error}") from None
    if dialect == RESPONSES:
        yield from _in_response_asked(asked)
    yield from _in_fields({name: asked[name] for name in _FIELDS & asked.keys()})


def _may_have(dialect: str, body: JsonObject) -> bool:
    """A quick check, as most have none. A name may be written with escapes."""
    if dialect == RESPONSES:
        return True
    if dialect not in ("openai-chat", "anthropic"):
        return False
    raw = body.body
    return b"file_id" in raw or b"\\u00" in raw or "container" in body


def _in_response_asked(asked: dict[str, Any]) -> Iterator[StoredReference]:
    previous, conversation = asked.get(PREVIOUS), asked.get("conversation")
    if isinstance(previous, str):
        yield StoredReference(PREVIOUS, previous)
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    if isinstance(conversation, str):
        yield StoredReference("conversation", conversation)
    items = asked.get("input")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            kind = item.get("type")
            if kind == ITEM or (kind is None and "role" not in item):
                yield StoredReference(ITEM, item["id"])
            # One that contains its picture is content; otherwise the provider inserts the stored.
            elif kind == PICTURE and not item.get("result"):
                yield StoredReference(PICTURE, item["id"])


def _in_fields(asked: dict[str, Any]) -> Iterator[StoredReference]:
    """References in these fields at any depth."""
    left: list[tuple[object, bool]] = [(asked, False)]
    while left:
        value, in_call = left.pop()
        if isinstance(value, list):
            left += [(inner, in_call) for inner in value if isinstance(inner, _NESTED)]
        elif isinstance(value, dict) and not _is_told_result(value):
            in_call = in_call or str(value.get("type", "")).endswith("_call")
            words = _WORDS | {"input"} if _is_call(value) else _WORDS
            for name, inner in value.items():
                if name == _VARIABLES and isinstance(inner, dict):
                    left += ((variable, in_call) for variable in inner.values())
                    continue
                if name in _ID_FIELDS:
                    copied = in_call and name == "container_id"
                    yield from _ids(COPIED if copied else name, inner)
                if name not in words and isinstance(inner, _NESTED):
                    left.append((inner, in_call))


def _ids(name: str, value: object) -> Iterator[StoredReference]:
    if name == "container" and isinstance(value, dict):
        value = value.get("id")
    for stored_id in value if name in _LISTS and isinstance(value, list) else (value,):
        if isinstance(stored_id, str):
            yield StoredReference(name, stored_id)


def _is_call(value: dict[str, Any]) -> bool:
    """Whether it is a tool call by the model, whose input may be any object."""
    return str(value.get("type", "")).endswith("tool_use")


def _is_told_result(value: dict[str, Any]) -> bool:
    """Whether it repeats a result of a provider's own tool; a client's is a plain tool_result."""
    return str(value.get("type", "")).endswith("_tool_result")
