"""Tiny folders of FP8 in every layout that is published, and the same values as plain numbers.

Quantised here by the formats' own definitions: a scale is the largest magnitude of what shares it
divided by 448, the number is the nearest that ml_dtypes gives.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from headrace.weights.codecs import BF16, F8_E4M3, F32, Codec
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.source import TensorSource, source_of_array, source_of_rows
from tests.tiny import write_tiny_hf

Floats = npt.NDArray[np.float32]
LARGEST = np.float32(448)


class Layout(NamedTuple):
    """A way to write FP8: what config.json states and what stands beside a weight."""

    stated: dict[str, Any]
    ending: str
    block: tuple[int, int]
    """Rows and columns that share a scale; 0 for all of them."""
    shape: str = "blocks"
    """Of the tensor of scales: "blocks", "spread", "scalar", "one", "rows" or "column"."""
    codec: Codec = F32

    @property
    def held(self) -> str:
        """The kind that matrices are held in, and what shares a scale."""
        scope = "tensor" if self.block[0] == 0 else "channel" if self.block[0] == 1 else "block"
        return f"{F8_E4M3.name} {scope}"


def compressed(strategy: str, **weights: Any) -> dict[str, Any]:
    group = {
        "targets": ["Linear"], "input_activations": {"num_bits": 8, "type": "float",
        "dynamic": True, "strategy": "token", "symmetric": True}, "output_activations": None,
        "weights": {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True,
                    "dynamic": False, "observer": "minmax", "observer_kwargs": {}, **weights},
    }  # fmt: skip
    return {
        "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
        "quantization_status": "compressed", "kv_cache_scheme": None, "config_groups": {"a": group},
    }  # fmt: skip


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
LAYOUTS: dict[str, Layout] = {
    "block": Layout({**FP8, "weight_block_size": [128, 128]}, "weight_scale_inv", (128, 128)),
    "block in BF16": Layout(
        {**FP8, "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}, "weight_scale_inv",
        (128, 128), codec=BF16,
    ),
    "AutoFP8": Layout(
        {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]},
        "weight_scale", (0, 0), "scalar",
    ),
    "modelopt": Layout(
        {"quant_algo": "FP8", "kv_cache_scheme": "FP8", "ignore": ["lm_head"],
         "producer": {"name": "modelopt"}}, "weight_scale", (0, 0), "scalar",
    ),
    "modelopt block": Layout(
        {"quant_method": "modelopt", "quant_algo": "fp8_pb_wo", "ignore": ["lm_head"]},
        "weight_scale", (128, 128), "spread",
    ),
    "compressed tensor": Layout(compressed("tensor"), "weight_scale", (0, 0), "one", BF16),
    "compressed channel": Layout(compressed("channel"), "weight_scale", (1, 0), "column", BF16),
    "compressed block": Layout(
        compressed("block", block_structure=[128, 128]), "weight_scale", (128, 128)
    ),
    "fbgemm": Layout({"quant_method": "fbgemm_fp8"}, "weight_scale", (1, 0), "rows"),
}  # fmt: skip


class Folders(NamedTuple):
    """A folder of FP8 and one of the same values."""

    fp8: Path
    plain: Path
    values: dict[str, Floats]
    """What each matrix of FP8 stands for, by name."""


def is_quantised(name: str, values: Floats) -> bool:
    """Whether makers store a tensor in FP8: matrices of layers, and stacks of them, but routers."""
    small = ("norm.weight", "gate.weight", "router.weight")
    return ".layers." in name and values.ndim >= 2 and not name.endswith(small)


def quantise(
    values: Floats, layout: Layout, *, powers: bool
) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Codes uint8[rows, columns] and scales float32[row blocks, column blocks].

    powers: scales rounded up to powers of two.
    """
    rows, columns = values.shape
    height, width = layout.block[0] or rows, layout.block[1] or columns
    tops = np.arange(0, rows, height), np.arange(0, columns, width)
    peaks = np.maximum.reduceat(np.maximum.reduceat(np.abs(values), tops[0], 0), tops[1], 1)
    scales = (np.maximum(peaks, np.float32(1e-6)) / LARGEST).astype(np.float32)
    if powers:
        scales = np.exp2(np.ceil(np.log2(scales))).astype(np.float32)
    scales = layout.codec.decode(layout.codec.encode(scales))
    spread = scales[np.arange(rows) // height][:, np.arange(columns) // width]
    codes = np.clip(values / spread, -LARGEST, LARGEST).astype(ml_dtypes.float8_e4m3fn)
    return codes.view(np.uint8), scales


def scale_source(name: str, scales: Floats, layout: Layout, rows: tuple[int, ...]) -> TensorSource:
    """The tensor of scales as the layout has it. rows: of the weights, experts in front."""
    shape = {
        "blocks": scales.shape, "spread": (len(scales), 1, scales.shape[1], 1), "scalar": (),
        "one": (1,), "rows": rows, "column": (*rows, 1),
    }[layout.shape]  # fmt: skip
    return source_of_array(scales.reshape(shape), name, layout.codec)


def write_fp8(
    folder: Path,
    family: str,
    layout: Layout,
    *,
    powers: bool = False,
    plain: Codec = F32,
    **options: Any,
) -> Folders:
    """A tiny model of a family in FP8, and one with the same values in the kind `plain`."""
    path = write_tiny_hf(folder / "plain", family, **options)
    stored = read_safetensors(path / "model.safetensors").tensors
    packed, same, values = [], [], {}
    for name, tensor in stored.items():
        exact = tensor.to_f32()
        if not is_quantised(name, exact):
            packed.append(source_of_array(exact, name))
            same.append(packed[-1])
            continue
        codes, scales = quantise(exact.reshape(-1, exact.shape[-1]), layout, powers=powers)
        height, width = layout.block[0] or len(codes), layout.block[1] or codes.shape[1]
        spread = scales[np.arange(len(codes)) // height][:, np.arange(codes.shape[1]) // width]
        numbers = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        values[name] = (numbers * spread).reshape(exact.shape)
        packed.append(source_of_rows(codes, exact.shape, name, F8_E4M3))
        # Of a stack that is a parameter of its own, the scales have its name.
        module = name.removesuffix("weight")
        ending = layout.ending if name.endswith(".weight") else layout.ending.removeprefix("weight")
        packed.append(scale_source(f"{module}{ending}", scales, layout, exact.shape[:-1]))
        if layout.shape == "scalar":
            packed.append(source_of_array(np.array(0.5, np.float32), f"{module}input_scale"))
        same.append(source_of_array(values[name], name, plain))
    write_safetensors_file(path / "model.safetensors", same)
    quantised = folder / "fp8"
    quantised.mkdir(parents=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (quantised / file).write_bytes((path / file).read_bytes())
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    stated = {**config, "quantization_config": layout.stated}
    (quantised / "config.json").write_text(json.dumps(stated), encoding="utf-8")
    write_safetensors_file(quantised / "model.safetensors", packed)
    return Folders(quantised, path, values)
