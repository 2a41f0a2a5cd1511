"""A request through its guardrails: what is asked of providers afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.errors import RequestError, shown
from headrace.gateway.guards.asked_tools import requested_tools
from headrace.gateway.guards.blocked import Acted
from headrace.gateway.guards.guard import Guard, Subject
from headrace.gateway.guards.originals import Originals
from headrace.gateway.guards.passage import request_passages
from headrace.gateway.guards.whole import pass_through
from headrace.protocol.json_object import JsonObject
from headrace.protocol.json_spans import Path, replaced

# What a request allows its answer, by dialect: the names it may have, the one to write last.
_MOST_TOKENS = {
    "openai-chat": ("max_tokens", "max_completion_tokens"),
    "openai-completions": ("max_tokens",),
    "openai-responses": ("max_output_tokens",),
    "anthropic": ("max_tokens",),
}
_OPTIONS, _NUM_PREDICT = "options", "num_predict"
_OLLAMA = ("ollama", "ollama-generate")


class LookedAt(NamedTuple):
    """body: the client's own where nothing was replaced."""

    body: JsonObject
    acted: tuple[Acted, ...]
    originals: Originals


async def looked_at(guards: Sequence[Guard], subject: Subject, body: JsonObject) -> LookedAt:
    """subject: without texts and tools yet. Raises GuardBlockedError, RequestError."""
    fields = _fields(body.body)
    passages = tuple(request_passages(subject.dialect, fields))
    subject = subject._replace(
        passages=passages,
        tools=requested_tools(fields),
        max_tokens=_allowed(subject.dialect, fields),
    )
    originals = Originals()
    passed = await pass_through(guards, subject, originals)
    changed: dict[Path, bytes] = {
        after.path: msgspec.json.encode(after.text)
        for before, after in zip(passages, passed.subject.passages, strict=True)
        if before.text != after.text
    }
    if changed:
        body = JsonObject.read(replaced(body.body, changed))
    acted = list(passed.acted)
    body = _capped(guards, subject, body, acted)
    return LookedAt(body, tuple(acted), originals)


def _fields(body: bytes) -> dict[str, Any]:
    """A body's values. Raises RequestError for a name that is twice in one object, wherever: what
    is looked at here might not be what a provider reads."""
    try:
        found: dict[str, Any] = json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise RequestError("the body cannot be read") from None
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        name = next(one for one in names if names.count(one) > 1)
        raise RequestError(f"the body has the field {shown(name)} twice; send it once")
    return found


def _allowed(dialect: str, fields: Mapping[str, Any]) -> int | None:
    given: list[Any] = [fields.get(name) for name in _MOST_TOKENS.get(dialect, ())]
    if dialect in _OLLAMA and isinstance(fields.get(_OPTIONS), dict):
        given.append(fields[_OPTIONS].get(_NUM_PREDICT))
    counts = [one for one in given if isinstance(one, int) and not isinstance(one, bool)]
    return max((one for one in counts if one > 0), default=None)


def _capped(
    guards: Sequence[Guard], subject: Subject, body: JsonObject, acted: list[Acted]
) -> JsonObject:
    """With no more tokens for the answer than the limit; one that says nothing gets the limit."""
    for guard in guards:
        most = guard.most_tokens
        if most is None or "output" not in guard.on or guard.action not in ("cap", "block"):
            continue
        wanted = subject.max_tokens
        if wanted is not None and wanted <= most:
            continue
        acted.append(Acted(guard.name, "cap", f"the answer may have {most:,} tokens"))
        subject = subject._replace(max_tokens=most)
        body = JsonObject.read(_with_most(subject.dialect, body, most))
    return body


def _with_most(dialect: str, body: JsonObject, most: int) -> bytes:
    limit = str(most).encode()
    if dialect in _OLLAMA:
        options = body.value(_OPTIONS)
        if options is None or options == b"null":
            return body.edited({_OPTIONS: msgspec.json.encode({_NUM_PREDICT: most})})
        return body.edited({_OPTIONS: JsonObject.read(options).edited({_NUM_PREDICT: limit})})
    names = _MOST_TOKENS.get(dialect, ("max_tokens",))
    there = [name for name in names if body.value(name) not in (None, b"null")]
    return body.edited(dict.fromkeys(there or names[-1:], limit))
