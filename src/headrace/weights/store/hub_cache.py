"""Hugging Face's cache on this disk, read without the network and without its library.

    CACHE/models--org--name/refs/main                 a commit
    CACHE/models--org--name/snapshots/COMMIT/...      links into blobs/

A revision counts as here when its folder holds a whole model. Source of the layout:
huggingface_hub's guide "Understand caching".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import FetchError
from headrace.weights.files.json_file import read_json_object
from headrace.weights.files.user_path import user_path
from headrace.weights.hugging_face.names import INDEX
from headrace.weights.store.model_files import choose_files
from headrace.weights.store.model_name import DEFAULT_REVISION, HubModel

_PREFIX = "models--"
_SEPARATOR = "--"
# A shorter beginning of a commit is as likely the name of a tag.
MIN_COMMIT_DIGITS = 7
_TOKENIZERS = frozenset({"tokenizer.json", "tokenizer.model", "vocab.json"})
_TRUE = ("1", "ON", "YES", "TRUE")


@dataclass(frozen=True)
class CachedRevision:
    """One commit of a repository that the cache holds some files of. refs: names that mean it."""

    repo: str
    commit: str
    refs: tuple[str, ...]
    folder: Path

    @property
    def name(self) -> str:
        """The revision as people write it: main before other names, the commit without one."""
        if DEFAULT_REVISION in self.refs:
            return DEFAULT_REVISION
        return self.refs[0] if self.refs else self.commit

    def files(self) -> list[str]:
        """Paths, relative to the folder, of the files that can be read."""
        return [name for name in self.entries() if _is_file(self.folder / name)]

    def entries(self) -> list[str]:
        """Paths of all files, also of links whose blob is gone; the hub's are printable."""
        return sorted(
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if _is_file(path, links=True) and path.name.isprintable()
        )


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where the cache is, by the variables huggingface_hub goes by."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(name):
            return user_path(environ[name])
    if environ.get("HF_HOME"):
        return user_path(environ["HF_HOME"]) / "hub"
    root = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return user_path(root) / "huggingface" / "hub"


def offline_variable(environ: Mapping[str, str]) -> str | None:
    """The variable that forbids the network, None if none does."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    given = next((name for name in names if environ.get(name)), None)
    return given if given is not None and environ[given].upper() in _TRUE else None


def is_offline(environ: Mapping[str, str]) -> bool:
    """Whether the environment forbids the network, by the variables huggingface_hub goes by."""
    return offline_variable(environ) is not None


def repo_folder(cache: Path, repo: str) -> Path:
    """The folder of a repository."""
    return cache / (_PREFIX + repo.replace("/", _SEPARATOR))


def cached_repos(cache: Path) -> list[str]:
    """Ids of the model repositories the cache has a folder for, in order."""
    try:
        names = [path.name for path in cache.iterdir() if path.name.startswith(_PREFIX)]
    except OSError:
        return []
    return sorted(name.removeprefix(_PREFIX).replace(_SEPARATOR, "/", 1) for name in names)


def cached_revisions(cache: Path, repo: str) -> list[CachedRevision]:
    """What there is of `repo`, the revision called main first."""
    root = repo_folder(cache, repo)
    refs: dict[str, list[str]] = {}
    try:
        for name, commit in _refs(root / "refs"):
            refs.setdefault(commit, []).append(name)
        folders = sorted(path for path in (root / "snapshots").iterdir() if path.is_dir())
    except OSError:
        return []
    found = [
        CachedRevision(repo, path.name, tuple(refs.get(path.name, ())), path) for path in folders
    ]
    return sorted(found, key=lambda one: (one.name != DEFAULT_REVISION, one.name))


def find_revision(cache: Path, model: HubModel) -> CachedRevision | None:
    """The cached revision `model` names, by branch, tag, or the beginning of a commit."""
    revisions = cached_revisions(cache, model.repo)
    for revision in revisions:
        if model.revision in revision.refs or model.revision == revision.commit:
            return revision
    if len(model.revision) >= MIN_COMMIT_DIGITS:
        fitting = [each for each in revisions if each.commit.startswith(model.revision)]
        return fitting[0] if len(fitting) == 1 else None
    return None


def locate(cache: Path, model: HubModel) -> Path:
    """The file or folder to open; raises FetchError saying what is missing."""
    revision = find_revision(cache, model)
    if revision is None:
        raise FetchError(f"{model}: not in {cache}")
    return entry_of(revision, model)


def entry_of(revision: CachedRevision, model: HubModel) -> Path:
    """What of a cached revision is to be opened for `model`; raises FetchError."""
    names = frozenset(revision.files())
    chosen = choose_files(model, names, lambda: read_json_object(revision.folder / INDEX))
    if chosen.entry is not None:
        return revision.folder / chosen.entry
    if not names & _TOKENIZERS:
        raise FetchError(f"{model}: its tokenizer is not in the cache (tokenizer.json)")
    return revision.folder


def _is_file(path: Path, *, links: bool = False) -> bool:
    """Whether it is a file (links: or a link to nothing); false in a folder closed to this user."""
    try:
        return path.is_file() or (links and path.is_symlink())
    except OSError:
        return False


def _refs(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        try:
            if path.is_file():
                yield path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue  # a reference that cannot be read names nothing
