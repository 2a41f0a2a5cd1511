"""Patterns in RE2's syntax: finding the next match takes time linear in the text, whatever the
pattern.

Python's own `re` may take years for a malicious pattern and text, holding the interpreter's lock
meanwhile, so that no time limit could end it. In exchange RE2 has no lookaround and no
backreferences. All matches of a bounded pattern take linear time together; one that may scan behind
each match to the text's end, as `secret(?:.*password)?`, does so each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from headrace.gateway.guards.guard import Match
from headrace.gateway.guards.looking import Step, one_by_one
from headrace.gateway.pii.expression import expression_of

REDACTED = "[REDACTED]"

# Matches of patterns without a bound are looked for within this much before what is new: RE2 needs
# the one character before for \b and ^.
_LOOK_BACK_CHARS = 1


class Patterns:
    """A finder of several patterns; of overlapping matches the one that begins first wins, then the
    one of the pattern named first. window_chars: for patterns whose matches may have any length.

    Raises ConfigError for patterns that RE2 rejects, and for one that matches the empty text.
    """

    look_back_chars = _LOOK_BACK_CHARS

    def __init__(self, patterns: tuple[str, ...], replacement: str, window_chars: int) -> None:
        self._replacement = replacement
        self._compiled = [expression_of(pattern) for pattern in patterns]
        longest = [longest_match_chars(one) for one in patterns]
        self.window_chars = max(window_chars if one is None else one for one in longest)

    def find(self, text: str, start: int) -> list[Match]:
        """See Finder."""
        found: list[tuple[int, int, int]] = []
        for number, pattern in enumerate(self._compiled):
            for one in pattern.finditer(text, start):
                begin, end = one.span()
                if end > begin:
                    found.append((begin, number, end))
        if len(self._compiled) > 1:
            found.sort()
        matches: list[Match] = []
        at = start
        for begin, number, end in found:
            if begin >= at:
                matches.append(Match(begin, end, self._replacement, f"pattern {number + 1}"))
                at = end
        return matches

    def find_each(self, texts: Iterable[str], step: Step) -> Iterator[list[Match]]:
        """See Finder."""
        return one_by_one(self.find, texts, step)

    def may_find(self, text: str) -> bool:
        """See Finder."""
        return True


def longest_match_chars(pattern: str) -> int | None:
    """The longest match; None if there is no bound, or none is known.

    This uses Python's parser of patterns, which agrees with RE2 on everything that both accept,
    except `{,n}` and classes such as [:alpha:].
    """
    if "{," in pattern or "[:" in pattern:
        return None
    try:
        from re import _parser  # type: ignore[attr-defined]

        _, longest = _parser.parse(pattern).getwidth()
    except (ImportError, AttributeError, re.error, OverflowError, RecursionError):
        return None
    return int(longest) if 0 < longest <= _MOST_WINDOW_CHARS else None


# Beyond it a stream would hardly be one.
_MOST_WINDOW_CHARS = 4096
