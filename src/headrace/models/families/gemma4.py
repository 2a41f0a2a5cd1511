"""Gemma 4, text: Gemma 3 with wider heads where everything is seen, and experts beside the MLP.

    x = embedding * sqrt(hidden)
    h = x + norm(attention(norm(x)))          q, k, v = rope(q_norm(q)), rope(k_norm(k)), v / rms(v)
    m = mlp(norm(h))                          mlp: down(gelu_tanh(gate) * up)
    m = norm(m) + norm(sum of weight * expert(norm(h)))                      where there are experts
    y = h + norm(m)
    y = y + norm(projection(gelu_tanh(gate(y)) * e))                   where layers have inputs e
    y = y * scalar

Five layers with a window are followed by one that sees everything: its heads are wider
(global_head_dim), fewer of them are of K and V (num_global_key_value_heads), V is K before its norm
(attention_k_eq_v), and a quarter of the pairs of dimensions that lie half a head apart is rotated.
The last layers may read K and V of earlier ones (num_kv_shared_layers). Scores are not scaled.

    router(h) = W (h / rms(h) * scale / sqrt(hidden));  chosen: the largest of softmax(router(h))
    weights = scores of the chosen, over their sum, times per_expert_scale

Inputs of the layers: e = (norm(W x / sqrt(hidden)) + table[token] * sqrt(width)) / sqrt(2).
The text part of `model_type` gemma4 is the same (`weights.model_config.text_part`).
Sources: transformers modeling_gemma4.py for arithmetic and keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from headrace.models.blocks import Attention, GatedMLP, Step
from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    read_attention,
    read_expert_count,
    read_windows,
)
from headrace.models.experts import ExpertNames, Experts
from headrace.models.families.gemma2 import Gemma2, read_softcap
from headrace.models.loader import Loader
from headrace.models.model import Layer
from headrace.models.rope import RopeConfig
from headrace.ops.experts import Routing
from headrace.ops.operands import Array, Norm
from headrace.weights.model_config.config_reader import ConfigReader

FULL_EVERY = 6
GLOBAL_THETA, LOCAL_THETA = 1e6, 1e4
LAYER_TABLE = "model.embed_tokens_per_layer.weight"

_EXPERTS = ExpertNames(
    router="router.proj", router_scale="router.scale", expert_scale="router.per_expert_scale"
)


@dataclass(frozen=True)
class Gemma4Config(DecoderConfig):
    """The config of a Gemma 4."""

    values_are_keys: bool | None = None
    """Whether layers that see everything have no V of their own; None where the file does not
    say."""
    layer_input_width: int = 0
    """Of what each layer gets beside the residual stream; 0 in models without."""
    layer_input_rows: int = 0
    """Tokens in the table of these."""

    @property
    def looked_up_values(self) -> int:
        """Those of the table of the layers' inputs."""
        return self.layer_input_rows * self.num_layers * self.layer_input_width

    @property
    def other_values(self) -> int:
        """The projections to the layers' inputs, and of each layer the gate and the way back."""
        return 3 * self.num_layers * self.layer_input_width * self.hidden_size


