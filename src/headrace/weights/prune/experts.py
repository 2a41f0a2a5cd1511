"""Experts that go: their matrices are left out, and so are their rows of what chooses among them.

Those that stay keep their order, so a token whose experts all stay is computed as before. Every
layer keeps as many, since files state one number for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.architectures import Architecture, architecture_of_config
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import BF16, F16, F32
from headrace.weights.tensors.tensor import Tensor

_COUNT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Words of config.json for the number of experts in a layer."""
_PER_EXPERT = ("exp_probs_b.bias", "ffn_down_exps.scale")
"""Vectors of GGUF files with a value for each expert: what is added for the choice, and factors."""
_NUMBERS = (F32, F16, BF16)


def with_experts(
    checkpoint: Checkpoint, kept: Mapping[int, Sequence[int]], before: int
) -> Checkpoint:
    """`checkpoint` with the experts `kept` of each layer, which had `before` of them.

    kept: numbers in ascending order, as many in each layer; every layer with experts is named.
    Raises CheckpointError for a router of another form, UnsupportedModelError where the config
    does not state the number of experts under a known name.
    """
    architecture = architecture_of_config(checkpoint.config.get("model_type"))
    places = {
        layer: {number: place for place, number in enumerate(numbers)}
        for layer, numbers in kept.items()
    }
    tensors: dict[str, Tensor] = {}
    for name, tensor in checkpoint.tensors.items():
        place = architecture.in_layer(name)
        if place is None or place[0] not in kept:
            tensors[name] = tensor
            continue
        layer = place[0]
        expert = architecture.expert_place(name)
        if expert is not None:
            new = places[layer].get(expert[1])
            if new is not None:
                renamed = _renumbered(architecture, name, expert, new)
                tensors[renamed] = tensor.renamed(renamed)
        elif _chooses(architecture, place[1]):
            tensors[name] = _rows(tensor, kept[layer], before)
        else:
            tensors[name] = tensor
    config = _with_count(checkpoint, before, len(next(iter(kept.values()))))
    return replace(checkpoint, tensors=tensors, config=config)


def expert_layers(checkpoint: Checkpoint) -> frozenset[int]:
    """The layers that hold experts, those behind the model's own included."""
    architecture = architecture_of_config(checkpoint.config.get("model_type"))
    found = set()
    for name in checkpoint.tensors:
        place = architecture.in_layer(name)
        if place is not None and architecture.expert_place(name) is not None:
            found.add(place[0])
    return frozenset(found)


def _renumbered(architecture: Architecture, name: str, expert: tuple[str, int], number: int) -> str:
    stack, old = expert
    head, _, tail = name.rpartition(f".{old}.")
    renamed = f"{head}.{number}.{tail}"
    if architecture.expert_place(renamed) != (stack, number):
        raise CheckpointError(f"tensor {name!r} is not one of an expert with a number of its own")
    return renamed


def _chooses(architecture: Architecture, name: str) -> bool:
    """Whether a tensor, by its name in a layer, has a row or a value for each expert."""
    of_choice = {architecture.vectors.get(vector) for vector in _PER_EXPERT}
    return name.rpartition(".")[0] in architecture.routers or name in of_choice


def _rows(tensor: Tensor, kept: Sequence[int], before: int) -> Tensor:
    """Rows of a router, or values of a vector, which may be stored as a matrix of one row."""
    sizes = tensor.shape
    axis = 0 if sizes[:1] == (before,) else len(sizes) - 1
    if len(sizes) not in (1, 2) or sizes[axis] != before:
        raise CheckpointError(
            f"tensor {tensor.name!r} has shape {list(sizes)}; a row for each of {before} experts "
            "is required"
        )
    values = np.ascontiguousarray(np.take(tensor.to_f32(), kept, axis=axis))
    # Their values survive being decoded; a router of another kind is small enough for F32.
    codec = tensor.codec if tensor.codec in _NUMBERS else F32
    return Tensor(tensor.name, values.shape, codec, codec.encode(np.atleast_2d(values)))


def _with_count(checkpoint: Checkpoint, before: int, after: int) -> dict[str, Any]:
    config = dict(checkpoint.config)
    named = [key for key in _COUNT_KEYS if config.get(key) == before]
    if not named:
        raise UnsupportedModelError(
            f"{checkpoint.path}: the config states {before} experts under none of "
            f"{', '.join(_COUNT_KEYS)}; models that do not cannot be pruned yet"
        )
    return config | dict.fromkeys(named, after)
