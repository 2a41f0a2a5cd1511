"""Folders of 8 bits: matrices put together with the scales and zero points that stand beside them.

    NAME.weight             I8 [rows, columns]: compressed-tensors' int-quantized, blockwise INT8;
                            numbers of 4 bits (W4A8) have a byte each
      .weight_scale         one, [rows] or [rows, 1], or [rows, groups]
      .weight_scale_inv     of blocks, [rows / R, columns / C] rounded up
      .weight_zero_point    I8, of the shape of the scales
    NAME.weight_packed      I32 [rows, columns / 4] (of 4 bits / 8), compressed-tensors
      .weight_scale         [rows, groups]
      .weight_zero_point    I32 [rows / 4, groups]
      .weight_shape         rows and columns
    NAME.qweight            I32: gptq [columns / 4, rows], awq [columns, rows / 4]
      .scales               [groups, rows]
      .qzeros               I32 [groups, rows / 4]; gptq stores them less one, gptq_v2 as they are
      .g_idx                I32 [columns], the group of each; only in order

A value is (number - zero point) * scale; a symmetric one has a zero point of 0, in words of 128.
Scales and zero points of activations are left out. Where the format rounds activations by one scale
of a row, which weights are held says so (`rounds_rows`): such 4 bits are read here too.

Sources: those of `headrace.weights.tensors.byte_codes`, vLLM layers/quantization
(compressed_tensors, auto_gptq.py), SGLang layers/quantization (blockwise_int8.py, w8a8_int8.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError, shown
from headrace.weights.codecs import EIGHT_BITS, GROUPED, SIGNED_BYTES, WORDS, Codec
from headrace.weights.storage.four_bits import is_four_bits
from headrace.weights.storage.parts import PACKED, QWEIGHT, WEIGHT, FolderParts, words_of
from headrace.weights.storage.storage import Storage, WeightFormat
from headrace.weights.tensors import byte_codes
from headrace.weights.tensors.grouped_tensor import Codes, Groups, along_rows
from headrace.weights.tensors.tensor import Tensor
from headrace.weights.tensors.whole_number_tensor import WholeNumberTensor

_SCALES = ("F16", "BF16", "F32")
_RUN = 32
"""Columns that a scale has at least, in the kernels."""


def is_eight_bits(stored: WeightFormat) -> bool:
    """Whether matrices of this format are read here."""
    if stored.number != "int":
        return False
    whole = stored.scope in ("tensor", "channel") or (
        stored.scope in ("group", "block") and stored.columns % _RUN == 0
    )
    if not whole:
        return False
    if stored.bits == 4:
        by_byte = stored.layout == "plain" and stored.symmetric
        packed = stored.layout == "compressed" and stored.symmetric and stored.rounds_rows
        return (by_byte or packed) and stored.scope in ("channel", "group")
    if stored.bits != 8:
        return False
    if stored.layout == "plain":
        return stored.symmetric or stored.scope != "block"
    layouts = ("compressed", "gptq", "gptq_v2", "awq")
    return stored.layout in layouts and stored.scope in ("channel", "group")


def with_bytes(
    folder: Path, tensors: Mapping[str, Tensor], storage: Storage | None
) -> Mapping[str, Tensor]:
    """The tensors of a folder, those of 8 bits put together under the names of their weights.

    Raises CheckpointError where a part is missing or has another shape than the config states;
    UnsupportedModelError for numbers that are read in no layout here.
    """
    formats = () if storage is None else tuple(filter(is_eight_bits, storage.formats))
    if storage is None or not formats:
        return tensors
    found = _Folder(folder, tensors)
    joined: dict[str, Tensor] = {}
    alone = len(formats) == len(storage.formats)
    for tensor in tensors.values():
        module = _module_of(tensor)
        if module is None:
            continue
        stored = storage.format_of(module)
        if stored is None or not is_eight_bits(stored):
            if not alone:
                continue
            # Listed as left at 16 bits, or under another name, and in 8 bits all the same.
            stored = formats[0]
        weight = found.matrix(module, tensor, stored)
        joined[weight.name] = weight
    return joined | found.others(raw=any(map(is_four_bits, storage.formats)))


def _module_of(tensor: Tensor) -> str | None:
    """The module whose numbers the tensor holds; None for any other tensor."""
    for ending in (QWEIGHT, PACKED):
        if tensor.name.endswith(ending) and tensor.codec is WORDS:
            return tensor.name.removesuffix(ending)
    if tensor.name.endswith(WEIGHT) and tensor.codec is SIGNED_BYTES:
        return tensor.name.removesuffix(WEIGHT)
    return None


class _Folder(FolderParts):
    """A folder whose matrices are put together."""

    def matrix(self, module: str, numbers: Tensor, stored: WeightFormat) -> Tensor:
        """The weight of a module."""
        if len(numbers.shape) != 2:
            raise UnsupportedModelError(
                f"{self.path}: tensor {shown(numbers.name)} has shape {list(numbers.shape)}; whole "
                "numbers are read of matrices, not of stacks. Use a folder with a tensor for each "
                "expert, or a GGUF file of the model"
            )
        self.check_layout(module, numbers, stored.layout)
        self.used.add(numbers.name)
        if numbers.codec is SIGNED_BYTES:
            return self._plain(module, numbers, stored)
        if numbers.name.endswith(PACKED):
            return self._compressed(module, numbers, stored)
        return self._words(module, numbers, stored)

    def _plain(self, module: str, numbers: Tensor, stored: WeightFormat) -> Tensor:
        rows, columns = numbers.shape
        self.check_width(numbers, rows, columns, _RUN)
        self._check_no_order(module, columns, stored, "weight_g_idx")
        signed = numbers.data.reshape(rows, columns)
        if stored.scope == "block":
            return self._in_blocks(module, numbers, signed, stored)
        codec, groups = self._blocks(numbers, columns, stored)
        shapes = {
            "tensor": [[], [1], [1, 1]], "channel": [[rows], [rows, 1]], "group": [[rows, groups]]
        }[stored.scope]  # fmt: skip
        if stored.scope == "tensor" and rows > 1:
            # Of matrices that were one: a scale of each row.
            shapes += [[rows], [rows, 1]]
        scales = self.part(f"{module}.weight_scale", _SCALES, *shapes)
        parts, zeros = [numbers, scales], None
        if not stored.symmetric:
            points = self.part(f"{module}.weight_zero_point", (SIGNED_BYTES.name,), *shapes)
            parts.append(points)
            spread = np.broadcast_to(points.data.reshape(-1, groups), (rows, groups))
            zeros = byte_codes.zeros_of_signed(spread)
        elif (points_name := f"{module}.weight_zero_point") in self.tensors:
            # Zeros, which older versions write of symmetric ones too.
            self._check_zeros(points_name)
        codes = (
            byte_codes.of_nibbles(numbers.name, signed)
            if stored.bits == 4
            else byte_codes.of_signed(signed)
        )

        def of_groups() -> npt.NDArray[Any]:
            return np.broadcast_to(scales.to_f32().reshape(-1, groups), (rows, groups))

        return _grouped(module, (rows, columns), codec, parts, stored, codes, of_groups, zeros)

    def _in_blocks(
        self, module: str, numbers: Tensor, signed: npt.NDArray[np.uint8], stored: WeightFormat
    ) -> Tensor:
        rows, columns = numbers.shape
        count = -(-rows // stored.rows), -(-columns // stored.columns)
        if columns % stored.columns:
            raise UnsupportedModelError(
                f"{self.path}: tensor {shown(numbers.name)} has rows of {columns}, which are not "
                f"whole blocks of {stored.columns}. Use another checkpoint of the model"
            )
        scales = self.part(f"{module}.weight_scale_inv", _SCALES, [*count])
        codec = EIGHT_BITS[_name("I8", stored.columns)]

        def of_groups() -> npt.NDArray[Any]:
            return scales.to_f32().repeat(stored.rows, axis=0)[:rows]

        codes = byte_codes.of_signed(signed)
        parts = [numbers, scales]
        return _grouped(module, (rows, columns), codec, parts, stored, codes, of_groups, None)

    def _compressed(self, module: str, numbers: Tensor, stored: WeightFormat) -> Tensor:
        per_word = 32 // stored.bits
        rows, columns = numbers.shape[0], per_word * numbers.shape[1]
        self.check_width(numbers, rows, columns, _RUN)
        codec, groups = self._blocks(numbers, columns, stored)
        self.check_stated_shape(module, rows, columns)
        self._check_no_order(module, columns, stored, "weight_g_idx")
        shapes = [[rows, groups]] + ([[rows]] if groups == 1 else [])
        scales = self.part(f"{module}.weight_scale", _SCALES, *shapes)
        parts, zeros = [numbers, scales], None
        if not stored.symmetric:
            points = self.part(f"{module}.weight_zero_point", ("I32",), [-(-rows // 4), groups])
            parts.append(points)
            zeros = byte_codes.zeros_of_compressed(words_of(points), rows)
        words = words_of(numbers)
        codes = along_rows(words) if stored.bits == 4 else byte_codes.of_rows(words)

        def of_groups() -> npt.NDArray[Any]:
            return scales.to_f32().reshape(rows, groups)

        return _grouped(module, (rows, columns), codec, parts, stored, codes, of_groups, zeros)

    def _words(self, module: str, numbers: Tensor, stored: WeightFormat) -> Tensor:
        words = words_of(numbers)
        down, across = numbers.shape
        of_awq = stored.layout == "awq"
        rows, columns = (4 * across, down) if of_awq else (across, 4 * down)
        self.check_width(numbers, rows, columns, _RUN)
        codec, groups = self._blocks(numbers, columns, stored)
        scales = self.part(f"{module}.scales", _SCALES, [groups, rows])
        parts, zeros = [numbers, scales], None
        if f"{module}.qzeros" in self.tensors or not stored.symmetric:
            if rows % 4:
                raise CheckpointError(
                    f"{self.path}: tensor {shown(numbers.name)} has {rows} rows; zero points lie "
                    "in words of four, so rows have to be a multiple of 4"
                )
            points = self.part(f"{module}.qzeros", ("I32",), [groups, rows // 4])
            parts.append(points)
            less = int(stored.layout == "gptq")
            zeros = (
                byte_codes.zeros_of_awq(words_of(points))
                if of_awq
                else byte_codes.zeros_of_gptq(words_of(points), less)
            )
        self._check_no_order(module, columns, stored, "g_idx")
        codes = (byte_codes.of_awq if of_awq else byte_codes.of_columns)(words)

        def of_groups() -> npt.NDArray[Any]:
            return scales.to_f32().T

        return _grouped(module, (rows, columns), codec, parts, stored, codes, of_groups, zeros)

    def _blocks(self, numbers: Tensor, columns: int, stored: WeightFormat) -> tuple[Codec, int]:
        """The codec of a matrix, and how many groups a row has."""
        size = stored.columns if stored.scope == "group" else columns
        if size == 0 or columns % size:
            raise CheckpointError(
                f"{self.path}: tensor {shown(numbers.name)} has rows of {columns}; "
                f"quantization_config states groups of {size}, of which rows have to be whole"
            )
        if stored.symmetric and stored.rounds_rows:
            kind = f"W{stored.bits}A8"
        elif stored.bits == 4:
            return GROUPED[_name("I4", size)], columns // size
        else:
            kind = "I8" if stored.symmetric else "U8"
        return EIGHT_BITS[_name(kind, size)], columns // size

    def _check_zeros(self, name: str) -> None:
        points = self.tensors[name]
        self.used.add(name)
        if points.data.any():
            raise CheckpointError(
                f"{self.path}: tensor {shown(name)} has zero points that are not 0, and "
                "quantization_config states symmetric weights. The files are not of one model, "
                "fetch the folder again"
            )

    def _check_no_order(self, module: str, columns: int, stored: WeightFormat, ending: str) -> None:
        """Raise UnsupportedModelError where columns are in an order of their own."""
        name = f"{module}.{ending}"
        if name not in self.tensors:
            if stored.act_order:
                raise CheckpointError(
                    f"{self.path}: the config states an order of columns (desc_act, actorder), and "
                    f"tensor {shown(name)}, which has it, is missing; fetch the whole folder again"
                )
            return
        values = words_of(self.part(name, ("I32",), [columns])).reshape(-1).view(np.int32)
        size = stored.columns if stored.scope == "group" else columns
        if not np.array_equal(values, np.arange(columns) // size) and (values != -1).any():
            raise UnsupportedModelError(
                f"{self.path}: tensor {shown(name)} has columns in an order of their own "
                "(desc_act, actorder), which is not read of 8 bits. Use a folder made without it, "
                "or a GGUF file of the model"
            )


def _name(kind: str, size: int) -> str:
    return f"{kind}_{128 if size % 128 == 0 else 32}"


def _grouped(
    module: str,
    shape: tuple[int, int],
    codec: Codec,
    parts: list[Tensor],
    stored: WeightFormat,
    codes: Codes,
    scales: Callable[[], npt.NDArray[Any]],
    zeros: byte_codes.Zeros | None,
) -> WholeNumberTensor:
    return WholeNumberTensor(
        f"{module}{WEIGHT}", shape, codec,
        Groups(
            codes, scales, zeros, columns=stored.columns, nbytes=sum(part.nbytes for part in parts)
        ),
    )  # fmt: skip
