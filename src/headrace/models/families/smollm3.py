"""SmolLM3: Llama in which each fourth layer knows nothing of positions.

    q, k = rope(q), rope(k)          in three layers of four, and not in the fourth
    h = x + o_proj(attention(q, k, v))
    y = h + down_proj(silu(gate) * up)

`no_rope_layers` has 1 for layers that rotate, 0 for those that do not. Where windows are switched
on, they are those of the layers that do not rotate.
Sources: huggingface.co/blog/smollm3; transformers configuration_smollm3.py for the keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig, read_layer_windows
from headrace.models.decoder import PreNormLayer
from headrace.models.families.llama import read_llama
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader


class SmolLM3(Model):
    """SmolLM3ForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        layers = reader.size("num_hidden_layers")
        rotates = read_rotating_layers(reader, layers)
        # Written by the model's authors; transformers' class for it has no such keys.
        reader.unused("max_window_layers", "pretraining_tp")
        return read_llama(
            reader,
            "smollm3",
            default_positions=32768,
            default_kv_heads=4,
            default_theta=2e6,
            rotates=rotates,
            windows=_read_windows(reader, rotates),
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=reader.optional("mlp_bias", bool),
        )


def read_rotating_layers(reader: ConfigReader, layers: int) -> tuple[bool, ...]:
    """Which layers rotate, by `no_rope_layers` or, without it, `no_rope_layer_interval`."""
    interval = reader.size("no_rope_layer_interval", 4)
    stated = reader.raw("no_rope_layers")
    if stated is None:
        return tuple((index + 1) % interval != 0 for index in range(layers))
    are_flags = isinstance(stated, list) and all(value in (0, 1) for value in stated)
    if not are_flags or len(stated) < layers:
        reader.refuse("no_rope_layers", stated, f"lists of {layers} values, 0 or 1")
    return tuple(bool(value) for value in stated[:layers])


def _read_windows(reader: ConfigReader, rotates: tuple[bool, ...]) -> tuple[int, ...]:
    used = reader.get("use_sliding_window", bool, False)
    stated = reader.raw("sliding_window") is not None
    window = reader.size("sliding_window") if used and stated else 0
    return read_layer_windows(reader, window, tuple(0 if turns else window for turns in rotates))