class Gemma4Layer(Layer):
    """Norms before and after everything, and what the config switches on."""

    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None:
        assert isinstance(config, Gemma4Config)
        at, hidden = f"model.layers.{index}", config.hidden_size

        def norm(name: str) -> Norm:
            return loader.norm(f"{at}.{name}", hidden, config.norm_eps)

        self.input_norm = norm("input_layernorm")
        self.post_attention = norm("post_attention_layernorm")
        self.pre_mlp = norm("pre_feedforward_layernorm")
        self.post_mlp = norm("post_feedforward_layernorm")
        self.attention = _load_attention(config, loader, index, f"{at}.self_attn")
        self.mlp = GatedMLP.load(config, loader, f"{at}.mlp", width=config.mlp_widths[index])
        self.experts: Experts | None = None
        if config.experts is not None:
            self.experts = Experts.load(config, config.experts, loader, at, _EXPERTS)
            self.pre_experts = norm("pre_feedforward_layernorm_2")
            self.post_dense = norm("post_feedforward_layernorm_1")
            self.post_experts = norm("post_feedforward_layernorm_2")
        self.inputs: slice | None = None
        if width := config.layer_input_width:
            self.inputs = slice(index * width, (index + 1) * width)
            gate, back = f"{at}.per_layer_input_gate", f"{at}.per_layer_projection"
            self.input_gate = loader.linear([gate], [width], hidden, bias=False)
            self.projection = loader.linear([back], [hidden], width, bias=False)
            self.post_inputs = norm("post_per_layer_input_norm")
        scalar = loader.optional_vector(f"{at}.layer_scalar", 1)
        self.scalar = np.float32(1) if scalar is None else scalar[0]
        self.activation = config.activation

    def __call__(self, x: Array, step: Step) -> Array:
        ops = step.ops
        attended = self.attention(x, step, norm=self.input_norm)
        h = ops.norm(attended, self.post_attention, residual=x)
        inner = self.mlp(h, step, norm=self.pre_mlp)
        if self.experts is not None:
            inner = ops.norm(inner, self.post_dense)
            routed = self.experts(h, step, norm=self.pre_experts)
            inner = ops.norm(routed, self.post_experts, residual=inner)
        y = ops.norm(inner, self.post_mlp, residual=h)
        if self.inputs is not None:
            inputs = ops.columns(step.layer_inputs, self.inputs.start, self.inputs.stop)
            gated = ops.gated_activation(ops.concat([self.input_gate(y), inputs]), self.activation)
            y = ops.norm(self.projection(gated), self.post_inputs, residual=y)
        if self.scalar != 1:
            factors = np.full(step.batch.num_tokens, self.scalar, np.float32)
            ops.scale_rows(y, factors, columns=y.shape[1])
        return y


class Gemma4(Gemma2):
    """Gemma4ForCausalLM."""

    layer_type = Gemma4Layer
    more_tables = (LAYER_TABLE,)

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        hidden, layers = reader.size("hidden_size", 2304), reader.size("num_hidden_layers", 30)
        reader.expect("hidden_activation", str, ("gelu_pytorch_tanh",), "gelu_pytorch_tanh")
        # Tokens of images see each other; those of text do not.
        reader.expect("use_bidirectional_attention", str, ("vision",), "vision")
        windows = read_windows(reader, layers, reader.size("sliding_window", 512), FULL_EVERY)
        if windows[-1]:
            reader.refuse("layer_types", reader.raw("layer_types"), "full_attention at the end")
        heads, head_dim = reader.size("num_attention_heads", 8), reader.size("head_dim", 256)
        local = read_attention(reader, heads, head_dim, scale=1.0, default_kv_heads=4)
        values_are_keys = reader.optional("attention_k_eq_v", bool)
        full_kv_heads = reader.size("num_global_key_value_heads", local.num_kv_heads)
        if values_are_keys is False:
            full_kv_heads = local.num_kv_heads
        if heads % full_kv_heads:
            reader.refuse("num_global_key_value_heads", full_kv_heads, f"divisors of {heads}")
        full_dim = reader.size("global_head_dim", 512)
        if full_dim % 2:
            reader.refuse("global_head_dim", full_dim, "even numbers, which rotation needs")
        full = replace(local, num_kv_heads=full_kv_heads, head_dim=full_dim)
        rope, local_rope = _read_ropes(reader)
        sources = _read_sources(reader, windows)
        width = reader.size("intermediate_size", 9216)
        wide = reader.get("use_double_wide_mlp", bool, False)
        inputs = reader.get("hidden_size_per_layer_input", int, 256)
        if not 0 <= inputs < 1 << 16:
            reader.refuse("hidden_size_per_layer_input", inputs, "0 to 65535")
        return Gemma4Config(
            model_type="gemma4_text",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=hidden,
            intermediate_size=width,
            num_layers=layers,
            attention=local,
            layer_attention=tuple(local if window else full for window in windows),
            kv_sources=sources,
            rope=rope,
            local_rope=local_rope,
            max_positions=reader.size("max_position_embeddings", 131072),
            norm_eps=reader.positive("rms_norm_eps", 1e-6),
            activation="gelu_tanh",
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=False,
            tied=reader.optional("tie_word_embeddings", bool),
            windows=windows,
            embedding_scale=math.sqrt(hidden),
            logit_softcap=read_softcap(reader, "final_logit_softcapping", 0.0),
            experts=_read_experts(reader, layers),
            values_are_keys=values_are_keys,
            mlp_widths=tuple(
                2 * width if wide and source != layer else width
                for layer, source in enumerate(sources)
            ),
            layer_input_width=inputs,
            layer_input_rows=reader.size("vocab_size_per_layer_input", 262144),
        )

    def load_more(self, config: DecoderConfig, loader: Loader) -> None:
        """The table of the layers' inputs, and their projection."""
        assert isinstance(config, Gemma4Config)
        width, hidden = config.layer_input_width, config.hidden_size
        if not width:
            return
        total = config.num_layers * width
        self._layer_table = loader.embedding(LAYER_TABLE, config.layer_input_rows, total)
        name = "model.per_layer_model_projection"
        self._layer_projection = loader.linear([name], [total], hidden, bias=False)
        # The sum of both parts is divided by sqrt(2): each of them is.
        self._layer_norm = loader.norm_of_vector(
            "model.per_layer_projection_norm.weight",
            width,
            config.norm_eps,
            factor=math.sqrt(0.5),
            repeats=config.num_layers,
        )

    def layer_inputs(self, x: Array, step: Step) -> Array | None:
        """Of all layers side by side: what the token is, and what its embedding says."""
        config = self.config
        assert isinstance(config, Gemma4Config)
        if not config.layer_input_width:
            return None
        projected = self._layer_projection(x, scale=config.hidden_size**-0.5)
        step.ops.norm_columns(projected, 0, self._layer_norm, groups=config.num_layers)
        kind = np.float32 if self._layer_table.codec == "F32" else ml_dtypes.bfloat16
        scale = float(kind(math.sqrt(config.layer_input_width))) * math.sqrt(0.5)
        return step.ops.embedding(
            self._layer_table, step.batch.token_ids, scale=scale, residual=projected
        )


