"""What indicates how hard a request is, whatever its dialect."""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.gateway.routing.estimate import BYTES_PER_TOKEN, utf8_bytes
from headrace.gateway.routing.query import estimated_tokens
from headrace.gateway.settings.complexity import Part
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import Media, Text

# Rules and features look at no more than this; of a long document its length is enough.
MOST_CHARS = 50_000

# Code in fences, error traces, and lines that hardly occur in prose. No alternative spans lines
# without bound: a client's text must not cause repeated scans of the same place.
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
    """A request as rules and classifiers see it."""

    last_turn: str
    """The user's last turn, the last MOST_CHARS of it."""
    conversation: str
    """All texts, the last MOST_CHARS of them."""
    tokens: int
    """Estimated tokens of the conversation."""
    last_turn_tokens: int
    """Estimated tokens of the user's last turn."""
    turns: int
    """The user's turns."""
    has_tools: bool
    has_images: bool
    wants_json: bool


def view_of(call: ChatCall) -> View:
    """The view of a request in neutral form."""
    turns = [message for message in call.messages if _is_of_user(message)]
    last = _text(turns[-1]) if turns else ""
    every = [instruction.text for instruction in call.instructions] + [
        _text(instruction) for instruction in call.messages
    ]
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
    """Whether the text seems to contain program code or an error trace."""
    return _CODE.search(text) is not None


def part_of(view: View, of: Part) -> str:
    """The text of a part."""
    return view.conversation if of == "conversation" else view.last_turn


def tokens_of(view: View, of: Part) -> int:
    """The estimated tokens of a part."""
    return view.tokens if of == "conversation" else view.last_turn_tokens


def _is_of_user(message: Message) -> bool:
    return message.role == "user" and message.extra.get("role") is None


def _text(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))
