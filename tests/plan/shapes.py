"""Models of round sizes, whose steps can be counted by hand."""

from __future__ import annotations

from headrace.plan.model.layer_shape import AttentionLayers, DenseLayers, ExpertLayers, LayerKind
from headrace.plan.model.model_shape import ModelShape, Parameters

BILLION = 10**9


def shape(
    layers: tuple[LayerKind, ...],
    *,
    hidden_size: int = 8192,
    attention: int = 0,
    ffn: int = 0,
    experts: int = 0,
    head: int = 0,
    embedding: int = 0,
    tied: bool = False,
) -> ModelShape:
    total = attention + ffn + experts + head + embedding
    return ModelShape(
        name="test",
        source="catalog",
        hidden_size=hidden_size,
        vocabulary_tokens=1000,
        tied_embeddings=tied,
        num_layers=sum(layer.count for layer in layers if isinstance(layer, AttentionLayers)),
        layers=layers,
        parameters=Parameters(
            embedding=embedding,
            head=head,
            attention=attention,
            ffn=ffn,
            experts=experts,
            one_expert=0,
            other=0,
            total=total,
            active=total,
        ),
    )


def gqa(count: int = 80, window_tokens: int | None = None) -> AttentionLayers:
    """Layers of Llama 70B."""
    return AttentionLayers(
        count=count,
        kind="gqa",
        heads=64,
        kv_heads=8,
        head_dim=128,
        value_head_dim=128,
        window_tokens=window_tokens,
    )


def mla() -> AttentionLayers:
    """Layers of DeepSeek V3."""
    return AttentionLayers(
        count=61,
        kind="mla",
        heads=128,
        kv_heads=1,
        head_dim=192,
        value_head_dim=128,
        kv_lora_rank=512,
        rope_head_dim=64,
    )


DENSE_70B = shape((gqa(), DenseLayers(80, 28672)), attention=10 * BILLION, ffn=60 * BILLION)
"""70 billion weights that every token meets, without embeddings."""

MOE_LAYERS = ExpertLayers(
    count=48,
    experts=128,
    experts_per_token=8,
    shared_experts=0,
    expert_width=768,
    expert_parameters=4_718_592,
)
MOE = shape(
    (gqa(48), MOE_LAYERS),
    hidden_size=2048,
    attention=BILLION,
    experts=48 * 128 * 4_718_592,
)
"""Experts of Qwen3-30B-A3B."""
