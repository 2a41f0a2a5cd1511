"""Language models: what their size in memory and their work per token are computed from."""

from __future__ import annotations

import datetime as dt
from typing import Literal

import msgspec

from headrace.catalog.rows.row import Count, Figure, Parameters, Row, Tokens

Attention = Literal["mha", "gqa", "mqa", "mla", "state-space", "hybrid", "undisclosed"]


class Model(Row, frozen=True, kw_only=True):
    """A model, open or behind an API."""

    developer: str | None = None
    family: str | None = None
    architecture: str | None = None
    licence: str | None = None
    open_weights: bool | None = None
    checkpoints: dict[str, str] = msgspec.field(default_factory=dict)
    """By kind of weights, the maker's repository on the hub with the model tuned to follow
    instructions; none of a model that is published untuned.
    """
    remote_code: bool | None = None
    """Whether runtimes need a setting that lets them run the checkpoint's own code."""
    made_for: tuple[str, ...] = ()
    """Tasks; empty for a generalist."""
    released: dt.date | None = None
    modalities: tuple[str, ...] = ()
    total_parameters: Parameters | None = None
    active_parameters: Parameters | None = None
    """Those that one token meets; of a dense model all."""
    attention: Attention | None = None
    """How keys and values are held; "hybrid" has layers of several kinds, which the counts of
    layers below tell apart.
    """
    num_layers: Count | None = None
    """Blocks with a mixer; of hybrids, the kinds add up to it."""
    hidden_size: Count | None = None
    num_attention_heads: Count | None = None
    num_kv_heads: Count | None = None
    head_dim: Count | None = None
    value_head_dim: Count | None = None
    intermediate_size: Count | None = None
    vocabulary_tokens: Tokens | None = None
    tied_embeddings: bool | None = None
    context_tokens: Tokens | None = None
    """Without stretching."""
    extended_context_tokens: Tokens | None = None
    """With the method in `extension`."""
    extension: str | None = None
    max_output_tokens: Tokens | None = None
    num_experts: Count | None = None
    experts_per_token: Count | None = None
    shared_experts: Count | None = None
    moe_intermediate_size: Count | None = None
    """Of one routed expert."""
    shared_expert_intermediate_size: Count | None = None
    routed_expert_hidden_size: Count | None = None
    """Width of what routed experts take and give, where it is not hidden_size."""
    expert_layers: Count | None = None
    """Blocks with experts."""
    routing: str | None = None
    kv_lora_rank: Count | None = None
    """Of latent attention (MLA), which keeps kv_lora_rank + qk_rope_head_dim values per token and
    layer.
    """
    q_lora_rank: Count | None = None
    qk_rope_head_dim: Count | None = None
    qk_nope_head_dim: Count | None = None
    index_topk_tokens: Tokens | None = None
    sliding_window_tokens: Tokens | None = None
    """Of the `sliding_layers`; of all layers where that count is absent."""
    sliding_layers: Count | None = None
    chunked_attention_tokens: Tokens | None = None
    full_attention_layers: Count | None = None
    global_kv_heads: Count | None = None
    global_head_dim: Count | None = None
    linear_attention_layers: Count | None = None
    linear_key_heads: Count | None = None
    linear_value_heads: Count | None = None
    linear_key_head_dim: Count | None = None
    linear_value_head_dim: Count | None = None
    linear_conv_tokens: Tokens | None = None
    state_space_layers: Count | None = None
    state_space_heads: Count | None = None
    state_space_head_dim: Count | None = None
    state_size: Count | None = None
    state_groups: Count | None = None
    local_fit: str | None = None
    best_for: str | None = None
    figures: dict[str, Figure] = msgspec.field(default_factory=dict)
