"""Fetching a model of the hub: choose its files, check the disk, fetch, then name the revision.

`refs/REVISION` is written last, so a revision is found on this disk only when all of it is there
and a fetch that fails leaves the one before it usable.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.atomic_file import atomic_file
from headrace.errors import FetchError
from headrace.weights.files.json_file import read_json_object
from headrace.weights.hugging_face.names import INDEX
from headrace.weights.store.hub_cache import MIN_COMMIT_DIGITS, repo_folder
from headrace.weights.store.hub_client import HubClient, Listing, RemoteFile
from headrace.weights.store.model_files import choose_files
from headrace.weights.store.model_name import HubModel

# Links, locks and references; blocks of small files that are larger than the files.
_DISK_SLACK_BYTES = 1 << 20


@dataclass(frozen=True)
class FetchProgress:
    """The progress of a fetch; sizes in bytes. `state` is that of `file`, the current file; "here"
    means that it was on this disk already."""

    file: str
    number: int
    num_files: int
    size_bytes: int
    state: Literal["begun", "coming", "done", "here"]
    file_bytes: int
    done_bytes: int
    total_bytes: int
    """With `done_bytes`: of all files, including those that were here already."""


@dataclass(frozen=True)
class Fetched:
    """The result of a fetch."""

    path: Path
    """The GGUF file or folder to open."""
    commit: str
    num_files: int
    total_bytes: int
    fetched_bytes: int


OnProgress = Callable[[FetchProgress], None]
FreeBytes = Callable[[Path], int]


def free_bytes_at(folder: Path) -> int:
    """Bytes free where `folder` is, or will be made."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def fetch_model(
    model: HubModel,
    client: HubClient,
    on_progress: OnProgress,
    *,
    free_bytes: FreeBytes = free_bytes_at,
) -> Fetched:
    """Bring the newest commit of the revision to this disk; files that are here stay.

    Raises FetchError with what is wrong and what helps; what has come by then is kept.
    """
    listing = client.listing(model)

    def read_index() -> dict[str, object]:
        path = client.download(model, listing.commit, listing.files[INDEX], lambda _: None)
        return read_json_object(path)

    chosen = choose_files(model, listing.files, read_index)
    files = [listing.files[name] for name in chosen.names]
    missing = [file for file in files if not client.held(model, listing.commit, file)]
    _check_disk(model, client, missing, free_bytes)
    _download(model, client, listing, files, on_progress)
    _write_ref(client.cache, model, listing.commit)
    folder = repo_folder(client.cache, model.repo) / "snapshots" / listing.commit
    return Fetched(
        path=folder / chosen.entry if chosen.entry is not None else folder,
        commit=listing.commit,
        num_files=len(files),
        total_bytes=sum(file.size for file in files),
        fetched_bytes=sum(file.size for file in missing),
    )


def _check_disk(
    model: HubModel, client: HubClient, missing: list[RemoteFile], free_bytes: FreeBytes
) -> None:
    needed = sum(file.size - client.partial_bytes(model, file) for file in missing)
    free = free_bytes(client.cache)
    if missing and needed + _DISK_SLACK_BYTES > free:
        raise FetchError(
            f"{model}: {needed} bytes ({needed / 1e9:.2f} GB) are to come but {client.cache} has "
            f"{free} ({free / 1e9:.2f} GB) free; make room (headrace list, headrace rm) or set "
            "HF_HUB_CACHE to another disk"
        )


def _download(
    model: HubModel,
    client: HubClient,
    listing: Listing,
    files: list[RemoteFile],
    on_progress: OnProgress,
) -> None:
    total = sum(file.size for file in files)
    before = 0
    for number, file in enumerate(files, 1):
        come = 0

        def tell(
            state: Literal["begun", "coming", "done", "here"],
            file_bytes: int,
            file: RemoteFile = file,
            number: int = number,
            before: int = before,
        ) -> None:
            on_progress(
                FetchProgress(
                    file.name, number, len(files), file.size, state, file_bytes,
                    before + file_bytes, total,
                )
            )  # fmt: skip

        def count(num_bytes: int, tell: Callable[..., None] = tell) -> None:
            nonlocal come
            come += num_bytes
            tell("coming", come)

        held = client.held(model, listing.commit, file)
        if not held:
            tell("begun", 0)
        client.download(model, listing.commit, file, count)
        tell("here" if held else "done", file.size)
        before += file.size


def _write_ref(cache: Path, model: HubModel, commit: str) -> None:
    """Say which commit the revision is. A commit needs no name, given whole or by its beginning."""
    if len(model.revision) >= MIN_COMMIT_DIGITS and commit.startswith(model.revision):
        return
    path = repo_folder(cache, model.repo) / "refs" / model.revision
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(commit.encode())
