"""A GGUF file as a checkpoint: canonical names, a Hugging Face config, stated conventions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.checkpoint import Checkpoint, Conventions
from headrace.weights.gguf_config import config_of_gguf, generation_config_of_gguf
from headrace.weights.gguf_file import GGUFFile, read_gguf
from headrace.weights.gguf_names import architecture_of_gguf
from headrace.weights.gguf_tokenizer import end_ids_of_gguf, templates_of_gguf, tokenizer_of_gguf

# Version 2 is what every kind is laid out by since May 2023; no later one exists.
_QUANTIZATION_VERSION = 2


def open_gguf(path: Path) -> Checkpoint:
    """The model in a GGUF file; rows of Q and K stay as stored (see `Conventions.rope_layout`).

    Raises CheckpointError for a damaged file, UnsupportedModelError for an architecture not in the
    table, an adapter or projector, or one part of a split file.
    """
    file = read_gguf(path)
    _check_kind(file)
    try:
        architecture = architecture_of_gguf(file.metadata.scalar("general.architecture"))
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{path}: {error}") from error
    if not file.tensors:
        raise CheckpointError(f"{path}: holds no tensors, only metadata (a vocabulary file?)")
    tensors = {}
    for gguf_name, tensor in file.tensors.items():
        name = architecture.canonical_name(gguf_name)
        if name in tensors:
            raise CheckpointError(f"{path}: two tensors are {name!r}, one of them {gguf_name!r}")
        tensors[name] = replace(tensor, name=name)
    config = config_of_gguf(file, architecture, tensors)
    return Checkpoint(
        path=path,
        format="gguf",
        config=config,
        conventions=Conventions(rope_layout=architecture.rope_layout),
        tensors=tensors,
        tokenizer=tokenizer_of_gguf(file.metadata),
        chat_templates=templates_of_gguf(file.metadata),
        generation_config=generation_config_of_gguf(file),
        eos_token_ids=end_ids_of_gguf(file.metadata, config["vocab_size"]),
        metadata=file.metadata,
    )


def _check_kind(file: GGUFFile) -> None:
    kind = file.metadata.scalar("general.type", "model")
    if kind != "model":
        raise UnsupportedModelError(
            f"{file.path}: general.type is {kind!r}; only 'model' can be opened"
        )
    parts = file.metadata.scalar("split.count", 1)
    if parts not in (0, 1):
        raise UnsupportedModelError(
            f"{file.path}: is one of {parts} parts (split.count); "
            "merge them first with llama-gguf-split --merge"
        )
    version = file.metadata.scalar("general.quantization_version", _QUANTIZATION_VERSION)
    blocks = any(tensor.codec.block_elements > 1 for tensor in file.tensors.values())
    if blocks and version != _QUANTIZATION_VERSION:
        raise CheckpointError(
            f"{file.path}: general.quantization_version is {version!r}; "
            f"supported: {_QUANTIZATION_VERSION}"
        )
