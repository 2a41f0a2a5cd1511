"""A file of measured divergences, so that a second run, or another target, begins with them.

It belongs to one model, importance and text, and to one version of the encoders: what it was
measured on is written in it, and a file of anything else is refused instead of being written over.
Kinds that may be chosen are no part of that: what a mix diverges by is the same whatever else could
have been taken.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from headrace.atomic_file import atomic_file
from headrace.errors import ConfigError
from headrace.eval.mixes.variants import Floats
from headrace.weights.codecs import Codec
from headrace.weights.quantize.make import ENCODERS

_FORMAT = "headrace-divergences-2"


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


class Round(msgspec.Struct, frozen=True):
    """Mixes around one, all of which were measured on the windows that are chosen by."""

    nbytes: int
    """Of the file of the mix in the middle."""
    mixes: tuple[str, ...]
    """The middle first."""


class _Contents(msgspec.Struct, kw_only=True):
    format: str
    subject: str
    """`subject_of`."""
    chosen_by: dict[str, Mean]
    """By mix (`key_of`): on the windows that are chosen by."""
    judged: dict[str, Mean]
    """The same on the other windows."""
    rounds: list[Round]
    """Those that are complete."""


def key_of(kinds: Sequence[Codec]) -> str:
    """A mix in a file of measurements: the kind of each group, in the order of the groups."""
    return ",".join(kind.name for kind in kinds)


class Measurements:
    """The contents of such a file, written again after every addition."""

    def __init__(self, path: Path, subject: str) -> None:
        """Raises ConfigError where the file at `path` is of another subject or is no such file."""
        self._path = path
        self._contents = _Contents(
            format=_FORMAT, subject=subject, chosen_by={}, judged={}, rounds=[]
        )
        if not path.exists():
            return
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_Contents)
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(
                f"{path}: is not a file of measurements as this version writes them: {error}; name "
                "another file with --measurements, or remove it"
            ) from error
        if found.format != _FORMAT or found.subject != subject:
            raise ConfigError(
                f"{path}: was measured on another model, importance or text, with other windows "
                "or by other encoders; name another file with --measurements, or remove it"
            )
        self._contents = found

    @property
    def chosen_by(self) -> dict[str, Mean]:
        """By mix: divergences on the windows that are chosen by."""
        return self._contents.chosen_by

    @property
    def judged(self) -> dict[str, Mean]:
        """By mix: divergences on the other windows."""
        return self._contents.judged

    @property
    def rounds(self) -> Sequence[Round]:
        """Those that are complete, in the order in which they were."""
        return self._contents.rounds

    def add(self, found: dict[str, Mean], mix: str, mean: Mean) -> None:
        """Keep a measurement in `chosen_by` or `judged`."""
        found[mix] = mean
        self._write()

    def end_round(self, of: Round) -> None:
        """Keep that all mixes of this round are measured."""
        self._contents.rounds.append(of)
        self._write()

    def _write(self) -> None:
        with atomic_file(self._path) as file:
            file.write(msgspec.json.encode(self._contents))


def subject_of(
    source: Path,
    importance: Path | None,
    windows: Sequence[Sequence[int]],
    groups: Sequence[str] = (),
) -> str:
    """A digest of what is measured: the files by size and time, the text by its tokens, the
    names of the groups that mixes are written down by, and the version of the encoders.
    """
    tokens = np.array(windows, np.int64)
    digest = hashlib.sha256(f"{tokens.shape}\n".encode() + tokens.tobytes())
    files = [source] if source.is_file() else sorted(filter(Path.is_file, source.rglob("*")))
    for path in [*files, *([] if importance is None else [importance])]:
        facts = path.stat()
        digest.update(f"{path.name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    digest.update("\n".join(groups).encode())
    digest.update(f"\nencoders {ENCODERS}".encode())
    return digest.hexdigest()
