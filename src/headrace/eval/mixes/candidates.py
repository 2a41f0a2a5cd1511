"""The kinds that each matrix of a model may get, and the error that each of them makes.

A matrix may get every kind that can be made and is smaller than what it is stored in, but for those
that another beats in size and in error. The error is sum w (y - x)^2 / sum w x^2 over a sample of
the matrix's rows, with w the importance of the column, 1 where none is given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.errors import ConfigError
from headrace.weights.codecs import CODECS, Codec
from headrace.weights.gguf.writer import padded
from headrace.weights.quantize.importance import ImportanceFile
from headrace.weights.quantize.mixes import UNSAFE_WITHOUT_IMPORTANCE
from headrace.weights.quantize.plan import Override, fitting_codec
from headrace.weights.quantize.roles import Role, may_be_quantised, role_of
from headrace.weights.tensors.source import TensorSource
from headrace.weights.tensors.tensor import Tensor

Floats = npt.NDArray[np.float32]

# Values of a matrix whose errors tell its kinds apart: a standard error of about 1 %.
_SAMPLED_VALUES = 65_536
_LEAST_ROWS = 8

# Gate and up of experts are one matrix to the engine, and so have to be of one kind.
_PAIR = re.compile(r"(blk\.\d+\.ffn_)(?:gate|up)(_[a-z]*exps?\.weight)")


@dataclass(frozen=True)
class Matrices:
    """Matrices that get the same kind: nearly always one."""

    name: str
    tensors: tuple[TensorSource, ...]
    forced: Codec | None
    """The kind that a person decided on."""

    @property
    def stored(self) -> Codec:
        """The kind they have, which costs nothing."""
        return self.tensors[0].codec

    def nbytes(self, codec: Codec) -> int:
        """Bytes in a file in this kind."""
        return sum(
            padded(math.prod(each.shape[:-1]) * codec.row_bytes(each.shape[-1]))
            for each in self.tensors
        )


@dataclass(frozen=True)
class Group:
    """Matrices that get the same kind, and the kinds they may get."""

    name: str
    tensors: tuple[str, ...]
    kinds: tuple[Codec, ...]
    """By rising size and falling error."""
    sizes: tuple[int, ...]
    """Bytes in the file in each of these kinds."""
    errors: tuple[float, ...]
    """Relative squared errors in each of them; 0 of the kind they are stored in."""


def matrices_of(
    tensors: Sequence[TensorSource], overrides: Sequence[Override] = ()
) -> list[Matrices]:
    """The matrices of a file that may get another kind, in its order.

    overrides: the first whose pattern is found in a name leaves that kind alone. Raises ConfigError
    where matrices that have to be of one kind have different ones.
    """
    members: dict[str, list[TensorSource]] = {}
    for tensor in tensors:
        if may_be_quantised(tensor.name, tensor.shape):
            name = _PAIR.sub(r"\1gate+up\2", tensor.name)
            members.setdefault(name, []).append(tensor)
    return [_together(name, group, overrides) for name, group in members.items()]


def _together(
    name: str, tensors: Sequence[TensorSource], overrides: Sequence[Override]
) -> Matrices:
    forced = {
        next(
            (
                fitting_codec(each.codec, tensor.shape[-1])
                for each in overrides
                if each.pattern.search(tensor.name)
            ),
            None,
        )
        for tensor in tensors
    }
    if len({tensor.codec for tensor in tensors}) > 1 or len(forced) > 1:
        names = ", ".join(tensor.name for tensor in tensors)
        raise ConfigError(f"{names} are computed as one matrix, and have to be of one kind")
    return Matrices(name, tuple(tensors), forced.pop())


def group_of(
    matrices: Matrices, values: Mapping[str, Tensor], importance: ImportanceFile | None
) -> Group:
    """The kinds on the front of size and error. values: the tensors as floats, by name."""
    forced, stored = matrices.forced, matrices.stored
    kinds = [forced] if forced is not None else [*_smaller(matrices, importance), stored]
    samples = [_Sample(values[each.name], importance) for each in matrices.tensors]
    found = []
    for kind in kinds:
        errors, squares = zip(*(each.error(kind) for each in samples), strict=True)
        relative = 0.0 if kind is stored else sum(errors) / max(sum(squares), 1e-30)
        found.append((matrices.nbytes(kind), relative, kind))
    found.sort(key=lambda each: each[:2])
    front: list[tuple[int, float, Codec]] = []
    for each in found:
        if not front or each[1] < front[-1][1]:
            front.append(each)
    sizes, relatives, codecs = zip(*front, strict=True)
    return Group(
        matrices.name, tuple(each.name for each in matrices.tensors), codecs, sizes, relatives
    )


def _smaller(matrices: Matrices, importance: ImportanceFile | None) -> list[Codec]:
    known = {} if importance is None else importance.sums
    needs = any(
        each.name not in known and role_of(each.name) not in (Role.OUTPUT, Role.EMBEDDING)
        for each in matrices.tensors
    )
    return [
        codec
        for codec in CODECS.values()
        if codec.can_encode
        and codec.bits_per_weight < matrices.stored.bits_per_weight
        and not (needs and codec.name in UNSAFE_WITHOUT_IMPORTANCE)
        and all(each.shape[-1] % codec.block_elements == 0 for each in matrices.tensors)
    ]


class _Sample:
    """A sample of the rows of one tensor, as far from each other as they can be."""

    def __init__(self, tensor: Tensor, importance: ImportanceFile | None) -> None:
        rows, columns = len(tensor.data), tensor.shape[-1]
        count = min(rows, max(_LEAST_ROWS, _SAMPLED_VALUES // columns))
        chosen = np.linspace(0, rows - 1, count).astype(np.int64)
        self._values: Floats = tensor.codec.decode(tensor.data[chosen])
        self._weights: Floats | None = None
        sums = None if importance is None else importance.sums.get(tensor.name)
        if sums is not None:
            columns_of = sums.importance()
            self._weights = columns_of[chosen * len(columns_of) // rows]

    def error(self, codec: Codec) -> tuple[float, float]:
        """Weighted sums of squared errors, and of squares."""
        weights = self._weights if codec.takes_importance else None
        apart = codec.decode(codec.encode(self._values, weights)) - self._values
        by_column = 1.0 if self._weights is None else self._weights.astype(np.float64)
        return (
            float((apart.astype(np.float64) ** 2 * by_column).sum()),
            float((self._values.astype(np.float64) ** 2 * by_column).sum()),
        )
