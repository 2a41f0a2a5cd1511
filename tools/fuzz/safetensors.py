"""Fuzzes opening of model folders: `python -m tools.fuzz.safetensors --seed 1 --seconds 600`.

An input is one file of a folder, its first byte saying which: a safetensors file, the index of a
sharded model, or one of the JSON files beside it. The rest of the folder is valid. JSON is changed
as values half of the time and as bytes otherwise. Opening either works or raises CheckpointError or
UnsupportedModelError, in bounded time and memory.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.hugging_face.names import INDEX, SINGLE
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.source import source_of_array
from tools.fuzz.harness import Target, main
from tools.fuzz.json_values import change_json
from tools.fuzz.mutations import Span, damage

# What an input's first byte chooses.
FILES = (
    SINGLE, INDEX, "config.json", "generation_config.json", "tokenizer_config.json",
    "special_tokens_map.json",
)  # fmt: skip
SHARDS = ("a.safetensors", "b.safetensors")
MAX_ERROR_CHARACTERS = 4000
_CONFIG = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "vocab_size": 10,
    "rope_theta": 10000.0, "max_position_embeddings": 16, "eos_token_id": [1, 2],
}  # fmt: skip
_TOKENIZER_CONFIG = {
    "eos_token": {"content": "</s>", "special": True}, "bos_token": "<s>",
    "chat_template": [{"name": "default", "template": "{{ messages }}"}],
}  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 4, 8, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308,
    "", "F32", "BF16", "I64", "x" * 5000, "../x", "/etc/hostname", ".", "a.safetensors", "\ud800",
    [], {}, [0], [[]], [0, 4], [4, 0], [1, 2, 3], ["a"], {"a": {}}, {"a": [1]}, [1] * 20,
)  # fmt: skip


def make_target() -> Target:
    """The target, with folders of its own: one model in one file, one in shards."""
    home = tempfile.TemporaryDirectory()
    whole, sharded = Path(home.name) / "whole", Path(home.name) / "sharded"
    found = _write_folders(whole, sharded)

    def attempt(data: bytes) -> str:
        # In a closure, so that the folders live as long as the target.
        assert home.name
        name = FILES[data[0] % len(FILES)] if data else SINGLE
        return _try_file((sharded if name == INDEX else whole) / name, data[1:])

    return Target(found, _mutate, attempt)


def _try_file(path: Path, content: bytes) -> str:
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(content)
    try:
        return try_folder(path.parent)
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)


def try_folder(folder: Path) -> str:
    """Open `folder`, look at everything in it, and say how it ended."""
    try:
        checkpoint = open_checkpoint(folder)
        for tensor in checkpoint.tensors.values():
            tensor.to_f32()
    except (CheckpointError, UnsupportedModelError) as error:
        if len(str(error)) > MAX_ERROR_CHARACTERS:
            raise AssertionError(f"an error of {len(str(error))} characters") from error
        return type(error).__name__
    return "opened"


def _write_folders(whole: Path, sharded: Path) -> list[bytes]:
    rng = np.random.default_rng(0)
    shapes = {
        "model.embed_tokens.weight": (10, 8),
        "model.norm.weight": (8,),
        "scalar": (),
        "e": (0, 3),
    }
    tensors = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    sources = [source_of_array(values, name) for name, values in tensors.items()]
    for folder in (whole, sharded):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    for name in FILES[3:]:
        (whole / name).write_text(json.dumps(_TOKENIZER_CONFIG), encoding="utf-8")
    (whole / FILES[3]).write_text(json.dumps({"eos_token_id": 1}), encoding="utf-8")
    write_safetensors_file(whole / SINGLE, sources, {"format": "pt"})
    for shard, part in zip(SHARDS, (sources[:2], sources[2:]), strict=True):
        write_safetensors_file(sharded / shard, part)
    weight_map = {source.name: SHARDS[index // 2] for index, source in enumerate(sources)}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (sharded / INDEX).write_text(json.dumps(index), encoding="utf-8")
    shutil.copy(whole / FILES[3], sharded / FILES[3])
    contents = {name: (sharded if name == INDEX else whole) / name for name in FILES}
    return [bytes([at]) + contents[name].read_bytes() for at, name in enumerate(FILES)]


def _mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    # Half of the inputs are safetensors files, whose header has the most rules.
    data = seeds[0] if rng.random() < 0.5 else rng.choice(seeds)
    if not data:
        return data
    which, content = data[:1], data[1:]
    prefix, text, rest = _parts(which, content)
    if rng.random() < 0.5:
        text = change_json(text, rng, _VALUES)
        if prefix:
            prefix = len(text).to_bytes(8, "little")
    content = prefix + text + rest
    if rng.random() < 0.5:
        others = [seed[1:] for seed in seeds]
        content = damage(content, _spans(content, bool(prefix)), others, rng)
    return which + content


def _parts(which: bytes, content: bytes) -> tuple[bytes, bytes, bytes]:
    """The length before the JSON, the JSON, and the data after it."""
    if which[0] % len(FILES):
        return b"", content, b""
    end = 8 + int.from_bytes(content[:8], "little")
    return content[:8], content[8:end], content[end:]


def _spans(content: bytes, has_length: bool) -> list[Span]:
    """The length, and runs of JSON between its punctuation."""
    spans = [Span(0, 8, True)] if has_length else []
    start = 8 if has_length else 0
    end = min(len(content), start + 4000)
    for at in range(start, end):
        if content[at] in b'{}[],:"':
            spans += [Span(start, at, False), Span(at, at + 1, False)]
            start = at + 1
    return spans or [Span(0, len(content), False)]


if __name__ == "__main__":
    main(make_target, __doc__)
