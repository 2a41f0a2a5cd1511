"""How many tokens of an answer are the model's reasoning.

A token is where its first character is, and one without a text where the next text begins. It
counts where that is within the thoughts: behind the mark that opens them and before what closes
them, be it a mark or the head of a call. White space at both ends is theirs, so that a model whose
marks are tokens of their own has the count of vLLM: the tokens between the marks. An answer that
ends within its thoughts counts to its last token.

The count is a function of the tokens, however their text comes: a token is looked at as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace.answer_formats.deltas import Delta, ReasoningDelta

_SPACE = " \t\r\n"
"""What deltas of reasoning are without at both ends of the thoughts."""


class _Held(NamedTuple):
    """A token that may belong to the thoughts or to what closes them."""

    start: int
    """The place of its first character in the answer's text."""
    is_space: bool
    """Whether that is white space."""


class ReasoningCount:
    """The count of one answer, while it is read.

    Deltas of reasoning are the thoughts as they stand, but for the white space around them. What
    they have not brought yet may be the beginning of what closes the thoughts.
    """

    def __init__(self) -> None:
        self.tokens = 0
        """Tokens so far that are certain to be reasoning; the last one never is."""
        self._chars = 0
        """Characters of the text that have come."""
        self._coming: list[int] = []
        """Where tokens begin whose text has not come."""
        self._starts: list[int] = []
        """Where the last token begins, and those without a text just before it."""
        self._first = 0
        self._text = ""
        """The place of the last token's text, and what has come of it."""
        self._thoughts = ""
        """What deltas have brought with it."""
        self._before = False
        """Whether it began within reasoning."""
        self._held: list[_Held] = []
        self._read = 0
        """Up to which place the thoughts were brought by deltas, or where they may begin."""
        self._space = 0
        """Characters of white space from there on."""
        self._begun = False
        """Whether a delta has brought some of the thoughts."""

    def cut(self, text: str, starts: Sequence[int]) -> list[str]:
        """A text that comes, in the parts to be read and noted one after the other.

        starts: where the tokens that come begin, in characters of the answer's text, which may lag.
        """
        if not self._coming and len(starts) == 1 and starts[0] == self._chars:  # as a rule
            self._coming = [*starts]
            return [text] if text else []
        self._coming += starts
        if not text:
            return []
        first, end = self._chars, self._chars + len(text)
        places = dict.fromkeys(start - first for start in self._coming if first < start < end)
        return [text[start:stop] for start, stop in pairwise((0, *places, len(text)))]

    def skip(self, text: str) -> None:
        """Take a text that is content, as are all tokens that come with it."""
        self._chars += len(text)

    def note(self, part: str, deltas: Sequence[Delta], *, is_inside: bool) -> None:
        """Take a part with what it made certain; whether it began within reasoning."""
        coming, place = self._coming, self._chars
        if coming and coming[0] <= place:
            self._end_token(is_inside)
            self._first, self._before = place, is_inside
            if coming[-1] <= place:  # as a rule
                self._starts, self._coming = coming, []
            else:
                self._starts = [start for start in coming if start <= place]
                self._coming = coming[len(self._starts) :]
        self._chars = place + len(part)
        self._text += part
        for delta in deltas:
            if isinstance(delta, ReasoningDelta):
                self._thoughts += delta.text

    def finish(self, *, is_inside: bool) -> None:
        """Count what is left at the end of the answer; whether that is within reasoning."""
        self._end_token(is_inside)
        if is_inside:
            self.tokens += len(self._held)
        self._held = []

    def _end_token(self, is_inside: bool) -> None:
        """Count what the last token makes certain; whether its text ends within reasoning."""
        text, thoughts = self._text, self._thoughts
        self._text = self._thoughts = ""
        is_plain = self._before and self._begun and is_inside and text == thoughts
        if is_plain and self._read == self._first:  # as a rule
            self.tokens += len(self._starts)
            self._read += len(text)
            return
        if self._before:
            is_space = text[:1].isspace()
            self._held += [_Held(start, is_space) for start in self._starts]
            self._follow(text, thoughts)
        elif is_inside and thoughts and text.strip(_SPACE) == thoughts:
            # All of it is behind the mark, which only now is certain to be whole.
            self.tokens += len(self._starts)
        if not (self._before and is_inside):
            # What is left of the token is behind a mark that opens the thoughts or closes them.
            self._held = []
            at = text.rfind(thoughts)
            read = at + len(thoughts) if thoughts and at >= 0 else len(text)
            self._read, self._space = self._first + read, _leading_space(text[read:])
            self._begun = bool(thoughts)
        self._starts = []

    def _follow(self, text: str, thoughts: str) -> None:
        """Count what a token that began within reasoning makes certain."""
        if self._read + self._space == self._first:
            self._space += _leading_space(text)
        self._count()
        if not thoughts:
            return
        if self._begun:
            self._read += len(thoughts)
        else:
            self._begin(text, thoughts)
        self._space = _leading_space(text[max(0, self._read - self._first) :])
        self._count()

    def _begin(self, text: str, thoughts: str) -> None:
        """Find the first of the thoughts, before which there may be a mark that repeats the one in
        the prompt: its tokens do not count, white space behind it does."""
        at = text.find(thoughts)
        self._begun = True
        self._read = self._first + (len(text) if at < 0 else at + len(thoughts))
        begin = self._read - len(thoughts)
        self._held = [token for token in self._held if token.is_space or token.start >= begin]

    def _count(self) -> None:
        """Count the tokens that begin in what is certain."""
        certain = self._read + self._space
        if not self._held or self._held[0].start >= certain:
            return
        held = [token for token in self._held if token.start >= certain]
        self.tokens += len(self._held) - len(held)
        self._held = held


def _leading_space(text: str) -> int:
    return len(text) - len(text.lstrip(_SPACE))
