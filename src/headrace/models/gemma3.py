"""Gemma 3, text: Gemma 2 without softcaps, with a norm over each head of Q and K, and two ropes.

    x = embedding * sqrt(hidden)
    h = x + norm(attention(norm(x)))          q, k = rope(q_norm(q)), rope(k_norm(k))
    y = h + norm(mlp(norm(h)))                mlp: down(gelu_tanh(gate) * up)

Five layers with a window, rotated by a base of 10,000, are followed by one that sees everything,
rotated by a base of 1,000,000, its positions divided by 8 in the larger sizes.
The text part of `model_type` gemma3 (a config with images, its text under `text_config`) is the
same; tensors of the image encoder stop the load, as all that nobody uses.
Sources: arXiv 2503.19786; transformers modeling_gemma3.py for the keys.
"""

from __future__ import annotations

import math

from headrace.models.config import DecoderConfig, read_attention, read_windows
from headrace.models.config_reader import ConfigReader
from headrace.models.gemma2 import Gemma2, Gemma2Layer, read_activation, read_softcap
from headrace.models.rope import RopeConfig

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
        heads, hidden = reader.size("num_attention_heads", 8), reader.size("hidden_size", 2304)
        head_dim, layers = reader.size("head_dim", 256), reader.size("num_hidden_layers", 26)
        read_activation(reader)
        reader.expect("use_bidirectional_attention", bool, (False,), False)
        if reader.raw("attn_logit_softcapping") is not None:
            reader.refuse("attn_logit_softcapping", reader.raw("attn_logit_softcapping"), "null")
        window = reader.size("sliding_window", 4096)
        # The key with the underscore is written beside layer_types, which then decides.
        full_every = reader.size("sliding_window_pattern", FULL_EVERY)
        if reader.raw("layer_types") is None:
            reader.expect("_sliding_window_pattern", int, (full_every,), full_every)
        reader.unused("_sliding_window_pattern")
        rope, local_rope = RopeConfig.read_pair(
            reader, default_theta=GLOBAL_THETA, default_local_theta=LOCAL_THETA
        )
        return DecoderConfig(
            model_type="gemma3_text",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=hidden,
            intermediate_size=reader.size("intermediate_size", 9216),
            num_layers=layers,
            attention=read_attention(
                reader,
                heads,
                head_dim,
                scale=reader.positive("query_pre_attn_scalar", 256) ** -0.5,
                default_kv_heads=4,
            ),
            rope=rope,
            local_rope=local_rope,
            max_positions=reader.size("max_position_embeddings", 131072),
            norm_eps=reader.positive("rms_norm_eps", 1e-6),
            activation="gelu_tanh",
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=False,
            tied=reader.optional("tie_word_embeddings", bool),
            windows=read_windows(reader, layers, window, full_every),
            embedding_scale=math.sqrt(hidden),
            logit_softcap=read_softcap(reader, "final_logit_softcapping", 0.0),
        )
