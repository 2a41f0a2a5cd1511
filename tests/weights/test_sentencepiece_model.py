"""tokenizer.model as GGUF entries: what is read, what is refused, damage."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, HeadraceError, UnsupportedModelError
from headrace.text import load_tokenizer
from headrace.weights.open import open_checkpoint
from headrace.weights.tokenizer.data import TokenizerData
from headrace.weights.tokenizer.sentencepiece_model import MAX_MODEL_BYTES, sentencepiece_entries

from .builders import write_hf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
PIECES = [
    ("<unk>", 0.0, UNKNOWN),
    ("<s>", 0.0, CONTROL),
    ("</s>", 0.0, CONTROL),
    *((f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)),
    *((piece, -float(rank), NORMAL) for rank, piece in enumerate(("▁h", "▁hi", "▁", "h", "i"))),
    ("<tool>", 0.0, USER_DEFINED),
]


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = b""
    while value >= 0x80:
        out += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return out + bytes((value,))


def field(number: int, value: int | float | bytes | str) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def model(
    pieces: list[tuple[str, float, int]] = PIECES,
    trainer: dict[int, Any] | None = None,
    normalizer: dict[int, Any] | None = None,
) -> bytes:
    out = b"".join(field(1, field(1, t) + field(2, s) + field(3, k)) for t, s, k in pieces)
    spec = {3: 2, **(trainer or {})}
    out += field(2, b"".join(field(number, value) for number, value in spec.items()))
    rules = {4: 0, **(normalizer or {})}
    return out + field(3, b"".join(field(number, value) for number, value in rules.items()))


def written(folder: Path, data: bytes) -> Path:
    path = folder / "tokenizer.model"
    path.write_bytes(data)
    return path


def test_pieces_and_special_tokens(tmp_path: Path) -> None:
    config = {
        "add_eos_token": True,
        "pad_token": {"content": "<extra>"},
        "added_tokens_decoder": {
            "1": {"content": "<s>", "special": True},
            "265": {"content": "<extra>", "special": True},
            "266": {"content": "<shown>", "special": False},
        },
    }
    entries = sentencepiece_entries(written(tmp_path, model()), config)
    assert entries["model"] == "llama"
    assert entries["tokens"][-3:] == ["<tool>", "<extra>", "<shown>"]
    assert entries["token_type"][-3:].tolist() == [USER_DEFINED, CONTROL, USER_DEFINED]
    assert entries["scores"][260] == -1
    assert (entries["bos_token_id"], entries["eos_token_id"]) == (1, 2)
    assert (entries["unknown_token_id"], entries["padding_token_id"]) == (0, 265)
    assert (entries["add_bos_token"], entries["add_eos_token"]) == (True, True)
    assert entries["add_space_prefix"] is True and entries["legacy"] is True
    tokenizer = load_tokenizer(TokenizerData("gguf", gguf=entries))
    ids = tokenizer.encode("hi<tool>é", add_special_tokens=True)
    assert ids == [1, 260, 264, 261, 3 + 0xC3, 3 + 0xA9, 2]
    assert tokenizer.decode(ids) == "hi<tool> é"


def test_the_config_and_the_file_have_their_say(tmp_path: Path) -> None:
    ids = {40: 5, 41: -1, 42: 264, 43: -1}
    path = written(tmp_path, model(trainer=ids, normalizer={3: 0}))
    entries = sentencepiece_entries(path, {"add_bos_token": False, "legacy": False})
    assert "bos_token_id" not in entries and "padding_token_id" not in entries
    assert (entries["unknown_token_id"], entries["eos_token_id"]) == (5, 264)
    assert (entries["add_bos_token"], entries["add_space_prefix"]) == (False, False)
    assert entries["legacy"] is False


def test_without_legacy_the_space_goes_before_the_whole_text_only(tmp_path: Path) -> None:
    path = written(tmp_path, model())
    new = sentencepiece_entries(path, {"legacy": False})
    tokenizer = load_tokenizer(TokenizerData("gguf", gguf=new))
    assert tokenizer.encode("hi</s>hi", add_special_tokens=False) == [260, 2, 262, 263]
    old = load_tokenizer(TokenizerData("gguf", gguf=sentencepiece_entries(path, {})))
    assert old.encode("hi</s>hi", add_special_tokens=False) == [260, 2, 260]
    plain = new | {"add_space_prefix": False}
    assert load_tokenizer(TokenizerData("gguf", gguf=plain)).encode(
        "hi", add_special_tokens=False
    ) == [262, 263]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (model(trainer={3: 1}), "of type 'unigram'"),
        (model(normalizer={2: b"map"}), "character map"),
        (model(normalizer={4: 1}), "removes extra spaces"),
        (model(PIECES[:100]), "has 97 byte pieces; 256"),
        (b"IQ== 0\nIg== 1\n", "tiktoken ranks"),
    ],
)
def test_other_kinds_are_refused(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        sentencepiece_entries(written(tmp_path, data), {})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no pieces"),
        (model()[:-1], "claims"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "longer than ten bytes"),
        (b"\x0a\xff\xff\xff\xff\x7f", "claims"),
        (b"\x0b", "wire type 3"),
        (field(1, 5), "is a number"),
        (field(1, field(1, b"\xff")), "utf-8"),
        (b"\x0d\x00", "buffer"),
    ],
)
def test_damage_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(CheckpointError, match=rf"tokenizer\.model: not a SentencePiece .*{said}"):
        sentencepiece_entries(written(tmp_path, data), {})


def test_added_tokens_follow_the_pieces(tmp_path: Path) -> None:
    path = written(tmp_path, model())
    for entry, said in (({"300": {"content": "x"}}, "has id 300"), ({"265": {}}, "no content")):
        with pytest.raises(CheckpointError, match=said):
            sentencepiece_entries(path, {"added_tokens_decoder": entry})


def test_a_file_too_large_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    with pytest.raises(CheckpointError, match="cannot be read"):
        sentencepiece_entries(path, {})
    with path.open("wb") as file:
        file.truncate(MAX_MODEL_BYTES + 1)
    with pytest.raises(CheckpointError, match="the limit is"):
        sentencepiece_entries(path, {})


def test_a_folder_without_tokenizer_json(tmp_path: Path) -> None:
    write_hf(tmp_path, {"x": np.zeros((2, 2), np.float32)}, {"eos_token_id": 2, "vocab_size": 265})
    assert open_checkpoint(tmp_path).tokenizer.kind == "none"
    written(tmp_path, model())
    checkpoint = open_checkpoint(tmp_path)
    tokenizer = load_tokenizer(checkpoint.tokenizer, checkpoint.eos_token_ids)
    assert tokenizer.encode("hi", add_special_tokens=True) == [1, 260]
    assert tokenizer.eos_token_ids == (2,) and checkpoint.tokenizer.num_tokens == 265


def test_any_damage_gives_our_errors(tmp_path: Path) -> None:
    whole = model()
    random_source = random.Random(7)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(random_source.randint(1, 8)):
            data[random_source.randrange(len(data))] = random_source.randrange(256)
        path = written(tmp_path, bytes(data[: random_source.randint(0, len(data))]))
        try:
            load_tokenizer(TokenizerData("gguf", gguf=sentencepiece_entries(path, {})))
        except HeadraceError:
            continue
