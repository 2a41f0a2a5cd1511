"""Layers that go: those behind them move up, and so do their places in lists of the config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headrace.errors import UnsupportedModelError
from headrace.weights.architectures import Architecture, architecture_of_config
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.tensors.tensor import Tensor

_DENSE_KEYS = ("first_k_dense_replace", "moe_layer_start_index")
"""Words of config.json for how many layers at the start have no experts."""
_NUMBERED = ("mlp_only_layers",)
"""Lists of config.json that name layers by number."""
_NOT_BY_LAYER = ("architectures", "eos_token_id", "bos_token_id", "pad_token_id")
"""Lists of config.json that may be as long as there are layers and are of none."""


def with_layers(checkpoint: Checkpoint, kept: Sequence[int]) -> Checkpoint:
    """`checkpoint` with the layers `kept` alone, in ascending order.

    Whether the rest of the config means the same for layers that moved is the caller's to check.
    Raises UnsupportedModelError for a model with layers behind its own.
    """
    architecture = architecture_of_config(checkpoint.config.get("model_type"))
    config = dict(checkpoint.config)
    count_key = architecture.config_key("block_count")
    before = config[count_key]
    places = {layer: place for place, layer in enumerate(kept)}
    tensors: dict[str, Tensor] = {}
    for name, tensor in checkpoint.tensors.items():
        renamed = _moved(architecture, name, places, before)
        if renamed is not None:
            tensors[renamed] = tensor.renamed(renamed)
    config[count_key] = len(kept)
    for key, value in checkpoint.config.items():
        config[key] = _of_layers(key, config[key], value, kept, before)
    return replace(checkpoint, tensors=tensors, config=config)


def _moved(
    architecture: Architecture, name: str, places: dict[int, int], before: int
) -> str | None:
    place = architecture.in_layer(name)
    if place is None:
        return name
    layer, rest = place
    if layer >= before:
        raise UnsupportedModelError(
            f"tensor {name!r} is of a layer that predicts further tokens, behind the {before} of "
            "the model; such models cannot lose layers"
        )
    return f"{architecture.layers}.{places[layer]}.{rest}" if layer in places else None


def _of_layers(key: str, new: Any, value: Any, kept: Sequence[int], before: int) -> Any:
    if key in _DENSE_KEYS and isinstance(value, int):
        return sum(layer < value for layer in kept)
    if not isinstance(value, list) or key in _NOT_BY_LAYER:
        return new
    if key in _NUMBERED:
        return [place for place, layer in enumerate(kept) if layer in value]
    return [value[layer] for layer in kept] if len(value) == before else new
