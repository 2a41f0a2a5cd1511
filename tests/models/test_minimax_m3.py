"""MiniMax-M3: the published config, what stops a load, its indexers, its clamp, words in GGUF."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, ConfigError, UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.ops.experts import Routing
from headrace.ops.interface import Ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.conversion.convert import write_gguf
from headrace.weights.gguf.metadata import metadata_of_config
from headrace.weights.model_config.text_part import text_config
from headrace.weights.open import open_checkpoint
from tests.models.cases import Session, prompt
from tests.models.make_goldens import COLUMN_STEP
from tests.models.test_parity import golden
from tests.models.whole_folders import write_whole
from tests.tiny import tiny_checkpoint, tiny_config, to_tensor
from tests.tiny_families.minimax_m3 import CASES, OUTER

FAMILY, PUBLISHED = "minimax_m3", "minimax-m3-published"
SECTION: dict[str, Any] = CASES[PUBLISHED]["sparse_attention_config"]


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


def test_the_published_config_is_read(shared_assets: Path) -> None:
    folder = shared_assets / "model-configs" / "hf-config"
    stated = json.loads((folder / "MiniMaxAI--MiniMax-M3_config.json").read_text("utf-8"))
    config = read(stated)
    shape = config.attention
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (64, 4, 128)
    assert (config.num_layers, config.hidden_size, config.rotary_dim) == (60, 6144, 64)
    # 16 blocks of 128 tokens.
    assert (config.max_positions, config.sparse_after) == (2048, 2048)
    experts = config.experts
    assert experts is not None and experts.layers == (False,) * 3 + (True,) * 57
    assert experts.routing == Routing(128, 4, "sigmoid", True, scale=2.0)
    assert (experts.intermediate_size, experts.shared_size) == (3072, 3072)
    assert config.intermediate_size == 12288
    entries = metadata_of_config(stated, ARCHITECTURES[FAMILY]).entries
    said = {key.removeprefix("minimax-m3."): value for key, value in entries.items()}
    assert (said["leading_dense_block_count"], said["expert_shared_count"]) == (3, 1)
    assert (said["feed_forward_length"], said["expert_feed_forward_length"]) == (12288, 3072)
    indexer = [
        said[f"attention.indexer.{name}"]
        for name in ("head_count", "key_length", "block_size", "top_k", "local_blocks")
    ]
    assert indexer == [4, 128, 128, 16, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"swiglu_limit": 8.0}, r"swiglu_limit = 8\.0"),
        ({"swiglu_alpha": 1.0}, r"swiglu_alpha = 1\.0"),
        ({"attention_output_gate": True}, "attention_output_gate = True"),
        ({"use_qk_norm": False}, "use_qk_norm = False"),
        ({"qk_norm_type": "per_layer"}, "qk_norm_type = 'per_layer'"),
        ({"use_gemma_norm": False}, "use_gemma_norm = False"),
        ({"use_routing_bias": False}, "use_routing_bias = False"),
        ({"scoring_func": "softmax"}, "scoring_func = 'softmax'"),
        ({"n_shared_experts": 2}, "n_shared_experts = 2"),
        ({"moe_intermediate_size": 64}, "moe_intermediate_size = 64"),
        ({"first_k_dense_replace": 2}, "first_k_dense_replace = 2"),
        ({"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
        ({"layer_types": ["full_attention", "chunked", "full_attention"]}, "layer_types"),
        ({"index_topk_blocks": 0}, "index_topk_blocks is 0"),
        ({"sparse_attention_config": SECTION}, "index_block_size = 32"),
        ({"sparse_attention_config": {"colour": 1}}, "sparse_attention_config.colour"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok = 9"),
        ({"rotary_dim": 8}, "rotary_dim = 8"),
        ({"norm_topk_prob": True}, "norm_topk_prob = True"),
    ],
)
def test_what_is_not_implemented_stops_the_load(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(FAMILY), **change})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_sparse_attention", False),
        ("sparse_score_type", "mean"),
        ("sparse_init_block", 1),
        ("sparse_attention_freq", [0, 1]),
        ("sparse_attention_freq", [0, 1, 2]),
        ("sparse_disable_index_value", [0, 0, 1]),
    ],
)
def test_other_ways_of_choosing_blocks_stop_the_load(key: str, value: Any) -> None:
    """Whether the section says which layers choose, or `layer_types`."""
    config = tiny_config(FAMILY, **CASES[PUBLISHED])
    config["sparse_attention_config"] = {**SECTION, key: value}
    with pytest.raises(UnsupportedModelError, match=f"sparse_attention_config.{key}"):
        read(config)
    config["layer_types"] = tiny_config(FAMILY)["layer_types"]
    if key != "sparse_attention_freq":
        del config["sparse_attention_config"]["sparse_attention_freq"]
    with pytest.raises(UnsupportedModelError, match=f"sparse_attention_config.{key}"):
        read(config)


def test_requests_beyond_the_chosen_blocks_are_refused_by_name(reference: Ops) -> None:
    checkpoint = tiny_checkpoint(FAMILY, index_block_size=16)
    assert load_model(checkpoint, reference).max_positions == 80
    words = r"sparse_topk_blocks times sparse_block_size.*sparse attention is not run"
    with pytest.raises(ConfigError, match=words):
        load_model(checkpoint, reference, max_positions=81)
    # Where no layer chooses, nothing is limited.
    assert read(tiny_config(FAMILY, layer_types=["full_attention"] * 3)).max_positions == 512


def test_indexers_are_known_by_name_and_not_loaded(reference: Ops) -> None:
    checkpoint = tiny_checkpoint(FAMILY)
    without = {name: held for name, held in checkpoint.tensors.items() if ".index_" not in name}
    assert len(checkpoint.tensors) - len(without) == 8
    plain = load_model(replace(checkpoint, tensors=without), reference)
    assert load_model(checkpoint, reference).weight_bytes == plain.weight_bytes
    name = "model.layers.1.self_attn.index_v_proj.weight"
    other = {name: to_tensor(name, np.ones((4, 4), np.float32), "F32")}
    with pytest.raises(UnsupportedModelError, match="index_v_proj"):
        load_model(replace(checkpoint, tensors={**without, **other}), reference)


def test_the_clamp_is_not_lost_in_the_tolerance(reference: Ops) -> None:
    expected = golden("minimax-m3")
    ids = prompt(int(expected["seed"]))[:40]
    checkpoint = tiny_checkpoint(FAMILY, seed=int(expected["seed"]))

    def error(part: str | None) -> float:
        """With plain SiLU in one part."""
        model = load_model(checkpoint, reference)
        for layer in model._layers:
            mlp: Any = layer.mlp  # type: ignore[attr-defined]
            if part == "experts" and hasattr(mlp, "router"):
                mlp.mlp = replace(mlp.mlp, activation="silu")
            elif part == "shared" and hasattr(mlp, "router"):
                mlp.shared.activation = "silu"
            elif part == "dense" and not hasattr(mlp, "router"):
                mlp.activation = "silu"
        logits = Session(model, reference).feed(ids)[:, ::COLUMN_STEP]
        return float(np.abs(logits - expected["logits"][:40]).max() / float(expected["scale"]))

    assert error(None) < 1e-5
    for part in ("experts", "shared", "dense"):
        assert error(part) > 0.01, part


def test_the_text_part_of_a_folder_with_images(reference: Ops, tmp_path: Path) -> None:
    others = {"vision_tower.pre_layrnorm.weight": (16,), "patch_merge_mlp.linear_1.weight": (4, 4)}
    whole = open_checkpoint(write_whole(tmp_path, FAMILY, 0, OUTER, others))
    assert whole.left_out == {"patch_merge_mlp": 1, "vision_tower": 1}
    alone = tiny_checkpoint(FAMILY)
    found, expected = (
        Session(load_model(item, reference), reference).feed(prompt(0)[:20])
        for item in (whole, alone)
    )
    assert np.array_equal(found, expected)
    named = text_config({"model_type": "minimax_m3_vl_text", "hidden_size": 1})
    assert named == {"model_type": FAMILY, "hidden_size": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mlp_layer_types": ["dense", "sparse", "dense"]}, "mlp_layer_types"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types"),
        ({"shared_intermediate_size": 48}, "shared_intermediate_size = 48"),
    ],
)
def test_what_gguf_cannot_state_is_not_written(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        write_gguf(tiny_checkpoint(FAMILY, **change), tmp_path / "m.gguf")


def test_a_gguf_file_has_to_say_that_weights_are_divided(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(tiny_checkpoint(FAMILY), path)
    key = b"minimax-m3.expert_weights_norm"
    data = path.read_bytes()
    assert data.count(key) == 1
    at = data.index(key) + len(key) + 4
    path.write_bytes(data[:at] + b"\0" + data[at + 1 :])
    with pytest.raises(CheckpointError, match="true is required"):
        open_checkpoint(path)
