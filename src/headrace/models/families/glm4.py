"""GLM-4-0414 (GLM-4-9B, GLM-4-32B, GLM-Z1): GLM with norms on what attention and MLP add.

    h = x + norm(o_proj(attention(rope(q), rope(k), v)))    q, k, v = qkv_proj(norm(x))
    y = h + norm(down_proj(silu(gate) * up))                gate, up = gate_up_proj(norm(h))

Half of each head is rotated, neighbouring dimensions together; biases as the config says.
Sources: transformers modeling_glm4.py for arithmetic and keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig
from headrace.models.decoder import NormNames, PostNormLayer
from headrace.models.families.glm import read_glm_config
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader


class Glm4Layer(PostNormLayer):
    """`post_attention_layernorm` stands before the MLP, as in Llama; two more stand after."""

    norm_names = NormNames(
        "input_layernorm",
        "post_self_attn_layernorm",
        "post_attention_layernorm",
        "post_mlp_layernorm",
    )


class Glm4(Model):
    """Glm4ForCausalLM."""

    layer_type = Glm4Layer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        return read_glm_config(reader, "glm4")
