"""Headers of a hub model's files by HTTP ranges: what its weights are, without a weight.

Safetensors: config.json and the header of each file, its size in the first eight bytes. GGUF: files
of the whole size in a folder, of which only the beginning is there and the rest is a hole, so that
what reads a GGUF file reads these; its header has no length, and is fetched until it is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import get_session, hf_hub_url
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

from headrace import __version__
from headrace.errors import CheckpointError, FetchError, shown
from headrace.weights.files.json_file import parse_json
from headrace.weights.gguf.file import read_gguf
from headrace.weights.hugging_face.names import CONFIG, INDEX
from headrace.weights.safetensors.file import MAX_HEADER_BYTES
from headrace.weights.store.hub_client import HubClient, Listing
from headrace.weights.store.hub_failure import saying
from headrace.weights.store.model_files import choose_files
from headrace.weights.store.model_name import HubModel

TIMEOUT_S = 20.0
"""Of connecting, and of each wait for bytes."""

_FIRST_BYTES = 1 << 17
_FIRST_GGUF_BYTES = 1 << 20
_MOST_GGUF_BYTES = 1 << 28
_MOST_JSON_BYTES = 64 << 20
_LENGTH_BYTES = 8
_AT_ONCE = 8


class StoredTensor(NamedTuple):
    """A tensor as a header has it. dtype: safetensors' name."""

    name: str
    dtype: str
    num_values: int
    nbytes: int


@dataclass(frozen=True)
class RemoteHeaders:
    """The headers of a repository's files."""

    commit: str
    config: Mapping[str, Any]
    tensors: tuple[StoredTensor, ...]
    """With `config`: of safetensors; empty with GGUF."""
    gguf: Path | None
    """The file to open, in the folder that was given, or None."""
    fetched_bytes: int
    """That came over the network."""


def fetch_headers(model: HubModel, client: HubClient, folder: Path) -> RemoteHeaders:
    """Headers of `model`'s newest files. folder: empty, for holes in place of GGUF files.

    Raises FetchError for what cannot be had, CheckpointError for headers that are none.
    """
    listing = client.listing(model)
    ranges = _Ranges(model, client, listing)

    def read_index() -> Mapping[str, Any]:
        return ranges.json(INDEX)

    chosen = choose_files(model, listing.files, read_index)
    if chosen.entry is not None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda name: _gguf_hole(ranges, name, folder), chosen.names))
        return RemoteHeaders(listing.commit, {}, (), folder / chosen.entry, ranges.fetched)
    config = ranges.json(CONFIG)
    names = [name for name in chosen.names if name.endswith(".safetensors")]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        headers = pool.map(lambda name: tuple(_safetensors(ranges, name)), names)
        tensors = tuple(tensor for header in headers for tensor in header)
    return RemoteHeaders(listing.commit, config, tensors, None, ranges.fetched)


class _Ranges:
    """Bytes of files at one commit."""

    def __init__(self, model: HubModel, client: HubClient, listing: Listing) -> None:
        self.model = model
        self._client = client
        self._listing = listing
        self.fetched = 0

    def size(self, name: str) -> int:
        return self._listing.files[name].size

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a file; fewer where it ends before."""
        stop = min(stop, self.size(name)) if self.size(name) else stop
        if start >= stop:
            return b""
        url = hf_hub_url(
            self.model.repo, name, revision=self._listing.commit, endpoint=self._client.endpoint
        )
        headers = build_hf_headers(library_name="headrace", library_version=__version__)
        headers["Range"] = f"bytes={start}-{stop - 1}"
        headers["Accept-Encoding"] = "identity"
        found = bytearray()
        client = self._client
        # A redirect to a storage host leaves the token behind: the library's client sees to that.
        with (
            saying(self.model, client.endpoint, client.cache, client.remedy),
            get_session().stream(
                "GET", url, headers=headers, follow_redirects=True, timeout=TIMEOUT_S
            ) as reply,
        ):
            hf_raise_for_status(reply)
            skip = start if reply.status_code == 200 else 0  # it knows no ranges
            for piece in reply.iter_bytes():
                found += piece
                if len(found) >= skip + stop - start:
                    break
        self.fetched += len(found)
        wanted = bytes(found[skip : skip + stop - start])
        if len(wanted) < stop - start and self.size(name):
            raise FetchError(
                f"{self.model}: {client.endpoint} gave {len(wanted):,} bytes of {name} where "
                f"{stop - start:,} were requested; try again"
            )
        return wanted

    def json(self, name: str) -> Mapping[str, Any]:
        """A file that is one JSON object."""
        if name not in self._listing.files:
            raise FetchError(f"{self.model}: holds no {name}")
        if self.size(name) > _MOST_JSON_BYTES:
            raise FetchError(
                f"{self.model}: {name} has {self.size(name):,} bytes; the limit is "
                f"{_MOST_JSON_BYTES:,}"
            )
        try:
            found = parse_json(self.read(name, 0, _MOST_JSON_BYTES))
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.model}: {name} is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise CheckpointError(f"{self.model}: {name} is not a JSON object")
        return found


def _safetensors(ranges: _Ranges, name: str) -> Iterator[StoredTensor]:
    where = f"{ranges.model}: {name}"
    start = ranges.read(name, 0, _FIRST_BYTES)
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if len(start) < _LENGTH_BYTES or length > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"{where}: a header of {length:,} bytes; it is not a safetensors file"
        )
    end = _LENGTH_BYTES + length
    text = start[_LENGTH_BYTES:end] + ranges.read(name, len(start), end)
    try:
        header = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: the header is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{where}: the header is not a JSON object")
    for tensor, entry in header.items():
        if tensor == "__metadata__":
            continue
        try:
            begin, stop = entry["data_offsets"]
            values = 1
            for size in entry["shape"]:
                values *= size
            found = StoredTensor(tensor, str(entry["dtype"]), int(values), int(stop - begin))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{where}: tensor {shown(tensor)} is {shown(entry)}; an object of dtype, shape and "
                "data_offsets is required"
            ) from error
        if found.nbytes < 0 or found.num_values < 0:
            raise CheckpointError(f"{where}: tensor {shown(tensor)} has a size below 0")
        yield found


def _gguf_hole(ranges: _Ranges, name: str, folder: Path) -> None:
    """A file of the whole size with its header, and nothing behind it."""
    path, size = folder / name, ranges.size(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    most = min(size, _MOST_GGUF_BYTES)
    have, wanted = 0, _FIRST_GGUF_BYTES
    while True:
        piece = ranges.read(name, have, wanted)
        if not piece:
            raise CheckpointError(f"{ranges.model}: {name} has no bytes; it is not a GGUF file")
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(have)
            file.write(piece)
            have = file.tell()
            file.truncate(size)
        try:
            ends = read_gguf(path).header_bytes
        except CheckpointError:
            # Behind what has come lie zeros: what they are taken for says nothing.
            if have >= most:
                raise
        else:
            if ends <= have:
                return
        if have >= most:
            raise CheckpointError(
                f"{ranges.model}: the header of {name} is above {most:,} bytes; fetch the file "
                "(`headrace pull`) and name it"
            )
        wanted = min(4 * have, most)
