"""The fewest tokens a prompt can have, whatever the vocabulary."""

from __future__ import annotations

import re
from functools import cached_property

from headrace.protocol.json_object import JsonObject

PROMPT_FIELDS = ("tools", "system", "instructions", "messages", "input", "prompt")
"""Fields that a model reads, in every dialect, in the order in which providers lay them out."""

# Each entry of a list here is a separate prompt with the whole context to itself.
_PROMPT = "prompt"
_SEVERAL = re.compile(rb'\[\s*+["\[]')
# Some providers do not show a model its earlier reasoning.
_MAY_BE_LEFT_AWAY = re.compile(rb'"(?:thinking|reasoning)')

_BEGINS, _GOES_ON = b"a", b"e"
# ASCII letters, and first bytes of letters in UTF-8; others begin signs and kinds of blanks.
_FIRST_BYTES = (*b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *b"abcdefghijklmnopqrstuvwxyz")
_FIRST_BYTES += (*range(0xC3, 0xE2), *range(0xE4, 0xEE))
_LATER_BYTES = range(0x80, 0xC0)
_KINDS = bytes(
    _BEGINS[0] if byte in _FIRST_BYTES else _GOES_ON[0] if byte in _LATER_BYTES else byte
    for byte in range(256)
)


class LeastTokens:
    """The fewest tokens of a body, counted on first use, as most requests do not need it.

    It counts words after a blank, of which usual vocabularies never have two in one token. They do
    have tokens of a hundred blanks or dashes and of long words, so a length proves nothing; nor
    does text outside the prompt, or JSON that a provider rewrites.
    """

    def __init__(self, body: JsonObject) -> None:
        self._body = body

    @cached_property
    def count(self) -> int:
        """The count, in time linear in the body's size."""
        return sum(self._words(name) for name in self._body.present(frozenset(PROMPT_FIELDS)))

    def _words(self, name: str) -> int:
        value = self._body.value(name) or b""
        if name == _PROMPT and has_several(value):
            return 0
        if _MAY_BE_LEFT_AWAY.search(value) is not None:
            return 0
        kinds = value.translate(_KINDS)
        # JSON's own syntax never has a letter before a blank.
        return kinds.count(_BEGINS + b" " + _BEGINS) + kinds.count(_GOES_ON + b" " + _BEGINS)


def has_several(prompt: bytes) -> bool:
    """Whether a value of `prompt` is a list of prompts; a list of numbers is one, in tokens."""
    return _SEVERAL.match(prompt) is not None
