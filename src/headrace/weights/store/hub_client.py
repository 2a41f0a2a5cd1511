"""The hub over huggingface_hub: what a repository holds, and one file of it into the cache.

Every failure becomes a FetchError that says what to do; the token stays in the library. Large
files that come over plain HTTP are fetched here, into a partial file that the next run goes on
with: the library gives its own up when it is interrupted. Whether over HTTP or Xet, a file is
checked against the digest of the hub's listing before it counts as there.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from huggingface_hub import HfApi, ModelInfo, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.constants import HF_HUB_DISABLE_XET, MAX_HTTP_DOWNLOAD_SIZE
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from headrace import __version__
from headrace.errors import FetchError
from headrace.weights.store.hub_cache import repo_folder
from headrace.weights.store.hub_failure import CHECK_NETWORK, saying
from headrace.weights.store.model_name import HubModel

DEFAULT_ENDPOINT = "https://huggingface.co"
LISTING_TIMEOUT_S = 30.0
# Smaller files are fetched anew in seconds; a partial file of them is not worth having.
RESUME_FROM_BYTES = 16 << 20
_HASH_PIECE_BYTES = 1 << 22

_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LIBRARY = "headrace"

OnBytes = Callable[[int], None]


@dataclass(frozen=True)
class RemoteFile:
    """A file of a listing. sha256: of its bytes, where it is stored with LFS or Xet.

    oid: git's id of it (SHA-1 over a header and the bytes) where sha256 is None.
    """

    name: str
    size: int
    sha256: str | None
    oid: str | None

    @property
    def etag(self) -> str | None:
        """The name of its blob in the cache."""
        return self.sha256 or self.oid


@dataclass(frozen=True)
class Listing:
    """A repository at one commit."""

    commit: str
    files: Mapping[str, RemoteFile]


class HubClient:
    """The hub at `endpoint` and the cache its files go to.

    remedy: what is said to do where the hub cannot be reached.
    """

    def __init__(
        self, cache: Path, endpoint: str | None = None, remedy: str = CHECK_NETWORK
    ) -> None:
        self.cache = cache
        self.remedy = remedy
        self.endpoint = (endpoint or DEFAULT_ENDPOINT).rstrip("/")

    def listing(self, model: HubModel) -> Listing:
        """What the repository holds at the revision; one request."""
        api = HfApi(endpoint=self.endpoint, library_name=_LIBRARY, library_version=__version__)
        with saying(model, self.endpoint, self.cache, self.remedy):
            try:
                info = api.model_info(
                    model.repo,
                    revision=model.revision,
                    files_metadata=True,
                    timeout=LISTING_TIMEOUT_S,
                )
                listing = Listing(_digest(info.sha) or "", _files(info))
            except (AttributeError, KeyError, TypeError) as error:
                # JSON of another shape: the library takes it apart without looking.
                raise FetchError(
                    f"{model}: {self.endpoint} gave no listing as a hub does"
                ) from error
        if not listing.commit:
            raise FetchError(f"{self.endpoint} gave no commit of {model.repo}; it is not a hub")
        return listing

    def held(self, model: HubModel, commit: str, file: RemoteFile) -> bool:
        """Whether the cache has the file, under this commit or by its digest."""
        folder = repo_folder(self.cache, model.repo)
        paths = [folder / "snapshots" / commit / file.name]
        if file.etag:
            paths.append(folder / "blobs" / file.etag)
        return any(path.is_file() and path.stat().st_size == file.size for path in paths)

    def partial_bytes(self, model: HubModel, file: RemoteFile) -> int:
        """Bytes of the file that an earlier run has left."""
        partial = self._partial(model, file)
        return partial.stat().st_size if partial is not None and partial.is_file() else 0

    def download(self, model: HubModel, commit: str, file: RemoteFile, on_bytes: OnBytes) -> Path:
        """The file in the cache, fetched and checked where it is not there yet.

        on_bytes: called with the number of bytes that have come since (negative: lost again).
        Raises FetchError where it cannot be had or is not what the listing says.
        """
        held = checked = self.held(model, commit, file)
        with saying(model, self.endpoint, self.cache):
            if not held:
                checked = self._download_partial(model, commit, file, on_bytes)
            path = Path(
                hf_hub_download(
                    model.repo,
                    file.name,
                    revision=commit,
                    cache_dir=self.cache,
                    endpoint=self.endpoint,
                    # The library's bars are replaced by an object that counts and draws nothing.
                    tqdm_class=_counter(on_bytes),
                    force_download=not held and self._is_stale(model, commit, file),
                    library_name=_LIBRARY,
                    library_version=__version__,
                )
            )
        if not checked:
            self._check(model, file, path)
        return path

    def _is_stale(self, model: HubModel, commit: str, file: RemoteFile) -> bool:
        """Whether something of another size lies where the file belongs."""
        path = repo_folder(self.cache, model.repo) / "snapshots" / commit / file.name
        return path.is_file() and path.stat().st_size != file.size

    def _partial(self, model: HubModel, file: RemoteFile) -> Path | None:
        if file.sha256 is None or file.size < RESUME_FROM_BYTES:
            return None
        return repo_folder(self.cache, model.repo) / "blobs" / f"{file.sha256}.headrace.incomplete"

    def _download_partial(
        self, model: HubModel, commit: str, file: RemoteFile, on_bytes: OnBytes
    ) -> bool:
        """Fetch over HTTP to where the library looks for blobs, and check.

        False where it is left to the library: small files, and those it gets over Xet.
        """
        partial = self._partial(model, file)
        if partial is None or file.sha256 is None:
            return False
        url = hf_hub_url(model.repo, file.name, revision=commit, endpoint=self.endpoint)
        metadata = get_hf_file_metadata(
            url, endpoint=self.endpoint, library_name=_LIBRARY, library_version=__version__
        )
        xet = metadata.xet_file_data is not None and not HF_HUB_DISABLE_XET
        if xet or metadata.etag != file.sha256 or file.size > MAX_HTTP_DOWNLOAD_SIZE:
            return False
        blob = partial.with_name(file.sha256)
        headers = build_hf_headers(library_name=_LIBRARY, library_version=__version__)
        if urlsplit(metadata.location).netloc != urlsplit(self.endpoint).netloc:
            headers.pop("authorization", None)  # a storage host is not told the token
        partial.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("ab") as target:
            fcntl.flock(target, fcntl.LOCK_EX)  # another run may be at the same file
            if blob.is_file():
                return True
            have = target.tell()
            if have >= file.size:
                target.truncate(file.size)
                on_bytes(file.size)
            else:
                http_get(
                    metadata.location,
                    target,
                    resume_size=have,
                    headers=headers,
                    expected_size=file.size,
                    displayed_filename=file.name,
                    tqdm_class=_counter(on_bytes),
                )
            target.flush()
            if _sha256(partial) != file.sha256:
                partial.unlink()
                raise _damaged(model, file)
            partial.rename(blob)
        return True

    def _check(self, model: HubModel, file: RemoteFile, path: Path) -> None:
        """Compare with the listing's digest; a file that differs is removed."""
        if file.sha256 is not None:
            right = _sha256(path) == file.sha256
        elif file.oid is not None:
            right = _git_oid(path) == file.oid
        else:
            right = path.stat().st_size == file.size
        if not right:
            if path.is_symlink():
                (path.parent / path.readlink()).unlink(missing_ok=True)
            path.unlink()
            raise _damaged(model, file)


