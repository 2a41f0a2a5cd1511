"""One model of the local store, with what its headers say. Weights are not read.

A model that is damaged, incomplete or of a kind that cannot be read is an entry too: it has a
`broken` that says why, and whatever else could be learnt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from headrace.errors import HeadraceError
from headrace.weights.files.json_file import read_json_object
from headrace.weights.gguf.split import read_gguf_model
from headrace.weights.hugging_face.folder import weight_files
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.tensors.tensor import Tensor


@dataclass(frozen=True)
class StoredModel:
    """A line of `headrace list`."""

    name: str
    """What commands take for it; size and parameters are exact."""
    source: Literal["hf", "ollama", "embedded"]
    path: Path
    format: Literal["gguf", "safetensors"] | None = None
    codec: str | None = None
    """The kind most bytes are stored in."""
    family: str | None = None
    parameters: int | None = None
    size_bytes: int = 0
    modified_s: float = 0.0
    """Seconds since 1970, of the newest file. family, codec and parameters are None where the
    headers could not be read; broken says why."""
    broken: str | None = None


def with_size(entry: StoredModel, files: Iterable[Path]) -> StoredModel:
    """`entry` with the size and age of `files`; links whose blob is gone count for nothing."""
    size, modified = 0, 0.0
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            continue
        size += stat.st_size
        modified = max(modified, stat.st_mtime)
    return replace(entry, size_bytes=size, modified_s=modified)


def read_facts(entry: StoredModel) -> StoredModel:
    """`entry` with what the header of its path says, or with why it cannot be read."""
    try:
        return _of_folder(entry) if entry.path.is_dir() else _of_gguf(entry)
    except HeadraceError as error:
        return replace(entry, broken=_short(error, entry.path))
    except OSError as error:
        return replace(entry, broken=error.strerror or str(error))


def _of_gguf(entry: StoredModel) -> StoredModel:
    file = read_gguf_model(entry.path)
    family = str(file.metadata.scalar("general.architecture", "")) or None
    entry = replace(entry, format="gguf", family=family)
    return _with_tensors(entry, file.tensors.values())


def _of_folder(entry: StoredModel) -> StoredModel:
    family = read_json_object(entry.path / "config.json").get("model_type")
    entry = replace(entry, format="safetensors", family=str(family) if family else None)
    tensors: list[Tensor] = []
    for file in weight_files(entry.path):
        tensors += read_safetensors(file).tensors.values()
    return _with_tensors(entry, tensors)


def _with_tensors(entry: StoredModel, tensors: Iterable[Tensor]) -> StoredModel:
    bytes_by_codec: Counter[str] = Counter()
    parameters = 0
    for tensor in tensors:
        bytes_by_codec[tensor.codec.name] += tensor.nbytes
        parameters += tensor.num_values
    codec = bytes_by_codec.most_common(1)[0][0] if bytes_by_codec else None
    return replace(entry, codec=codec, parameters=parameters)


def _short(error: HeadraceError, path: Path) -> str:
    """The message without the path it begins with, which the entry has."""
    return str(error).removeprefix(f"{path}: ").removeprefix(f"{path}/")
