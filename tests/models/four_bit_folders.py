"""Tiny folders of 4 bits in every layout that is read, and the values they stand for.

Written here from the formats' own descriptions, a number at a time where it costs nothing, with
nothing of the readers: numbers are chosen, packed as the format has it, and dequantised by its
formula in float32.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import ml_dtypes
import numpy as np
import numpy.typing as npt

from headrace.weights.codecs import BF16, BYTES, F8_E4M3, F16, Codec
from headrace.weights.tensors.source import TensorSource, source_of_array, source_of_rows
from tests.models.packed_folders import Floats, Folders, Ints, raw, write_packed

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
AWQ_ROWS = (0, 2, 4, 6, 1, 3, 5, 7)


class Layout(NamedTuple):
    """A way to write 4 bits: what config.json states, and how numbers and scales lie."""

    stated: dict[str, Any]
    kind: str
    """"gptq", "awq", "compressed", "modelopt", "nvfp4" or "mxfp4"."""
    columns: int
    """Of a group; 0 for a whole row."""
    symmetric: bool = True
    codec: Codec = F16
    """Of the scales."""
    less: int = 0
    """What stored zero points lack."""
    ordered: bool = False
    """Whether groups are of columns that do not lie together (act-order)."""

    @property
    def held(self) -> str:
        """What the matrices are held in, without the size of a block."""
        if self.kind in ("modelopt", "nvfp4"):
            return "E2M1"
        return "MXFP4" if self.kind == "mxfp4" else "I4" if self.symmetric else "U4"


def compressed(format: str, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "input_activations": None, "output_activations": None,
             "weights": {"num_bits": 4, "symmetric": True, "dynamic": False,
                         **weights}}  # fmt: skip
    return {"quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"],
            "quantization_status": "compressed", "config_groups": {"group_0": group}}  # fmt: skip


def gptq(**stated: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True,
            "checkpoint_format": "gptq", "lm_head": False, **stated}  # fmt: skip


LAYOUTS: dict[str, Layout] = {
    "W4A16": Layout(
        compressed("pack-quantized", type="int", strategy="group", group_size=32),
        "compressed", 32, codec=BF16,
    ),
    "W4A16 asymmetric": Layout(
        compressed("pack-quantized", type="int", strategy="group", group_size=64, symmetric=False),
        "compressed", 64, symmetric=False, codec=BF16,
    ),
    "W4A16 rows": Layout(
        compressed("pack-quantized", type="int", strategy="channel"), "compressed", 0, codec=BF16
    ),
    "GPTQ": Layout(gptq(), "gptq", 32, less=1),
    "GPTQ asymmetric": Layout(gptq(sym=False), "gptq", 32, symmetric=False, less=1),
    "GPTQ in an order": Layout(
        gptq(sym=False, desc_act=True), "gptq", 32, symmetric=False, less=1, ordered=True
    ),
    "W4A16 in an order": Layout(
        compressed("pack-quantized", type="int", strategy="group", group_size=64,
                   actorder="group"), "compressed", 64, codec=BF16, ordered=True,
    ),
    "GPTQ v2": Layout(
        gptq(sym=False, checkpoint_format="gptq_v2"), "gptq", 32, symmetric=False
    ),
    "AutoRound": Layout(
        {"quant_method": "auto-round", "bits": 4, "group_size": 64, "sym": True,
         "packing_format": "auto_round:auto_gptq"}, "gptq", 64, less=1,
    ),
    "AWQ": Layout(
        {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True,
         "version": "gemm"}, "awq", 64, symmetric=False,
    ),
    "NVFP4 of modelopt": Layout(
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, "modelopt", 16
    ),
    "NVFP4 of compressed-tensors": Layout(
        compressed("nvfp4-pack-quantized", type="float", strategy="tensor_group", group_size=16,
                   scale_dtype="torch.float8_e4m3fn"), "nvfp4", 16,
    ),
    "MXFP4 of compressed-tensors": Layout(
        compressed("mxfp4-pack-quantized", type="float", strategy="group", group_size=32,
                   scale_dtype="torch.uint8"), "mxfp4", 32,
    ),
}  # fmt: skip


def words(numbers: Ints, less: int = 0) -> npt.NDArray[np.uint8]:
    """Bytes of words of the numbers [..., n, 8] of 4 bits, the first in the lowest bits; each less
    by one of each number where `less` is 1, as GPTQModel saves zero points.
    """
    total = np.zeros(numbers.shape[:-1], np.int64)
    for place in range(8):
        total += numbers[..., place] << (4 * place)
    total = (total - less * 0x11111111) % (1 << 32)
    return np.ascontiguousarray(total.astype("<u4")).view(np.uint8).reshape(len(total), -1)


def columns_of_groups(module: str, columns: int, layout: Layout) -> Ints:
    """The columns, those of the first group first; the same for projections that share inputs."""
    if not layout.ordered:
        return np.arange(columns)
    parent, _, name = module.rstrip(".").rpartition(".")
    shared = name if name in ("o_proj", "down_proj") else "inputs"
    return np.random.default_rng(crc32(f"{parent}.{shared}".encode())).permutation(columns)


def whole_numbers(
    module: str, values: Floats, rng: np.random.Generator, layout: Layout
) -> tuple[list[TensorSource], Floats]:
    """Tensors of a matrix in integers, and the values by the format's formula."""
    rows, columns = values.shape
    size = layout.columns or columns
    lie = columns_of_groups(module, columns, layout)
    values = values[:, lie]
    groups = columns // size
    peaks = np.abs(values.reshape(rows, groups, size)).max(axis=2)
    scales = layout.codec.decode(layout.codec.encode((peaks / np.float32(7)).astype(np.float32)))
    zeros = np.full((rows, groups), 8, np.int64)
    if not layout.symmetric:
        # 0 borrows from its neighbours in a word where zero points are stored less one.
        zeros = rng.integers(3, 16, (rows, groups))
        zeros[0, 0], zeros[3, 0], zeros[4, 0], zeros[9, -1] = 15, 0, 0, 0
    spread, middle = scales.repeat(size, axis=1), zeros.repeat(size, axis=1)
    numbers = np.clip(np.rint(values / spread) + middle, 0, 15).astype(np.int64)
    exact = (numbers - middle).astype(np.float32) * spread
    back = np.argsort(lie)
    numbers, exact = numbers[:, back], exact[:, back]
    of_columns = (back // size).astype("<i4").view(np.uint8)[None]
    if layout.kind == "compressed":
        packed = words(numbers.reshape(rows, -1, 8))
        tensors = [
            raw(f"{module}weight_packed", packed, (rows, columns // 8), "I32"),
            source_of_array(scales, f"{module}weight_scale", layout.codec),
            raw(f"{module}weight_shape",
                np.array([[rows, columns]], "<i8").view(np.uint8), (2,), "I64"),
        ]  # fmt: skip
        if not layout.symmetric:
            padded = np.zeros((-(-rows // 8) * 8, groups), np.int64)
            padded[:rows] = zeros
            across = padded.reshape(-1, 8, groups).swapaxes(1, 2)
            shape = (len(across), groups)
            tensors.append(raw(f"{module}weight_zero_point", words(across), shape, "I32"))
        if layout.ordered:
            tensors.append(raw(f"{module}weight_g_idx", of_columns, (columns,), "I32"))
        return tensors, exact
    if layout.kind == "gptq":
        packed = words(numbers.T.reshape(columns // 8, 8, rows).swapaxes(1, 2))
        shape = (columns // 8, rows)
        of_zeros = words(zeros.T.reshape(groups, rows // 8, 8), layout.less)
        more = [raw(f"{module}g_idx", of_columns, (columns,), "I32")]
    else:
        packed = words(numbers.T.reshape(columns, rows // 8, 8)[:, :, AWQ_ROWS])
        shape = (columns, rows // 8)
        of_zeros = words(zeros.T.reshape(groups, rows // 8, 8)[:, :, AWQ_ROWS])
        more = []
    return [
        raw(f"{module}qweight", packed, shape, "I32"),
        raw(f"{module}qzeros", of_zeros, (groups, rows // 8), "I32"),
        source_of_array(np.ascontiguousarray(scales.T), f"{module}scales", layout.codec),
        *more,
    ], exact


def small_floats(
    module: str, values: Floats, rng: np.random.Generator, layout: Layout
) -> tuple[list[TensorSource], Floats]:
    """The same of a matrix in E2M1."""
    rows, columns = values.shape
    groups = columns // layout.columns
    peaks = np.abs(values.reshape(rows, groups, -1)).max(axis=2)
    whole = np.float32(rng.uniform(0.5, 2) / 448)
    if layout.kind == "mxfp4":
        exponents = np.clip(np.ceil(np.log2(peaks / 6)) + 127, 1, 254).astype(np.uint8)
        scales = np.exp2(exponents.astype(np.float32) - 127).astype(np.float32)
    else:
        codes = np.maximum(peaks / 6 / whole, 2.0**-9).astype(ml_dtypes.float8_e4m3fn)
        given = np.float32(1) / whole
        factor = np.float32(1) / given if layout.kind == "nvfp4" else whole
        scales = codes.astype(np.float32) * factor
    spread = scales.repeat(layout.columns, axis=1)
    table = np.array([*E2M1, *(-number for number in E2M1)], np.float32)
    numbers = np.abs(values[:, :, None] / spread[:, :, None] - table).argmin(axis=2)
    exact = table[numbers] * spread
    pairs = (numbers[:, ::2] | numbers[:, 1::2] << 4).astype(np.uint8)
    name = "weight" if layout.kind == "modelopt" else "weight_packed"
    tensors = [source_of_rows(pairs, pairs.shape, f"{module}{name}", BYTES)]
    if layout.kind == "mxfp4":
        tensors.append(source_of_rows(exponents, scales.shape, f"{module}weight_scale", BYTES))
        return tensors, exact
    of_groups = codes.view(np.uint8)
    tensors.append(source_of_rows(of_groups, scales.shape, f"{module}weight_scale", F8_E4M3))
    if layout.kind == "modelopt":
        tensors.append(source_of_array(np.array(whole, np.float32), f"{module}weight_scale_2"))
        tensors.append(source_of_array(np.array(0.1, np.float32), f"{module}input_scale"))
    else:
        tensors.append(source_of_array(given.reshape(1), f"{module}weight_global_scale"))
        tensors.append(source_of_array(np.ones(1, np.float32), f"{module}input_global_scale"))
    return tensors, exact


def write_four_bits(
    folder: Path, family: str, layout: Layout, *, single: bool = False, **options: Any
) -> Folders:
    """A tiny model of a family in 4 bits, and one with the same values in F32; as write_packed."""
    whole = layout.kind in ("compressed", "gptq", "awq")
    make = partial(whole_numbers if whole else small_floats, layout=layout)
    return write_packed(folder, family, layout.stated, make, single=single, **options)
