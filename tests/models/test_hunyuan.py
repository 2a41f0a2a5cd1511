"""Hunyuan, dense and with experts: norms behind the rotation, a base that alpha has grown, numbers
for each layer, what is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.models.blocks import RopeNormAttention
from headrace.ops.experts import Routing
from headrace.ops.interface import Ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.gguf.metadata import metadata_of_config
from tests.tiny import tiny_checkpoint, tiny_config
from tests.tiny_families.hunyuan_v1_dense import ALPHA

FAMILY, MOE = "hunyuan_v1_dense", "hunyuan_v1_moe"


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


def test_a_gguf_file_has_the_base_that_alpha_has_grown() -> None:
    """llama.cpp's own number for the published models, of heads of 128 dimensions."""
    config = tiny_config(FAMILY, head_dim=128, rope_scaling=ALPHA)
    entries = metadata_of_config(config, ARCHITECTURES[FAMILY]).entries
    assert entries["hunyuan-dense.rope.freq_base"] == pytest.approx(11158839.9251, rel=1e-7)
    assert "hunyuan-dense.rope.scaling.type" not in entries


def test_heads_are_normed_behind_the_rotation(reference: Ops) -> None:
    """Goldens are transformers'; weights of the norms differ by dimension, so the order counts."""
    model = load_model(tiny_checkpoint(FAMILY), reference)
    attention = model._layers[0].attention  # type: ignore[attr-defined]
    assert isinstance(attention, RopeNormAttention)
    assert attention.q_norm is attention.k_norm is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"use_cla": True}, "use_cla = True"),
        ({"use_qk_norm": False}, "use_qk_norm = False"),
        ({"attention_head_dim": 64}, "attention_head_dim = 64"),
        ({"num_experts": 8}, "num_experts = 8"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"rope_scaling": {**ALPHA, "alpha": -1.0}}, r"rope_scaling\.alpha is -1"),
        ({"rope_scaling": {**ALPHA, "beta": 1}}, r"rope_scaling\.beta = 1"),
        ({"rope_scaling": ALPHA, "head_dim": 2}, "an alpha and 2 dimensions"),
    ],
)
def test_what_is_not_implemented_stops_the_load(
    change: dict[str, Any], words: str, reference: Ops
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(FAMILY), **change})
        load_model(tiny_checkpoint(FAMILY, **change), reference)


VENDORS_KEYS: dict[str, Any] = {
    "attention_head_dim": 16, "cla_share_factor": 2, "class_num": 0, "dense_list": [64, 0],
    "group_limited_greedy": False, "moe_drop_tokens": False, "moe_intermediate_size": [32, 32],
    "moe_layer_num_skipped": 0, "moe_random_routing_dropped_token": False, "moe_topk": [2, 2],
    "n_group": False, "norm_topk_prob": True, "norm_type": "rms", "num_shared_expert": [1, 1],
    "position_embedding_xdrope": False, "routed_scaling_factor": False, "topk_group": False,
    "use_cla": False, "use_mixed_mlp_moe": True, "use_mla": False, "use_qk_norm": True,
    "use_rotary_pos_emb": True,
}  # fmt: skip
"""What the vendor's configs state of layers and of parts that are off."""


def test_numbers_of_experts_may_be_those_of_each_layer() -> None:
    config = read({**tiny_config(MOE), **VENDORS_KEYS})
    assert config.experts is not None
    assert config.experts.routing == Routing(6, 2, "softmax", True)
    assert (config.experts.intermediate_size, config.experts.shared_size) == (32, 32)
    assert config == read(tiny_config(MOE))


def test_a_gguf_file_with_experts_states_numbers_for_all_layers() -> None:
    config = {**tiny_config(MOE), **VENDORS_KEYS}
    entries = metadata_of_config(config, ARCHITECTURES[MOE]).entries
    assert {key.removeprefix("hunyuan-moe."): entries[key] for key in entries if "exp" in key} == {
        "expert_count": 6,
        "expert_used_count": 2,
        "expert_feed_forward_length": 32,
        "expert_shared_feed_forward_length": 32,
        "expert_shared_count": 1,
    }
    with pytest.raises(UnsupportedModelError, match="moe_intermediate_size = 16"):
        metadata_of_config({**config, "moe_intermediate_size": 16}, ARCHITECTURES[MOE])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"moe_topk": [2, 3]}, r"moe_topk = \[2, 3\]"),
        ({"moe_topk": [2]}, r"moe_topk = \[2\]"),
        ({"moe_topk": [True, True]}, r"moe_topk = \[True, True\]"),
        ({"moe_topk": [0, 0]}, "moe_topk is 0"),
        ({"moe_topk": 7}, "moe_topk = 7"),
        ({"num_experts": 1 << 30}, "num_experts = 1073741824"),
        ({"moe_intermediate_size": [16, 16]}, "moe_intermediate_size = 16"),
        ({"num_shared_expert": 2}, "num_shared_expert = 2"),
        ({"moe_layer_num_skipped": 1}, "moe_layer_num_skipped = 1"),
        ({"norm_topk_prob": False}, "norm_topk_prob = False"),
        ({"use_mixed_mlp_moe": False}, "use_mixed_mlp_moe = False"),
        ({"group_limited_greedy": True}, "group_limited_greedy = True"),
        ({"use_mla": True}, "use_mla = True"),
        ({"use_cla": True}, "use_cla = True"),
        ({"norm_type": "layer"}, "norm_type = 'layer'"),
        ({"moe_router_use_sigmoid": True}, "moe_router_use_sigmoid = True"),
    ],
)
def test_what_is_not_implemented_of_experts_stops_the_load(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(MOE), **change})
