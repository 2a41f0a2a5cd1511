"""Folders whose text model lies inside a larger config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors_writer import write_safetensors_file
from headrace.weights.source import TensorSource
from tests.models.cases import Session, prompt
from tests.tiny import tiny_checkpoint, write_tiny_hf


def write_outer(folder: Path, names: dict[str, str], **outer: Any) -> Path:
    """A tiny Gemma 3 as the text part of a larger model; `names`: prefixes, old to new."""
    path = write_tiny_hf(folder, "gemma3_text")
    tensors = tiny_checkpoint("gemma3_text").tensors
    sources = []
    for name, tensor in tensors.items():
        for old, new in names.items():
            if name.startswith(old):
                name = new + name.removeprefix(old)
                break
        sources.append(TensorSource(name, tensor.shape, tensor.codec, lambda t=tensor: [t.data]))
    if "vision_config" in outer:
        extra = tensors["model.norm.weight"]
        name = "vision_tower.vision_model.post_layernorm.weight"
        sources.append(TensorSource(name, extra.shape, extra.codec, lambda: [extra.data]))
    write_safetensors_file(path / "model.safetensors", sources)
    inner = json.loads((path / "config.json").read_text())
    config = {"model_type": "gemma3", "text_config": inner, "eos_token_id": [257, 258], **outer}
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    "names",
    [{"model.": "language_model.model."}, {"model.": "model.language_model."}, {}],
)
def test_the_text_part_is_the_text_model(tmp_path: Path, names: dict[str, str]) -> None:
    ops = make_ops("reference")
    path = write_outer(tmp_path, names, mm_tokens_per_image=256, boi_token_index=255999)
    part = open_checkpoint(path)
    assert part.config["model_type"] == "gemma3_text"
    assert part.conventions.norm_offset == 1.0
    one, other = (
        Session(load_model(item, ops), ops).feed(prompt(0)[:20])
        for item in (part, tiny_checkpoint("gemma3_text"))
    )
    assert np.array_equal(one, other)


def test_an_image_encoder_is_refused_by_name(tmp_path: Path) -> None:
    path = write_outer(tmp_path, {"model.": "language_model.model."}, vision_config={})
    with pytest.raises(UnsupportedModelError, match=r"image encoder \(1 tensors, vision_tower"):
        open_checkpoint(path)


def test_what_lies_around_the_text_config_still_counts(tmp_path: Path) -> None:
    path = write_outer(tmp_path, {}, quantization_config={"quant_method": "awq"})
    with pytest.raises(UnsupportedModelError, match="quantization_config"):
        load_model(open_checkpoint(path), make_ops("reference"))
