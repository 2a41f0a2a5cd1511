"""The metadata of a pruned GGUF file, where it is not what the source says.

A folder that becomes a file needs none of it: its metadata is made of the config.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.errors import UnsupportedModelError, shown
from headrace.weights.architectures import architecture_of_config
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.gguf.values import Metadata, Typed

_EXPERTS, _LAYERS, _DENSE = "expert_count", "block_count", "leading_dense_block_count"


def expert_entries(checkpoint: Checkpoint, count: int) -> dict[str, Typed]:
    """Entries of a file with `count` experts in a layer; none for a folder."""
    metadata = checkpoint.metadata
    if not isinstance(metadata, Metadata):
        return {}
    key = f"{architecture_of_config(checkpoint.config.get('model_type')).name}.{_EXPERTS}"
    return {key: _with_number(metadata, key, count)}


def layer_entries(checkpoint: Checkpoint, kept: Sequence[int]) -> dict[str, Typed]:
    """Entries of a file with the layers `kept` alone; none for a folder.

    Lists with a value for each layer keep those of the layers that stay.
    """
    metadata = checkpoint.metadata
    if not isinstance(metadata, Metadata):
        return {}
    prefix = f"{architecture_of_config(checkpoint.config.get('model_type')).name}."
    blocks = metadata.scalar(prefix + _LAYERS)
    found = {prefix + _LAYERS: _with_number(metadata, prefix + _LAYERS, len(kept))}
    if (key := prefix + _DENSE) in metadata:
        dense = int(metadata.scalar(key))
        found[key] = _with_number(metadata, key, sum(layer < dense for layer in kept))
    for key in metadata:
        values = metadata[key] if key.startswith(prefix) else None
        if isinstance(values, np.ndarray) and len(values) == blocks:
            found[key] = metadata.typed(key)._replace(value=values[list(kept)])
    return found


def _with_number(metadata: Metadata, key: str, number: int) -> Typed:
    stated: Any = metadata.scalar(key)
    if not isinstance(stated, int):
        raise UnsupportedModelError(
            f"{metadata.path}: {key!r} is {shown(stated)}; one number for all layers is required"
        )
    return metadata.typed(key)._replace(value=number)
