"""A tokenizer written for tests alone, to compare with: slow, on `regex` and the standard library.

It shares nothing with `headrace.text` but the vocabulary: text is cut at added tokens by hand, with
their flags, split by the rule's expressions, and merged by looking for the best pair again and
again. That it is right is checked with recorded ids.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

MARK = "\u2581"
# What tokenizer.json's lstrip and rstrip take: \s of Rust's regex crate.
SPACE = r"[\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"


def unicode_regex() -> Any:
    """The `regex` package, which knows Unicode's categories; comes with transformers."""
    return pytest.importorskip("regex", reason="needs regex to split texts independently")


@dataclass(frozen=True)
class Added:
    """One added token, as tokenizer.json states it."""

    id: int
    content: str
    lstrip: bool = False
    rstrip: bool = False


@dataclass(frozen=True)
class ReferenceTokenizer:
    """Ids of a text, control tokens recognised in it."""

    added: Sequence[Added]
    words: Callable[[str], Iterator[list[str]]]
    """Words of a text between added tokens, each as a list of its smallest parts."""
    rank: Callable[[str, str], float | None]
    """How early two neighbours are joined, the lowest first; None for never."""
    id_of: Mapping[str, int]
    whole_words: bool = False
    """A word that is a token is taken without merging."""
    prepare: Callable[[str], str] = field(default=lambda text: text)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in self._cut(text):
            if isinstance(piece, Added):
                ids.append(piece.id)
            elif piece:
                for word in self.words(self.prepare(piece)):
                    ids += self._merged(word)
        return ids

    def _cut(self, text: str) -> Iterator[str | Added]:
        """Texts and added tokens in turn: the leftmost token first, the longest of those."""
        regex = unicode_regex()
        longest_first = sorted(self.added, key=lambda token: -len(token.content))
        by_text = {token.content: token for token in self.added}
        pattern = regex.compile("|".join(regex.escape(t.content) for t in longest_first) or "(?!)")
        done = 0
        for match in pattern.finditer(text):
            if match.start() < done:
                continue
            token = by_text[match.group()]
            before = text[done : match.start()]
            yield regex.sub(SPACE + r"+\Z", "", before) if token.lstrip else before
            yield token
            done = match.end()
            if token.rstrip:
                done = regex.compile(SPACE + "*").match(text, done).end()
        yield text[done:]

    def _merged(self, word: list[str]) -> list[int]:
        if self.whole_words and "".join(word) in self.id_of:
            return [self.id_of["".join(word)]]
        parts = list(word)
        while True:
            ranked = [
                (rank, at)
                for at, pair in enumerate(pairwise(parts))
                if (rank := self.rank(*pair)) is not None
            ]
            if not ranked:
                break
            at = min(ranked)[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        ids: list[int] = []
        for part in parts:
            if part in self.id_of:
                ids.append(self.id_of[part])
            else:
                ids += [self.id_of[f"<0x{byte:02X}>"] for byte in part.encode()]
        return ids


def byte_level_reference(
    arrays: Mapping[str, Any],
    added: Sequence[Added],
    patterns: Sequence[str],
    *,
    whole_words: bool = False,
    nfc: bool = False,
) -> ReferenceTokenizer:
    """Of a byte-level vocabulary whose rule splits by `patterns`, one after another."""
    regex = unicode_regex()
    compiled = [regex.compile(pattern, regex.V1) for pattern in patterns]
    ranks = {tuple(merge.split(" ", 1)): rank for rank, merge in enumerate(arrays["merges"])}
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    chars = {byte: chr(byte) for byte in printable}
    chars |= {byte: chr(256 + at) for at, byte in enumerate(hidden)}

    def words(text: str) -> Iterator[list[str]]:
        pieces = [text]
        for pattern in compiled:
            pieces = [part for piece in pieces for part in _isolated(pattern, piece)]
        for piece in pieces:
            yield [chars[byte] for byte in piece.encode()]

    return ReferenceTokenizer(
        added,
        words,
        lambda left, right: ranks.get((left, right)),
        {token: index for index, token in enumerate(arrays["tokens"])},
        whole_words=whole_words,
        prepare=(lambda text: unicodedata.normalize("NFC", text)) if nfc else (lambda text: text),
    )


def sentencepiece_reference(
    arrays: Mapping[str, Any], added: Sequence[Added], *, spaced: bool
) -> ReferenceTokenizer:
    """Of a SentencePiece vocabulary; spaced: a space goes before every text."""
    normal = {
        token: index
        for index, token in enumerate(arrays["tokens"])
        if arrays["token_type"][index] == 1
    }
    scores = [float(score) for score in arrays["scores"]]

    def rank(left: str, right: str) -> float | None:
        index = normal.get(left + right)
        return None if index is None else -scores[index]

    def words(text: str) -> Iterator[list[str]]:
        yield list((MARK if spaced else "") + text.replace(" ", MARK))

    spelled = {
        token: index
        for index, token in enumerate(arrays["tokens"])
        if arrays["token_type"][index] in (1, 6)
    }
    return ReferenceTokenizer(added, words, rank, spelled)


def _isolated(pattern: Any, text: str) -> Iterator[str]:
    """The matches of a pattern and what lies between them, all that is not empty."""
    done = 0
    for match in pattern.finditer(text):
        if match.start() > done:
            yield text[done : match.start()]
        if match.group():
            yield match.group()
        done = match.end()
    if done < len(text):
        yield text[done:]
