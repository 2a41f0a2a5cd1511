"""tokenizer.json as GGUF arrays: what is recognised, refused and noted; and the same token ids."""

from __future__ import annotations

import copy
import heapq
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from headrace.errors import CheckpointError, HeadraceError, UnsupportedModelError
from headrace.weights.gguf.file import read_gguf
from headrace.weights.tokenizer.bpe_scores import scores_of_merges
from headrace.weights.tokenizer.hf_tokenizer import tokenizer_arrays
from headrace.weights.tokenizer.pretokenizers import PRETOKENIZERS, name_of

from .builders import byte_tokenizer

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
CONFIG = {"eos_token": "<|end|>", "bos_token": {"content": "<|turn|>"}}
VOCAB = 300


def split(expression: str) -> dict[str, Any]:
    return {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated",
             "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ],
    }  # fmt: skip


def template(before: list[str], after: list[str]) -> dict[str, Any]:
    def special(names: list[str]) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": name, "type_id": 0}} for name in names]

    single = [*special(before), {"Sequence": {"id": "A", "type_id": 0}}, *special(after)]
    return {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}}


def arrays_of(changes: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    data = copy.deepcopy(byte_tokenizer())
    for key, value in changes.items():
        target: Any = data
        *parents, last = key.split(".")
        for parent in parents:
            target = target[parent]
        target[last] = value
    return tokenizer_arrays(data, CONFIG, VOCAB, (0,), **arguments).entries


def test_a_byte_level_tokenizer() -> None:
    data = byte_tokenizer()
    result = tokenizer_arrays(data, CONFIG, VOCAB, (0, 1))
    entries = result.entries
    assert result.notes == ()
    assert (entries["model"], entries["pre"]) == ("gpt2", "gpt-2")
    vocab = data["model"]["vocab"]
    assert [entries["tokens"][index] for index in vocab.values()] == list(vocab)
    assert entries["tokens"][-1] == "[PAD299]"
    assert entries["token_type"][:3].tolist() == [3, 4, 1]
    assert entries["token_type"][-1] == 5 and len(entries["tokens"]) == VOCAB
    assert entries["merges"].tolist() == ["t h", "th e", "Ġ the"]
    assert entries["eos_token_id"] == 0 and entries["eot_token_id"] == 1
    assert entries["bos_token_id"] == 1
    assert entries["add_bos_token"] is False and entries["add_eos_token"] is False


def test_the_arrays_give_the_same_ids() -> None:
    data = byte_tokenizer()
    entries = tokenizer_arrays(data, CONFIG, VOCAB, (0,)).entries
    vocab = {token: index for index, token in enumerate(entries["tokens"])}
    merges = [tuple(merge.split(" ")) for merge in entries["merges"].tolist()]
    original = Tokenizer.from_str(json.dumps(data))
    rebuilt = Tokenizer.from_str(json.dumps(data))
    rebuilt.model = models.BPE(vocab=vocab, merges=merges)
    for text in ("the other theatre", "  the\n", "naïve — ▁ 😀", "<|end|>the<|turn|>"):
        assert rebuilt.encode(text).ids == original.encode(text).ids


def test_merges_as_strings_and_merges_absent() -> None:
    assert arrays_of({"model.merges": ["t h"]})["merges"].tolist() == ["t h"]
    empty = arrays_of({"model.merges": []})["merges"]
    assert empty.dtype.kind == "U" and len(empty) == 0


@pytest.mark.parametrize(
    ("expression", "ignore_merges", "name"),
    [(QWEN2, False, "qwen2"), (LLAMA3, True, "llama-bpe"), (LLAMA3, False, "dbrx")],
)
def test_known_pre_tokenizers(expression: str, ignore_merges: bool, name: str) -> None:
    changes = {"pre_tokenizer": split(expression), "model.ignore_merges": ignore_merges}
    assert arrays_of(changes)["pre"] == name


def test_a_pre_tokenizer_of_two_steps() -> None:
    """Digits one by one, then GPT-2's rule: StarCoder's and its likes' (SmolLM, Command R)."""
    digits = {"type": "Digits", "individual_digits": True}
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    sequence = {"type": "Sequence", "pretokenizers": [digits, to_bytes]}
    assert arrays_of({"pre_tokenizer": sequence})["pre"] == "starcoder"
    for steps in (
        [to_bytes, digits],
        [{**digits, "individual_digits": False}, to_bytes],
        [{"type": "Punctuation"}, to_bytes],
    ):
        with pytest.raises(UnsupportedModelError, match="give that as pre"):
            arrays_of({"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}})


@pytest.mark.parametrize("name", sorted(PRETOKENIZERS))
def test_the_name_of_a_rule_means_that_rule(name: str) -> None:
    rule = PRETOKENIZERS[name]
    found = name_of(rule.patterns, rule.ignore_merges)
    assert found is not None
    same = PRETOKENIZERS[found]
    assert (same.patterns, same.ignore_merges) == (rule.patterns, rule.ignore_merges)


def test_an_unknown_pre_tokenizer_is_refused_or_given() -> None:
    for changes in (
        {"pre_tokenizer": split("x")},
        {"pre_tokenizer": split(QWEN2), "model.ignore_merges": True},
        {"model.ignore_merges": True},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}},
    ):
        with pytest.raises(UnsupportedModelError, match="give that as pre"):
            arrays_of(changes)
        assert arrays_of(changes, pre="mine")["pre"] == "mine"


@pytest.mark.parametrize(
    ("processor", "bos", "eos"),
    [
        ({"type": "ByteLevel"}, False, False),
        (template([], []), False, False),
        (template(["<|turn|>"], []), True, False),
        (template(["<|turn|>"], ["<|end|>"]), True, True),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, template(["<|turn|>"], [])]},
         True, False),
    ],
)  # fmt: skip
def test_what_is_put_around_a_text(processor: dict[str, Any], bos: bool, eos: bool) -> None:
    entries = arrays_of({"post_processor": processor})
    assert (entries["add_bos_token"], entries["add_eos_token"]) == (bos, eos)


