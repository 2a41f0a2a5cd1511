"""From a MODEL argument to a path: the one place where that is decided.

In this order: nothing (the embedded model), what is said outright (hf://, a hub URL, ollama://), a
path that exists, the embedded model's name, a hub id, a name of Ollama's. What is on this disk is
used without the network. Anything else is taken for a path; whether a model lies there is for the
one who opens it to say.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headrace.embedded import EMBEDDED_NAME, embedded_model
from headrace.errors import FetchError
from headrace.weights.files.user_path import user_path
from headrace.weights.store.gguf_group import gguf_groups
from headrace.weights.store.hub_cache import (
    cache_folder,
    cached_repos,
    cached_revisions,
    is_offline,
    locate,
    offline_variable,
)
from headrace.weights.store.model_name import (
    HubModel,
    OllamaModel,
    hub_model,
    is_explicit,
    ollama_model,
)
from headrace.weights.store.ollama_store import OllamaEntry, find_entry, ollama_folders

if TYPE_CHECKING:
    from headrace.weights.store.fetch import Fetched, OnProgress


@dataclass(frozen=True)
class Located:
    """A model on this disk."""

    path: Path
    """What to open."""
    source: Literal["embedded", "path", "hub", "ollama"]
    name: str | None = None
    """What to call it, where the path says nothing of it (the cache names folders by commit)."""
    note: str | None = None
    """A line people should read, where something else could have been meant."""


def resolve_model(model: str) -> Path:
    """The path `model` names on this disk; raises FetchError for what would have to be fetched."""
    return locate_model(model, os.environ).path


def locate_model(model: str, environ: Mapping[str, str]) -> Located:
    """What `model` names, without the network.

    Raises FetchError, naming the remedy, for a hub id or a name of Ollama's that is not here,
    CheckpointError where this build has no embedded model, ConfigError for a malformed hf://.
    """
    named = _named(model, environ)
    return named if isinstance(named, Located) else _in_cache(model, named, environ)


def obtain_model(
    model: str, environ: Mapping[str, str], on_progress: OnProgress, *, offline: bool = False
) -> Located:
    """What `model` names; a hub id that is not on this disk is fetched. Raises as locate_model."""
    named = _named(model, environ)
    if isinstance(named, Located):
        return named
    try:
        return _in_cache(model, named, environ)
    except FetchError:
        if offline or is_offline(environ):
            raise
    try:
        fetched = fetch(named, environ, on_progress)
    except FetchError as error:
        hint = "" if is_explicit(model) else f"; there is no file or folder {model} here either"
        raise FetchError(f"{error}{hint}; {_held(named, environ)}") from error
    return Located(fetched.path, "hub", str(named))


def fetch(model: HubModel, environ: Mapping[str, str], on_progress: OnProgress) -> Fetched:
    """Bring the newest commit of a hub model's revision to this disk; raises FetchError."""
    try:
        from headrace.weights.store.fetch import fetch_model
        from headrace.weights.store.hub_client import HubClient
    except ValueError as error:  # huggingface_hub reads its variables when it is imported
        raise FetchError(
            f"{model}: huggingface_hub does not start: {error}; check the variables that begin "
            "with HF_"
        ) from error
    client = HubClient(cache_folder(environ), environ.get("HF_ENDPOINT"))
    return fetch_model(model, client, on_progress)


def _named(model: str, environ: Mapping[str, str]) -> Located | HubModel:
    """All but the last step: a hub id is given back as such."""
    if not model:
        return Located(embedded_model(), "embedded")
    explicit = is_explicit(model)
    on_hub = None if explicit == "ollama" else hub_model(model)
    path = user_path(model)
    if explicit is None and _exists(path):
        note = None
        if on_hub is not None and path.is_dir():
            note = f"{model} is the folder here; the hub's model of that name is hf://{model}"
        return Located(path, "path", note=note)
    if model == EMBEDDED_NAME:
        return Located(embedded_model(), "embedded")
    if on_hub is not None:
        return on_hub
    in_ollama = ollama_model(model)
    is_name = in_ollama is not None and not model.endswith((".gguf", ".safetensors"))
    if in_ollama is None or not (explicit or (is_name and "/" not in model)):
        return Located(path, "path")
    return _in_ollama(model, in_ollama, environ)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # a name too long for a path, or behind a closed folder


def _in_ollama(model: str, named: OllamaModel, environ: Mapping[str, str]) -> Located:
    entry = find_entry(environ, named)
    if entry is None:
        folders = " or ".join(str(folder) for folder in ollama_folders(environ))
        raise FetchError(
            f"{model}: no such file or folder here and no {named} in Ollama's store ({folders}); "
            "a model of the hub is written org/name"
        )
    return Located(entry.path, "ollama", str(named), _unused(entry))


def _unused(entry: OllamaEntry) -> str | None:
    if not entry.unused:
        return None
    return f"{entry.model}: Ollama's {', '.join(entry.unused)} not used, only its GGUF file"


def _in_cache(model: str, named: HubModel, environ: Mapping[str, str]) -> Located:
    try:
        return Located(locate(cache_folder(environ), named), "hub", str(named))
    except FetchError as error:
        hint = "" if is_explicit(model) else f"there is no file or folder {model} here; "
        held = _held(named, environ)
        variable = offline_variable(environ)
        unset = "" if variable is None else f"without {variable}, which is set, "
        raise FetchError(
            f"{error}; {hint}{held}; {unset}headrace pull {model} fetches it"
        ) from error


def _held(model: HubModel, environ: Mapping[str, str]) -> str:
    """What of the repository is on this disk, for people whose network is not there."""
    cache = cache_folder(environ)
    names = [
        f"{group.kind or group.files[0]}@{revision.name}"
        for revision in cached_revisions(cache, model.repo)
        for group in gguf_groups(revision.files())
    ]
    if names:
        return f"of {model.repo} this disk has {', '.join(names)}"
    return f"this disk has {len(cached_repos(cache))} repositories of the hub (headrace list)"
