"""Telling text users wrote from text a template wrote, in what the template rendered.

Characters of users that a control token would need are disguised, as private-use characters of the
same length; after rendering they are put back and known to be the users'. These are the characters
that begin control tokens, and the first one of a text that could go on where the template's own
text stopped: between the `<|` and `|>` of a template, `end` makes a token of which it wrote every
other character. Whether the disguise changed what the template did is seen by comparing with the
undisguised rendering.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.text.tokenizer import Segment

_FIRST_PRIVATE = 0x100000
# Of a text that is translated in one call, which holds the interpreter's lock.
_STEP_CHARS = 2**16
# What is joined to one piece of a rendered text: a search holds that lock, too.
_JOINED_MARKS = 256
_BETWEEN_CHARS = 64
# Plain words under these keys choose what a template writes and are not text of users.
_STRUCTURE_KEYS = frozenset(("role", "type"))
_WORD = re.compile(r"[A-Za-z0-9_.-]*")
# Of messages and tools, as the APIs name them: a template looks these up.
_KNOWN_KEYS = frozenset({
    "arguments", "content", "description", "enum", "function", "id", "items", "name", "parameters",
    "properties", "reasoning", "reasoning_content", "required", "role", "text", "thinking",
    "tool_call_id", "tool_calls", "type",
})  # fmt: skip
# Stands behind every control token where they are searched together.
_END = "\0"
# A text that is inside a control token for so long is taken to go on in it.
_MAX_REST_CHARS = 1024


@dataclass(frozen=True)
class Disguise:
    """A reversible change to user text that hides control tokens from the template."""

    back: Mapping[str, str]
    """Disguised characters to real ones."""
    hide: Callable[[str], str]
    """Disguises one text."""
    hide_key: Callable[[str], str]
    """Disguises the key of an object."""
    control: _ControlTokens
    """What is hidden; a role or type that holds one is a text."""

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
                self.hide_key(key): item
                if _is_structure(key, item, self.control)
                else self._hidden(item)
                for key, item in value.items()
            }
        return value


def disguises(
    user_inputs: Mapping[str, Any],
    control_tokens: Sequence[str],
    looked_for: Collection[str] = (),
) -> Iterator[Disguise]:
    """Disguises to try in turn; none where users wrote nothing a control token could need.

    First everything a control token could need, whoever wrote the rest of it; then the same but for
    keys of objects, which a template may look up; then the characters that begin one, wherever they
    stand; then, for templates that look at such characters, only those of whole control tokens; at
    last only those of the control tokens that are in none of `looked_for`, the texts by which the
    template cuts and searches messages: one text that holds such a token must not uncover others.
    """
    control = _control_tokens(tuple(control_tokens))
    texts, keys = _texts_and_keys(user_inputs, control)
    written = {*texts, *keys}
    used = {char for char in control.begins if any(char in text for text in written)}
    going_on = {
        text: at
        for text in written - _KNOWN_KEYS.difference(texts)
        if (at := control.rest_in(text)) is not None
    }
    used.update(text[at] for text, at in going_on.items())
    if not used:
        return
    private = unused_private(user_inputs, len(used))
    forward = {ord(char): private[i] for i, char in enumerate(sorted(used))}
    back = {mark: chr(char) for char, mark in forward.items()}
    beginnings = {char: mark for char, mark in forward.items() if chr(char) in control.begins}

    def begun(text: str) -> str:
        return _translated(text, beginnings)

    def needed(text: str) -> str:
        at = going_on.get(text)
        if at is None:
            return begun(text)
        return begun(text[:at]) + forward[ord(text[at])] + begun(text[at + 1 :])

    def whole(text: str) -> str:
        return control.pattern.sub(lambda m: forward[ord(m.group()[0])] + m.group()[1:], text)

    if any(key in going_on for key in keys):
        yield Disguise(back, needed, needed, control)
    if any(text in going_on for text in texts):
        yield Disguise(back, needed, begun, control)
    if beginnings:
        yield Disguise(back, begun, begun, control)
    if any(control.pattern.search(text) for text in written):
        yield Disguise(back, whole, whole, control)
        unseen = _control_tokens(
            tuple(
                token for token in control_tokens if not any(token in text for text in looked_for)
            )
        )

        def unlooked(text: str) -> str:
            return unseen.pattern.sub(lambda m: forward[ord(m.group()[0])] + m.group()[1:], text)

        yield Disguise(back, unlooked, unlooked, control)


def _translated(text: str, table: Mapping[int, str]) -> str:
    """`text.translate(table)`, in steps between which other threads run."""
    if len(text) <= _STEP_CHARS:
        return text.translate(table)
    steps = range(0, len(text), _STEP_CHARS)
    return "".join(text[at : at + _STEP_CHARS].translate(table) for at in steps)


def segments_of(rendered: str, disguise: Disguise) -> list[Segment]:
    """The rendered text with disguised characters put back, as pieces of their own.

    Text between two of them in which no control token can begin belongs to the same piece: whether
    it allows control tokens changes nothing, and millions of pieces would take a gigabyte.
    """
    marks = "".join(disguise.back)
    begins = "".join(map(re.escape, sorted(disguise.control.begins)))
    between = rf"[^{marks}{begins}]{{0,{_BETWEEN_CHARS}}}+"
    hidden = re.compile(rf"[{marks}]++(?:{between}[{marks}]++){{0,{_JOINED_MARKS}}}+")
    real = str.maketrans(dict(disguise.back))
    segments: list[Segment] = []
    at = 0
    for match in hidden.finditer(rendered):
        hidden_text = _translated(match.group(), real)
        segments += ((rendered[at : match.start()], True), (hidden_text, False))
        at = match.end()
    segments.append((rendered[at:], True))
    return [segment for segment in segments if segment[0]]


@dataclass(frozen=True)
class _ControlTokens:
    """The control tokens of one tokenizer, ready to be looked for in what users wrote."""

    begins: frozenset[str]
    """The characters they begin with."""
    pattern: re.Pattern[str]
    """Finds a whole one, the longest where several begin."""
    rests: str
    """All without their first characters, each with `_END` behind it."""

    def rest_in(self, text: str) -> int | None:
        """Where in `text` the rest of a control token begins; None where it begins with none.

        It does where the text, white space aside (a template may trim it), begins with the end of a
        control token, or lies wholly inside one.
        """
        core = text.strip()
        for length in range(1, min(len(core), _MAX_REST_CHARS) + 1):
            beginning = core[:length]
            if beginning[-1] == _END or beginning not in self.rests:
                return None
            if beginning + _END in self.rests:
                break
        return text.index(core[0]) if core else None


@lru_cache(maxsize=16)
def _control_tokens(texts: tuple[str, ...]) -> _ControlTokens:
    tokens = sorted(filter(None, texts), key=len, reverse=True)
    return _ControlTokens(
        begins=frozenset(token[0] for token in tokens),
        pattern=re.compile("|".join(map(re.escape, tokens)) or "(?!)"),
        rests="".join(token[1:] + _END for token in tokens),
    )


def _is_structure(key: Any, value: Any, control: _ControlTokens) -> bool:
    """Whether a value is a name for the template to look at, and can be no control token."""
    return (
        key in _STRUCTURE_KEYS
        and isinstance(value, str)
        and bool(_WORD.fullmatch(value))
        and not control.pattern.search(value)
    )


def _texts_and_keys(value: Any, control: _ControlTokens) -> tuple[list[str], list[str]]:
    """Texts that users wrote, and the keys of their objects; of `value` itself the keys are not."""
    texts: list[str] = []
    keys: list[str] = []
    items = list(value.values()) if isinstance(value, Mapping) else [value]
    while items:
        item = items.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, list):
            items += item
        elif isinstance(item, dict):
            keys += item
            items += [
                inner for key, inner in item.items() if not _is_structure(key, inner, control)
            ]
    return texts, keys


def unused_private(user_inputs: Mapping[str, Any], count: int) -> list[str]:
    """Private-use characters in none of the texts of users.

    A template that holds one gives another text once they are put back, and is found out by that.
    """
    texts, keys = _texts_and_keys(user_inputs, _control_tokens(()))
    written = [*texts, *keys]
    found: list[str] = []
    code = _FIRST_PRIVATE
    while len(found) < count:
        if not any(chr(code) in text for text in written):
            found.append(chr(code))
        code += 1
    return found
