"""Lists of modules as quantised folders state them, matched in time linear in a module's name.

    lm_head, model.layers.0.self_attn     whole parts of a module's path, anywhere in it
    model.layers.0.mlp*, *.attn.*         `*` is any text, `?` any character, `[ab]` one of
                                          some; the whole path, or that of a module around it
    re:.*mlp\\.(gate|up)_proj.*            an expression that matches from the start of the path

A config is a stranger's, and Python's expressions backtrack: a list becomes one automaton whose
states are made as they are met, and forgotten where they become too many.

Sources: compressed-tensors utils/match.py (is_match), transformers quantizers_utils.py
(should_convert_module), modelopt's fnmatch of exclude_modules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple

from headrace.errors import UnsupportedModelError, shown

MAX_NAMES, MAX_LENGTH = 1 << 16, 512
"""Names of a list, and characters of a name; published lists have up to 720 names of 60."""

_MAX_DEPTH = 16
# Sets of states that are kept, each with a successor for every character met.
_MAX_SETS = 4096
_DIGITS = frozenset("0123456789")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_CLASSES = {"d": _DIGITS, "w": _DIGITS | _LETTERS, "s": frozenset(" \t\n\r\f\v")}


_Follows = Literal["anything", "module", "nothing"]
"""What may follow the end of a match: any text, a module inside the one that is matched, nothing.
"""


class _Chars(NamedTuple):
    """The characters of one step: those of `chars`, or all others."""

    chars: frozenset[str]
    negated: bool = False


_ANY = _Chars(frozenset(), negated=True)


class ModuleNames:
    """A list of modules by name, with wildcards or as expressions."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Raises UnsupportedModelError for an expression that is not understood, and for a list or
        a name beyond the limits.
        """
        self.names = tuple(names)
        """As they are stated."""
        if len(self.names) > MAX_NAMES or any(len(name) > MAX_LENGTH for name in self.names):
            raise UnsupportedModelError(
                f"a quantization_config lists {len(self.names)} modules, or one by a name of "
                f"more than {MAX_LENGTH} characters; at most {MAX_NAMES} are read. The config is "
                "damaged, fetch it again"
            )
        self._plain: set[str] = set()
        self._automaton = _Automaton()
        for name in self.names:
            if name.startswith("re:"):
                self._automaton.add(name, name[3:], "anything")
            elif any(character in name for character in "*?["):
                self._automaton.add(name, _expression(name), "module")
            else:
                self._plain.add(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleNames) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"ModuleNames({self.names!r})"

    def covers(self, module: str) -> bool:
        """Whether the list has `module`, a path like "model.layers.0.mlp.gate_proj"."""
        parts = module.split(".")
        if self._plain and any(
            ".".join(parts[first:last]) in self._plain
            for first in range(len(parts))
            for last in range(first + 1, len(parts) + 1)
        ):
            return True
        return self._automaton.matches(module)


def _expression(wildcards: str) -> str:
    """The expression that means the same as a name with wildcards."""
    written: list[str] = []
    inside = False
    for character in wildcards:
        if inside or character in "[]":
            opens = written and written[-1] == "["
            written.append("^" if opens and character == "!" else character)
            inside = character != "]" and (inside or character == "[")
        elif character in "*?":
            written.append(".*" if character == "*" else ".")
        else:
            written.append(character if character.isalnum() else f"\\{character}")
    return "".join(written)


class _Automaton:
    """Expressions as one machine without backtracking (Thompson's construction).

    A state has the characters that lead on from it, or None where it is passed at once, and what it
    leads to.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[_Chars | None, list[int]]] = []
        self._starts: list[int] = []
        self._ends: dict[int, _Follows] = {}
        """Final states, with what may follow them in a path."""
        self._next: dict[frozenset[int], dict[str, frozenset[int]]] = {}
        self._first: frozenset[int] | None = None

    def add(self, name: str, expression: str, follows: _Follows) -> None:
        """Match `expression` too. name: for the error where it is not understood."""
        try:
            parser = _Parser(expression, self._steps)
            start, end = parser.alternatives(0)
            parser.finish()
        except ValueError as error:
            raise UnsupportedModelError(
                f"quantization_config lists the modules {shown(name)}, which is not understood: "
                f"{error}; supported: characters, classes, groups, '|', '*', '+', '?' and anchors"
            ) from error
        self._starts.append(start)
        self._ends[end] = "nothing" if parser.ends else follows
        self._first = None

    def matches(self, module: str) -> bool:
        """Whether one of the expressions matches."""
        if not self._starts:
            return False
        if self._first is None:
            self._first = self._closed(self._starts)
        states = self._first
        for character in module:
            if self._accepts(states, {"anything", "module"} if character == "." else {"anything"}):
                return True
            if not states:
                return False
            states = self._after(states, character)
        return self._accepts(states, {"anything", "module", "nothing"})

    def _accepts(self, states: frozenset[int], follows: Collection[_Follows]) -> bool:
        return any(self._ends[state] in follows for state in states & self._ends.keys())

    def _after(self, states: frozenset[int], character: str) -> frozenset[int]:
        if len(self._next) > _MAX_SETS:
            self._next.clear()
        known = self._next.setdefault(states, {})
        if character not in known:
            known[character] = self._closed(
                follower
                for state in states
                if (chars := self._steps[state][0]) is not None
                and (character in chars.chars) != chars.negated
                for follower in self._steps[state][1]
            )
        return known[character]

    def _closed(self, states: Iterable[int]) -> frozenset[int]:
        """The states, and those that are reached from them without a character."""
        waiting, reached = list(states), set[int]()
        while waiting:
            state = waiting.pop()
            if state not in reached:
                reached.add(state)
                chars, followers = self._steps[state]
                if chars is None:
                    waiting += followers
        return frozenset(reached)


