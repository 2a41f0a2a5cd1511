"""What is checked of a tokenizer.json before anybody makes a tokenizer of it."""

from __future__ import annotations

import base64
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import CheckpointError, HeadraceError, UnsupportedModelError
from headrace.weights.open import open_checkpoint
from headrace.weights.tokenizer.tokenizer_json import TokenizerJson, read_tokenizer_json
from tests.tiny import BOS, NUM_TOKENS, tokenizer_json, write_tiny_hf


def read(folder: Path, **changes: Any) -> TokenizerJson:
    """Of the tiny tokenizer with these parts; `model` changes entries of the model."""
    content = tokenizer_json()
    content["model"] |= changes.pop("model", {})
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(content | changes), encoding="utf-8")
    return read_tokenizer_json(path)


def chained(*steps: Any, inside: str = "normalizers") -> dict[str, Any]:
    return {"type": "Sequence", inside: list(steps)}


def replace(found: str, put: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": found}, "content": put}


def template(**changes: Any) -> dict[str, Any]:
    text = {"Sequence": {"id": "A", "type_id": 0}}
    first = {"SpecialToken": {"id": "<|bos|>", "type_id": 0}}
    return {
        "type": "TemplateProcessing", "single": [first, text], "pair": [first, text, text],
        "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [BOS], "tokens": ["<|bos|>"]}},
        **changes,
    }  # fmt: skip


def charsmap(*texts: bytes, trie_bytes: int = 4) -> dict[str, Any]:
    raw = trie_bytes.to_bytes(4, "little") + bytes(4) + b"\0".join(texts)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()}


def test_a_sound_file(tmp_path: Path) -> None:
    file = read(tmp_path, post_processor=template())
    assert file.growth == 1
    assert json.loads(file.text) == file.content
    assert file.added_ids("<|bos|>") == {BOS}
    assert file.added_ids("<|none|>") == set()


DAMAGED = [
    ({"model": {"vocab": {"a": 0, "b": 0}}}, "'a' and 'b' both have id 0"),
    ({"model": {"type": "Unigram", "vocab": [["a", -1], ["b", 0], ["a", 0]]}}, "'a' 2 times"),
    ({"model": {"vocab": {"a": -1}}}, r"Expected `int` >= 0 - at `\$.model.vocab"),
    ({"model": {"vocab": {"a": 2**32}}}, r"Expected `int` <= 4294967294"),
    ({"model": {"vocab": {"a": 1.5}}}, r"Expected `int`, got `float`"),
    ({"model": {"vocab": {}}, "added_tokens": []}, "has no token with a text"),
    ({"model": {"vocab": {"": 0}}, "added_tokens": []}, "has no token with a text"),
    ({"model": {"type": "Unigram", "vocab": []}}, "has no token with a text"),
    ({"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 1}}, "unk_id is 1, outside"),
    ({"model": {"type": "Trie"}}, "Invalid enum value 'Trie'"),
    ({"model": {"type": "x" * 5000}}, "a value of a wrong type"),
    ({"model": {"merges": [["a"]]}}, r"\$.model.merges"),
    ({"model": {"max_input_chars_per_word": 10**6}}, "<= 4096"),
    (
        {"model": {"merges": [["a", "b"]], "continuing_subword_prefix": "##long"}},
        r"merges\[0\] is \['a', 'b'\]|merges\[0\] is \('a', 'b'\)",
    ),
    ({"model": {"merges": ["a b c"], "continuing_subword_prefix": "c"}}, "merges.0. is 'a b c'"),
    ({"added_tokens": 5}, r"Expected `array \| null`, got `int` - at `\$.added_tokens`"),
    ({"added_tokens": [{"id": 0}]}, "missing required field `content`"),
    ({"normalizer": []}, r"\$.normalizer"),
    ({"normalizer": {}}, "normalizer is {}; an object with a type"),
    ({"normalizer": chained(replace("a", "b"), [])}, r"normalizer.normalizers\[1\] is \[\]"),
    ({"normalizer": {"type": "Sequence"}}, "normalizer.normalizers is None; a list"),
    ({"normalizer": chained(*[replace("a", "b")] * 65)}, "more than 64 steps"),
    ({"normalizer": replace("", "b")}, r"normalizer.pattern is .*expression"),
    ({"normalizer": replace("a" * 200, "b")}, "at most 128 characters are replaced"),
    ({"normalizer": chained(*[replace("a", "a" * 50)] * 3)}, "125000 times longer; the limit is"),
    ({"normalizer": replace("a", "a" * 100_000)}, "at most 65536 characters"),
    ({"normalizer": {"type": "Prepend"}}, "normalizer.prepend is None"),
    ({"normalizer": charsmap(b"a", trie_bytes=400)}, "claims a table of 400 bytes"),
    ({"normalizer": charsmap(b"a", trie_bytes=3)}, "claims a table of 3 bytes"),
    ({"normalizer": charsmap(b"a", b"\xff")}, "not UTF-8"),
    ({"normalizer": charsmap(b"a", b"x" * 5000)}, "5000 times longer"),
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "!"}}, "not base64"),
    ({"normalizer": {"type": "Precompiled"}}, "precompiled_charsmap is None"),
    (
        {"pre_tokenizer": chained(*[{"type": "ByteLevel"}] * 9, inside="pretokenizers")},
        "the steps of pre_tokenizer can make a text 262144 times longer; the limit is 16",
    ),
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a" * 70_000}}}, "at most 65536"),
    ({"pre_tokenizer": {"type": "Split", "pattern": {}}}, "pre_tokenizer.pattern is {}"),
    ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "length is 0; at least 1"),
    ({"pre_tokenizer": {"type": "FixedLength", "length": "5"}}, "length is '5'; at least 1"),
    ({"pre_tokenizer": {"type": "FixedLength", "length": True}}, "length is True; at least 1"),
    ({"pre_tokenizer": {"type": "FixedLength"}}, "length is None; at least 1"),
    ({"decoder": {"type": "Sequence", "decoders": 5}}, "decoder.decoders is 5"),
    ({"post_processor": template(special_tokens={})}, "names '<|bos|>', which special_tokens"),
    ({"post_processor": template(special_tokens=[])}, r"special_tokens is \[\]"),
    ({"post_processor": template(single=[])}, "single holds the text 0 times"),
    ({"post_processor": template(pair=3)}, "pair is 3; a list"),
    (
        {"post_processor": template(special_tokens={"<|bos|>": {"ids": [NUM_TOKENS]}})},
        f"has {NUM_TOKENS}, outside the {NUM_TOKENS} tokens",
    ),
    ({"post_processor": template(special_tokens={"<|bos|>": {"ids": [True]}})}, "has True; a tok"),
    ({"post_processor": template(special_tokens={"<|bos|>": {"ids": []}})}, r"ids is \[\]"),
    (
        {"post_processor": template(special_tokens={"<|bos|>": {"ids": [BOS] * 2000}})},
        "puts 4000 tokens around a text; the limit is 1024",
    ),
    ({"post_processor": {"type": "BertProcessing", "sep": ["a"]}}, r"sep is \['a'\]"),
    (
        {"post_processor": {"type": "BertProcessing", "sep": ["a", -1], "cls": ["a", 1]}},
        "sep has -1",
    ),
]


