"""Removes the gateway's secrets from the parts of a passed-through stream that are not the answer.

What a model writes is left unchanged, to the byte: a word of it may equal one of a header by
chance, and the same answer whole has it too. Errors, comments, unknown events and fields beside the
answer are searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.gateway.serving.scrub import INSTEAD, Header, secrets_in
from headrace.protocol.json_object import JsonObject

_INSTEAD = INSTEAD.encode()
_DATA = b"data:"
# No JSON writer escapes these, so a long enough run of them stands in every spelling of a secret.
_PLAIN_RUN = re.compile(r"[A-Za-z0-9_.~-]{4,}")
_PLAIN_CHAR = re.compile(r"[A-Za-z0-9_.~-]")
# Fields that hold answers: of chats and completions; of Anthropic, whose `message` Ollama has too;
# of Ollama's generate. In Responses the whole event is the answer.
_SAID: dict[str, type] = {
    "choices": list, "delta": dict, "content_block": dict, "message": dict, "response": str,
    "thinking": str,
}  # fmt: skip
_NOTHING: frozenset[str] = frozenset()


class PassedScrub:
    """A filter that replaces secrets from request headers in a stream.

    Set `has_failed` once the stream reports an error; all that comes afterwards is searched.
    """

    def __init__(self, headers: Iterable[Header]) -> None:
        self.has_failed = False
        self._secrets = secrets_in(headers)
        self._marks = {_mark(secret) for secret in self._secrets}
        self._found: re.Pattern[bytes] | None = None

    def clean(self, events: bytes) -> bytes:
        """Whole events without secrets; the same bytes if there are none."""
        for mark in self._marks:
            if mark in events:
                return b"".join(self._cleaned(events))
        return events

    def _cleaned(self, events: bytes) -> Iterator[bytes]:
        event: list[bytes] = []
        for line in events.splitlines(keepends=True):
            event.append(line)
            # An event ends with a blank line, or is a line of JSON.
            if not line.strip() or line.startswith(b"{"):
                yield from self._event(event)
                event = []
        yield from self._event(event)

    def _event(self, lines: list[bytes]) -> Iterator[bytes]:
        data = [line for line in lines if _is_data(line)]
        said = _NOTHING
        if not self.has_failed and not any(_names_error(line) for line in lines):
            said = _said(b"".join(line.removeprefix(_DATA) for line in data))
        for line in lines:
            if not said or not _is_data(line):
                yield self._without(line)
            elif len(data) == 1:
                yield self._without_beside(line, said)
            else:
                yield line

    def _without_beside(self, line: bytes, said: frozenset[str]) -> bytes:
        """The line without secrets in fields of its object that are not the answer."""
        at = line.index(b"{")
        end = line.rindex(b"}") + 1
        try:
            fields = JsonObject.read(line[at:end])
        except RequestError:  # a duplicate name, or too many
            return self._without(line)
        cleaned: dict[str, bytes | None] = {}
        for name in fields.names:
            value = fields.value(name)
            if name not in said and value is not None and (less := self._without(value)) != value:
                cleaned[name] = less
        return line[:at] + fields.edited(cleaned) + line[end:] if cleaned else line

    def _without(self, text: bytes) -> bytes:
        if self._found is None:
            self._found = re.compile(b"|".join(map(_spelled, self._secrets)))
        return self._found.sub(_INSTEAD, text)


def without_errors(events: bytes) -> bytes:
    """Whole events without those that report an error, and what comes after the first."""
    lines = events.splitlines(keepends=True)
    begin = 0
    for at, line in enumerate(lines):
        if line.strip() and not line.startswith(b"{"):
            continue
        event = lines[begin : at + 1]
        if _reports_error(event):
            return b"".join(lines[:begin])
        begin = at + 1
    return b"".join(lines[:begin] if _reports_error(lines[begin:]) else lines)


def _reports_error(lines: list[bytes]) -> bool:
    if any(_names_error(line) for line in lines):
        return True
    data = b"".join(line.removeprefix(_DATA) for line in lines if _is_data(line))
    try:
        told = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return isinstance(told, dict) and _tells_error(told)


def _is_data(line: bytes) -> bool:
    return line.startswith((_DATA, b"{"))


def _names_error(line: bytes) -> bool:
    name, colon, value = line.partition(b":")
    return bool(colon) and name == b"event" and value.strip() == b"error"


def _said(data: bytes) -> frozenset[str]:
    """The fields of an event that hold the answer; none for an error or an unknown event."""
    try:
        told = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _NOTHING
    if not isinstance(told, dict) or _tells_error(told):
        return _NOTHING
    if str(told.get("type")).startswith("response."):
        return frozenset(told)
    return frozenset(
        name for name, kind in _SAID.items() if told.get(name) and isinstance(told[name], kind)
    )


def _tells_error(told: dict[str, Any]) -> bool:
    if told.get("type") in ("error", "response.failed") or told.get("object") == "error":
        return True
    choices = told.get("choices")
    inside = (told, told.get("response"), told.get("item"))
    parts = (*inside, *(choices if isinstance(choices, list) else ()))
    return any(isinstance(part, dict) and bool(part.get("error")) for part in parts)


def _mark(secret: str) -> bytes:
    """Bytes that are present wherever the secret is, however it is written."""
    longest = max(_PLAIN_RUN.findall(secret), key=len, default=secret)
    return longest.encode(errors="replace")


def _spelled(secret: str) -> bytes:
    """A pattern for the secret as it is, or with the escapes a JSON text may have."""
    return b"".join(
        char.encode() if _PLAIN_CHAR.fullmatch(char) else _spelled_char(char) for char in secret
    )


def _spelled_char(char: str) -> bytes:
    plain = re.escape(char.encode(errors="replace"))
    return rb"(?:\\?%b|\\u(?i:%04x))" % (plain, ord(char))
