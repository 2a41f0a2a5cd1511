"""StableLM 2: Llama with LayerNorms and a quarter of each head rotated.

    h = x + o_proj(attention(rope(q), rope(k), v))      q, k, v = qkv_proj(norm(x))
    y = h + down_proj(silu(gate) * up)                  gate, up = gate_up_proj(norm2(h))

In the 12B (`use_parallel_residual`) the MLP reads norm(x) too, and heads of Q and K have LayerNorms
with weights of their own (`qk_layernorm`). Biases of Q, K and V: `use_qkv_bias`.
Sources: arXiv 2402.17834; transformers modeling_stablelm.py for the keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.models.blocks import Attention, GatedMLP, Step
from headrace.models.config import DecoderConfig, read_attention
from headrace.models.families.cohere import HeadNormAttention
from headrace.models.loader import Loader
from headrace.models.model import Layer, Model
from headrace.models.rope import RopeConfig
from headrace.ops.operands import Array
from headrace.weights.model_config.config_reader import ConfigReader


@dataclass(frozen=True)
class StableLmConfig(DecoderConfig):
    """The config of a StableLM."""

    parallel: bool | None = None
    """Whether attention and MLP share one norm and stand side by side; None where the file does
    not say, and then so where layers have no second norm."""
    head_norms: bool | None = None
    """Whether heads of Q and K have norms; None where the file does not say."""


class StableLmLayer(Layer):
    """A layer with one LayerNorm, or with two."""

    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None:
        at, hidden = f"model.layers.{index}", config.hidden_size
        second = f"{at}.post_attention_layernorm"
        parallel = config.parallel if isinstance(config, StableLmConfig) else None
        head_norms = config.head_norms if isinstance(config, StableLmConfig) else None
        if parallel is None:
            parallel = not loader.has(f"{second}.weight")
        if head_norms is None:
            head_norms = loader.has(f"{at}.self_attn.q_norm.weight")
        self.norm = loader.norm(f"{at}.input_layernorm", hidden, config.norm_eps, "layer")
        attention_type = HeadNormAttention if head_norms else Attention
        self.attention = attention_type.load(config, loader, index, f"{at}.self_attn")
        if head_norms:
            self.attention.load_head_norms(config, loader, f"{at}.self_attn")
        self.second_norm = None
        if not parallel:
            self.second_norm = loader.norm(second, hidden, config.norm_eps, "layer")
        self.mlp = GatedMLP.load(config, loader, f"{at}.mlp")

    def __call__(self, x: Array, step: Step) -> Array:
        n = step.ops.norm(x, self.norm)
        h = self.attention(n, step, residual=x)
        if self.second_norm is None:
            return self.mlp(n, step, residual=h)
        return self.mlp(h, step, norm=self.second_norm, residual=h)


class StableLm(Model):
    """StableLmForCausalLM."""

    layer_type = StableLmLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
        if hidden % heads:
            reader.refuse("hidden_size", hidden, f"multiples of num_attention_heads {heads}")
        reader.expect("hidden_act", str, ("silu", "swish"), "silu")
        return StableLmConfig(
            model_type="stablelm",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=hidden,
            intermediate_size=reader.size("intermediate_size"),
            num_layers=reader.size("num_hidden_layers"),
            attention=read_attention(reader, heads, hidden // heads, default_kv_heads=32),
            rope=RopeConfig.read(reader, default_partial=0.25),
            max_positions=reader.size("max_position_embeddings", 4096),
            norm_eps=reader.positive("layer_norm_eps", 1e-5),
            norm="layer",
            attention_bias=reader.optional("use_qkv_bias", bool),
            output_bias=False,
            mlp_bias=False,
            tied=reader.optional("tie_word_embeddings", bool),
            parallel=reader.optional("use_parallel_residual", bool),
            head_norms=reader.optional("qk_layernorm", bool),
        )