def _counter(on_bytes: OnBytes) -> Any:
    """A stand-in for the class of the library's progress bars."""

    class Counter:
        total = 0
        n = 0

        def __init__(self, *_: Any, initial: int = 0, **__: Any) -> None:
            if initial:
                on_bytes(initial)

        def __enter__(self) -> Counter:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def update(self, n: float | None = 1) -> None:
            on_bytes(int(n or 0))

        def update_transfer(self, n: float | None = 1) -> None:
            """Bytes on the wire; those written are counted."""

        def close(self) -> None:
            """Nothing was drawn."""

        def refresh(self, *_: object, **__: object) -> None:
            """Nothing is drawn."""

        set_description = set_description_str = refresh
        set_postfix_str = set_transfer_postfix_str = refresh

    return Counter


def _files(info: ModelInfo) -> dict[str, RemoteFile]:
    return {
        sibling.rfilename: RemoteFile(
            sibling.rfilename,
            _size(sibling.lfs.size if sibling.lfs else sibling.size),
            _digest(sibling.lfs.sha256 if sibling.lfs else None),
            _digest(sibling.blob_id),
        )
        for sibling in info.siblings or ()
        if _is_inside(sibling.rfilename)
    }


def _size(value: object) -> int:
    """A size of a listing, 0 where it is not stated; TypeError where it is none."""
    if value is None:
        return 0
    if not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} is not a size")
    return value


def _digest(text: object) -> str | None:
    """A digest of a listing; None where it is none, since it becomes a file's name."""
    return text if isinstance(text, str) and _DIGEST.fullmatch(text) else None


def _is_inside(name: str) -> bool:
    """Whether a name of a listing is one, and stays in the repository's folder."""
    return (
        name.isprintable()
        and not name.startswith("/")
        and not {"", ".", ".."} & set(name.split("/"))
    )


def _damaged(model: HubModel, file: RemoteFile) -> FetchError:
    return FetchError(
        f"{model}: {file.name} came damaged: its bytes do not have the digest the hub states; "
        "it was removed, pull again"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _git_oid(path: Path) -> str:
    """Git's id of a file: SHA-1 of its kind, size and bytes (git-hash-object)."""
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(_HASH_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
