"""Kinds of `tokenizer.ggml.model` beside byte-level BPE and SentencePiece."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import UnsupportedModelError
from headrace.text.gguf_vocabulary import derive_merges
from tests.text.vocabularies import byte_level, from_gguf, gguf_arrays, text_bpe


def test_gemma4_merges_over_text() -> None:
    tokenizer = from_gguf(text_bpe())
    ids = tokenizer.encode("hello a\n\n\nb é<|turn><think>", add_special_tokens=True)
    names = [tokenizer.token_bytes(token) for token in ids]
    spelled = ("<bos>", "hello", " a", "\n\n\n", "b", " ", "é", "<|turn>", "<think>")
    assert names == [name.encode() for name in spelled]
    assert tokenizer.decode(ids) == "hello a\n\n\nb é<think>"
    assert tokenizer.encode(" hello", add_special_tokens=False) == [tokenizer.token_to_id("▁hello")]
    for text in ("", " ", "  hello", "\n", "\n\n\n\n\n", "x ü 漢\n h", "<bos>"):
        ids = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert from_gguf(text_bpe(add_bos_token=False)).encode("b", add_special_tokens=True) == [
        tokenizer.token_to_id("b")
    ]


@pytest.mark.long
def test_gemma4_and_sentencepiece_agree_on_one_vocabulary(shared_assets: Path) -> None:
    """The same merges said in scores and said in pairs."""
    folder = shared_assets / "tokenizers" / "ggml-vocab"
    arrays = gguf_arrays(folder / "ggml-vocab-llama-spm.gguf")
    merges = derive_merges(arrays["tokens"], arrays["scores"], list(arrays["token_type"]))
    paired = arrays | {"model": "gemma4", "merges": [" ".join(pair) for pair in merges]}
    built = from_gguf(paired)
    unprefixed = from_gguf(arrays | {"add_space_prefix": False})
    path = folder / "ggml-vocab-llama-spm.gguf.inp"
    for text in path.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n"):
        ids = unprefixed.encode(text, add_special_tokens=False)
        assert built.encode(text, add_special_tokens=False) == ids
        assert built.decode(ids) == text


@pytest.mark.parametrize(
    ("model", "meaning"),
    [("bert", "WordPiece"), ("t5", "unigram"), ("rwkv", "RWKV World"), ("plamo2", "PLaMo")],
)
def test_other_models_are_refused_by_name(model: str, meaning: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"'{model}' .*{meaning}.*'gemma4'"):
        from_gguf(byte_level(model=model))


def test_every_id_has_the_bytes_of_its_token_and_no_other_id_has_any() -> None:
    arrays = text_bpe()
    tokenizer = from_gguf(arrays)
    names = arrays["tokens"]
    kept = [tokenizer.token_to_id(name) for name in names]
    assert kept == list(range(len(names)))
    assert all(tokenizer.token_bytes(token) for token in kept)
    for token in (-1, len(names), 2**32, 2**64):
        assert tokenizer.token_bytes(token) == b""
