"""How many tokens a prompt has at least, whatever the vocabulary."""

from __future__ import annotations

import re
from functools import cached_property

from headrace.protocol.json_object import JsonObject

PROMPT_FIELDS = ("tools", "system", "instructions", "messages", "input", "prompt")
"""What models are given to read, in every dialect, in the order in which providers lay it out."""

# Of a list of these each is a prompt of its own, and has the context to itself.
_PROMPT = "prompt"
_SEVERAL = re.compile(rb'\[\s*+["\[]')
# Some providers do not give a model its earlier thoughts again.
_MAY_BE_LEFT_AWAY = re.compile(rb'"(?:thinking|reasoning)')

_BEGINS, _GOES_ON = b"a", b"e"
# Letters of ASCII, and first bytes of letters in UTF-8; others begin signs and kinds of blanks.
_FIRST_BYTES = (*b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *b"abcdefghijklmnopqrstuvwxyz")
_FIRST_BYTES += (*range(0xC3, 0xE2), *range(0xE4, 0xEE))
_LATER_BYTES = range(0x80, 0xC0)
_KINDS = bytes(
    _BEGINS[0] if one in _FIRST_BYTES else _GOES_ON[0] if one in _LATER_BYTES else one
    for one in range(256)
)


class LeastTokens:
    """Of a body. Looked for when it is first asked for, as of most requests nobody needs to know.

    Counted are words behind a blank, of which usual vocabularies have no two in one token. They
    have tokens of a hundred blanks or dashes, and of long words, so a length tells nothing for
    sure; nor does what is no prompt, or JSON that a provider writes in another form.
    """

    def __init__(self, body: JsonObject) -> None:
        self._body = body

    @cached_property
    def count(self) -> int:
        """In time that grows with the body's size alone."""
        return sum(self._words(name) for name in self._body.present(frozenset(PROMPT_FIELDS)))

    def _words(self, name: str) -> int:
        value = self._body.value(name) or b""
        if name == _PROMPT and has_several(value):
            return 0
        if _MAY_BE_LEFT_AWAY.search(value) is not None:
            return 0
        kinds = value.translate(_KINDS)
        # In JSON itself no letter comes before a blank.
        return kinds.count(_BEGINS + b" " + _BEGINS) + kinds.count(_GOES_ON + b" " + _BEGINS)


def has_several(prompt: bytes) -> bool:
    """Whether a value of `prompt` is a list of prompts; a list of numbers is one, in tokens."""
    return _SEVERAL.match(prompt) is not None
