"""What a draft adds to the memory of a model: its weights, and K and V of its own.

The engine gives a draft a pool for as many tokens as the model's, or for the longest requests of
all that run together where these are fewer (engine/memory/draft_memory.py). A plan has its users at
once at the context asked for, which both rules cover, so that here

    KV of the draft = users * bytes of min(context, length of the draft) in whole blocks

It is stored in the model's kinds. A draft is not divided over devices: each holds all of it. A
layer of the model's own for further tokens is in the model's file, and is counted with it where a
header was read; what each adds is K and V of a layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.catalog import Catalog
from headrace.engine.drafts.heads.few_bits import few_bits_bytes
from headrace.engine.drafts.speculative_config import SpeculativeConfig, head_kind_of
from headrace.errors import (
    CheckpointError,
    ConfigError,
    FetchError,
    UnsupportedModelError,
    shown,
)
from headrace.models import read_config
from headrace.models.heads import open_mtp_folder
from headrace.models.heads.medusa import LEAST_DIM
from headrace.models.heads.mtp import mtp_checkpoint, mtp_config
from headrace.plan.memory.weights_memory import default_kind, weights_quantity
from headrace.plan.model.find_model import shape_named
from headrace.plan.model.layer_shape import AttentionLayers
from headrace.plan.model.model_shape import ModelShape, shape_of_layers
from headrace.plan.quantity import Input, Quantity
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.hugging_face.head_folder import open_head_folder
from headrace.weights.store.resolve import locate_model

_FLAG = "--speculative-config"
_LEAST = AttentionLayers(1, "mha", 1, 1, LEAST_DIM, LEAST_DIM)
"""Of heads without attention."""


@dataclass(frozen=True)
class Draft:
    """A draft model or a head beside a model."""

    name: str
    shape: ModelShape
    """Its layers, of which K and V are kept."""
    weights: Quantity


def draft_named(
    catalog: Catalog, spec: SpeculativeConfig, target: ModelShape, environ: Mapping[str, str]
) -> Draft | None:
    """What the settings name to make drafts; None where nothing has weights or K and V of its own.

    Raises HeadraceError (its kinds), naming the flag and the draft, for what cannot be read, and
    where a model has no layer for further tokens.
    """
    if spec.has_own_mtp:
        return _own_layer(target, spec.most_of_model)
    if spec.model is None:
        return None
    try:
        return _separate_draft(catalog, spec, spec.model, target, environ)
    except (CheckpointError, ConfigError, FetchError, UnsupportedModelError) as error:
        if str(error).startswith(_FLAG):
            raise
        raise type(error)(f"{_FLAG}: model {shown(spec.model)} cannot be used: {error}") from error


def _separate_draft(
    catalog: Catalog,
    spec: SpeculativeConfig,
    name: str,
    target: ModelShape,
    environ: Mapping[str, str],
) -> Draft:
    """The draft model or head of this name."""
    try:
        path = locate_model(name, environ).path
    except (FetchError, OSError):
        path = None
    kind_of_head = None if path is None else head_kind_of(spec, path)
    if path is not None and kind_of_head == "mtp":
        return _layers_of(path, target, spec.most_of_model)
    if path is not None and kind_of_head is not None:
        folder = open_head_folder(path)
        if kind_of_head == "medusa":
            shape = replace(target, layers=(_LEAST,))
        else:
            config = _of_layers(folder.config, 1 if kind_of_head == "eagle3" else None)
            shape = shape_of_layers(config, path.name, str(path))
        held = few_bits_bytes(folder)
        weights = _weights(f"weights of the head {path.name}, in few bits", held, str(path))
        return Draft(f"the head {path.name}", replace(shape, context_tokens=None), weights)
    shape = shape_named(catalog, name, environ)
    kind = None
    if shape.weight_bytes is None:
        kind = catalog.quantizations.find(default_kind(shape))
    own = weights_quantity(shape, kind, catalog)
    weights = replace(own, id="draft-weights", name=f"{own.name}, of the draft {shape.name}")
    return Draft(f"the draft {shape.name}", shape, weights)


def _own_layer(target: ModelShape, most: int) -> Draft:
    """The model's own layers for further tokens, at most so many."""
    checkpoint = _checkpoint(target, f"whether {target.name} has a layer for further tokens")
    config = read_config(checkpoint)
    config = mtp_config(mtp_checkpoint(checkpoint, config, most), config)
    windows = [config.attention_of(layer).reach for layer in range(config.num_layers)]
    # The model's own kinds of layers, by how much of a request they keep.
    layers = [replace(kind, count=count) for kind in reversed(target.keeping)
              if (count := windows.count(kind.window_tokens or 0))]  # fmt: skip
    weights = _weights("weights of the layer for further tokens, counted above", 0, target.origin)
    return Draft("the layer for further tokens", replace(target, layers=tuple(layers)), weights)


def _checkpoint(target: ModelShape, what: str) -> Checkpoint:
    """The target's files, from which `what` is read."""
    if target.checkpoint is None:
        raise ConfigError(
            f"{_FLAG}: {what} is read from its files, and a {target.source} is known of it; name a "
            "folder or a GGUF file"
        )
    return target.checkpoint


def _layers_of(path: Path, target: ModelShape, most: int) -> Draft:
    """Layers for further tokens from a place of their own, at most so many."""
    checkpoint = _checkpoint(target, f"whether the layers of {path.name} are for {target.name}")
    opened = open_mtp_folder(path, checkpoint, read_config(checkpoint), most)
    stated = opened.folder.config or checkpoint.config
    shape = shape_of_layers(_of_layers(stated, opened.config.num_layers), path.name, str(path))
    held = few_bits_bytes(opened.folder)
    weights = _weights(f"weights of the layers of {path.name}, in few bits", held, str(path))
    return Draft(f"the layers of {path.name}", replace(shape, context_tokens=None), weights)


def _of_layers(config: Mapping[str, Any], count: int | None) -> dict[str, Any]:
    """A head's config with what `speculators` nests of its layers. count: so many; None for what it
    says."""
    stated = dict(config)
    nested = stated.pop("transformer_layer_config", None)
    if isinstance(nested, Mapping):
        stated = {**nested, **stated}
    return stated if count is None else {**stated, "num_hidden_layers": count}


def _weights(name: str, size: int, source: str) -> Quantity:
    held = Input("tensors", size, "byte", source, "exact")
    return Quantity("draft-weights", name, size, "byte", "M1", (held,))
