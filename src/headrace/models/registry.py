"""`load_model`, which opens a checkpoint as the family that its config names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headrace.errors import ConfigError, UnsupportedModelError
from headrace.models.config import DecoderConfig
from headrace.models.families import FAMILIES
from headrace.models.loader import Loader
from headrace.models.loading.reader import Progress
from headrace.models.model import Model
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.storage.matrices import WORDS_FOR_READ, is_read
from headrace.weights.storage.quantisation import quantisation_kind
from headrace.weights.storage.statement import read_storage

MAX_LAYERS = 4096
"""Published models have up to 126. What a config says of each layer costs memory before a tensor is
looked for, so a hostile number ends here."""
MAX_HEAD_DIM = 8192
"""Published models have up to 576. Tables of rotary frequencies are made of it before a tensor is
looked for."""
_LAYER_KEYS = ("num_hidden_layers", "n_layer")


def read_config(
    checkpoint: Checkpoint, *, ignore_config_keys: Collection[str] = ()
) -> DecoderConfig:
    """What the checkpoint's config says; reads no tensor.

    Raises UnsupportedModelError for a family, key or value that is not implemented.
    """
    _, config = _family(checkpoint.config, ignore_config_keys)
    return config


def read_shape(config: Mapping[str, Any]) -> DecoderConfig:
    """What a config.json says of the shape of its model, however its weights are stored and
    whatever other keys it has. To plan with; a model is loaded by `read_config`.

    Raises UnsupportedModelError for a family or value that is not implemented.
    """
    reader = ConfigReader(config)
    return _read(_family_named(reader), reader, config)


def load_model(
    checkpoint: Checkpoint,
    ops: Ops,
    *,
    max_positions: int | None = None,
    ignore_config_keys: Collection[str] = (),
    progress: Progress | None = None,
) -> Model:
    """The model, its weights handed to the backend.

    max_positions: longest request that will be run, in tokens; default: the model's own limit.
        The rope table grows with what is asked of it, and never beyond this.
    ignore_config_keys: keys of the config that may stay unread.
    progress: called with bytes done and bytes in all.
    Raises UnsupportedModelError for what is not implemented, CheckpointError for a damaged file,
    ConfigError for max_positions beyond the model's limit.
    """
    family, config = _family(checkpoint.config, ignore_config_keys)
    limit = config.max_positions
    if max_positions is not None and not 1 <= max_positions <= limit:
        cause = config.length_cause or (
            f"this model was made for {limit} tokens (max_position_embeddings)"
        )
        raise ConfigError(
            f"--max-model-len {max_positions} is out of range: {cause}; choose 1 to {limit}"
        )
    loader = Loader(checkpoint, ops, progress)
    model = family(config, ops, loader, max_positions=max_positions or limit)
    loader.finish()
    model.cache_layout = replace(model.cache_layout, scales=checkpoint.cache_scales)
    return model


def _family(
    stated: Mapping[str, Any], ignore_config_keys: Collection[str]
) -> tuple[type[Model], DecoderConfig]:
    reader = ConfigReader(stated, ignore_keys=ignore_config_keys)
    family = _family_named(reader)
    storage = read_storage(reader)
    runs = storage is None or all(map(is_read, storage.formats))
    if storage is not None and not runs and storage.method not in family.quant_methods:
        known = "".join(f"{name!r}, " for name in (*WORDS_FOR_READ, *family.quant_methods))
        kind = quantisation_kind(reader.raw("quantization_config"))
        reader.refuse("quantization_config", kind, f"{known}null, or a GGUF file of the same model")
    config = _read(family, reader, stated)
    reader.finish()
    return family, config


def _family_named(reader: ConfigReader) -> type[Model]:
    model_type = reader.required("model_type", str)
    family = FAMILIES.get(model_type)
    if family is None:
        code = ""
        if reader.raw("auto_map") is not None:
            code = " (auto_map names code in the folder, which is never run)"
        raise UnsupportedModelError(
            f"model_type {model_type!r} is not implemented{code}; supported: {', '.join(FAMILIES)}"
        )
    return family


def _read(family: type[Model], reader: ConfigReader, stated: Mapping[str, Any]) -> DecoderConfig:
    for key in _LAYER_KEYS:
        layers = stated.get(key)
        if isinstance(layers, int) and layers > MAX_LAYERS:
            reader.refuse(key, layers, f"1 to {MAX_LAYERS}")
    for key, value in stated.items():
        if key.endswith("head_dim") and isinstance(value, int) and value > MAX_HEAD_DIM:
            reader.refuse(key, value, f"1 to {MAX_HEAD_DIM}")
    config = family.read_config(reader)
    if config.attention.head_dim > MAX_HEAD_DIM:
        reader.refuse("head_dim", config.attention.head_dim, f"1 to {MAX_HEAD_DIM}")
    if config.rope is not None:
        config = replace(config, max_positions=config.rope.reach(config.max_positions))
    if 0 < config.sparse_after < config.max_positions:
        config = replace(config, max_positions=config.sparse_after)
    return config
