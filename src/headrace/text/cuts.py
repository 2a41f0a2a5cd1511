r"""Where a long text may be cut so that the ids of its pieces, joined, are those of the whole.

A text is cut before a single space between two other characters, and behind a single line break
before a letter. Such a cut changes no id if no added token reaches over it, if the normalizer
looks at one character at a time (or is NFC, for which neither side composes with the other), if the
pre-tokenizer puts the same boundaries on both sides of it with and without the cut, and if no piece
of the vocabulary has both characters beside each other, so that no merge joins them. Pre-tokenizers
are known by their patterns, of which a test holds each against this; a tokenizer of which one of
the conditions is not known to hold is not cut at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import HeadraceError
from headrace.text.backend_state import steps
from headrace.text.byte_alphabet import BYTE_OF_CHAR, SPACE_MARK
from headrace.weights.tokenizer.pretokenizers import GPT2_PATTERN, PRETOKENIZERS

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

    from headrace.text.vocabulary import Vocabulary

WHOLE_CHARS = 2**18
"""Texts up to this are encoded in one piece."""

SLICE_CHARS = 2**16
"""A slice of a longer text ends at the first cut behind so many characters: the encoding of one
takes a few megabytes, that of 16 MB at once more than a gigabyte."""

# A search that finds nothing holds the interpreter's lock, so it goes on in steps.
_SEARCH_CHARS = 2**18
# Between the pieces of a vocabulary; in no piece of a byte-level one.
_BETWEEN = "\0"
# Letters of which normalizers and pre-tokenizers make nothing special behind a line break.
_ASCII_LETTERS = "A-Za-z"
_LETTERS = _ASCII_LETTERS + "\u0410-\u044f\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3"
# Of Gemma 4.
_MORE_PATTERNS = (r"[^\n]+|\n+",)
# Patterns that take a line break together with a letter behind it, or one at the end of a text.
LINE_BREAK_PATTERNS = (r"\s?", r"\s+$")
_ASCII_SPACES = " \t\n\v\f\r"
_SPLIT_AT_SPACES = ("MergedWithPrevious", "MergedWithNext", "Isolated")


class TextBound(NamedTuple):
    """The size of a text beyond which encoding is given up."""

    tokens: int
    uncut_bytes: int
    """Of a stretch without a cut, which has to be encoded at once."""


class TextTooLongError(HeadraceError):
    """A text is beyond its bound. least_tokens: what was counted until then; 0 where a stretch
    without a cut of more than `uncut_bytes` is the cause."""

    def __init__(self, *, least_tokens: int = 0, uncut_bytes: int = 0) -> None:
        self.least_tokens = least_tokens
        self.uncut_bytes = uncut_bytes
        super().__init__(
            f"the text has at least {least_tokens} tokens"
            if least_tokens
            else f"the text has more than {uncut_bytes} bytes in a row that have to be tokenized "
            "at once: no space or line break to cut it at"
        )


@dataclass(frozen=True)
class Cuts:
    """The places where texts of one tokenizer may be cut."""

    pattern: re.Pattern[str] | None
    """Matches the space or the line break of a cut; None for a tokenizer whose texts are never
    cut."""
    drops_space: bool = False
    """Whether the normalizer puts the space before a slice: the text's own is left out then."""

    def slices(self, text: str, uncut_bytes: int | None = None) -> Iterator[tuple[int, str]]:
        """The text in pieces to be encoded one after another, each with its place in the text.

        Raises TextTooLongError before a piece of more than uncut_bytes that cannot be cut.
        """
        start = 0
        while len(text) - start > WHOLE_CHARS:
            match = self._next_cut(text, start + SLICE_CHARS, uncut_bytes)
            if match is None:
                break
            at_space = match.group() == " "
            yield start, text[start : match.start() if at_space else match.end()]
            start = match.start() + self.drops_space if at_space else match.end()
        rest = text[start:]
        if uncut_bytes is not None and len(rest) > WHOLE_CHARS and not _fits(rest, uncut_bytes):
            raise TextTooLongError(uncut_bytes=uncut_bytes)
        yield start, rest

    def _next_cut(self, text: str, start: int, uncut_bytes: int | None) -> re.Match[str] | None:
        if self.pattern is None:
            return None
        end = len(text) if uncut_bytes is None else min(len(text), start + uncut_bytes)
        for at in range(start, end, _SEARCH_CHARS):
            # The characters around a cut at the edge belong to the step: two behind, one before.
            match = self.pattern.search(text, at, at + _SEARCH_CHARS + 1)
            if match is not None:
                return match
        return None


