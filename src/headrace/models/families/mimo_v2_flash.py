"""MiMo-V2-Flash: windows with sinks in five of six layers, values narrower than keys, experts.

    q, k, v = qkv_proj(norm(x))                        v is narrower than q and k (v_head_dim)
    h = x + value_scale * o_proj(attention(rope(q), rope(k), v))        a part of q and k rotates
    y = h + down_proj(silu(gate) * up)                 in the first layer; from there on
    y = h + sum of weight * expert(norm(h))

Layers with a window have twice as many heads of K and V, a rope of their own, and a score of each
head that joins its softmax (attention_sink_bias). A window of sliding_window_size is one of so many
positions before a token and itself, as in the vendor's own engine and in transformers.

    scores = sigmoid(router(norm(h)));  chosen: the largest of scores + e_score_correction_bias
    weights = scores of the chosen, over their sum + 1e-20 (norm_topk_prob)

Layers that predict further tokens stand under `model.mtp.layers`: each has a window and a dense
MLP, and all of them read what goes into the final norm (models/heads/mtp.py).
Sources: transformers modeling_mimo_v2_flash.py for arithmetic and keys, the published config for
those that it does not read; of the layers that predict llama.cpp conversion/mimo.py for names,
vLLM's mimo_v2_mtp.py and SGLang's mimo_v2_flash_nextn.py for arithmetic, and SGLang's
multi_layer_eagle_worker_v2.py for what the second and third one read.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from headrace.models.blocks import Attention
from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    of_layers,
    read_attention,
    read_sigmoid_routing,
)
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames
from headrace.models.loader import Loader
from headrace.models.model import DraftParts, Model
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.layer_kinds import read_sparse_mlps, read_window_kinds
from headrace.weights.model_config.rope_config import FULL, WINDOWED

GLOBAL_THETA, LOCAL_THETA, PARTIAL = 5e6, 1e4, 0.334
VALUE_SCALE = 0.707
DRAFT_LAYERS = 3
"""Of the published folders; their config does not state it."""


@dataclass(frozen=True)
class MiMoV2Config(DecoderConfig):
    """The config of a MiMo-V2-Flash."""

    value_scale: float = 1.0
    """Factor of all values, and so of what attention gives."""


class MiMoV2Layer(ExpertLayer):
    """A layer with experts, or a dense one."""

    expert_names = ExpertNames(bias="gate.e_score_correction_bias")

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> Attention:
        assert isinstance(config, MiMoV2Config)
        attention = Attention.load(config, loader, index, f"{at}.self_attn")
        attention.output_scale = config.value_scale
        if attention.shape.window:
            attention.load_sinks(loader, f"{at}.self_attn", name="attention_sink_bias")
        return attention


class MiMoV2Flash(Model):
    """MiMoV2FlashForCausalLM."""

    layer_type = MiMoV2Layer
    drafts_name = "model.mtp.layers"
    draft_parts = DraftParts(
        final_norm="final_layernorm",
        features_normed=False,
        chained=False,
        renamed={"pre_mlp_layernorm": "post_attention_layernorm"},
    )

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        layers, heads = reader.size("num_hidden_layers", 48), reader.size("num_attention_heads", 64)
        reader.expect("hidden_act", str, ("silu", "swish"), "silu")
        head_dim = reader.size("head_dim", 192)
        full = read_attention(reader, heads, head_dim, default_kv_heads=4)
        value_dim = reader.size("v_head_dim", 128)
        full = replace(full, value_dim=0 if value_dim == head_dim else value_dim)
        local_heads = reader.size("swa_num_key_value_heads", 2 * full.num_kv_heads)
        if heads % local_heads:
            reader.refuse("swa_num_key_value_heads", local_heads, f"divisors of {heads}")
        _expect_alike(reader, heads, head_dim, value_dim)
        windows = _read_windows(reader, layers)
        local = replace(full, num_kv_heads=local_heads)
        rope, local_rope = RopeConfig.read_pair(
            reader,
            default_theta=GLOBAL_THETA,
            default_local_theta=LOCAL_THETA,
            default_partial=PARTIAL,
            local_key="swa_rope_theta",
        )
        return MiMoV2Config(
            model_type="mimo_v2_flash",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=reader.size("hidden_size", 4096),
            intermediate_size=reader.size("intermediate_size", 16384),
            num_layers=layers,
            attention=full,
            layer_attention=tuple(local if window else full for window in windows),
            rope=rope,
            local_rope=local_rope,
            max_positions=reader.size("max_position_embeddings", 131072),
            norm_eps=_read_eps(reader),
            attention_bias=reader.optional("attention_bias", bool),
            output_bias=False,
            mlp_bias=False,
            tied=reader.optional("tie_word_embeddings", bool),
            windows=windows,
            experts=_read_experts(reader, layers),
            draft_layers=DRAFT_LAYERS,
            value_scale=_read_value_scale(reader),
        )

    @staticmethod
    def draft_config(config: DecoderConfig, count: int) -> DecoderConfig:
        """Layers like the last one with a window, without experts."""
        windowed = [index for index, window in enumerate(config.windows) if window]
        like = windowed[-1] if windowed else config.num_layers - 1
        return of_layers(config, [like] * count, dense=True)

    @staticmethod
    def draft_names(config: DecoderConfig) -> Collection[str]:
        """A layer like a dense one, which joins a token's embedding to what the last one gave."""
        modules = (
            "eh_proj", "enorm", "hnorm", "final_layernorm", "input_layernorm",
            "pre_mlp_layernorm", "post_attention_layernorm",
            *(f"self_attn.{letter}_proj" for letter in "qkvo"),
            *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
        )  # fmt: skip
        return (*(f"{module}.weight" for module in modules), "self_attn.attention_sink_bias")


