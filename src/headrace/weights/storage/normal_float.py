"""Folders of bitsandbytes' NF4: matrices put together with the scales that stand beside them.

    NAME.weight                                 two codes a byte, [rows * columns / 2, 1], U8 or
                                                another dtype of as many bytes
      .weight.absmax                            F32, one for each 64 values; or U8, codes of
      .weight.nested_quant_map                  F32 [256], the number of each such code,
      .weight.nested_absmax                     F32, scales of 256 of them
      .weight.quant_map                         F32 [16], the numbers of NF4
      .weight.quant_state.bitsandbytes__nf4     U8, JSON: shape, sizes of blocks, nested_offset

A value is number * scale; a scale is absmax, or map[absmax] * nested_absmax + nested_offset, in
float32.

Source: bitsandbytes functional.py (QuantState, quantize_4bit, dequantize_blockwise).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError, shown
from headrace.weights.codecs import BYTES, NF4, NF4_NUMBERS
from headrace.weights.storage.parts import FolderParts
from headrace.weights.storage.storage import Storage, WeightFormat
from headrace.weights.tensors.normal_float import NormalFloatTensor
from headrace.weights.tensors.tensor import Tensor

F32 = npt.NDArray[np.float32]

_STATE = ".quant_state.bitsandbytes__"
_MOST_STATE_BYTES = 4096
"""Published ones have some 200."""
_MOST_OFFSET = 3e38
"""What float32 holds."""
_KEYS = frozenset(
    {
        "quant_type", "blocksize", "dtype", "shape", "nested_blocksize", "nested_dtype",
        "nested_offset",
    }
)  # fmt: skip


def is_normal_float(stored: WeightFormat) -> bool:
    """Whether matrices of this format are read here."""
    return stored.number == "nf4" and stored.layout == "bitsandbytes"


def with_normal_floats(
    folder: Path, tensors: Mapping[str, Tensor], storage: Storage | None
) -> Mapping[str, Tensor]:
    """The tensors of a folder, those of NF4 put together under the names of their weights.

    Raises CheckpointError where a part is missing or has another shape than is stated;
    UnsupportedModelError for other numbers and blocks.
    """
    if storage is None or not any(map(is_normal_float, storage.formats)):
        return tensors
    found = _Folder(folder, tensors)
    joined: dict[str, Tensor] = {}
    for name in tensors:
        weight, mark, number = name.rpartition(_STATE)
        if mark:
            joined[weight] = found.matrix(weight, name, number)
    return joined | found.others(raw=False)


class _Folder(FolderParts):
    """A folder whose matrices are put together."""

    def matrix(self, weight: str, state_name: str, number: str) -> Tensor:
        """The matrix of this name, of which a tensor of JSON says more."""
        if number != "nf4":
            raise UnsupportedModelError(
                f"{self.path}: tensor {shown(state_name)} states {shown(number)}; of bitsandbytes "
                "nf4 is read. Use a folder in NF4 or BF16, or a GGUF file of the model"
            )
        state = self._state(state_name)
        rows, columns = state["shape"]
        self.check_width(self.tensors[state_name], rows, columns, NF4.block_elements)
        values, size = rows * columns, state["blocksize"]
        numbers = self.tensors.get(weight)
        if numbers is None or numbers.nbytes * 2 != values:
            held = "is missing" if numbers is None else f"has {numbers.nbytes} bytes"
            raise CheckpointError(
                f"{self.path}: tensor {shown(weight)} {held}; {[rows, columns]} values of 4 bits "
                f"are {values // 2}. The files are not of one model, fetch the folder again"
            )
        self.used.add(weight)
        table = self.part(f"{weight}.quant_map", ("F32",), [16])
        if not np.array_equal(table.to_f32(), NF4_NUMBERS):
            raise UnsupportedModelError(
                f"{self.path}: tensor {shown(table.name)} has other numbers than NF4. Use a folder "
                "in NF4 or BF16, or a GGUF file of the model"
            )
        count = -(-values // size)
        absmax = self.part(f"{weight}.absmax", ("F32", BYTES.name), [count])
        parts = [numbers, absmax]
        # A last block may be shorter.
        blocks = np.arange(values // NF4.block_elements) * NF4.block_elements // size
        if absmax.codec is BYTES:
            more, of_scales = self._nested(weight, absmax, state)
            parts += more
        else:
            of_scales = absmax.to_f32

        def scales() -> F32:
            spread: F32 = of_scales()[blocks]
            return spread

        return NormalFloatTensor(
            weight, (rows, columns), numbers.data.reshape(-1), scales,
            sum(part.nbytes for part in parts),
        )  # fmt: skip

    def _nested(
        self, weight: str, absmax: Tensor, state: dict[str, Any]
    ) -> tuple[list[Tensor], Callable[[], F32]]:
        """The parts that scales are made of, and a function that makes them."""
        size, offset = state["nested_blocksize"], np.float32(state["nested_offset"])
        count = absmax.shape[0]
        numbers = self.part(f"{weight}.nested_quant_map", ("F32",), [256])
        outer = self.part(f"{weight}.nested_absmax", ("F32",), [-(-count // size)])

        def scales() -> F32:
            with np.errstate(over="ignore", invalid="ignore"):
                inner = numbers.to_f32()[absmax.data.reshape(-1)]
                made: F32 = inner * outer.to_f32()[np.arange(count) // size] + offset
            return made

        return [numbers, outer], scales

    def _state(self, name: str) -> dict[str, Any]:
        """What the tensor of JSON states, each value checked."""
        tensor = self.tensors[name]
        self.used.add(name)
        try:
            if tensor.codec is not BYTES or tensor.nbytes > _MOST_STATE_BYTES:
                raise ValueError(f"it is {tensor.codec.name} of {tensor.nbytes} bytes")
            state = json.loads(tensor.data.tobytes())
            if not isinstance(state, dict):
                raise ValueError("it is not an object")
        except (ValueError, RecursionError) as error:
            raise CheckpointError(
                f"{self.path}: tensor {shown(name)} is not JSON of at most {_MOST_STATE_BYTES} "
                f"bytes of U8: {shown(str(error))}. The file is damaged, fetch it again"
            ) from error
        if unknown := sorted(set(state) - _KEYS):
            raise UnsupportedModelError(
                f"{self.path}: tensor {shown(name)} states {shown(unknown[0])}, which is not "
                f"known; known: {', '.join(sorted(_KEYS))}"
            )
        nested = f"{name.rpartition(_STATE)[0]}.nested_absmax" in self.tensors
        shape, offset = state.get("shape"), state.get("nested_offset")
        sizes = [state.get("blocksize"), state.get("nested_blocksize") if nested else 1]
        wrong = {
            "quant_type": state.get("quant_type") != "nf4",
            "shape": not (isinstance(shape, list) and len(shape) == 2
                          and all(type(size) is int and 0 < size < 1 << 31 for size in shape)),
            "blocksize": type(sizes[0]) is not int or sizes[0] < 1
                         or sizes[0] % NF4.block_elements != 0 or sizes[0] > 1 << 16,
            "nested_blocksize": type(sizes[1]) is not int or not 1 <= sizes[1] <= 1 << 20,
            "nested_dtype": nested and state.get("nested_dtype") != "float32",
            "nested_offset": nested and not (
                type(offset) in (int, float) and -_MOST_OFFSET < float(offset or 0) < _MOST_OFFSET
            ),
        }  # fmt: skip
        for key, is_wrong in wrong.items():
            if is_wrong:
                raise UnsupportedModelError(
                    f"{self.path}: tensor {shown(name)} states {key} {shown(state.get(key))}, "
                    "which is not read: matrices of nf4 are, in blocks of a multiple of "
                    f"{NF4.block_elements}, with nested scales in float32. Use another folder of "
                    "the model, or a GGUF file"
                )
        return state