def cuts_of(vocabulary: Vocabulary) -> Cuts:
    """The cuts of a tokenizer, none where a condition is not known to hold."""
    backend, pieces = vocabulary.backend, vocabulary.backend.get_vocab(with_added_tokens=False)
    normal = _normalizing(backend.normalizer)
    if normal is None or not _merges_only_neighbours(backend):
        return Cuts(None)
    splits = steps(backend.pre_tokenizer, "pretokenizers")
    if not all(_keeps_to_its_side(step) for step in splits):
        return Cuts(None)
    by_bytes = any(step["type"] == "ByteLevel" for step in splits)
    if by_bytes != (vocabulary.spelling == "bytes"):
        return Cuts(None)
    joined = _BETWEEN.join(pieces)
    mark, line_break = ("Ġ", "Ċ") if by_bytes else (SPACE_MARK, "\n")
    prefixed = normal.prefixes or any(
        step.get("add_prefix_space") or step.get("prepend_scheme", "never") != "never"
        for step in splits
    )
    added = _AddedTokens.of(backend)
    at_spaces = ""
    if (by_bytes or normal.marks_spaces or _has_metaspace(splits)) and mark in pieces:
        before = {_char(text, by_bytes) for text in re.findall(rf"(?s)(.){mark}", joined)}
        unsafe = before - {_BETWEEN, SPACE_MARK, *_ASCII_SPACES}
        at_spaces = added.space_cut(unsafe, normal)
    at_lines = ""
    if (
        not prefixed
        and not any(map(_takes_line_breaks, splits))
        and _has_line_break(backend, pieces, line_break)
    ):
        after = {_char(text, by_bytes) for text in re.findall(rf"(?s){line_break}(.)", joined)}
        at_lines = added.line_cut(after - {SPACE_MARK}, normal)
    ways = [way for way in (at_spaces, at_lines) if way]
    return Cuts(re.compile("|".join(ways)) if ways else None, normal.prefixes)


class _Normalizing(NamedTuple):
    """The effects of a normalizer on spaces."""

    marks_spaces: bool
    prefixes: bool
    """Whether it puts a mark before every text."""
    composes: bool
    """Whether it is NFC, which makes ASCII of a few other characters."""


def _normalizing(normalizer: Any) -> _Normalizing | None:
    """None for a normalizer of which it is not known that it keeps to its side of a cut."""
    marks = prefixes = composes = False
    for step in steps(normalizer, "normalizers"):
        kind = step["type"]
        if kind == "Replace":
            if (step["pattern"], step["content"]) != ({"String": " "}, SPACE_MARK):
                return None
            marks = True
        elif kind == "Prepend":
            if step["prepend"] != SPACE_MARK:
                return None
            prefixes = True
        elif kind == "NFC":
            composes = True
        else:
            return None
    return None if prefixes and not marks else _Normalizing(marks, prefixes, composes)


def _merges_only_neighbours(backend: Backend) -> bool:
    from tokenizers import models

    model = backend.model
    return (
        isinstance(model, models.BPE)
        and not model.dropout
        and not model.continuing_subword_prefix
        and not model.end_of_word_suffix
    )


def _keeps_to_its_side(step: dict[str, Any]) -> bool:
    """Whether a step of a pre-tokenizer is known to split both sides of a cut as it would split
    the whole."""
    kind = step["type"]
    if kind == "Split":
        pattern = step["pattern"]
        if "String" in pattern:
            plain = pattern["String"] == " " and not step["invert"]
            return plain and step["behavior"] in _SPLIT_AT_SPACES
        how = (step["behavior"], step["invert"])
        known = how in (("Isolated", False), ("Removed", True))
        return known and pattern["Regex"] in known_patterns()
    if kind == "Punctuation":
        return step["behavior"] in ("Isolated", "Contiguous")
    return kind in ("ByteLevel", "Metaspace", "Digits")


