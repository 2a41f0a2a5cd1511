"""Gemma 3, text: Gemma 2 without softcaps, with a norm over each head of Q and K, and two ropes.

    x = embedding * sqrt(hidden)
    h = x + norm(attention(norm(x)))          q, k = rope(q_norm(q)), rope(k_norm(k))
    y = h + norm(mlp(norm(h)))                mlp: down(gelu_tanh(gate) * up)

Five layers with a window, rotated by a base of 10,000, are followed by one that sees everything,
rotated by a base of 1,000,000, its positions divided by 8 in the larger sizes.
The text part of `model_type` gemma3 (a config with images, its text under `text_config`) is the
same; tensors of the image encoder are left out (`weights.model_config.text_part`).
Sources: arXiv 2503.19786; transformers modeling_gemma3.py for the keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig
from headrace.models.families.gemma2 import Gemma2, Gemma2Layer, read_gemma, read_softcap
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader

FULL_EVERY = 6
GLOBAL_THETA, LOCAL_THETA = 1e6, 1e4


class Gemma3Layer(Gemma2Layer):
    """Gemma 2's layer with a norm over each head of Q and K."""

    head_norms = True


class Gemma3(Gemma2):
    """Gemma3ForCausalLM."""

    layer_type = Gemma3Layer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        if reader.raw("attn_logit_softcapping") is not None:
            reader.refuse("attn_logit_softcapping", reader.raw("attn_logit_softcapping"), "null")
        # The key with the underscore is written beside layer_types, which then decides.
        full_every = reader.size("sliding_window_pattern", FULL_EVERY)
        if reader.raw("layer_types") is None:
            reader.expect("_sliding_window_pattern", int, (full_every,), full_every)
        reader.unused("_sliding_window_pattern")
        rope, local_rope = RopeConfig.read_pair(
            reader, default_theta=GLOBAL_THETA, default_local_theta=LOCAL_THETA
        )
        return read_gemma(
            reader,
            "gemma3_text",
            default_positions=131072,
            full_every=full_every,
            rope=rope,
            local_rope=local_rope,
            logit_softcap=read_softcap(reader, "final_logit_softcapping", 0.0),
        )
