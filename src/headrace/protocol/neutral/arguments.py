"""The arguments of a tool call that has none.

Models call a tool without parameters with nothing, blanks or `null`, where clients expect an
object. In the neutral form such arguments are `{}`: of a whole call (`ToolCall` sees to it) and of
one that grows in a stream, whose reader passes its pieces through `GrowingArguments`.
"""

from __future__ import annotations

NO_ARGUMENTS = "{}"
_NULL = "null"
# Longer blanks are passed on as they are: a reader must not hold more.
_MOST_CHARACTERS = 64


def given_arguments(text: str) -> str:
    """The arguments as the model wrote them, or `{}` if it gave none."""
    return NO_ARGUMENTS if len(text) <= _MOST_CHARACTERS and _is_empty(text) else text


def _is_empty(text: str) -> bool:
    stripped = text.strip()
    return not stripped or stripped == _NULL


class GrowingArguments:
    """The arguments of a call while it is streamed. Held back are only pieces that may yet turn out
    to be none."""

    def __init__(self) -> None:
        self._held: str | None = ""
        """None once pieces are passed on as they come."""

    def take(self, piece: str) -> str:
        """What may be passed on, after one more piece."""
        if self._held is None:
            return piece
        self._held += piece
        if len(self._held) <= _MOST_CHARACTERS and _may_be_empty(self._held):
            return ""
        return self._release()

    def end(self) -> str:
        """The rest, when the call is whole."""
        return "" if self._held is None else given_arguments(self._release())

    def _release(self) -> str:
        text, self._held = self._held or "", None
        return text


def _may_be_empty(text: str) -> bool:
    """Whether `text` with more of it may be blank or null."""
    return _is_empty(text) or _NULL.startswith(text.lstrip())
