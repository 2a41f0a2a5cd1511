"""A function call whose arguments arrive in pieces (Vertex AI's streamFunctionCallArguments).

    {"name": "cook", "willContinue": true}
    {"partialArgs": [{"jsonPath": "$.steps[0]", "stringValue": "Bo", "willContinue": true}],
     "willContinue": true}
    {"partialArgs": [{"jsonPath": "$.steps[0]", "stringValue": "il"}], "willContinue": true}
    {}

Each piece says where its value belongs. The call is reported when it is whole, and never with
arguments of which a piece is missing or has no place.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from headrace.protocol.dialects.json_values import text
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import Signature

# Far more than models write; a provider must not fill our memory.
_MOST_CHARACTERS = 16 * 2**20
_MOST_STEPS = 64
_STEP_CHARACTERS = 32  # what each step and value takes beside its text

_Step = str | int
_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]'"]+)
      | \[(?P<index>[0-9]{1,7})\]
      | \['(?P<single>(?:[^'\\]|\\.)*)'\]
      | \["(?P<double>(?:[^"\\]|\\.)*)"\]""",
    re.VERBOSE,
)
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


class StreamedCall:
    """A call while its pieces arrive."""

    def __init__(self, name: str, call_id: str) -> None:
        self.name = name
        self.id = call_id
        self.signature: Signature | None = None
        self._arguments: dict[str, Any] = {}
        self._strings: dict[tuple[_Step, ...], list[str]] = {}
        """Texts that go on, by their paths."""
        self._characters = 0

    @property
    def has_open_text(self) -> bool:
        """Whether a text among its arguments was announced to go on."""
        return bool(self._strings)

    @property
    def arguments(self) -> str:
        """As JSON, what arrived so far."""
        return msgspec.json.encode(self._arguments).decode()

    def take(self, call: dict[str, Any]) -> bool:
        """Add a piece; return whether it was the last. Raises DamagedReplyError."""
        name, call_id = text(call.get("name")), text(call.get("id"))
        if name and (name != self.name or call_id != self.id):
            raise DamagedReplyError("a functionCall begins before the one before it has ended")
        whole, pieces = call.get("args"), call.get("partialArgs")
        if not isinstance(whole, dict | None) or not isinstance(pieces, list | None):
            raise DamagedReplyError("args or partialArgs of a functionCall have the wrong type")
        self._arguments |= whole or {}
        for piece in pieces or ():
            if not isinstance(piece, dict):
                raise DamagedReplyError("one of partialArgs is not an object")
            self._put(piece)
        if call.get("willContinue") is True:
            return False
        if self.has_open_text:
            raise DamagedReplyError("a functionCall ended within the text of an argument")
        return True

    def _put(self, piece: dict[str, Any]) -> None:
        path, goes_on = text(piece.get("jsonPath")), piece.get("willContinue") is True
        place = _steps(path)
        names = [name for name in _VALUES if name in piece]
        if len(names) > 1 or not (names or goes_on or place in self._strings):
            raise DamagedReplyError("one of partialArgs has no value, or several")
        value = None if names == ["nullValue"] else piece.get(names[0]) if names else ""
        self._charge(len(path) + (len(value) if isinstance(value, str) else 0), len(place))
        if isinstance(value, str):
            pieces = self._strings.setdefault(place, [])
            pieces.append(value)
            value = "".join(pieces) if not goes_on else ""
        elif place in self._strings:
            raise DamagedReplyError("an argument goes on with a value of another type")
        if not goes_on:
            self._strings.pop(place, None)
        _set(self._arguments, place, value)

    def _charge(self, characters: int, steps: int) -> None:
        self._characters += characters + _STEP_CHARACTERS * (steps + 1)
        if self._characters > _MOST_CHARACTERS:
            raise DamagedReplyError(f"arguments of a call exceed {_MOST_CHARACTERS} characters")


def _steps(path: str) -> tuple[_Step, ...]:
    """The steps of a JSON path that names one place."""
    steps: list[_Step] = []
    at = 1
    while path.startswith("$") and at < len(path) and len(steps) < _MOST_STEPS:
        step = _STEP.match(path, at)
        if step is None:
            break
        steps.append(_step(step))
        at = step.end()
    if not steps or at < len(path) or isinstance(steps[0], int):
        raise DamagedReplyError("the jsonPath of an argument does not name one place")
    return tuple(steps)


def _step(step: re.Match[str]) -> _Step:
    name, index, single, double = step.group("name", "index", "single", "double")
    if index is not None:
        return int(index)
    if name is not None:
        return name
    quoted = double
    if quoted is None:
        quoted = single.replace("\\'", "'").replace('"', '\\"')
    try:
        return msgspec.json.decode(f'"{quoted}"', type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise DamagedReplyError("the jsonPath of an argument has a damaged name") from None


def _set(root: dict[str, Any], steps: tuple[_Step, ...], value: Any) -> None:
    """Put a value in its place; lists grow by one at a time."""
    container: Any = root
    for at, step in enumerate(steps):
        is_last = at + 1 == len(steps)
        fits = isinstance(container, list if isinstance(step, int) else dict)
        if not fits or (isinstance(step, int) and step > len(container)):
            raise DamagedReplyError("the jsonPath of an argument does not fit those before it")
        is_new = step == len(container) if isinstance(step, int) else step not in container
        if is_last or is_new:
            content: Any = value
            if not is_last:
                content = [] if isinstance(steps[at + 1], int) else {}
            if isinstance(container, list) and is_new:
                container.append(content)
            else:
                container[step] = content
        container = container[step]
