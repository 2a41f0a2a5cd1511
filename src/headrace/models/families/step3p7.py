"""Step-3.5-Flash and Step-3.7-Flash, text: windows in three of four layers, a gate for each head.

    q, k, v = q_norm(q_proj(norm(x))), k_norm(k_proj(norm(x))), v_proj(norm(x))
    a = attention(rope(q), rope(k), v)                 a norm over each head
    h = x + o_proj(sigmoid(g_proj(norm(x))) * a)       one gate for each head
    y = h + mlp(norm(h))                               in the first layers; from there on
    y = h + share_expert(norm(h)) + sum of weight * expert(norm(h))

    each of them: down(min(silu(gate), l) * up), up from -l to l, for the layer's limit l if any:
    swiglu_limits of experts, swiglu_limits_shared of the others
    norms: x / rms(x) * (1 + w), of which folders store w

Layers with a window have more heads of Q (num_sliding_attention_heads) and a rope of their own.

    scores = sigmoid(router(norm(h)));  chosen: the largest of scores + router_bias
    weights = scores of the chosen, over their sum, times moe_router_scaling_factor

Layers behind the last one predict further tokens (num_nextn_predict_layers): each has a dense MLP
and a head of its own, and reads what goes into the final norm, or what the one before it gave
(models/heads/mtp.py).
The text part of a folder with images is the same (`weights.model_config.text_part`).
Sources: transformers modeling_step3p7.py for arithmetic, configuration_step3p7.py and llama.cpp
conversion/step3.py for keys and names; vLLM's and SGLang's step3p5_mtp.py for the layers that
predict, SGLang's for what the second and third one read.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from headrace.models.blocks import MLP, Attention, GatedMLP
from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    of_layers,
    read_attention,
)
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames, Experts
from headrace.models.loader import Loader
from headrace.models.model import DraftParts, Model
from headrace.ops.experts import Routing
from headrace.ops.kv import AttentionShape
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.step_config import StepConfig, read_ropes
from headrace.weights.tensors.expert_stacks import MAX_EXPERTS

_EXPERTS = ExpertNames(
    router="moe.gate", expert="moe.experts.{}", bias="moe.router_bias", shared="share_expert"
)


@dataclass(frozen=True)
class StepDecoderConfig(DecoderConfig):
    """The config of a Step-3.5 or Step-3.7."""

    limits: tuple[float, ...] = ()
    """At which each layer's experts cut a gate and what it meets; 0 where they do not."""
    shared_limits: tuple[float, ...] = ()
    """The same of shared experts and dense MLPs."""
    draft_windows: tuple[bool, ...] = ()
    """Which of the layers that predict have a window."""
    draft_limits: tuple[float, ...] = ()
    """At which their MLPs cut."""

    @property
    def other_values(self) -> int:
        """Those of the gates, a row for each head."""
        heads = sum(self.attention_of(layer).num_heads for layer in range(self.num_layers))
        return heads * self.hidden_size


