"""Fuzzes folders of 4 and 8 bits and of NF4:

    python -m tools.fuzz.quantised_folders --seed 1 --seconds 600

An input is a line with a `quantization_config` and a safetensors file with one matrix in the layout
that it states, beside norms. Statement and header are changed as values, numbers, scales and the
JSON of NF4 as bytes, the file is cut short, or the statement of one layout meets the tensors of
another. Opening the folder and decoding all of it either works, with values that are finite where a
matrix is put together of parts, or raises CheckpointError or UnsupportedModelError, which names a
tensor, a key or the file, in bounded time and memory.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.codecs import (
    BYTES,
    F8_E4M3,
    F16,
    F32,
    MXFP4,
    NF4_NUMBERS,
    OF_FOLDERS,
    SIGNED_BYTES,
    WORDS,
    Codec,
)
from headrace.weights.hugging_face.names import SINGLE
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.source import source_of_rows
from tools.fuzz.harness import Target, main
from tools.fuzz.json_values import change_json
from tools.fuzz.mutations import Span, damage
from tools.fuzz.safetensors import MAX_ERROR_CHARACTERS

MODULE = "model.layers.0.self_attn.q_proj"
ROWS, COLUMNS, GROUP = 16, 128, 32
_CONFIG = {
    "model_type": "llama", "hidden_size": COLUMNS, "intermediate_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "vocab_size": 10,
    "rope_theta": 10000.0, "max_position_embeddings": 16, "eos_token_id": [1, 2],
}  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 4, 8, 16, 32, 64, 128, 2**31, 2**63, 10**30, 0.5, "", "x",
    "F32", "F16", "BF16", "I32", "I64", "U8", "F8_E4M3", "gptq", "gptq_v2", "awq", "NVFP4",
    "re:.*q_proj", "*q_proj", [], {}, [16], [16, 128], [128, 16], [4, 16], [0, 64], {"bits": 8},
)  # fmt: skip


class Seed(NamedTuple):
    """A matrix as one program stores it."""

    stated: Mapping[str, Any]
    parts: Mapping[str, tuple[Codec, tuple[int, ...]]]
    """Codec and shape of each tensor, by what follows the module's name."""


def _compressed(format: str, bits: int = 4, **weights: Any) -> dict[str, Any]:
    group: dict[str, Any] = {"targets": ["Linear"], "weights": {"num_bits": bits, **weights}}
    if format == "int-quantized":
        group["input_activations"] = {"num_bits": 8, "type": "int", "dynamic": True}
    return {"quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"],
            "config_groups": {"group_0": group}}  # fmt: skip