def _expect_alike(reader: ConfigReader, heads: int, head_dim: int, value_dim: int) -> None:
    """What the published config says in words that transformers does not read."""
    reader.expect("swa_num_attention_heads", int, (heads,), heads)
    reader.expect("swa_head_dim", int, (head_dim,), head_dim)
    reader.expect("swa_v_head_dim", int, (value_dim,), value_dim)
    reader.expect("add_swa_attention_sink_bias", bool, (True,), True)
    reader.expect("add_full_attention_sink_bias", bool, (False,), False)
    # How the vendor's code cuts windows into slices; the results are the same.
    reader.unused("attention_chunk_size")


def _read_windows(reader: ConfigReader, layers: int) -> tuple[int, ...]:
    """Window of each layer, as `layer_types` or `hybrid_layer_pattern` says."""
    window = reader.size("sliding_window", 129)
    if (before := reader.optional("sliding_window_size", int)) is not None:
        window = reader.size("sliding_window_size") + 1
        if before >= 1 << 30:
            reader.refuse("sliding_window_size", before, f"1 to {(1 << 30) - 1}")
    usual = (FULL if index % 6 == 5 or index == 0 else WINDOWED for index in range(layers))
    kinds = read_window_kinds(reader, layers, tuple(usual))
    return tuple(window if kind == WINDOWED else 0 for kind in kinds)


def _read_eps(reader: ConfigReader) -> float:
    eps = reader.positive("rms_norm_eps", reader.positive("layernorm_epsilon", 1e-5))
    if reader.positive("layernorm_epsilon", eps) != eps:
        reader.refuse("layernorm_epsilon", reader.raw("layernorm_epsilon"), f"rms_norm_eps {eps}")
    return eps


def _read_value_scale(reader: ConfigReader) -> float:
    """null means no factor, and silence the published one."""
    if reader.states("attention_value_scale") and reader.raw("attention_value_scale") is None:
        return 1.0
    return reader.positive("attention_value_scale", VALUE_SCALE)


def _read_experts(reader: ConfigReader, layers: int) -> ExpertsConfig:
    reader.expect("scoring_func", str, ("sigmoid",), "sigmoid")
    reader.expect("topk_method", str, ("noaux_tc",), "noaux_tc")
    if (shared := reader.optional("n_shared_experts", int)) not in (None, 0):
        reader.refuse("n_shared_experts", shared, "null")
    return ExpertsConfig(
        routing=read_sigmoid_routing(reader, experts=256, chosen=8),
        intermediate_size=reader.size("moe_intermediate_size", 2048),
        layers=read_sparse_mlps(reader, layers, tuple(index > 0 for index in range(layers))),
    )