class StepLayer(ExpertLayer):
    """A layer whose heads have gates, with experts or a dense MLP."""

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> Attention:
        attention = Attention.load(config, loader, index, f"{at}.self_attn")
        attention.load_head_norms(config, loader, f"{at}.self_attn")
        attention.load_gates(config, loader, f"{at}.self_attn.g_proj")
        return attention

    def load_mlp(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> GatedMLP | MLP | Experts:
        assert isinstance(config, StepDecoderConfig) and config.experts is not None
        if not config.experts.layers[index]:
            dense = GatedMLP.load(config, loader, f"{at}.mlp")
            dense.limit = config.shared_limits[index]
            return dense
        experts = Experts.load(config, config.experts, loader, at, _EXPERTS)
        experts.mlp = replace(experts.mlp, limit=config.limits[index])
        assert isinstance(experts.shared, GatedMLP)
        experts.shared.limit = config.shared_limits[index]
        return experts


class Step(Model):
    """Step3p7TextModel and its lm_head."""

    layer_type = StepLayer
    draft_parts = DraftParts(
        final_norm="transformer.shared_head.norm",
        head="transformer.shared_head.output",
        features_normed=False,
    )

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        step = StepConfig.read(reader)
        rope, local_rope = read_ropes(reader)
        reader.expect("hidden_act", str, ("silu", "swish"), "silu")
        reader.expect("attention_bias", bool, (False,), False)
        reader.expect("mlp_bias", bool, (False,), False)
        reader.expect("use_bidirectional_attention", bool, (False,), False)
        full, local = _read_heads(reader, step)
        windows = step.windowed[: step.layers]
        return StepDecoderConfig(
            model_type="step3p7",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=reader.size("hidden_size", 4096),
            intermediate_size=reader.size("intermediate_size", 11264),
            num_layers=step.layers,
            attention=full,
            layer_attention=tuple(local if windowed else full for windowed in windows),
            rope=rope,
            local_rope=local_rope,
            max_positions=reader.size("max_position_embeddings", 128000),
            norm_eps=reader.positive("rms_norm_eps", 1e-5),
            attention_bias=False,
            mlp_bias=False,
            tied=reader.optional("tie_word_embeddings", bool),
            windows=tuple(step.window if windowed else 0 for windowed in windows),
            experts=_read_experts(reader, step),
            draft_layers=step.drafts,
            limits=step.limits,
            shared_limits=step.shared_limits,
            draft_windows=step.windowed[step.layers :],
            draft_limits=step.draft_limits,
        )

    @staticmethod
    def draft_config(config: DecoderConfig, count: int) -> DecoderConfig:
        """Dense layers like the last one of their kind."""
        assert isinstance(config, StepDecoderConfig)
        kinds = (*config.draft_windows, *[False] * count)[:count]
        windows = config.windows
        like = [
            max(at for at, window in enumerate(windows) if bool(window) is kind or not at)
            for kind in kinds
        ]
        return replace(
            of_layers(config, like, dense=True),
            limits=(0.0,) * count,
            shared_limits=(*config.draft_limits, *[0.0] * count)[:count],
        )

    @staticmethod
    def draft_names(config: DecoderConfig) -> Collection[str]:
        """A layer like the others, which joins a token's embedding to what the last one gave."""
        count = 0 if config.experts is None else config.experts.routing.num_experts
        parts = ["mlp", "share_expert", *(f"moe.experts.{number}" for number in range(count))]
        modules = (
            "eh_proj", "enorm", "hnorm", "embed_tokens", "transformer.shared_head.norm",
            "transformer.shared_head.output", "input_layernorm", "post_attention_layernorm",
            "self_attn.q_norm", "self_attn.k_norm",
            *(f"self_attn.{letter}_proj" for letter in "qkvog"), "moe.gate",
            *(f"{part}.{name}_proj" for part in parts for name in ("gate", "up", "down")),
        )  # fmt: skip
        return (*(f"{module}.weight" for module in modules), "moe.router_bias")


def _read_heads(reader: ConfigReader, step: StepConfig) -> tuple[AttentionShape, AttentionShape]:
    """Heads of layers that see everything, and of those with a window."""
    head_dim = reader.size("head_dim", 128)
    scalar = reader.positive("query_pre_attn_scalar", float(head_dim))
    for key, heads in (
        ("num_attention_heads", step.heads),
        ("num_sliding_attention_heads", step.local_heads),
    ):
        if heads % step.kv_heads:
            reader.refuse(key, heads, f"multiples of num_key_value_heads {step.kv_heads}")
    one_name = ConfigReader({"num_key_value_heads": step.kv_heads})
    full = read_attention(one_name, step.heads, head_dim, scale=scalar**-0.5)
    return full, replace(full, num_heads=step.local_heads)


def _read_experts(reader: ConfigReader, step: StepConfig) -> ExpertsConfig:
    reader.expect("scoring_func", str, ("sigmoid",), "sigmoid")
    reader.expect("moe_router_activation", str, ("sigmoid",), "sigmoid")
    reader.expect("use_moe_router_bias", bool, (True,), True)
    reader.expect("norm_expert_weight", bool, (True,), True)
    reader.expect("n_shared_experts", int, (1,), 1)
    if step.experts > MAX_EXPERTS:
        reader.refuse("n_routed_experts", step.experts, f"1 to {MAX_EXPERTS}")
    if step.chosen > step.experts:
        reader.refuse("num_experts_per_tok", step.chosen, f"1 to the {step.experts} experts")
    return ExpertsConfig(
        routing=Routing(
            num_experts=step.experts,
            experts_per_token=step.chosen,
            score="sigmoid",
            normalised=True,
            scale=reader.positive("moe_router_scaling_factor", 1.0),
        ),
        intermediate_size=reader.size("moe_intermediate_size", 1280),
        layers=step.sparse,
        shared_size=step.shared_width,
    )
