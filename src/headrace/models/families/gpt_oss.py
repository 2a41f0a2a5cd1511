"""gpt-oss (20b, 120b): experts with biases and a clamped SwiGLU, and attention with sinks.

    q, k, v = qkv_proj(norm(x))                        Q, K, V and o_proj have biases
    h = x + o_proj(attention(rope(q), rope(k), v))     windows in each other layer, the first with
    y = h + sum of weight * expert(norm(h))

    attention: of a head, exp(score) over the sum of them all and of exp(sink), the head's own
    expert: down_proj(gate * sigmoid(1.702 gate) * (up + 1)), gate at most 7, up from -7 to 7
    chosen: the largest of router(norm(h)); weights: the softmax of these alone

intermediate_size is that of one expert. Published folders hold the experts as MXFP4.
Sources: arXiv 2508.10925; transformers modeling_gpt_oss.py for arithmetic and keys.
"""

from __future__ import annotations

import numpy as np

from headrace.models.blocks import Attention
from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    read_attention,
    read_expert_count,
    read_experts_per_token,
    read_window,
    read_windows,
)
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames
from headrace.models.loader import Loader
from headrace.models.model import Model
from headrace.models.rope import RopeConfig
from headrace.ops.experts import Routing
from headrace.weights.model_config.config_reader import ConfigReader

_LIMIT, _ALPHA = 7.0, 1.702
"""Of the activation `swiglu_clamped`, the only ones it has."""


class GptOssLayer(ExpertLayer):
    """A layer with sinks in its attention, and experts with biases."""

    expert_names = ExpertNames(router="router", router_bias=True, expert_bias=True)

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> Attention:
        attention = Attention.load(config, loader, index, f"{at}.self_attn")
        attention.load_sinks(loader, f"{at}.self_attn")
        return attention


class GptOss(Model):
    """GptOssForCausalLM."""

    layer_type = GptOssLayer
    quant_methods = ("mxfp4",)

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, layers = reader.size("num_attention_heads"), reader.size("num_hidden_layers")
        reader.expect("hidden_act", str, ("silu", "swish"), "silu")
        expect_clamp(reader)
        rope = _read_rope(reader)
        width = reader.size("intermediate_size")
        return DecoderConfig(
            model_type="gpt_oss",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=reader.size("hidden_size"),
            intermediate_size=width,
            num_layers=layers,
            attention=read_attention(
                reader, heads, reader.size("head_dim", 64), default_kv_heads=8
            ),
            rope=rope,
            max_positions=reader.size("max_position_embeddings", 131072),
            norm_eps=reader.positive("rms_norm_eps", 1e-5),
            activation="swiglu_clamped",
            attention_bias=reader.optional("attention_bias", bool),
            tied=reader.optional("tie_word_embeddings", bool),
            windows=read_windows(reader, layers, read_window(reader, 128), full_every=2),
            experts=_read_experts(reader, layers, width),
        )


def _read_experts(reader: ConfigReader, layers: int, width: int) -> ExpertsConfig:
    count = read_expert_count(reader, "num_local_experts", 128)
    chosen = read_experts_per_token(reader, count, 4)
    # The same in the words of OpenAI's own code.
    reader.expect("experts_per_token", int, (chosen,), chosen)
    return ExpertsConfig(
        routing=Routing(
            num_experts=count,
            experts_per_token=chosen,
            score="softmax_of_chosen",
            normalised=False,
        ),
        intermediate_size=width,
        layers=(True,) * layers,
    )


def _read_rope(reader: ConfigReader) -> RopeConfig:
    """What is not stated is yarn with a factor of 32 in transformers; all files state it."""
    if reader.raw("rope_scaling") is None and reader.raw("rope_parameters") is None:
        reader.refuse("rope_scaling", None, "objects, as the published configs have one")
    rope = RopeConfig.read(reader, default_theta=150000.0)
    original = rope.original_max_positions
    if rope.kind == "yarn":
        reader.expect("initial_context_length", int, (original,), original)
    return rope


def expect_clamp(reader: ConfigReader) -> None:
    """The limit and the slope of the activation `swiglu_clamped`."""
    _expect_number(reader, "swiglu_limit", _LIMIT)
    _expect_number(reader, "swiglu_alpha", _ALPHA)


def _expect_number(reader: ConfigReader, key: str, supported: float) -> None:
    stated = reader.get(key, float, supported)
    if np.float32(stated) != np.float32(supported):
        reader.refuse(key, stated, f"{supported}")
