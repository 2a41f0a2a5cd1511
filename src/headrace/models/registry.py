"""Families by model_type, and `load_model`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.errors import ConfigError, UnsupportedModelError
from headrace.models.config import DecoderConfig
from headrace.models.config_reader import ConfigReader
from headrace.models.llama import Llama
from headrace.models.loader import Loader, Progress
from headrace.models.model import Model
from headrace.models.qwen3 import Qwen3
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint

FAMILIES: Mapping[str, type[Model]] = {"llama": Llama, "qwen3": Qwen3}


def read_config(
    checkpoint: Checkpoint, *, ignore_config_keys: Collection[str] = ()
) -> DecoderConfig:
    """What the checkpoint's config says; reads no tensor.

    Raises UnsupportedModelError for a family, key or value that is not implemented.
    """
    _, config = _family(checkpoint, ignore_config_keys)
    return config


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
    family, config = _family(checkpoint, ignore_config_keys)
    limit = config.max_positions
    if max_positions is not None and not 1 <= max_positions <= limit:
        raise ConfigError(
            f"max_model_len {max_positions} is out of range: this model was made for {limit} "
            f"tokens (max_position_embeddings); choose 1 to {limit}"
        )
    loader = Loader(checkpoint, ops, progress)
    model = family(config, ops, loader, max_positions=max_positions or limit)
    loader.finish()
    return model


def _family(
    checkpoint: Checkpoint, ignore_config_keys: Collection[str]
) -> tuple[type[Model], DecoderConfig]:
    reader = ConfigReader(checkpoint.config, ignore_keys=ignore_config_keys)
    model_type = reader.required("model_type", str)
    family = FAMILIES.get(model_type)
    if family is None:
        raise UnsupportedModelError(
            f"model_type {model_type!r} is not implemented; supported: {', '.join(FAMILIES)}"
        )
    quantisation = reader.section("quantization_config")
    if quantisation is not None:
        method = quantisation.optional("quant_method", str)
        reader.refuse("quantization_config", method, "null, or a GGUF file of the same model")
    config = family.read_config(reader)
    reader.finish()
    return family, config
