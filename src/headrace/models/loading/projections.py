"""Projections of a checkpoint, fused where their codecs allow, with rows of Q and K in "half"
order whatever the file's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Literal

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.models.loading.linear import Linear
from headrace.models.loading.reader import EMBEDDING, HEAD, HEAD_BIAS, TensorReader
from headrace.ops.kv import AttentionShape
from headrace.weights.codecs import F32
from headrace.weights.tensors.fused_rows import loaded_order
from headrace.weights.tensors.rope_rows import heads_to_half
from headrace.weights.tensors.tensor import Tensor


class ProjectionLoader(TensorReader):
    """The projections of one checkpoint for one backend."""

    def linear(
        self, names: Sequence[str], outs: Sequence[int], width: int, *, bias: bool | None
    ) -> Linear:
        """Projections (out_i, width) called `names`, fused where their codecs allow.

        bias: whether the config says there is one; None means what the file holds.
        """
        return self._packed(*self._stored(names, outs, width, bias))

    def reordered(
        self,
        name: str,
        rows: int,
        width: int,
        make_order: Callable[[], npt.NDArray[np.int32]],
        *,
        bias: bool | None,
    ) -> Linear:
        """The projection `name` (rows, width) with its rows, and those of its bias, in an order.

        make_order: called once the tensor is known to have so many rows as the config says.
        """
        matrices, biases = self._stored([name], [rows], width, bias)
        order = make_order()
        return self._packed([matrices[0].select_rows(order)], [_reordered(biases[0], order)])

    def router(self, name: str, rows: int, width: int, *, bias: bool = False) -> Linear:
        """The projection `name` whose results choose, in F32 whatever the file's kind.

        It is small, and a rounded score chooses others; GGUF files hold it in F32.
        """
        tensor = self._matrix(f"{name}.weight", rows, width)
        offset = self.tensor(f"{name}.bias", rows) if bias else None
        self._advance(tensor, *(() if offset is None else (offset,)))
        exact = Tensor(tensor.name, tensor.shape, F32, F32.encode(tensor.to_f32()))
        return self._packed([exact], [offset], counted=True)

    def qkv(
        self,
        prefix: str,
        shape: AttentionShape,
        width: int,
        *,
        bias: bool | None,
        rotary_dim: int | None = None,
        stored: Literal["qkv", "qkk", "q"] = "qkv",
    ) -> Linear:
        """Q, K and V of one layer, fused, rows of Q and K in "half" order whatever the file's.

        rotary_dim: dimensions of a head that are rotated, and so reordered; None means all.
        stored: the projections that give them, by letter: "qkk" where values are what keys are
        before their norm and rotation, "q" where the layer has neither.
        """
        names = [f"{prefix}.{letter}_proj" for letter in stored]
        heads = (shape.num_heads, shape.num_kv_heads)
        outs = [count * shape.head_dim for count in heads]
        outs.append(shape.num_kv_heads * shape.value_width)
        matrices, biases = self._stored(names, outs[: len(names)], width, bias)
        if self._conventions.rope_layout == "interleaved":
            for index in range(min(2, len(names))):
                order = heads_to_half(heads[index], shape.head_dim, rotary_dim)
                matrices[index] = matrices[index].select_rows(order)
                biases[index] = _reordered(biases[index], order)
        return self._packed(matrices, biases)

    def fused_qkv(
        self,
        name: str,
        shape: AttentionShape,
        width: int,
        *,
        bias: bool | None,
        rotary_dim: int | None = None,
    ) -> Linear:
        """Q, K and V of one layer stored as one matrix; the same as `qkv` otherwise."""
        heads, kv_heads, head_dim = shape.num_heads, shape.num_kv_heads, shape.head_dim
        matrices, biases = self._stored([name], [shape.row_width], width, bias)
        order = loaded_order(self._conventions, heads, kv_heads, head_dim, rotary_dim)
        if order is not None:
            matrices = [matrices[0].select_rows(order)]
            biases = [_reordered(biases[0], order)]
        return self._packed(matrices, biases)

    def head(
        self,
        rows: int,
        width: int,
        *,
        tied: bool | None,
        bias: bool | None = False,
        table: str = EMBEDDING,
    ) -> Linear:
        """lm_head, or the embedding `table` where it is tied: logits = W x (+ bias).

        tied: what the config says; None means tied exactly when the file holds no lm_head.
        bias: the same of a bias.
        """
        has_bias = self.has(HEAD_BIAS) if bias is None else bias
        offset = self.tensor(HEAD_BIAS, rows) if has_bias else None
        if not self.has(HEAD):
            if tied is False:
                raise CheckpointError(
                    f"{self._checkpoint.path}: tie_word_embeddings is false but {HEAD} is "
                    "missing; the file is incomplete, or the config should say true"
                )
            return self._packed([self.tensor(table, rows, width)], [offset], counted=True)
        tensor = self.tensor(HEAD, rows, width)
        if tied and not _same_bytes(tensor, self.tensor(table, rows, width)):
            raise CheckpointError(
                f"{self._checkpoint.path}: tie_word_embeddings is true but {HEAD} differs from "
                f"{table}; set it to false to use {HEAD}, or remove that tensor"
            )
        return self._packed([tensor], [offset])

    def _packed(
        self,
        matrices: Sequence[Tensor],
        biases: Sequence[Tensor | None],
        *,
        counted: bool = False,
    ) -> Linear:
        """counted: the matrix was already counted as done, under another use."""
        weights = []
        pairs = zip(matrices, biases, strict=True)
        for _, group in groupby(pairs, key=lambda pair: _fusion_key(pair[0])):
            parts, part_biases = zip(*group, strict=True)
            weights.append(self._ops.linear_weight(parts, bias=part_biases))
            self.packed_elements += sum(part.shape[0] * part.shape[1] for part in parts)
            if counted:
                for part in parts:
                    part.let_go()
            else:
                self._advance(*parts, *(item for item in part_biases if item is not None))
        return Linear(self._ops, tuple(weights))


def _fusion_key(matrix: Tensor) -> tuple[str, bytes]:
    """Matrices that have the same one can be fused."""
    order = matrix.column_order
    return matrix.codec.name, b"" if order is None else order.tobytes()


def _reordered(bias: Tensor | None, order: npt.NDArray[np.int32]) -> Tensor | None:
    """A bias with its values in another order, as F32."""
    if bias is None:
        return None
    values = bias.to_f32()[order]
    return Tensor(bias.name, bias.shape, F32, F32.encode(values.reshape(1, -1)))


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    return one.codec is other.codec and bool(np.array_equal(one.data, other.data))
