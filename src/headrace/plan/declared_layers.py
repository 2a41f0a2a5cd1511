"""What a config's layers keep, as the engine's own families declare it.

`plan` and engine then speak of the same cache: which layers have a window or a chunk, which share,
how many heads there are where no key or a misleading one says it. Weights may be stored in any way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import UnsupportedModelError
from headrace.models import DecoderConfig, read_shape
from headrace.weights.text_part import text_config


@dataclass(frozen=True)
class DeclaredAttention:
    """Attention of layers that keep and read the same."""

    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    latent: bool
    """Whether a token's one vector is both key and value."""
    window_tokens: int | None
    """Positions that a token reads; None for all."""
    shared: bool
    """Whether another layer keeps what these read."""


@dataclass(frozen=True)
class DeclaredLayers:
    """The layers of a model that the engine knows."""

    attention: Mapping[DeclaredAttention, int]
    """With the number of layers of each."""
    mlp_widths: Mapping[int, int]
    """Layers by the width of their MLP, where these differ; else empty."""
    intermediate_size: int


def declared_layers(config: Mapping[str, Any]) -> DeclaredLayers | None:
    """The layers of a config.json; None where no family of the engine reads it."""
    try:
        read = read_shape(text_config(config))
    except UnsupportedModelError:
        return None
    attention = Counter[DeclaredAttention]()
    for layer in range(read.num_layers):
        if not read.attends or read.attends[layer]:
            attention[_attention(read, layer)] += 1
    widths = Counter(width for width in read.mlp_widths if width)
    windows_first = sorted(attention, key=lambda kind: kind.window_tokens is None)
    attention = Counter({kind: attention[kind] for kind in windows_first})
    return DeclaredLayers(attention, widths, read.intermediate_size)


def _attention(read: DecoderConfig, layer: int) -> DeclaredAttention:
    shape = read.attention_of(layer)
    return DeclaredAttention(
        heads=shape.num_heads,
        kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        value_head_dim=shape.value_dim or shape.head_dim,
        latent=shape.latent,
        window_tokens=shape.reach or None,
        shared=read.kv_source_of(layer) != layer,
    )
