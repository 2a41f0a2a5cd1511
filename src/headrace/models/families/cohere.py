"""Cohere Command-R and Command-R+: attention and MLP side by side behind one layer norm.

    n = norm(x)                               LayerNorm without bias
    y = x + o_proj(attention(rope(q), rope(k), v)) + down_proj(silu(gate) * up)
    logits = logit_scale * (embedding norm(y))

Command-R+ (`use_qk_norm`) has a LayerNorm over each head of Q and K, with weights for each head.
Neighbouring dimensions are rotated together, in either kind of file, which the checkpoint's
conventions say.
Sources: transformers modeling_cohere.py for arithmetic and keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.models.blocks import Attention, ColumnNormAttention, GatedMLP, Step
from headrace.models.config import DecoderConfig, read_attention
from headrace.models.loader import Loader
from headrace.models.model import Layer, Model
from headrace.models.rope import RopeConfig
from headrace.ops.operands import Array
from headrace.weights.model_config.config_reader import ConfigReader


@dataclass(frozen=True)
class CohereConfig(DecoderConfig):
    """The config of a Cohere model."""

    head_norms: bool | None = None
    """Whether heads of Q and K have norms; None where the file does not say."""


class HeadNormAttention(ColumnNormAttention):
    """Attention in which each head of Q and K has a norm with its own weights."""

    per_head = True


class CohereLayer(Layer):
    """Attention and MLP read the same normed input and are both added."""

    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None:
        at, hidden = f"model.layers.{index}", config.hidden_size
        head_norms = isinstance(config, CohereConfig) and config.head_norms
        if isinstance(config, CohereConfig) and config.head_norms is None:
            head_norms = loader.has(f"{at}.self_attn.q_norm.weight")
        attention_type = HeadNormAttention if head_norms else Attention
        self.norm = loader.norm(f"{at}.input_layernorm", hidden, config.norm_eps, config.norm)
        self.attention = attention_type.load(config, loader, index, f"{at}.self_attn")
        if head_norms:
            self.attention.load_head_norms(config, loader, f"{at}.self_attn")
        self.mlp = GatedMLP.load(config, loader, f"{at}.mlp")

    def __call__(self, x: Array, step: Step) -> Array:
        n = step.ops.norm(x, self.norm)
        h = self.attention(n, step, residual=x)
        return self.mlp(n, step, residual=h)


class Cohere(Model):
    """CohereForCausalLM."""

    layer_type = CohereLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, hidden, head_dim = read_heads(reader)
        # Command-R states the length it was trained for beside a shorter one that saves memory.
        positions = reader.size("max_position_embeddings", 8192)
        return CohereConfig(
            model_type="cohere",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=hidden,
            intermediate_size=reader.size("intermediate_size"),
            num_layers=reader.size("num_hidden_layers"),
            attention=read_attention(reader, heads, head_dim),
            rope=RopeConfig.read(reader, default_theta=500000.0),
            max_positions=reader.size("model_max_length", positions),
            norm_eps=reader.positive("layer_norm_eps", 1e-5),
            norm="layer",
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=False,
            tied=reader.optional("tie_word_embeddings", bool),
            logit_scale=reader.positive("logit_scale", 0.0625),
            head_norms=reader.optional("use_qk_norm", bool),
        )


def read_heads(reader: ConfigReader) -> tuple[int, int, int]:
    """num_attention_heads, hidden_size and head_dim, which is always their quotient here."""
    heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
    head_dim = reader.get("head_dim", int, hidden // heads)
    if head_dim * heads != hidden:
        reader.refuse("head_dim", head_dim, f"hidden_size {hidden} / num_attention_heads {heads}")
    reader.expect("hidden_act", str, ("silu", "swish"), "silu")
    return heads, hidden, head_dim
