"""Ollama's store on this disk, read and never written.

    MODELS/manifests/HOST/NAMESPACE/NAME/TAG      JSON: layers by media type and digest
    MODELS/blobs/sha256-DIGEST                    the layer's bytes; a model's is a GGUF file

Source of the layout: docs of the ollama repository and the files themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import CheckpointError, FetchError
from headrace.weights.files.json_file import read_json_object
from headrace.weights.files.user_path import user_path
from headrace.weights.store.model_name import OllamaModel

_MODEL = "application/vnd.ollama.image.model"
_ADAPTER = "application/vnd.ollama.image.adapter"
# Layers that say how Ollama uses a model; the GGUF file has its own template and limits.
_UNUSED = ("template", "system", "params", "messages", "projector")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
# Where Ollama's own installer for Linux keeps what its service pulls.
_SERVICE_FOLDER = "/usr/share/ollama/.ollama/models"


@dataclass(frozen=True)
class OllamaEntry:
    """A manifest. path: its GGUF file; unused: kinds of layers headrace takes no account of."""

    model: OllamaModel
    path: Path
    unused: tuple[str, ...]


def ollama_folders(environ: Mapping[str, str]) -> list[Path]:
    """Where Ollama's models may be: OLLAMA_MODELS, or the places it takes by itself."""
    if environ.get("OLLAMA_MODELS"):
        return [user_path(environ["OLLAMA_MODELS"])]
    return [user_path("~/.ollama/models"), Path(_SERVICE_FOLDER)]


def ollama_models(folder: Path) -> Iterator[OllamaModel]:
    """Every model that has a manifest in `folder`, in order; none where it cannot be read."""
    root = folder / "manifests"
    try:
        manifests = sorted(path for path in root.rglob("*") if path.is_file())
    except OSError:
        return
    for path in manifests:
        parts = path.relative_to(root).parts
        if len(parts) == 4 and not any(part.startswith(".") for part in parts):
            host, namespace, name, tag = parts
            yield OllamaModel(name, tag, namespace, host)


def manifest_of(folder: Path, model: OllamaModel) -> Path:
    """Where the manifest of `model` is, if there is one."""
    return folder / "manifests" / model.host / model.namespace / model.name / model.tag


def read_entry(folder: Path, model: OllamaModel) -> OllamaEntry:
    """The model's GGUF file; raises FetchError where there is none that can be used as it is."""
    manifest = manifest_of(folder, model)
    try:
        layers = read_json_object(manifest).get("layers")
    except CheckpointError as error:
        raise FetchError(f"{model}: Ollama's manifest is damaged: {error}") from error
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        raise FetchError(f"{model}: Ollama's manifest is damaged: {manifest} has no list of layers")
    kinds = [str(layer.get("mediaType")) for layer in layers]
    if _ADAPTER in kinds:
        raise FetchError(
            f"{model}: is a model with an adapter on top, which is not supported; "
            "without it the answers would be another model's"
        )
    if kinds.count(_MODEL) != 1:
        raise FetchError(f"{model}: {kinds.count(_MODEL)} layers are GGUF models; one is required")
    digest = _DIGEST.fullmatch(str(layers[kinds.index(_MODEL)].get("digest")))
    if digest is None:
        raise FetchError(f"{model}: Ollama's manifest is damaged: {manifest} has no sha256 digest")
    blob = folder / "blobs" / f"sha256-{digest[1]}"
    if not blob.is_file():
        raise FetchError(f"{model}: its file is gone from Ollama's store; ollama pull {model}")
    unused = tuple(name for name in _UNUSED if any(kind.endswith(f".{name}") for kind in kinds))
    return OllamaEntry(model, blob, unused)


def find_entry(environ: Mapping[str, str], model: OllamaModel) -> OllamaEntry | None:
    """The model in the first of Ollama's folders that has it; raises FetchError where broken."""
    for folder in ollama_folders(environ):
        try:
            there = manifest_of(folder, model).is_file()
        except OSError:
            continue  # the service's folder may be closed to others
        if there:
            return read_entry(folder, model)
    return None
