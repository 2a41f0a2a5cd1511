"""A whole answer in a client's dialect through its guardrails, changed only where they say so."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import msgspec

from headrace.gateway.guards.action import Acted, GuardBlockedError
from headrace.gateway.guards.asked_tools import called_tools
from headrace.gateway.guards.check_text import check_text
from headrace.gateway.guards.guard import Guard, Subject
from headrace.gateway.guards.logprobs import logprobs
from headrace.gateway.guards.text_span import TooMuchError, reply_passages
from headrace.protocol.json_spans import Path, replaced
from headrace.protocol.once import TwiceError, once


async def guarded_reply(
    guards: Sequence[Guard], subject: Subject, body: bytes, on_acted: Callable[[Acted], None]
) -> bytes:
    """The same bytes where nothing is replaced. Raises GuardBlockedError."""
    # Read before, or written here: it is JSON.
    try:
        value = json.loads(body, object_pairs_hook=once)
        passages = tuple(reply_passages(subject.dialect, value))
        tools = tuple(dict.fromkeys(called_tools(value)))
        repeated = tuple(logprobs(value))
    except (TwiceError, TooMuchError, RecursionError):
        raise GuardBlockedError(guards[0], "the answer is damaged", failed=True) from None
    subject = subject._replace(passages=passages, tools=tools)
    passed = await check_text(guards, subject)
    for one in passed.acted:
        on_acted(one)
    changed: dict[Path, bytes] = {
        after.path: msgspec.json.encode(after.text)
        for before, after in zip(passages, passed.subject.passages, strict=True)
        if before.text != after.text
    }
    if any(guard.holds_texts for guard in guards):
        changed |= dict.fromkeys(repeated, b"null")
    return replaced(body, changed) if changed else body
