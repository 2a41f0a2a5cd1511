"""A whole answer in a client's dialect through its guardrails, changed only where they say so."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headrace.gateway.guards.asked_tools import called_tools
from headrace.gateway.guards.blocked import Acted
from headrace.gateway.guards.guard import Guard, Subject
from headrace.gateway.guards.passage import reply_passages
from headrace.gateway.guards.whole import pass_through
from headrace.protocol.json_spans import Path, replaced


async def guarded_reply(
    guards: Sequence[Guard], subject: Subject, body: bytes, on_acted: Callable[[Acted], None]
) -> bytes:
    """The same bytes where nothing is replaced. Raises GuardBlockedError."""
    # Read before, or written here: it is JSON.
    value = json.loads(body)
    passages = tuple(reply_passages(subject.dialect, value))
    subject = subject._replace(passages=passages, tools=tuple(dict.fromkeys(called_tools(value))))
    passed = await pass_through(guards, subject)
    for one in passed.acted:
        on_acted(one)
    changed: dict[Path, bytes] = {
        after.path: msgspec.json.encode(after.text)
        for before, after in zip(passages, passed.subject.passages, strict=True)
        if before.text != after.text
    }
    if not changed:
        return body
    return replaced(body, changed | dict.fromkeys(_logprobs(value, changed), b"null"))


def _logprobs(value: Any, changed: dict[Path, bytes]) -> list[Path]:
    """Those of choices and parts that have changed: they tell the text once more, by tokens."""
    found: set[Path] = set()
    for path in changed:
        inner = value
        for at, step in enumerate(path):
            inner = inner[step]
            if isinstance(inner, dict) and inner.get("logprobs"):
                found.add((*path[: at + 1], "logprobs"))
    return list(found)
