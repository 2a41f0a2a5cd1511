"""A Hugging Face config.json under the names that the catalog's models have.

Configs spell one thing in many ways; each field here lists the keys that say it, first wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import ConfigError, shown

# Where multimodal configs keep the language model.
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_SIZES = {
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "num_kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "value_head_dim": ("v_head_dim",),
    "intermediate_size": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"),
    "vocabulary_tokens": ("vocab_size",),
    "context_tokens": (
        "max_position_embeddings", "n_positions", "seq_length", "max_sequence_length",
    ),
    "num_experts": ("num_experts", "n_routed_experts", "num_local_experts"),
    "experts_per_token": (
        "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_top_k",
    ),
    "shared_experts": ("n_shared_experts", "num_shared_experts"),
    "moe_intermediate_size": ("moe_intermediate_size",),
    "shared_expert_intermediate_size": (
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
        "share_expert_dim",
    ),
    "routed_expert_hidden_size": ("routed_expert_hidden_size", "moe_latent_size"),
    "kv_lora_rank": ("kv_lora_rank",),
    "q_lora_rank": ("q_lora_rank",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "sliding_window_tokens": ("sliding_window",),
    "chunked_attention_tokens": ("attention_chunk_size",),
    "linear_key_heads": ("linear_num_key_heads",),
    "linear_value_heads": ("linear_num_value_heads",),
    "linear_key_head_dim": ("linear_key_head_dim",),
    "linear_value_head_dim": ("linear_value_head_dim",),
    "linear_conv_tokens": ("linear_conv_kernel_dim",),
    "state_space_heads": ("mamba_num_heads", "mamba_n_heads"),
    "state_space_head_dim": ("mamba_head_dim", "mamba_d_head"),
    "state_size": ("ssm_state_size", "mamba_d_state", "state_size"),
    "state_groups": ("n_groups", "mamba_n_groups"),
}  # fmt: skip
# No config means more: contexts of 100 million tokens are the largest there are.
_LARGEST = 2**31
_NEVER_ZERO = {
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_kv_heads",
    "vocabulary_tokens",
}
# Some configs list these layer by layer.
_BY_LAYER = {
    "intermediate_size", "moe_intermediate_size", "experts_per_token", "shared_experts",
}  # fmt: skip
# What a letter of hybrid_override_pattern stands for.
_PATTERN = {"M": "state_space_layers", "*": "full_attention_layers", "E": "expert_layers"}
_LAYER_TYPES = {
    "full_attention": "full_attention_layers",
    "deepseek_sparse_attention": "full_attention_layers",
    "indexed_attention": "full_attention_layers",
    "minimax_m3_sparse": "full_attention_layers",
    "attention": "full_attention_layers",
    "global": "full_attention_layers",
    "sliding_attention": "sliding_layers",
    "sliding_window_attention": "sliding_layers",
    "chunked_attention": "sliding_layers",
    "linear_attention": "linear_attention_layers",
    "mamba": "state_space_layers",
    "moe": "expert_layers",
}
# Layers of these kinds keep nothing and have no experts.
_PLAIN_LAYERS = ("mlp", "dense")


def fields_of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The catalog's fields that `config` gives.

    Raises ConfigError naming a key that is no size, or the keys of which one is required.
    """
    text = text_part(config)
    fields: dict[str, Any] = {}
    kinds = text.get("layers_block_type")
    if isinstance(kinds, list) and text.get("num_hidden_layers") is None:
        fields["num_layers"] = len(kinds)
    for field, keys in _SIZES.items():
        value = next((text[key] for key in keys if text.get(key) is not None), None)
        if value is None or (value == 0 and field not in _NEVER_ZERO):
            continue
        if isinstance(value, list) and field in _BY_LAYER and value:
            value = value[0] if all(size == value[0] for size in value) else value
        key = next(key for key in keys if text.get(key) is not None)
        fields[field] = _size(key, value)
    for field in ("num_layers", "hidden_size"):
        if field not in fields:
            raise ConfigError(f"the config has none of {', '.join(map(repr, _SIZES[field]))}")
    # A nested config that leaves it out takes transformers' default, which differs by model; the
    # outer one is what its writer saw.
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    fields["tied_embeddings"] = bool(tied)
    architecture = text.get("model_type") or config.get("model_type") or ""
    if not isinstance(architecture, str):
        raise ConfigError(f"config key 'model_type' is {shown(architecture)}; it must be a name")
    fields["architecture"] = architecture
    if text.get("attn_output_gate"):
        fields["attention_output_gate"] = True
    _kinds_of_layers(text, fields)
    _experts(text, fields)
    return fields


def refuse_blocks(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for layers with shapes of their own, which these fields have no words
    for.
    """
    if isinstance(text_part(config).get("block_configs"), list):
        raise ConfigError(
            "config key 'block_configs' gives each layer a shape of its own, which is implemented "
            "for model_type 'nemotron-nas' alone; name a GGUF file, or the folder of the weights, "
            "to get its size"
        )


def _size(key: str, value: Any, least: int = 1) -> int:
    """`value` of a config's key where it is a size; raises ConfigError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(
            f"config key {key!r} is {shown(value)}; it must be a whole number >= {least}"
        )
    if value > _LARGEST:
        raise ConfigError(
            f"config key {key!r} is {shown(value)}; at most {_LARGEST} is allowed for a size: "
            "correct the config"
        )
    return value


