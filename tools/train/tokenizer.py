"""Train the byte-level BPE tokenizer and write its Hugging Face files.

The pre-tokenizer is GPT-2's own regular expression (ByteLevel with use_regex), because GGUF files
name a pre-tokenizer rather than carry one, and "gpt-2" is a name every reader knows. There is no
normalizer and no post-processor: text goes in and comes out byte for byte.

    python -m tools.train.tokenizer --corpus work/corpus --out work/tokenizer
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from .corpus import read_documents

VOCABULARY_SIZE = 4096
CONTEXT_TOKENS = 1024
END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0
# The reserved entries keep room for later use (fill-in-the-middle) without moving any id.
SPECIAL_TOKENS = (
    END_OF_TEXT,
    "<|im_start|>",
    "<|im_end|>",
    *(f"<|reserved_{index}|>" for index in range(5)),
)
# Rulers of dashes and deep indents would otherwise take a place for every length.
MAX_TOKEN_CHARACTERS = 32

# A completion model has no turns: the prompt is the last user message, and nothing around it.
CHAT_TEMPLATE = (
    "{%- set state = namespace(content='') -%}"
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'user' -%}"
    "{%- set state.content = message['content'] -%}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if state.content is string -%}{{- state.content -}}"
    "{%- else -%}"
    "{%- for part in state.content -%}"
    "{%- if part['type'] == 'text' -%}{{- part['text'] -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- endif -%}"
)


def train_tokenizer(documents: Sequence[str], vocabulary_size: int = VOCABULARY_SIZE) -> Tokenizer:
    """Learn merges from `documents`.

    Raises ValueError when the documents are too few to fill `vocabulary_size` entries.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=MAX_TOKEN_CHARACTERS,
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    if tokenizer.get_vocab_size() != vocabulary_size:
        raise ValueError(
            f"vocabulary_size is {vocabulary_size}, but the corpus gives only "
            f"{tokenizer.get_vocab_size()} entries: use a larger corpus or a smaller vocabulary"
        )
    return tokenizer


def tokenizer_config(context_tokens: int = CONTEXT_TOKENS) -> dict[str, object]:
    """What tokenizer_config.json holds beside the tokenizer itself."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_tokens,
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def write_tokenizer(tokenizer: Tokenizer, out: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json to `out`."""
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    text = json.dumps(tokenizer_config(), indent=2) + "\n"
    (out / "tokenizer_config.json").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the byte-level BPE tokenizer.")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocabulary-size", type=int, default=VOCABULARY_SIZE)
    arguments = parser.parse_args()
    documents = read_documents(arguments.corpus, "train")
    tokenizer = train_tokenizer(documents, arguments.vocabulary_size)
    write_tokenizer(tokenizer, arguments.out)
    held_out = read_documents(arguments.corpus, "heldout")
    n_bytes = sum(len(text.encode()) for text in held_out)
    n_tokens = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(held_out))
    print(
        f"{tokenizer.get_vocab_size()} entries, {n_bytes / n_tokens:.3f} held-out bytes per token"
    )


if __name__ == "__main__":
    main()
