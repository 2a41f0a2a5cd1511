"""Qwen3 (dense): Llama's decoder with a norm over each head of Q and K before the rotation.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(rope(q_norm(q)), rope(k_norm(k)), v))
    gate, up = gate_up_proj(norm(h))
    y = h + down_proj(silu(gate) * up)

head_dim is a key of its own and need not be hidden_size / heads.

Layers for further tokens (`mtp_num_hidden_layers`) are named and joined as those that Qwen3-Next
and Qwen3.5 come with; of this decoder they are published by others, in folders of their own.
Sources: arXiv 2505.09388; transformers modeling_qwen3.py for the keys; vLLM's qwen3_next_mtp.py for
layers for further tokens.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.models.config import DecoderConfig, read_attention, read_draft_layers
from headrace.models.decoder import PreNormLayer
from headrace.models.model import DraftParts, Model
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import FULL


class Qwen3Layer(PreNormLayer):
    """The shared layer with a norm over each head of Q and K."""

    head_norms = True


class Qwen3(Model):
    """Qwen3ForCausalLM."""

    layer_type = Qwen3Layer
    drafts_name = "model.mtp.layers"
    drafts_behind = False
    draft_parts = DraftParts(
        token_norm="pre_fc_norm_embedding",
        feature_norm="pre_fc_norm_hidden",
        join="fc",
        final_norm="norm",
        carries_normed=True,
        apart="model.mtp.{part}",
    )

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads = reader.size("num_attention_heads")
        head_dim = reader.size("head_dim", 128)
        layers = reader.size("num_hidden_layers")
        reader.expect("hidden_act", str, ("silu", "swish"), "silu")
        reader.expect("use_sliding_window", bool, (False,), False)
        # Windows are off; which layers would have one no longer matters, but the list must agree.
        reader.unused("sliding_window", "max_window_layers")
        reader.expect_all("layer_types", FULL, layers)
        return DecoderConfig(
            model_type="qwen3",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=reader.size("hidden_size"),
            intermediate_size=reader.size("intermediate_size"),
            num_layers=layers,
            attention=read_attention(reader, heads, head_dim),
            rope=RopeConfig.read(reader),
            max_positions=reader.size("max_position_embeddings", 32768),
            norm_eps=reader.positive("rms_norm_eps", 1e-6),
            mlp_bias=False,
            attention_bias=reader.optional("attention_bias", bool),
            tied=reader.optional("tie_word_embeddings", bool),
            draft_layers=read_draft_layers(reader, "mtp_num_hidden_layers"),
        )

    @staticmethod
    def draft_names(config: DecoderConfig) -> Collection[str]:
        """A layer like the others; what joins a token's embedding to it stands apart."""
        modules = (
            "input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm",
            *(f"self_attn.{letter}_proj" for letter in "qkvo"),
            *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
        )  # fmt: skip
        biases = (f"self_attn.{letter}_proj.bias" for letter in "qkvo")
        return (*(f"{module}.weight" for module in modules), *biases)