def _takes_line_breaks(step: dict[str, Any]) -> bool:
    pattern = step.get("pattern")
    return isinstance(pattern, dict) and pattern.get("Regex", "").startswith(LINE_BREAK_PATTERNS)


@cache
def known_patterns() -> frozenset[str]:
    """Patterns that split both sides of a cut as they split the whole, as some files write them."""
    patterns = {GPT2_PATTERN, *_MORE_PATTERNS}
    patterns.update(pattern for rule in PRETOKENIZERS.values() for pattern in rule.patterns)
    spelled = {text.replace(r"\r", "\r").replace(r"\n", "\n") for text in patterns}
    return frozenset(patterns | spelled)


class _AddedTokens(NamedTuple):
    """The effects of added tokens at the cuts of a text."""

    texts: tuple[str, ...]
    swallow_right: frozenset[str]
    """Last characters of those that take the white space behind them."""
    swallow_left: bool
    """Whether one that begins with a letter takes the white space before it."""
    single_space: bool
    """Whether one that begins with a space has to stand by itself."""

    @classmethod
    def of(cls, backend: Backend) -> _AddedTokens:
        tokens = [token for token in backend.get_added_tokens_decoder().values() if token.content]
        return cls(
            tuple(token.content.replace(SPACE_MARK, " ") for token in tokens),
            frozenset(token.content[-1] for token in tokens if token.rstrip),
            any(token.lstrip and token.content[0].isalpha() for token in tokens),
            any(token.single_word and token.content[0] == " " for token in tokens),
        )

    def space_cut(self, before: set[str], normal: _Normalizing) -> str:
        """The pattern of a space to cut before; "" where there is none.

        before: characters that some piece has before a space.
        """
        if self.single_space:
            return ""
        inside = {char for text in self.texts for char in re.findall(r"(\S) ", text)}
        unsafe = {*before, *inside, *self.swallow_right}
        behind = r"\S"
        if normal.prefixes:
            # What follows an added token has a mark of its own, beside that of the space.
            unsafe.update(text[-1] for text in self.texts)
            behind = "[A-Za-z0-9]"
            if any(re.match(behind, text) for text in self.texts):
                return ""
        barred = "".join(map(re.escape, sorted(unsafe)))
        if unsafe and (normal.composes or not barred.isascii()):
            barred += "\x80-\U0010ffff"
        # A mark in the text itself is a space to every piece.
        return rf" (?={behind})(?<=[^\s\0{SPACE_MARK}{barred}] )"

    def line_cut(self, after: set[str], normal: _Normalizing) -> str:
        """The pattern of a line break to cut behind; "" where there is none.

        after: characters that some piece has behind a line break.
        """
        if self.swallow_left or any(re.search(r"\n\S", text) for text in self.texts):
            return ""
        if any(char.isascii() and char.isalpha() for char in after):
            return ""
        letters = _LETTERS
        if any(not char.isascii() for char in after):
            if normal.composes:  # a letter and a mark behind it may be one beyond ASCII
                return ""
            letters = _ASCII_LETTERS
        return rf"\n(?=[{letters}])(?<=\S\n)"


def _has_metaspace(splits: list[dict[str, Any]]) -> bool:
    return any(step["type"] == "Metaspace" and step["replacement"] == SPACE_MARK for step in splits)


def _has_line_break(backend: Backend, pieces: Iterable[str], line_break: str) -> bool:
    """Whether a line break has a token, alone: it is never joined with what is unknown."""
    spelled = "<0x0A>" if backend.model.byte_fallback else line_break
    return line_break in pieces or spelled in pieces


def _char(text: str, by_bytes: bool) -> str:
    """A character of a piece as it is in a text; any beyond ASCII stands for all of them."""
    return chr(BYTE_OF_CHAR.get(text, ord(text))) if by_bytes else text


def _fits(text: str, most_bytes: int) -> bool:
    return len(text) <= most_bytes and len(text.encode("utf-8", "replace")) <= most_bytes
