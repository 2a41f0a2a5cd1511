"""Hunyuan with experts (A13B): Hunyuan's dense decoder whose MLP is experts beside a shared one.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(query_layernorm(rope(q)), key_layernorm(rope(k)), v))
    y = h + shared(norm(h)) + sum of weight * expert(norm(h))

    scores = softmax(router(norm(h)));  chosen: the largest;  weights: their scores, over their sum

Every expert and the shared one are intermediate_size wide. What the vendor's config may state of
each layer (numbers and widths of experts) must be the same in all.
Sources: github.com/Tencent-Hunyuan/Hunyuan-A13B; transformers modeling_hunyuan_v1_moe.py for
arithmetic and keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig, ExpertsConfig
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames
from headrace.models.families.hunyuan_v1_dense import HunyuanLayer, read_hunyuan
from headrace.models.model import Model
from headrace.ops.experts import Routing
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.tensors.expert_stacks import MAX_EXPERTS


class HunyuanMoeLayer(HunyuanLayer, ExpertLayer):
    """A layer with experts beside a shared one, and norms of heads behind the rotation."""

    expert_names = ExpertNames(router="gate.wg", shared="shared_mlp")


class HunyuanMoe(Model):
    """HunYuanMoEV1ForCausalLM."""

    layer_type = HunyuanMoeLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        # What published files say in words that transformers does not read.
        for key in ("norm_topk_prob", "use_mixed_mlp_moe", "use_rotary_pos_emb"):
            reader.expect(key, bool, (True,), True)
        for key in (
            "add_classification_head", "group_limited_greedy", "mlp_bias", "moe_drop_tokens",
            "position_embedding_xdrope", "use_mla",
        ):  # fmt: skip
            reader.expect(key, bool, (False,), False)
        reader.expect("norm_type", str, ("rms",), "rms")
        reader.expect("moe_layer_num_skipped", int, (0,), 0)
        # Published files have false for none.
        if (scale := reader.raw("routed_scaling_factor")) not in (None, False, 1):
            reader.refuse("routed_scaling_factor", scale, "false or 1")
        # Of groups, which are off, of capacities while training, of heads that classify.
        reader.unused(
            "n_group", "topk_group", "moe_random_routing_dropped_token", "dense_list", "class_num",
            "pool_type", "skip_cls_token", "org_vocab_size",
        )  # fmt: skip
        return read_hunyuan(reader, "hunyuan_v1_moe", experts=_read_experts(reader))


def _read_experts(reader: ConfigReader) -> ExpertsConfig:
    layers, width = reader.size("num_hidden_layers"), reader.size("intermediate_size")
    count = reader.uniform_size("num_experts", layers, 1, most=MAX_EXPERTS)
    chosen = reader.uniform_size("moe_topk", layers, 1)
    if chosen > count:
        reader.refuse("moe_topk", chosen, f"1 to the {count} experts of a layer")
    if (stated := reader.uniform_size("moe_intermediate_size", layers, width)) != width:
        reader.refuse("moe_intermediate_size", stated, f"intermediate_size {width}")
    if (shared := reader.uniform_size("num_shared_expert", layers, 1)) != 1:
        reader.refuse("num_shared_expert", shared, "1")
    return ExpertsConfig(
        routing=Routing(
            num_experts=count, experts_per_token=chosen, score="softmax", normalised=True
        ),
        intermediate_size=width,
        layers=(True,) * layers,
        shared_size=width,
    )
