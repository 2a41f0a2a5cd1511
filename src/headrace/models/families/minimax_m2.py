"""MiniMax-M2 (M2, M2.5, M2.7): norms over all heads of Q and of K, half of each head rotated, and
experts in every layer.

    q, k, v = q_norm(q_proj(norm(x))), k_norm(k_proj(norm(x))), v_proj(norm(x))
    h = x + o_proj(attention(rope(q), rope(k), v))
    y = h + sum of weight * expert(norm(h))        expert: w2(silu(w1(x)) * w3(x))

    scores = sigmoid(router(norm(h)));  chosen: the largest of scores + e_score_correction_bias
    weights = scores of the chosen, over their sum

intermediate_size is that of one expert. Of layers that predict further tokens (num_mtp_modules)
the published folders hold no tensors.
Sources: arXiv 2506.13585; transformers modeling_minimax_m2.py for arithmetic and keys, the
published configs for the keys that it does not read.
"""

from __future__ import annotations

from headrace.models.blocks import Attention, ColumnNormAttention
from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    read_attention,
    read_expert_count,
    read_experts_per_token,
)
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames
from headrace.models.loader import Loader
from headrace.models.model import Model
from headrace.models.rope import RopeConfig
from headrace.ops.experts import Routing
from headrace.weights.model_config.config_reader import ConfigReader


class MiniMaxM2Layer(ExpertLayer):
    """A layer with experts by Mixtral's names, and norms over all heads of Q and of K at once."""

    mlp_name = "block_sparse_moe"
    expert_names = ExpertNames(gate="w1", up="w3", down="w2", bias="e_score_correction_bias")

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> Attention:
        attention = ColumnNormAttention.load(config, loader, index, f"{at}.self_attn")
        attention.load_head_norms(config, loader, f"{at}.self_attn")
        return attention


class MiniMaxM2(Model):
    """MiniMaxM2ForCausalLM."""

    layer_type = MiniMaxM2Layer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, layers = reader.size("num_attention_heads", 48), reader.size("num_hidden_layers", 62)
        head_dim = reader.size("head_dim", 128)
        reader.expect("hidden_act", str, ("silu", "swish"), "silu")
        # What published configs say in words that transformers does not read.
        reader.expect("use_qk_norm", bool, (True,), True)
        reader.expect("qk_norm_type", str, ("per_layer",), "per_layer")
        reader.expect("use_routing_bias", bool, (True,), True)
        reader.expect("scoring_func", str, ("sigmoid",), "sigmoid")
        reader.expect("shared_intermediate_size", int, (0,), 0)
        if (kinds := reader.raw("attn_type_list")) is not None and kinds != [1] * layers:
            reader.refuse("attn_type_list", kinds, f"1, {layers} times")
        reader.unused("use_mtp", "num_mtp_modules", "mtp_transformer_layers")
        # Noise on the router's input while training.
        reader.unused("router_jitter_noise")
        count = read_expert_count(reader, "num_local_experts", 256)
        width = reader.size("intermediate_size", 1536)
        return DecoderConfig(
            model_type="minimax_m2",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=reader.size("hidden_size", 3072),
            intermediate_size=width,
            num_layers=layers,
            attention=read_attention(reader, heads, head_dim, default_kv_heads=8),
            rope=RopeConfig.read(
                reader, default_theta=5e6, default_partial=1.0, rotary_dim_of=head_dim
            ),
            max_positions=reader.size("max_position_embeddings", 196608),
            norm_eps=reader.positive("rms_norm_eps", 1e-6),
            attention_bias=False,
            mlp_bias=False,
            tied=reader.optional("tie_word_embeddings", bool),
            experts=ExpertsConfig(
                routing=Routing(
                    num_experts=count,
                    experts_per_token=read_experts_per_token(reader, count, 8),
                    score="sigmoid",
                    normalised=True,
                ),
                intermediate_size=width,
                layers=(True,) * layers,
            ),
        )
