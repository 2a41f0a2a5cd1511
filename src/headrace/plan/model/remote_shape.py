"""The shape of a model of the hub that is not on this disk: headers alone are fetched."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from headrace.errors import FetchError
from headrace.plan.header import PARTS, PartCounts, part_of
from headrace.plan.model.model_shape import (
    ModelShape,
    counted_parameters,
    shape_of_checkpoint,
    shape_of_layers,
)
from headrace.weights.store.hub_cache import cache_folder, offline_variable
from headrace.weights.store.model_name import HubModel

# A value of these is a weight; others pack several, or scale them.
_WHOLE = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I8")
_REMEDY = (
    "plan with something local: a file, a config.json, or a model of the catalog (`headrace "
    "catalog list model`)"
)


def shape_on_hub(model: HubModel, environ: Mapping[str, str]) -> ModelShape:
    """From config.json and safetensors headers, or GGUF headers, by ranges; nothing is kept.

    HF_ENDPOINT names another hub, HF_TOKEN is for repositories that need one. Raises FetchError
    naming the host and the remedy, CheckpointError or ConfigError for what is there and is faulty.
    """
    if (variable := offline_variable(environ)) is not None:
        raise FetchError(f"{model}: {variable} is set: unset it to reach the hub, or {_REMEDY}")
    try:
        from headrace.weights.store.hub_client import HubClient
        from headrace.weights.store.hub_headers import fetch_headers
    except ValueError as error:  # huggingface_hub reads its variables when it is imported
        raise FetchError(
            f"{model}: huggingface_hub cannot be used: {error}; check the environment "
            "variables that begin with HF_"
        ) from error
    client = HubClient(cache_folder(environ), environ.get("HF_ENDPOINT"), _REMEDY)
    with tempfile.TemporaryDirectory(prefix="headrace-headers-") as folder:
        found = fetch_headers(model, client, Path(folder))
        origin = f"{client.endpoint}/{model.repo} at {found.commit[:12]}"
        note = f"only headers were fetched, {found.fetched_bytes / 1e6:.1f} MB"
        if found.gguf is not None:
            shape = shape_of_checkpoint(found.gguf)
            return replace(shape, origin=origin, notes=(*shape.notes, note))
    shape = shape_of_layers(found.config, str(model), origin)
    sizes: dict[str, int] = {}
    counts = dict.fromkeys(PARTS, 0)
    for tensor in found.tensors:
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.nbytes
        counts[part_of(tensor.name)] += tensor.num_values
    parameters = shape.parameters
    if all(dtype in _WHOLE for dtype in sizes):
        parameters = counted_parameters(shape, PartCounts(**counts, total=sum(counts.values())))
    return replace(
        shape,
        source="safetensors header",
        tied_embeddings=counts["head"] == 0,
        parameters=parameters,
        weight_bytes=dict(sorted(sizes.items(), key=lambda item: -item[1])),
        notes=(*shape.notes, note),
    )
