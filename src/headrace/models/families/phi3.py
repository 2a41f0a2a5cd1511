"""Phi-3, Phi-3.5-mini, Phi-4 and Phi-4-mini: Llama with Q, K and V in one matrix, and gate and up.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(rope(q), rope(k), v, window))
    gate, up = gate_up_proj(norm(h))
    y = h + down_proj(silu(gate) * up)

Models of 128k positions have longrope, whose short or long list is chosen by the longest request
that will be run; Phi-4-mini rotates three quarters of each head. Windows are as config.json has
them, in GGUF files too, where llama.cpp states them and does not use them.
Sources: arXiv 2404.14219, 2503.01743; transformers modeling_phi3.py for the keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig, read_attention, read_uniform_windows
from headrace.models.decoder import PreNormLayer
from headrace.models.model import Model
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader


class Phi3(Model):
    """Phi3ForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
        if hidden % heads:
            reader.refuse("hidden_size", hidden, f"multiples of num_attention_heads {heads}")
        layers = reader.size("num_hidden_layers")
        positions = reader.size("max_position_embeddings", 4096)
        reader.expect("hidden_act", str, ("silu", "swish"), "silu")
        for key in ("attention_bias", "mlp_bias", "lm_head_bias"):
            reader.expect(key, bool, (False,), False)
        # Phi-4-mini's words for parts of other models of its makers, switched off.
        for key in ("full_attn_mod", "interpolate_factor"):
            reader.expect(key, int, (1,), 1)
        rope = RopeConfig.read(reader, default_partial=1.0)
        if rope.kind == "longrope":
            # Wherever else it is stated, transformers takes 4096 where it is not at the top.
            reader.size("original_max_position_embeddings")
        return DecoderConfig(
            model_type="phi3",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=hidden,
            intermediate_size=reader.size("intermediate_size"),
            num_layers=layers,
            attention=read_attention(reader, heads, reader.size("head_dim", hidden // heads)),
            rope=rope,
            max_positions=positions,
            norm_eps=reader.positive("rms_norm_eps", 1e-5),
            attention_bias=False,
            mlp_bias=False,
            tied=reader.optional("tie_word_embeddings", bool),
            windows=read_uniform_windows(reader, layers, positions),
        )
