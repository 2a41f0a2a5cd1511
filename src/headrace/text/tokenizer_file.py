"""The text of a tokenizer.json that encodes and decodes as a GGUF file's tokenizer does."""

from __future__ import annotations

from headrace.text.byte_alphabet import SPACE_MARK
from headrace.text.gguf_vocabulary import vocabulary_from_gguf
from headrace.weights.tokenizer.data import TokenizerData


def tokenizer_json_of(
    data: TokenizerData, eos_token_ids: tuple[int, ...], pre: str | None = None
) -> str:
    """Of the arrays in a GGUF file; tokens that begin and end a text are added by it, too.

    pre: the pre-tokenizer's name, instead of the file's. Raises CheckpointError or
    UnsupportedModelError as loading that tokenizer does.
    """
    from tokenizers import Tokenizer, decoders
    from tokenizers.processors import TemplateProcessing

    vocabulary = vocabulary_from_gguf(data, eos_token_ids, pre)
    backend = Tokenizer.from_str(vocabulary.backend.to_str())
    if vocabulary.spelling == "bytes":
        backend.decoder = decoders.ByteLevel()
    else:
        steps = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
        steps += [decoders.Strip(" ", 1, 0)] if vocabulary.strips_first_space else []
        backend.decoder = decoders.Sequence(steps)
    around = [*vocabulary.prefix_ids, *vocabulary.suffix_ids]
    if around:
        before = [vocabulary.piece(token) or "" for token in vocabulary.prefix_ids]
        after = [vocabulary.piece(token) or "" for token in vocabulary.suffix_ids]
        tokens = [(vocabulary.piece(token) or "", token) for token in around]
        backend.post_processor = TemplateProcessing(
            single=[*before, "$A", *after], special_tokens=list(dict(tokens).items())
        )
    return str(backend.to_str(pretty=True))
