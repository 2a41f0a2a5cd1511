"""A Hugging Face config as GGUF metadata: the way back of `gguf_config`.

Every key of the config is written as the architecture declares, known to change no result, or
refused by name, so that the file cannot mean another model than the folder did.

Sources: gguf-py constants.py (keys), convert_hf_to_gguf.py (what is written for these families).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.architectures import LEFT_OUT, REFUSED, Architecture, Key
from headrace.weights.gguf.config import SAMPLING
from headrace.weights.gguf.rope import write_rope
from headrace.weights.gguf.values import Typed, ValueType
from headrace.weights.model_config.config_reader import ConfigReader

_SAID_ELSEWHERE = ("model_type", "tie_word_embeddings")
"""Keys that the architecture and the tensors of a GGUF file say."""


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata entries of a GGUF file for a model."""

    entries: dict[str, Any]
    """"<arch>.*" and "general.architecture"."""
    tensors: Mapping[str, npt.NDArray[np.float32]]
    """Float32 vectors by GGUF's names."""


def metadata_of_config(config: Mapping[str, Any], architecture: Architecture) -> ModelMetadata:
    """GGUF entries for `config`.

    Raises UnsupportedModelError naming a key that is missing, out of range, or has a value that a
    GGUF file of this architecture cannot state.
    """
    reader = ConfigReader(config)
    reader.unused(*_SAID_ELSEWHERE, *architecture.bias_keys, *architecture.norm_keys)
    reader.unused(*architecture.absences)
    if architecture.head_bias_key is not None:
        reader.unused(architecture.head_bias_key)
    values: dict[str, Any] = {}
    entries: dict[str, Any] = {}
    for key in architecture.keys:
        _write_key(key, reader, values, entries)
    head_dim = head_dim_of(config, architecture, reader)
    full = head_dim
    if architecture.full_head_dim is not None:
        full = reader.size(architecture.full_head_dim, 512)
        entries["attention.key_length_swa"] = entries["attention.value_length_swa"] = head_dim
    entries["attention.key_length"] = entries["attention.value_length"] = full
    entries["vocab_size"] = reader.size("vocab_size")
    tensors = (
        write_rope(reader, entries, full, architecture, local_head_dim=head_dim)
        if architecture.rope
        else {}
    )
    for name, value in architecture.implied.items():
        if name not in values and reader.raw(name) != value and name in config:
            raise _unsayable(name, config[name])
    for name, supported in architecture.accepted.items():
        _check_accepted(reader, name, supported)
    if architecture.writes is not None:
        architecture.writes(reader, entries)
    for name in reader.unread():
        raise _unsayable(name, reader.value(name))
    prefixed = {f"{architecture.name}.{key}": value for key, value in entries.items()}
    return ModelMetadata({"general.architecture": architecture.name, **prefixed}, tensors)


def head_dim_of(
    config: Mapping[str, Any], architecture: Architecture, reader: ConfigReader | None = None
) -> int:
    """Width of a head: a key of its own, the family's own, or hidden / heads; in latent attention
    what is rotated.
    """
    reader = reader or ConfigReader(config)
    if architecture.latent:
        return reader.size("qk_rope_head_dim")
    null = architecture.null_head_dim and reader.states("head_dim")
    silent = None if null else architecture.silent_head_dim
    if silent is not None and reader.raw("head_dim") is None:
        return silent
    hidden = reader.size(architecture.config_key("embedding_length"))
    heads = reader.size(architecture.config_key("attention.head_count"))
    stated = reader.optional("head_dim", int) if architecture.head_dim else None
    if stated is None and hidden % heads:
        raise CheckpointError(
            f"num_attention_heads is {heads}, which does not divide hidden_size {hidden}: "
            "head_dim must be given"
        )
    return hidden // heads if stated is None else reader.size("head_dim")


def sampling_metadata(generation: Mapping[str, Any]) -> dict[str, Any]:
    """`general.sampling.*` from generation_config.json."""
    entries: dict[str, Any] = {}
    for key, name in SAMPLING.items():
        value = generation.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            kind = ValueType.INT32 if key == "top_k" else ValueType.FLOAT32
            entries[f"general.sampling.{key}"] = Typed(kind, value)
    return entries


def _write_key(
    key: Key, reader: ConfigReader, values: dict[str, Any], entries: dict[str, Any]
) -> None:
    value: Any
    if reader.raw(key.config) is None:
        null = reader.states(key.config)
        if null and key.off is not None:
            return
        value = key.in_config
        if key.same_as is not None and (null or value is REFUSED):
            value = values[key.same_as]
        if value is LEFT_OUT:
            return
        if value is not REFUSED:
            values[key.config] = value
            entries[key.gguf] = value
            return
    if key.kind != "positive":
        value = reader.size(key.config)
        if value >= 1 << 31:
            raise CheckpointError(f"{key.config} is {value}; it must be below 2**31")
    else:
        value = reader.positive(key.config)
    values[key.config] = value
    entries[key.gguf] = value


def _check_accepted(reader: ConfigReader, name: str, supported: tuple[Any, ...]) -> None:
    value = reader.raw(name)
    if value is None or not supported:
        return
    entries = value if isinstance(value, list) else [value]
    if not entries or any(entry not in supported for entry in entries):
        raise _unsayable(name, value)


def _unsayable(name: str, value: object) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"config key {name!r} is {value!r}: a GGUF file cannot state it, or headrace does not "
        "know what it changes; remove it from config.json if it changes nothing"
    )
