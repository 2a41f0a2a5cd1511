"""Arcee's AFM: an MLP without a gate that squares what is positive."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    "arcee": {},
    "arcee-yarn": {
        "attention_bias": True,
        "mlp_bias": True,
        "head_dim": 32,
        "tie_word_embeddings": True,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64,
            "mscale": 1.0,
        },
    },
}  # fmt: skip

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("arcee-yarn", {"rope_scaling": None}),)
BROKEN_TENSORS = (("arcee-yarn", "up_proj.bias"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "arcee", "ArceeForCausalLM", hidden_act="relu2", rms_norm_eps=1e-5, mlp_bias=False
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    gated = decoder_shapes(config, PRE_NORMS)
    return {name: shape for name, shape in gated.items() if ".gate_proj." not in name}
