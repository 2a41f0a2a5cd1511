"""Writing GGUF version 3: metadata of every value type, then tensors, streamed.

The file appears under its name only when it is complete. Integers, floats and strings of Python get
the type readers expect (uint32, float32, string); `Typed` says otherwise where it matters.

Source: the GGUF specification (ggml repository, docs/gguf.md).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.atomic_file import atomic_file
from headrace.errors import CheckpointError
from headrace.weights.gguf.file import (
    DEFAULT_ALIGNMENT,
    MAGIC,
    MAX_ARRAY_DEPTH,
    MAX_DIMENSIONS,
    MAX_KEY_BYTES,
)
from headrace.weights.gguf.values import NUMBER_DTYPES, StringArray, Typed, ValueType
from headrace.weights.tensors.source import TensorSource

_VERSION = 3
# The specification says 64, but ggml keeps the terminating zero within it and refuses 64.
_MAX_TENSOR_NAME_BYTES = 63
_TYPE_OF_DTYPE = {(dtype.kind, dtype.itemsize): kind for kind, dtype in NUMBER_DTYPES.items()}
_INTEGER_RANGES = (
    (ValueType.UINT32, 0, 1 << 32),
    (ValueType.INT32, -(1 << 31), 1 << 31),
    (ValueType.UINT64, 0, 1 << 64),
    (ValueType.INT64, -(1 << 63), 1 << 63),
)


def write_gguf_file(
    path: Path | str,
    metadata: Mapping[str, Any],
    tensors: Sequence[TensorSource],
    alignment: int = DEFAULT_ALIGNMENT,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write `path` and return its size in bytes.

    metadata: Python scalars, strings, lists of them (nested too), NumPy arrays of one dimension
    (numbers or strings), or `Typed`. tensors: written in this order; shapes as in Hugging Face,
    (out, in). progress: called after every tensor with bytes done and in all.
    Raises CheckpointError naming the key or tensor that GGUF cannot hold; nothing is left behind.
    """
    path = Path(path)
    header = gguf_header(path, metadata, tensors, alignment)
    total = sum(padded(tensor.nbytes, alignment) for tensor in tensors)
    with atomic_file(path) as file:
        file.write(header)
        for tensor in tensors:
            tensor.write_to(file)
            file.write(bytes(padded(tensor.nbytes, alignment) - tensor.nbytes))
            progress(file.tell() - len(header), total)
        return file.tell()


def gguf_header(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Sequence[TensorSource],
    alignment: int = DEFAULT_ALIGNMENT,
) -> bytes:
    """All that lies before the first tensor, padded; tensors follow in order, each padded.

    path: for messages. Raises CheckpointError as `write_gguf_file` does.
    """
    if alignment < 8 or alignment & (alignment - 1):
        raise CheckpointError(f"alignment is {alignment}; a power of two of 8 or more is required")
    entries = dict(metadata)
    if alignment != DEFAULT_ALIGNMENT:
        entries["general.alignment"] = alignment
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise CheckpointError(f"{path}: two tensors have the same name")
    header = bytearray(MAGIC)
    header += struct.pack("<IQQ", _VERSION, len(tensors), len(entries))
    for key, value in entries.items():
        header += _text(key, f"metadata key {key!r}", MAX_KEY_BYTES - 1)
        kind, payload = _encode_value(key, value)
        header += struct.pack("<I", kind) + payload
    offset = 0
    for tensor in tensors:
        header += _tensor_info(tensor, offset)
        offset += padded(tensor.nbytes, alignment)
    return bytes(header) + bytes(padded(len(header), alignment) - len(header))


