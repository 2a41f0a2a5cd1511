"""Layers for multi-token prediction from a place of their own, for a model that has none.

They are published apart from their model, in a folder or a GGUF file that may lack all else. Names
and what is joined are as the model's family declares them (`DraftParts`). config.json, where there
is one, is the model's with the widths of these layers; without one they are those of the model's
own. A reduced vocabulary (`draft_vocab_size`, and `d2t` as of EAGLE's folders) has rows of an
lm_head in the folder, or else the model's own rows for those ids. An lm_head without `d2t` is for
all ids; as a copy of the model's it is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.models.config import DecoderConfig
from headrace.models.heads.head import check_vocabulary, target_ids
from headrace.models.heads.mtp import mtp_checkpoint, mtp_config
from headrace.models.loading.reader import EMBEDDING, HEAD
from headrace.models.registry import read_config
from headrace.weights.architectures import architecture_of_config
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.hugging_face.head_folder import HeadFolder, open_head_folder
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.tensor import Tensor

_DRAFT_VOCABULARY = "draft_vocab_size"


@dataclass(frozen=True)
class MtpFolder:
    """The layers of a folder, for a target."""

    folder: HeadFolder
    """Its tensors are named as of layers 0, 1, …, and beside them are the rows of a head, if it has
    one of its own."""
    config: DecoderConfig
    """Of these layers."""
    ids: npt.NDArray[np.int64] | None
    """int64[rows], the target's id of each row of that head."""


def open_mtp_folder(
    path: Path,
    target: Checkpoint,
    config: DecoderConfig,
    most: int = 64,
    ignore_config_keys: Sequence[str] = (),
) -> MtpFolder:
    """The layers of a folder or a GGUF file, at most so many. config: the target's.
    ignore_config_keys: as of `read_config`.

    Raises ConfigError where there are none, UnsupportedModelError for a config that is not
    implemented and CheckpointError for what is missing, damaged or of another model.
    """
    opened = _opened(path, config)
    own = _own_config(opened, config, ignore_config_keys)
    table, head = _output_rows(target, config), opened.tensors.get(HEAD)
    check_vocabulary(path, own.vocab_size, table.shape[0], target.tokenizer)
    layers = mtp_checkpoint(opened.checkpoint, own, most)
    tensors = dict(layers.tensors)
    own_ids = _ids(opened, table, head)
    is_all = np.array_equal(own_ids, np.arange(table.shape[0]))
    ids = None if is_all and (head is None or _is_copy(head, table)) else own_ids
    if ids is not None:
        tensors[HEAD] = _rows(table, ids) if head is None else head
    return MtpFolder(replace(opened, tensors=tensors), mtp_config(layers, own), ids)


def _opened(path: Path, config: DecoderConfig) -> HeadFolder:
    if path.is_file():
        file = open_checkpoint(path)
        return HeadFolder(path, file.config, file.tensors, None, file.conventions)
    folder = open_head_folder(path, needs_config=False)
    return replace(folder, conventions=architecture_of_config(config.model_type).hf)


def _own_config(
    opened: HeadFolder, config: DecoderConfig, ignore_config_keys: Sequence[str]
) -> DecoderConfig:
    """What the folder says of the model with these layers, or else the target's config."""
    stated = {key: value for key, value in opened.config.items() if key != _DRAFT_VOCABULARY}
    if not stated:
        return config
    if (family := stated.get("model_type", config.model_type)) != config.model_type:
        raise CheckpointError(
            f"{opened.path}: its layers are of model_type {family!r}, and the model is "
            f"{config.model_type!r}; they are of another model"
        )
    own = read_config(
        replace(opened.checkpoint, config={"model_type": family, **stated}),
        ignore_config_keys=ignore_config_keys,
    )
    for key, theirs, ours in (
        ("hidden_size", own.hidden_size, config.hidden_size),
        ("num_hidden_layers", own.num_layers, config.num_layers),
    ):
        if theirs != ours:
            raise CheckpointError(
                f"{opened.path}: {key} is {theirs}, and the model's is {ours}; its layers are of "
                "another model"
            )
    return own


def _output_rows(target: Checkpoint, config: DecoderConfig) -> Tensor:
    """The matrix that gives the target's logits."""
    name = EMBEDDING if config.tied or HEAD not in target.tensors else HEAD
    if name not in target.tensors:
        raise CheckpointError(f"{target.path}: tensor {name} is missing; the file is incomplete")
    return target.tensors[name]


def _ids(opened: HeadFolder, table: Tensor, head: Tensor | None) -> npt.NDArray[np.int64]:
    """The ids that the layers' logits are of. head: the folder's own, if it has one."""
    rows = ConfigReader(opened.config).optional(_DRAFT_VOCABULARY, int)
    if rows is None and opened.offsets is not None:
        rows = len(opened.offsets)
    if rows is None:
        rows = table.shape[0] if head is None or not head.shape else head.shape[0]
    return target_ids(opened, rows, table.shape[0])


def _is_copy(head: Tensor, table: Tensor) -> bool:
    """Whether they are the same plain values, as stored. Scales of other kinds are not compared:
    such a head is held beside the model's."""
    plain = all(type(each) is Tensor and each.row_order is None for each in (head, table))
    same = (head.shape, head.codec) == (table.shape, table.codec)
    return plain and same and np.array_equal(head.data, table.data)


def _rows(table: Tensor, ids: npt.NDArray[np.int64]) -> Tensor:
    """The rows of some ids, as they are stored."""
    return table.select_rows(ids.astype(np.int32)).renamed(HEAD)
