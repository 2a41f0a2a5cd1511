"""Every model on this disk that commands take by name: the package's, the cache's, Ollama's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.embedded import EMBEDDED_NAME, embedded_model
from headrace.errors import CheckpointError, FetchError
from headrace.weights.store.entry import StoredModel, with_size
from headrace.weights.store.facts_file import FactsFile
from headrace.weights.store.gguf_group import GGUFGroup, gguf_groups
from headrace.weights.store.hub_cache import (
    CachedRevision,
    cache_folder,
    cached_repos,
    cached_revisions,
    entry_of,
)
from headrace.weights.store.model_name import HubModel
from headrace.weights.store.ollama_store import (
    manifest_of,
    ollama_folders,
    ollama_models,
    read_entry,
)


def stored_models(environ: Mapping[str, str]) -> Iterator[StoredModel]:
    """The models, in the order of their sources and names. Reads headers only, and those it has
    not read before. Never raises for a model that is damaged: its entry says so.
    """
    facts = FactsFile(environ)
    for entry in _entries(environ):
        yield facts.fill(entry)
    facts.save()


def _entries(environ: Mapping[str, str]) -> Iterator[StoredModel]:
    yield from _embedded()
    cache = cache_folder(environ)
    for repo in cached_repos(cache):
        for revision in cached_revisions(cache, repo):
            yield from _of_revision(revision)
    for folder in ollama_folders(environ):
        yield from _of_ollama(folder)


def _of_revision(revision: CachedRevision) -> Iterator[StoredModel]:
    """The models of one cached revision: each GGUF model, and the safetensors if there are any.

    Nothing is given for a revision without any file of weights (a tokenizer somebody fetched).
    """
    names = revision.entries()
    groups = gguf_groups(names)
    for group in groups:
        yield _of_group(revision, group, groups)
    if any(name.endswith(".safetensors") for name in names):
        model = HubModel(revision.repo, revision.name)
        broken = None
        try:
            path = entry_of(revision, model)
        except (FetchError, CheckpointError) as error:
            path, broken = revision.folder, str(error).removeprefix(f"{model}: ")
        if path == revision.folder:
            files = [path / name for name in names if not name.endswith(".gguf")]
            format_ = "safetensors"
            entry = StoredModel(str(model), "hf", path, format_, broken=broken)  # type: ignore[arg-type]
            yield with_size(entry, files)


def _hub_name(revision: CachedRevision, group: GGUFGroup, groups: list[GGUFGroup]) -> HubModel:
    """How a GGUF model of a repository is called: by kind where that tells it apart."""
    unique = group.kind and sum(other.kind == group.kind for other in groups) == 1
    if unique:
        return HubModel(revision.repo, revision.name, quant=group.kind)
    return HubModel(revision.repo, revision.name, file=group.files[0])


def _of_group(revision: CachedRevision, group: GGUFGroup, groups: list[GGUFGroup]) -> StoredModel:
    name = str(_hub_name(revision, group, groups))
    files = [revision.folder / file for file in group.files]
    broken = None
    if not group.complete:
        broken = f"only {len(group.files)} of {group.num_pieces} pieces are here"
    return with_size(StoredModel(name, "hf", files[0], "gguf", broken=broken), files)


def _embedded() -> Iterator[StoredModel]:
    try:
        path = embedded_model()
    except CheckpointError:
        return  # a build without one
    yield with_size(StoredModel(EMBEDDED_NAME, "embedded", path), [path])


def _of_ollama(folder: Path) -> Iterator[StoredModel]:
    for model in ollama_models(folder):
        try:
            path = read_entry(folder, model).path
        except FetchError as error:
            broken = str(error).removeprefix(f"{model}: ")
            yield StoredModel(str(model), "ollama", manifest_of(folder, model), broken=broken)
            continue
        yield with_size(StoredModel(str(model), "ollama", path), [path])
