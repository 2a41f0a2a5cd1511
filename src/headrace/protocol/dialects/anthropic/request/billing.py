"""The line about itself that a client puts before its system text, for Anthropic alone to read.

Claude Code begins its system prompt with it, in a block of its own or above the rest of one. It has
a checksum of the request in it, so with it no two prompts of a session would begin alike, and no
cached prefix would be found again.
"""

from __future__ import annotations

import re

import msgspec

from headrace.protocol.dialects.anthropic.values import NAME
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import Part, Text

_LINE = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n*")


def call_for(call: ChatCall, dialect: str) -> ChatCall:
    """The call as it is written in a dialect: with the line in Anthropic's own alone."""
    return call if call.dialect != NAME or dialect == NAME else without_billing(call)


def without_billing(call: ChatCall) -> ChatCall:
    """The call without the line, wherever system text begins with it."""
    instructions = tuple(kept for text in call.instructions if (kept := _clean(text)) is not None)
    cleaned = map(_clean_message, call.messages)
    messages = tuple(message for message in cleaned if message is not None)
    return msgspec.structs.replace(call, instructions=instructions, messages=messages)


def _clean_message(message: Message) -> Message | None:
    """The message without the line; None where that was all of it."""
    if message.extra.get("role") != "system":
        return message
    cleaned: list[Part] = []
    for part in message.parts:
        kept = _clean(part) if isinstance(part, Text) else part
        if kept is not None:
            cleaned.append(kept)
    if message.parts and not cleaned:
        return None
    return msgspec.structs.replace(message, parts=tuple(cleaned))


def _clean(text: Text) -> Text | None:
    """The text without the line; None where that was all of it."""
    found = _LINE.match(text.text)
    if found is None:
        return text
    rest = text.text[found.end() :]
    return msgspec.structs.replace(text, text=rest) if rest else None
