"""GPT-2: the decoder that others were modelled on, with a learned vector for every position.

    x = wte[token] + wpe[position]
    h = x + c_proj(attention(c_attn(ln_1(x))))            LayerNorm, biases everywhere
    y = h + c_proj(gelu_tanh(c_fc(ln_2(h))))
    logits = wte ln_f(y)

Scores are scaled by 1 / sqrt(head_dim), unless `scale_attn_weights` is false, and divided by the
number of the layer, from 1, where `scale_attn_by_inverse_layer_idx` says so (Mistral's GPT-2s).

Q, K and V are one matrix. Folders store matrices of layers (in, out), GGUF files (out, in), which
the checkpoint's conventions say.
Sources: Radford et al. 2019; transformers modeling_gpt2.py for the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from headrace.models.blocks import MLP, Attention
from headrace.models.config import DecoderConfig
from headrace.models.decoder import PreNormLayer
from headrace.models.loader import Loader
from headrace.models.model import Model
from headrace.ops.kv import AttentionShape
from headrace.ops.operands import Activation
from headrace.weights.architectures import shared
from headrace.weights.model_config.config_reader import ConfigReader

GELU_TANH: Mapping[str, Activation] = dict.fromkeys(shared.GELU_TANH, "gelu_tanh")
"""Names under which configs have the approximation by tanh."""

ACTIVATIONS: Mapping[str, Activation] = {
    **GELU_TANH, "gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu",
}  # fmt: skip
"""Those of GPT-2's configs."""


class GPT2Layer(PreNormLayer):
    """One layer, by GPT-2's names."""

    layers_name = "transformer.h"
    input_norm_name = "ln_1"
    post_norm_name = "ln_2"

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> Attention:
        return Attention.load_fused(config, loader, index, f"{at}.attn.c_attn", f"{at}.attn.c_proj")

    def load_mlp(self, config: DecoderConfig, loader: Loader, index: int, at: str) -> MLP:
        return MLP.load(config, loader, f"{at}.mlp.c_fc", f"{at}.mlp.c_proj")


class GPT2(Model):
    """GPT2LMHeadModel."""

    layer_type = GPT2Layer
    embedding_name = "transformer.wte.weight"
    positions_name: ClassVar[str | None] = "transformer.wpe.weight"
    final_norm_name = "transformer.ln_f"

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        config = read_gpt2(
            reader,
            "gpt2",
            kv_heads=reader.size("n_head"),
            activations=ACTIVATIONS,
            usual="gelu_new",
        )
        if not reader.get("scale_attn_by_inverse_layer_idx", bool, False):
            return config
        scale = config.attention.scale
        scales = tuple(scale / number for number in range(1, config.num_layers + 1))
        return replace(config, attention_scales=scales)


def read_gpt2(
    reader: ConfigReader,
    model_type: str,
    *,
    kv_heads: int,
    activations: Mapping[str, Activation],
    usual: str,
) -> DecoderConfig:
    """The config in GPT-2's keys. activations: those implemented; usual: where none is stated."""
    heads, hidden = reader.size("n_head"), reader.size("n_embd")
    if hidden % heads:
        reader.refuse("n_embd", hidden, f"multiples of n_head {heads}")
    positions = reader.size("n_positions", 1024)
    # The length of the causal mask, in configs that still have one.
    reader.expect("n_ctx", int, (positions,), positions)
    scaled = reader.get("scale_attn_weights", bool, True)
    activation = reader.expect("activation_function", str, tuple(activations), usual)
    head_dim = hidden // heads
    return DecoderConfig(
        model_type=model_type,
        vocab_size=reader.optional("vocab_size", int),
        hidden_size=hidden,
        intermediate_size=reader.size("n_inner", 4 * hidden),
        num_layers=reader.size("n_layer"),
        attention=AttentionShape(
            heads, kv_heads, head_dim, scale=head_dim**-0.5 if scaled else 1.0
        ),
        rope=None,
        max_positions=positions,
        norm_eps=reader.positive("layer_norm_epsilon", 1e-5),
        norm="layer",
        activation=activations[activation],
        attention_bias=True,
        mlp_bias=True,
        tied=reader.get("tie_word_embeddings", bool, True),
    )
