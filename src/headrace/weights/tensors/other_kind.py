"""Matrices that are held in another plain kind than the file's, converted as they are read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, ConfigError
from headrace.weights.codecs import Codec
from headrace.weights.tensors.pieces import PiecedTensor
from headrace.weights.tensors.tensor import Tensor

_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


class ConvertedTensor(PiecedTensor):
    """A tensor in another kind of plain values: each is the nearest one, ties to even."""

    source: Tensor

    def __init__(self, source: Tensor, codec: Codec) -> None:
        super().__init__(source.name, source.shape, codec)
        object.__setattr__(self, "source", source)

    def joined(self) -> npt.NDArray[np.uint8]:
        """Raises ConfigError for a value that the kind does not reach."""
        values = self.source.to_f32()
        try:
            return self.codec.encode(values.reshape(-1, values.shape[-1]))
        except CheckpointError as error:
            raise ConfigError(
                f"--dtype {_NAMES[self.codec.name]}: tensor {self.name}: {error}. Use --dtype "
                "bfloat16 or float32"
            ) from error

    def let_go(self) -> None:
        self.source.let_go()

    def select_rows(self, order: npt.NDArray[np.int32]) -> Tensor:
        """The rows in another order, converted when they are read."""
        return ConvertedTensor(self.source.select_rows(order), self.codec)