def padded(n_bytes: int, alignment: int = DEFAULT_ALIGNMENT) -> int:
    """Bytes that `n_bytes` take up with what follows them up to the next multiple."""
    return -(-n_bytes // alignment) * alignment


def _text(text: str, what: str, limit: int | None = None) -> bytes:
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(f"{what} holds what UTF-8 cannot: {error.reason}") from error
    if limit is not None and len(raw) > limit:
        raise CheckpointError(f"{what} is {len(raw)} bytes long; the limit is {limit}")
    return struct.pack("<Q", len(raw)) + raw


def _tensor_info(tensor: TensorSource, offset: int) -> bytes:
    if not 1 <= len(tensor.shape) <= MAX_DIMENSIONS or min(tensor.shape) < 1:
        raise CheckpointError(
            f"tensor {tensor.name!r} has shape {tensor.shape}; 1 to {MAX_DIMENSIONS} dimensions "
            "of at least 1 are required"
        )
    name = _text(tensor.name, f"tensor name {tensor.name!r}", _MAX_TENSOR_NAME_BYTES)
    sizes = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
    return name + sizes + struct.pack("<IQ", tensor.codec.gguf_type, offset)


def _encode_value(key: str, value: Any) -> tuple[ValueType, bytes]:
    kind, plain = _typed(key, value)
    what = f"metadata {key!r}"
    if kind is ValueType.ARRAY:
        return kind, _encode_array(key, plain, 1)
    if kind is ValueType.STRING:
        return kind, _text(plain, what)
    dtype = NUMBER_DTYPES[kind]
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= plain <= np.iinfo(dtype).max:
        raise CheckpointError(f"{what} is {plain}; it does not fit {kind.name}")
    return kind, np.array(plain, dtype).tobytes()


def _typed(key: str, value: Any) -> Typed:
    """The type a value is stored as, unless it says so itself."""
    if isinstance(value, Typed):
        return value
    if isinstance(value, str):
        return Typed(ValueType.STRING, value)
    if isinstance(value, (list, tuple, StringArray, np.ndarray)):
        return Typed(ValueType.ARRAY, value)
    if isinstance(value, bool):
        return Typed(ValueType.BOOL, value)
    if isinstance(value, np.generic):
        kind = _TYPE_OF_DTYPE.get((value.dtype.kind, value.dtype.itemsize))
        if kind is not None:
            return Typed(kind, value)
    elif isinstance(value, float):
        return Typed(ValueType.FLOAT32, value)
    elif isinstance(value, int):
        for kind, least, limit in _INTEGER_RANGES:
            if least <= value < limit:
                return Typed(kind, value)
        raise CheckpointError(f"metadata {key!r} is {value}; GGUF's integers have 64 bits")
    raise CheckpointError(f"metadata {key!r} is {type(value).__name__}, which GGUF cannot hold")


def _encode_array(key: str, values: Any, depth: int) -> bytes:
    what = f"metadata {key!r}"
    if depth > MAX_ARRAY_DEPTH:
        raise CheckpointError(f"{what} nests arrays deeper than {MAX_ARRAY_DEPTH}")
    if isinstance(values, np.ndarray) and values.dtype.kind != "U":
        kind = _TYPE_OF_DTYPE.get((values.dtype.kind, values.dtype.itemsize))
        if kind is None or values.ndim != 1:
            raise CheckpointError(
                f"{what} is {values.dtype}[{values.ndim}-d]; one dimension of numbers is required"
            )
        raw = values.astype(NUMBER_DTYPES[kind], copy=False).tobytes()
        return struct.pack("<IQ", kind, len(values)) + raw
    strings = isinstance(values, (StringArray, np.ndarray))
    entries = list(values)
    if not entries and not strings:
        raise CheckpointError(
            f"{what} is an empty list without a type; give a NumPy array (np.str_ for strings)"
        )
    if strings or isinstance(entries[0], str):
        _same_type(what, entries, str)
        body = b"".join(_text(entry, what) for entry in entries)
        return struct.pack("<IQ", ValueType.STRING, len(entries)) + body
    if isinstance(entries[0], (list, tuple, np.ndarray)):
        body = b"".join(_encode_array(key, entry, depth + 1) for entry in entries)
        return struct.pack("<IQ", ValueType.ARRAY, len(entries)) + body
    return _encode_array(key, _number_array(what, entries), depth)


def _same_type(what: str, entries: Sequence[object], kind: type) -> None:
    for entry in entries:
        if not isinstance(entry, kind):
            raise CheckpointError(
                f"{what} mixes {kind.__name__} and {type(entry).__name__} in one array"
            )


def _number_array(what: str, entries: Sequence[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    if all(isinstance(entry, bool) for entry in entries):
        return np.array(entries, np.bool_)
    if any(isinstance(entry, (bool, str)) for entry in entries):
        raise CheckpointError(f"{what} mixes types in one array")
    if all(isinstance(entry, int) for entry in entries):
        # Arrays of integers are int32 by custom (token types), larger ones as they need.
        for kind in (ValueType.INT32, ValueType.UINT32, ValueType.INT64, ValueType.UINT64):
            dtype = NUMBER_DTYPES[kind]
            if np.iinfo(dtype).min <= min(entries) and max(entries) <= np.iinfo(dtype).max:
                return np.array(entries, dtype)
    elif all(isinstance(entry, (int, float)) for entry in entries):
        return np.array(entries, np.float32)
    raise CheckpointError(f"{what} holds values that no array type of GGUF can hold")
