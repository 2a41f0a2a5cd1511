"""StarCoder2: rotary attention in groups with a window, LayerNorm, and an MLP without a gate.

    h = x + o_proj(attention(rope(q), rope(k), v, window))      q, k, v = qkv_proj(norm(x))
    y = h + c_proj(gelu_tanh(c_fc(norm(h))))

Every projection and norm has a bias (`use_bias` speaks of the projections).
Sources: arXiv 2402.19173; transformers modeling_starcoder2.py for the keys.
"""

from __future__ import annotations

from headrace.models.blocks import MLP
from headrace.models.config import DecoderConfig, read_attention, read_uniform_windows
from headrace.models.decoder import PreNormLayer
from headrace.models.families.gpt2 import GELU_TANH
from headrace.models.loader import Loader
from headrace.models.model import Model
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader


class Starcoder2Layer(PreNormLayer):
    """One layer; names of the MLP are GPT-2's."""

    def load_mlp(self, config: DecoderConfig, loader: Loader, index: int, at: str) -> MLP:
        return MLP.load(config, loader, f"{at}.mlp.c_fc", f"{at}.mlp.c_proj")


class Starcoder2(Model):
    """Starcoder2ForCausalLM."""

    layer_type = Starcoder2Layer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
        if hidden % heads:
            reader.refuse("hidden_size", hidden, f"multiples of num_attention_heads {heads}")
        head_dim = reader.size("head_dim", hidden // heads)
        layers = reader.size("num_hidden_layers")
        positions = reader.size("max_position_embeddings", 4096)
        activation = reader.expect("hidden_act", str, tuple(GELU_TANH), "gelu_pytorch_tanh")
        # What published configs say besides, in words that transformers does not read.
        reader.expect("mlp_type", str, ("default",), "default")
        reader.expect("norm_type", str, ("layer_norm",), "layer_norm")
        reader.expect("scale_attn_weights", bool, (True,), True)
        reader.unused("activation_function", "layer_norm_epsilon")
        use_bias = reader.optional("use_bias", bool)
        return DecoderConfig(
            model_type="starcoder2",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=hidden,
            intermediate_size=reader.size("intermediate_size"),
            num_layers=layers,
            attention=read_attention(reader, heads, head_dim, default_kv_heads=2),
            rope=RopeConfig.read(reader),
            max_positions=positions,
            norm_eps=reader.positive("norm_epsilon", 1e-5),
            norm="layer",
            activation=GELU_TANH[activation],
            attention_bias=use_bias,
            mlp_bias=use_bias,
            tied=reader.get("tie_word_embeddings", bool, True),
            windows=read_uniform_windows(reader, layers, positions),
        )
