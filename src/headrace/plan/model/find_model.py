"""The shape of what a MODEL argument names: a file, a name on this disk, a row of the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.catalog import Catalog
from headrace.errors import ConfigError, FetchError
from headrace.plan.model.model_shape import (
    ModelShape,
    shape_of_catalog,
    shape_of_checkpoint,
    shape_of_config,
)
from headrace.plan.model.remote_shape import shape_on_hub
from headrace.weights.files.json_file import read_json_object
from headrace.weights.store.model_name import hub_model, is_explicit
from headrace.weights.store.resolve import locate_model


def shape_named(catalog: Catalog, model: str, environ: Mapping[str, str]) -> ModelShape:
    """The surest that is known of `model`.

    A GGUF file, a folder with safetensors, or a name of the hub or of Ollama that is on this disk
    gives its header; a .json file is read as a config.json; another name is a row of the catalog.
    Of a hub id that is none of these, and of one that is said outright (hf://org/name), headers are
    fetched. Raises ConfigError with the nearest names where it is none, and as reading does.
    """
    if model.endswith(".json"):
        path = Path(model).expanduser()
        return shape_of_config(read_json_object(path), path.parent.name or path.stem, str(path))
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
