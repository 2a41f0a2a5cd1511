"""Nemotrons whose layers differ: without attention, without an MLP, of other widths."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

ORACLE = "transformers' Llama layers, put together as `block_configs` says"


def block(kv_group: int | None, multiplier: float | None) -> dict[str, Any]:
    """One entry of block_configs; None means that the layer has no such part."""
    return {
        "attention": {
            "n_heads_in_group": kv_group, "no_op": kv_group is None, "num_sink_tokens": None,
            "replace_with_linear": False, "sparsify": None, "unshifted_sink": False,
            "use_prefill_window_in_sink_attention": False, "window_length": None,
        },
        "ffn": {
            "ffn_mult": multiplier, "no_op": multiplier is None, "replace_with_linear": False,
            "sparsify": None,
        },
    }  # fmt: skip


BLOCKS = [block(2, 5.25), block(None, 9.0), block(2, 5.25)]
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip

CASES: dict[str, dict[str, Any]] = {
    "nemotron-nas": {"block_configs": BLOCKS},
    "nemotron-nas-no-mlp": {
        "block_configs": [block(4, 5.25), block(1, None), block(None, None), block(2, 1.0)],
        "num_hidden_layers": 4,
        "tie_word_embeddings": True,
    },
    "nemotron-nas-llama3": {"block_configs": BLOCKS, "rope_scaling": LLAMA3},
}

BROKEN_RULES = (
    ("nemotron-nas-llama3", {"rope_scaling": None}),
    ("nemotron-nas", {"rms_norm_eps": 0.5}),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys, of which the short num_key_value_heads has no meaning."""
    keys = (
        base_config(
            "nemotron-nas",
            "DeciLMForCausalLM",
            num_hidden_layers=3,
            hidden_act="silu",
            rms_norm_eps=1e-5,
            rope_scaling=None,
            mlp_bias=False,
            block_configs=BLOCKS,
        )
        | overrides
    )
    return keys | {"num_key_value_heads": None, "intermediate_size": None}


def width_of(config: dict[str, Any], layer: int) -> int:
    """Of a layer's MLP, 0 where it has none."""
    multiplier = config["block_configs"][layer]["ffn"]["ffn_mult"]
    if multiplier is None:
        return 0
    return -(-int(2 * multiplier * config["hidden_size"] / 3) // 256) * 256


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    found: Shapes = {}
    heads = config["num_attention_heads"]
    for layer, stated in enumerate(config["block_configs"]):
        group, width = stated["attention"]["n_heads_in_group"], width_of(config, layer)
        like = {"num_key_value_heads": heads // (group or heads), "intermediate_size": width}
        for name, shape in decoder_shapes(config | like, PRE_NORMS).items():
            of_layer = f".layers.{layer}." in name
            attention = ".self_attn." in name or ".input_layernorm." in name
            if ".layers." in name and not (of_layer and (group if attention else width)):
                continue
            found[name] = shape
    return found
