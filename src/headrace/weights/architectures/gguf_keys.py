"""The `<architecture>.*` entries of one GGUF file, taken one by one with their types checked.

What is left at the end is what nobody asked for. Numbers come as the shortest decimals that give
the same float32, which is what config.json would say.

Source: llama.cpp llama-model-loader.cpp (types and arrays it accepts).
"""

from __future__ import annotations

import math
import reprlib
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import CheckpointError
from headrace.weights.gguf.values import Metadata


class GGUFKeys:
    """Entries of one architecture, by the name after its prefix."""

    def __init__(self, metadata: Metadata, architecture: str) -> None:
        self.path: Path = metadata.path
        self.prefix = f"{architecture}."
        self._metadata = metadata
        self.left = {
            key.removeprefix(self.prefix) for key in metadata if key.startswith(self.prefix)
        }

    def __contains__(self, key: str) -> bool:
        return self.prefix + key in self._metadata

    def peek(self, key: str) -> Any:
        """The value as it stands, or None; it stays to be taken."""
        return self._metadata.get(self.prefix + key)

    def says(self, key: str, value: float | str | bool) -> bool:
        """Whether there is this very value, type included; it stays to be taken."""
        stated = self.peek(key)
        return type(stated) is type(value) and bool(stated == value)

    def take(self, key: str) -> Any:
        """The value as it stands, or None where there is none."""
        self.left.discard(key)
        return self.peek(key)

    def error(self, key: str, value: object, required: str) -> CheckpointError:
        """What to raise over one value."""
        return CheckpointError(
            f"{self.path}: metadata {self.prefix + key!r} is {reprlib.repr(value)}; {required}"
        )

    def size(self, key: str) -> int | None:
        """A whole number from 1 to 2**31 - 1, or None where there is none.

        An array with one value per layer stands when all are equal.
        """
        value = self.take(key)
        if value is None:
            return None
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
            if (value != value[0]).any():
                raise self.error(key, value.tolist(), "sizes that differ by layer: not supported")
            value = int(value[0])
        if not is_whole(value) or not 0 < value < 1 << 31:
            raise self.error(key, value, "a positive integer below 2**31 is required")
        return int(value)

    def largest(self, key: str) -> int | None:
        """The size, or the largest of an array of sizes; it stays to be taken."""
        value = self.peek(key)
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
            value = int(value.max())
        if value is not None and (not is_whole(value) or not 0 < value < 1 << 31):
            raise self.error(key, value, "a positive integer below 2**31 is required")
        return None if value is None else int(value)

    def counts(self, key: str, layers: int) -> list[int]:
        """Whole numbers from 0 to 2**31 - 1, one per layer; one number stands for all."""
        value = self.take(key)
        found = value.tolist() if isinstance(value, np.ndarray) else [value] * layers
        if len(found) != layers or not all(is_whole(n) and 0 <= n < 1 << 31 for n in found):
            raise self.error(key, value, f"{layers} whole numbers below 2**31 are required")
        return found

    def required_size(self, key: str) -> int:
        """A size that has to be there."""
        value = self.size(key)
        if value is None:
            raise self.error(key, None, "a positive integer below 2**31 is required")
        return value

    def positive(self, key: str) -> float | None:
        """A finite number above 0, or None."""
        value = self.take(key)
        if value is None:
            return None
        if not isinstance(value, float) or not 0 < value < math.inf:
            raise self.error(key, value, "a positive number is required")
        return float(shortest(value))

    def flags(self, key: str, count: int) -> list[bool] | None:
        """`count` booleans, one per layer, or None."""
        value = self.take(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biu":
            raise self.error(key, value, f"{count} booleans are required")
        if len(value) < count or (value > 1).any():
            raise self.error(key, value.tolist(), f"{count} booleans are required")
        return [bool(entry) for entry in value[:count]]


def is_whole(value: object) -> bool:
    """Whether a value is an integer and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def shortest(value: Any) -> Any:
    """The shortest decimal that gives the same float32: 1e-05 and not 9.999999747378752e-06.

    GGUF stores these as float32 what config.json writes in decimal; both sides then agree.
    """
    if isinstance(value, float) and np.float32(value) == value:
        return float(str(np.float32(value)))
    return value
