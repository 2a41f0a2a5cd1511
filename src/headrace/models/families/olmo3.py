"""OLMo 3: OLMo 2 with windows in three layers of four, whose rope is never scaled.

    q, k, v = q_norm(q_proj(x)), k_norm(k_proj(x)), v_proj(x)
    h = x + norm(o_proj(attention(rope(q), rope(k), v, window)))
    y = h + norm(mlp(h))                      mlp: down(silu(gate) * up)

Keys of rope at the top (`rope_scaling`) speak of the layers that see everything.
Sources: allenai.org/blog/olmo3; transformers configuration_olmo3.py and modeling_olmo3.py.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.models.config import DecoderConfig, read_windows
from headrace.models.families.olmo2 import Olmo2, Olmo2Layer, read_olmo2
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader

FULL_EVERY = 4
THETA = 5e5


class Olmo3(Olmo2):
    """Olmo3ForCausalLM."""

    layer_type = Olmo2Layer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        theta = reader.positive("rope_theta", THETA)
        if theta != THETA:
            # transformers takes it for one kind of layer, llama.cpp for both.
            reader.refuse("rope_theta", theta, f"{THETA}, or rope_parameters for each kind")
        if reader.states("sliding_window") and reader.raw("sliding_window") is None:
            reader.refuse("sliding_window", None, "whole numbers")
        rope, local_rope = RopeConfig.read_pair(
            reader, default_theta=THETA, default_local_theta=THETA
        )
        layers = reader.size("num_hidden_layers")
        windows = read_windows(reader, layers, reader.size("sliding_window", 4096), FULL_EVERY)
        config = read_olmo2(reader, "olmo3", rope)
        return replace(config, local_rope=local_rope, windows=windows)
