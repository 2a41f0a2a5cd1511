"""A GGUF file as a checkpoint: canonical names, a Hugging Face config, stated conventions."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import CheckpointError, UnsupportedModelError, shown
from headrace.weights.architectures import architecture_of_gguf
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.gguf.config import config_of_gguf, generation_config_of_gguf
from headrace.weights.gguf.file import GGUFFile
from headrace.weights.gguf.split import read_gguf_model
from headrace.weights.gguf.tokenizer import end_ids_of_gguf, templates_of_gguf, tokenizer_of_gguf
from headrace.weights.tensors.expert_stacks import unstacked

# Version 2 is what every kind is laid out by since May 2023; no later one exists.
_QUANTIZATION_VERSION = 2
# What lies beside a model's own file, by the start of its name (llama.cpp's converters).
_SIDECARS = {
    "mmproj": "the image or sound encoder of a model",
    "mtp-": "the draft layers of a model",
    "imatrix": "the importance matrix a model was quantized with",
}


def open_gguf(path: Path) -> Checkpoint:
    """The model in a GGUF file, or in all pieces of a split one when `path` is any of them.

    Rows of Q and K stay as stored (see `Conventions.rope_layout`). Raises CheckpointError for a
    damaged file or a missing piece, UnsupportedModelError for an architecture not in the table, an
    adapter, or a file that goes beside a model's own (see `_SIDECARS`).
    """
    _refuse_sidecar(path)
    return checkpoint_of_gguf(read_gguf_model(path))


def checkpoint_of_gguf(file: GGUFFile) -> Checkpoint:
    """The model of a file that is read already; errors as of `open_gguf`."""
    path = file.path
    _check_kind(file)
    architecture, keys = architecture_of_gguf(file.metadata)
    if not file.tensors:
        raise CheckpointError(f"{path}: holds no tensors, only metadata (a vocabulary file?)")
    architecture = architecture.of_file(file.tensors.keys())
    tensors = {}
    for gguf_name, stored in file.tensors.items():
        for tensor in unstacked(stored, architecture, keys):
            if (name := tensor.name) in tensors:
                raise CheckpointError(
                    f"{path}: two tensors are {name!r}, one of them {gguf_name!r}"
                )
            tensors[name] = tensor
    config = config_of_gguf(file, architecture, keys, tensors)
    return Checkpoint(
        path=path,
        format="gguf",
        config=config,
        conventions=architecture.gguf,
        tensors=tensors,
        tokenizer=tokenizer_of_gguf(file.metadata),
        chat_templates=templates_of_gguf(file.metadata),
        generation_config=generation_config_of_gguf(file),
        eos_token_ids=end_ids_of_gguf(file.metadata, config["vocab_size"]),
        metadata=file.metadata,
    )


def _refuse_sidecar(path: Path) -> None:
    for start, what in _SIDECARS.items():
        if path.name.lower().startswith(start):
            raise UnsupportedModelError(
                f"{path}: a file named {start}* is {what}, not a model; "
                "name the model's own file, which lies beside it"
            )


def _check_kind(file: GGUFFile) -> None:
    kind = file.metadata.scalar("general.type", "model")
    if kind != "model":
        raise UnsupportedModelError(
            f"{file.path}: general.type is {shown(kind)}; only 'model' can be opened"
        )
    version = file.metadata.scalar("general.quantization_version", _QUANTIZATION_VERSION)
    blocks = any(tensor.codec.block_elements > 1 for tensor in file.tensors.values())
    if blocks and version != _QUANTIZATION_VERSION:
        raise CheckpointError(
            f"{file.path}: general.quantization_version is {shown(version)}; "
            f"supported: {_QUANTIZATION_VERSION}"
        )
