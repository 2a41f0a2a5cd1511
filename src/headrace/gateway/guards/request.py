"""Checks of a request by guardrails, and the resulting body."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.errors import RequestError, shown
from headrace.gateway.guards.action import Acted
from headrace.gateway.guards.asked_tools import requested_tools
from headrace.gateway.guards.check_text import check_text
from headrace.gateway.guards.guard import Guard, Subject
from headrace.gateway.guards.originals import Originals
from headrace.gateway.guards.text_span import TooMuchError, request_passages
from headrace.protocol.json_object import JsonObject
from headrace.protocol.json_spans import Path, replaced
from headrace.protocol.once import TwiceError, once

# What a request allows its answer: every name that some provider or engine reads, since another
# may come before the dialect's own.
_MOST_TOKENS = (
    "max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict",
)  # fmt: skip
# The one to write where there is none.
_MOST_TOKENS_OF = {
    "openai-chat": "max_completion_tokens",
    "openai-responses": "max_output_tokens",
}
_OPTIONS, _NUM_PREDICT = "options", "num_predict"
_OLLAMA = ("ollama", "ollama-generate")

# Some milliseconds of reading, for which others need not wait.
_MOST_BYTES_AT_ONCE = 200_000


class LookedAt(NamedTuple):
    """A request that passed its guardrails."""

    body: JsonObject
    """The client's own if nothing was replaced."""
    acted: tuple[Acted, ...]
    originals: Originals


async def looked_at(guards: Sequence[Guard], subject: Subject, body: JsonObject) -> LookedAt:
    """subject: without texts and tools yet. Raises GuardBlockedError, RequestError."""
    if len(body.body) > _MOST_BYTES_AT_ONCE:
        subject = await asyncio.to_thread(_read, subject, body.body)
    else:
        subject = _read(subject, body.body)
    passages = subject.passages
    originals = Originals()
    passed = await check_text(guards, subject, originals)
    changed: dict[Path, bytes] = {
        after.path: msgspec.json.encode(after.text)
        for before, after in zip(passages, passed.subject.passages, strict=True)
        if before.text != after.text
    }
    if changed:
        if len(body.body) > _MOST_BYTES_AT_ONCE:
            written = await asyncio.to_thread(replaced, body.body, changed)
        else:
            written = replaced(body.body, changed)
        body = JsonObject.read(written)
    acted = list(passed.acted)
    body = _capped(guards, subject, body, acted)
    return LookedAt(body, tuple(acted), originals)


def _read(subject: Subject, body: bytes) -> Subject:
    """The subject with the texts and tools of a body. Raises RequestError."""
    fields = _fields(body)
    try:
        passages = request_passages(subject.dialect, fields)
    except TooMuchError as error:
        raise RequestError(f"the body cannot be checked: {error}") from None
    return subject._replace(
        passages=tuple(passages),
        tools=requested_tools(fields),
        max_tokens=_allowed(subject.dialect, fields),
    )


def _fields(body: bytes) -> dict[str, Any]:
    """A body's values. Raises RequestError for a name that is twice in one object, wherever: what
    is looked at here might not be what a provider reads."""
    try:
        found: dict[str, Any] = json.loads(body, object_pairs_hook=once)
    except TwiceError as error:
        raise RequestError(
            f"the body has the field {shown(error.name)} twice; send it once"
        ) from None
    except (ValueError, RecursionError):
        raise RequestError("the body cannot be read") from None
    return found


def _allowed(dialect: str, fields: Mapping[str, Any]) -> int | None:
    """The largest limit given; None if there is none, or one that limits nothing."""
    given = [fields.get(name) for name in _MOST_TOKENS]
    if dialect in _OLLAMA and isinstance(fields.get(_OPTIONS), dict):
        given.append(fields[_OPTIONS].get(_NUM_PREDICT))
    limits = [_limit(one) for one in given if one is not None]
    counts = [limit for limit in limits if limit is not None]
    return max(counts) if counts and len(counts) == len(limits) else None


def _limit(value: Any) -> int | None:
    """A limit as lenient readers take it, for whom 5000.0 and "5000" are numbers; None for a value
    that limits nothing, as -1 in engines."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return math.ceil(value) if 0 < value < math.inf else None


def _capped(
    guards: Sequence[Guard], subject: Subject, body: JsonObject, acted: list[Acted]
) -> JsonObject:
    """The body with at most the limit of tokens for the answer, or the limit itself if it sets
    none."""
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
    changes = {name: limit for name in _MOST_TOKENS if _is_over(body.decoded(name), most)}
    if dialect in _OLLAMA:
        options = body.value(_OPTIONS)
        if options is None or options == b"null":
            changes[_OPTIONS] = msgspec.json.encode({_NUM_PREDICT: most})
        else:
            read = JsonObject.read(options)
            given = read.decoded(_NUM_PREDICT)
            if given is None or _is_over(given, most):
                changes[_OPTIONS] = read.edited({_NUM_PREDICT: limit})
    elif not changes:
        changes[_MOST_TOKENS_OF.get(dialect, "max_tokens")] = limit
    return body.edited(changes)


def _is_over(value: Any, most: int) -> bool:
    if value is None:
        return False
    limit = _limit(value)
    return limit is None or limit > most