@pytest.mark.parametrize(("changes", "message"), DAMAGED)
def test_damaged_and_hostile_files_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        read(tmp_path, **changes)
    assert str(tmp_path / "tokenizer.json") in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": {"type": "Reverse"}}, r"normalizer.type is 'Reverse'.*known are NFC, "),
        ({"pre_tokenizer": {"type": "Reverse"}}, "pre_tokenizer.type is 'Reverse'"),
        ({"post_processor": {"type": "Reverse"}}, "post_processor.type is 'Reverse'"),
        ({"model": {"dropout": 0.1}}, "model.dropout is 0.1"),
    ],
)
def test_what_is_not_implemented_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        read(tmp_path, **changes)


def test_two_readers_cannot_be_shown_different_files(tmp_path: Path) -> None:
    text = json.dumps(tokenizer_json()).replace('"model": {', '"model": {"vocab": {"a": 0}, ', 1)
    path = tmp_path / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match="'vocab' appears twice"):
        read_tokenizer_json(path)


@pytest.mark.parametrize(
    ("normalizer", "growth"),
    [
        ({"type": "NFC"}, 3),
        (chained({"type": "NFD"}, {"type": "NFKC"}, {"type": "NFC"}), 11),
        (chained({"type": "NFKD"}, replace("abc", "\ufdfa"), {"type": "NFKD"}), 121),
        (chained({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")), 12),
        (chained({"type": "Lowercase"}, {"type": "StripAccents"}, {"type": "Nmt"}), 2),
        (replace("``", '"'), 1),
        ({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}, 4),
        (charsmap(b"ab", "ﬁﬁ".encode(), b""), 6),
        (chained(chained(replace("a", "bb")), replace("b", "cc")), 4),
        (
            chained(
                replace("``", '"'), {"type": "NFKD"}, {"type": "StripAccents"},
                {"type": "Lowercase"}, charsmap(b"x" * 33),
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ),
            1452,
        ),
    ],
)  # fmt: skip
def test_how_much_longer_a_text_can_get(tmp_path: Path, normalizer: Any, growth: int) -> None:
    assert read(tmp_path, normalizer=normalizer).growth == growth


@pytest.mark.long
def test_no_character_grows_more_than_the_forms_are_said_to() -> None:
    from headrace.weights.tokenizer import growth as module

    most = {"NFC": 0.0, "NFD": 0.0, "NFKC": 0.0, "NFKD": 0.0, "lower": 0.0}
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        char = chr(code)
        size = len(char.encode())
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            grown = len(unicodedata.normalize(form, char).encode()) / size
            most[form] = max(most[form], grown)
        most["lower"] = max(most["lower"], len(char.lower().encode()) / size)
    assert 2 < max(most["NFC"], most["NFD"]) <= module._COMPOSED_GROWTH
    assert 10 < max(most["NFKC"], most["NFKD"]) <= module._COMPATIBLE_GROWTH
    assert 1 < most["lower"] <= module._LOWER_GROWTH


def test_ends_of_text_are_looked_up_in_a_file_that_is_checked(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for name in ("config.json", "tokenizer.json"):
        content = json.loads((folder / name).read_text())
        content.pop("eos_token_id", None)
        (folder / name).write_text(json.dumps(content | {"added_tokens": 5}))
    with pytest.raises(HeadraceError, match=r"tokenizer\.json.*added_tokens"):
        open_checkpoint(folder)
