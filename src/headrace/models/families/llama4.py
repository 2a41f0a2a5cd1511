"""Llama 4 (Scout, Maverick), text: experts beside a shared one, chunks, and layers without rope.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(unit(rope(q)), unit(rope(k)), v))     in three layers of four
    h = x + o_proj(attention(scaled(q), k, v))                     in the fourth
    y = h + shared(norm(h)) + sum of expert(weight * norm(h))

Layers that rotate see the tokens of their own chunk (attention_chunk_size), the others all before
them; the queries of these grow with the position (attn_temperature_tuning):

    scaled(q) = q * (1 + attn_scale ln(1 + floor((position + 1) / floor_scale)))
    unit(q) = q / sqrt(mean(q²) + eps), of each head                 where use_qk_norm
    weights: sigmoid(router(norm(h))) of the largest; they multiply what goes into an expert

intermediate_size is that of an expert and of the shared one, intermediate_size_mlp that of layers
without experts, which interleave_moe_layer_step or moe_layers leaves. The text part of `model_type`
llama4 is the same.
Sources: ai.meta.com/blog/llama-4-multimodal-intelligence; transformers modeling_llama4.py for
arithmetic and keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.models.blocks import Attention, RopeNormAttention
from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    read_attention,
    read_expert_count,
    read_experts_per_token,
)
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames
from headrace.models.families.smollm3 import read_rotating_layers
from headrace.models.loader import Loader
from headrace.models.model import Model
from headrace.models.query_scaling import QueryScaling
from headrace.models.rope import RopeConfig
from headrace.ops.experts import Routing
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import CHUNKED, FULL

CHUNK = 8192


@dataclass(frozen=True)
class Llama4Config(DecoderConfig):
    """The config of a Llama 4."""

    unit_heads: bool = True
    """Whether heads of Q and K have a norm without weights in layers that rotate."""


class Llama4Layer(ExpertLayer):
    """A layer with experts or one MLP."""

    mlp_name = "feed_forward"
    expert_names = ExpertNames(router="router", shared="shared_expert")

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> Attention:
        unit_heads = isinstance(config, Llama4Config) and config.unit_heads
        if not unit_heads or not config.rotates[index]:
            return Attention.load(config, loader, index, f"{at}.self_attn")
        attention = RopeNormAttention.load(config, loader, index, f"{at}.self_attn")
        assert isinstance(attention, RopeNormAttention)
        attention.make_unit_norms(config, loader)
        return attention


class Llama4(Model):
    """Llama4ForCausalLM."""

    layer_type = Llama4Layer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, layers = reader.size("num_attention_heads"), reader.size("num_hidden_layers")
        reader.expect("hidden_act", str, ("silu", "swish"), "silu")
        # Noise on the router's input while training.
        reader.unused("router_jitter_noise")
        if reader.raw("no_rope_layers") == []:
            reader.unused("no_rope_layers")
        rotates = read_rotating_layers(reader, layers)
        return Llama4Config(
            model_type="llama4_text",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=reader.size("hidden_size"),
            intermediate_size=reader.size("intermediate_size_mlp", 16384),
            num_layers=layers,
            attention=read_attention(
                reader, heads, reader.size("head_dim", 128), default_kv_heads=8
            ),
            rope=RopeConfig.read(reader, default_theta=500000.0),
            max_positions=reader.size("max_position_embeddings", 131072),
            norm_eps=reader.positive("rms_norm_eps", 1e-5),
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=False,
            tied=reader.optional("tie_word_embeddings", bool),
            chunks=_read_chunks(reader, rotates),
            rotates=rotates,
            query_scaling=_read_scaling(reader, rotates),
            experts=_read_experts(reader, layers),
            unit_heads=reader.get("use_qk_norm", bool, True),
        )


def _read_chunks(reader: ConfigReader, rotates: tuple[bool, ...]) -> tuple[int, ...]:
    """Of each layer, as `layer_types` says, or in those that rotate."""
    kinds = reader.raw("layer_types")
    usual = [CHUNKED if turns else FULL for turns in rotates]
    kinds = usual if kinds is None else kinds
    is_list = isinstance(kinds, list) and len(kinds) == len(rotates)
    if not is_list or any(kind not in (CHUNKED, FULL) for kind in kinds):
        reader.refuse("layer_types", kinds, f"{CHUNKED!r} or {FULL!r}, {len(rotates)} times")
    if CHUNKED not in kinds:
        reader.unused("attention_chunk_size")
        return ()
    if reader.states("attention_chunk_size") and reader.raw("attention_chunk_size") is None:
        reader.refuse("attention_chunk_size", None, f"numbers of tokens beside {CHUNKED}")
    chunk = reader.size("attention_chunk_size", CHUNK)
    return tuple(chunk if kind == CHUNKED else 0 for kind in kinds)


def _read_scaling(reader: ConfigReader, rotates: tuple[bool, ...]) -> QueryScaling | None:
    beta, length = reader.positive("attn_scale", 0.1), reader.size("floor_scale", 8192)
    if not reader.get("attn_temperature_tuning", bool, True):
        return None
    return QueryScaling(beta, length, offset=1, layers=tuple(not turns for turns in rotates))


def _read_experts(reader: ConfigReader, layers: int) -> ExpertsConfig:
    count = read_expert_count(reader, "num_local_experts", 16)
    width, step = reader.size("intermediate_size"), reader.size("interleave_moe_layer_step", 1)
    listed = reader.raw("moe_layers")
    sparse = range(step - 1, layers, step) if listed is None else listed
    if not isinstance(sparse, (list, range)) or not all(type(layer) is int for layer in sparse):
        reader.refuse("moe_layers", listed, "lists of layers")
    with_experts = frozenset(sparse)
    return ExpertsConfig(
        routing=Routing(
            num_experts=count,
            experts_per_token=read_experts_per_token(reader, count, 1),
            score="sigmoid",
            normalised=False,
        ),
        intermediate_size=width,
        layers=tuple(index in with_experts for index in range(layers)),
        shared_size=width,
        weigh_input=True,
    )
