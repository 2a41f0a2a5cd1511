"""Telling text users wrote from text a template wrote, in what the template rendered.

Characters that begin control tokens are disguised in everything users sent, as private-use
characters of the same length; after rendering they are put back and known to be the users'. Whether
the disguise changed what the template did is seen by comparing with the undisguised rendering.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.text.tokenizer import Segment

_FIRST_PRIVATE = 0x100000
# Plain words under these keys choose what a template writes and are not text of users.
_STRUCTURE_KEYS = frozenset(("role", "type"))
_WORD = re.compile(r"[A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Disguise:
    """A reversible change to user text that hides control tokens from the template."""

    back: Mapping[str, str]
    """Disguised characters to real ones."""
    hide: Callable[[str], str]
    """Disguises one text."""

    def apply(self, user_inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The template inputs that came from users, disguised."""
        return {key: self._hidden(value) for key, value in user_inputs.items()}

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self._hidden(item) for item in value]
        if isinstance(value, dict):
            return {
                self._hidden(key): item if _is_structure(key, item) else self._hidden(item)
                for key, item in value.items()
            }
        return value


def disguises(user_inputs: Mapping[str, Any], control_tokens: Sequence[str]) -> Iterator[Disguise]:
    """Disguises to try in turn; none where users wrote nothing that could begin a control token.

    First every character that could begin one, which also covers tokens put together from two
    texts; then, for templates that look at such characters, only those of whole control tokens.
    """
    texts = [text for value in user_inputs.values() for text in _texts(value)]
    begins = {token[0] for token in control_tokens if token}
    used = {char for char in begins if any(char in text for text in texts)}
    if not used:
        return
    private = unused_private(user_inputs, len(used))
    forward = {ord(char): private[i] for i, char in enumerate(sorted(used))}
    back = {mark: chr(char) for char, mark in forward.items()}
    yield Disguise(back, lambda text: text.translate(forward))

    whole = re.compile("|".join(map(re.escape, sorted(control_tokens, key=len, reverse=True))))
    if any(whole.search(text) for text in texts):

        def hide(text: str) -> str:
            return whole.sub(lambda m: forward[ord(m.group()[0])] + m.group()[1:], text)

        yield Disguise(back, hide)


def segments_of(rendered: str, disguise: Disguise) -> list[Segment]:
    """The rendered text with disguised characters put back, as pieces of their own."""
    parts = re.split(f"([{''.join(disguise.back)}])", rendered)
    pieces = ((disguise.back.get(part, part), part not in disguise.back) for part in parts)
    return [piece for piece in pieces if piece[0]]


def _is_structure(key: Any, value: Any) -> bool:
    """Whether a value is a name for the template to look at, and can be no control token."""
    return key in _STRUCTURE_KEYS and isinstance(value, str) and bool(_WORD.fullmatch(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            if not _is_structure(key, item):
                yield from _texts(item)


def unused_private(user_inputs: Mapping[str, Any], count: int) -> list[str]:
    """Private-use characters in none of the texts of users.

    A template that holds one gives another text once they are put back, and is found out by that.
    """
    texts = [text for value in user_inputs.values() for text in _texts(value)]
    found: list[str] = []
    code = _FIRST_PRIVATE
    while len(found) < count:
        if not any(chr(code) in text for text in texts):
            found.append(chr(code))
        code += 1
    return found
