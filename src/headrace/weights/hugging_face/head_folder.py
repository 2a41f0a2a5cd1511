"""The folder of a draft head: config.json and safetensors, and no tokenizer, as it is its target's.
Weights are stored in any kind that a model's folder may have (`quantization_config`).

EAGLE's repositories call its layer `midlayer`, others `layers.0`. Which of the target's ids
each of the head's stands for is in `d2t`, as what has to be added to it; `t2d`, the same from the
other side, follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, shown
from headrace.weights.checkpoint import Checkpoint, Conventions
from headrace.weights.codecs.raw import LONG_WORDS, RAW, WORDS
from headrace.weights.files.json_file import read_json_object
from headrace.weights.files.small_file import is_named
from headrace.weights.hugging_face.folder import NOT_READ, PICKLE_ENDS, weight_files
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.storage.matrices import packed_dtypes, with_joined_matrices
from headrace.weights.storage.quantisation import KEY
from headrace.weights.storage.statement import read_storage
from headrace.weights.tensors.tensor import Tensor
from headrace.weights.tokenizer.data import TokenizerData

_OFFSETS = "d2t"
HeadKind = Literal["eagle3", "dflash", "medusa", "mtp"]
"""As the method of `--speculative-config`."""
HEAD_KINDS: frozenset[str] = frozenset(get_args(HeadKind))
_MARKS: Mapping[HeadKind, tuple[str, ...]] = {
    "eagle3": ("Eagle3", "Eagle3Speculator"),
    "dflash": ("DFlashDraftModel", "DFlashSpeculator"),
    "medusa": ("MedusaModel",),
    "mtp": ("MTP", "MTPModel"),
}
"""How the architectures of each end."""


@dataclass(frozen=True)
class HeadFolder:
    """An opened head. Tensors are views of mapped files."""

    path: Path
    config: Mapping[str, Any]
    """Of how weights are stored it says nothing any more; empty without a config.json."""
    tensors: Mapping[str, Tensor]
    """By the names of a model ("model.layers.0.self_attn.q_proj.weight")."""
    offsets: npt.NDArray[np.int64] | None
    """int64[its vocabulary], what is added to each of its ids; None where they are the target's."""
    conventions: Conventions = field(default_factory=Conventions)

    @property
    def checkpoint(self) -> Checkpoint:
        """Its tensors as a checkpoint, to be read by a loader."""
        return Checkpoint(
            path=self.path,
            format="safetensors",
            config=self.config,
            conventions=self.conventions,
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


def open_head_folder(path: Path, *, needs_config: bool = True) -> HeadFolder:
    """The head in a folder. Raises CheckpointError for what is missing or damaged, and
    UnsupportedModelError for weights in a kind that is not read."""
    if not path.is_dir():
        if path.suffix in PICKLE_ENDS and path.is_file():
            raise CheckpointError(f"{path} {NOT_READ}, in a folder with config.json")
        there = "" if path.exists() else "no such file or folder; "
        raise CheckpointError(
            f"{path}: {there}a folder with config.json and safetensors is required"
        )
    if needs_config and not is_named(path / "config.json"):
        raise CheckpointError(
            f"{path}: has no config.json; a folder with config.json and safetensors is required"
        )
    config = dict(read_json_object(path / "config.json", required=needs_config))
    reader = ConfigReader({KEY: config.pop(KEY, None)})
    storage = read_storage(reader)
    reader.finish()
    numbers: dict[str, Tensor] = {}
    for file in weight_files(path):
        part = read_safetensors(file, raw=(LONG_WORDS.name, WORDS.name, *packed_dtypes(storage)))
        if twice := next((name for name in part.tensors if name in numbers), None):
            raise CheckpointError(f"{file}: tensor {shown(twice)} is there twice")
        numbers |= part.tensors
    of_ids = next((name for name in numbers if _canonical(name) == _OFFSETS), "")
    stored = numbers.pop(of_ids, None)
    tensors: dict[str, Tensor] = {}
    for name, tensor in with_joined_matrices(path, numbers, storage).items():
        own = _canonical(name)
        if own in tensors:
            raise CheckpointError(f"{path}: tensor {shown(name)} is there twice")
        if tensor.codec in RAW.values():
            raise CheckpointError(
                f"{path}: tensor {shown(own)} is {tensor.codec.name}; weights are F32, F16 or "
                f"BF16, or what {KEY} says"
            )
        tensors[own] = tensor.renamed(own)
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
