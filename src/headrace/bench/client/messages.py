"""A conversation in OpenAI's words, said in Anthropic's and Ollama's.

Texts, images, calls of tools and their results are carried over. What else a message or a part may
hold has no counterpart and is refused: left out, the endpoint would be asked something else.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import msgspec

from headrace.errors import ConfigError, shown

_SYSTEM = ("system", "developer")
# The fields of each role, beside the role and the content.
_FIELDS: dict[str, tuple[str, ...]] = {
    "system": (),
    "developer": (),
    "user": (),
    "assistant": ("tool_calls",),
    "tool": ("tool_call_id",),
}


class _Call(NamedTuple):
    id: str
    name: str
    arguments: dict[str, Any]


def anthropic_body(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """`messages` and, where there are any, what the system says. Raises ConfigError."""
    _check(messages)
    system = [
        text for message in messages if message["role"] in _SYSTEM for text in _texts(message)
    ]
    told: list[dict[str, Any]] = []
    after_result = False
    for message in messages:
        role = message["role"]
        if role in _SYSTEM:
            continue
        if role == "tool":
            result = {
                "type": "tool_result",
                "tool_use_id": message["tool_call_id"],
                "content": _anthropic_content(message.get("content")),
            }
            # All results of one answer's calls have to stand in one message of the user's.
            if after_result:
                told[-1]["content"].append(result)
            else:
                told.append({"role": "user", "content": [result]})
        else:
            told.append({"role": role, "content": _anthropic_said(message)})
        after_result = role == "tool"
    return {"messages": told} | ({"system": "\n\n".join(system)} if system else {})


def ollama_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same messages with texts joined and images as bare base64. Raises ConfigError."""
    _check(messages)
    told = []
    names: dict[str, str] = {}
    for message in messages:
        role = "system" if message["role"] in _SYSTEM else message["role"]
        one: dict[str, Any] = {"role": role, "content": "\n".join(_texts(message))}
        images = [_data(part)[1] for part in _parts(message) if part.get("type") == "image_url"]
        if images:
            one["images"] = images
        calls = _calls(message)
        if calls:
            names |= {call.id: call.name for call in calls}
            one["tool_calls"] = [
                {"function": {"name": call.name, "arguments": call.arguments}} for call in calls
            ]
        if role == "tool":
            one["tool_name"] = names[message["tool_call_id"]]
        told.append(one)
    return told


def _check(messages: list[dict[str, Any]]) -> None:
    """Raise for what has no counterpart, and for results of calls that are not there."""
    called: set[str] = set()
    for message in messages:
        role = message.get("role")
        if not isinstance(role, str) or role not in _FIELDS:
            _refuse(f"the role {shown(role)} of a message has no equivalent in this API")
        known = ("role", "content", *_FIELDS[role])
        for name, value in message.items():
            if name not in known and value not in (None, [], {}, ""):
                _refuse(f"{name} of a message of the role {role} has no equivalent in this API")
        called |= {call.id for call in _calls(message)}
        if role == "tool" and message.get("tool_call_id") not in called:
            _refuse(
                f"the tool_call_id {shown(message.get('tool_call_id'))} does not belong to an "
                "earlier call"
            )


def _calls(message: dict[str, Any]) -> list[_Call]:
    """Of an assistant's message."""
    found = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(call.get("id"), str):
            _refuse(f"the call {shown(call)} has no function or no id")
        try:
            arguments = msgspec.json.decode(function.get("arguments") or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, TypeError):
            _refuse(f"the arguments {shown(function.get('arguments'))} of a call are not an object")
        found.append(_Call(call["id"], str(function.get("name")), arguments))
    return found


def _refuse(told: str) -> NoReturn:
    raise ConfigError(f"prompt: {told}; omit it, or measure an endpoint with OpenAI's API")


def _anthropic_said(message: dict[str, Any]) -> str | list[dict[str, Any]]:
    content = _anthropic_content(message.get("content"))
    calls = _calls(message)
    if not calls:
        return content
    said = [{"type": "text", "text": content}] if isinstance(content, str) and content else content
    return [
        *(said or ()),
        *(
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
            for call in calls
        ),
    ]


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or part.get("type") not in ("text", "image_url"):
                raise ConfigError(
                    f"prompt: a part {shown(part)} of a message is neither text nor image_url"
                )
        return content
    return [{"type": "text", "text": content or ""}]


def _texts(message: dict[str, Any]) -> list[str]:
    return [str(part.get("text", "")) for part in _parts(message) if part["type"] == "text"]


def _anthropic_content(content: Any) -> str | list[dict[str, Any]]:
    if not isinstance(content, list):
        return content or ""
    told: list[dict[str, Any]] = []
    for part in _parts({"content": content}):
        if part["type"] == "text":
            told.append({"type": "text", "text": part.get("text", "")})
            continue
        url = _url(part)
        source = {"type": "url", "url": url}
        if url.startswith("data:"):
            kind, data = _data(part)
            source = {"type": "base64", "media_type": kind, "data": data}
        told.append({"type": "image", "source": source})
    return told


def _url(part: dict[str, Any]) -> str:
    found = part.get("image_url")
    return str(found.get("url", "") if isinstance(found, dict) else found)


def _data(part: dict[str, Any]) -> tuple[str, str]:
    """Media type and base64 of an image that is in the message itself."""
    head, comma, data = _url(part).partition(",")
    if not head.startswith("data:") or not head.endswith(";base64") or not comma:
        raise ConfigError(
            f"prompt: the image {shown(_url(part))} is not a data:...;base64 URL; embed the "
            "image in one"
        )
    return head.removeprefix("data:").removesuffix(";base64"), data
