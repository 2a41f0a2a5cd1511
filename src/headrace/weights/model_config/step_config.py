"""The configs of Step-3.5 and Step-3.7, whatever words they use.

Published ones have lists by layer that go on into the layers that predict further tokens, the base
of the rope and the share of a head that it turns among them; transformers writes an object for each
kind of layer, and other names of the same numbers. What is stated twice must be the same.

Sources: transformers configuration_step3p7.py, llama.cpp conversion/step3.py, published configs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.layer_kinds import read_sparse_mlps
from headrace.weights.model_config.rope_config import FULL, WINDOWED, RopeConfig

THETA = 10000.0
DENSE_LAYERS = 3
MAX_DRAFT_LAYERS = 16
"""Published models have three; the bound is for hostile configs."""


@dataclass(frozen=True)
class StepConfig:
    """The part of a config that this family states in words of its own."""

    layers: int
    drafts: int
    """Layers behind the others that predict further tokens."""
    windowed: tuple[bool, ...]
    """Whether each layer has a window, those that predict included."""
    window: int
    """0 where no layer has one."""
    heads: int
    local_heads: int
    """Of layers with a window."""
    kv_heads: int
    sparse: tuple[bool, ...]
    """Which layers have experts."""
    experts: int
    chosen: int
    shared_width: int
    limits: tuple[float, ...]
    """At which each layer's experts cut a gate and what it meets; 0 where they do not."""
    shared_limits: tuple[float, ...]
    """The same of shared experts and dense MLPs."""
    draft_limits: tuple[float, ...]
    """The same of the layers that predict."""

    @classmethod
    def read(cls, config: ConfigReader) -> StepConfig:
        """All of it but ropes, each key read; UnsupportedModelError for what is not implemented."""
        layers = config.size("num_hidden_layers", 45)
        drafts = _read_drafts(config)
        windowed = _read_windowed(config, layers, drafts)
        heads = config.size("num_attention_heads", 64)
        kv_heads = _size(config, ("num_key_value_heads", "num_attention_groups"), 8)
        shared_limits = _read_limits(config, "swiglu_limits_shared", layers, drafts)
        return cls(
            layers=layers,
            drafts=drafts,
            windowed=windowed,
            window=_read_window(config, any(windowed)),
            heads=heads,
            local_heads=_read_local_heads(config, heads, kv_heads),
            kv_heads=kv_heads,
            sparse=_read_sparse(config, layers, drafts),
            experts=_size(
                config,
                ("n_routed_experts", "num_local_experts", "moe_num_experts", "num_experts"),
                288,
            ),
            chosen=_size(config, ("num_experts_per_tok", "moe_top_k"), 8),
            shared_width=_size(config, ("share_expert_dim", "share_expert_dims"), 1280),
            limits=_read_limits(config, "swiglu_limits", layers, drafts)[:layers],
            shared_limits=shared_limits[:layers],
            draft_limits=shared_limits[layers:],
        )


def read_ropes(config: ConfigReader) -> tuple[RopeConfig, RopeConfig]:
    """Ropes of layers that see everything, and of those with a window."""
    if config.raw("rope_parameters") is not None:
        return RopeConfig.read_pair(
            config, default_theta=THETA, default_local_theta=THETA, default_partial=1.0
        )
    layers, drafts = config.size("num_hidden_layers", 45), _read_drafts(config)
    windowed = _read_windowed(config, layers, drafts)
    parts: dict[str, dict[str, Any]] = {FULL: {}, WINDOWED: {}}
    for key, name in (("rope_theta", "rope_theta"), ("partial_rotary_factors", _PARTIAL)):
        stated = config.raw(key)
        if not isinstance(stated, list):
            if stated is not None:
                parts[FULL][name] = parts[WINDOWED][name] = stated
            continue
        values = _listed(config, key, stated, layers, drafts)
        for kind, part in parts.items():
            found = [
                value
                for value, local in zip(values, windowed[:layers], strict=False)
                if local is (kind == WINDOWED)
            ]
            if any(value != found[0] for value in found):
                config.refuse(key, stated, "one number in all layers of a kind")
            if found:
                part[name] = found[0]
    scaling = config.raw("rope_scaling")
    if scaling is not None and not isinstance(scaling, dict):
        config.refuse("rope_scaling", scaling, "objects or null")
    parts[FULL] |= scaling or {}
    around = {"rope_parameters": parts}
    for key in ("max_position_embeddings", "original_max_position_embeddings"):
        if (value := config.raw(key)) is not None:
            around[key] = value
    inner = ConfigReader(around)
    ropes = RopeConfig.read_pair(
        inner, default_theta=THETA, default_local_theta=THETA, default_partial=1.0
    )
    inner.unused(*around)
    inner.finish()
    return ropes


_PARTIAL = "partial_rotary_factor"


def _size(config: ConfigReader, keys: Sequence[str], default: int) -> int:
    """A size of several names, of which those that are stated must agree."""
    stated = [key for key in keys if config.raw(key) is not None]
    if not stated:
        return default
    size = config.size(stated[0])
    for key in stated[1:]:
        config.expect(key, int, (size,), size)
    return size


