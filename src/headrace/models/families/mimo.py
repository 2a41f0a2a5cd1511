"""MiMo-7B: Qwen2's decoder, and layers behind it that predict further tokens.

These (num_nextn_predict_layers) stand under `model.mtp_layers`, and are run as heads
(models/heads/).
Sources: arXiv 2505.07608; the published config.json. The published modelling code derives its
classes from Qwen2's and changes nothing in the forward pass.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.models.config import DecoderConfig, read_draft_layers
from headrace.models.decoder import PreNormLayer
from headrace.models.families.qwen2 import read_qwen2
from headrace.models.model import DraftParts, Model
from headrace.weights.model_config.config_reader import ConfigReader


class MiMo(Model):
    """MiMoForCausalLM."""

    layer_type = PreNormLayer
    drafts_name = "model.mtp_layers"
    drafts_behind = False
    draft_parts = DraftParts(
        token_norm="token_layernorm",
        feature_norm="hidden_layernorm",
        join="input_proj",
        final_norm="final_layernorm",
        token_first=False,
        carries_normed=True,
    )

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        return read_qwen2(reader, "mimo", draft_layers=read_draft_layers(reader))

    @staticmethod
    def draft_names(config: DecoderConfig) -> Collection[str]:
        """A layer like the others, which joins a token's embedding to what the last one gave."""
        modules = (
            "token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm",
            "input_layernorm", "post_attention_layernorm",
            *(f"self_attn.{letter}_proj" for letter in "qkvo"),
            *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
        )  # fmt: skip
        biases = (f"self_attn.{letter}_proj.bias" for letter in "qkv")
        return (*(f"{module}.weight" for module in modules), *biases)
