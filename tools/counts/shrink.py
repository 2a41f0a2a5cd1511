"""The rule that makes a tiny model's config of a published one.

What decides which code runs is kept: model_type, the kinds of layers and their order, how many
heads share one of K and V, widths of heads and of latents, windows, chunks, rope, groups of experts
and how many are chosen. What decides only how much there is to compute is made small: layers to
the shortest beginning that has every kind of layer, and the widths of the residual stream, of MLPs
and of experts, the numbers of heads and of experts, the vocabulary. `quantization_config` is
dropped: a tiny model's weights are F32.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

VOCAB = 288
BOS, EOS = 256, 257

_LAYERS = ("num_hidden_layers", "n_layer")
_HEADS = ("num_attention_heads", "n_head", "swa_num_attention_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads",
             "num_global_key_value_heads", "num_attention_groups")  # fmt: skip
_HIDDEN = ("hidden_size", "n_embd")
_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "moe_k", "moe_top_k", "top_k_experts")
_LEADING = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
"""How many layers at the beginning are of another kind."""
_PERIODS = ("decoder_sparse_step", "interleave_moe_layer_step", "sliding_window_pattern",
            "no_rope_layer_interval", "full_attention_interval", "_sliding_window_pattern",
            "moe_layer_freq", "moe_layer_interval")  # fmt: skip
"""Every how many layers one is of another kind."""
_WIDTHS = ("intermediate_size", "intermediate_size_mlp", "ffn_hidden_size", "n_inner",
           "share_expert_dim", "hidden_size_per_layer_input")  # fmt: skip
_VOCABULARIES = ("vocab_size", "vocab_size_per_layer_input")
_IMPLIED_HEAD_DIM = 32
"""Where the config has no head_dim, so that it follows from hidden_size."""
_STATED_HIDDEN = 256


def shrunk(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a tiny model of the same architecture."""
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        outer = {key: value for key, value in config.items() if key != "quantization_config"}
        return outer | {"text_config": shrunk(inner)}
    small = {key: value for key, value in config.items() if key != "quantization_config"}
    _shrink_layers(small)
    _shrink_widths(small)
    _shrink_experts(small)
    for key in _VOCABULARIES:
        if key in small:
            small[key] = VOCAB
    small |= {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": None}
    return small


def _first(config: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    found = (config.get(key) for key in keys)
    return next((value for value in found if isinstance(value, int) and value > 0), None)


def _shrink_layers(config: dict[str, Any]) -> None:
    """Layers to the shortest beginning with every kind of layer, two at least."""
    layers = _first(config, _LAYERS)
    if layers is None:
        return
    # MiniMax-M3 has lists by layer within an object.
    inner = {key for key in ("sparse_attention_config",) if isinstance(config.get(key), dict)}
    places = [config, *(config[key] for key in inner)]
    lists = [
        value
        for place in places
        for value in place.values()
        if isinstance(value, list) and len(value) == layers
    ]
    kinds = [repr([_kind(entry) for entry in layer]) for layer in zip(*lists, strict=True)]
    kept = max((kinds.index(kind) + 1 for kind in kinds), default=0)
    leading = max((config.get(key) or 0 for key in _LEADING), default=0)
    periods = [config.get(key) for key in _PERIODS]
    period = max((value for value in periods if isinstance(value, int)), default=1)
    kept = min(layers, max(2, kept, leading + period))
    for key, value in config.items():
        if key in inner:
            config[key] = {name: _first_layers(held, layers, kept) for name, held in value.items()}
        elif isinstance(value, list) and len(value) == layers:
            config[key] = value[:kept]
        elif key in _LAYERS or (key == "max_window_layers" and value == layers):
            config[key] = kept
        elif key == "mlp_only_layers" and isinstance(value, list):
            config[key] = [layer for layer in value if layer < kept]


def _kind(entry: Any) -> Any:
    """What of a layer's entry decides which code runs: not how wide its MLP is."""
    if not isinstance(entry, dict):
        return entry
    return {key: _kind(value) for key, value in entry.items() if key != "ffn_mult"}


def _first_layers(value: Any, layers: int, kept: int) -> Any:
    return value[:kept] if isinstance(value, list) and len(value) == layers else value


def _shrink_widths(config: dict[str, Any]) -> None:
    """Two heads of K and V at most, as many of Q to each as before; all else by the same ratio."""
    hidden = _first(config, _HIDDEN)
    if hidden is None:
        return
    heads, kv_heads = _first(config, _HEADS), _first(config, _KV_HEADS)
    groups = [
        block["attention"].get("n_heads_in_group") or 0 for block in config.get("block_configs", ())
    ]
    most_groups = max(groups, default=0)
    small_heads = heads
    if heads is not None and most_groups:
        small_heads = 2 * most_groups
    elif heads is not None:
        shared = heads // (kv_heads or heads)
        small_heads = shared * min(2, kv_heads or heads)
    small_hidden = _STATED_HIDDEN
    if small_heads is not None and not any("head_dim" in key for key in config):
        small_hidden = _IMPLIED_HEAD_DIM * small_heads
    for key, value in config.items():
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            continue
        if key in _HIDDEN:
            config[key] = small_hidden
        elif key in (*_HEADS, *_KV_HEADS) and heads:
            config[key] = max(1, value * (small_heads or 1) // heads)
        elif key in _WIDTHS or key.endswith("intermediate_size"):
            config[key] = 32 * max(1, ceil(value * small_hidden / hidden / 32))


def _shrink_experts(config: dict[str, Any]) -> None:
    """Twice as many as are chosen, at least two in each group."""
    count, chosen = _first(config, _EXPERTS), _first(config, _CHOSEN) or 1
    if count is None:
        return
    groups = config.get("n_group") or 1
    # What the groups that are chosen from have must be enough.
    of_groups = groups * ceil(chosen / (config.get("topk_group") or groups))
    small = groups * ceil(max(2 * chosen, 2 * groups, of_groups) / groups)
    for key in _EXPERTS:
        if isinstance(config.get(key), int) and config[key] > 0:
            config[key] = min(count, small)