def _read_drafts(config: ConfigReader) -> int:
    drafts = config.get("num_nextn_predict_layers", int, config.get("num_mtp_layers", int, 0))
    config.expect("num_mtp_layers", int, (drafts,), drafts)
    if not 0 <= drafts <= MAX_DRAFT_LAYERS:
        config.refuse("num_nextn_predict_layers", drafts, f"0 to {MAX_DRAFT_LAYERS}")
    return drafts


def _listed(config: ConfigReader, key: str, value: Any, layers: int, drafts: int) -> list[Any]:
    """A list with an entry for each layer, or for those that predict too."""
    if not isinstance(value, list) or len(value) not in (layers, layers + drafts):
        config.refuse(key, value, f"lists of {layers} layers")
    return list(value)


def _read_windowed(config: ConfigReader, layers: int, drafts: int) -> tuple[bool, ...]:
    kinds = config.raw("layer_types")
    if kinds is None:
        return (False,) * (layers + drafts)
    kinds = _listed(config, "layer_types", kinds, layers, drafts)
    if (more := config.raw("mtp_layer_types")) is not None and len(kinds) == layers:
        kinds += _listed(config, "mtp_layer_types", more, drafts, 0)
    if not all(kind in [FULL, WINDOWED] for kind in kinds):
        config.refuse("layer_types", kinds, f"{FULL!r} or {WINDOWED!r}, {layers} times")
    kinds += [FULL] * (layers + drafts - len(kinds))
    return tuple(kind == WINDOWED for kind in kinds)


def _read_window(config: ConfigReader, needed: bool) -> int:
    if needed:
        return config.size("sliding_window")
    config.unused("sliding_window")
    return 0


def _read_local_heads(config: ConfigReader, heads: int, kv_heads: int) -> int:
    """`num_sliding_attention_heads`, or what `attention_other_setting` says."""
    local = config.size("num_sliding_attention_heads", heads)
    other = config.section("attention_other_setting")
    if other is None:
        return local
    if config.raw("num_sliding_attention_heads") is None:
        local = other.size("num_attention_heads", heads)
    other.expect("num_attention_heads", int, (local,), local)
    other.expect("attention_type", str, (WINDOWED,), WINDOWED)
    other.expect("num_attention_groups", int, (kv_heads,), kv_heads)
    width = config.size("head_dim", 128)
    other.expect("head_dim", int, (width,), width)
    other.expect("true_head_dim", int, (width,), width)
    return local


def _read_sparse(config: ConfigReader, layers: int, drafts: int) -> tuple[bool, ...]:
    """Layers with experts: as a list of kinds, or of numbers, says, or behind the first ones."""
    stated = config.raw("first_k_dense_replace")
    dense = config.get("first_k_dense_replace", int, min(DENSE_LAYERS, layers))
    if not 0 <= dense <= layers:
        config.refuse("first_k_dense_replace", dense, f"0 to num_hidden_layers {layers}")
    config.expect("moe_every_n_layer", int, (1,), 1)
    found = tuple(index >= dense for index in range(layers))
    if (numbers := config.raw("moe_layers_enum")) is not None:
        listed = numbers.split(",") if isinstance(numbers, str) else numbers
        if not isinstance(listed, list) or not all(_is_layer(item) for item in listed):
            config.refuse("moe_layers_enum", numbers, "numbers of layers, separated by commas")
        chosen = frozenset(int(item) for item in listed if str(item).strip())
        found = tuple(index in chosen for index in range(layers))
    kinds = config.raw("mlp_layer_types")
    if isinstance(kinds, list) and drafts and len(kinds) == layers + drafts:
        plain = ConfigReader({"mlp_layer_types": kinds[:layers]})
        found = read_sparse_mlps(plain, layers, found)
    else:
        found = read_sparse_mlps(config, layers, found)
    config.unused("mtp_mlp_layer_types")
    if stated is not None and (*found, True).index(True) != dense:
        config.refuse("first_k_dense_replace", dense, "what the lists of layers say")
    return found


def _is_layer(item: object) -> bool:
    if isinstance(item, str):
        return item.strip().isdecimal() or not item.strip()
    return type(item) is int and item >= 0


def _read_limits(config: ConfigReader, key: str, layers: int, drafts: int) -> tuple[float, ...]:
    """Of all layers, those that predict included."""
    stated = config.raw(key)
    if stated is None:
        return (0.0,) * (layers + drafts)
    limits = _listed(config, key, stated, layers, drafts)
    inner = ConfigReader({f"{key}.{at}": value for at, value in enumerate(limits)})
    found = tuple(inner.get(f"{key}.{at}", float, 0.0) for at in range(len(limits)))
    for limit in found:
        if not 0 <= limit < float("inf"):
            config.refuse(key, limit, "finite numbers from 0 on")
    return (*found, *[0.0] * (layers + drafts - len(found)))
