"""Lists of modules as quantised folders state them, matched in time linear in a module's name.

    lm_head, model.layers.0.self_attn     whole parts of a module's path, anywhere in it
    model.layers.0.mlp*, *.attn.*         `*` is any text, `?` any character, `[ab]` one of
                                          some; the whole path, or that of a module around it
    re:.*mlp\\.(gate|up)_proj.*            an expression that matches from the start of the path

A config is a stranger's, and Python's expressions backtrack: lists become one automaton whose
states are made as they are met, and forgotten where they become too many. Characters of patterns
and the work of making states are bounded.

Sources: compressed-tensors utils/match.py (is_match), transformers quantizers_utils.py
(should_convert_module), modelopt's fnmatch of exclude_modules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from headrace.errors import UnsupportedModelError, shown

MAX_NAMES, MAX_LENGTH = 1 << 16, 512
"""Names of a list, and characters of a name; published lists have up to 720 names of 60."""

MAX_PATTERN_CHARACTERS = 1 << 15
"""Characters of all expressions and names with wildcards that are matched together; published
lists have up to 5,517."""

_MAX_DEPTH = 16
# Members of all sets of states that are kept, and successors of these.
_MAX_KEPT = 1 << 19
# States looked at while sets are made: a second or two, where published lists need some 100,000.
_MAX_WORK = 1 << 22
_DIGITS = frozenset("0123456789")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_CLASSES = {"d": _DIGITS, "w": _DIGITS | _LETTERS, "s": frozenset(" \t\n\r\f\v")}


_Follows = Literal["anything", "module", "nothing"]
"""What may follow the end of a match: any text, a module inside the one that is matched, nothing.
"""
_ANYTHING: tuple[_Follows, ...] = ("anything",)
_INSIDE: tuple[_Follows, ...] = ("anything", "module")


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
        check_patterns(self.names)
        for name in self.names:
            if is_pattern(name):
                _Automaton().add(name, 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleNames) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"ModuleNames({self.names!r})"

    def covers(self, module: str) -> bool:
        """Whether the list has `module`, a path like "model.layers.0.mlp.gate_proj".

        Raises UnsupportedModelError where that costs too much to find out.
        """
        return self._matcher.first(module) is not None

    @cached_property
    def _matcher(self) -> FirstMatch:
        return FirstMatch([self])


class FirstMatch:
    """A search for the first of several lists that has a module."""

    def __init__(self, lists: Sequence[ModuleNames]) -> None:
        """Raises UnsupportedModelError where they have too many patterns together."""
        self._plain: dict[str, int] = {}
        """The first list that has a name."""
        self._automaton = _Automaton()
        check_patterns(name for modules in lists for name in modules.names)
        for index, modules in enumerate(lists):
            for name in modules.names:
                if is_pattern(name):
                    self._automaton.add(name, index)
                else:
                    self._plain.setdefault(name, index)
        self._lengths = {name.count(".") + 1 for name in self._plain}

    def first(self, module: str) -> int | None:
        """The first list that has `module`; None where none does.

        Raises UnsupportedModelError where that costs too much to find out.
        """
        parts = module.split(".")
        found = [
            self._plain[name]
            for length in self._lengths
            for first in range(len(parts) - length + 1)
            if (name := ".".join(parts[first : first + length])) in self._plain
        ]
        matched = self._automaton.first(module)
        return min(found if matched is None else [*found, matched], default=None)


def is_pattern(name: str) -> bool:
    """Whether a name has wildcards or is an expression."""
    return name.startswith("re:") or any(character in name for character in "*?[")


def check_patterns(names: Iterable[str]) -> None:
    """Raise UnsupportedModelError where patterns among the names have too many characters."""
    characters = sum(len(name) for name in names if is_pattern(name))
    if characters > MAX_PATTERN_CHARACTERS:
        raise UnsupportedModelError(
            f"a quantization_config has patterns of modules of {characters} characters; at most "
            f"{MAX_PATTERN_CHARACTERS} are read. The config is damaged, fetch it again"
        )


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


class _States:
    """A set of states, where characters lead from it, and what it accepts."""

    def __init__(self, states: frozenset[int], tags: dict[_Follows, int]) -> None:
        self.states = states
        self.next: dict[str, _States] = {}
        self.tags = tags
        """The lowest tag of the matches that end here, by what may follow them."""


class _Automaton:
    """Expressions as one machine without backtracking (Thompson's construction).

    A state has the characters that lead on from it, or None where it is passed at once, and what it
    leads to.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[_Chars | None, list[int]]] = []
        self._starts: list[int] = []
        self._ends: dict[int, tuple[_Follows, int]] = {}
        """Final states, with what may follow them in a path, and their tag."""
        self._sets: dict[frozenset[int], _States] = {}
        self._first: _States | None = None
        self._kept = self._work = 0

    def add(self, name: str, tag: int) -> None:
        """Match a pattern too. Raises UnsupportedModelError where it is not understood."""
        is_expression = name.startswith("re:")
        try:
            parser = _Parser(name[3:] if is_expression else _expression(name), self._steps)
            start, end = parser.alternatives(0)
            parser.finish()
        except ValueError as error:
            raise UnsupportedModelError(
                f"quantization_config lists the modules {shown(name)}, which is not understood: "
                f"{error}; supported: characters, classes, groups, '|', '*', '+', '?' and anchors"
            ) from error
        follows: _Follows = "anything" if is_expression else "module"
        self._starts.append(start)
        self._ends[end] = ("nothing" if parser.ends else follows, tag)

    def first(self, module: str) -> int | None:
        """The lowest tag of a pattern that matches; None where none does."""
        if not self._starts:
            return None
        if self._first is None:
            self._first = self._set(self._closed(self._starts))
        now, found = self._first, set[int]()
        for character in module:
            if now.tags:
                follows = _INSIDE if character == "." else _ANYTHING
                found.update(now.tags[end] for end in follows if end in now.tags)
            if not now.states:
                break
            now = now.next.get(character) or self._after(now, character)
        else:
            found.update(now.tags.values())
        return min(found, default=None)

    def _after(self, now: _States, character: str) -> _States:
        self._spend(len(now.states))
        closed = self._closed(
            follower
            for state in now.states
            if (chars := self._steps[state][0]) is not None
            and (character in chars.chars) != chars.negated
            for follower in self._steps[state][1]
        )
        if self._kept > _MAX_KEPT:
            self._sets.clear()
            self._first, self._kept = None, 0
        self._kept += 1
        following = now.next[character] = self._set(closed)
        return following

    def _set(self, states: frozenset[int]) -> _States:
        if states not in self._sets:
            tags: dict[_Follows, int] = {}
            for follows, tag in (self._ends[state] for state in states & self._ends.keys()):
                tags[follows] = min(tag, tags.get(follows, tag))
            self._sets[states] = _States(states, tags)
            self._kept += len(states)
        return self._sets[states]

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
        self._spend(len(reached))
        return frozenset(reached)

    def _spend(self, states: int) -> None:
        self._work += states
        if self._work > _MAX_WORK:
            raise UnsupportedModelError(
                "the patterns of modules in a quantization_config take too long to match; simpler "
                "ones are read. The config is damaged, fetch it again"
            )


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
