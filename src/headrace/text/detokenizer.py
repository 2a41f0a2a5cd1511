"""Token ids to text, as they come, one request each.

Works on bytes, so a character spread over tokens comes out once, when its last byte does. At most
three bytes are held back. Invalid sequences become U+FFFD as soon as they are known to be invalid,
an incomplete one at `flush`.

Without a prompt: all pieces + flush == tokenizer.decode(ids), for any cut of the ids. With one, the
pieces continue it: all pieces + flush is what decode(prompt + ids) adds to the prompt's text. A
character the prompt left incomplete comes out whole if the ids complete it; if they do not, the
prompt's broken bytes are the prompt's and are not printed.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.text.tokenizer import Tokenizer

_LONGEST_HELD_BYTES = 3


class Detokenizer:
    """Incremental `Tokenizer.decode`. Not for use from two threads at once."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        prompt_ids: Sequence[int] = (),
        skip_special_tokens: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        tail = self._tail_of(prompt_ids)
        # Bytes of a character the prompt began; b"" once that character is decided.
        self._begun = _incomplete_suffix(tail)
        self._begun_by_prompt = len(self._begun)
        self._strip_space = tokenizer.strips_first_space and not tail

    def feed(self, ids: Iterable[int]) -> str:
        """The text these ids make certain, "" while a character is incomplete."""
        tokenizer, skip = self._tokenizer, self._skip
        chunk = b"".join(
            tokenizer.token_bytes(token_id)
            for token_id in ids
            if not (skip and tokenizer.is_special(token_id))
        )
        return self._decode(chunk) if chunk else ""

    def flush(self) -> str:
        """What is still held, incomplete characters as U+FFFD; nothing may be fed afterwards."""
        # What only the prompt began was never part of this text.
        own = self._begun[self._begun_by_prompt :]
        self._begun = b""
        return self._stripped(self._decoder.decode(own, final=True))

    def _decode(self, chunk: bytes) -> str:
        if self._begun:
            chunk = self._decide_begun(chunk)
        return self._stripped(self._decoder.decode(chunk))

    def _decide_begun(self, chunk: bytes) -> bytes:
        """What to decode now, while a character the prompt began is undecided."""
        begun = self._begun + chunk
        if _incomplete_suffix(begun[:_LONGEST_HELD_BYTES]) == begun:
            self._begun = begun
            return b""
        self._begun = b""
        return begun if _starts_whole(begun) else begun[self._begun_by_prompt :]

    def _stripped(self, text: str) -> str:
        if not text or not self._strip_space:
            return text
        self._strip_space = False
        return text[1:] if text.startswith(" ") else text

    def _tail_of(self, prompt_ids: Sequence[int]) -> bytes:
        """The last bytes of the prompt's printed text, enough to see an incomplete character."""
        tail = b""
        for token_id in reversed(prompt_ids):
            if not (self._skip and self._tokenizer.is_special(token_id)):
                tail = self._tokenizer.token_bytes(token_id) + tail
                if len(tail) >= _LONGEST_HELD_BYTES:
                    break
        return tail


def _incomplete_suffix(data: bytes) -> bytes:
    """The longest suffix (at most 3 bytes) that is a valid beginning of one UTF-8 character."""
    for length in range(min(_LONGEST_HELD_BYTES, len(data)), 0, -1):
        suffix = data[-length:]
        if suffix[0] < 0xC2:
            continue
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        if decoder.decode(suffix) == "" and decoder.getstate()[0] == suffix:
            return suffix
    return b""


def _starts_whole(data: bytes) -> bool:
    """Whether data, which begins with a lead byte, begins with a whole character."""
    length = 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4
    try:
        data[:length].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
