"""Tiny folders of 8 bits and of NF4 in every layout that is read, and the values they stand for.

Written here from the formats' own descriptions with nothing of the readers: numbers are chosen,
packed as the format has it, and dequantised by its formula in float32.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.weights.codecs import BF16, BYTES, F16, F32, SIGNED_BYTES, Codec
from headrace.weights.tensors.source import TensorSource, source_of_array, source_of_rows
from tests.models.four_bit_folders import words as words_of_four
from tests.models.packed_folders import Floats, Folders, Ints, raw, write_packed

INT8_INPUTS = {"num_bits": 8, "type": "int", "strategy": "token", "symmetric": True,
               "dynamic": True, "observer": None}  # fmt: skip
TALL = 48
"""Rows of a block of blockwise_int8."""


class Layout(NamedTuple):
    """A way to write 8 bits: what config.json states, and how numbers and scales lie."""

    stated: dict[str, Any]
    kind: str
    """"plain", "blocks", "compressed", "gptq", "awq" or "nf4"."""
    columns: int = 0
    """Of a group; 0 for a whole row."""
    symmetric: bool = True
    codec: Codec = F16
    """Of the scales."""
    less: int = 0
    """What stored zero points lack."""
    bits: int = 8
    one: bool = False
    """Whether a matrix has one scale; of NF4 whether scales are nested."""
    held: str = "I8"
    """What the matrices are held in, without the size of a block."""


def compressed(format: str, inputs: dict[str, Any] | None = None, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "input_activations": inputs, "output_activations": None,
             "weights": {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": False,
                         "observer": "minmax", "observer_kwargs": {}, **weights}}  # fmt: skip
    return {"quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"],
            "quantization_status": "compressed", "kv_cache_scheme": None,
            "global_compression_ratio": 1.24, "config_groups": {"group_0": group}}  # fmt: skip


def gptq(**stated: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": 8, "group_size": 32, "desc_act": False, "sym": True,
            "checkpoint_format": "gptq", "lm_head": False, **stated}  # fmt: skip


def nf4(**stated: Any) -> dict[str, Any]:
    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "_load_in_4bit": True,
            "_load_in_8bit": False, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8",
            "bnb_4bit_use_double_quant": True, "llm_int8_threshold": 6.0,
            "llm_int8_enable_fp32_cpu_offload": False, "llm_int8_has_fp16_weight": False,
            "llm_int8_skip_modules": None, **stated}  # fmt: skip


STATIC = {**INT8_INPUTS, "strategy": "tensor", "dynamic": False}
LAYOUTS: dict[str, Layout] = {
    "W8A8": Layout(
        compressed("int-quantized", INT8_INPUTS, strategy="channel"), "plain", codec=BF16,
        held="W8A8",
    ),
    "W8A8 of one scale, static": Layout(
        compressed("int-quantized", STATIC, strategy="tensor"), "plain", codec=F32, one=True,
        held="W8A8",
    ),
    "W8A8 asymmetric": Layout(
        compressed("int-quantized", INT8_INPUTS, strategy="channel", symmetric=False), "plain",
        symmetric=False, codec=BF16, held="U8",
    ),
    "W8A8, activations asymmetric": Layout(
        compressed("int-quantized", {**INT8_INPUTS, "symmetric": False}, strategy="channel"),
        "plain", codec=BF16,
    ),
    "w8a8_int8": Layout(
        {"quant_method": "w8a8_int8", "is_dynamic": True, "ignore": ["lm_head"]}, "plain",
        codec=F32, held="W8A8",
    ),
    "blockwise_int8": Layout(
        {"quant_method": "blockwise_int8", "activation_scheme": "dynamic",
         "weight_block_size": [TALL, 32], "ignored_layers": ["lm_head"]}, "blocks", 32, codec=F32,
    ),
    "W8A16": Layout(
        compressed("pack-quantized", strategy="group", group_size=32), "compressed", 32, codec=BF16
    ),
    "W8A16 asymmetric": Layout(
        compressed("pack-quantized", strategy="group", group_size=64, symmetric=False),
        "compressed", 64, symmetric=False, codec=BF16, held="U8",
    ),
    "W8A16 rows": Layout(
        compressed("pack-quantized", strategy="channel"), "compressed", codec=BF16
    ),
    "W8A16 in bytes": Layout(
        compressed("int-quantized", strategy="group", group_size=64), "plain", 64, codec=BF16
    ),
    "W4A8": Layout(
        compressed("int-quantized", INT8_INPUTS, num_bits=4, strategy="group", group_size=32),
        "plain", 32, codec=BF16, bits=4, held="W4A8",
    ),
    "W4A8 packed": Layout(
        compressed("pack-quantized", INT8_INPUTS, num_bits=4, strategy="channel"), "compressed",
        codec=BF16, bits=4, held="W4A8",
    ),
    "W4AFP8": Layout(
        compressed("pack-quantized", {**INT8_INPUTS, "type": "float"}, num_bits=4,
                   strategy="group", group_size=64), "compressed", 64, codec=BF16, bits=4,
        held="I4",
    ),
    "GPTQ": Layout(gptq(), "gptq", 32, less=1),
    "GPTQ rows": Layout(gptq(group_size=-1), "gptq", 0, less=1),
    "GPTQ asymmetric": Layout(
        gptq(sym=False), "gptq", 32, symmetric=False, less=1, held="U8"
    ),
    "GPTQ v2": Layout(
        gptq(sym=False, checkpoint_format="gptq_v2"), "gptq", 32, symmetric=False, held="U8"
    ),
    "AutoRound": Layout(
        {"quant_method": "auto-round", "bits": 8, "group_size": 64, "sym": True,
         "packing_format": "auto_round:auto_gptq"}, "gptq", 64, less=1,
    ),
    "AWQ": Layout(
        {"quant_method": "awq", "bits": 8, "group_size": 64, "zero_point": True,
         "version": "gemm"}, "awq", 64, symmetric=False, held="U8",
    ),
    "NF4": Layout(nf4(bnb_4bit_use_double_quant=False), "nf4", 64, held="NF4"),
    "NF4 nested": Layout(nf4(), "nf4", 64, one=True, held="NF4"),
}  # fmt: skip


def words(numbers: Ints) -> npt.NDArray[np.uint8]:
    """Bytes of words of the numbers [..., n, 4] of 8 bits, the first in the lowest bits."""
    total = np.zeros(numbers.shape[:-1], np.int64)
    for place in range(4):
        total += numbers[..., place] << (8 * place)
    return np.ascontiguousarray(total.astype("<u4")).view(np.uint8).reshape(len(total), -1)


def signed(name: str, numbers: Ints, shape: tuple[int, ...]) -> TensorSource:
    rows = np.ascontiguousarray(numbers.astype(np.int8)).view(np.uint8)
    return source_of_rows(rows.reshape(-1, shape[-1]), shape, name, SIGNED_BYTES)


def scales_of(values: Floats, layout: Layout) -> Floats:
    """float32[rows, groups], as the folder holds them."""
    rows, columns = values.shape
    groups = columns // (layout.columns or columns)
    most = np.float32((1 << layout.bits - 1) - 1)
    peaks = np.abs(values.reshape(rows, groups, -1)).max(axis=2)
    if layout.one:
        peaks = np.broadcast_to(peaks.max(), peaks.shape)
    if layout.kind == "blocks":
        for first in range(0, rows, TALL):
            block = peaks[first : first + TALL]
            block[:] = block.max(axis=0)
    exact = (peaks / most).astype(np.float32)
    return layout.codec.decode(layout.codec.encode(exact))


def whole_numbers(
    module: str, values: Floats, rng: np.random.Generator, layout: Layout
) -> tuple[list[TensorSource], Floats]:
    """Tensors of a matrix in integers, and the values by the format's formula."""
    rows, columns = values.shape
    size, half = layout.columns or columns, 1 << layout.bits - 1
    scales = scales_of(values, layout)
    groups = scales.shape[1]
    zeros = np.zeros((rows, groups), np.int64)
    if not layout.symmetric:
        zeros = rng.integers(-30, 31, (rows, groups))
        zeros[:2, 0] = half - 1, -half
    spread, middle = scales.repeat(size, axis=1), zeros.repeat(size, axis=1)
    numbers = np.clip(np.rint(values / spread) + middle, -half, half - 1).astype(np.int64)
    exact = (numbers - middle).astype(np.float32) * spread
    upward, stored = numbers + half, zeros + half
    if layout.kind == "blocks":
        return [
            signed(f"{module}weight", numbers, (rows, columns)),
            source_of_array(scales[::TALL], f"{module}weight_scale_inv", F32),
        ], exact
    if layout.kind == "plain":
        of_scales = np.ascontiguousarray(scales[:1, 0] if layout.one else scales)
        tensors = [
            signed(f"{module}weight", numbers, (rows, columns)),
            source_of_array(of_scales, f"{module}weight_scale", layout.codec),
        ]
        if not layout.symmetric:
            tensors.append(signed(f"{module}weight_zero_point", zeros, (rows, groups)))
        if layout.one:
            tensors.append(source_of_array(np.ones(1, np.float32), f"{module}input_scale"))
        return tensors, exact
    if layout.kind == "compressed":
        per_word = 32 // layout.bits
        pack = words if layout.bits == 8 else words_of_four
        packed = pack(upward.reshape(rows, -1, per_word))
        tensors = [
            raw(f"{module}weight_packed", packed, (rows, columns // per_word), "I32"),
            source_of_array(scales, f"{module}weight_scale", layout.codec),
            raw(f"{module}weight_shape",
                np.array([[rows, columns]], "<i8").view(np.uint8), (2,), "I64"),
        ]  # fmt: skip
        if not layout.symmetric:
            padded = np.zeros((-(-rows // 4) * 4, groups), np.int64)
            padded[:rows] = stored
            across = padded.reshape(-1, 4, groups).swapaxes(1, 2)
            shape = (len(across), groups)
            tensors.append(raw(f"{module}weight_zero_point", words(across), shape, "I32"))
        return tensors, exact
    if layout.kind == "gptq":
        packed = words(upward.T.reshape(columns // 4, 4, rows).swapaxes(1, 2))
        shape = (columns // 4, rows)
        of_zeros = words(stored.T.reshape(groups, rows // 4, 4)).view("<u4")
        of_zeros = (of_zeros - np.uint32(layout.less * 0x01010101)).view(np.uint8)
        order = np.array([[column // size for column in range(columns)]], "<i4").view(np.uint8)
        more = [raw(f"{module}g_idx", order, (columns,), "I32")]
    else:
        by = (0, 2, 1, 3)
        packed = words(upward.T.reshape(columns, rows // 4, 4)[:, :, by])
        shape = (columns, rows // 4)
        of_zeros = words(stored.T.reshape(groups, rows // 4, 4)[:, :, by])
        more = []
    return [
        raw(f"{module}qweight", packed, shape, "I32"),
        raw(f"{module}qzeros", of_zeros, (groups, rows // 4), "I32"),
        source_of_array(np.ascontiguousarray(scales.T), f"{module}scales", layout.codec),
        *more,
    ], exact


NORMAL = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip


def of_bytes(name: str, values: npt.NDArray[np.uint8]) -> TensorSource:
    return source_of_rows(values.reshape(1, -1), (values.size,), name, BYTES)


def normal_floats(
    module: str, values: Floats, rng: np.random.Generator, layout: Layout
) -> tuple[list[TensorSource], Floats]:
    """The same of a matrix in NF4, its blocks counted through all rows."""
    table = np.array(NORMAL, np.float32)
    flat = values.reshape(-1, 64)
    peaks = np.abs(flat).max(axis=1)
    state: dict[str, Any] = {
        "quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": list(values.shape),
    }  # fmt: skip
    tensors = []
    if layout.one:
        offset = np.float32(peaks.mean())
        dynamic = np.sort(rng.uniform(-1, 1, 256)).astype(np.float32)
        parts = np.split(np.abs(peaks - offset), range(256, len(peaks), 256))
        outer = np.array([part.max() for part in parts], np.float32)
        of = outer[np.arange(len(peaks)) // 256]
        inner = np.abs((peaks - offset)[:, None] / of[:, None] - dynamic).argmin(axis=1)
        scales = dynamic[inner] * of + offset
        state |= {"nested_blocksize": 256, "nested_dtype": "float32"}
        state["nested_offset"] = float(offset)
        tensors += [
            of_bytes(f"{module}weight.absmax", inner.astype(np.uint8)),
            source_of_array(outer, f"{module}weight.nested_absmax"),
            source_of_array(dynamic, f"{module}weight.nested_quant_map"),
        ]
    else:
        scales = peaks.astype(np.float32)
        tensors.append(source_of_array(scales, f"{module}weight.absmax"))
    codes = np.abs(flat[:, :, None] / scales[:, None, None] - table).argmin(axis=2)
    exact = (table[codes] * scales[:, None]).reshape(values.shape)
    pairs = codes.reshape(-1, 2)
    packed = (pairs[:, 0] << 4 | pairs[:, 1]).astype(np.uint8)
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    return [
        source_of_rows(packed[:, None], (len(packed), 1), f"{module}weight", BYTES),
        source_of_array(table, f"{module}weight.quant_map"),
        of_bytes(f"{module}weight.quant_state.bitsandbytes__nf4", text),
        *tensors,
    ], exact


def write_eight_bits(folder: Path, family: str, layout: Layout, **options: Any) -> Folders:
    """A tiny model of a family in 8 bits or NF4, and one with the same values in F32."""
    make = partial(normal_floats if layout.kind == "nf4" else whole_numbers, layout=layout)
    return write_packed(folder, family, layout.stated, make, **options)
