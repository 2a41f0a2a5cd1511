"""The shape of what a MODEL argument names: a file, a name on this disk, a row of the catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from headrace.catalog import Catalog
from headrace.errors import CheckpointError, ConfigError, FetchError
from headrace.plan.model_shape import (
    ModelShape,
    shape_of_catalog,
    shape_of_checkpoint,
    shape_of_config,
)
from headrace.plan.remote_shape import shape_on_hub
from headrace.weights.store.model_name import hub_model, is_explicit
from headrace.weights.store.resolve import locate_model

_MAX_CONFIG_BYTES = 16 << 20


def shape_named(catalog: Catalog, model: str, environ: Mapping[str, str]) -> ModelShape:
    """The surest that is known of `model`.

    A GGUF file, a folder with safetensors, or a name of the hub or of Ollama that is on this disk
    gives its header; a .json file is read as a config.json; another name is a row of the catalog.
    Of a hub id that is none of these, and of one that is said outright (hf://org/name), headers are
    fetched. Raises ConfigError with the nearest names where it is none, and as reading does.
    """
    if model.endswith(".json"):
        path = Path(model).expanduser()
        return shape_of_config(_config(path), path.parent.name or path.stem, str(path))
    try:
        path = locate_model(model, environ).path
        found = path.exists()
    except FetchError as error:
        found, elsewhere = False, str(error)
    except OSError:
        found, elsewhere = False, ""
    else:
        elsewhere = ""
    if found:
        return shape_of_checkpoint(path)
    row = catalog.models.find(model)
    if row is not None:
        return shape_of_catalog(row)
    meant = catalog.models.meant(model)
    if is_explicit(model) != "ollama" and (on_hub := hub_model(model)) is not None:
        try:
            return shape_on_hub(on_hub, environ)
        except FetchError as error:
            raise FetchError(f"{error}; there is no file {model} here{meant}") from error
    on_disk = f" ({elsewhere})" if elsewhere and not meant else ""
    raise ConfigError(
        f"no model {model!r}: it is not a file, no model of that name is on this "
        f"disk{on_disk}, and the catalog has none{meant}; `headrace catalog list model` lists "
        "those it has"
    )


def _config(path: Path) -> Mapping[str, object]:
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise CheckpointError(
                f"{path}: above {_MAX_CONFIG_BYTES:,} bytes, too large for a config.json"
            )
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: is not a JSON object; name a config.json")
    return config