def _load_attention(config: Gemma4Config, loader: Loader, index: int, at: str) -> Attention:
    shared = config.values_are_keys
    if shared is None:
        shared = not loader.has(f"{at}.v_proj.weight")
    full = not config.windows[index]
    attention = Attention.load(config, loader, index, at, values_are_keys=shared and full)
    attention.load_head_norms(config, loader, at)
    attention.load_value_norm(config, loader)
    return attention


def _read_ropes(reader: ConfigReader) -> tuple[RopeConfig, RopeConfig]:
    if reader.raw("rope_parameters") is None:
        return RopeConfig(GLOBAL_THETA, "proportional", partial=0.25), RopeConfig(LOCAL_THETA)
    return RopeConfig.read_pair(
        reader,
        default_theta=GLOBAL_THETA,
        default_local_theta=LOCAL_THETA,
        default_partial=1.0,
    )


def _read_sources(reader: ConfigReader, windows: tuple[int, ...]) -> tuple[int, ...]:
    """The last layers read K and V of the last one before them that is of their kind."""
    layers, shared = len(windows), reader.get("num_kv_shared_layers", int, 0)
    first = layers - shared
    sources = list(range(layers))
    if not 0 <= shared < layers or not {*windows[first:]} <= {*windows[:first]}:
        reader.refuse(
            "num_kv_shared_layers", shared, f"0 to {layers - 1}, behind layers of both kinds"
        )
    for layer in range(first, layers):
        sources[layer] = max(at for at in range(first) if windows[at] == windows[layer])
    return tuple(sources)


def _read_experts(reader: ConfigReader, layers: int) -> ExpertsConfig | None:
    if not reader.get("enable_moe_block", bool, False):
        reader.unused("num_experts", "top_k_experts", "moe_intermediate_size")
        return None
    count = read_expert_count(reader, "num_experts")
    chosen = reader.size("top_k_experts")
    if chosen > count:
        reader.refuse("top_k_experts", chosen, f"1 to the {count} experts of a layer")
    return ExpertsConfig(
        routing=Routing(
            num_experts=count, experts_per_token=chosen, score="softmax", normalised=True
        ),
        intermediate_size=reader.size("moe_intermediate_size"),
        layers=(True,) * layers,
    )
