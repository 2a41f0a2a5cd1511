"""StableLM 2 in the forms of 1.6B and 12B."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    "stablelm": {"use_qkv_bias": True, "num_key_value_heads": 4},
    "stablelm-12b": {"use_parallel_residual": True, "qk_layernorm": True},
    "stablelm-3b": {"partial_rotary_factor": 0.5, "rope_theta": 1000.0, "layer_norm_eps": 1e-3},
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("stablelm", {"partial_rotary_factor": 1.0}),
    ("stablelm-3b", {"rope_theta": 100000.0}),
)
BROKEN_TENSORS = (
    ("stablelm", "k_proj.bias"),
    ("stablelm", "layernorm.bias"),
    ("stablelm-12b", "k_norm.weight"),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = base_config(
        "stablelm",
        "StableLmForCausalLM",
        hidden_act="silu",
        layer_norm_eps=1e-5,
        partial_rotary_factor=0.25,
        use_parallel_residual=False,
        use_qkv_bias=False,
        qk_layernorm=False,
        hidden_dropout=0.0,
    )
    del keys["attention_bias"]
    return keys | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor; norms of heads as one matrix."""
    norms: dict[str, tuple[int, ...] | None] = dict(PRE_NORMS)
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    if config["use_parallel_residual"]:
        del norms["post_attention_layernorm"]
    heads: Shapes = {}
    if config["qk_layernorm"]:
        heads = {
            "self_attn.q_norm": (config["num_attention_heads"], head_dim),
            "self_attn.k_norm": (config["num_key_value_heads"], head_dim),
        }
    biases = {"attention_bias": config["use_qkv_bias"]}
    found = decoder_shapes(config | biases, norms | heads, output_bias=False)
    ends = ("layernorm.weight", "model.norm.weight")
    more = {f"{name[:-7]}.bias": found[name] for name in found if name.endswith(ends)}
    return {**found, **more}
