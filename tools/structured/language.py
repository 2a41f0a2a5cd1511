"""The texts of a grammar as the engine would let a model write them, over any vocabulary.

A text belongs to it where every token is allowed by the mask before it and the end is allowed
behind the last. `walk` draws such texts at random, so that judges that know nothing of llguidance
can look at them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.structured.compile import GrammarTokenizer, compile_grammar
from headrace.structured.grammar import Grammar
from headrace.structured.limits import error_of, is_beyond_a_limit
from headrace.structured.vocabulary import Vocabulary

CLOSERS = b'"]},\n'
"""Bytes that bring a JSON text, or a line, nearer to its end."""
_READ_AT_ONCE = 8
_PLAIN = b"abcXYZ019 _-"


class LimitError(Exception):
    """A matcher came to the limit of what one step may take."""


class DeadEndError(Exception):
    """Nothing can follow a text, and it is not one of the grammar's."""


class Language:
    """The texts of one grammar. Raises RequestError where it is refused."""

    def __init__(self, grammar: Grammar, tokenizer: GrammarTokenizer | None = None) -> None:
        """tokenizer: of single bytes, unless another is given."""
        self._tokenizer = tokenizer or byte_tokenizer()
        self.compiled = compile_grammar(grammar, self._tokenizer)
        self._words = np.zeros(self._tokenizer.end_id // 32 + 1, np.uint32)

    def matcher(self) -> Any:
        """An LLMatcher at the beginning of a text."""
        return self.compiled.matcher()

    def has(self, text: str | bytes) -> bool:
        """Whether a text is one of them, by its bytes; for a vocabulary of single bytes.

        Raises LimitError.
        """
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        matcher = self.matcher()
        for at in range(0, len(data), _READ_AT_ONCE):
            self.allowed(matcher)
            part = list(data[at : at + _READ_AT_ONCE])
            if matcher.try_consume_tokens(part) != len(part):
                self.allowed(matcher)  # where a limit refused it, this raises
                return False
        return bool(matcher.is_accepting())

    def allowed(self, matcher: Any) -> npt.NDArray[np.bool_]:
        """Which ids the mask lets come next; the last stands for the end. Raises LimitError.

        What a step may take is counted from one mask to the next.
        """
        if matcher.is_stopped() and not matcher.is_error():
            ended = np.zeros(self._tokenizer.num_ids, np.bool_)
            ended[-1] = True
            return ended
        matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        if matcher.is_error():
            raise _error(error_of(matcher))
        bits = np.unpackbits(self._words.view(np.uint8), bitorder="little")
        return bits[: self._tokenizer.num_ids].astype(np.bool_)

    def first_refused(self, token_ids: Sequence[int]) -> int | None:
        """The first position whose mask forbids its token; the number of ids where the end is
        forbidden; None where all is allowed."""
        matcher = self.matcher()
        for position, token_id in enumerate((*token_ids, self._tokenizer.end_id)):
            if not self.allowed(matcher)[token_id]:
                return position
            if token_id != self._tokenizer.end_id and not matcher.consume_token(token_id):
                return position
        return None

    def walk(self, rng: random.Random, most: int = 300) -> bytes | None:
        """A text drawn byte by byte; None where it did not end within 3 * `most` bytes. The longer
        it is, the likelier are bytes that bring it to its end. Raises LimitError, DeadEndError."""
        matcher = self.matcher()
        written = bytearray()
        end = self._tokenizer.end_id
        while len(written) < 3 * most:
            allowed = self.allowed(matcher)
            hurry = len(written) / most
            if allowed[end] and (rng.random() < 0.3 + hurry or not allowed[:end].any()):
                return bytes(written)
            byte = _next_byte(allowed[:end], hurry, rng)
            if byte is None:
                raise DeadEndError(f"nothing can follow {bytes(written)!r}")
            if not matcher.consume_token(byte):
                if matcher.is_error():
                    raise _error(error_of(matcher))
                raise RuntimeError(f"{byte} after {bytes(written)!r} is allowed and refused")
            written.append(byte)
        return None


def _error(reason: str) -> Exception:
    """What ended a matcher: a limit, as in errors of code GRAMMAR_TOO_LARGE, or a fault of ours."""
    first = reason.splitlines()[0]
    return LimitError(first) if is_beyond_a_limit(reason) else RuntimeError(first)


def _next_byte(allowed: npt.NDArray[np.bool_], hurry: float, rng: random.Random) -> int | None:
    ids = np.flatnonzero(allowed)
    if not len(ids):
        return None
    chance = rng.random()
    liked = CLOSERS if chance < 0.15 + hurry else _PLAIN if chance < 0.75 else b""
    chosen = [byte for byte in liked if allowed[byte]]
    if chosen and liked is CLOSERS and hurry > 1:
        return chosen[0]
    return rng.choice(chosen) if chosen else int(rng.choice(ids))


@cache
def byte_tokenizer() -> GrammarTokenizer:
    """Of the vocabulary whose ids are the 256 bytes."""
    pieces = [bytes([byte]) for byte in range(256)]
    return GrammarTokenizer(Vocabulary(pieces, [], lambda text: list(text.encode())))


class Splits:
    """Ways of cutting a text into tokens of a vocabulary other than the model's own."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        special = frozenset(vocabulary.special_ids)
        self._ids: dict[bytes, int] = {}
        for token_id, piece in enumerate(vocabulary.token_bytes):
            if piece and token_id not in special:
                self._ids.setdefault(piece, token_id)
        self._longest = max(map(len, self._ids))

    def greedy(self, data: bytes) -> list[int]:
        """The longest token at each place."""
        return list(self._cut(data, lambda lengths: lengths[-1]))

    def bytewise(self, data: bytes) -> list[int]:
        """The shortest token at each place."""
        return list(self._cut(data, lambda lengths: lengths[0]))

    def drawn(self, data: bytes, rng: random.Random) -> list[int]:
        """Any token at each place."""
        return list(self._cut(data, rng.choice))

    def _cut(self, data: bytes, choose: Any) -> Iterator[int]:
        at = 0
        while at < len(data):
            fitting = [
                length
                for length in range(1, min(self._longest, len(data) - at) + 1)
                if data[at : at + length] in self._ids
            ]
            if not fitting:
                raise ValueError(f"no token begins with byte {data[at]}")
            length = choose(fitting)
            yield self._ids[data[at : at + length]]
            at += length
