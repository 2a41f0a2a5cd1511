"""Experts on the processor and the rest on a device: a backend made of two.

Only the experts that routers choose from are placed, as llama.cpp's --cpu-moe and --n-cpu-moe do:
they are most of such a model's bytes, and a token reads few of them. Routers, shared experts and
all else stay on the device. A layer whose experts are placed costs one copy each way: its rows with
their choices go to the processor, the weighted sums come back, where the residual is added.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from headrace.ops.device import Fault
from headrace.ops.experts import ExpertCacheStats, ExpertMLP, ExpertWeight, Routes
from headrace.ops.interface import Ops
from headrace.ops.operands import Array
from headrace.weights.tensors.tensor import Tensor

ALL_LAYERS = 1 << 16
"""Stands for the experts of every layer: more layers than any model has."""

_EXPERT = re.compile(r".*\.layers\.(\d{1,5})\.(?:.*\.)?experts\.\d+\..+", re.ASCII)


def layer_of_expert(name: str) -> int | None:
    """The layer of a tensor that is of one of its numbered experts; None for any other tensor."""
    match = _EXPERT.fullmatch(name)
    return None if match is None else int(match[1])


@dataclass(frozen=True)
class _Placed:
    """`ExpertWeight.packed` of experts that are on the processor."""

    weight: ExpertWeight
    """The other backend's own."""


class PlacedOps:
    """The operations of `rest`, with the experts of layers below `layers` computed by `experts`.

    It has what a backend has, by way of __getattr__; `with_experts` gives it as one.
    """

    def __init__(self, rest: Ops, experts: Ops, layers: int) -> None:
        self._rest = rest
        self._experts = experts
        self._layers = layers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rest, name)

    @property
    def expert_layers(self) -> int:
        """Layers, from the first on, whose experts are not computed where the rest is."""
        return self._layers

    @property
    def is_asynchronous(self) -> bool:
        """Never: the host computes in the middle of a step."""
        return False

    def expert_cache_stats(self) -> ExpertCacheStats | None:
        """Of the backend that has the placed experts."""
        return self._experts.expert_cache_stats()

    @property
    def recording(self) -> Literal["none"]:
        """Nothing is recorded: the host computes in the middle of a step."""
        return "none"

    def fault_of(self, error: Exception) -> Fault | None:
        """Of either backend."""
        return self._rest.fault_of(error) or self._experts.fault_of(error)

    def expert_weight(
        self,
        experts: Sequence[Sequence[Tensor]],
        *,
        bias: Sequence[Sequence[Tensor | None]] | None = None,
    ) -> ExpertWeight:
        """As of the backend that will compute them."""
        layer = layer_of_expert(experts[0][0].name)
        # The only one of a layer is chosen by nobody: every token reads it.
        if layer is None or layer >= self._layers or len(experts) == 1:
            return self._rest.expert_weight(experts, bias=bias)
        weight = self._experts.expert_weight(experts, bias=bias)
        return replace(weight, packed=_Placed(weight))

    def experts(
        self,
        x: Array,
        mlp: ExpertMLP,
        routes: Routes,
        *,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        """Where they are; the residual is added where x is, rounded as there."""
        gate_up, down = mlp.gate_up.packed, mlp.down.packed
        if not isinstance(gate_up, _Placed) or not isinstance(down, _Placed):
            return self._rest.experts(x, mlp, routes, residual=residual, scale=scale)
        there = replace(mlp, gate_up=gate_up.weight, down=down.weight)
        rows, chosen, weights = self._rest.host_rows([x, routes.experts, routes.weights])
        added = self._experts.experts(rows, there, Routes(chosen, weights), scale=scale)
        result = self._rest.from_host(self._experts.host(added))
        return result if residual is None else self._rest.added(residual, result)


def with_experts(rest: Ops, experts: Ops, layers: int) -> Ops:
    """A backend that computes what `rest` does, and with `experts`, whose arrays are NumPy's, the
    experts of the first `layers` layers; of all with ALL_LAYERS.
    """
    return cast(Ops, PlacedOps(rest, experts, layers))
