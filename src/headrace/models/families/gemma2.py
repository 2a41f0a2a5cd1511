"""Gemma 2: norms before and after attention and MLP, softcaps, windows on every other layer.

    x = embedding * sqrt(hidden)
    h = x + norm(attention(norm(x)))          scores: 50 tanh(q k / (50 sqrt(scalar)))
    y = h + norm(mlp(norm(h)))                mlp: down(gelu_tanh(gate) * up)
    logits = 30 tanh(lm_head(norm(y)) / 30)

The first layer has a window, the second sees everything, and so on. Norms multiply by 1 + w where
Hugging Face stores them (GGUF files store 1 + w), which the checkpoint's conventions say.
Sources: arXiv 2408.00118; transformers modeling_gemma2.py for the keys and for the scale's type.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from headrace.models.blocks import Step
from headrace.models.config import DecoderConfig, read_attention, read_windows
from headrace.models.decoder import NormNames, PostNormLayer
from headrace.models.model import Layer, Model
from headrace.models.rope import RopeConfig
from headrace.ops.operands import Array
from headrace.weights.model_config.config_reader import ConfigReader

FULL_EVERY = 2


class Gemma2Layer(PostNormLayer):
    """Norms before and after attention and MLP."""

    norm_names = NormNames(
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    )


class Gemma2(Model):
    """Gemma2ForCausalLM."""

    layer_type: ClassVar[type[Layer]] = Gemma2Layer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        reader.expect("sliding_window_pattern", int, (FULL_EVERY,), FULL_EVERY)
        window = reader.size("sliding_window", 4096)
        # The same once more, in the configs of 9B and 27B.
        reader.expect("sliding_window_size", int, (window,), window)
        return read_gemma(
            reader,
            "gemma2",
            default_positions=8192,
            full_every=FULL_EVERY,
            rope=RopeConfig.read(reader),
            softcap=read_softcap(reader, "attn_logit_softcapping", 50.0),
            logit_softcap=read_softcap(reader, "final_logit_softcapping", 30.0),
        )

    def embed(self, step: Step) -> Array:
        """What goes into the first layer: f32[N, hidden].

        The scale has the type of the weights: float32, or bfloat16 for all that were made of it.
        """
        scale = self.config.embedding_scale
        kind = np.float32 if self._embedding.codec == "F32" else ml_dtypes.bfloat16
        return step.ops.embedding(self._embedding, step.batch.token_ids, scale=float(kind(scale)))


def read_gemma(
    reader: ConfigReader,
    model_type: str,
    *,
    default_positions: int,
    full_every: int,
    softcap: float = 0.0,
    **fields: Any,
) -> DecoderConfig:
    """Keys that Gemma 2 and 3 share; `fields` of the config are the family's own.

    full_every: which layers see everything, where `layer_types` does not say. softcap: of scores.
    """
    heads, hidden = reader.size("num_attention_heads", 8), reader.size("hidden_size", 2304)
    head_dim, layers = reader.size("head_dim", 256), reader.size("num_hidden_layers", 26)
    reader.expect("hidden_activation", str, ("gelu_pytorch_tanh",), "gelu_pytorch_tanh")
    # Older files state it beside the other, and it has no effect there.
    reader.expect("hidden_act", str, ("gelu_pytorch_tanh", "gelu"), "gelu_pytorch_tanh")
    reader.expect("use_bidirectional_attention", bool, (False,), False)
    return DecoderConfig(
        model_type=model_type,
        vocab_size=reader.optional("vocab_size", int),
        hidden_size=hidden,
        intermediate_size=reader.size("intermediate_size", 9216),
        num_layers=layers,
        attention=read_attention(
            reader,
            heads,
            head_dim,
            scale=reader.positive("query_pre_attn_scalar", 256) ** -0.5,
            softcap=softcap,
            default_kv_heads=4,
        ),
        max_positions=reader.size("max_position_embeddings", default_positions),
        norm_eps=reader.positive("rms_norm_eps", 1e-6),
        activation="gelu_tanh",
        attention_bias=reader.optional("attention_bias", bool),
        mlp_bias=False,
        tied=reader.optional("tie_word_embeddings", bool),
        windows=read_windows(reader, layers, reader.size("sliding_window", 4096), full_every),
        embedding_scale=math.sqrt(hidden),
        **fields,
    )


def read_softcap(reader: ConfigReader, key: str, default: float) -> float:
    """A softcap; null says that there is none, which 0 stands for."""
    if reader.raw(key) is None:
        return 0.0 if reader.states(key) else default
    return reader.positive(key)
