"""Tiny models as the text part of a whole model's folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.source import source_of_array, source_of_tensor
from tests.tiny import Family, write_tiny_hf
from tests.tiny_families.base import Shapes


def write_whole(
    folder: Path,
    family: Family,
    seed: int,
    outer: dict[str, Any],
    others: Shapes | None = None,
    **shape: Any,
) -> Path:
    """A folder under `folder`, and its path.

    outer: what config.json has around `text_config`. others: tensors of the other parts, by the
    end of their name, all zero. shape: the keywords of tiny_config.
    """
    path = write_tiny_hf(folder, family, seed=seed, **shape)
    file = path / "model.safetensors"
    sources = [
        source_of_array(np.zeros(size, np.float32), f"model.{name}")
        for name, size in (others or {}).items()
    ]
    for name, tensor in read_safetensors(file).tensors.items():
        inside = name.removeprefix("model.")
        whole = name if inside == name else f"model.language_model.{inside}"
        # A copy: the file that it is mapped from is written again.
        kept = replace(tensor, data=tensor.data.copy())
        sources.append(source_of_tensor(kept, whole, tensor.codec))
    write_safetensors_file(file, sources)
    text = json.loads((path / "config.json").read_text(encoding="utf-8"))
    tied = {"tie_word_embeddings": text["tie_word_embeddings"]}
    config = json.dumps({**outer, **tied, "text_config": text})
    (path / "config.json").write_text(config, encoding="utf-8")
    return path
