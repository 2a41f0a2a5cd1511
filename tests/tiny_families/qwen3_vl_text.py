"""The text of Qwen3-VL: axes of positions that are stated, or the family's own."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

AXES = {"rope_type": "default", "mrope_section": [6, 5, 5], "mrope_interleaved": True}

CASES: dict[str, dict[str, Any]] = {
    "qwen3-vl": {"rope_scaling": AXES},
    "qwen3-vl-tied": {"tie_word_embeddings": True, "attention_bias": True, "head_dim": 48},
}

BROKEN_RULES = (("qwen3-vl", {"rope_theta": 10000.0}),)
BROKEN_TENSORS = (("qwen3-vl", "q_norm.weight"),)


def outer_config(model_type: str, hf_class: str) -> dict[str, Any]:
    """A whole model's config around `text_config`, its image encoder as small as it can be."""
    return {
        "architectures": [hf_class],
        "model_type": model_type,
        "image_token_id": 280,
        "video_token_id": 281,
        "vision_start_token_id": 282,
        "vision_end_token_id": 283,
        "vision_config": {
            "model_type": model_type,
            "deepstack_visual_indexes": [0],
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 2,
            "num_position_embeddings": 4,
            "out_hidden_size": 64,
            "patch_size": 2,
        },
    }


OUTER = outer_config("qwen3_vl", "Qwen3VLForConditionalGeneration")


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "qwen3_vl_text",
            "Qwen3VLForConditionalGeneration",
            head_dim=32,
            hidden_act="silu",
            rms_norm_eps=1e-6,
            rope_theta=5000000,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    head = (config["head_dim"],)
    return decoder_shapes(config, PRE_NORMS | {"self_attn.q_norm": head, "self_attn.k_norm": head})
