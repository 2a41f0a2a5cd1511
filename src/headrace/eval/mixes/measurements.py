"""A file of measured divergences, so that a second run, or another target, begins with them.

It belongs to one model, importance and text: what it was measured on is written in it, and a file
of anything else is refused instead of being written over.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from headrace.atomic_file import atomic_file
from headrace.errors import ConfigError
from headrace.eval.mixes.variants import Floats
from headrace.weights.codecs import Codec

_FORMAT = "headrace-divergences-1"


class Mean(msgspec.Struct, frozen=True):
    """The mean of a divergence over scored positions, in nats."""

    mean: float
    error: float
    """Its standard error."""
    p999: float
    """The 99.9th percentile over the same positions."""


def mean_of(divergences: Floats) -> Mean:
    """Of float64[positions]."""
    count = len(divergences)
    error = float(divergences.std()) / math.sqrt(max(1, count - 1))
    return Mean(float(divergences.mean()), error, float(np.quantile(divergences, 0.999)))


class _Contents(msgspec.Struct, kw_only=True):
    format: str
    subject: str
    """A digest of the model, the importance and the text."""
    matrices: dict[str, dict[str, Mean]]
    """By matrix, then by kind: the divergence where it alone is of that kind."""
    mixes: dict[str, Mean]
    """By the digest of a mix."""


class Measurements:
    """The contents of such a file, written again after every addition."""

    def __init__(self, path: Path, subject: str) -> None:
        """Raises ConfigError where the file at `path` is of another subject or is no such file."""
        self._path = path
        self._contents = _Contents(format=_FORMAT, subject=subject, matrices={}, mixes={})
        if not path.exists():
            return
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_Contents)
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{path}: is not a file of measurements: {error}") from error
        if found.format != _FORMAT or found.subject != subject:
            raise ConfigError(
                f"{path}: was measured on another model, importance or text, or with other "
                "windows; name another file with --measurements, or remove it"
            )
        self._contents = found

    def of_matrix(self, name: str, codec: Codec) -> Mean | None:
        """The divergence where this matrix alone is of that kind, if it was measured."""
        return self._contents.matrices.get(name, {}).get(codec.name)

    def add_matrix(self, name: str, codec: Codec, mean: Mean) -> None:
        """Keep a measurement."""
        self._contents.matrices.setdefault(name, {})[codec.name] = mean
        self._write()

    def of_mix(self, kinds: Mapping[str, Codec]) -> Mean | None:
        """The divergence of a whole mix, if it was measured."""
        return self._contents.mixes.get(_digest_of_mix(kinds))

    def add_mix(self, kinds: Mapping[str, Codec], mean: Mean) -> None:
        """Keep a measurement."""
        self._contents.mixes[_digest_of_mix(kinds)] = mean
        self._write()

    def _write(self) -> None:
        with atomic_file(self._path) as file:
            file.write(msgspec.json.encode(self._contents))


def subject_of(source: Path, importance: Path | None, windows: Sequence[Sequence[int]]) -> str:
    """A digest of what is measured: the files by size and time, the text by its tokens."""
    tokens = np.array(windows, np.int64)
    digest = hashlib.sha256(f"{tokens.shape}\n".encode() + tokens.tobytes())
    files = [source] if source.is_file() else sorted(filter(Path.is_file, source.rglob("*")))
    for path in [*files, *([] if importance is None else [importance])]:
        facts = path.stat()
        digest.update(f"{path.name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _digest_of_mix(kinds: Mapping[str, Codec]) -> str:
    text = "\n".join(f"{name} {kinds[name].name}" for name in sorted(kinds))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
