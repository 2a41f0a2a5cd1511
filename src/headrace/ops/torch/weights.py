"""Weights of a `TorchOps`: copied from mapped files to its device, tensor by tensor."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
import torch

from headrace.ops.device import DeviceMemory
from headrace.ops.experts import ExpertWeight
from headrace.ops.interface import Ops
from headrace.ops.operands import EmbeddingWeight, HeadWeight, LinearWeight, RopeTable
from headrace.ops.shared import (
    BLOCK,
    check_in_order,
    expert_shape,
    f32_rope_table,
    f32_vector,
    fused_codec,
    fused_order,
    head_shape,
    stacked_bias,
)
from headrace.ops.torch.device import find_device, level_of, memory_of
from headrace.ops.torch.matrices import Matrix, matrix_of, on_device
from headrace.ops.torch.rounding import FLOATS
from headrace.weights.tensors.tensor import Tensor


@dataclass(frozen=True)
class Linear:
    """Rows of a projection, and the bias that is added to their products."""

    matrix: Matrix
    bias: torch.Tensor | None = None
    order: torch.Tensor | None = None
    """int64[in]: column i of the matrix is multiplied by column order[i] of x."""


@dataclass(frozen=True)
class Stack:
    """One projection of all experts of a layer, whose rows lie one expert after another."""

    matrix: Matrix
    linears: tuple[Linear, ...]
    """Of each expert, views of the matrix."""
    bias: torch.Tensor | None
    """f32[experts, out]"""


class TorchWeights(Ops):
    """A device, and weights on it.

    A table that is looked up and multiplied by too, as a tied embedding is, lies there once: tables
    are remembered by the tensor they are of, as long as somebody holds both.
    """

    name = "torch"

    def __init__(
        self,
        device: str = "auto",
        threads: int | None = None,
        *,
        kernels: bool | None = None,
        reproducible: bool = True,
    ) -> None:
        """device: "auto", "cpu", "cuda" or "cuda:N". threads: of torch in this process, on a
        processor; None leaves them as they are. kernels: whether those in Triton compute what they
        can; None: on a CUDA device, where Triton is installed. reproducible: whether a row's result
        is the same in every batch; else libraries are handed all rows at once. Raises ConfigError
        for a device that is not there.
        """
        self.device = find_device(device)
        if kernels is None:
            kernels = self.device.type == "cuda" and find_spec("triton") is not None
        self.kernels = kernels
        self.reproducible = reproducible
        self._tables = weakref.WeakKeyDictionary[Tensor, weakref.ref[Matrix]]()
        self.level = level_of(self.device)
        if threads is not None and self.device.type == "cpu":
            torch.set_num_threads(threads)
        self.num_threads = torch.get_num_threads() if self.device.type == "cpu" else 1

    def memory(self) -> DeviceMemory | None:
        return memory_of(self.device)

    def vector(self, tensor: Tensor, *, offset: float = 0.0) -> torch.Tensor:
        return on_device(f32_vector(tensor, offset), self.device)

    def linear_weight(
        self, parts: Sequence[Tensor], *, bias: Sequence[Tensor | None] | None = None
    ) -> LinearWeight:
        codec, width = fused_codec(parts)
        order = fused_order(parts)
        linear = self._linear(parts, stacked_bias(parts, bias), order)
        return LinearWeight(
            out_features=len(linear.matrix.data),
            in_features=width,
            codec=codec,
            nbytes=linear.matrix.nbytes,
            packed=linear,
            column_order=order,
        )

    def _linear(
        self,
        parts: Sequence[Tensor],
        bias: npt.NDArray[np.float32] | None = None,
        order: npt.NDArray[np.int32] | None = None,
    ) -> Linear:
        _check_width(parts[0])
        return Linear(
            self._matrix(parts),
            None if bias is None else on_device(bias, self.device),
            None if order is None else on_device(order, self.device).long(),
        )

    def _matrix(self, parts: Sequence[Tensor]) -> Matrix:
        if len(parts) == 1 and (known := self._tables.get(parts[0])) is not None:
            table = known()
            if table is not None:
                return table
        return self._copied(parts)

    def _copied(self, parts: Sequence[Tensor]) -> Matrix:
        kernels, reproducible = self.kernels, self.reproducible
        return matrix_of(parts, self.device, kernels=kernels, reproducible=reproducible)

    def expert_weight(
        self,
        experts: Sequence[Sequence[Tensor]],
        *,
        bias: Sequence[Sequence[Tensor | None]] | None = None,
    ) -> ExpertWeight:
        codec, out, width = expert_shape(experts, bias)
        _check_width(experts[0][0])
        parts = [part for of_expert in experts for part in of_expert]
        matrix = self._copied(parts)
        vectors = None
        if bias is not None:
            of_experts = [stacked_bias(*each) for each in zip(experts, bias, strict=True)]
            if any(expert is not None for expert in of_experts):
                none = np.zeros(out, np.float32)
                whole = np.stack([none if expert is None else expert for expert in of_experts])
                vectors = on_device(whole, self.device)
        linears = tuple(
            Linear(matrix.part(at * out, out), None if vectors is None else vectors[at])
            for at in range(len(experts))
        )
        return ExpertWeight(
            num_experts=len(linears),
            out_features=out,
            in_features=width,
            codec=codec,
            nbytes=matrix.nbytes,
            packed=Stack(matrix, linears, vectors),
        )

    def head_weight(self, heads: Sequence[Tensor]) -> HeadWeight:
        codec, out, width = head_shape(heads)
        for head in heads:
            check_in_order(head)
        weights = tuple(self._linear([head]) for head in heads)
        return HeadWeight(
            num_heads=len(weights),
            out_features=out,
            in_features=width,
            codec=codec,
            nbytes=sum(weight.matrix.nbytes for weight in weights),
            packed=weights,
        )

    def embedding_weight(self, tensor: Tensor) -> EmbeddingWeight:
        if len(tensor.shape) != 2:
            raise ValueError(f"{tensor.name}: shape {tensor.shape} is not that of a table")
        check_in_order(tensor)
        table = self._matrix([tensor])
        self._tables[tensor] = weakref.ref(table)
        return EmbeddingWeight(tensor.shape[0], tensor.shape[1], tensor.codec.name, table)

    def rope_table(
        self,
        inv_freq: npt.NDArray[np.float64],
        positions: int,
        *,
        attention_factor: float = 1.0,
    ) -> RopeTable:
        table = f32_rope_table(inv_freq, positions, attention_factor)
        cos, sin = on_device(table.cos, self.device), on_device(table.sin, self.device)
        return RopeTable(cos, sin, table.rotary_dim)


def _check_width(part: Tensor) -> None:
    width = part.shape[1]
    if part.codec.name not in FLOATS and width % BLOCK:
        raise ValueError(f"{part.name}: width {width} is not a multiple of {BLOCK}")
