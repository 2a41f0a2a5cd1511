"""Step-3.7: published configs, what stops a load, ropes and limits by layer, words in GGUF."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.models.families.step3p7 import StepDecoderConfig
from headrace.models.layer_cache import LayerKV
from headrace.models.rope import RopeConfig
from headrace.ops.experts import Routing
from headrace.ops.interface import Ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.gguf.metadata import metadata_of_config
from headrace.weights.model_config.text_part import text_config
from headrace.weights.open import open_checkpoint
from tests.models.cases import Session, prompt
from tests.models.whole_folders import write_whole
from tests.tiny import tiny_checkpoint, tiny_config, to_tensor
from tests.tiny_families.step3p7 import CASES, FULL, LLAMA3, OUTER, ROPES, WINDOWED

FAMILY, PUBLISHED = "step3p7", "step3p7-llama3"


def read(config: dict[str, Any]) -> StepDecoderConfig:
    empty = Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    found: DecoderConfig = read_config(empty)
    assert isinstance(found, StepDecoderConfig)
    return found


def test_the_published_config_is_read(shared_assets: Path) -> None:
    folder = shared_assets / "model-configs" / "hf-config"
    stated = json.loads((folder / "stepfun-ai--Step-3.7-Flash_config.json").read_text("utf-8"))
    assert read({**stated, "quantization_config": {"quant_method": "fp8"}}) == read(stated)
    config = read(stated)
    assert config.layer_caches[:5] == (
        LayerKV(8, 128),
        *[LayerKV(8, 128, 512)] * 3,
        LayerKV(8, 128),
    )
    assert (config.num_layers, config.draft_layers, config.max_positions) == (45, 3, 65536)
    experts = config.experts
    assert experts is not None and experts.layers == (False,) * 3 + (True,) * 42
    assert experts.routing == Routing(288, 8, "sigmoid", True, scale=3.0)
    assert (experts.intermediate_size, experts.shared_size) == (1280, 1280)
    assert config.limits == config.shared_limits == (0.0,) * 45
    # It says nothing of ropes.
    assert config.rope == config.local_rope == RopeConfig(10000.0)
    said = {"rope_theta": 10000.0, "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0] * 11 + [0.5]}
    entries = metadata_of_config({**stated, **said}, ARCHITECTURES[FAMILY]).entries
    assert entries["step35.block_count"] == 48 and entries["step35.nextn_predict_layers"] == 3
    assert entries["step35.attention.head_count"] == [64] * 48
    assert entries["step35.leading_dense_block_count"] == 3
    assert entries["step35.rope.dimension_count"] == 128
    assert entries["step35.expert_count"] == 288


def test_words_of_published_configs_and_of_transformers_say_the_same() -> None:
    words = tiny_config(FAMILY, **CASES[PUBLISHED])
    kinds, mlps = [FULL, WINDOWED, FULL], ["dense", "sparse", "sparse"]
    other = {
        **tiny_config(FAMILY),
        "layer_types": kinds,
        "mtp_layer_types": [WINDOWED],
        "mlp_layer_types": [*mlps, "sparse"],
        "num_nextn_predict_layers": 1,
        "num_mtp_layers": 1,
        "rope_parameters": {**ROPES, FULL: {**ROPES[FULL], **LLAMA3}},
        "swiglu_limits": [None, 1.0, None],
        "swiglu_limits_shared": [None, None, 1.5],
        "num_attention_groups": 2,
        "moe_num_experts": 8,
        "moe_top_k": 2,
        "share_expert_dims": 32,
    }
    assert read(other) == read(words)
    step35 = text_config({**other, "model_type": "step3p5"})
    assert read(step35) == read(words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"attention_bias": True}, "attention_bias = True"),
        ({"mlp_bias": True}, "mlp_bias = True"),
        ({"scoring_func": "softmax"}, "scoring_func = 'softmax'"),
        ({"moe_router_activation": "softmax"}, "moe_router_activation = 'softmax'"),
        ({"use_moe_router_bias": False}, "use_moe_router_bias = False"),
        ({"norm_expert_weight": False}, "norm_expert_weight = False"),
        ({"n_shared_experts": 2}, "n_shared_experts = 2"),
        ({"moe_every_n_layer": 2}, "moe_every_n_layer = 2"),
        ({"moe_num_experts": 16}, "moe_num_experts = 16"),
        ({"num_attention_groups": 4}, "num_attention_groups = 4"),
        ({"n_routed_experts": 10**9}, "n_routed_experts = 1000000000"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok = 9"),
        ({"num_sliding_attention_heads": 7}, "num_sliding_attention_heads = 7"),
        ({"attention_other_setting": {"num_attention_heads": 6}}, "num_attention_heads = 6"),
        ({"attention_other_setting": {"attention_type": FULL}}, "attention_type"),
        ({"attention_other_setting": {"colour": 1}}, "attention_other_setting.colour"),
        ({"layer_types": [FULL]}, "layer_types"),
        ({"layer_types": [FULL, "chunked", FULL]}, "layer_types"),
        ({"sliding_window": None}, "sliding_window is missing"),
        ({"mlp_layer_types": ["dense", "x", "sparse"]}, "mlp_layer_types"),
        ({"first_k_dense_replace": 2}, "first_k_dense_replace = 2"),
        ({"moe_layers_enum": "one"}, "moe_layers_enum = 'one'"),
        ({"swiglu_limits": [1.0]}, "swiglu_limits"),
        ({"swiglu_limits": [1.0, -1.0, 0.0]}, r"swiglu_limits = -1\.0"),
        ({"swiglu_limits": [1.0, "x", 0.0]}, "swiglu_limits.1 is 'x'"),
        ({"num_nextn_predict_layers": 17}, "num_nextn_predict_layers = 17"),
        ({"num_mtp_layers": 2}, "num_mtp_layers = 2"),
        ({"gating": "per-value"}, "gating = 'per-value'"),
    ],
)
def test_what_is_not_implemented_stops_the_load(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(FAMILY), **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rope_theta": [5e6, 1e4, 1e6, 1e4]}, "rope_theta"),
        ({"rope_theta": [5e6]}, "rope_theta"),
        ({"partial_rotary_factors": [0.5, 1.0, "x", 1.0]}, "partial_rotary_factors"),
        ({"rope_scaling": {"rope_type": "x"}}, "rope_type = 'x'"),
        ({"rope_scaling": {**LLAMA3, "colour": 1}}, "colour"),
        ({"rope_scaling": 2}, "rope_scaling = 2"),
    ],
)
def test_ropes_that_stop_the_load(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(FAMILY, **CASES[PUBLISHED]), **change})


def test_layers_that_predict_are_known_by_name_and_not_run(reference: Ops, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(FAMILY, **CASES[PUBLISHED])
    ends = ("eh_proj.weight", "enorm.weight", "transformer.shared_head.output.weight",
            "self_attn.g_proj.weight", "moe.router_bias")  # fmt: skip
    drafts = {
        name: to_tensor(name, np.ones((4,) if end.endswith(("norm.weight", "_bias")) else (4, 4),
                                      np.float32), "F32")
        for end in ends
        for name in (f"model.layers.3.{end}",)
    }  # fmt: skip
    more = replace(checkpoint, tensors={**checkpoint.tensors, **drafts})
    plain, whole = load_model(checkpoint, reference), load_model(more, reference)
    assert whole.weight_bytes == plain.weight_bytes
    write_gguf(more, tmp_path / "m.gguf")
    written = open_checkpoint(tmp_path / "m.gguf")
    assert drafts.keys() <= written.tensors.keys()
    assert read(dict(written.config)) == replace(whole.config, rope=RopeConfig(5e6, partial=0.5))
    unknown = {**checkpoint.tensors}
    unknown["model.layers.4.eh_proj.weight"] = drafts["model.layers.3.eh_proj.weight"]
    with pytest.raises(UnsupportedModelError, match=r"layers\.4\.eh_proj"):
        load_model(replace(checkpoint, tensors=unknown), reference)


def test_the_text_part_of_a_folder_with_images(reference: Ops, tmp_path: Path) -> None:
    others = {"vision_model.ln_pre.weight": (16,), "vit_large_projector.weight": (4, 4)}
    whole = open_checkpoint(write_whole(tmp_path, FAMILY, 0, OUTER, others))
    assert whole.left_out == {"vision_model": 1, "vit_large_projector": 1}
    alone = tiny_checkpoint(FAMILY)
    found, expected = (
        Session(load_model(item, reference), reference).feed(prompt(0)[:20])
        for item in (whole, alone)
    )
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mlp_layer_types": ["dense", "sparse", "dense"]}, "mlp_layer_types"),
        ({"query_pre_attn_scalar": 48}, "query_pre_attn_scalar"),
        ({"rope_parameters": {**ROPES, FULL: ROPES[WINDOWED]}}, r"kind default, 1\.0 of a head"),
        ({"rope_parameters": {**ROPES, FULL: {**ROPES[FULL], "rope_type": "linear",
                                              "factor": 2.0}}}, "kind linear, 0.5"),
    ],
)  # fmt: skip
def test_what_gguf_cannot_state_is_not_written(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        metadata_of_config({**tiny_config(FAMILY), **change}, ARCHITECTURES[FAMILY])


def test_divisors_of_a_head_of_which_half_is_rotated(reference: Ops, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(tiny_checkpoint(FAMILY, **CASES[PUBLISHED]), path)
    checkpoint = open_checkpoint(path)
    stored = checkpoint.tensors["rope_freqs.weight"]
    values = stored.to_f32().reshape(-1)
    assert stored.shape == (16,) and (values[8:] == 1).all() and values[:8].max() == 2
    wrong = to_tensor(stored.name, np.full(16, 2, np.float32), "F32")
    tensors = {**checkpoint.tensors, stored.name: wrong}
    with pytest.raises(UnsupportedModelError, match="not rotated, behind the first 16 of a head"):
        load_model(replace(checkpoint, tensors=tensors), reference)
    # The numbers that these divisors follow from are not in the file.
    with pytest.raises(UnsupportedModelError, match="that no rope_scaling"):
        write_hf_folder(checkpoint, tmp_path / "folder")


def test_a_gguf_file_has_to_say_what_llama_cpp_needs(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(tiny_checkpoint(FAMILY), path)
    data = path.read_bytes()
    key = b"step35.expert_weights_norm"
    at = data.index(key) + len(key) + 4
    path.write_bytes(data[:at] + b"\0" + data[at + 1 :])
    with pytest.raises(CheckpointError, match="true is required"):
        open_checkpoint(path)
    key = b"step35.attention.sliding_window_pattern"
    path.write_bytes(data.replace(key, key[:-1] + b"x"))
    with pytest.raises(CheckpointError, match="3 booleans are required"):
        open_checkpoint(path)
