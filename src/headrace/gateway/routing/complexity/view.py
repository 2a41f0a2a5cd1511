"""What of a request tells how hard it is, in whatever dialect it came."""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.gateway.routing.estimate import BYTES_PER_TOKEN, utf8_bytes
from headrace.gateway.routing.query import estimated_tokens
from headrace.gateway.settings.complexity import Part
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import Media, Text

# Rules and features look at no more: a long document is told by its length.
MOST_CHARS = 50_000

# Code in fences, error traces, and lines that hardly anybody writes in prose. No part of it runs
# over lines: a client's text must not make it look at the same place again and again.
_CODE = re.compile(
    r"```|^Traceback \(most recent call last\)|^[ \t]*(?:def|class) \w+[^\n]*:[ \t]*$"
    r"|^[ \t]*#include[ \t]*[<\"]"
    r"|^[ \t]*(?:public|private|static|async|export|const|let|var|fn|func|function)[ \t]+"
    r"[\w<>\[\]]+[ \t]*[\w(=:{]"
    r"|^[ \t]*(?:import|from)[ \t]+[\w.]+(?:[ \t]+import\b[^\n]*)?;?[ \t]*$"
    r"|;[ \t]*\n[^\n]*;[ \t]*$"
    r"|\bSELECT\b[^.\n]{1,200}\bFROM\b|^[ \t]+at [\w$.<>]+\([^\n]*:\d+\)|</\w+>|=>[ \t]*[{(]",
    re.MULTILINE,
)


class View(NamedTuple):
    """last_turn, conversation: texts, cut at MOST_CHARS from the end. tokens: of the conversation,
    last_turn_tokens: of the user's last turn, both by estimate. turns: of the user."""

    last_turn: str
    conversation: str
    tokens: int
    last_turn_tokens: int
    turns: int
    has_tools: bool
    has_images: bool
    wants_json: bool


def view_of(call: ChatCall) -> View:
    """Of a request in neutral form."""
    turns = [one for one in call.messages if _is_of_user(one)]
    last = _text(turns[-1]) if turns else ""
    every = [one.text for one in call.instructions] + [_text(one) for one in call.messages]
    return View(
        last_turn=last[-MOST_CHARS:],
        conversation="\n".join(every)[-MOST_CHARS:],
        tokens=estimated_tokens(call),
        last_turn_tokens=utf8_bytes(last) // BYTES_PER_TOKEN,
        turns=len(turns),
        has_tools=bool(call.tools),
        has_images=any(
            isinstance(part, Media) and part.kind == "image"
            for message in call.messages
            for part in message.parts
        ),
        wants_json=call.output is not None and call.output.kind != "text",
    )


def has_code(text: str) -> bool:
    """Whether there is program code or an error trace in it; a guess."""
    return _CODE.search(text) is not None


def part_of(view: View, of: Part) -> str:
    """The text of one of its parts."""
    return view.conversation if of == "conversation" else view.last_turn


def tokens_of(view: View, of: Part) -> int:
    """How many tokens that part has, by estimate."""
    return view.tokens if of == "conversation" else view.last_turn_tokens


def _is_of_user(message: Message) -> bool:
    return message.role == "user" and message.extra.get("role") is None


def _text(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))
