"""What of a model a text uses: its experts and its layers, measured while the text is read.

Of each expert, over the tokens that chose it: how many they were, the sum of its weights w, and the
sum of the norms of what it added, w * |f(h)|. The last is REAP's saliency but for the mean: an
expert that is chosen rarely adds little over a text however large each of its outputs is.

Of each layer: 1 - cos(x, y), the mean over tokens, where x goes into it and y comes out of it with
the residual added. ShortGPT calls this a layer's block influence.

The model runs through a backend that notes which stack of experts belongs to which layer; results
are the backend's own, untouched.

Sources: Lasby et al. 2025, arXiv:2510.13999 (REAP); Men et al. 2024, arXiv:2403.03853 (ShortGPT).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from headrace.config.settings import EngineConfig
from headrace.eval.windows import WindowRunner
from headrace.models import Model, load_model
from headrace.ops.experts import ExpertMLP, ExpertWeight, Routes
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch
from headrace.ops.operands import Array
from headrace.weights.architectures import Architecture, architecture_of_config
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.tensors.tensor import Tensor

Floats = npt.NDArray[np.float64]
Measure = Literal["count", "weight", "output"]
MEASURES: tuple[Measure, ...] = get_args(Measure)


@dataclass(frozen=True)
class ExpertUsage:
    """Sums over the tokens that chose each expert of one layer; float64[experts] each."""

    count: Floats
    """Tokens that chose each."""
    weight: Floats
    """Sums of the weights they gave it."""
    output: Floats
    """Sums of the norms of what it added."""

    def by(self, measure: Measure) -> Floats:
        """The sums that `measure` names."""
        return {"count": self.count, "weight": self.weight, "output": self.output}[measure]


@dataclass(frozen=True)
class Usage:
    """The use that a text made of a model's experts and layers."""

    tokens: int
    experts: Mapping[int, ExpertUsage]
    """By layer; empty in models without experts."""
    change: tuple[float, ...]
    """Of each layer: the mean of 1 - cos between what goes in and what comes out."""


def measured_usage(
    checkpoint: Checkpoint,
    ops: Ops,
    windows: Sequence[Sequence[int]],
    *,
    cache: EngineConfig | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Usage:
    """Of `windows`, all of one length. cache: as in WindowRunner. progress: windows done and in
    all.

    Raises HeadraceError where logits are not finite, as `WindowRunner.run` does.
    """
    architecture = architecture_of_config(checkpoint.config.get("model_type"))
    recording = _RecordingOps(ops, architecture)
    # It has what a backend has, by way of __getattr__.
    backend = cast(Ops, recording)
    model = _RecordingModel(load_model(checkpoint, backend), backend)
    runner = WindowRunner(cast(Model, model), backend, len(windows[0]), cache=cache)
    for index, window in enumerate(windows):
        for _ in runner.run(index, window):
            pass
        progress(index + 1, len(windows))
    change = tuple(float(value) for value in model.change / max(1, model.tokens))
    return Usage(model.tokens, recording.usage(), change)


class _RecordingModel:
    """A model whose passes keep what goes into each layer and what comes out."""

    def __init__(self, model: Model, ops: Ops) -> None:
        self._model = model
        self._ops = ops
        self._layers = range(model.config.num_layers + 1)
        self.tokens = 0
        self.change: Floats = np.zeros(model.config.num_layers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> Array:
        """As of the model."""
        logits, features = self._model.forward_with_features(batch, kv, self._layers)
        stream = self._ops.host(features).astype(np.float64)
        stream = stream.reshape(len(stream), len(self._layers), -1)
        before, after = stream[:, :-1], stream[:, 1:]
        norms = np.linalg.norm(before, axis=2) * np.linalg.norm(after, axis=2)
        products = np.einsum("nlh,nlh->nl", before, after)
        # A stream of zeros, as padding's may be, has no direction to change.
        cosines = np.divide(products, norms, out=np.ones_like(norms), where=norms > 0)
        self.change += (1 - cosines).sum(axis=0)
        self.tokens += len(stream)
        return logits


class _RecordingOps:
    """A backend that adds up what mixtures are given; all else is its own."""

    def __init__(self, ops: Ops, architecture: Architecture) -> None:
        self._ops = ops
        self._architecture = architecture
        # By identity, with the weight itself so that no other gets its number.
        self._layer_of: dict[int, tuple[ExpertWeight, int]] = {}
        self._sums: dict[int, ExpertUsage] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def usage(self) -> Mapping[int, ExpertUsage]:
        """By layer, in order."""
        return {layer: self._sums[layer] for layer in sorted(self._sums)}

    def expert_weight(
        self,
        experts: Sequence[Sequence[Tensor]],
        *,
        bias: Sequence[Sequence[Tensor | None]] | None = None,
    ) -> ExpertWeight:
        weight = self._ops.expert_weight(experts, bias=bias)
        name = experts[0][0].name
        place = self._architecture.in_layer(name)
        # A shared expert with a gate of its own is a mixture of one that nothing chooses.
        if place is not None and self._architecture.expert_place(name) is not None:
            self._layer_of[id(weight)] = weight, place[0]
            zeros = [np.zeros(len(experts)) for _ in MEASURES]
            self._sums.setdefault(place[0], ExpertUsage(*zeros))
        return weight

    def experts(
        self,
        x: Array,
        mlp: ExpertMLP,
        routes: Routes,
        *,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        known = self._layer_of.get(id(mlp.gate_up))
        if known is not None:
            sums = self._sums[known[1]]
            for choice in range(routes.experts.shape[1]):
                single = Routes(*(self._ops.columns(each, choice, choice + 1) for each in routes))
                added = self._ops.host(self._ops.experts(x, mlp, single)).astype(np.float64)
                numbers = self._ops.host(single.experts)[:, 0]
                np.add.at(sums.count, numbers, 1)
                np.add.at(sums.weight, numbers, self._ops.host(single.weights)[:, 0])
                np.add.at(sums.output, numbers, np.linalg.norm(added, axis=1))
        return self._ops.experts(x, mlp, routes, residual=residual, scale=scale)
