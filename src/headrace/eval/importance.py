"""Importance of columns, measured: the squares of what enters every matrix while a text is read.

The model is loaded through a backend that notes which tensors each packed weight is made of, and
adds up the squares of its inputs when it is used; results are the backend's own, untouched. Inputs
of the down projections of experts exist only inside of one operation, so these are computed a
second time, with the matrices of each expert packed once more.

Left out are the embedding and the output, as llama-imatrix does, and the matrices that latent
attention has for each head.

Source: llama.cpp, tools/imatrix/imatrix.cpp (which tensors, what is summed).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from headrace.config.settings import EngineConfig
from headrace.eval.windows import WindowRunner
from headrace.models import load_model
from headrace.ops.experts import ExpertMLP, ExpertWeight, Routes
from headrace.ops.interface import Ops
from headrace.ops.operands import Array, LinearWeight, Norm
from headrace.weights.architectures import Architecture, architecture_of_config
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.quantize.importance import ColumnSums, ImportanceFile
from headrace.weights.tensors.tensor import Tensor

Parts = Sequence[Tensor]
_OUTPUT = ("output.weight", "token_embd.weight")


def measured_importance(
    checkpoint: Checkpoint,
    ops: Ops,
    windows: Sequence[Sequence[int]],
    text: str,
    *,
    cache: EngineConfig | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ImportanceFile:
    """Of `windows`, all of one length, which `text` names. cache: as in WindowRunner. progress:
    windows done and in all.

    Raises HeadraceError where logits are not finite, as `WindowRunner.run` does.
    """
    sums = _Sums(architecture_of_config(checkpoint.config.get("model_type")))
    # It has what a backend has, by way of __getattr__.
    recording = cast(Ops, _RecordingOps(ops, sums))
    model = load_model(checkpoint, recording)
    runner = WindowRunner(model, recording, len(windows[0]), cache=cache)
    for index, window in enumerate(windows):
        for _ in runner.run(index, window):
            pass
        progress(index + 1, len(windows))
    return ImportanceFile(sums.columns(), (text,), len(windows), len(windows[0]))


class _Sums:
    """Sums of squares by the names of a GGUF file, as float64 until the end."""

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture
        self._squares: dict[str, npt.NDArray[np.float64]] = {}
        self._counts: dict[str, npt.NDArray[np.float64]] = {}

    def add(self, tensor: Tensor, inputs: npt.NDArray[np.float32], matrices: int = 1) -> None:
        """Inputs f32[N, columns] of `tensor`, which is one of `matrices` of a stack."""
        place = self._architecture.expert_place(tensor.name)
        if place is None:
            name, at = self._architecture.gguf_name(tensor.name), 0
        else:
            name, at = place
        if name in _OUTPUT:
            return
        if name not in self._squares:
            self._squares[name] = np.zeros((matrices, inputs.shape[1]))
            self._counts[name] = np.zeros(matrices)
        wide = inputs.astype(np.float64)
        self._squares[name][at] += np.einsum("ij,ij->j", wide, wide)
        self._counts[name][at] += len(inputs)

    def columns(self) -> Mapping[str, ColumnSums]:
        """All sums."""
        return {
            name: ColumnSums(squares.astype(np.float32), self._counts[name].astype(np.float32))
            for name, squares in self._squares.items()
        }


class _RecordingOps:
    """A backend with the operations that multiply by matrices overridden; all else is its own."""

    def __init__(self, ops: Ops, sums: _Sums) -> None:
        self._ops = ops
        self._sums = sums
        # By identity, with the weight itself so that no other gets its number.
        self._linear: dict[int, tuple[LinearWeight, Parts]] = {}
        self._experts: dict[int, tuple[ExpertWeight, Sequence[Parts]]] = {}
        self._single: dict[int, list[LinearWeight]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def linear_weight(
        self, parts: Parts, *, bias: Sequence[Tensor | None] | None = None
    ) -> LinearWeight:
        weight = self._ops.linear_weight(parts, bias=bias)
        self._linear[id(weight)] = weight, parts
        return weight

    def expert_weight(
        self,
        experts: Sequence[Parts],
        *,
        bias: Sequence[Sequence[Tensor | None]] | None = None,
    ) -> ExpertWeight:
        weight = self._ops.expert_weight(experts, bias=bias)
        self._experts[id(weight)] = weight, experts
        self._single[id(weight)] = [
            self._ops.linear_weight(parts, bias=None if bias is None else bias[index])
            for index, parts in enumerate(experts)
        ]
        return weight

    def linear(
        self,
        x: Array,
        weight: LinearWeight,
        *,
        norm: Norm | None = None,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        known = self._linear.get(id(weight))
        if known is not None and len(x):
            inputs = self._ops.host(x if norm is None else self._ops.norm(x, norm))
            for part in known[1]:
                self._sums.add(part, inputs)
        return self._ops.linear(x, weight, norm=norm, residual=residual, scale=scale)

    def experts(
        self,
        x: Array,
        mlp: ExpertMLP,
        routes: Routes,
        *,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        experts, weights = self._ops.host(routes.experts), self._ops.host(routes.weights)
        for expert in np.unique(experts):
            rows, choice = np.nonzero(experts == expert)
            inputs = self._ops.take_rows(x, rows.astype(np.int32))
            if mlp.weigh_input:
                self._ops.scale_rows(inputs, weights[rows, choice], columns=inputs.shape[1])
            self._record(mlp, int(expert), inputs)
        return self._ops.experts(x, mlp, routes, residual=residual, scale=scale)

    def _record(self, mlp: ExpertMLP, expert: int, inputs: Array) -> None:
        count = mlp.gate_up.num_experts
        for part in self._experts[id(mlp.gate_up)][1][expert]:
            self._sums.add(part, self._ops.host(inputs), count)
        both = self._ops.linear(inputs, self._single[id(mlp.gate_up)][expert])
        inner = self._ops.gated_activation(both, mlp.activation, limit=mlp.limit)
        for part in self._experts[id(mlp.down)][1][expert]:
            self._sums.add(part, self._ops.host(inner), count)
