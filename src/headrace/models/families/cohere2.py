"""Cohere Command-R7B and Command-A: Command-R with windows, and no positions where there are none.

Three layers with a window and rotation are followed by one that sees everything and does not
rotate at all; otherwise as `cohere`, without its norms of Q and K.
Sources: transformers modeling_cohere2.py for arithmetic and keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig, read_attention, read_windows
from headrace.models.families.cohere import CohereLayer, read_heads
from headrace.models.model import Model
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader

FULL_EVERY = 4

SAID_ANOTHER_WAY = {
    "order_of_interleaved_layers": "local_attn_first",
    "position_embedding_type": "rope_gptj",
}
"""Statements of published files of what this family always is; any other value is refused."""

PARTS = (
    "use_embedding_sharing",
    "use_gated_activation",
    "use_parallel_block",
)
"""Switches of published files, all true, whose other setting is another model."""


class Cohere2(Model):
    """Cohere2ForCausalLM."""

    layer_type = CohereLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, hidden, head_dim = read_heads(reader)
        layers = reader.size("num_hidden_layers")
        full_every = reader.size("sliding_window_pattern", FULL_EVERY)
        if reader.raw("layer_types") is None:
            for key in ("_sliding_window_pattern", "layer_switch"):
                reader.expect(key, int, (full_every,), full_every)
        reader.unused("_sliding_window_pattern", "layer_switch")
        windows = read_windows(reader, layers, reader.size("sliding_window", 4096), full_every)
        for key, value in SAID_ANOTHER_WAY.items():
            reader.expect(key, str, (value,), value)
        for key in PARTS:
            reader.expect(key, bool, (True,), True)
        # Of how the embedding was divided among devices; true and false in published files.
        reader.unused("use_parallel_embedding")
        reader.expect("use_qk_norm", bool, (False,), False)
        reader.expect("rotary_pct", float, (1.0,), 1.0)
        return DecoderConfig(
            model_type="cohere2",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=hidden,
            intermediate_size=reader.size("intermediate_size"),
            num_layers=layers,
            attention=read_attention(reader, heads, head_dim),
            rope=RopeConfig.read(reader),
            max_positions=reader.size("max_position_embeddings", 8192),
            norm_eps=reader.positive("layer_norm_eps", 1e-5),
            norm="layer",
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=False,
            tied=reader.optional("tie_word_embeddings", bool),
            windows=windows,
            rotates=tuple(window > 0 for window in windows),
            logit_scale=reader.positive("logit_scale", 0.0625),
        )
