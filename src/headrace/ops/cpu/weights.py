"""The native backend of a `CpuOps`, and weights packed for it.

Rows of a checkpoint are given to the native module as they are stored; it packs them, and keeps the
arrays alive that it reads later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import ConfigError
from headrace.ops.cpu import _native
from headrace.ops.cpu.recording import Arena
from headrace.ops.cpu.results import Results
from headrace.ops.experts import ExpertCacheStats, ExpertWeight
from headrace.ops.interface import Ops
from headrace.ops.operands import EmbeddingWeight, HeadWeight, LinearWeight
from headrace.ops.shared import (
    check_in_order,
    expert_biases,
    expert_shape,
    f32_vector,
    fused_codec,
    fused_order,
    head_shape,
    stacked_bias,
)
from headrace.weights.files.mapped import file_of
from headrace.weights.tensors.pieces import SplitTensor, TurnedTensor
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.tensor import Tensor

F32 = npt.NDArray[np.float32]


class CpuWeights(Ops):
    """A native backend with its threads and its cache of experts, and weights packed for it."""

    name = "cpu"

    def __init__(
        self,
        level: str = "auto",
        threads: int | None = None,
        expert_cache_bytes: int | None = None,
    ) -> None:
        count = len(os.sched_getaffinity(0)) if threads is None else threads
        try:
            self._native = _native.Backend(level, count, expert_cache_bytes)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        except RuntimeError as error:
            raise ConfigError(
                f"threads is {count}, and the system gives no more of them ({error}); ask for fewer"
            ) from error
        self._empty: Callable[..., npt.NDArray[Any]] = Results().empty
        """Memory of what operations give."""
        self._arena: Arena | None = None
        """The same in runs that are recorded."""
        self.level: str = self._native.level
        self.num_threads: int = self._native.num_threads
        self._caches_experts = expert_cache_bytes is not None

    @staticmethod
    def levels() -> list[str]:
        """Names of the levels this machine can run, best first."""
        return list(_native.levels())

    def read_bandwidth(self, footprint_bytes: int) -> float:
        """Bytes per second that all threads together read of a footprint of about that size."""
        return self._native.read_bandwidth(footprint_bytes / 1e6)

    def peak_rate(self, kind: str) -> float | None:
        """Operations per second of all threads, for operands "f32", "bf16" or "int8", or for
        "bf16_pairs", by which attention multiplies where products of bf16 have tiles.

        A multiply and an add are two. None where the level does not multiply that kind.
        """
        return self._native.peak_multiplies(kind) or None

    def expert_cache_stats(self) -> ExpertCacheStats | None:
        figures = self._native.expert_cache_stats()
        return None if figures is None else ExpertCacheStats(*figures)

    def vector(self, tensor: Tensor, *, offset: float = 0.0) -> F32:
        return f32_vector(tensor, offset)

    def linear_weight(
        self, parts: Sequence[Tensor], *, bias: Sequence[Tensor | None] | None = None
    ) -> LinearWeight:
        codec, width = fused_codec(parts)
        order = fused_order(parts)
        packed = self._native.pack(
            [_matrix_rows(part, ordered=True) for part in parts], stacked_bias(parts, bias)
        )
        return LinearWeight(
            out_features=sum(part.shape[0] for part in parts),
            in_features=width,
            codec=codec,
            nbytes=packed.nbytes,
            packed=packed,
            column_order=order,
        )

    def expert_weight(
        self,
        experts: Sequence[Sequence[Tensor]],
        *,
        bias: Sequence[Sequence[Tensor | None]] | None = None,
    ) -> ExpertWeight:
        codec, out, width = expert_shape(experts, bias)
        # One alone is an expert of every token: whatever the cache holds, a step needs it.
        mapped = self._caches_experts and len(experts) > 1
        give = self._native.map_experts if mapped else self._native.pack_experts
        packed = give(
            [[_matrix_rows(part, read_now=not mapped) for part in parts] for parts in experts],
            expert_biases(experts, bias),
        )
        return ExpertWeight(
            num_experts=len(experts),
            out_features=out,
            in_features=width,
            codec=codec,
            nbytes=packed.nbytes,
            packed=packed,
        )

    def head_weight(self, heads: Sequence[Tensor]) -> HeadWeight:
        codec, out, width = head_shape(heads)
        packed = self._native.pack_experts([[_matrix_rows(head)] for head in heads], None)
        return HeadWeight(
            num_heads=len(heads),
            out_features=out,
            in_features=width,
            codec=codec,
            nbytes=packed.nbytes,
            packed=packed,
        )

    def embedding_weight(self, tensor: Tensor) -> EmbeddingWeight:
        # Of FP8 some rows a step are decoded here: kernels read values and scales in one piece.
        table = tensor if isinstance(tensor, ScaledTensor) else _rows(tensor)
        return EmbeddingWeight(tensor.shape[0], tensor.shape[-1], tensor.codec.name, table)


def _rows(tensor: Tensor, *, ordered: bool = False) -> _native.Rows:
    """The stored rows of a matrix for the native side, which keeps their arrays alive."""
    if len(tensor.shape) != 2:
        raise ValueError(f"{tensor.name}: shape {tensor.shape} is not that of a matrix")
    if not ordered:
        check_in_order(tensor)
    file, place = file_of(tensor.data) or (-1, 0)
    return _native.Rows(
        tensor.codec.name, tensor.shape[1], tensor.data, tensor.row_order, file, place
    )


def _matrix_rows(
    tensor: Tensor, *, ordered: bool = False, read_now: bool = True
) -> _native.MatrixRows:
    """The same of a matrix that is multiplied by, which may be stored in pieces; these are not put
    together.

    ordered: whether the caller knows of an order of columns. read_now: whether all of it is read
    now, so that it can be checked as well.
    """
    if isinstance(tensor, ScaledTensor):
        return _native.ScaledRows(tensor.data, tensor.scales, *tensor.block, tensor.row_order)
    if isinstance(tensor, TurnedTensor):
        return _native.TurnedRows(tensor.codec.name, tensor.values)
    if isinstance(tensor, SplitTensor):
        if read_now:
            tensor.check()
        return _native.SplitRows(tensor.pairs, tensor.exponents)
    return _rows(tensor, ordered=ordered)
