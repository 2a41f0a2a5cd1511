"""Chat messages as a template expects them, from messages as the API takes them.

Copies everything into plain dicts, lists and scalars, so that a template sees no object with
methods of its own. What cannot be brought into the template's form is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.errors import RequestError, shown

if TYPE_CHECKING:
    from headrace.text.template_traits import TemplateTraits

_TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
# The first is what templates read; the others are older names for the same.
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")

UNREADABLE_ARGUMENTS = "INVALID_JSON"
"""The field that arguments of a call are shown in where they are not a JSON object; its name is
that of Anthropic's page on fine-grained tool streaming."""


def normalized_messages(
    messages: Sequence[Mapping[str, Any]],
    traits: TemplateTraits,
    media: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Messages for a template with these traits, of a model that takes these media.

    Content parts are joined by a newline where the template takes text (as vLLM does), a text is
    made one part where it takes only parts; missing content is "" or, where the template tells the
    two apart, None; arguments of tool calls are objects, or JSON text where the template prints
    them as they are; "developer" is "system" where the template does not know it; reasoning is
    given under the names templates use.
    Raises RequestError naming the message for what is no message, and for parts of content neither
    text nor in `media`.
    """
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise RequestError("messages is not a list of messages", param="messages")
    return [
        _message(message, f"messages[{i}]", traits, media) for i, message in enumerate(messages)
    ]


def _message(
    message: Any, at: str, traits: TemplateTraits, media: Collection[str]
) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{at} is not an object with role and content", param=at)
    result = {key: plain(value, f"{at}.{key}") for key, value in message.items()}
    role = result.get("role")
    if not isinstance(role, str):
        raise RequestError(
            f"{at}.role is {shown(role)}; it must be the name of a role", param=f"{at}.role"
        )
    if role == "developer" and not traits.knows_developer:
        result["role"] = "system"
    refusal = result.pop("refusal", None)
    # An answer that another server refused has its text there.
    content = result.get("content") or refusal or result.get("content")
    result["content"] = _content(content, f"{at}.content", traits, media)
    calls = result.get("tool_calls")
    if calls:
        if not isinstance(calls, list):
            raise RequestError(f"{at}.tool_calls is not a list", param=f"{at}.tool_calls")
        result["tool_calls"] = [
            _tool_call(call, f"{at}.tool_calls[{i}]", traits) for i, call in enumerate(calls)
        ]
    elif calls is not None:
        del result["tool_calls"]
    reasoning = next((result[k] for k in _REASONING_KEYS if result.get(k) is not None), None)
    if reasoning is not None:
        result.setdefault("thinking", reasoning)
        result["reasoning_content"] = reasoning
    return result


def _content(content: Any, at: str, traits: TemplateTraits, media: Collection[str]) -> Any:
    if content is None:
        return None if traits.tests_none else ""
    if isinstance(content, str):
        return content if traits.takes_text else [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise RequestError(f"{at} is neither a text nor a list of parts", param=at)
    kept = media if traits.takes_parts else ()
    parts = [_part(part, f"{at}[{i}]", kept) for i, part in enumerate(content)]
    return parts if traits.takes_parts else "\n".join(part["text"] for part in parts)


def _part(part: Any, at: str, media: Collection[str]) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type", "text") if isinstance(part, dict) else None
    named = isinstance(kind, str)
    if named and kind in media:
        return dict(part)
    text = part.get(_TEXT_KEYS[kind]) if named and kind in _TEXT_KEYS else None
    if not isinstance(text, str):
        raise RequestError(
            f"{at} has type {shown(kind)}; this model reads text: send parts of type 'text' with a "
            "text",
            param=at,
        )
    return {"type": "text", "text": text}


def _tool_call(call: Any, at: str, traits: TemplateTraits) -> Any:
    if not isinstance(call, dict):
        raise RequestError(f"{at} is {shown(call)}; it must be an object with a function", param=at)
    if "function" not in call and "name" in call:  # written flat, as templates may read it too
        return call
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RequestError(
            f"{at}.function is {shown(function)}; it must be an object with name and arguments",
            param=f"{at}.function",
        )
    if "arguments" not in function:
        return call
    arguments = function["arguments"]
    # Clients and models write "" or null for a call without arguments.
    if arguments is None or (isinstance(arguments, str) and arguments.strip() in ("", "null")):
        arguments = {}
    if traits.arguments_as_text:
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
    elif isinstance(arguments, str):
        arguments = _object_of(arguments)
    return {**call, "function": {**function, "arguments": arguments}}


def _object_of(arguments: str) -> dict[str, Any]:
    """Arguments as a model wrote them. Text that is not a JSON object, as of a call that
    `max_tokens` cut off, is shown in an object: the answer's own call must not end the
    conversation, and the model can see what was wrong with it."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {UNREADABLE_ARGUMENTS: arguments}


def plain(value: Any, param: str) -> Any:
    """A copy made of dict, list, str, int, float, bool and None only.

    Raises RequestError naming `param` for any other value, and for one that contains itself.
    """
    with _nesting_named(param):
        return _plain(value, param)


def check_nesting(value: Any, param: str) -> None:
    """Raise RequestError naming `param` for a value that contains itself, or is nested so deeply
    that it cannot be walked."""
    with _nesting_named(param):
        _walk(value)


@contextmanager
def _nesting_named(param: str) -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise RequestError(
            f"{param} is nested too deeply, or contains itself", param=param
        ) from None


def _plain(value: Any, param: str) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item, param) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, param) for item in value]
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise RequestError(
        f"{param} has a {type(value).__name__}, which is not a JSON value", param=param
    )


def _walk(value: Any) -> None:
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return
    for item in value:
        _walk(item)
