"""Layers from the fields that a model's row in the catalog has, with the weights of each.

Counts follow the published definitions of the architectures; norms of a layer are with its mixer.
Biases are left out but for those of the widest matrices: they are under a thousandth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.errors import ConfigError
from headrace.plan.model.declared_layers import DeclaredAttention, DeclaredLayers
from headrace.plan.model.layer_shape import (
    AttentionKind,
    AttentionLayers,
    DenseLayers,
    ExpertLayers,
    LayerKind,
    StateLayers,
)

# Two matrices instead of three: no gate. Whole names: Phi-3 and Falcon-H1 have gates.
_PLAIN_FFN = frozenset(
    {
        "arcee", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "mpt", "nemotron_h", "opt",
        "phi", "starcoder2",
    }
)  # fmt: skip
# A dense layer beside the experts in every block.
_DENSE_BESIDE_EXPERTS = ("gemma4",)
# Full attention whose queries carry a gate as wide as themselves.
_GATED_QUERIES = ("qwen3_5", "qwen3_next")
_QUERY_KEY_NORMS = ("qwen3", "gemma3", "gemma4")
_CONV_TOKENS = 4
_MAMBA1_EXPAND = 2


def layers_of(
    fields: Mapping[str, Any], name: str, declared: DeclaredLayers | None = None
) -> tuple[tuple[LayerKind, ...], list[str]]:
    """Kinds of layers with counts, and notes on what the fields leave open.

    fields: as `catalog.rows.Model` names them; absent ones are not known. declared: what the
    engine says of the layers, which then holds. Raises ConfigError
    naming the fields that are required and lack.
    """
    missing = [key for key in ("num_layers", "hidden_size") if not fields.get(key)]
    if missing:
        raise ConfigError(f"{name}: {' and '.join(missing)} of the model are not known")
    notes: list[str] = []
    if declared is not None:
        attention = [
            _declared_attention(fields, name, kind, count, notes)
            for kind, count in declared.attention.items()
        ]
        return (
            *attention,
            *_feed_forward(fields, name, [*attention], False, notes, declared),
        ), notes
    mixers: list[AttentionLayers | StateLayers] = [
        *_attention(fields, name, notes),
        *_states(fields, name, notes),
    ]
    alone = sum(layer.count for layer in mixers) < fields["num_layers"]
    return (*mixers, *_feed_forward(fields, name, mixers, alone, notes)), notes


def _attention(fields: Mapping[str, Any], name: str, notes: list[str]) -> list[AttentionLayers]:
    said = {key: fields.get(key) for key in _KINDS}
    others = (said["linear_attention_layers"] or 0) + (said["state_space_layers"] or 0)
    sliding, full = said["sliding_layers"], said["full_attention_layers"]
    window = fields.get("sliding_window_tokens")
    if (sliding or full) and window is None:
        window = fields.get("chunked_attention_tokens")
    if fields.get("attention") == "state-space":
        return []
    if sliding is None and full is None:
        count = fields["num_layers"] - others
        return [_attention_layers(fields, name, count, window, notes)] if count else []
    found = []
    if sliding is None and window and full is not None:
        sliding = fields["num_layers"] - full - others
    if sliding:
        found.append(_attention_layers(fields, name, sliding, window, notes))
        if window is None:
            notes.append("the window of sliding layers is not stated; they are counted in full")
    if full is None and sliding is not None:
        full = fields["num_layers"] - sliding - others
    if full:
        wide = dict(fields)
        wide["num_kv_heads"] = fields.get("global_kv_heads") or fields.get("num_kv_heads")
        wide["head_dim"] = fields.get("global_head_dim") or fields.get("head_dim")
        found.append(_attention_layers(wide, name, full, None, notes))
    if fields.get("chunked_attention_tokens") and sliding is None:
        notes.append("chunked attention is counted in full, as runtimes keep it: an upper bound")
    return found


def _declared_attention(
    fields: Mapping[str, Any], name: str, kind: DeclaredAttention, count: int, notes: list[str]
) -> AttentionLayers:
    sizes = {"num_attention_heads": kind.heads}
    if not kind.latent:
        sizes |= {
            "num_kv_heads": kind.kv_heads,
            "head_dim": kind.head_dim,
            "value_head_dim": kind.value_head_dim,
            "kv_lora_rank": 0,
        }
    layer = _attention_layers({**fields, **sizes}, name, count, kind.window_tokens, notes)
    layer = replace(layer, chunked=kind.chunked)
    if not kind.shared:
        return layer
    unused = fields["hidden_size"] * layer.values_per_token
    return replace(layer, shared=True, parameters=layer.parameters - unused)


_KINDS = (
    "sliding_layers", "full_attention_layers", "linear_attention_layers", "state_space_layers",
)  # fmt: skip


def _attention_layers(
    fields: Mapping[str, Any], name: str, count: int, window: int | None, notes: list[str]
) -> AttentionLayers:
    hidden, heads = fields["hidden_size"], fields.get("num_attention_heads")
    if not heads:
        raise ConfigError(f"{name}: num_attention_heads of the model is not known")
    rank = fields.get("kv_lora_rank")
    if rank:
        return _latent_layers(fields, name, count, window)
    kv_heads = fields.get("num_kv_heads") or heads
    head_dim = fields.get("head_dim") or hidden // heads
    value_dim = fields.get("value_head_dim") or head_dim
    kind: AttentionKind = "gqa"
    if kv_heads == heads:
        kind = "mha"
    elif kv_heads == 1:
        kind = "mqa"
    architecture = str(fields.get("architecture") or "")
    gated = fields.get("attention_output_gate") or architecture.startswith(_GATED_QUERIES)
    queries = heads * head_dim * (2 if gated else 1)
    keys_values = kv_heads * (head_dim + value_dim)
    norms = 2 * hidden + (2 * head_dim if architecture.startswith(_QUERY_KEY_NORMS) else 0)
    return AttentionLayers(
        count=count,
        kind=kind,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_head_dim=value_dim,
        window_tokens=window,
        parameters=hidden * (queries + keys_values + heads * value_dim) + norms,
    )


def _latent_layers(
    fields: Mapping[str, Any], name: str, count: int, window: int | None
) -> AttentionLayers:
    needed = ("qk_rope_head_dim", "qk_nope_head_dim", "value_head_dim")
    if missing := [key for key in needed if not fields.get(key)]:
        raise ConfigError(f"{name}: latent attention needs {', '.join(missing)}, not known of it")
    hidden, heads, rank = (
        fields["hidden_size"],
        fields["num_attention_heads"],
        fields["kv_lora_rank"],
    )
    rope, nope, value = (fields[key] for key in needed)
    q_rank = fields.get("q_lora_rank")
    wide = heads * (nope + rope)
    queries = hidden * q_rank + q_rank * wide + q_rank if q_rank else hidden * wide
    latent = hidden * (rank + rope) + rank * heads * (nope + value) + rank
    return AttentionLayers(
        count=count,
        kind="mla",
        heads=heads,
        kv_heads=1,
        head_dim=nope + rope,
        value_head_dim=value,
        window_tokens=window,
        q_lora_rank=q_rank,
        kv_lora_rank=rank,
        rope_head_dim=rope,
        parameters=queries + latent + heads * value * hidden + 2 * hidden,
    )


def _states(fields: Mapping[str, Any], name: str, notes: list[str]) -> list[StateLayers]:
    found = []
    if count := fields.get("linear_attention_layers"):
        found.append(_linear_layers(fields, count, notes))
    count = fields.get("state_space_layers")
    if count is None and fields.get("attention") == "state-space":
        count = fields["num_layers"]
    if count:
        found.append(_state_space_layers(fields, count, notes))
    return found


def _linear_layers(fields: Mapping[str, Any], count: int, notes: list[str]) -> StateLayers:
    """Gated delta rule and its kin: a matrix of key by value size for each value head."""
    hidden = fields["hidden_size"]
    sizes: list[Any] = [fields.get(f"linear_{one}") for one in ("key_heads", "value_heads")]
    dims: list[Any] = [fields.get(f"linear_{one}_head_dim") for one in ("key", "value")]
    if not all(sizes) or not all(dims):
        notes.append(f"the states of {count} linear layers are not stated, and not counted")
        return StateLayers(count, "unknown", 0, 0, 4 * hidden * hidden)
    key, value = sizes[0] * dims[0], sizes[1] * dims[1]
    conv = fields.get("linear_conv_tokens") or _CONV_TOKENS
    channels = 2 * key + value
    weights = hidden * (2 * key + 3 * value + 2 * sizes[1]) + channels * conv
    norms = 2 * hidden + 2 * sizes[1] + dims[1]
    return StateLayers(
        count, "linear", sizes[1] * dims[0] * dims[1], channels * (conv - 1), weights + norms
    )


def _state_space_layers(fields: Mapping[str, Any], count: int, notes: list[str]) -> StateLayers:
    """Mamba: with heads the second kind of it, without them the first."""
    hidden, state = fields["hidden_size"], fields.get("state_size")
    if not state:
        notes.append(f"the states of {count} recurrent layers are not stated, and not counted")
        return StateLayers(count, "unknown", 0, 0, 4 * hidden * hidden)
    heads, head_dim = fields.get("state_space_heads"), fields.get("state_space_head_dim")
    kept = _CONV_TOKENS - 1
    if heads and head_dim:
        inner = heads * head_dim
        channels = inner + 2 * (fields.get("state_groups") or 1) * state
        weights = hidden * (inner + channels + heads) + inner * hidden + channels * _CONV_TOKENS
        return StateLayers(
            count, "state-space", inner * state, channels * kept, weights + inner + hidden
        )
    inner = _MAMBA1_EXPAND * hidden
    rank = -(-hidden // 16)
    weights = 3 * hidden * inner + inner * (2 * rank + 3 * state) + inner * (_CONV_TOKENS + 3)
    return StateLayers(count, "state-space", inner * state, inner * kept, weights + hidden)


def _feed_forward(
    fields: Mapping[str, Any],
    name: str,
    mixers: list[AttentionLayers | StateLayers],
    alone: bool,
    notes: list[str],
    declared: DeclaredLayers | None = None,
) -> list[LayerKind]:
    """alone: whether each block is a mixer or a feed-forward layer, not both."""
    hidden, layers = fields["hidden_size"], fields["num_layers"]
    architecture = str(fields.get("architecture") or "")
    matrices = 2 if architecture in _PLAIN_FFN else 3
    experts = fields.get("num_experts") or 0
    expert_count = (fields.get("expert_layers") or layers) if experts else 0
    blocks = layers - sum(layer.count for layer in mixers) if alone else layers
    width = fields.get("intermediate_size") or 0
    found: list[LayerKind] = []
    dense = blocks - expert_count
    if experts and architecture.startswith(_DENSE_BESIDE_EXPERTS):
        dense = blocks
    if declared is not None and declared.mlp_widths:
        found += [
            DenseLayers(count, size, matrices, matrices * hidden * size)
            for size, count in declared.mlp_widths.items()
        ]
    elif dense > 0 and width:
        found.append(DenseLayers(dense, width, matrices, matrices * hidden * width))
    elif dense > 0 and any(isinstance(layer, AttentionLayers) for layer in mixers):
        notes.append(
            f"the width of {dense} dense layers is not stated; their weights are not counted"
        )
    if not expert_count:
        return found
    expert_width = fields.get("moe_intermediate_size") or width
    used = fields.get("experts_per_token")
    if not expert_width:
        raise ConfigError(f"{name}: moe_intermediate_size of the model is not known")
    if not used:
        notes.append("the number of experts per token is not stated; all are taken as active")
    shared = fields.get("shared_experts") or 0
    shared_width = fields.get("shared_expert_intermediate_size") or shared * expert_width
    routed_hidden = fields.get("routed_expert_hidden_size") or hidden
    down = 2 * hidden * routed_hidden if routed_hidden != hidden else 0
    found.append(
        ExpertLayers(
            count=expert_count,
            experts=experts,
            experts_per_token=min(used or experts, experts),
            shared_experts=shared,
            expert_width=expert_width,
            expert_parameters=matrices * routed_hidden * expert_width,
            parameters=hidden * experts + down
            + (matrices * hidden * shared_width if shared else 0),
        )
    )  # fmt: skip
    return found