_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True, "sym": False}
_OF_GPTQ = {
    "qweight": (WORDS, (COLUMNS // 8, ROWS)),
    "qzeros": (WORDS, (COLUMNS // GROUP, ROWS // 8)),
    "scales": (F16, (COLUMNS // GROUP, ROWS)),
    "g_idx": (WORDS, (COLUMNS,)),
}
_PACKED = (WORDS, (ROWS, COLUMNS // 8))
_PAIRS, _BLOCKS = (BYTES, (ROWS, COLUMNS // 2)), (F8_E4M3, (ROWS, COLUMNS // 16))
_SIGNED = (SIGNED_BYTES, (ROWS, COLUMNS))
_NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
_STATE = json.dumps(
    {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [ROWS, COLUMNS],
     "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5}
).encode()  # fmt: skip
_OF_NF4 = {
    "weight": (BYTES, (ROWS * COLUMNS // 2, 1)),
    "weight.quant_map": (F32, (16,)),
    "weight.quant_state.bitsandbytes__nf4": (BYTES, (len(_STATE),)),
}
SEEDS = (
    Seed(_GPTQ, _OF_GPTQ),
    Seed(_GPTQ | {"checkpoint_format": "gptq_v2", "sym": True}, _OF_GPTQ),
    Seed(
        {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True},
        {"qweight": (WORDS, (COLUMNS, ROWS // 8)),
         "qzeros": (WORDS, (COLUMNS // GROUP, ROWS // 8)),
         "scales": (F16, (COLUMNS // GROUP, ROWS))},
    ),
    Seed(
        _compressed("pack-quantized", type="int", strategy="group", group_size=GROUP,
                    symmetric=False, actorder="group"),
        {"weight_packed": _PACKED, "weight_scale": (F16, (ROWS, COLUMNS // GROUP)),
         "weight_zero_point": (WORDS, (ROWS // 8, COLUMNS // GROUP)),
         "weight_g_idx": (WORDS, (COLUMNS,))},
    ),
    Seed(
        _compressed("pack-quantized", type="int", strategy="channel"),
        {"weight_packed": _PACKED, "weight_scale": (F16, (ROWS, 1))},
    ),
    Seed(
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        {"weight": _PAIRS, "weight_scale": _BLOCKS, "weight_scale_2": (F32, (1,)),
         "input_scale": (F32, (1,))},
    ),
    Seed(
        _compressed("nvfp4-pack-quantized", type="float", strategy="tensor_group", group_size=16),
        {"weight_packed": _PAIRS, "weight_scale": _BLOCKS, "weight_global_scale": (F32, (1,))},
    ),
    Seed(
        _compressed("mxfp4-pack-quantized", type="float", strategy="group", group_size=32,
                    scale_dtype="torch.uint8"),
        {"weight_packed": _PAIRS, "weight_scale": (BYTES, (ROWS, COLUMNS // 32))},
    ),
    Seed(
        _compressed("int-quantized", 8, type="int", strategy="channel", symmetric=False),
        {"weight": _SIGNED, "weight_scale": (F32, (ROWS, 1)),
         "weight_zero_point": (SIGNED_BYTES, (ROWS, 1))},
    ),
    Seed(
        _compressed("int-quantized", 4, type="int", strategy="group", group_size=GROUP),
        {"weight": _SIGNED, "weight_scale": (F16, (ROWS, COLUMNS // GROUP))},
    ),
    Seed(
        _compressed("int-quantized", 8, type="int", strategy="tensor"),
        {"weight": _SIGNED, "weight_scale": (F32, (1,)), "input_scale": (F32, (1,))},
    ),
    Seed(
        {"quant_method": "blockwise_int8", "weight_block_size": [8, GROUP]},
        {"weight": _SIGNED, "weight_scale_inv": (F32, (ROWS // 8, COLUMNS // GROUP))},
    ),
    Seed({"quant_method": "w8a8_int8"}, {"weight": _SIGNED, "weight_scale": (F32, (ROWS, 1))}),
    Seed(
        _compressed("pack-quantized", 8, type="int", strategy="group", group_size=GROUP,
                    symmetric=False),
        {"weight_packed": (WORDS, (ROWS, COLUMNS // 4)),
         "weight_scale": (F16, (ROWS, COLUMNS // GROUP)),
         "weight_zero_point": (WORDS, (ROWS // 4, COLUMNS // GROUP))},
    ),
    Seed(
        _GPTQ | {"bits": 8, "desc_act": False},
        {"qweight": (WORDS, (COLUMNS // 4, ROWS)),
         "qzeros": (WORDS, (COLUMNS // GROUP, ROWS // 4)),
         "scales": (F16, (COLUMNS // GROUP, ROWS))},
    ),
    Seed(
        {"quant_method": "awq", "bits": 8, "group_size": GROUP, "zero_point": True},
        {"qweight": (WORDS, (COLUMNS, ROWS // 4)),
         "qzeros": (WORDS, (COLUMNS // GROUP, ROWS // 4)),
         "scales": (F16, (COLUMNS // GROUP, ROWS))},
    ),
    Seed(_NF4, {**_OF_NF4, "weight.absmax": (F32, (ROWS * COLUMNS // 64,))}),
    Seed(
        _NF4 | {"bnb_4bit_use_double_quant": True},
        {**_OF_NF4, "weight.absmax": (BYTES, (ROWS * COLUMNS // 64,)),
         "weight.nested_absmax": (F32, (1,)), "weight.nested_quant_map": (F32, (256,))},
    ),
)  # fmt: skip


_NAMED = ("tensor '", "tensor model.", "quantization_config", "config key", SINGLE)
"""Of these one is in every error: a tensor by name, a key of the config, or the file."""


def make_target() -> Target:
    """The target, with a folder of its own."""
    home = tempfile.TemporaryDirectory()
    folder = Path(home.name)

    def attempt(data: bytes) -> str:
        # In a closure, so that the folder lives as long as the target.
        assert home.name
        statement, _, file = data.partition(b"\n")
        (folder / SINGLE).write_bytes(file)
        try:
            stated = json.loads(statement)
        except (ValueError, RecursionError):
            return "no JSON"
        config = _CONFIG | {"quantization_config": stated}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return _try_folder(folder)

    return Target(seeds(folder), mutate, attempt)


def _try_folder(folder: Path) -> str:
    outcome = "nothing put together"
    try:
        for tensor in open_checkpoint(folder).tensors.values():
            values = tensor.to_f32()
            if tensor.codec.name in OF_FOLDERS or tensor.codec is MXFP4:
                outcome = "opened"
                if not np.isfinite(values).all():
                    raise AssertionError(f"{tensor.name} has values that are not finite")
    except (CheckpointError, UnsupportedModelError) as error:
        text = str(error)
        if len(text) > MAX_ERROR_CHARACTERS:
            raise AssertionError(f"an error of {len(text)} characters") from error
        if not any(word in text for word in _NAMED):
            raise AssertionError(f"an error that names nothing: {text}") from error
        return type(error).__name__
    return outcome


def seeds(folder: Path) -> list[bytes]:
    """Every layout whole. folder: where files are made."""
    made = []
    for seed in SEEDS:
        rng = np.random.default_rng(0)
        sources = [
            source_of_rows(_content(name, codec, shape, rng), shape, f"{MODULE}.{name}", codec)
            for name, (codec, shape) in seed.parts.items()
        ]
        norm = np.ones((1, COLUMNS), np.float32).view(np.uint8)
        sources.append(source_of_rows(norm, (COLUMNS,), "model.norm.weight", F32))
        write_safetensors_file(folder / SINGLE, sources)
        statement = json.dumps(dict(seed.stated)).encode()
        made.append(statement + b"\n" + (folder / SINGLE).read_bytes())
    return made


def _content(
    name: str, codec: Codec, shape: tuple[int, ...], rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Bytes of one tensor that its format allows, in rows of the last dimension."""
    rows = int(np.prod(shape[:-1]))
    if name.endswith("g_idx"):
        return rng.permutation(np.arange(COLUMNS, dtype="<i4") // GROUP).view(np.uint8)[None]
    if name.endswith(".quant_map"):
        return NF4_NUMBERS.view(np.uint8)[None]
    if codec in (F16, F32):
        return codec.encode(rng.uniform(0.01, 1, (rows, shape[-1])).astype(np.float32))
    if "quant_state" in name:
        return np.frombuffer(_STATE, np.uint8)[None]
    if name.endswith("weight") and codec is SIGNED_BYTES:
        return rng.integers(-8, 8, (rows, shape[-1]), np.int8).view(np.uint8)
    if name.endswith("qzeros"):
        return np.full((rows, 4 * shape[-1]), 0x88, np.uint8)
    most = 0x7F if codec is F8_E4M3 else 0xFE
    return rng.integers(1, most, (rows, codec.row_bytes(shape[-1])), np.uint8)


def mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """A seed with another statement, header, numbers or scales."""
    statement, _, file = rng.choice(seeds).partition(b"\n")
    end = 8 + int.from_bytes(file[:8], "little")
    header, content = file[8:end], file[end:]
    kind = rng.random()
    if kind < 0.3:
        statement = change_json(statement, rng, _VALUES)
    elif kind < 0.6:
        header = change_json(header, rng, _VALUES)
    elif kind < 0.7:
        statement = rng.choice(seeds).partition(b"\n")[0]
    if kind > 0.95:
        return b"\n".join((statement, file[: rng.randrange(len(file))]))
    if kind > 0.5:
        # In place, as the header has the sizes.
        spans = [Span(at, at + 4, True) for at in range(0, len(content) - 3, 4)]
        damaged = damage(content, spans, [seed.partition(b"\n")[2] for seed in seeds], rng)
        content = damaged[: len(content)].ljust(len(content), b"\x7f")
    return statement + b"\n" + len(header).to_bytes(8, "little") + header + content


if __name__ == "__main__":
    main(make_target, __doc__)
