"""Scales of K and V that folders bring, by the names of the programs that write them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.memory.kv_memory import plan_kv_cache
from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.storage.cache_scales import LayerScales, layer_scales
from headrace.weights.tensors.source import source_of_array
from headrace.weights.tensors.tensor import Tensor
from tests.tiny import write_tiny_hf

LAYER = "model.layers.{}.self_attn"


def tensors(folder: Path, values: dict[str, np.ndarray]) -> dict[str, Tensor]:
    path = folder / "scales.safetensors"
    write_safetensors_file(path, [source_of_array(value, name) for name, value in values.items()])
    return dict(read_safetensors(path).tensors)


@pytest.mark.parametrize(
    ("k", "v"),
    [
        ("k_scale", "v_scale"),
        ("k_proj.k_scale", "v_proj.v_scale"),
        ("attn.k_scale", "attn.v_scale"),
        ("k_proj.output_scale", "v_proj.output_scale"),
    ],
)
def test_the_names_of_each_program(k: str, v: str, tmp_path: Path) -> None:
    values = {
        f"{LAYER.format(0)}.{k}": np.float32([0.5]),
        f"{LAYER.format(11)}.{v}": np.array(0.25, np.float32),
    }
    assert layer_scales(tensors(tmp_path, values)) == {
        0: LayerScales(0.5, 1.0), 11: LayerScales(1.0, 0.25),
    }  # fmt: skip


def test_one_scale_may_be_of_both(tmp_path: Path) -> None:
    values = {f"{LAYER.format(3)}.kv_scale": np.float32([0.5])}
    assert layer_scales(tensors(tmp_path, values)) == {3: LayerScales(0.5, 0.5)}


def test_two_scales_of_the_same_values_are_refused(tmp_path: Path) -> None:
    values = {
        f"{LAYER.format(3)}.k_scale": np.float32([0.5]),
        f"{LAYER.format(3)}.k_proj.output_scale": np.float32([0.25]),
    }
    with pytest.raises(CheckpointError, match=r"scales of the same K or V and have 0.25 and 0.5"):
        layer_scales(tensors(tmp_path, values))


def test_scales_of_an_image_tower_are_not_the_text_models(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path, family="gemma3_text", codec="F32")
    config = json.loads((folder / "config.json").read_text())
    whole = {"model_type": "gemma3", "text_config": config, "vision_config": {}}
    (folder / "config.json").write_text(json.dumps(whole))
    path = folder / "model.safetensors"
    stored = [source_of_array(t.to_f32(), n) for n, t in read_safetensors(path).tensors.items()]
    place = "layers.1.self_attn.k_scale"
    more = [
        source_of_array(np.float32([0.5]), f"language_model.model.{place}"),
        source_of_array(np.float32([0.25]), f"vision_tower.vision_model.encoder.{place}"),
    ]
    write_safetensors_file(path, [*stored, *more])
    assert layer_scales(open_checkpoint(folder).cache_scales) == {1: LayerScales(0.5, 1.0)}


def test_scales_of_heads_and_numbers_that_divide_nothing_are_refused_by_name(
    tmp_path: Path,
) -> None:
    name = f"{LAYER.format(1)}.k_scale"
    with pytest.raises(UnsupportedModelError, match=r"1.self_attn.k_scale. has shape \[2\]"):
        layer_scales(tensors(tmp_path, {name: np.float32([1, 2])}))
    for bad in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(
            CheckpointError, match=r"layers.1.self_attn.k_scale' is .*divided by it"
        ):
            layer_scales(tensors(tmp_path, {name: np.float32([bad])}))


def test_a_folder_brings_them_to_a_cache_in_fp8_alone(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path, family="llama", codec="F32")
    path = folder / "model.safetensors"
    stored = [source_of_array(t.to_f32(), n) for n, t in read_safetensors(path).tensors.items()]
    added = {"k_scale": np.float32([0.5]), "v_scale": np.float32([2])}
    more = [source_of_array(value, f"{LAYER.format(1)}.{name}") for name, value in added.items()]
    write_safetensors_file(path, [*stored, *more])
    ops = make_ops("reference")
    model = load_model(open_checkpoint(folder), ops)
    for kind, scales in (("fp8", (0.5, 2.0)), ("int8", (1.0, 1.0)), ("auto", (1.0, 1.0))):
        config = EngineConfig(kv_cache_dtype=kind, num_gpu_blocks_override=4)  # type: ignore[arg-type]
        places = plan_kv_cache(model, config, 1 << 30).spec.places
        found = [(place.k_scale, place.v_scale) for place in places if place is not None]
        assert found == [(1.0, 1.0), scales, *[(1.0, 1.0)] * (len(found) - 2)]
