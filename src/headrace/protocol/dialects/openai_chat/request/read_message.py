"""A conversation as clients write it: messages in, neutral messages and instructions out."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import msgspec

from headrace.errors import RequestError
from headrace.protocol.dialects.openai_chat.media import read_media
from headrace.protocol.dialects.openai_chat.request.fields import refuse
from headrace.protocol.dialects.openai_chat.thoughts import (
    google_signature,
    read_call_signature,
    read_details,
    sign_calls,
)
from headrace.protocol.dialects.openai_chat.values import DIALECT, left_over, mapping, text
from headrace.protocol.neutral.call import Message
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Opaque,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_MEDIA = frozenset({"image_url", "input_audio", "file", "video_url", "audio_url"})
_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})
_PLAIN = frozenset({"role", "content", "name"})
_ASSISTANT = _PLAIN | {
    "refusal",
    "tool_calls",
    "function_call",
    "audio",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
}
_TOOL = _PLAIN | {"tool_call_id"}
_CALL = frozenset({"id", "type", "index", "function", "cache_control"})


class Conversation(NamedTuple):
    """Instructions and messages, as in ChatCall."""

    instructions: tuple[Text, ...]
    messages: tuple[Message, ...]


def made_id(*origin: object) -> str:
    """The id of a tool call that came without one: the same wherever it is made again."""
    digest = hashlib.blake2b("/".join(map(str, origin)).encode(), digest_size=12)
    return f"call_{digest.hexdigest()}"


def read_messages(value: Any) -> Conversation:
    """Raises RequestError naming the message and its field."""
    if value is None:
        raise RequestError("messages: this field is required", param="messages")
    if not isinstance(value, list) or not value:
        raise refuse("messages", value, "a list of at least one message")
    instructions: list[Text] = []
    messages: list[Message] = []
    called: dict[str, str] = {}
    for index, message in enumerate(value):
        at = f"messages[{index}]"
        if not isinstance(message, dict):
            raise refuse(at, message, "an object")
        role = message.get("role")
        if role not in _ROLES:
            raise refuse(f"{at}.role", role, f"one of {', '.join(_ROLES)}")
        if role in ("system", "developer") and not messages:
            instructions += _read_instructions(message, at)
        elif role == "assistant":
            messages.append(_read_assistant(message, at, index, called))
        elif role in ("tool", "function"):
            messages.append(_read_result(message, at, called))
        else:
            messages.append(_read_user(message, at))
    return Conversation(tuple(instructions), tuple(messages))


def _extra(message: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {
        name: value for name, value in message.items() if name not in known and value is not None
    }


def _name(message: dict[str, Any], at: str) -> str | None:
    name = message.get("name")
    if name is not None and not isinstance(name, str):
        raise refuse(f"{at}.name", name, "a string")
    return name


def _read_instructions(message: dict[str, Any], at: str) -> list[Text]:
    """extra of a Text: role and name where said, same_message after the first of a message.

    Unknown fields of the message are there under "message".
    """
    texts = read_content(message.get("content"), f"{at}.content")
    extra: dict[str, Any] = {}
    if message["role"] != "system":
        extra["role"] = message["role"]
    if _name(message, at) is not None:
        extra["name"] = message["name"]
    rest = _extra(message, _PLAIN)
    if rest:
        extra["message"] = rest
    found: list[Text] = []
    for part in texts:
        if not isinstance(part, Text):
            raise refuse(f"{at}.content", message.get("content"), "text, as this role must have")
        more = extra | ({"same_message": True} if found else {})
        found.append(msgspec.structs.replace(part, extra=part.extra | more) if more else part)
    return found


def _read_user(message: dict[str, Any], at: str) -> Message:
    extra = _extra(message, _PLAIN)
    if message["role"] != "user":
        extra["role"] = message["role"]
    return Message(
        role="user",
        parts=tuple(read_content(message.get("content"), f"{at}.content")),
        name=_name(message, at),
        extra=extra,
    )


def read_content(content: Any, at: str) -> list[Part]:
    """A string, or parts."""
    if isinstance(content, str):
        return [Text(text=content)]
    if not isinstance(content, list):
        raise refuse(at, content, "a string or a list of content parts")
    return [_read_part(part, f"{at}[{number}]") for number, part in enumerate(content)]


def _read_part(part: Any, at: str) -> Part:
    if isinstance(part, str):
        return Text(text=part)
    if not isinstance(part, dict):
        raise refuse(at, part, "an object")
    kind = part.get("type")
    if not isinstance(kind, str):
        raise refuse(f"{at}.type", kind, "a string")
    cache = _read_mark(part)
    if kind == "text":
        words = part.get("text")
        if not isinstance(words, str):
            raise refuse(f"{at}.text", words, "a string")
        return Text(text=words, cache=cache, extra=_extra(part, _MARKS | {"type", "text"}))
    if kind == "refusal":
        return Refusal(text(part.get("refusal")))
    if kind in _MEDIA:
        media = read_media(kind, part, cache)
        if media is None:
            raise refuse(f"{at}.{kind}", part.get(kind), "an object with its data or address")
        return media
    return Opaque(DIALECT, part)


def _read_mark(part: dict[str, Any]) -> CacheMark | None:
    control = part.get("cache_control")
    if isinstance(control, dict):
        ttl = control.get("ttl")
        return CacheMark(ttl if ttl in ("5m", "1h") else None)
    return CacheMark() if isinstance(part.get("prompt_cache_breakpoint"), dict) else None


def _read_assistant(
    message: dict[str, Any], at: str, index: int, called: dict[str, str]
) -> Message:
    parts: list[Part] = [*read_thoughts(message)]
    if not parts and message.get("reasoning_content") == "":
        parts.append(Thinking(text=""))  # DeepSeek wants the field where tools were called
    content = message.get("content")
    if content is not None:
        read = read_content(content, f"{at}.content")
        # Clients write "" where there is none.
        parts += [made for made in read if not (isinstance(made, Text) and not made.text)]
    refusal = text(message.get("refusal"))
    if refusal:
        parts.append(Refusal(refusal))
    voice = text(mapping(message.get("audio")).get("id"))
    if voice:
        parts.append(Media(kind="audio", file_id=voice))
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise refuse(f"{at}.tool_calls", calls, "a list")
    for number, call in enumerate(calls or ()):
        parts.append(_read_call(call, f"{at}.tool_calls[{number}]", (index, number)))
    if not calls and message.get("function_call") is not None:
        call = {"function": message["function_call"]}
        parts.append(_read_call(call, f"{at}.function_call", (index, 0)))
    for part in parts:
        if isinstance(part, ToolCall):
            called[part.name] = part.id
    extra = _extra(message, _ASSISTANT)
    return Message(
        role="assistant",
        parts=tuple(sign_message(parts, extra)),
        name=_name(message, at),
        extra=extra,
    )


def read_thoughts(message: dict[str, Any]) -> list[Thinking]:
    """The thoughts in a message: its details, else its one text."""
    details = read_details(message.get("reasoning_details"))
    thought = text(message.get("reasoning_content")) or text(message.get("reasoning"))
    if thought and not any(detail.text for detail in details):
        return [Thinking(text=thought), *details]
    return details


def sign_message(parts: list[Part], extra: dict[str, Any]) -> list[Part]:
    """Signatures of Google put where they belong; taken out of `extra` if they are of the text."""
    parts = sign_calls(parts)
    signature = google_signature(extra)
    if signature is None:
        return parts
    for kind in (Text, ToolCall):
        for at, part in enumerate(parts):
            if isinstance(part, kind) and part.signature is None:
                parts[at] = msgspec.structs.replace(part, signature=signature)
                del extra["extra_content"]
                return parts
    return parts


def _read_call(call: Any, at: str, where: tuple[int, int]) -> ToolCall | Opaque:
    if not isinstance(call, dict):
        raise refuse(at, call, "an object")
    function = call.get("function")
    if not isinstance(function, dict):
        if call.get("type") not in (None, "function"):
            return Opaque(DIALECT, call)
        raise refuse(f"{at}.function", function, "an object")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise refuse(f"{at}.function.name", name, "a function's name")
    return ToolCall(
        id=text(call.get("id")) or made_id(*where, name),
        name=name,
        arguments=read_arguments(function.get("arguments")),
        signature=read_call_signature(call),
        cache=_read_mark(call),
        extra=call_extra(call),
    )


def call_extra(call: dict[str, Any]) -> dict[str, Any]:
    """Fields of a tool call that have no neutral form."""
    extra = left_over(call, _CALL)
    if read_call_signature(call) is not None:
        extra.pop("extra_content", None)
    return extra


def read_arguments(arguments: Any) -> str:
    """JSON text, also where a server or a client gives the object itself."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


def _read_result(message: dict[str, Any], at: str, called: dict[str, str]) -> Message:
    name = _name(message, at) or ""
    call_id = text(message.get("tool_call_id"))
    if message["role"] == "function":
        call_id = called.get(name, "")
    if not call_id:
        field = "name" if message["role"] == "function" else "tool_call_id"
        raise RequestError(
            f"{at}.{field}: no earlier call matches this result; give the "
            + ("name of a function called before" if field == "name" else "call's id"),
            param=f"{at}.{field}",
        )
    content: list[Text | Media] = []
    value = message.get("content")
    for part in read_content("" if value is None else value, f"{at}.content"):
        if not isinstance(part, Text | Media):
            raise refuse(f"{at}.content", value, "text, as a tool's message must have")
        content.append(part)
    result = ToolResult(call_id=call_id, name=name, content=tuple(content))
    return Message(role="tool", parts=(result,), extra=_extra(message, _TOOL))
