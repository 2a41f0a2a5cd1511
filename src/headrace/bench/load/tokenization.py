"""The client's tokenizer: for prompts of a length, and to count what came back, after the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from headrace.bench.record import RequestRecord
from headrace.errors import CheckpointError
from headrace.text.tokenizer import Tokenizer


class ClientTokenization:
    """`Tokenization` over a tokenizer of ours; control tokens in a text are plain text."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, name: str) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self.name = name

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return self._vocab_size

    def encode(self, text: str) -> Sequence[int]:
        """Without beginning or end tokens."""
        return self._tokenizer.encode(text, add_special_tokens=False, parse_special=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Special tokens included."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)


def load_tokenization(model: str | None) -> ClientTokenization:
    """Of a checkpoint on this disk (a path or a hub id), or of the embedded model.

    Raises CheckpointError or FetchError where there is none.
    """
    from headrace.embedded import EMBEDDED_NAME, embedded_model
    from headrace.models import read_config
    from headrace.text.tokenizer import load_tokenizer
    from headrace.weights.open import open_checkpoint
    from headrace.weights.store.resolve import resolve_model

    path = embedded_model() if model is None else resolve_model(model)
    checkpoint = open_checkpoint(path)
    tokenizer = load_tokenizer(checkpoint.tokenizer, checkpoint.eos_token_ids)
    # Its name alone: folders are nobody's business, and records are passed on.
    name = EMBEDDED_NAME if model is None else path.name if Path(model).exists() else model
    size = read_config(checkpoint).vocab_size
    if size is None:
        raise CheckpointError(
            f"{name}: does not state the size of its vocabulary; name another tokenizer"
        )
    return ClientTokenization(tokenizer, size, name)


def counted(
    records: Iterable[RequestRecord], tokenization: ClientTokenization, *, prompts: bool
) -> tuple[RequestRecord, ...]:
    """Records with the client's counts of their output.

    prompts: their lengths were made exactly as asked, so that what was asked is the count.
    """
    found = []
    for record in records:
        # An empty answer has no tokens; one that never came has not been counted.
        content = "".join(chunk.text for chunk in record.content)
        output = len(tokenization.encode(content)) if record.failure is None else None
        prompt = record.prompt_tokens_asked if prompts else None
        found.append(
            msgspec.structs.replace(
                record, client_output_tokens=output, client_prompt_tokens=prompt
            )
        )
    return tuple(found)
