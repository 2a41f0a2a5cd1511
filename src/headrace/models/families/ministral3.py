"""Ministral 3: Mistral whose queries are scaled by their position.

    q = rope(q) * (1 + beta ln(1 + floor(position / length)))
    h = x + o_proj(attention(q, rope(k), v))
    y = h + down_proj(silu(gate) * up)

beta (`llama_4_scaling_beta`) and length (`original_max_position_embeddings`, that of yarn) are
among the keys of its rope.
Sources: huggingface.co/mistralai/Ministral-3-8B-Base-2512; transformers modeling_ministral3.py for
arithmetic and keys.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.models.config import DecoderConfig, read_uniform_windows
from headrace.models.decoder import PreNormLayer
from headrace.models.families.llama import read_llama
from headrace.models.model import Model
from headrace.models.query_scaling import QueryScaling
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import FULL, WINDOWED

POSITIONS = 262144
SILENT_ROPE = RopeConfig(1e6, "yarn", 16.0, original_max_positions=16384)
SILENT_BETA = 0.1
"""With `SILENT_ROPE`: what a config without any keys of rope means."""


class Ministral3(Model):
    """Ministral3ForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        layers = reader.size("num_hidden_layers")
        positions = reader.size("max_position_embeddings", POSITIONS)
        windows = read_uniform_windows(reader, layers, positions)
        # Lists that differ by layer are another family's (Ministral); here they have no effect.
        reader.expect_all("layer_types", WINDOWED if windows else FULL, layers)
        for key in ("attention_bias", "mlp_bias"):
            reader.expect(key, bool, (False,), False)
        config = read_llama(
            reader,
            "ministral3",
            default_positions=POSITIONS,
            default_kv_heads=8,
            default_head_dim=128,
            default_eps=1e-5,
            windows=windows,
            attention_bias=False,
            mlp_bias=False,
        )
        scaling = reader.section("rope_parameters") or reader.section("rope_scaling")
        if scaling is None:
            length = SILENT_ROPE.original_max_positions
            return replace(
                config, rope=SILENT_ROPE, query_scaling=QueryScaling(SILENT_BETA, length)
            )
        if config.rope is None or config.rope.kind != "yarn":
            scaling.refuse("rope_type", scaling.raw("rope_type"), "'yarn'")
        length = config.rope.original_max_positions
        scaling.expect("original_max_position_embeddings", int, (length,), length)
        scaling.expect("max_position_embeddings", int, (positions,), positions)
        beta = scaling.positive("llama_4_scaling_beta")
        return replace(config, query_scaling=QueryScaling(beta, length))
