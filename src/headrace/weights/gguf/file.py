"""Reading a GGUF file: header, metadata and tensor list, over a memory map.

Time and memory go with the header, never with the weights. Every count, length and offset is
checked against the file's size before anything is allocated, because files come from strangers.
Errors name the file, the field, where it lies, its value and the limit. What tensors and keys mean
for a model is the business of `gguf_names` and `gguf_config`.

Source: the GGUF specification (ggml repository, docs/gguf.md), versions 2 and 3.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, shown
from headrace.weights.codecs import codec_of_gguf_type
from headrace.weights.files.mapped import map_file
from headrace.weights.gguf import _strings
from headrace.weights.gguf.values import (
    NUMBER_DTYPES,
    Metadata,
    StringArray,
    ValueType,
)
from headrace.weights.tensors.tensor import Tensor

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_NAME_BYTES = 64
MAX_DIMENSIONS = 4
# Real files stay far below these: under 100 keys, about 2 000 tensors (60 000 where experts are
# not stacked), under a million strings and no nested arrays. They bound what a hostile file costs.
MAX_KEYS = 1 << 16
MAX_KEY_BYTES = 1 << 16
MAX_TENSORS = 1 << 18
MAX_STRINGS = 1 << 24
MAX_NESTED_ARRAYS = 1 << 16
MAX_ARRAY_DEPTH = 4

_MIN_KEY_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8


@dataclass(frozen=True)
class GGUFFile:
    """The contents of a GGUF file as stored: keys and tensor names are GGUF's own."""

    path: Path
    """The file, or the first piece of a split one (`gguf_split` puts pieces together)."""
    version: int
    alignment: int
    metadata: Metadata
    tensors: Mapping[str, Tensor]
    """In file order; shapes are in Hugging Face order, (out, in)."""
    header_bytes: int = 0
    """Up to the end of the tensor list; 0 where files were put together."""


def read_gguf(path: Path | str) -> GGUFFile:
    """Map `path` and read its header; raises CheckpointError (see the module's first lines)."""
    path = Path(path)
    data = map_file(path)
    cursor = _Cursor(path, data)
    version, n_tensors, n_keys = _read_preamble(cursor)
    metadata = _read_metadata(cursor, n_keys)
    alignment = _alignment_of(path, metadata)
    tensors = _read_tensors(cursor, data, n_tensors, alignment)
    return GGUFFile(path, version, alignment, metadata, tensors, cursor.at)


class _Cursor:
    """A place in the header; every step is checked against the end of the file."""

    def __init__(self, path: Path, data: npt.NDArray[np.uint8]) -> None:
        self.path = path
        self.array = data
        self.view = data.data
        self.size = len(data)
        self.at = 0
        self.strings_left = MAX_STRINGS
        self.nested_left = MAX_NESTED_ARRAYS

    def error(self, what: str, at: int | None = None) -> CheckpointError:
        return CheckpointError(f"{self.path}: {what}, at byte {self.at if at is None else at}")

    def take(self, n_bytes: int, what: str) -> int:
        """Offset of the next `n_bytes`, and step over them."""
        left = self.size - self.at
        if n_bytes > left:
            raise self.error(
                f"{what} needs {n_bytes} bytes but the file has {left} left: "
                "it is damaged or was cut short; fetch it again"
            )
        at = self.at
        self.at += n_bytes
        return at

    def number(self, form: struct.Struct, what: str) -> Any:
        return form.unpack_from(self.view, self.take(form.size, what))[0]

    def text(self, what: str, limit: int | None = None) -> str:
        n_bytes = self.number(_U64, f"the length of {what}")
        if limit is not None and n_bytes > limit:
            raise self.error(f"{what} is {n_bytes} bytes long; the limit is {limit}", self.at - 8)
        at = self.take(n_bytes, what)
        try:
            return bytes(self.view[at : at + n_bytes]).decode()
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not UTF-8 ({error.reason})", at) from error


_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SCALARS = {
    ValueType.UINT8: struct.Struct("<B"),
    ValueType.INT8: struct.Struct("<b"),
    ValueType.UINT16: struct.Struct("<H"),
    ValueType.INT16: struct.Struct("<h"),
    ValueType.UINT32: struct.Struct("<I"),
    ValueType.INT32: struct.Struct("<i"),
    ValueType.FLOAT32: struct.Struct("<f"),
    ValueType.UINT64: struct.Struct("<Q"),
    ValueType.INT64: struct.Struct("<q"),
    ValueType.FLOAT64: struct.Struct("<d"),
}


