"""Removing a hub model from the cache, with huggingface_hub's own rules for shared blobs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.embedded import EMBEDDED_NAME
from headrace.errors import FetchError
from headrace.weights.store.gguf_group import choose_group, gguf_groups
from headrace.weights.store.hub_cache import (
    cache_folder,
    cached_repos,
    cached_revisions,
    find_revision,
    repo_folder,
)
from headrace.weights.store.model_name import HubModel, hub_model, is_explicit
from headrace.weights.store.resolve import locate_model

if TYPE_CHECKING:
    from huggingface_hub import HFCacheInfo


@dataclass(frozen=True)
class Removal:
    """A removal that has not been carried out yet."""

    name: str
    what: str
    freed_bytes: int
    """Size of blobs that nothing else in the cache uses."""
    _remove: Callable[[], object]

    def execute(self) -> None:
        """Remove it; there is no way back but fetching. Raises FetchError where that fails."""
        try:
            self._remove()
        except OSError as error:
            raise FetchError(
                f"{self.name}: {error.filename} cannot be removed: {error.strerror}"
            ) from error


def plan_removal(model: str, environ: Mapping[str, str]) -> Removal:
    """What `headrace rm model` would remove: a repository, one revision, or one GGUF model.

    Raises FetchError for anything but a hub model in the cache: Ollama's store is Ollama's, files
    are their owner's.
    """
    named = None if is_explicit(model) == "ollama" else hub_model(model)
    if named is None:
        raise FetchError(_refusal(model, environ))
    cache = cache_folder(environ)
    revisions = cached_revisions(cache, named.repo)
    try:
        if not revisions and _is_unfinished(cache, named):
            return _of_unfinished(named, repo_folder(cache, named.repo))
        if not revisions:
            raise FetchError(f"{model}: {named.repo} is not in {cache}; see headrace list")
        from huggingface_hub import scan_cache_dir

        info = scan_cache_dir(cache)
    except OSError as error:
        raise FetchError(
            f"{model}: the cache cannot be gone through: {error.filename}: {error.strerror}; "
            "mend or remove that yourself"
        ) from error
    if all(repo.repo_id != named.repo for repo in info.repos):
        raise FetchError(
            f"{model}: what the cache has of {named.repo} is damaged; headrace pull mends it, or "
            f"remove {repo_folder(cache, named.repo)} yourself"
        )
    if _is_whole_repo(named):
        commits = [revision.commit for revision in revisions]
        what = f"{named.repo}, all {len(commits)} revisions" if len(commits) > 1 else named.repo
        strategy = info.delete_revisions(*commits)
        return Removal(str(named), what, strategy.expected_freed_size, strategy.execute)
    return _of_one_revision(model, named, info, environ)


def _is_whole_repo(model: HubModel) -> bool:
    """Whether nothing but the repository was named."""
    return model == HubModel(model.repo)


def _is_unfinished(cache: Path, named: HubModel) -> bool:
    """Whether a repository has a folder but not one revision; OSError where nobody can tell."""
    if not _is_whole_repo(named) or named.repo not in cached_repos(cache):
        return False
    snapshots = repo_folder(cache, named.repo) / "snapshots"
    return not snapshots.is_dir() or not any(snapshots.iterdir())


def _of_unfinished(named: HubModel, folder: Path) -> Removal:
    """A repository of which only parts of files have come: no revision, so unknown to the scan."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    what = f"what an unfinished fetch of {named.repo} left"
    freed = sum(path.stat().st_size for path in paths)
    return Removal(str(named), what, freed, partial(shutil.rmtree, folder))


def _of_one_revision(
    model: str, named: HubModel, info: HFCacheInfo, environ: Mapping[str, str]
) -> Removal:
    revision = find_revision(cache_folder(environ), named)
    if revision is None:
        raise FetchError(f"{model}: revision {named.revision} of {named.repo} is not in the cache")
    if named.quant is None and named.file is None:
        strategy = info.delete_revisions(revision.commit)
        return Removal(str(named), str(named), strategy.expected_freed_size, strategy.execute)
    groups = gguf_groups(revision.entries())
    group = choose_group(groups, quant=named.quant, file=named.file, where=model)
    if len(groups) == 1 and not any(name.endswith(".safetensors") for name in revision.entries()):
        # Nothing is left of the revision then but texts; they go with the last model.
        strategy = info.delete_revisions(revision.commit)
    else:
        paths = {revision.folder / name for name in group.files}
        resolved = {path.parent.resolve() / path.name for path in paths}
        files = [
            file
            for repo in info.repos
            for each in repo.revisions
            for file in each.files
            if file.file_path.parent.resolve() / file.file_path.name in resolved
        ]
        strategy = info.delete_files(*files)
    what = ", ".join(group.files)
    return Removal(str(named), what, strategy.expected_freed_size, strategy.execute)


def _refusal(model: str, environ: Mapping[str, str]) -> str:
    located = locate_model(model, environ)
    if located.source == "ollama":
        return f"{model}: is in Ollama's store; remove it with `ollama rm {located.name}`"
    if located.source == "embedded":
        return f"{EMBEDDED_NAME}: ships in the package and goes with it"
    if located.path.exists():
        return f"{model}: is your own file or folder and not part of the store; remove it yourself"
    return f"{model}: not in the store; see headrace list"