def test_the_first_token_may_be_named_by_the_post_processor_alone() -> None:
    data = byte_tokenizer() | {"post_processor": template(["<|turn|>"], [])}
    entries = tokenizer_arrays(data, {}, VOCAB, ()).entries
    assert entries["bos_token_id"] == 1 and entries["add_bos_token"] is True


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"model.type": "Unigram"}, "tokenizer model is 'Unigram'"),
        ({"model": 5}, "tokenizer model is 5"),
        ({"model.vocab": []}, "model.vocab is not an object"),
        ({"model.end_of_word_suffix": "</w>"}, "model.end_of_word_suffix is '</w>'"),
        ({"model.dropout": 0.1}, "model.dropout is 0.1"),
        ({"model.merges": ["a b c"]}, "merge 'a b c' is not two texts"),
        ({"model.merges": [["a", " "]]}, "is not two texts without space"),
        ({"model.vocab": {"a": 300}}, "token 'a' has id 300; ids below vocab_size 300"),
        ({"added_tokens": [{"id": -1, "content": "x"}]}, "token 'x' has id -1"),
        ({"added_tokens": [5]}, "added_tokens is not a list of objects"),
        ({"normalizer": {"type": "Lowercase"}}, r"normalizer \['Lowercase'\]"),
        ({"post_processor": {"type": "BertProcessing"}}, "post-processor 'BertProcessing'"),
        ({"post_processor": template(["<|turn|>"] * 2, [])}, "GGUF can state only the bos"),
        ({"post_processor": template(["<|end|>"], [])}, "GGUF can state only the bos"),
        ({"pre_tokenizer": 5}, "5 is not an object"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "neither byte-level nor has byte_fallback"),
    ],
)
def test_what_gguf_cannot_say_is_refused(changes: dict[str, Any], pattern: str) -> None:
    with pytest.raises(HeadraceError, match=pattern):
        arrays_of(changes)


def test_what_is_lost_is_noted() -> None:
    data = byte_tokenizer()
    data["normalizer"] = {"type": "NFC"}
    data["added_tokens"][0]["lstrip"] = True
    notes = " ".join(tokenizer_arrays(data, CONFIG, VOCAB, (0, 1, 2, 3)).notes)
    assert "NFC" in notes and "flag lstrip of <|end|>" in notes and "eos ids [3]" in notes


# SentencePiece-style tokenizers.


def spm_json(tokens: list[str], scores: Any, types: Any) -> dict[str, Any]:
    """tokenizer.json as transformers makes it of a SentencePiece model: merges from scores."""
    vocab = {token: index for index, token in enumerate(tokens)}
    merges = []
    for token, index in vocab.items():
        if types[index] == 1:
            cuts = [(token[:at], token[at:]) for at in range(1, len(token))]
            found = [(a, b) for a, b in cuts if a in vocab and b in vocab]
            found.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
            merges += [(float(scores[index]), index, a, b) for a, b in found]
    merges.sort(key=lambda merge: (-merge[0], merge[1]))
    special = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": index, "content": tokens[index], "special": True} | special
            for index, kind in enumerate(types)
            if kind in (2, 3)
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": template(["<s>"], []) | {
            "special_tokens": {"<s>": {"id": "<s>", "ids": [vocab["<s>"]], "tokens": ["<s>"]}},
        },
        "decoder": None,
        "model": {
            "type": "BPE", "vocab": vocab, "merges": [[a, b] for _, _, a, b in merges],
            "unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True, "ignore_merges": False,
        },
    }  # fmt: skip


def spm_encode(text: str, tokens: list[str], scores: Any) -> list[int]:
    """SentencePiece's rule: join the neighbours whose joined text scores best, leftmost first."""
    vocab = {token: index for index, token in enumerate(tokens)}
    parts: list[str | None] = list("▁" + text.replace(" ", "▁"))
    while True:
        heap: list[tuple[float, int]] = []
        live = [index for index, part in enumerate(parts) if part is not None]
        for place in range(len(live) - 1):
            joined = parts[live[place]] + parts[live[place + 1]]
            if joined in vocab:
                heapq.heappush(heap, (-float(scores[vocab[joined]]), place))
        if not heap:
            break
        _, place = heap[0]
        parts[live[place]] += parts[live[place + 1]]
        parts[live[place + 1]] = None
    ids = []
    for part in parts:
        if part is None:
            continue
        if part in vocab:
            ids.append(vocab[part])
        else:
            ids += [vocab[f"<0x{byte:02X}>"] for byte in part.encode()]
    return ids


