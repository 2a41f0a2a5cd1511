"""Replacements in bodies before anything of them is written."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from headrace.gateway.pii.expression import Expression
from headrace.gateway.pii.find import find
from headrace.gateway.pii.glance import may_have
from headrace.gateway.pii.redact import mark, without
from headrace.gateway.pii.span import PiiKind
from headrace.gateway.request_log.json_strings import replaced
from headrace.gateway.request_log.media import may_have_media, without_media

# Arguments of tools are JSON in a string, and what a tool gave back may be such a string in them.
_MOST_NESTED = 3


class Redacted(NamedTuple):
    """A redacted text."""

    text: str
    times: int
    """How many values were replaced."""


class Redaction:
    """The replacements in bodies.

    kinds: of personal data. patterns: the user's expressions by the name that replaces a match.
    fields: globs of names, ignoring case, whose whole values are replaced. media: whether pictures
    and sounds are replaced by their size and SHA-256, and vectors by their length.
    """

    def __init__(
        self,
        kinds: Collection[PiiKind] = (),
        patterns: Iterable[tuple[str, Expression]] = (),
        fields: Sequence[str] = (),
        *,
        media: bool = True,
    ) -> None:
        self._kinds = frozenset(kinds)
        self._patterns = [(mark(name), one) for name, one in patterns]
        self._fields = tuple(field.lower() for field in fields)
        self.hides_media = media

    @property
    def hides_text(self) -> bool:
        """Whether anything but media is looked for, which a stream's pieces would tear apart."""
        return bool(self._kinds or self._patterns or self._fields)

    def json(self, body: str) -> Redacted:
        """A JSON text, or the beginning of one: it stays as valid as it is, and what is not
        replaced stays as it is written."""
        if not self._may_have_any(body):
            return Redacted(body, 0)
        return _Body(self, _MOST_NESTED).of(body)

    def _may_have_any(self, body: str) -> bool:
        """False for most bodies, and quickly."""
        if self._patterns or self._fields or "\\u" in body or "\\/" in body:
            return True
        return (self.hides_media and may_have_media(body)) or may_have(body, self._kinds)

    def text(self, text: str) -> Redacted:
        """A text that is no JSON."""
        count = 0
        for told, pattern in self._patterns:
            text, times = pattern.subn(told, text)
            count += times
        if self._kinds:
            spans = find(text, self._kinds)
            text, count = without(text, spans), count + len(spans)
        return Redacted(text, count)

    def value(self, name: str, text: str, nested: int) -> Redacted:
        """The string of a field."""
        count = 0
        if self.hides_media:
            text, count = without_media(name, text)
        if not self.hides_text:
            return Redacted(text, count)
        if nested and text[:1] in ("{", "[") and _is_json(text):
            inner = _Body(self, nested - 1).of(text)
        else:
            inner = self.text(text)
        return Redacted(inner.text, count + inner.times)

    def hides(self, name: str) -> bool:
        """Whether the field's value goes whole."""
        lower = name.lower()
        return any(fnmatch.fnmatchcase(lower, field) for field in self._fields)


class _Body:
    """One JSON text. Names come again and again, so what is said of them is kept."""

    def __init__(self, redaction: Redaction, nested: int) -> None:
        self._redaction = redaction
        self._nested = nested
        self._hidden: dict[str, bool] = {}
        self._count = 0

    def of(self, body: str) -> Redacted:
        text = replaced(body, self._on_text, self._is_hidden)
        return Redacted(text, self._count)

    def _on_text(self, name: str, text: str) -> str | None:
        told = self._redaction.value(name, text, self._nested)
        self._count += told.times
        return told.text if told.times else None

    def _is_hidden(self, name: str) -> bool:
        found = self._hidden.get(name)
        if found is None:
            found = self._hidden[name] = self._redaction.hides(name)
        self._count += found
        return found


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