class _Parser:
    """An expression on its way into steps of an automaton. Raises ValueError where it is not
    understood.
    """

    def __init__(self, text: str, steps: list[tuple[_Chars | None, list[int]]]) -> None:
        self._text = text
        self._at = 0
        self._steps = steps
        self.ends = False
        """Whether '$' stands at the end, so that nothing may follow."""

    def finish(self) -> None:
        """All of the text must have been read."""
        if self._at < len(self._text):
            raise ValueError(f"{self._text[self._at]!r} at {self._at} opens nothing")

    def alternatives(self, depth: int) -> tuple[int, int]:
        """First and last state of parts between '|'."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"groups lie more than {_MAX_DEPTH} deep")
        start, end = self._state(None), self._state(None)
        while True:
            first, last = self._sequence(depth)
            self._steps[start][1].append(first)
            self._steps[last][1].append(end)
            if self._peek() != "|":
                return start, end
            if depth == 0 and self._text.endswith("$"):
                raise ValueError("'$' behind one of several parts is not supported")
            self._at += 1

    def _sequence(self, depth: int) -> tuple[int, int]:
        start = end = self._state(None)
        while self._peek() not in ("", "|", ")"):
            first, last = self._repeated(depth)
            self._steps[end][1].append(first)
            end = last
        return start, end

    def _repeated(self, depth: int) -> tuple[int, int]:
        first, last = self._atom(depth)
        while (sign := self._peek()) and sign in "*+?{":
            self._at += 1
            if sign == "{":
                raise ValueError("counts of repetitions are not supported")
            start, end = self._state(None), self._state(None)
            self._steps[start][1].append(first)
            self._steps[last][1].append(end)
            if sign in "*?":
                self._steps[start][1].append(end)
            if sign in "*+":
                self._steps[last][1].append(first)
            first, last = start, end
        return first, last

    def _atom(self, depth: int) -> tuple[int, int]:
        sign = self._take()
        if sign == "(":
            if self._text.startswith("?:", self._at):
                self._at += 2
            inner = self.alternatives(depth + 1)
            if self._take() != ")":
                raise ValueError("a group is not closed")
            return inner
        if sign == "^" and self._at == 1:
            state = self._state(None)
            return state, state
        if sign == "$" and depth == 0 and self._at == len(self._text):
            self.ends = True
            state = self._state(None)
            return state, state
        if sign in "*+?{)^$":
            raise ValueError(f"{sign!r} at {self._at - 1} has nothing before it to apply to")
        return self._character(self._class() if sign == "[" else self._single(sign))

    def _character(self, chars: _Chars) -> tuple[int, int]:
        last = self._state(None)
        first = self._state(chars)
        self._steps[first][1].append(last)
        return first, last

    def _single(self, sign: str) -> _Chars:
        if sign == ".":
            return _ANY
        if sign != "\\":
            return _Chars(frozenset(sign))
        escaped = self._take()
        if escaped.lower() in _CLASSES:
            return _Chars(_CLASSES[escaped.lower()], negated=escaped.isupper())
        if escaped.isalnum():
            raise ValueError(f"'\\{escaped}' is not supported")
        return _Chars(frozenset(escaped))

    def _class(self) -> _Chars:
        negated = self._peek() == "^"
        self._at += negated
        chars: set[str] = set()
        while (sign := self._take()) != "]" or not chars:
            if sign == "\\":
                single = self._single(sign)
                if single.negated:
                    raise ValueError("a negated class inside a class is not supported")
                chars |= single.chars
            elif self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._take()
                if not ord(sign) <= ord(last) < 128:
                    raise ValueError(f"the range {sign}-{last} is not one of ASCII")
                chars |= {chr(code) for code in range(ord(sign), ord(last) + 1)}
            else:
                chars.add(sign)
        return _Chars(frozenset(chars), negated)

    def _state(self, chars: _Chars | None) -> int:
        self._steps.append((chars, []))
        return len(self._steps) - 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise ValueError("it ends in the middle of a part")
        self._at += 1
        return self._text[self._at - 1]
