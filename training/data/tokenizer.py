"""Train the byte-level BPE tokenizer of the whole family and write its Hugging Face files.

The pre-tokenizer is GPT-2's own regular expression (ByteLevel with use_regex), because GGUF files
name a pre-tokenizer rather than carry one, and "gpt-2" is a name every reader knows. There is no
normalizer: text goes in and comes out byte for byte. What is trained with has no post-processor
either; what is served begins every text with <|endoftext|>, as every document of training does
(`served`): a model that is not told where a text begins takes its first line for a middle.

    python -m training.data.tokenizer --corpus build/train/corpus --out build/train/tokenizer
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from training.data.corpus import read_documents

VOCABULARY_SIZE = 8192
CONTEXT_TOKENS = 2048
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
FIM_PREFIX, FIM_MIDDLE, FIM_SUFFIX = "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"
END_OF_TEXT_ID, TURN_START_ID, TURN_END_ID = 0, 1, 2
FIM_PREFIX_ID, FIM_MIDDLE_ID, FIM_SUFFIX_ID = 3, 4, 5
# Names are those that other code models gave these roles, so that tools find them by name. The
# reserved entries keep room for later members of the family without moving any id.
CONTROL_TOKENS = (
    END_OF_TEXT,
    TURN_START,
    TURN_END,
    FIM_PREFIX,
    FIM_MIDDLE,
    FIM_SUFFIX,
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    *(f"<|reserved_{index}|>" for index in range(9)),
)
# Parts of an answer that a reader has to see in order to take it apart: not "special", so that
# they stay in the decoded text.
VISIBLE_TOKENS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
# Rulers of dashes and deep indents would otherwise take a place for every length.
MAX_TOKEN_CHARACTERS = 32
# One document in so many is enough to learn merges from.
DOCUMENTS_PER_SAMPLE = 3

CHAT_TEMPLATE_FILE = Path(__file__).with_name("chat_template.jinja")


def train_tokenizer(documents: Sequence[str], vocabulary_size: int = VOCABULARY_SIZE) -> Tokenizer:
    """Learn merges from `documents`.

    Raises ValueError when the documents are too few to fill `vocabulary_size` entries.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[*CONTROL_TOKENS, *VISIBLE_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=MAX_TOKEN_CHARACTERS,
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    # The trainer marks all of them special, whatever they say of themselves.
    state = json.loads(tokenizer.to_str())
    for token in state["added_tokens"]:
        token["special"] = token["content"] not in VISIBLE_TOKENS
    tokenizer = Tokenizer.from_str(json.dumps(state))
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
        "eos_token": TURN_END,
        "pad_token": "<|fim_pad|>",
        "add_bos_token": True,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE_FILE.read_text(),
    }


def served(tokenizer: Tokenizer) -> Tokenizer:
    """A copy of `tokenizer` that begins every text with <|endoftext|>."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A",
        pair=f"{END_OF_TEXT} $A {END_OF_TEXT} $B",
        special_tokens=[(END_OF_TEXT, END_OF_TEXT_ID)],
    )
    return copy


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
    documents = read_documents(arguments.corpus, "train")[::DOCUMENTS_PER_SAMPLE]
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
