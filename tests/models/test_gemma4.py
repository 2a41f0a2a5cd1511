"""Gemma 4: published configs, what stops a load, its rules, and its words in GGUF files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import DecoderConfig, Model, load_model, read_config
from headrace.models.layer_cache import LayerKV, SharedKV
from headrace.ops.experts import Routing
from headrace.ops.interface import Ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.conversion.convert import write_gguf
from headrace.weights.gguf.metadata import metadata_of_config
from headrace.weights.model_config.text_part import text_config, text_part
from headrace.weights.open import open_checkpoint
from tests.models.cases import CASES, Session, prompt
from tests.models.make_goldens import COLUMN_STEP
from tests.models.test_parity import golden
from tests.tiny import tiny_checkpoint, tiny_config, write_tiny_gguf

FAMILY = "gemma4_text"


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


def published(shared_assets: Path, name: str) -> dict[str, Any]:
    path = shared_assets / "model-configs" / "hf-config" / f"{name}_config.json"
    stated: dict[str, Any] = text_config(json.loads(path.read_text(encoding="utf-8")))
    return stated


def test_the_published_config_is_read(shared_assets: Path) -> None:
    stated = published(shared_assets, "google--gemma-4-26B-A4B")
    config = read(stated)
    assert (config.num_layers, config.hidden_size, config.logit_softcap) == (30, 2816, 30.0)
    assert config.windows == (1024, 1024, 1024, 1024, 1024, 0) * 5
    assert config.layer_caches[4:6] == (LayerKV(8, 256, 1024), LayerKV(2, 512))
    shape = config.attention_of(5)
    assert (shape.num_heads, shape.scale) == (16, 1.0)
    assert config.experts is not None
    assert config.experts.routing == Routing(128, 8, "softmax", True)
    assert (config.intermediate_size, config.experts.intermediate_size) == (2112, 704)
    rope = config.rope_of(5)
    assert rope is not None and (rope.kind, rope.turning_pairs(512)) == ("proportional", 64)
    assert config.rope_of(4) == replace(rope, kind="default", theta=1e4, partial=1.0)
    entries = metadata_of_config(stated, ARCHITECTURES[FAMILY]).entries
    said = {key.removeprefix("gemma4."): value for key, value in entries.items()}
    assert said["attention.head_count_kv"] == [8, 8, 8, 8, 8, 2] * 5
    assert (said["attention.key_length"], said["attention.key_length_swa"]) == (512, 256)
    assert (said["rope.dimension_count"], said["rope.dimension_count_swa"]) == (512, 256)
    assert said["attention.shared_kv_layers"] == said["embedding_length_per_layer_input"] == 0


@pytest.mark.parametrize("size", ["26B-A4B", "31B-IT"])
def test_quantised_ones_are_read(shared_assets: Path, size: str) -> None:
    stated = published(shared_assets, f"nvidia--Gemma-4-{size}-NVFP4")
    assert read(stated).model_type == FAMILY
    unknown = {"quant_method": "modelopt", "quant_algo": "W4A8_MXFP4_FP8"}
    with pytest.raises(UnsupportedModelError, match="quantization_config"):
        read({**stated, "quantization_config": unknown})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_activation": "silu"}, "hidden_activation = 'silu'"),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention = 'all'"),
        ({"layer_types": ["sliding_attention"] * 3}, "layer_types"),
        ({"num_kv_shared_layers": 3}, "num_kv_shared_layers = 3"),
        ({"num_kv_shared_layers": 1}, "num_kv_shared_layers = 1"),
        ({"num_global_key_value_heads": 3, "attention_k_eq_v": True}, "num_global_key_value_heads"),
        ({"global_head_dim": 15}, "global_head_dim = 15"),
        ({"hidden_size_per_layer_input": -1}, "hidden_size_per_layer_input = -1"),
        ({"enable_moe_block": True}, "num_experts is missing"),
        (
            {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 5},
            "top_k_experts = 5",
        ),
        ({"enable_moe_block": True, "num_experts": 1 << 30}, "num_experts = 1073741824"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "axial"}}},
            r"rope_parameters\.full_attention\.rope_type = 'axial'",
        ),
        (
            {"rope_parameters": {"sliding_attention": {"partial_rotary_factor": 1.5}}},
            "partial_rotary_factor = 1.5",
        ),
        ({"per_layer_config": {"2": {"head_dim": 32}}}, "per_layer_config"),
    ],
)
def test_what_is_not_implemented_stops_the_load(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(FAMILY), **change})


def test_the_last_layers_read_what_earlier_ones_keep() -> None:
    config = read(tiny_config(FAMILY, **CASES["gemma4-inputs"].shape))
    assert config.kv_sources == (0, 1, 2, 1, 2)
    assert config.layer_caches[3:] == (SharedKV(1), SharedKV(2))


def far_from_the_golden(name: str, model: Model, ops: Ops) -> bool:
    expected = golden(name)
    ids = prompt(int(expected["seed"])) + expected["greedy"].tolist()[:-1]
    logits = Session(model, ops).feed(ids)[:, ::COLUMN_STEP]
    return bool(np.abs(logits - expected["logits"]).max() > 0.01 * float(expected["scale"]))


@pytest.mark.parametrize(
    ("name", "part", "field", "value"),
    [
        ("gemma4", "attention", "v_norm", None),
        ("gemma4-experts", "experts", "expert_scale", None),
        ("gemma4-inputs", "", "scalar", np.float32(1)),
    ],
)
def test_rules_that_no_key_states_are_not_lost_in_the_tolerance(
    name: str, part: str, field: str, value: object, reference: Ops
) -> None:
    seed = int(golden(name)["seed"])
    model = load_model(tiny_checkpoint(FAMILY, seed=seed, **CASES[name].shape), reference)
    assert not far_from_the_golden(name, model, reference)
    for layer in model._layers:
        owner = getattr(layer, part) if part else layer
        assert hasattr(owner, field)
        setattr(owner, field, value)
    assert far_from_the_golden(name, model, reference)


def test_the_text_part_of_a_folder_with_images_is_the_same_model(reference: Ops) -> None:
    inner = tiny_checkpoint(FAMILY)
    outer = {
        "model_type": "gemma4", "text_config": dict(inner.config), "vision_config": {"depth": 1},
        "audio_config": None, "vision_soft_tokens_per_image": 280, "tie_word_embeddings": True,
    }  # fmt: skip
    named = {
        name.replace("model.", "model.language_model.", 1): tensor
        for name, tensor in inner.tensors.items()
    }
    towers = ("model.vision_tower.a.weight", "model.embed_vision.b.weight", "model.audio_tower.c")
    some = next(iter(inner.tensors.values()))
    found = text_part(outer, {**named, **dict.fromkeys(towers, some)})
    assert found.left_out == {"audio_tower": 1, "embed_vision": 1, "vision_tower": 1}
    whole = replace(inner, config=text_config(outer), tensors=found.tensors)
    logits = [
        Session(load_model(item, reference), reference).feed(prompt(0)[:20])
        for item in (inner, whole)
    ]
    assert np.array_equal(*logits)


def test_layers_inputs_are_looked_up_and_not_read_whole(reference: Ops) -> None:
    model = load_model(tiny_checkpoint(FAMILY, **CASES["gemma4-inputs"].shape), reference)
    table = 288 * 5 * 32 * 4
    assert model.weight_bytes - model.step_weight_bytes == table


def test_a_gguf_file_says_that_v_is_k_by_leaving_it_out(tmp_path: Path) -> None:
    for name, expected in (("gemma4", False), ("gemma4-experts", True)):
        file = open_checkpoint(write_tiny_gguf(tmp_path / name, FAMILY, **CASES[name].shape))
        assert file.config["attention_k_eq_v"] is expected
        assert file.config["layer_types"] == tiny_config(FAMILY)["layer_types"]
        full = file.config["rope_parameters"]["full_attention"]
        assert (full["rope_type"], full["partial_rotary_factor"]) == ("proportional", 0.25)


def test_gate_and_up_of_all_experts_may_be_one_tensor(tmp_path: Path, reference: Ops) -> None:
    """As llama.cpp's converter writes them: the rows of gate, then those of up."""
    from headrace.weights.gguf.writer import write_gguf_file
    from headrace.weights.tensors.source import source_of_array

    path = write_tiny_gguf(tmp_path, FAMILY, **CASES["gemma4-experts"].shape)
    file = open_checkpoint(path)
    arch = ARCHITECTURES[FAMILY]
    stacks: dict[str, dict[int, Any]] = {}
    sources = []
    for name, tensor in file.tensors.items():
        place = arch.expert_place(name)
        if place is None:
            sources.append(source_of_array(tensor.to_f32(), arch.gguf_name(name)))
        else:
            stacks.setdefault(place[0], {})[place[1]] = tensor.to_f32()
    for gguf_name, members in stacks.items():
        if "ffn_gate_exps" in gguf_name:
            ups = stacks[gguf_name.replace("gate", "up")]
            both = [np.concatenate([members[i], ups[i]]) for i in range(len(members))]
            sources.append(
                source_of_array(np.stack(both), gguf_name.replace("gate_exps", "gate_up_exps"))
            )
        elif "ffn_down_exps" in gguf_name:
            down = np.stack([members[i] for i in range(len(members))])
            sources.append(source_of_array(down, gguf_name))
    kept = file.metadata
    assert kept is not None
    entries = {key: kept.typed(key) for key in kept if key != "general.alignment"}  # type: ignore[attr-defined]
    fused = tmp_path / "fused.gguf"
    write_gguf_file(fused, entries, sources)
    logits = [
        Session(load_model(open_checkpoint(item), reference), reference).feed(prompt(0)[:20])
        for item in (path, fused)
    ]
    assert np.array_equal(*logits)


def test_divisors_of_another_form_are_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path, FAMILY)
    stored = path.read_bytes()
    ones = np.array([1.0] * 4 + [1e30] * 12, np.float32).tobytes()
    assert stored.count(ones) == 1
    other = np.array([1.0, 2.0, 1.0, 1.0] + [1e30] * 12, np.float32).tobytes()
    path.write_bytes(stored.replace(ones, other))
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight"):
        open_checkpoint(path)


def test_what_gguf_cannot_state_is_not_written(tmp_path: Path) -> None:
    for change, words in (
        ({"rope_parameters": None}, "rope_parameters"),
        (
            {"hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 300},
            "vocab_size_per_layer_input = 300",
        ),
    ):
        with pytest.raises(UnsupportedModelError, match=words):
            write_gguf(tiny_checkpoint(FAMILY, **change), tmp_path / "m.gguf")
