"""A tool call's arguments that grow: looked at as they are written, and as JSON reads them.

Each string is a text of its own, without its escapes, and each number is one too, as `findings`
looks at arguments that are whole. What is found there is told by where it is written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from operator import itemgetter

import msgspec

from headrace.gateway.guards.findings import is_within, token_text
from headrace.gateway.guards.growing import Growing
from headrace.gateway.guards.guard import Finder, Match
from headrace.gateway.guards.replace import fitting, merged, replaced_text, summary
from headrace.gateway.guards.text_span import readable

_RUN = re.compile(r'[^"\\]++')
_CONTROL = re.compile(r"[\x00-\x1f]")
_ESCAPE = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|(["\\/bfnrt]))')
_LOW = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
# What may yet become one of them.
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9A-Fa-f]{0,3})?")
_CUT_LOW = re.compile(r"(?:\\(?:u(?:[Dd](?:[C-Fc-f][0-9A-Fa-f]?)?)?)?)?")
_BETWEEN = re.compile(r'[^"\d-]++')
# Marks, white space, and what true, false and null are written with.
_OF_JSON = re.compile(r"[\s{}\[\],:truefalsn]*+")
_NUMBER = re.compile(r"-?\d[\d.eE+-]*+")
# Python reads no longer ones; nobody writes them.
_MOST_DIGITS = 4300
_SIMPLE = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HIGH, _FIRST_LOW, _AFTER_LOW = 0xD800, 0xDC00, 0xE000
_ABOVE_PAIRS = 0x10000


class GrowingArguments:
    """A GrowingText for a tool call's arguments. Replacements of matches are as they have to stand
    in JSON text; a number's is the whole value. Where the text turns out not to be JSON, it is
    still read as far as it is.
    """

    __slots__ = (
        "_at", "_ended", "_finder", "_first", "_is_json", "_more", "_opened", "_rest", "_said",
        "_starts", "_tokens", "_written",
    )  # fmt: skip

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._written = Growing(finder)
        self._ended = False
        self._is_json = True
        # The text from `_at` on that has not been read: half a number, or half an escape.
        self._rest = ""
        self._at = 0
        # What came after it.
        self._more: list[str] = []
        # The string we are in, where it began, and where each of its characters from number
        # `_first` on is written.
        self._said: Growing | None = None
        self._opened = 0
        self._starts: list[int] = []
        self._first = 0
        # Where strings and numbers stand.
        self._tokens: list[tuple[int, int]] = []

    @property
    def total(self) -> int:
        """See GrowingText."""
        return self._written.total

    @property
    def cleared(self) -> int:
        """See GrowingText."""
        said = self._said
        return min(self._written.cleared, self._at if said is None else self._place(said.cleared))

    @property
    def held_chars(self) -> int:
        """See GrowingText."""
        said = 0 if self._said is None else self._said.held_chars
        return max(self._written.held_chars, said, len(self._rest))

    def grow(self, text: str) -> None:
        """See GrowingText."""
        self._written.grow(text)
        self._more.append(text)

    def end(self) -> None:
        """See GrowingText."""
        self._ended = True
        self._written.end()

    def found(self) -> list[Match]:
        """See GrowingText."""
        found = self._read()
        around = [
            one for one in self._written.found() if not (self._is_json and self._is_in_token(one))
        ]
        cleared = self._written.cleared
        del self._tokens[: bisect_right(self._tokens, cleared, key=itemgetter(1))]
        return merged([*found, *fitting(around)])

    def _read(self) -> list[Match]:
        """Strings and numbers as far as they have come, and what is found in them."""
        text, base, at = "".join((self._rest, *self._more)), self._at, 0
        self._more.clear()
        found: list[Match] = []
        while at < len(text):
            if self._said is None:
                after = self._read_between(text, at, found)
            else:
                after = self._read_string(self._said, text, at, found)
            if after == at:
                break
            at = after
            self._at = base + at
        self._rest = text[at:]
        if self._said is not None:
            if self._ended:
                self._said.end()
            found += self._found_in(self._said)
        return found

    def _read_between(self, text: str, at: int, found: list[Match]) -> int:
        """The position up to which it was read; `at` itself if more text is needed."""
        if text[at] == '"':
            self._said, self._opened = Growing(self._finder), self._at
            self._starts, self._first = [], 0
            return at + 1
        if (between := _BETWEEN.match(text, at)) is not None:
            self._is_json = self._is_json and _OF_JSON.fullmatch(between[0]) is not None
            return between.end()
        number = _NUMBER.match(text, at)
        end = at + 1 if number is None else number.end()
        if end == len(text) and not self._ended and end - at < _MOST_DIGITS:
            return at
        told = "" if number is None else token_text(number[0])
        self._is_json = self._is_json and bool(told)
        if number is not None:
            span = (self._at, self._at + end - at)
            self._tokens.append(span)
            if told and (matches := self._finder.find(told, 0)):
                value = msgspec.json.encode(readable(replaced_text(told, matches))).decode()
                found.append(Match(*span, value, summary(matches)))
        return end

    def _read_string(self, said: Growing, text: str, at: int, found: list[Match]) -> int:
        """See `_read_between`."""
        if (run := _RUN.match(text, at)) is not None:
            self._is_json = self._is_json and _CONTROL.search(run[0]) is None
            self._starts += range(self._at, self._at + len(run[0]))
            said.grow(run[0])
            return run.end()
        if text[at] == '"':
            said.end()
            found += self._found_in(said)
            self._tokens.append((self._opened, self._at + 1))
            self._said = None
            return at + 1
        escape = _ESCAPE.match(text, at)
        if escape is None:
            if not self._ended and _CUT_ESCAPE.fullmatch(text, at) is not None:
                return at
            self._is_json = False
            char, end = "\\", at + 1
        elif escape[2] is not None:
            char, end = _SIMPLE[escape[2]], escape.end()
        else:
            code, end = int(escape[1], 16), escape.end()
            if _HIGH <= code < _FIRST_LOW:
                low = _LOW.match(text, end)
                if low is not None:
                    code = _ABOVE_PAIRS + ((code - _HIGH) << 10) + int(low[1], 16) - _FIRST_LOW
                    end = low.end()
                elif not self._ended and _CUT_LOW.fullmatch(text, end) is not None:
                    return at
            char = readable(chr(code))
        self._starts.append(self._at)
        said.grow(char)
        return end

    def _found_in(self, said: Growing) -> list[Match]:
        matches = [
            one._replace(start=self._place(one.start), end=self._place(one.end))
            for one in said.found()
        ]
        del self._starts[: said.cleared - self._first]
        self._first = said.cleared
        return fitting(matches)

    def _place(self, number: int) -> int:
        """The position at which a character of the string is written, or will be for the next "
        "one."""
        at = number - self._first
        return self._starts[at] if at < len(self._starts) else self._at

    def _is_in_token(self, match: Match) -> bool:
        opened = self.total
        if self._said is not None:
            opened = self._opened
        elif self._rest:  # half a number
            opened = self._at
        return opened <= match.start or is_within(match, self._tokens)
