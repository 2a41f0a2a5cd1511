"""Folders of 4 bits: matrices put together with the scales and zero points that stand beside them.

    NAME.qweight            I32: gptq [columns / 8, rows], awq [columns, rows / 8]
      .scales               F16, BF16 or F32 [groups, rows]
      .qzeros               I32 [groups, rows / 8]; gptq stores them less one, gptq_v2 as they are
      .g_idx                I32 [columns], the group of each: as many columns of each group
    NAME.weight_packed      I32 [rows, columns / 8] of compressed-tensors, or U8 [rows, columns / 2]
      .weight_scale         [rows, groups]; F8_E4M3 of NVFP4, U8 (powers of two) of MXFP4
      .weight_zero_point    I32 [rows / 8, groups]
      .weight_g_idx         as gptq's
      .weight_global_scale  F32 [1]; values of NVFP4 are divided by it
      .weight_shape         rows and columns
    NAME.weight             U8 [rows, columns / 2] of modelopt's NVFP4
      .weight_scale         F8_E4M3 [rows, columns / 16]
      .weight_scale_2       F32, one; values are multiplied by it

A value is (number - zero point) * scale; of symmetric ones the zero point is 8, which their qzeros
have to say too. How numbers lie is what the config states, and the tensor has to be named so.
Scales of activations are left out.

Sources: those of `headrace.weights.tensors.grouped_tensor`, vLLM layers/quantization (auto_gptq.py,
auto_awq.py, modelopt.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.errors import CheckpointError, UnsupportedModelError, shown
from headrace.weights.codecs import BYTES, F8_E4M3, GROUPED, RAW, WORDS, Codec
from headrace.weights.storage.parts import (
    OF_ACTIVATIONS,
    PACKED,
    QWEIGHT,
    WEIGHT,
    FolderParts,
    words_of,
)
from headrace.weights.storage.storage import Storage, WeightFormat
from headrace.weights.tensors.grouped_tensor import (
    LEAST_WHOLE,
    MOST_WHOLE,
    GroupedTensor,
    Groups,
    Order,
    across_rows,
    along_columns,
    along_rows,
    in_order,
    in_pairs,
    zeros_of_awq,
    zeros_of_compressed,
    zeros_of_gptq,
)
from headrace.weights.tensors.pieces import SplitTensor
from headrace.weights.tensors.tensor import Tensor

_PRE_SCALE = ".pre_quant_scale"
_OF_GROUP = 16
"""Columns that share a scale of NVFP4."""


def is_four_bits(stored: WeightFormat) -> bool:
    """Whether matrices of this format are read here."""
    if stored.bits != 4:
        return False
    if stored.number == "int":
        in_groups = stored.scope == "channel" or (
            stored.scope == "group" and stored.columns % 32 == 0
        )
        return in_groups and stored.layout in ("compressed", "gptq", "gptq_v2", "awq")
    if stored.number != "e2m1" or stored.layout not in ("compressed", "modelopt"):
        return False
    if stored.scale == "e8m0":
        return stored.columns == 32 and stored.layout == "compressed"
    return stored.scale == "e4m3" and stored.columns == _OF_GROUP


def with_groups(
    folder: Path, tensors: Mapping[str, Tensor], storage: Storage | None
) -> Mapping[str, Tensor]:
    """The tensors of a folder, those of 4 bits put together under the names of their weights.

    Raises CheckpointError where a part is missing or has another shape than the config states;
    UnsupportedModelError for numbers that are read in no layout here.
    """
    formats = () if storage is None else tuple(filter(is_four_bits, storage.formats))
    if storage is None or not formats:
        return tensors
    found = _Folder(folder, tensors, storage=storage, formats=formats)
    joined: dict[str, Tensor] = {}
    for tensor in tensors.values():
        module = found.module_of(tensor)
        if module is not None:
            weight = found.matrix(module, tensor)
            joined[weight.name] = weight
    for name, tensor in tensors.items():
        if name in found.used or name.endswith(OF_ACTIVATIONS):
            continue
        if name.endswith(_PRE_SCALE):
            raise UnsupportedModelError(
                f"{folder}: tensor {shown(name)} multiplies what enters a matrix (AWQ of "
                "modelopt), which is not implemented. Use a checkpoint without it, or a GGUF file "
                "of the model"
            )
        if tensor.codec.name in RAW:
            raise CheckpointError(
                f"{folder}: tensor {shown(name)} is {tensor.codec.name} and part of no matrix that "
                "quantization_config states. The folder is incomplete or damaged, fetch it again"
            )
        joined[name] = tensor
    return joined


@dataclass(kw_only=True)
class _Folder(FolderParts):
    """A folder whose matrices of 4 bits are put together."""

    storage: Storage
    formats: tuple[WeightFormat, ...]

    def module_of(self, tensor: Tensor) -> str | None:
        """The module whose numbers the tensor holds; None for any other tensor."""
        for ending in (QWEIGHT, PACKED):
            if tensor.name.endswith(ending) and tensor.codec.name in RAW:
                return tensor.name.removesuffix(ending)
        if tensor.name.endswith(WEIGHT) and tensor.codec is BYTES:
            return tensor.name.removesuffix(WEIGHT)
        return None

    def matrix(self, module: str, numbers: Tensor) -> Tensor:
        """The weight of a module."""
        if len(numbers.shape) != 2:
            raise UnsupportedModelError(
                f"{self.path}: tensor {shown(numbers.name)} has shape {list(numbers.shape)}; "
                "numbers of 4 bits are read of matrices, not of stacks. Use a folder with a tensor "
                "for each expert, or a GGUF file of the model"
            )
        stored = self._format_of(module, numbers)
        self.used.add(numbers.name)
        if stored.number == "int":
            return self._whole(module, numbers, stored)
        return self._floats(module, numbers, stored)

    def _format_of(self, module: str, numbers: Tensor) -> WeightFormat:
        """The format that the config states of a module, after the tensor's name was looked at."""
        stored = self.storage.format_of(module)
        if stored is None and len(self.formats) == 1:
            # Listed as left at 16 bits, and of 4 bits all the same: there is one way to read it.
            stored = self.formats[0]
        if stored is None or not is_four_bits(stored):
            what = "16 bits" if stored is None else f"{stored.number} of {stored.bits} bits"
            raise CheckpointError(
                f"{self.path}: tensor {shown(numbers.name)} holds 4 bits, and quantization_config "
                f"states {what} of this module. The files are not of one model, fetch the folder "
                "again"
            )
        self.check_layout(module, numbers, stored.layout)
        return stored

    def _whole(self, module: str, numbers: Tensor, stored: WeightFormat) -> Tensor:
        if numbers.codec is not WORDS:
            raise CheckpointError(
                f"{self.path}: tensor {shown(numbers.name)} is {numbers.codec.name}; numbers of 4 "
                "bits lie in words of I32"
            )
        if stored.layout == "compressed":
            return self._compressed(module, numbers, stored)
        words = words_of(numbers)
        down, across = numbers.shape
        of_awq = stored.layout == "awq"
        rows, columns = (8 * across, down) if of_awq else (across, 8 * down)
        codec, groups = self._blocks(numbers, columns, stored)
        scales = self.part(f"{module}.scales", ("F16", "BF16", "F32"), [groups, rows])
        zeros = self.tensors.get(f"{module}.qzeros")
        parts = [numbers, scales]
        if zeros is not None or not stored.symmetric:
            if rows % 8:
                raise CheckpointError(
                    f"{self.path}: tensor {shown(numbers.name)} has {rows} rows; zero points lie "
                    "in words of eight, so rows have to be a multiple of 8"
                )
            zeros = self.part(f"{module}.qzeros", ("I32",), [groups, rows // 8])
            parts.append(zeros)
        codes, order = (across_rows if of_awq else along_columns)(words), None
        if not of_awq:
            order = self._order(f"{module}.g_idx", columns, stored)
        of_zeros = None
        if zeros is not None:
            of_zeros = (
                zeros_of_awq(words_of(zeros)) if of_awq
                else zeros_of_gptq(words_of(zeros), less_one=stored.layout == "gptq")
            )  # fmt: skip
        return GroupedTensor(
            f"{module}{WEIGHT}", (rows, columns), codec,
            Groups(
                codes if order is None else in_order(codes, order), lambda: scales.to_f32().T,
                of_zeros, columns=stored.columns, nbytes=sum(part.nbytes for part in parts),
            ), order,
        )  # fmt: skip

    def _compressed(self, module: str, numbers: Tensor, stored: WeightFormat) -> Tensor:
        rows, columns = numbers.shape[0], 8 * numbers.shape[1]
        codec, groups = self._blocks(numbers, columns, stored)
        self.check_stated_shape(module, rows, columns)
        shapes = [[rows, groups]] + ([[rows]] if groups == 1 else [])
        scales = self.part(f"{module}.weight_scale", ("F16", "BF16", "F32"), *shapes)
        parts, of_zeros = [numbers, scales], None
        if not stored.symmetric:
            zeros = self.part(f"{module}.weight_zero_point", ("I32",), [-(-rows // 8), groups])
            parts.append(zeros)
            of_zeros = zeros_of_compressed(words_of(zeros), rows)
        codes = along_rows(words_of(numbers))
        order = self._order(f"{module}.weight_g_idx", columns, stored)
        return GroupedTensor(
            f"{module}{WEIGHT}", (rows, columns), codec,
            Groups(
                codes if order is None else in_order(codes, order),
                lambda: scales.to_f32().reshape(rows, groups),
                of_zeros, columns=stored.columns, nbytes=sum(part.nbytes for part in parts),
            ), order,
        )  # fmt: skip

    def _floats(self, module: str, numbers: Tensor, stored: WeightFormat) -> Tensor:
        rows, columns = numbers.shape[0], 2 * numbers.shape[1]
        name = f"{module}{WEIGHT}"
        if numbers.codec is not BYTES:
            raise CheckpointError(
                f"{self.path}: tensor {shown(numbers.name)} is {numbers.codec.name}; numbers of "
                "E2M1 lie in bytes (U8)"
            )
        pairs = numbers.data.reshape(rows, columns // 2)
        self.check_stated_shape(module, rows, columns)
        if stored.scale == "e8m0":
            self.check_width(numbers, numbers.shape[0], columns, 32)
            exponents = self.part(f"{module}.weight_scale", ("U8",), [rows, columns // 32])
            blocks = pairs.reshape(rows, columns // 32, 16)
            return SplitTensor(name, blocks, exponents.data.reshape(rows, columns // 32))
        self.check_width(numbers, numbers.shape[0], columns, 64)
        codec = GROUPED["E2M1_128" if columns % 128 == 0 else "E2M1_64"]
        shape = [rows, columns // _OF_GROUP]
        scales = self.part(f"{module}.weight_scale", (F8_E4M3.name,), shape)
        divides = stored.layout == "compressed"
        ending = "weight_global_scale" if divides else "weight_scale_2"
        whole = self.part(f"{module}.{ending}", ("F32",), [], [1])
        scale = np.float32(whole.to_f32().reshape(-1)[0])
        limits = (1 / MOST_WHOLE, 1 / LEAST_WHOLE) if divides else (LEAST_WHOLE, MOST_WHOLE)
        if not limits[0] <= scale <= limits[1]:
            raise CheckpointError(
                f"{self.path}: tensor {shown(whole.name)} is {scale:g}; it has to be a number from "
                f"{limits[0]:.3g} to {limits[1]:.3g}. The file is damaged, or was made with an "
                "error: fetch it again"
            )
        return GroupedTensor(
            name, (rows, columns), codec,
            Groups(
                in_pairs(pairs), lambda: scales.data.reshape(shape),
                scale=float(np.float32(1) / scale if divides else scale),
                nbytes=numbers.nbytes + scales.nbytes + whole.nbytes,
            ),
        )  # fmt: skip

    def _blocks(self, numbers: Tensor, columns: int, stored: WeightFormat) -> tuple[Codec, int]:
        """The codec of a matrix, and how many groups a row has."""
        size = stored.columns if stored.scope == "group" else columns
        self.check_width(numbers, numbers.shape[0], columns, 32)
        if size == 0 or columns % size:
            raise CheckpointError(
                f"{self.path}: tensor {shown(numbers.name)} has rows of {columns}; "
                f"quantization_config states groups of {size}, of which rows have to be whole"
            )
        kind = "I4" if stored.symmetric else "U4"
        return GROUPED[f"{kind}_{128 if size % 128 == 0 else 32}"], columns // size

    def _order(self, name: str, columns: int, stored: WeightFormat) -> Order | None:
        """The columns of a matrix by their groups; None where they lie so.

        Raises CheckpointError where the groups are missing, or not as large as the config states.
        """
        if name not in self.tensors:
            if not stored.act_order:
                return None
            raise CheckpointError(
                f"{self.path}: the config states an order of columns (desc_act, actorder), and "
                f"tensor {shown(name)}, which has it, is missing; fetch the whole folder again"
            )
        values = words_of(self.part(name, ("I32",), [columns])).reshape(-1).view(np.int32)
        size = stored.columns if stored.scope == "group" else columns
        if (values == -1).all() or np.array_equal(values, np.arange(columns) // size):
            # compressed-tensors writes -1 where no order was found.
            return None
        order = np.argsort(values, kind="stable").astype(np.int32)
        if not np.array_equal(values[order], np.arange(columns) // size):
            raise CheckpointError(
                f"{self.path}: tensor {shown(name)} does not have {size} columns of each of "
                f"{columns // size} groups, as quantization_config states. The files are not of "
                "one model, or damaged: fetch the folder again"
            )
        return order
