"""GPT-NeoX and Pythia: attention and MLP side by side, each behind a LayerNorm of its own.

    y = x + dense(attention(rope(q), rope(k), v)) + dense_4h_to_h(gelu(dense_h_to_4h(norm2(x))))

    q, k, v = query_key_value(norm1(x))       a part of each head is rotated; biases everywhere

Without `use_parallel_residual` the MLP reads what attention has added to. Q, K and V are one
matrix, whose order of rows the checkpoint's conventions say.
Sources: arXiv 2204.06745; transformers modeling_gpt_neox.py for the keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.models.blocks import MLP, Attention, Step
from headrace.models.config import DecoderConfig
from headrace.models.decoder import PreNormLayer
from headrace.models.families.gpt2 import GELU_TANH
from headrace.models.loader import Loader
from headrace.models.model import Model
from headrace.models.rope import RopeConfig
from headrace.ops.kv import AttentionShape
from headrace.ops.operands import Array
from headrace.weights.model_config.config_reader import ConfigReader

LAYERS = "gpt_neox.layers"


@dataclass(frozen=True)
class GPTNeoXConfig(DecoderConfig):
    """The config of a GPT-NeoX."""

    parallel: bool = True
    """Whether attention and MLP read the same stream."""


class GPTNeoXLayer(PreNormLayer):
    """One layer, by GPT-NeoX's names."""

    layers_name = LAYERS

    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None:
        super().__init__(config, loader, index)
        self.parallel = isinstance(config, GPTNeoXConfig) and config.parallel

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> Attention:
        qkv, dense = f"{at}.attention.query_key_value", f"{at}.attention.dense"
        return Attention.load_fused(config, loader, index, qkv, dense)

    def load_mlp(self, config: DecoderConfig, loader: Loader, index: int, at: str) -> MLP:
        return MLP.load(config, loader, f"{at}.mlp.dense_h_to_4h", f"{at}.mlp.dense_4h_to_h")

    def __call__(self, x: Array, step: Step) -> Array:
        h = self.attention(x, step, norm=self.input_norm, residual=x)
        return self.mlp(x if self.parallel else h, step, norm=self.post_norm, residual=h)


class GPTNeoX(Model):
    """GPTNeoXForCausalLM."""

    layer_type = GPTNeoXLayer
    embedding_name = "gpt_neox.embed_in.weight"
    final_norm_name = "gpt_neox.final_layer_norm"
    layers_name = LAYERS

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
        if hidden % heads or hidden // heads % 2:
            reader.refuse("hidden_size", hidden, f"even multiples of num_attention_heads {heads}")
        head_dim = hidden // heads
        activation = reader.expect("hidden_act", str, ("gelu", *GELU_TANH), "gelu")
        return GPTNeoXConfig(
            model_type="gpt_neox",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=hidden,
            intermediate_size=reader.size("intermediate_size", 24576),
            num_layers=reader.size("num_hidden_layers"),
            attention=AttentionShape(heads, heads, head_dim, scale=head_dim**-0.5),
            rope=RopeConfig.read(
                reader, default_partial=0.25, top_keys=("rotary_emb_base", "rotary_pct")
            ),
            max_positions=reader.size("max_position_embeddings", 2048),
            norm_eps=reader.positive("layer_norm_eps", 1e-5),
            norm="layer",
            activation=GELU_TANH.get(activation, "gelu"),
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=True,
            tied=reader.optional("tie_word_embeddings", bool),
            parallel=reader.get("use_parallel_residual", bool, True),
        )
