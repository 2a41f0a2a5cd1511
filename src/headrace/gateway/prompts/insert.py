"""A prompt's messages, put before the client's, in the client's dialect.

Only these fields are rewritten; the client's messages are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.gateway.prompts.prompt import Said
from headrace.protocol.json_object import JsonObject

Changes = dict[str, bytes | None]
_SYSTEM = ("system", "developer")
_BETWEEN = "\n\n"


def inserted(dialect: str, body: JsonObject, said: Sequence[Said]) -> Changes:
    """Fields of the body with their new values. Raises RequestError for a body that has something
    else there than its dialect says."""
    return _DIALECTS.get(dialect, _chat)(body, said)


def defaults(dialect: str, body: JsonObject, parameters: Mapping[str, Any]) -> Changes:
    """Parameters that the body does not say, in its dialect's words."""
    changes: Changes = {}
    options: dict[str, Any] = {}
    known = _OPTIONS if dialect == "ollama" else {}
    for name, value in parameters.items():
        if name in known:
            options[known[name]] = value
            continue
        own = _NAMES.get(dialect, {}).get(name, name)
        same = {own, "max_completion_tokens", "max_tokens"} if "max" in own else {own}
        if not any(one in body for one in same):
            changes[own] = msgspec.json.encode(value)
    if options:
        given = body.decoded("options")
        given = given if isinstance(given, dict) else {}
        changes["options"] = msgspec.json.encode({**options, **given})
    return changes


# Of OpenAI's words those that other dialects have others for.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "openai-responses": {
        "max_tokens": "max_output_tokens",
        "max_completion_tokens": "max_output_tokens",
    },
    "anthropic": {"stop": "stop_sequences", "max_completion_tokens": "max_tokens"},
}
_OPTIONS = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
    "seed": "seed", "stop": "stop", "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty", "max_tokens": "num_predict",
    "max_completion_tokens": "num_predict",
}  # fmt: skip


def _chat(body: JsonObject, said: Sequence[Said]) -> Changes:
    messages = [{"role": one.role, "content": one.text} for one in said]
    return {"messages": _before(body, "messages", messages)}


def _ollama(body: JsonObject, said: Sequence[Said]) -> Changes:
    return _chat(body, [Said("system", one.text) if one.role in _SYSTEM else one for one in said])


def _anthropic(body: JsonObject, said: Sequence[Said]) -> Changes:
    messages = [{"role": turn.role, "content": turn.text} for turn in _turns(said)]
    changes: Changes = {"messages": _before(body, "messages", messages)}
    system = _system(said)
    if system:
        raw = body.value("system")
        if raw is not None and raw.startswith(b"["):
            changes["system"] = _before(body, "system", [{"type": "text", "text": system}])
        else:
            changes["system"] = _joined(system, body.text("system"))
    return changes


def _responses(body: JsonObject, said: Sequence[Said]) -> Changes:
    changes: Changes = {}
    system = _system(said)
    if system:
        changes["instructions"] = _joined(system, body.text("instructions"))
    items: list[dict[str, Any]] = [
        {"role": turn.role, "content": turn.text} for turn in _turns(said)
    ]
    raw = body.value("input")
    if items and raw is not None and raw.startswith(b'"'):
        items.append({"role": "user", "content": body.text("input")})
        changes["input"] = msgspec.json.encode(items)
    elif items or raw is None:
        changes["input"] = _before(body, "input", items)
    return changes


def _turns(said: Iterable[Said]) -> list[Said]:
    return [one for one in said if one.role not in _SYSTEM]


def _system(said: Iterable[Said]) -> str:
    return _BETWEEN.join(one.text for one in said if one.role in _SYSTEM)


def _joined(first: str, second: str | None) -> bytes:
    return msgspec.json.encode(f"{first}{_BETWEEN}{second}" if second else first)


def _before(body: JsonObject, name: str, items: Sequence[Any]) -> bytes:
    """The list of that name with `items` at its head; its own bytes stay as they are."""
    raw = body.value(name)
    if raw is None or raw == b"null":
        return msgspec.json.encode(items)
    if not raw.startswith(b"["):
        raise RequestError(f"{name}: expected a list", param=name)
    if not items:
        return raw
    head = msgspec.json.encode(items)[:-1]
    rest = raw[1:]
    return head + (b"" if rest.lstrip() == b"]" else b",") + rest


_DIALECTS: Mapping[str, Callable[[JsonObject, Sequence[Said]], Changes]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "ollama": _ollama,
}
