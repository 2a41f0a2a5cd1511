"""Hunyuan, dense sizes (0.5B to 7B): Llama with norms over heads of Q and K after the rotation.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(query_layernorm(rope(q)), key_layernorm(rope(k)), v))
    y = h + down_proj(silu(gate) * up)

Where `rope_scaling` states an alpha, the base of the rope is multiplied by alpha^(d / (d - 2)), for
heads of d dimensions, whatever the length of a request. K and V shared between layers (`use_cla`)
are refused.
Sources: github.com/Tencent-Hunyuan/Hunyuan-7B; transformers modeling_hunyuan_v1_dense.py for
arithmetic and keys.
"""

from __future__ import annotations

from typing import Any

from headrace.models.blocks import Attention, RopeNormAttention
from headrace.models.config import DecoderConfig, read_attention
from headrace.models.decoder import PreNormLayer
from headrace.models.loader import Loader
from headrace.models.model import Model
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader


class HunyuanLayer(PreNormLayer):
    """The shared layer with norms of heads behind the rotation."""

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> Attention:
        attention = RopeNormAttention.load(config, loader, index, f"{at}.self_attn")
        attention.load_head_norms(config, loader, f"{at}.self_attn")
        return attention


class HunyuanDense(Model):
    """HunYuanDenseV1ForCausalLM."""

    layer_type = HunyuanLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        return read_hunyuan(reader, "hunyuan_v1_dense")


def read_hunyuan(reader: ConfigReader, model_type: str, **fields: Any) -> DecoderConfig:
    """Keys of both Hunyuans; `fields` are added to the config."""
    heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
    head_dim = reader.optional_size("head_dim") or hidden // heads
    if head_dim * heads != hidden and reader.raw("head_dim") is None:
        reader.refuse("hidden_size", hidden, f"multiples of num_attention_heads {heads}")
    reader.expect("hidden_act", str, ("silu", "swish"), "silu")
    # What published files say of parts that transformers' class always or never has.
    reader.expect("use_qk_norm", bool, (True,), True)
    reader.expect("use_cla", bool, (False,), False)
    reader.expect("attention_head_dim", int, (head_dim,), head_dim)
    reader.unused("cla_share_factor", "eod_token_id")
    return DecoderConfig(
        model_type=model_type,
        vocab_size=reader.optional("vocab_size", int),
        hidden_size=hidden,
        intermediate_size=reader.size("intermediate_size"),
        num_layers=reader.size("num_hidden_layers"),
        attention=read_attention(reader, heads, head_dim),
        rope=RopeConfig.read(reader, with_alpha=True),
        max_positions=reader.size("max_position_embeddings", 2048),
        norm_eps=reader.positive("rms_norm_eps", 1e-5),
        attention_bias=reader.optional("attention_bias", bool),
        mlp_bias=False,
        tied=reader.optional("tie_word_embeddings", bool),
        **fields,
    )
