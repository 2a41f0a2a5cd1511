"""The tokens of a checkpoint as grammars see them, made from its tokenizer when that is wanted."""

from __future__ import annotations

from collections.abc import Callable

from headrace.structured.vocabulary import Vocabulary
from headrace.weights.tokenizer.data import TokenizerData


def vocabulary_maker(
    data: TokenizerData, num_tokens: int, pre: str | None = None
) -> Callable[[], Vocabulary] | None:
    """What reads the tokenizer and gives the vocabulary of ids below num_tokens; None where there
    is no tokenizer. An engine that is never given a grammar never calls it.

    pre: as of `load_tokenizer`.
    """
    if data.kind == "none":
        return None

    def make() -> Vocabulary:
        from headrace.text.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(data, pre=pre)
        return Vocabulary(
            token_bytes=[tokenizer.token_bytes(token_id) for token_id in range(num_tokens)],
            special_ids=[each for each in range(num_tokens) if tokenizer.is_special(each)],
            encode=tokenizer.encode_continuation,
        )

    return make
