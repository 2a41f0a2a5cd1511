"""Real vocabularies against ids recorded from the models' own tokenizers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.text.vocabularies import from_gguf, from_json, gguf_arrays, real

SEPARATOR = "\n__ggml_vocab_test__\n"
NAMES = ["gpt-2", "llama-bpe", "qwen2", "refact", "mpt", "deepseek-coder", "llama-spm"]


@pytest.mark.parametrize("name", NAMES)
def test_llama_cpp_vectors(shared_assets: Path, name: str) -> None:
    base = shared_assets / "tokenizers" / "ggml-vocab" / f"ggml-vocab-{name}.gguf"
    texts = base.with_suffix(".gguf.inp").read_text(encoding="utf-8").split(SEPARATOR)
    lines = base.with_suffix(".gguf.out").read_text(encoding="utf-8").split("\n")
    expected = [[int(token_id) for token_id in line.split()] for line in lines]
    tokenizer = real(shared_assets, name)
    assert len(texts) == len(expected) > 40
    for text, ids in zip(texts, expected, strict=True):
        assert tokenizer.encode(text, add_special_tokens=False) == ids
        assert tokenizer.encode(text, add_special_tokens=False, parse_special=False) == ids
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    ("vectors", "name", "framed"),
    [
        ("Xenova/gpt2", "gpt-2", True),
        ("openai-community/gpt2", "gpt-2", True),
        ("Xenova/llama-tokenizer", "llama-spm", True),
        ("Xenova/llama3-tokenizer", "llama-bpe", False),
        ("Xenova/deepseek-coder-1.3b-instruct", "deepseek-coder", True),
    ],
)
def test_transformers_vectors(shared_assets: Path, vectors: str, name: str, framed: bool) -> None:
    folder = shared_assets / "tokenizers" / "hf-vectors" / "tokenization-vectors.json"
    cases = json.loads(folder.read_text(encoding="utf-8"))[vectors]
    tokenizer = real(shared_assets, name)
    assert len(cases) > 20
    for case_name, case in cases.items():
        ids = tokenizer.encode(case["text"], add_special_tokens=framed)
        assert ids == case["ids"], case_name
        # Recorded with transformers' clean-up of spaces before punctuation, which is not done here.
        if case_name != "PUNCTUATION":
            text = tokenizer.decode(case["ids"], skip_special_tokens=False)
            assert text == case["decoded"], case_name


def test_stories260k(shared_assets: Path) -> None:
    folder = shared_assets / "models" / "stories260K"
    tokenizer = from_gguf(gguf_arrays(folder / "stories260K.gguf"))
    recorded = json.loads((folder / "reference-greedy.json").read_text(encoding="utf-8"))
    assert tokenizer.bos_token_id == 1
    assert tokenizer.eos_token_ids == (2,)
    for case in recorded["stories260K"]:
        assert tokenizer.encode(case["prompt"], add_special_tokens=True) == case["prompt_ids"]
        whole = tokenizer.decode([*case["prompt_ids"], *case["ids"]])
        assert whole == (case["prompt"] + case["text"]).lstrip(" ")


def test_smollm_rule_equals_its_tokenizer_json(shared_assets: Path) -> None:
    path = shared_assets / "tokenizers" / "litert-hf" / "tokenizer.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    vocab = state["model"]["vocab"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in state["model"]["merges"]]
    added = {token["id"] for token in state["added_tokens"]}
    tokens = sorted(vocab, key=vocab.__getitem__)
    built = from_gguf(
        {
            "model": "gpt2",
            "pre": "smollm",
            "tokens": tokens,
            "merges": merges,
            "token_type": [3 if token_id in added else 1 for token_id in range(len(tokens))],
        }
    )
    read = from_json(path)
    for text in (*_texts(shared_assets), "<|im_start|>user\n12345 x<|im_end|>"):
        ids = read.encode(text, add_special_tokens=False)
        assert built.encode(text, add_special_tokens=False) == ids
        assert built.decode(ids, skip_special_tokens=False) == text
        assert read.decode(ids, skip_special_tokens=False) == text
        assert built.decode(ids) == read.decode(ids)


def _texts(assets: Path) -> list[str]:
    path = assets / "tokenizers" / "ggml-vocab" / "ggml-vocab-gpt-2.gguf.inp"
    return path.read_text(encoding="utf-8").split(SEPARATOR)
