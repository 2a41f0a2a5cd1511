"""MiMo-V2-Flash: the published config, what stops a load, layers that predict, words in GGUF."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.models.families.mimo_v2_flash import MiMoV2Config
from headrace.models.layer_cache import LayerKV
from headrace.ops.experts import Routing
from headrace.ops.interface import Ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.conversion.convert import write_gguf
from headrace.weights.gguf.metadata import metadata_of_config
from tests.tiny import tiny_checkpoint, tiny_config, to_tensor

FAMILY = "mimo_v2_flash"


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


def test_the_published_config_is_read(shared_assets: Path) -> None:
    folder = shared_assets / "model-configs" / "hf-config"
    stated = json.loads((folder / "XiaomiMiMo--MiMo-V2-Flash_config.json").read_text("utf-8"))
    config = read(stated)
    assert stated.pop("quantization_config")["quant_method"] == "fp8"
    assert isinstance(config, MiMoV2Config)
    assert config.value_scale == pytest.approx(0.707)
    # So many positions before a token, and itself.
    window = LayerKV(8, 192, 129, 128)
    assert config.layer_caches[:6] == (
        LayerKV(4, 192, 0, 128),
        *[window] * 4,
        LayerKV(4, 192, 0, 128),
    )
    assert (config.num_layers, config.rotary_dim, config.attention_width) == (48, 64, 64 * 128)
    assert config.rope is not None and config.rope.theta == 5e6
    assert config.local_rope is not None and config.local_rope.theta == 1e4
    assert config.experts is not None and config.experts.layers == (False, *[True] * 47)
    assert config.experts.routing == Routing(
        256, 8, "sigmoid", True, epsilon=1e-20, group_score="top2"
    )
    entries = metadata_of_config(stated, ARCHITECTURES[FAMILY]).entries
    said = {key.removeprefix("mimo2."): value for key, value in entries.items()}
    assert said["attention.head_count_kv"][:6] == [4, 8, 8, 8, 8, 4]
    assert (said["attention.key_length"], said["attention.value_length"]) == (192, 128)
    assert (said["rope.dimension_count"], said["attention.sliding_window"]) == (64, 129)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"swa_head_dim": 64}, "swa_head_dim = 64"),
        ({"swa_num_attention_heads": 8}, "swa_num_attention_heads = 8"),
        ({"swa_num_key_value_heads": 3}, "swa_num_key_value_heads = 3"),
        ({"add_full_attention_sink_bias": True}, "add_full_attention_sink_bias = True"),
        ({"add_swa_attention_sink_bias": False}, "add_swa_attention_sink_bias = False"),
        ({"hybrid_layer_pattern": [0, 1, 0]}, "layer_types"),
        ({"hybrid_layer_pattern": [0, "x", 0]}, "hybrid_layer_pattern"),
        ({"moe_layer_freq": [0, 0, 1]}, "mlp_layer_types"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"n_shared_experts": 1}, "n_shared_experts = 1"),
        ({"scoring_func": "softmax"}, "scoring_func = 'softmax'"),
        ({"layernorm_epsilon": 1e-3}, "layernorm_epsilon"),
        ({"sliding_window_size": 1 << 30}, "sliding_window_size = 1073741824"),
        ({"n_group": 3}, "n_group = 3"),
        ({"attention_value_scale": 0.0}, "attention_value_scale is 0.0"),
        ({"use_qk_norm": True}, "use_qk_norm = True"),
    ],
)
def test_what_is_not_implemented_stops_the_load(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(FAMILY), **change})


def test_layers_that_predict_are_known_by_name_and_not_run(reference: Ops) -> None:
    checkpoint = tiny_checkpoint(FAMILY)
    drafts = {
        name: to_tensor(name, np.ones((4, 4), np.float32), "F32")
        for layer in range(3)
        for end in ("eh_proj.weight", "self_attn.q_proj.weight", "mlp.up_proj.weight")
        for name in (f"model.mtp.layers.{layer}.{end}",)
    }
    more = replace(checkpoint, tensors={**checkpoint.tensors, **drafts})
    plain, whole = load_model(checkpoint, reference), load_model(more, reference)
    assert whole.weight_bytes == plain.weight_bytes
    other = "model.mtp.layers.3.eh_proj.weight"
    unknown = {**checkpoint.tensors, other: replace(drafts[next(iter(drafts))], name=other)}
    with pytest.raises(UnsupportedModelError, match=r"mtp\.layers\.3"):
        load_model(replace(checkpoint, tensors=unknown), reference)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mlp_layer_types": ["sparse"] * 3}, "mlp_layer_types"),
        ({"norm_topk_prob": False}, "norm_topk_prob"),
        ({"routed_scaling_factor": 2.0}, "routed_scaling_factor"),
    ],
)
def test_what_gguf_cannot_state_is_not_written(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        write_gguf(tiny_checkpoint(FAMILY, **change), tmp_path / "m.gguf")
