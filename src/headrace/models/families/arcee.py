"""Arcee's AFM-4.5B: Llama whose MLP has no gate and squares what is positive.

    h = x + o_proj(attention(rope(q), rope(k), v))
    y = h + down_proj(relu(up_proj(norm(h)))^2)

Sources: arcee.ai/blog/announcing-the-arcee-foundation-model-family; arXiv 2109.08668 (the
activation); transformers modeling_arcee.py for the keys.
"""

from __future__ import annotations

from headrace.models.blocks import MLP
from headrace.models.config import DecoderConfig
from headrace.models.decoder import PreNormLayer
from headrace.models.families.llama import read_llama
from headrace.models.loader import Loader
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader


class ArceeLayer(PreNormLayer):
    """The shared layer with an MLP without a gate."""

    def load_mlp(self, config: DecoderConfig, loader: Loader, index: int, at: str) -> MLP:
        return MLP.load(config, loader, f"{at}.mlp.up_proj", f"{at}.mlp.down_proj")


class Arcee(Model):
    """ArceeForCausalLM."""

    layer_type = ArceeLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        return read_llama(
            reader,
            "arcee",
            default_positions=4096,
            default_eps=1e-5,
            activations=("relu2",),
            activation="relu2",
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=reader.optional("mlp_bias", bool),
        )
