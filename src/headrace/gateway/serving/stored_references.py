"""What in a request points to things that a provider stores for all who share its key."""

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
"""Of what answers tell the ids of."""
COPIED = "code_interpreter_call.container_id"
"""Of the container that a call of an earlier answer ran in, in a client's copy of that answer."""

_FIELDS = frozenset({"messages", "input", "tools", "tool_resources", "container", "prompt"})
_LISTS = frozenset({"file_ids", "vector_store_ids"})
_ID_FIELDS = _LISTS | {"file_id", "container", "container_id"}
# Schemas and arguments are a client's own words; the others repeat what an answer has said.
_WORDS = frozenset(
    {"parameters", "input_schema", "schema", "metadata", "annotations", "results", "outputs"}
)
# Made once: lists may have millions of strings, each of which is looked at.
_NESTED = (list, dict)
# Of OpenAI's stored prompts: their names are a client's own.
_VARIABLES = "variables"


class StoredReference(NamedTuple):
    """field: where it stands, by name."""

    field: str
    id: str


def stored_references(dialect: str, body: JsonObject) -> Iterator[StoredReference]:
    """All of them, in no order that means something, found as they are asked for: there may be
    millions. Raises RequestError for a body that cannot be read."""
    if not _may_have(dialect, body):
        return
    try:
        asked = msgspec.json.decode(body.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body cannot be read: {error}") from None
    if dialect == RESPONSES:
        yield from _in_response_asked(asked)
    yield from _in_fields({name: asked[name] for name in _FIELDS & asked.keys()})


def _may_have(dialect: str, body: JsonObject) -> bool:
    """Quickly, for most have none. A name may be written with escapes."""
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
            # One that has its picture in it is content; the provider puts in what is stored.
            elif kind == PICTURE and not item.get("result"):
                yield StoredReference(PICTURE, item["id"])


def _in_fields(asked: dict[str, Any]) -> Iterator[StoredReference]:
    """Wherever they are, as deep as a body may be."""
    left: list[tuple[object, bool]] = [(asked, False)]
    while left:
        value, in_call = left.pop()
        if isinstance(value, list):
            left += [(one, in_call) for one in value if isinstance(one, _NESTED)]
        elif isinstance(value, dict) and not _is_told_result(value):
            in_call = in_call or str(value.get("type", "")).endswith("_call")
            words = _WORDS | {"input"} if _is_call(value) else _WORDS
            for name, inner in value.items():
                if name == _VARIABLES and isinstance(inner, dict):
                    left += ((one, in_call) for one in inner.values())
                    continue
                if name in _ID_FIELDS:
                    copied = in_call and name == "container_id"
                    yield from _ids(COPIED if copied else name, inner)
                if name not in words and isinstance(inner, _NESTED):
                    left.append((inner, in_call))


def _ids(name: str, value: object) -> Iterator[StoredReference]:
    if name == "container" and isinstance(value, dict):
        value = value.get("id")
    for one in value if name in _LISTS and isinstance(value, list) else (value,):
        if isinstance(one, str):
            yield StoredReference(name, one)


def _is_call(value: dict[str, Any]) -> bool:
    """Of a tool by the model, whose input is any object."""
    return str(value.get("type", "")).endswith("tool_use")


def _is_told_result(value: dict[str, Any]) -> bool:
    """Of a provider's own tool, as an answer told it; a client's own is a plain tool_result."""
    return str(value.get("type", "")).endswith("_tool_result")
