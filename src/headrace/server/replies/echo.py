"""The prompt as text, for `echo`: what it says, and where in it each token begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.text.detokenizer import Detokenizer

if TYPE_CHECKING:
    from headrace.text import Tokenizer


class Echo(NamedTuple):
    """The prompt as a reply repeats it."""

    text: str
    text_offsets: tuple[int, ...]
    """Offsets in characters of the text, one per token of the prompt."""


def echo_of(
    token_ids: Sequence[int],
    written: str | None,
    tokenizer: Tokenizer,
    *,
    skip_special_tokens: bool,
) -> Echo:
    """The prompt that `token_ids` are.

    written: the text they were made of, which is then what is echoed; None where they came as ids,
    or are not all of it. A special token has a place in a written text only where it is written
    there; one that the tokenizer added has none. Where the tokenizer changes texts (Unicode
    normalization), offsets are of the changed text, and at most the written one's length.

    Bytes of a character that the prompt ends within are left to the output that completes it.
    """
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=False)
    pieces: list[str] = []
    offsets: list[int] = []
    at = 0
    for token_id in token_ids:
        offsets.append(at)
        if tokenizer.is_special(token_id):
            shown = not skip_special_tokens
            if written is not None:
                shown = written.startswith(tokenizer.token_text(token_id), at)
            if not shown:
                continue
        text = detokenizer.feed((token_id,))
        pieces.append(text)
        at += len(text)
    if written is None:
        return Echo("".join(pieces), tuple(offsets))
    return Echo(written, tuple(min(offset, len(written)) for offset in offsets))
