"""A client's `input`: a text, or items in the order of the conversation.

Several items of the model in a row are one turn. Items that no other API knows are Opaque; an
unknown part of a message is Opaque {"content_part": ...}.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec.structs import replace

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.openai_responses.ids import foreign_id
from headrace.protocol.dialects.openai_responses.media import MEDIA_TYPES, cache_mark, read_media
from headrace.protocol.dialects.openai_responses.request.fields import (
    missing,
    objects_of,
    required_string,
    string,
    wrong,
)
from headrace.protocol.dialects.openai_responses.sealed import OPENAI, Sealed, unseal
from headrace.protocol.dialects.openai_responses.text_parts import content_part, message_extra
from headrace.protocol.dialects.openai_responses.thoughts import reasoning_parts
from headrace.protocol.dialects.openai_responses.values import DIALECT, rest
from headrace.protocol.neutral.call import Message
from headrace.protocol.neutral.carried_id import unpack
from headrace.protocol.neutral.part import Media, Opaque, Part, Text, ToolCall, ToolResult

_MESSAGE = frozenset({"type", "role", "content"})
_MODEL_MESSAGE = _MESSAGE | {"id", "phase", "status"}
_CALL = frozenset({"type", "call_id", "name", "arguments", "id"})
_RESULT = frozenset({"type", "call_id", "output", "id", "name"})
_REASONING = frozenset({"type", "id", "summary", "content", "encrypted_content", "status"})
_TEXT = frozenset({"type", "text"})

# Items of the client's side whose names do not end in "_output".
_FROM_CLIENT = frozenset(
    {"mcp_approval_response", "additional_tools", "compaction_trigger", "configuration_update"}
)


class Input:
    """A reader of items, one by one."""

    def __init__(self) -> None:
        self.instructions: list[Text] = []
        self.messages: list[Message] = []
        self._said: list[Part] = []

    def take(self, item: dict[str, Any], at: str) -> None:
        """One item. at: its path, ending in "."."""
        kind = item.get("type")
        if kind is None:
            kind = "message" if "role" in item else "item_reference"
        if kind == "message":
            self._message(item, at)
        elif kind == "function_call":
            self._said.append(_tool_call(item, at))
        elif kind == "function_call_output":
            self._turn(_tool_result(item, at))
        elif kind == "reasoning":
            self._reasoning(item, at)
        elif not isinstance(kind, str):
            raise wrong(f"{at}type", "a string", kind)
        elif kind.endswith("_output") or kind in _FROM_CLIENT:
            self._turn(Message(role="user", parts=(Opaque(DIALECT, item),)))
        else:
            self._said.append(_hosted(item))

    def end(self) -> None:
        """After the last item."""
        if self._said:
            self.messages.append(Message(role="assistant", parts=tuple(self._said)))
            self._said = []

    def _turn(self, message: Message) -> None:
        self.end()
        self.messages.append(message)

    def _message(self, item: dict[str, Any], at: str) -> None:
        role = item.get("role")
        if role == "assistant":
            self._said += _assistant_parts(item, at)
            return
        if role not in ("user", "system", "developer"):
            raise RequestError(
                f"{at}role: {shown(role)} is not one of user, assistant, system, developer",
                param=f"{at}role",
                code="invalid_value",
            )
        parts = _parts(item, at, "content")
        if role == "user":
            extra = rest(item, _MESSAGE)
            if foreign_id(str(extra.get("id", ""))) is None:
                extra.pop("id", None)
            self._turn(Message(role="user", parts=tuple(parts), extra=extra))
            return
        texts = [part for part in parts if isinstance(part, Text)]
        if self.messages or self._said or len(texts) < len(parts):
            extra = {"role": role, **rest(item, _MESSAGE | {"id", "status"})}
            self._turn(Message(role="user", parts=tuple(parts), extra=extra))
            return
        for text in texts:
            extra = {"role": role, **text.extra}
            self.instructions.append(Text(text=text.text, cache=text.cache, extra=extra))

    def _reasoning(self, item: dict[str, Any], at: str) -> None:
        for name in ("summary", "content"):
            for index, inner in enumerate(objects_of(item, name, at)):
                required_string(inner, "text", f"{at}{name}[{index}].")
        string(item, "id", at)
        encrypted = string(item, "encrypted_content", at)
        sealed = unseal(encrypted) if encrypted else None
        if sealed is not None and sealed.of != "thought":
            self._sign(sealed)
            return
        signature = sealed.signature if sealed else None
        foreign = signature is not None and signature.origin != OPENAI
        parts = reasoning_parts(item, signature, of_text=foreign)
        if not parts or rest(item, _REASONING):
            self._said.append(Opaque(DIALECT, item))
        else:
            self._said += parts

    def _sign(self, sealed: Sealed) -> None:
        """Gives the signature to the text before it, or to the call that it names."""
        for at in range(len(self._said) - 1, -1, -1):
            part = self._said[at]
            if sealed.of == "text" and isinstance(part, Text):
                self._said[at] = replace(part, signature=sealed.signature)
                return
            if sealed.of == "call" and isinstance(part, ToolCall) and part.id == sealed.call_id:
                self._said[at] = replace(part, signature=sealed.signature)
                return


def read_input(value: Any) -> Input:
    """All of `input`; raises RequestError naming the item at fault."""
    taken = Input()
    if isinstance(value, str):
        taken.messages.append(Message(role="user", parts=(Text(text=value),)))
        return taken
    for index, item in enumerate(objects_of({"input": value}, "input")):
        taken.take(item, f"input[{index}].")
    taken.end()
    return taken


def _assistant_parts(item: dict[str, Any], at: str) -> list[Part]:
    content = item.get("content")
    extra = rest(item, _MODEL_MESSAGE) | message_extra(item)
    if isinstance(content, str):
        return [Text(text=content, extra=extra)]
    parts: list[Part] = []
    for index, inner in enumerate(objects_of(item, "content", at)):
        place = f"{at}content[{index}]."
        kind = inner.get("type")
        if kind == "input_text":
            parts.append(Text(text=required_string(inner, "text", place), extra=dict(extra)))
            continue
        if kind in ("output_text", "refusal"):
            required_string(inner, "text" if kind == "output_text" else "refusal", place)
        parts.append(content_part(inner, item))
    return parts


def _parts(item: dict[str, Any], at: str, name: str) -> list[Text | Media | Opaque]:
    """A user's content, or a tool's output."""
    value = item.get(name)
    if value is None:
        raise missing(f"{at}{name}")
    if isinstance(value, str):
        return [Text(text=value)]
    return [
        _part(inner, f"{at}{name}[{index}].")
        for index, inner in enumerate(objects_of(item, name, at))
    ]


def _part(part: dict[str, Any], at: str) -> Text | Media | Opaque:
    kind = part.get("type")
    if kind in ("input_text", "text", "output_text"):
        words = required_string(part, "text", at)
        return Text(text=words, cache=cache_mark(part), extra=rest(part, _TEXT))
    if not isinstance(kind, str):
        raise missing(f"{at}type") if kind is None else wrong(f"{at}type", "a string", kind)
    if kind in MEDIA_TYPES:
        return read_media(part, at)
    return Opaque(DIALECT, {"content_part": part})


def _tool_call(item: dict[str, Any], at: str) -> ToolCall:
    call_id, signature = unpack(required_string(item, "call_id", at))
    extra = rest(item, _CALL)
    # What a client repeats of a finished item says nothing.
    if extra.get("status") == "completed":
        del extra["status"]
    if id := foreign_id(string(item, "id", at) or ""):
        extra["item_id"] = id
    return ToolCall(
        id=call_id,
        name=required_string(item, "name", at),
        arguments=required_string(item, "arguments", at),
        signature=signature,
        extra=extra,
    )


def _tool_result(item: dict[str, Any], at: str) -> Message:
    call_id, _ = unpack(required_string(item, "call_id", at))
    content: list[Text | Media] = []
    for index, inner in enumerate(_parts(item, at, "output")):
        if isinstance(inner, Opaque):
            place = f"{at}output[{index}].type"
            raise RequestError(
                f"{place}: {shown(inner.value['content_part'].get('type'))} is not one of "
                "input_text, input_image, input_file",
                param=place,
                code="invalid_value",
            )
        content.append(inner)
    extra = rest(item, _RESULT)
    if id := foreign_id(string(item, "id", at) or ""):
        extra["item_id"] = id
    result = ToolResult(
        call_id=call_id, content=tuple(content), name=string(item, "name", at) or ""
    )
    return Message(role="tool", parts=(result,), extra=extra)


def _hosted(item: dict[str, Any]) -> Part:
    """An item of the model's side; a picture that we named is another vendor's."""
    id, result = item.get("id"), item.get("result")
    kind: Literal["image"] = "image"
    if (
        item.get("type") == "image_generation_call"
        and isinstance(id, str)
        and id
        and foreign_id(id) is None
        and isinstance(result, str)
    ):
        form = item.get("output_format")
        mime = f"image/{form}" if isinstance(form, str) else ""
        return Media(kind=kind, mime=mime, data=result)
    return Opaque(DIALECT, item)