@pytest.fixture(scope="module")
def stories(shared_assets: Path) -> dict[str, Any]:
    path = shared_assets / "models" / "stories260K" / "stories260K.gguf"
    metadata = read_gguf(path).metadata
    keys = ("tokens", "scores", "token_type")
    return {key: metadata[f"tokenizer.ggml.{key}"] for key in keys}


def test_scores_of_a_real_vocabulary_tokenize_alike(stories: dict[str, Any]) -> None:
    tokens, scores, types = stories["tokens"], stories["scores"], stories["token_type"].tolist()
    data = spm_json(tokens, scores, types)
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    entries = tokenizer_arrays(data, config, 520, (2,)).entries
    assert entries["model"] == "llama" and entries["pre"] == "default"
    assert entries["tokens"][:512] == tokens and entries["tokens"][515] == "[PAD515]"
    assert entries["token_type"].tolist() == types + [5] * 8
    assert entries["add_bos_token"] is True and entries["add_space_prefix"] is True
    assert (entries["bos_token_id"], entries["eos_token_id"]) == (1, 2)
    assert entries["unknown_token_id"] == 0
    library = Tokenizer.from_str(json.dumps(data))
    for text in ("Once upon a time, there was", "Zoë  saw 2 dogs!", "a aa aaa", "\n\nThe end."):
        ids = library.encode(text, add_special_tokens=False).ids
        assert spm_encode(text, entries["tokens"], entries["scores"]) == ids
        assert spm_encode(text, tokens, scores) == ids


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "expected"),
    [
        ({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, None, False),
        (None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
                "split": False}, True),
        (None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never",
                "split": False}, False),
        (None, {"type": "Metaspace", "replacement": "_", "split": False}, None),
        (None, {"type": "Metaspace", "replacement": "▁", "split": True}, None),
        ({"type": "Replace", "pattern": {"String": "x"}, "content": "▁"}, None, None),
        (None, None, None),
    ],
)  # fmt: skip
def test_ways_of_treating_spaces(
    normalizer: Any, pre_tokenizer: Any, expected: bool | None
) -> None:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a"]
    types = [2, 3, 3, *[6] * 256, 1, 1, 1]
    data = spm_json(tokens, [0.0] * len(tokens), types)
    data["normalizer"], data["pre_tokenizer"] = normalizer, pre_tokenizer
    config = {"bos_token": "<s>", "eos_token": "</s>"}
    if expected is None:
        with pytest.raises(UnsupportedModelError, match="neither byte-level nor SentencePiece"):
            tokenizer_arrays(data, config, len(tokens), (2,))
    else:
        entries = tokenizer_arrays(data, config, len(tokens), (2,)).entries
        assert entries["add_space_prefix"] is expected
        assert entries["scores"].tolist() == [-1.0] * 261 + [0.0]


def test_merges_that_scores_cannot_say_are_refused() -> None:
    tokens = ["a", "b", "c", "ab", "bc", "abc"]
    types = [1] * 6
    every = ["a b", "b c", "ab c", "a bc"]
    assert scores_of_merges(tokens, types, every).tolist() == [-3, -3, -3, 0, -1, -2]
    with pytest.raises(UnsupportedModelError, match="'abc' could be joined of 'a' and 'bc'"):
        scores_of_merges(tokens, types, every[:3])
    with pytest.raises(UnsupportedModelError, match="merges of token 'abc' do not follow"):
        scores_of_merges(tokens, types, ["a b", "ab c", "b c", "a bc"])
    with pytest.raises(UnsupportedModelError, match="'abd', which is not a normal token"):
        scores_of_merges(tokens, types, [*every, "ab d"])


@pytest.mark.long
def test_a_real_byte_level_tokenizer(shared_assets: Path) -> None:
    """Qwen2's own tokenizer.json is not here; its vocabulary, merges and expression are."""
    folder = shared_assets / "tokenizers" / "qwen2"
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    lines = (folder / "merges.lf.txt").read_text(encoding="utf-8").split("\n")
    merges = [line for line in lines if line and not line.startswith("#version")]
    data = byte_tokenizer() | {"added_tokens": [], "pre_tokenizer": split(QWEN2)}
    data["model"] = {"type": "BPE", "vocab": vocab, "merges": merges}
    data["normalizer"] = {"type": "NFC"}
    result = tokenizer_arrays(data, {}, 151_936, ())
    assert result.entries["pre"] == "qwen2"
    assert np.array_equal(result.entries["merges"], merges)
    assert result.entries["tokens"][: len(vocab)] == sorted(vocab, key=vocab.__getitem__)
    with pytest.raises(CheckpointError, match="ids below vocab_size 1000"):
        tokenizer_arrays(data, {}, 1000, ())
