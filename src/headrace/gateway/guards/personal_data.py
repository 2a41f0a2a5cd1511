"""Personal data and secrets, as a guardrail looks for them."""

from __future__ import annotations

from headrace.gateway.guards.guard import Match
from headrace.gateway.pii.find import find
from headrace.gateway.pii.redact import mark
from headrace.gateway.pii.span import PiiKind

# The longest of what is written in one line: an address of mail, RFC 5321.
_LONGEST_CHARS = 320
# Runs of digits and letters are looked at as a whole.
_LOOK_BACK_CHARS = 512


class PersonalData:
    """kinds: those that are looked for. What is longer than the window, as keys in PEM are, is seen
    from its first line on."""

    look_back_chars = _LOOK_BACK_CHARS

    def __init__(self, kinds: tuple[PiiKind, ...], window_chars: int) -> None:
        self._kinds = kinds
        self.window_chars = max(window_chars, _LONGEST_CHARS)

    def find(self, text: str, start: int) -> list[Match]:
        """See Finder."""
        return [
            Match(one.start, one.end, mark(one.kind), one.kind)
            for one in find(text, self._kinds)
            if one.start >= start
        ]
