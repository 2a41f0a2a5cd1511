"""Falcon: attention and MLP side by side, one or few heads of K and V, an MLP without a gate.

    y = x + dense(attention(rope(q), rope(k), v)) + dense_4h_to_h(gelu(dense_h_to_4h(m)))

    7B          q, k, v = query_key_value(n),            n = m = input_layernorm(x), one K and V
    40B, 180B   q, k, v = query_key_value(ln_attn(x)),   m = ln_mlp(x),              8 K and V
    11B         as 40B, with the one norm of 7B (num_ln_in_parallel_attn 1)

Q, K and V are one matrix, whose order of rows the checkpoint's conventions say. Falcon-RW (alibi
instead of rope, MLP after attention) is another model and refused.
Sources: arXiv 2311.16867, 2407.14885; transformers modeling_falcon.py for the keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.models.blocks import MLP, Attention, Step
from headrace.models.config import DecoderConfig
from headrace.models.loader import Loader
from headrace.models.model import Layer, Model
from headrace.models.rope import RopeConfig
from headrace.ops.kv import AttentionShape
from headrace.ops.operands import Array
from headrace.weights.architectures.falcon import FalconParts
from headrace.weights.model_config.config_reader import ConfigReader


@dataclass(frozen=True)
class FalconConfig(DecoderConfig):
    """The config of a Falcon model."""

    two_norms: bool = False
    """Whether attention and MLP have a norm each."""


class FalconLayer(Layer):
    """Attention and MLP read the same stream and are both added."""

    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None:
        at, hidden = f"transformer.h.{index}", config.hidden_size
        self.two_norms = isinstance(config, FalconConfig) and config.two_norms
        names = ("ln_attn", "ln_mlp") if self.two_norms else ("input_layernorm",)
        norms = [loader.norm(f"{at}.{name}", hidden, config.norm_eps, "layer") for name in names]
        self.attention_norm, self.mlp_norm = norms[0], norms[-1]
        attention, mlp = f"{at}.self_attention", f"{at}.mlp"
        self.attention = Attention.load_fused(
            config, loader, index, f"{attention}.query_key_value", f"{attention}.dense"
        )
        self.mlp = MLP.load(config, loader, f"{mlp}.dense_h_to_4h", f"{mlp}.dense_4h_to_h")

    def __call__(self, x: Array, step: Step) -> Array:
        if self.two_norms:
            h = self.attention(x, step, norm=self.attention_norm, residual=x)
            return self.mlp(x, step, norm=self.mlp_norm, residual=h)
        n = step.ops.norm(x, self.mlp_norm)
        h = self.attention(n, step, residual=x)
        return self.mlp(n, step, residual=h)


class Falcon(Model):
    """FalconForCausalLM."""

    layer_type = FalconLayer
    embedding_name = "transformer.word_embeddings.weight"
    final_norm_name = "transformer.ln_f"

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        parts = FalconParts.read(reader)
        heads = parts.num_heads
        hidden = reader.size("hidden_size")
        if hidden % heads or hidden // heads % 2:
            reader.refuse("hidden_size", hidden, f"even multiples of num_attention_heads {heads}")
        head_dim = hidden // heads
        reader.expect("alibi", bool, (False,), False)
        reader.expect("activation", str, ("gelu",), "gelu")
        ffn = reader.size("ffn_hidden_size", 4 * hidden)
        # The same once more, in units of hidden_size.
        reader.expect("ff_factor", int, (ffn // hidden,), ffn // hidden)
        bias = reader.get("bias", bool, False)
        reader.expect("apply_residual_connection_post_layernorm", bool, (False,), False)
        return FalconConfig(
            model_type="falcon",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=hidden,
            intermediate_size=ffn,
            num_layers=reader.size("num_hidden_layers"),
            attention=AttentionShape(heads, parts.num_kv_heads, head_dim, scale=head_dim**-0.5),
            rope=RopeConfig.read(reader),
            max_positions=reader.size("max_position_embeddings", 2048),
            norm_eps=reader.positive("layer_norm_epsilon", 1e-5),
            norm="layer",
            activation="gelu",
            attention_bias=bias,
            mlp_bias=bias,
            tied=reader.get("tie_word_embeddings", bool, True),
            two_norms=parts.two_norms,
        )
