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
from headrace.models import FAMILIES, DecoderConfig, read_shape
from headrace.models.visible import visible_of
from headrace.weights.model_config.text_part import text_config

_EXPERT_FIELDS = (
    "num_experts", "expert_layers", "experts_per_token", "moe_intermediate_size", "shared_experts",
    "shared_expert_intermediate_size",
)  # fmt: skip


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
    chunked: bool
    """Whether these are the tokens of its chunk, not the last before it."""
    shared: bool
    """Whether another layer keeps what these read."""


@dataclass(frozen=True)
class DeclaredExperts:
    """Experts of the layers that have any."""

    layers: int
    experts: int
    """Of each of these layers."""
    experts_per_token: int
    width: int
    shared_width: int
    """Of what every token meets beside the chosen; 0 where there is nothing."""


@dataclass(frozen=True)
class DeclaredLayers:
    """The layers of a model that the engine knows."""

    attention: Mapping[DeclaredAttention, int]
    """With the number of layers of each."""
    mlp_widths: Mapping[int, int]
    """Layers by the width of their MLP, where these differ; else empty."""
    intermediate_size: int
    experts: DeclaredExperts | None
    """None where no layer has any."""
    looked_up_values: int
    """Of tables that are only looked up, beside that of the embeddings."""
    other_values: int
    """Of matrices outside attention, MLPs and the head."""


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
    return DeclaredLayers(
        attention,
        widths,
        read.intermediate_size,
        _experts(read),
        read.looked_up_values + _position_values(read),
        read.other_values,
    )


def _experts(read: DecoderConfig) -> DeclaredExperts | None:
    experts = read.experts
    if experts is None or not any(experts.layers):
        return None
    return DeclaredExperts(
        layers=sum(experts.layers),
        experts=experts.routing.num_experts,
        experts_per_token=experts.routing.experts_per_token,
        width=experts.intermediate_size,
        shared_width=experts.shared_size,
    )


def _position_values(read: DecoderConfig) -> int:
    """Of the table of learned positions; 0 in models without."""
    learned = FAMILIES[read.model_type].positions_name is not None
    return read.max_positions * read.hidden_size if learned else 0


def with_declared(fields: Mapping[str, Any], declared: DeclaredLayers) -> dict[str, Any]:
    """The catalog's fields of a config, with what the engine says of MLPs and experts."""
    found = dict(fields)
    if declared.intermediate_size:
        found["intermediate_size"] = declared.intermediate_size
    for key in _EXPERT_FIELDS:
        found.pop(key, None)
    experts = declared.experts
    if experts is None:
        return found
    found |= {
        "num_experts": experts.experts,
        "expert_layers": experts.layers,
        "experts_per_token": experts.experts_per_token,
        "moe_intermediate_size": experts.width,
    }
    if experts.shared_width:
        found["shared_experts"] = max(1, experts.shared_width // experts.width)
        found["shared_expert_intermediate_size"] = experts.shared_width
    return found


def _attention(read: DecoderConfig, layer: int) -> DeclaredAttention:
    shape = read.attention_of(layer)
    visible = visible_of(shape)
    return DeclaredAttention(
        heads=shape.num_heads,
        kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        value_head_dim=shape.value_dim or shape.head_dim,
        latent=shape.latent,
        window_tokens=visible.reach or None,
        chunked=visible.chunked,
        shared=read.kv_source_of(layer) != layer,
    )