def _list(key: str, value: Any) -> list[Any]:
    """`value` of a config's key where it is a list, empty where it is absent."""
    if value is not None and not isinstance(value, list):
        raise ConfigError(f"config key {key!r} is {shown(value)}; it must be a list")
    return value or []


def notes_of_config(config: Mapping[str, Any], declared: bool = False) -> tuple[str, ...]:
    """What the config has that is counted in full or not at all, in words.

    declared: whether the engine says what its layers keep.
    """
    text = text_part(config)
    notes = []
    if "compress_ratios" in text:
        notes.append("compressed caches (compress_ratios) are counted in full: an upper bound")
    if text.get("num_kv_shared_layers") and not declared:
        notes.append("layers that share a cache (num_kv_shared_layers) are counted in full")
    if any(config.get(key) for key in ("vision_config", "audio_config")):
        notes.append("encoders of images and sound are not counted")
    return tuple(notes)


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config; the config itself where it has no parts."""
    for key in _TEXT_PARTS:
        part = config.get(key)
        if isinstance(part, Mapping):
            return text_part(part)
    return config


def _kinds_of_layers(text: Mapping[str, Any], fields: dict[str, Any]) -> None:
    types = _list("layer_types", text.get("layer_types") or text.get("layers_block_type"))
    pattern = text.get("hybrid_override_pattern")
    linear = text.get("linear_attn_config")
    windows = text.get("hybrid_layer_pattern")
    if isinstance(pattern, str):
        for letter, field in _PATTERN.items():
            fields[field] = pattern.count(letter)
        fields["num_layers"] = len(pattern)
    elif types:
        for name in types[: fields["num_layers"]]:
            if name in _PLAIN_LAYERS:
                continue
            if not isinstance(name, str) or name not in _LAYER_TYPES:
                raise ConfigError(
                    f"layer_types has {shown(name)}; known: {', '.join(_LAYER_TYPES)}"
                )
            field = _LAYER_TYPES[name]
            fields[field] = fields.get(field, 0) + 1
    elif isinstance(linear, Mapping):
        for key, field in (
            ("full_attn_layers", "full_attention_layers"),
            ("kda_layers", "linear_attention_layers"),
        ):
            fields[field] = len(_list(key, linear.get(key)))
        for field in ("linear_key_heads", "linear_value_heads"):
            fields[field] = _size("num_heads", linear.get("num_heads", 0), 0)
        for field in ("linear_key_head_dim", "linear_value_head_dim"):
            fields[field] = _size("head_dim", linear.get("head_dim", 0), 0)
        conv = linear.get("short_conv_kernel_size", 4)
        fields["linear_conv_tokens"] = _size("short_conv_kernel_size", conv, 0)
    elif isinstance(windows, list):
        fields["sliding_layers"] = sum(map(bool, windows))
        fields["full_attention_layers"] = len(windows) - fields["sliding_layers"]
    elif isinstance(text.get("sliding_window_pattern"), int) and text.get("sliding_window"):
        every = _size("sliding_window_pattern", text["sliding_window_pattern"])
        fields["full_attention_layers"] = fields["num_layers"] // every
        fields["sliding_layers"] = fields["num_layers"] - fields["full_attention_layers"]
    elif text.get("use_sliding_window") is False:
        fields.pop("sliding_window_tokens", None)
    for key, field, local in (
        ("num_global_key_value_heads", "global_kv_heads", False),
        ("global_head_dim", "global_head_dim", False),
        ("swa_num_key_value_heads", "num_kv_heads", True),
    ):
        if isinstance(text.get(key), int):
            if local and field in fields:
                fields["global_kv_heads"] = fields[field]
            fields[field] = _size(key, text[key])


def _experts(text: Mapping[str, Any], fields: dict[str, Any]) -> None:
    if "num_experts" not in fields:
        return
    layers = fields["num_layers"]
    dense = _size("first_k_dense_replace", text.get("first_k_dense_replace") or 0, 0)
    frequency, step = text.get("moe_layer_freq"), text.get("interleave_moe_layer_step")
    if "expert_layers" not in fields:
        if isinstance(frequency, list):
            fields["expert_layers"] = sum(map(bool, frequency))
        elif isinstance(text.get("moe_layers"), list) and text["moe_layers"]:
            fields["expert_layers"] = len(text["moe_layers"])
        elif isinstance(step, int) and step > 0:
            fields["expert_layers"] = layers // step
        elif isinstance(text.get("expert_layer_period"), int):
            period = _size("expert_layer_period", text["expert_layer_period"])
            fields["expert_layers"] = layers // period
        else:
            only_dense = len(_list("mlp_only_layers", text.get("mlp_only_layers")))
            if dense + only_dense > layers:
                raise ConfigError(
                    f"config keys 'first_k_dense_replace' and 'mlp_only_layers' name {dense} "
                    f"and {only_dense} layers; there are {layers}: correct the config"
                )
            fields["expert_layers"] = layers - dense - only_dense
    if "moe_intermediate_size" not in fields and "intermediate_size" in fields:
        fields["moe_intermediate_size"] = fields["intermediate_size"]
        if isinstance(text.get("intermediate_size_mlp"), int):
            fields["intermediate_size"] = text["intermediate_size_mlp"]
    if fields["architecture"].startswith("llama4"):
        fields.setdefault("shared_experts", 1)
    if "shared_expert_intermediate_size" in fields:
        fields.setdefault("shared_experts", 1)
