"""The tensors of a folder that matrices are put together of, each checked before it is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError, shown
from headrace.weights.codecs import RAW
from headrace.weights.storage.float8 import ACTIVATION_SCALES
from headrace.weights.storage.storage import Layout
from headrace.weights.tensors.tensor import Tensor

OF_ACTIVATIONS = (*ACTIVATION_SCALES, ".input_global_scale", ".input_zero_point", ".azp_adj")
"""Endings of names of tensors that no weight depends on."""


QWEIGHT, PACKED, WEIGHT = ".qweight", ".weight_packed", ".weight"
_ENDINGS: Mapping[Layout, str] = {
    "gptq": QWEIGHT, "gptq_v2": QWEIGHT, "awq": QWEIGHT, "compressed": PACKED, "modelopt": WEIGHT,
    "plain": WEIGHT,
}  # fmt: skip
"""Of the tensor of numbers, by the layout that is stated."""


@dataclass
class FolderParts:
    """The tensors of a folder; remembers which ones matrices are made of."""

    path: Path
    tensors: Mapping[str, Tensor]
    used: set[str] = field(default_factory=set)

    def part(self, name: str, codecs: tuple[str, ...], *shapes: list[int]) -> Tensor:
        """The tensor of this name.

        Raises CheckpointError where it is missing, or of another kind or shape than these.
        """
        tensor = self.tensors.get(name)
        wanted = " or ".join(map(str, shapes))
        if tensor is None:
            raise CheckpointError(
                f"{self.path}: tensor {shown(name)} is missing; {wanted} of {' or '.join(codecs)} "
                "is required. The folder is incomplete, fetch it again"
            )
        if list(tensor.shape) not in shapes or tensor.codec.name not in codecs:
            raise CheckpointError(
                f"{self.path}: tensor {shown(name)} is {tensor.codec.name} of shape "
                f"{list(tensor.shape)}; as quantization_config states, it has to be {wanted} of "
                f"{' or '.join(codecs)}. The files are not of one model, fetch the folder again"
            )
        self.used.add(name)
        return tensor

    def check_layout(self, module: str, numbers: Tensor, layout: Layout) -> None:
        """Raise CheckpointError where numbers are not named as the stated layout names them."""
        ending = _ENDINGS[layout]
        if not numbers.name.endswith(ending):
            raise CheckpointError(
                f"{self.path}: tensor {shown(numbers.name)} is not named as quantization_config "
                f"states: the layout {layout!r} has numbers in {shown(module + ending)}. The files "
                "are not of one model, fetch the folder again"
            )

    def check_width(self, numbers: Tensor, rows: int, columns: int, of: int) -> None:
        """Raise UnsupportedModelError where rows are not a multiple of `of` columns."""
        if columns % of or not columns or not rows:
            raise UnsupportedModelError(
                f"{self.path}: tensor {shown(numbers.name)} has rows of {columns}; they are read "
                f"in multiples of {of}. Use another checkpoint of the model"
            )

    def check_stated_shape(self, module: str, rows: int, columns: int) -> None:
        """Raise CheckpointError where a tensor `weight_shape` states another shape."""
        name = f"{module}.weight_shape"
        stated = self.tensors.get(name)
        if stated is None:
            return
        self.part(name, ("I64", "I32"), [2])
        size = 8 if stated.codec.name == "I64" else 4
        values = stated.data.reshape(-1).view(f"<i{size}").tolist()
        if values != [rows, columns]:
            raise CheckpointError(
                f"{self.path}: tensor {shown(name)} states {values}, and the numbers are of "
                f"{[rows, columns]}. The files are not of one model, fetch the folder again"
            )

    def others(self, *, raw: bool) -> dict[str, Tensor]:
        """The tensors that no matrix is made of, without those of activations.

        raw: whether there may be bytes and words among them, which somebody else puts together.
        """
        others: dict[str, Tensor] = {}
        for name, tensor in self.tensors.items():
            if name in self.used or name.endswith(OF_ACTIVATIONS):
                continue
            if tensor.codec.name in RAW and not raw:
                raise CheckpointError(
                    f"{self.path}: tensor {shown(name)} is {tensor.codec.name} and part of no "
                    "matrix that quantization_config states. The folder is incomplete or damaged, "
                    "fetch it again"
                )
            others[name] = tensor
        return others


def words_of(tensor: Tensor) -> npt.NDArray[np.uint32]:
    """Its words, wherever in memory they begin."""
    words: npt.NDArray[np.uint32] = tensor.data.view("<u4").reshape(tensor.shape)
    return words