def _read_preamble(cursor: _Cursor) -> tuple[int, int, int]:
    at = cursor.take(4, "the magic")
    magic = bytes(cursor.view[at : at + 4])
    if magic != MAGIC:
        raise cursor.error(f"is not a GGUF file: it starts with {magic!r}, not with {MAGIC!r}", at)
    version = cursor.number(_U32, "version")
    if version in {int.from_bytes(v.to_bytes(4, "big"), "little") for v in VERSIONS}:
        raise cursor.error(
            f"version reads {version:#010x}: a big-endian GGUF file, which is not supported; "
            "convert it with gguf_convert_endian.py",
            4,
        )
    if version not in VERSIONS:
        old = ": older than August 2023; convert the model again" if version == 1 else ""
        raise cursor.error(
            f"version is {version}; supported: {VERSIONS[0]} and {VERSIONS[1]}{old}", 4
        )
    n_tensors = cursor.number(_U64, "tensor_count")
    n_keys = cursor.number(_U64, "metadata_kv_count")
    left = cursor.size - cursor.at
    for what, count, limit, each in (
        ("tensor_count", n_tensors, MAX_TENSORS, _MIN_TENSOR_BYTES),
        ("metadata_kv_count", n_keys, MAX_KEYS, _MIN_KEY_BYTES),
    ):
        limit = min(limit, left // each)
        if count > limit:
            raise cursor.error(f"{what} is {count}; the limit for this file is {limit}", 8)
    return version, n_tensors, n_keys


def _read_metadata(cursor: _Cursor, n_keys: int) -> Metadata:
    values: dict[str, Any] = {}
    types: dict[str, ValueType] = {}
    for index in range(n_keys):
        start = cursor.at
        key = cursor.text(f"key {index} of the metadata", MAX_KEY_BYTES)
        if key in values:
            raise cursor.error(f"metadata key {shown(key)} appears twice", start)
        types[key] = _read_type(cursor, key)
        values[key] = _read_value(cursor, key, types[key], 0)
    return Metadata(cursor.path, values, types)


def _read_type(cursor: _Cursor, key: str) -> ValueType:
    type_id = cursor.number(_U32, f"the type of metadata {shown(key)}")
    if type_id not in ValueType._value2member_map_:
        raise cursor.error(
            f"metadata {shown(key)} has value type {type_id}; types are 0 to {max(ValueType)}",
            cursor.at - 4,
        )
    return ValueType(type_id)


def _read_value(cursor: _Cursor, key: str, kind: ValueType, depth: int) -> Any:
    what = f"metadata {shown(key)}"
    if kind is ValueType.STRING:
        return cursor.text(what)
    if kind is ValueType.ARRAY:
        return _read_array(cursor, key, depth + 1)
    if kind is ValueType.BOOL:
        at = cursor.take(1, what)
        if cursor.view[at] > 1:
            raise cursor.error(f"{what} is a bool of value {cursor.view[at]}; 0 or 1 is allowed")
        return cursor.view[at] == 1
    return cursor.number(_SCALARS[kind], what)


def _read_array(cursor: _Cursor, key: str, depth: int) -> Any:
    if depth > MAX_ARRAY_DEPTH:
        raise cursor.error(f"metadata {shown(key)} nests arrays deeper than {MAX_ARRAY_DEPTH}")
    kind = _read_type(cursor, key)
    count = cursor.number(_U64, f"the length of metadata {shown(key)}")
    at, left = cursor.at, cursor.size - cursor.at
    least = {ValueType.STRING: 8, ValueType.ARRAY: 12}.get(kind)
    each = least if least is not None else NUMBER_DTYPES[kind].itemsize
    if count > left // each:
        raise cursor.error(
            f"metadata {shown(key)} is an array of {count} entries, {each} bytes each at least, "
            f"but the file has {left} bytes left: it is damaged or was cut short; fetch it again",
            at - 8,
        )
    if kind is ValueType.STRING:
        strings = _read_strings(cursor, key, count)
        return strings if depth == 1 else strings.to_list()
    if kind is ValueType.ARRAY:
        cursor.nested_left -= count
        if cursor.nested_left < 0:
            raise cursor.error(
                f"metadata {shown(key)}: more than {MAX_NESTED_ARRAYS} nested arrays", at
            )
        return [_read_array(cursor, key, depth + 1) for _ in range(count)]
    cursor.take(count * each, f"metadata {shown(key)}")
    if kind is ValueType.BOOL:
        raw = cursor.array[at : at + count]
        if count and raw.max() > 1:
            raise cursor.error(
                f"metadata {shown(key)} holds a bool of value {raw.max()}; 0 or 1", at
            )
        return raw.view(np.bool_)
    return np.frombuffer(cursor.view, NUMBER_DTYPES[kind], count, at)


def _read_strings(cursor: _Cursor, key: str, count: int) -> StringArray:
    cursor.strings_left -= count
    if cursor.strings_left < 0:
        raise cursor.error(f"metadata {shown(key)}: more than {MAX_STRINGS} strings in arrays")
    starts, ends = array("Q", [0]) * count, array("Q", [0]) * count
    found, at = _strings.find(cursor.view, cursor.at, starts, ends)
    if found < count:
        raise cursor.error(
            f"string {found} of {count} in metadata {shown(key)} runs past the end of the file "
            f"({cursor.size} bytes): it is damaged or was cut short; fetch it again"
        )
    cursor.at = at
    return StringArray(cursor.path, key, cursor.view, starts, ends)


def _alignment_of(path: Path, metadata: Metadata) -> int:
    value = metadata.scalar("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or value & (value - 1):
        raise CheckpointError(
            f"{path}: metadata 'general.alignment' is {shown(value)}; a power of two is required"
        )
    return value


def _read_tensors(
    cursor: _Cursor, data: npt.NDArray[np.uint8], n_tensors: int, alignment: int
) -> dict[str, Tensor]:
    entries = []
    seen: set[str] = set()
    for index in range(n_tensors):
        start = cursor.at
        name = cursor.text(f"the name of tensor {index}", MAX_NAME_BYTES)
        if name in seen:
            raise cursor.error(f"tensor {name!r} appears twice", start)
        seen.add(name)
        n_dimensions = cursor.number(_U32, f"the dimensions of tensor {name!r}")
        if not 1 <= n_dimensions <= MAX_DIMENSIONS:
            raise cursor.error(
                f"tensor {name!r} has {n_dimensions} dimensions; 1 to {MAX_DIMENSIONS} are allowed",
                cursor.at - 4,
            )
        sizes = [cursor.number(_U64, f"a size of tensor {name!r}") for _ in range(n_dimensions)]
        if min(sizes) < 1:
            raise cursor.error(f"tensor {name!r} has sizes {sizes}; each must be at least 1", start)
        type_id = cursor.number(_U32, f"the type of tensor {name!r}")
        offset = cursor.number(_U64, f"the offset of tensor {name!r}")
        try:
            codec = codec_of_gguf_type(type_id)
            row_bytes = codec.row_bytes(sizes[0])
        except CheckpointError as error:
            raise cursor.error(f"tensor {name!r}: {error}", start) from error
        if offset % alignment:
            raise cursor.error(
                f"tensor {name!r} has offset {offset}; it must be a multiple of the file's "
                f"alignment {alignment}",
                cursor.at - 8,
            )
        n_rows = 1
        for size in sizes[1:]:
            n_rows *= size
        entries.append((offset, n_rows * row_bytes, n_rows, name, tuple(reversed(sizes)), codec))
    base = -(-cursor.at // alignment) * alignment
    _check_ranges(cursor, base, entries)
    tensors = {}
    for offset, n_bytes, n_rows, name, shape, codec in entries:
        rows = data[base + offset : base + offset + n_bytes].reshape(n_rows, -1)
        tensors[name] = Tensor(name, shape, codec, rows)
    return tensors


def _check_ranges(cursor: _Cursor, base: int, entries: list[Any]) -> None:
    """Refuse tensors that run past the end of the file or over one another."""
    before_name, before_end = "", 0
    for offset, n_bytes, _, name, _, _ in sorted(entries, key=lambda entry: (entry[0], entry[1])):
        if base + offset + n_bytes > cursor.size:
            raise CheckpointError(
                f"{cursor.path}: tensor {name!r} lies at bytes {base + offset} to "
                f"{base + offset + n_bytes} but the file has {cursor.size}: it is damaged or was "
                "cut short; fetch it again"
            )
        if offset < before_end:
            raise CheckpointError(
                f"{cursor.path}: tensor {name!r} at offset {offset} overlaps tensor "
                f"{before_name!r}, which ends at {before_end}"
            )
        before_name, before_end = name, offset + n_bytes
