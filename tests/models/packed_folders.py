"""What tests of folders of 4 and 8 bits share: tiny folders of any layout beside the same values in
F32, folders changed afterwards, and tensors of raw words.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.codecs import F32, RAW
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.source import (
    TensorSource,
    source_of_array,
    source_of_rows,
    source_of_tensor,
)
from tests.models.fp8_folders import is_quantised
from tests.tiny import write_tiny_hf

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

Quantise = Callable[[str, Floats, np.random.Generator], tuple[list[TensorSource], Floats]]
"""Of a module ("model.layers.0.mlp.up_proj.") and its weights: its tensors in a layout, and the
values that they stand for."""

WIDE = {"hidden": 192, "intermediate": 320, "layers": 2}
"""Rows of whole groups of 64, and of no whole 128."""
EXPERTS: dict[str, dict[str, int]] = {
    "qwen3_moe": {"moe_intermediate_size": 64},
    "deepseek_v3": {"moe_intermediate_size": 64, "q_lora_rank": 64},
    "minimax_m2": {"intermediate": 64},
    "glm4_moe": {"moe_intermediate_size": 64},
}
"""Families with experts, of widths that are whole blocks."""


class Folders(NamedTuple):
    """A folder in few bits and one of the same values."""

    small: Path
    plain: Path
    values: dict[str, Floats]
    """What each matrix of few bits stands for, by name."""


def raw(name: str, rows: npt.NDArray[np.uint8], shape: tuple[int, ...], dtype: str) -> TensorSource:
    return source_of_rows(rows, shape, name, RAW[dtype])


def write_packed(
    folder: Path,
    family: str,
    stated: dict[str, Any],
    quantise: Quantise,
    *,
    single: bool = False,
    **options: Any,
) -> Folders:
    """A tiny model of a family in a layout, and one with the same values in F32.

    stated: the quantization_config. single: whether experts that the family has as stacks are
    written apart, as programs that make few bits do.
    """
    path = write_tiny_hf(folder / "plain", family, **options)
    packed, same, values = list[TensorSource](), list[TensorSource](), dict[str, Floats]()
    for name, tensors, exact in _written(path, quantise, single=single):
        packed += tensors
        if exact is None:
            same += tensors
        else:
            values[name] = exact
            same.append(source_of_array(exact, name, F32))
    write_safetensors_file(path / "model.safetensors", same)
    small = folder / "small"
    small.mkdir(parents=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (small / file).write_bytes((path / file).read_bytes())
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = stated
    (small / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_safetensors_file(small / "model.safetensors", packed)
    return Folders(small, path, values)


def _written(
    plain: Path, quantise: Quantise, *, single: bool
) -> Iterator[tuple[str, list[TensorSource], Floats | None]]:
    rng = np.random.default_rng(0)
    stored = open_checkpoint(plain) if single else read_safetensors(plain / "model.safetensors")
    for name, tensor in stored.tensors.items():
        exact = tensor.to_f32()
        if not is_quantised(name, exact) or not name.endswith(".weight"):
            yield name, [source_of_array(exact, name)], None
        else:
            yield name, *quantise(name.removesuffix("weight"), exact, rng)


def changed(made: Folders, change: dict[str, TensorSource | None], **stated: object) -> Path:
    """The folder with tensors that are others, or missing, or a config that says otherwise."""
    file = made.small / "model.safetensors"
    sources: dict[str, TensorSource | None] = {
        name: source_of_tensor(tensor, name, tensor.codec)
        for name, tensor in read_safetensors(file, raw=RAW).tensors.items()
    }
    sources |= change
    write_safetensors_file(file, [source for source in sources.values() if source is not None])
    path = made.small / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["quantization_config"] |= stated
    path.write_text(json.dumps(config), encoding="utf-8")
    return made.small


def check_changed_headers(made: Folders, rng: random.Random) -> None:
    """Shapes and dtypes of some tensor, and tensors in each other's place: never another error
    than ours, which names the folder or a tensor.
    """
    path = made.small / "model.safetensors"
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    for _ in range(25):
        header = json.loads(whole[8:end])
        header.pop("__metadata__", None)
        name_of, other = rng.sample([*header], 2)
        entry, shape = header[name_of], header[name_of]["shape"]
        size = int(np.prod(shape))
        match rng.randrange(4):
            case 0:
                entry["shape"] = rng.choice(
                    [[size], [1, size], [size, 1], [1, *shape], shape[::-1]]
                )
            case 1:
                entry["dtype"] = rng.choice(["F32", "F16", "BF16", "I32", "U8", "I8", "F8_E4M3"])
            case 2:
                header[name_of], header[other] = header[other], header[name_of]
            case _:
                header[f"{name_of}_2"] = header.pop(name_of)
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + whole[end:])
        try:
            for tensor in open_checkpoint(made.small).tensors.values():
                tensor.to_f32()
        except (CheckpointError, UnsupportedModelError) as error:
            assert str(path.parent) in str(error) or "tensor " in str(error)
