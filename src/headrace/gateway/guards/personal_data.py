"""Personal data and secrets, as a guardrail looks for them."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from headrace.gateway.guards.guard import Match
from headrace.gateway.guards.looking import Step
from headrace.gateway.pii.api_keys import BLOCK
from headrace.gateway.pii.find import find
from headrace.gateway.pii.glance import may_have
from headrace.gateway.pii.plain import plain
from headrace.gateway.pii.redact import mark
from headrace.gateway.pii.span import PiiKind

# The longest of what is written in one line: an address of mail, RFC 5321.
_LONGEST_CHARS = 320
# Runs of digits and letters are looked at as a whole.
_LOOK_BACK_CHARS = 512

# A look takes some microseconds whatever the text is, so that short texts are looked at together,
# with a character between them that is part of nothing and that nothing looks behind.
_DIVIDER = "\0"
_MOST_TOGETHER = 4096
# Some milliseconds of looking.
_STEP_CHARS = 16_384
# No key, and no block with one, is longer; what goes on behind it is looked at as other text is.
_MOST_MATCH_CHARS = 65_536

# A number may read longer than it is written.
_EXPONENT = re.compile("[0-9][eE]")


class PersonalData:
    """A finder of personal data and secrets. kinds: those that are looked for. Matches longer than
    the window, such as keys in PEM, are detected from their first line on."""

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

    def find_each(self, texts: Iterable[str], step: Step) -> Iterator[list[Match]]:
        """See Finder."""
        waiting: list[str] = []
        chars = 0
        for text in texts:
            waiting.append(text)
            chars += len(text)
            if chars > _STEP_CHARS or len(waiting) == _MOST_TOGETHER:
                yield from self._find_in(waiting, step)
                waiting, chars = [], 0
        if waiting:
            yield from self._find_in(waiting, step)

    def may_find(self, text: str) -> bool:
        """See Finder."""
        is_plain = "\\u" not in text and _EXPONENT.search(text) is None
        return not is_plain or may_have(text, self._kinds)

    def _find_in(self, texts: list[str], step: Step) -> list[list[Match]]:
        step()
        found: list[list[Match]] = [[] for _ in texts]
        together: list[int] = []
        for number, text in enumerate(texts):
            if len(text) > _STEP_CHARS:
                found[number] = self._in_slices(text, step)
            elif BLOCK in plain(text):  # it goes on to its end, wherever that is
                found[number] = self.find(text, 0)
            else:
                together.append(number)
        said = [texts[number] for number in together]
        starts = list(itertools.accumulate((len(one) + 1 for one in said), initial=0))
        for match in self.find(_DIVIDER.join(said), 0):
            at = bisect_right(starts, match.start) - 1
            base = starts[at]
            found[together[at]].append(
                match._replace(start=match.start - base, end=match.end - base)
            )
        return found

    def _in_slices(self, text: str, step: Step) -> list[Match]:
        """The matches in a long text; each slice has its context before it, and a window more."""
        found: list[Match] = []
        at, chars = 0, _STEP_CHARS
        while at < len(text):
            step()
            base = max(0, at - _LOOK_BACK_CHARS)
            after = min(at + chars, len(text))
            decided = after
            for one in self.find(text[base : after + self.window_chars], at - base):
                match = one._replace(start=one.start + base, end=one.end + base)
                if match.start >= after:
                    break
                if match.end > after and chars < _MOST_MATCH_CHARS:  # it may go on
                    decided = match.start
                    break
                found.append(match)
                decided = max(decided, match.end)
            chars = 2 * chars if decided == at else _STEP_CHARS
            at = decided
        return found
