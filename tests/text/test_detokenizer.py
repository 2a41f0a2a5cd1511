"""Pieces add up: for any ids, cut anywhere, what comes out is what decode gives."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.text import Detokenizer, Tokenizer
from tests.text.vocabularies import byte_level, from_gguf, real, sentencepiece

BYTES = from_gguf(byte_level())
PIECES = from_gguf(sentencepiece())
SIZES = {BYTES: len(byte_level()["tokens"]), PIECES: len(sentencepiece()["tokens"])}
TEXTS = ["hello world é — 你好 🚀😶\u200d🌫️ end", "\ufffd kept \ufffd", "  ab\n<|end|><think>"]

tokenizers = pytest.mark.parametrize("tokenizer", [BYTES, PIECES], ids=["bytes", "pieces"])


def _streamed(tokenizer: Tokenizer, parts: list[list[int]], **options: object) -> str:
    detokenizer = Detokenizer(tokenizer, **options)  # type: ignore[arg-type]
    return "".join([*(detokenizer.feed(part) for part in parts), detokenizer.flush()])


def _ids(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, SIZES[tokenizer] + 1), max_size=30)


@tokenizers
@pytest.mark.parametrize("skip", [True, False])
@given(data=st.data())
@settings(max_examples=150)
def test_random_ids(tokenizer: Tokenizer, skip: bool, data: st.DataObject) -> None:
    ids = data.draw(_ids(tokenizer))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    bounds = [0, *cuts, len(ids)]
    parts = [ids[a:b] for a, b in pairwise(bounds)]
    text = _streamed(tokenizer, parts, skip_special_tokens=skip)
    assert text == tokenizer.decode(ids, skip_special_tokens=skip)


@tokenizers
@pytest.mark.parametrize("text", TEXTS)
def test_every_split_point(tokenizer: Tokenizer, text: str) -> None:
    for raw in (text, "".join(reversed(text))):
        ids = tokenizer.encode(raw, add_special_tokens=True)
        assert _streamed(tokenizer, [[i] for i in ids]) == tokenizer.decode(ids)
        for cut in range(len(ids) + 1):
            assert _streamed(tokenizer, [ids[:cut], ids[cut:]]) == tokenizer.decode(ids)


@pytest.mark.every_cut
@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "qwen2"])
def test_real_text_at_every_split_point(shared_assets: Path, name: str) -> None:
    tokenizer = real(shared_assets, name)
    path = shared_assets / "tokenizers" / "ggml-vocab" / "ggml-vocab-gpt-2.gguf.inp"
    for text in path.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n"):
        ids = tokenizer.encode(text, add_special_tokens=True)
        assert _streamed(tokenizer, [[i] for i in ids]) == tokenizer.decode(ids) == text
        for cut in range(len(ids) + 1):
            prompt, generated = ids[:cut], ids[cut:]
            assert _streamed(tokenizer, [prompt, generated]) == text
            continued = _streamed(tokenizer, [[i] for i in generated], prompt_ids=prompt)
            assert text.endswith(continued)
            # Only what the prompt's own decoding shows completely is missing from the stream.
            begun = tokenizer.decode(prompt)
            assert text == begun.rstrip("\ufffd") + continued


@cache
def ids_of_bytes(tokenizer: Tokenizer) -> dict[bytes, int]:
    return {tokenizer.token_bytes(i): i for i in range(SIZES[tokenizer])}


@tokenizers
@given(data=st.data())
@settings(max_examples=80)
def test_continuing_a_prompt(tokenizer: Tokenizer, data: st.DataObject) -> None:
    check_continuing(tokenizer, data)


@pytest.mark.long
@tokenizers
@given(data=st.data())
@settings(max_examples=300)
def test_continuing_many_prompts(tokenizer: Tokenizer, data: st.DataObject) -> None:
    check_continuing(tokenizer, data)


def check_continuing(tokenizer: Tokenizer, data: st.DataObject) -> None:
    heads = [0x41, 0xC3, 0xA9, 0xE4, 0xBD, 0xA0, 0xF0, 0x9F, 0x98, 0x80, 0x20]
    by_byte = ids_of_bytes(tokenizer)
    some = st.sampled_from([by_byte[bytes((head,))] for head in heads])
    prompt = data.draw(st.lists(some, max_size=6))
    generated = data.draw(st.lists(some, max_size=8))
    shown = _streamed(tokenizer, [[i] for i in generated], prompt_ids=prompt)
    whole = tokenizer.decode(prompt + generated)
    assert whole.endswith(shown)
    lead = whole[: len(whole) - len(shown)]
    before = tokenizer.decode(prompt)
    # The prompt's text, the last character of which the ids may have completed.
    assert lead in (before, before.removesuffix("\ufffd"))


def test_a_character_is_given_with_its_last_byte_and_no_later() -> None:
    detokenizer = Detokenizer(BYTES)
    by_byte = {BYTES.token_bytes(i): i for i in range(256)}
    pieces = [detokenizer.feed([by_byte[bytes((byte,))]]) for byte in "a🚀é".encode()]
    assert pieces == ["a", "", "", "", "🚀", "", "é"]
    assert detokenizer.flush() == ""


def test_invalid_bytes_are_known_at_once() -> None:
    by_byte = {BYTES.token_bytes(i): i for i in range(256)}

    def pieces(data: bytes) -> list[str]:
        detokenizer = Detokenizer(BYTES)
        fed = [detokenizer.feed([by_byte[bytes((byte,))]]) for byte in data]
        return [*fed, detokenizer.flush()]

    assert pieces(b"\x80a") == ["\ufffd", "a", ""]
    assert pieces(b"\xe4\xbd") == ["", "", "\ufffd"]
    assert pieces(b"\xe4a") == ["", "\ufffda", ""]
    assert pieces("\ufffd".encode()) == ["", "", "\ufffd", ""], "a genuine U+FFFD is not held"


def test_prompts_that_end_inside_a_character() -> None:
    by_byte = {BYTES.token_bytes(i): i for i in range(256)}

    def after(prompt: bytes, generated: bytes) -> str:
        prompt_ids = [by_byte[bytes((byte,))] for byte in prompt]
        ids = [[by_byte[bytes((byte,))]] for byte in generated]
        return _streamed(BYTES, ids, prompt_ids=prompt_ids)

    assert after(b"a\xf0\x9f", b"\x9a\x80!") == "🚀!"
    assert after(b"a\xf0\x9f", b"!") == "!", "the prompt's broken bytes are not printed"
    assert after(b"a\xf0\x9f", b"") == ""
    assert after(b"a\xf0\x9f", b"\x9a") == "\ufffd"
    assert after(b"\xef\xbf", b"\xbd") == "\ufffd", "completed to a genuine U+FFFD"


def test_the_first_space_belongs_to_the_whole_text() -> None:
    hello = PIECES.token_to_id("▁hello")
    assert hello is not None
    assert _streamed(PIECES, [[hello], [hello]]) == "hello hello"
    assert _streamed(PIECES, [[hello]], prompt_ids=[1]) == "hello", "nothing printed before it"
    assert _streamed(PIECES, [[hello]], prompt_ids=[1, hello]) == " hello"
    assert _streamed(PIECES, [[hello]], prompt_ids=[1], skip_special_tokens=False) == " hello"
