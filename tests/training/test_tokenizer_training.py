"""The family's tokenizer: the same every time, lossless, and with the control tokens in place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.text import ChatTemplate
from headrace.text.tokenizer import load_tokenizer
from headrace.weights.tokenizer.data import TokenizerData
from training.data.tokenizer import (
    CHAT_TEMPLATE_FILE,
    CONTROL_TOKENS,
    MAX_TOKEN_CHARACTERS,
    VISIBLE_TOKENS,
    served,
    train_tokenizer,
    write_tokenizer,
)

DOCUMENTS = [f"def f_{i}(x):\n    return x * {i}  # naïve\n" for i in range(50)]
SIZE = 330


def test_tokenizer_is_deterministic_and_lossless() -> None:
    one, two = (train_tokenizer(DOCUMENTS, SIZE) for _ in range(2))
    assert one.to_str() == two.to_str()
    text = "class A:\n\tdef f(self): return 'ü 漢 \x00'\r\n<think>1</think><|im_end|>"
    assert one.decode(one.encode(text).ids, skip_special_tokens=False) == text


def test_a_corpus_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="vocabulary_size is 4000, but the corpus gives only"):
        train_tokenizer(DOCUMENTS, 4000)


def test_control_tokens_have_the_first_ids_and_visible_ones_stay_in_the_text() -> None:
    tokenizer = train_tokenizer(DOCUMENTS, SIZE)
    for index, token in enumerate([*CONTROL_TOKENS, *VISIBLE_TOKENS]):
        assert tokenizer.token_to_id(token) == index
        assert tokenizer.encode(token).ids == [index]
    assert tokenizer.token_to_id("<|fim_middle|>") == 4
    ids = tokenizer.encode("<|im_start|><tool_call>x</tool_call><|im_end|>").ids
    assert tokenizer.decode(ids) == "<tool_call>x</tool_call>"


def test_tokens_are_not_longer_than_allowed() -> None:
    # Tokens of a ruler double until they have to stop.
    rulers = ["-" * 128 + "\n", "=" * 128 + "\n"] * 9
    n_before = len(CONTROL_TOKENS) + len(VISIBLE_TOKENS) + 256
    vocabulary = train_tokenizer(rulers, n_before + 8).get_vocab()
    learnt = set(vocabulary) - {*CONTROL_TOKENS, *VISIBLE_TOKENS}
    assert MAX_TOKEN_CHARACTERS / 2 <= max(map(len, learnt)) <= MAX_TOKEN_CHARACTERS
    with pytest.raises(ValueError, match="use a larger corpus"):
        train_tokenizer(rulers, n_before + 14)


def test_what_is_served_begins_every_text() -> None:
    raw = train_tokenizer(DOCUMENTS, SIZE)
    ids = raw.encode("import os\n").ids
    assert served(raw).encode("import os\n").ids == [0, *ids]
    assert served(raw).encode("import os\n", add_special_tokens=False).ids == ids
    assert raw.encode("import os\n").ids == ids


def test_a_chat_is_rendered_as_the_models_were_trained(tmp_path: Path) -> None:
    """Through headrace's own template engine, with text in parts and a call of a function."""
    write_tokenizer(train_tokenizer(DOCUMENTS, SIZE), tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["chat_template"] == CHAT_TEMPLATE_FILE.read_text()
    assert config["eos_token"] == "<|im_end|>" and config["add_bos_token"] is True
    data = TokenizerData("tokenizer.json", tmp_path / "tokenizer.json", config=config)
    tokenizer = load_tokenizer(data, (2, 0))
    template = ChatTemplate.for_tokenizer({"default": config["chat_template"]}, tokenizer)
    call = {"type": "function", "id": "1", "function": {"name": "now", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "You are terse."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "What "}, {"type": "text", "text": "now?"}],
        },
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "noon", "tool_call_id": "1"},
    ]
    text = template.render(messages, add_generation_prompt=True)
    assert text == (
        "<|endoftext|><|im_start|>system\nYou are terse.<|im_end|>\n"
        "<|im_start|>user\nWhat now?<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
        "<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nnoon\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
