"""Values of GGUF metadata in memory: their types, string arrays read on first use, and the mapping.

A vocabulary of 150 000 strings takes longer to decode than everything else in a header, and half of
the commands never look at it; so a string array is kept as offsets into the mapped file until then.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from headrace.errors import CheckpointError, shown
from headrace.weights.gguf import _strings


class ValueType(IntEnum):
    """Type ids of metadata values (the GGUF specification, gguf_metadata_value_type)."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


# Little-endian always: big-endian files are refused by the reader. BOOL is one byte, 0 or 1.
NUMBER_DTYPES: Mapping[ValueType, np.dtype[Any]] = {
    ValueType.UINT8: np.dtype("u1"),
    ValueType.INT8: np.dtype("i1"),
    ValueType.UINT16: np.dtype("<u2"),
    ValueType.INT16: np.dtype("<i2"),
    ValueType.UINT32: np.dtype("<u4"),
    ValueType.INT32: np.dtype("<i4"),
    ValueType.FLOAT32: np.dtype("<f4"),
    ValueType.BOOL: np.dtype("?"),
    ValueType.UINT64: np.dtype("<u8"),
    ValueType.INT64: np.dtype("<i8"),
    ValueType.FLOAT64: np.dtype("<f8"),
}


FILE_TYPES: Mapping[str, int] = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10,
    "Q3_K": 12, "Q4_K": 15, "Q5_K": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30, "BF16": 32,
    "MXFP4": 38, "NVFP4": 39, "IQ3_S": 26, "IQ3_XXS": 23, "IQ2_S": 28, "IQ2_XS": 20, "IQ2_XXS": 19,
    "IQ1_M": 31, "IQ1_S": 24, "TQ1_0": 36, "TQ2_0": 37, "Q1_0": 40, "Q2_0": 41,
}  # fmt: skip
"""general.file_type by the codec of most matrices (llama.cpp's llama_ftype). Where llama.cpp has
several mixtures of one codec, the number is the one it guesses itself, the medium one."""


class Typed(NamedTuple):
    """A metadata value whose stored type matters (a Python int could be any of eight)."""

    type: ValueType
    value: Any


@dataclass(frozen=True, eq=False)
class StringArray(Sequence[str]):
    """Strings that lie in a mapped file; each is decoded when asked for.

    starts: byte offset of each string's first character in `data`; ends: one past its last.
    Raises CheckpointError naming the entry when one is not UTF-8.
    """

    path: Path
    key: str
    data: memoryview
    starts: array[int]
    ends: array[int]

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return self._decode(self.starts[index], self.ends[index])
        one = slice(index, index + 1 or None)
        return self._decode(self.starts[one], self.ends[one])[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_list())

    def to_list(self) -> list[str]:
        """All strings."""
        return self._decode(self.starts, self.ends)

    def pairs(self) -> list[tuple[str, ...]]:
        """All strings, each cut at its first space; alone where it has none."""
        try:
            return _strings.pairs(self.data, self.starts, self.ends)
        except UnicodeDecodeError as error:
            raise self._damaged(error) from error

    def _decode(self, starts: array[int], ends: array[int]) -> list[str]:
        try:
            return _strings.decode(self.data, starts, ends)
        except UnicodeDecodeError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: UnicodeDecodeError) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: metadata {shown(self.key)} holds a string that is not UTF-8: {error}"
        )


class Metadata(Mapping[str, Any]):
    """Metadata of one file by key, in file order. String arrays become lists when first read.

    Scalars are int, float, bool or str; arrays of numbers are read-only NumPy arrays over the
    mapped file (perhaps unaligned); arrays of arrays are lists.
    """

    def __init__(self, path: Path, values: dict[str, Any], types: Mapping[str, ValueType]) -> None:
        self.path = path
        self._values = values
        self._types = types
        self._decoded: dict[str, list[str]] = {}

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if not isinstance(value, StringArray):
            return value
        if key not in self._decoded:
            self._decoded[key] = value.to_list()
        return self._decoded[key]

    def pairs(self, key: str) -> list[tuple[str, ...]]:
        """The strings under `key`, each cut at its first space; alone where it has none."""
        value = self._values[key]
        if isinstance(value, StringArray):
            return value.pairs()
        return [tuple(str(entry).split(" ", 1)) for entry in value]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def scalar(self, key: str, default: int | float | str | None = None) -> Any:
        """The int, float, bool or str under `key`, or `default`; CheckpointError for an array."""
        if key not in self._values:
            return default
        if self._types[key] is ValueType.ARRAY:
            raise CheckpointError(
                f"{self.path}: metadata {shown(key)} is an array; a single value is required"
            )
        return self._values[key]

    def is_strings(self, key: str) -> bool:
        """Whether `key` is an array of strings."""
        value = self._values.get(key)
        if isinstance(value, StringArray):
            return True
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)

    def length(self, key: str) -> int | None:
        """Entries of the array `key`, without decoding it; None when absent or no array."""
        value = self._values.get(key)
        return len(value) if isinstance(value, (StringArray, np.ndarray, list)) else None

    def typed(self, key: str) -> Typed:
        """The value with the type it is stored as; string arrays stay undecoded."""
        return Typed(self._types[key], self._values[key])

    def without(self, prefix: str) -> Metadata:
        """The entries whose key does not start with `prefix`."""
        kept = [key for key in self._values if not key.startswith(prefix)]
        return Metadata(
            self.path,
            {key: self._values[key] for key in kept},
            {key: self._types[key] for key in kept},
        )

    def strip_prefix(self, prefix: str) -> Metadata:
        """The entries whose key starts with `prefix`, without it."""
        kept = {k.removeprefix(prefix): k for k in self._values if k.startswith(prefix)}
        return Metadata(
            self.path,
            {short: self._values[key] for short, key in kept.items()},
            {short: self._types[key] for short, key in kept.items()},
        )
