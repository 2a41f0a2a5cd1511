"""MiniMax-M3, text: attention to the blocks of tokens that an indexer chooses, experts in a clamp.

    q, k, v = q_norm(q_proj(norm(x))), k_norm(k_proj(norm(x))), v_proj(norm(x))
    h = x + o_proj(attention(rope(q), rope(k), v))     a norm over each head, part of it rotates
    y = h + mlp(norm(h))                               in the first layers; from there on
    y = h + shared(norm(h)) + sum of weight * expert(norm(h))

    each of them: down(gate * sigmoid(1.702 gate) * (up + 1)), gate at most 7, up from -7 to 7
    norms: x / rms(x) * (1 + w), of which folders store w

    scores = sigmoid(router(norm(h)));  chosen: the largest of scores + e_score_correction_bias
    weights = scores of the chosen, over their sum, times routed_scaling_factor

An indexer chooses blocks of tokens (sparse_topk_blocks of sparse_block_size) for each to look at.
Of no more blocks every one is chosen, which is what is implemented; no request may be longer. Its
tensors are known by name, kept when a file is converted, and not loaded. intermediate_size is that
of one expert. Of layers that predict further tokens published folders hold no tensors.
The text part of `model_type` minimax_m3_vl is the same (`weights.model_config.text_part`).
Sources: transformers modeling_minimax_m3_vl.py for arithmetic and keys, the published config for
those that it does not read.
"""

from __future__ import annotations

from headrace.models.blocks import Attention
from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    read_attention,
    read_expert_count,
    read_experts_per_token,
)
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames
from headrace.models.families.gpt_oss import expect_clamp
from headrace.models.loader import Loader
from headrace.models.model import Model
from headrace.models.rope import RopeConfig
from headrace.ops.experts import Routing
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.layer_kinds import read_sparse_mlps
from headrace.weights.model_config.sparse_blocks import SparseBlocks

INDEXER_NAMES = tuple(f"index_{part}.weight" for part in ("q_proj", "k_proj", "q_norm", "k_norm"))


class MiniMaxM3Layer(ExpertLayer):
    """A layer with norms over each head, whose indexer is set aside."""

    head_norms = True
    mlp_name = "block_sparse_moe"
    dense_name = "mlp"
    expert_names = ExpertNames(
        gate="w1", up="w3", down="w2", bias="e_score_correction_bias", shared="shared_experts"
    )

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> Attention:
        loader.set_aside(f"{at}.self_attn", INDEXER_NAMES)
        attention = Attention.load(config, loader, index, f"{at}.self_attn")
        attention.load_head_norms(config, loader, f"{at}.self_attn")
        return attention


class MiniMaxM3(Model):
    """MiniMaxM3VLForCausalLM, for requests of which every block is chosen."""

    layer_type = MiniMaxM3Layer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, layers = reader.size("num_attention_heads", 64), reader.size("num_hidden_layers", 60)
        head_dim = reader.size("head_dim", 128)
        # transformers writes silu for the same function.
        reader.expect("hidden_act", str, ("swigluoai", "silu"), "silu")
        expect_clamp(reader)
        # What the published config says in words that transformers does not read.
        reader.expect("attention_output_gate", bool, (False,), False)
        reader.expect("use_qk_norm", bool, (True,), True)
        reader.expect("qk_norm_type", str, ("per_head",), "per_head")
        reader.expect("use_gemma_norm", bool, (True,), True)
        reader.unused("num_mtp_modules", "num_nextn_predict_layers")
        # Noise on the router's input while training.
        reader.unused("router_jitter_noise")
        blocks = SparseBlocks.read(reader, layers)
        rope = RopeConfig.read(reader, default_theta=5e6, default_partial=1.0)
        # transformers goes by partial_rotary_factor alone.
        turning = rope.rotary_dim(head_dim)
        reader.expect("rotary_dim", int, (turning,), turning)
        return DecoderConfig(
            model_type="minimax_m3",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=reader.size("hidden_size", 6144),
            intermediate_size=reader.size("dense_intermediate_size", 12288),
            num_layers=layers,
            attention=read_attention(reader, heads, head_dim, default_kv_heads=4),
            rope=rope,
            max_positions=reader.size("max_position_embeddings", 524288),
            norm_eps=reader.positive("rms_norm_eps", 1e-6),
            activation="swiglu_clamped",
            attention_bias=False,
            mlp_bias=False,
            tied=reader.optional("tie_word_embeddings", bool),
            experts=_read_experts(reader, layers),
            sparse_after=blocks.dense_tokens,
            sparse_keys="sparse_topk_blocks times sparse_block_size",
        )


def _read_experts(reader: ConfigReader, layers: int) -> ExpertsConfig:
    reader.expect("scoring_func", str, ("sigmoid",), "sigmoid")
    reader.expect("use_routing_bias", bool, (True,), True)
    count = read_expert_count(reader, "num_local_experts", 128)
    width = reader.size("intermediate_size", 3072)
    reader.expect("moe_intermediate_size", int, (width,), width)
    reader.expect("n_shared_experts", int, (1,), 1)
    sparse = read_sparse_mlps(reader, layers, (True,) * layers)
    dense = (*sparse, True).index(True)
    reader.expect("first_k_dense_replace", int, (dense,), dense)
    return ExpertsConfig(
        routing=Routing(
            num_experts=count,
            experts_per_token=read_experts_per_token(reader, count, 4),
            score="sigmoid",
            normalised=True,
            scale=reader.positive("routed_scaling_factor", 2.0),
        ),
        intermediate_size=width,
        layers=sparse,
        shared_size=reader.size("shared_intermediate_size", 3072),
    )
