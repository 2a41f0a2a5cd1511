"""The folder of a draft head: config.json and safetensors, and no tokenizer, as it is its target's.

EAGLE's repositories call its layer `midlayer`, others `layers.0`. Which of the target's ids
each of the head's stands for is in `d2t`, as what has to be added to it; `t2d`, the same from the
other side, follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, shown
from headrace.weights.checkpoint import Checkpoint, Conventions
from headrace.weights.codecs.raw import LONG_WORDS, WORDS
from headrace.weights.files.json_file import read_json_object
from headrace.weights.files.small_file import is_named
from headrace.weights.hugging_face.folder import weight_files
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.tensors.tensor import Tensor
from headrace.weights.tokenizer.data import TokenizerData

_OFFSETS = "d2t"
HeadKind = Literal["eagle3", "dflash", "medusa"]
"""As the method of `--speculative-config`."""
_MARKS: Mapping[HeadKind, tuple[str, ...]] = {
    "eagle3": ("Eagle3", "Eagle3Speculator"),
    "dflash": ("DFlashDraftModel", "DFlashSpeculator"),
    "medusa": ("MedusaModel",),
}
"""How the architectures of each end."""


@dataclass(frozen=True)
class HeadFolder:
    """An opened head. Tensors are views of mapped files."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    """By the names of a model ("model.layers.0.self_attn.q_proj.weight")."""
    offsets: npt.NDArray[np.int64] | None
    """int64[its vocabulary], what is added to each of its ids; None where they are the target's."""

    @property
    def checkpoint(self) -> Checkpoint:
        """Its tensors as a checkpoint, to be read by a loader."""
        return Checkpoint(
            path=self.path,
            format="safetensors",
            config=self.config,
            conventions=Conventions(),
            tensors=self.tensors,
            tokenizer=TokenizerData("none"),
        )


def head_kind(path: Path) -> HeadKind | None:
    """What config.json of a folder says that it is a head of; None where it is none."""
    if not is_named(path / "config.json"):
        return None
    config = read_json_object(path / "config.json")
    names, stated = config.get("architectures"), config.get("speculators_model_type")
    for kind, marks in _MARKS.items():
        named = isinstance(names, list) and any(
            isinstance(name, str) and name.endswith(marks) for name in names
        )
        if named or stated == kind or f"{kind}_num_heads" in config:
            return kind
    return None


def open_head_folder(path: Path) -> HeadFolder:
    """The head in a folder. Raises CheckpointError for what is missing or damaged."""
    if not path.is_dir():
        raise CheckpointError(f"{path}: a folder with config.json and safetensors is required")
    config = read_json_object(path / "config.json")
    tensors: dict[str, Tensor] = {}
    for file in weight_files(path):
        part = read_safetensors(file, raw=(LONG_WORDS.name, WORDS.name))
        for name, tensor in part.tensors.items():
            own = _canonical(name)
            if own in tensors:
                raise CheckpointError(f"{file}: tensor {shown(name)} is there twice")
            tensors[own] = tensor.renamed(own)
    stored = tensors.pop(_OFFSETS, None)
    for name, tensor in tensors.items():
        if tensor.codec in (LONG_WORDS, WORDS):
            raise CheckpointError(
                f"{path}: tensor {shown(name)} is {tensor.codec.name}; weights are F32, F16 or BF16"
            )
    offsets = None
    if stored is not None:
        if stored.codec not in (LONG_WORDS, WORDS) or len(stored.shape) != 1:
            raise CheckpointError(
                f"{path}: tensor {_OFFSETS} is {stored.codec.name} of shape {list(stored.shape)}; "
                "whole numbers, one for each token of the head, are required"
            )
        kind = "<i8" if stored.codec is LONG_WORDS else "<i4"
        offsets = np.frombuffer(stored.data.tobytes(), kind).astype(np.int64)
    return HeadFolder(path, config, tensors, offsets)


def _canonical(name: str) -> str:
    name = name.removeprefix("model.")
    if name == _OFFSETS or name.startswith("lm_head."):
        return name
    if name.startswith("midlayer."):
        name = f"layers.0.{name.removeprefix('midlayer.')}"
    return f"model.{name}"
