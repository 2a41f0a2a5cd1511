"""What headers said, remembered: `headrace/models.json` under $XDG_CACHE_HOME (~/.cache).

Reading the header of a GGUF file takes as long as its vocabulary is large, up to a tenth of a
second; hundreds of models are listed at once from here. An entry counts as long as the file has
the size and time it had. The file may be deleted, damaged or unwritable: headers are read then.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from headrace import __version__
from headrace.atomic_file import atomic_file
from headrace.weights.files.user_path import user_path
from headrace.weights.store.entry import StoredModel, read_facts

logger = logging.getLogger(__name__)


class _Facts(msgspec.Struct, frozen=True):
    size_bytes: int
    modified_s: float
    format: Literal["gguf", "safetensors"]
    codec: str | None
    family: str | None
    parameters: int


class _Content(msgspec.Struct, frozen=True):
    """The contents of the file."""

    version: str
    """Of headrace, whose next one may see more in the same header."""
    facts: dict[str, _Facts]


class FactsFile:
    """Facts by the path of what is opened; those asked for are kept, the others forgotten."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        root = environ.get("XDG_CACHE_HOME") or "~/.cache"
        self.path = user_path(root) / "headrace" / "models.json"
        self._before = _read(self.path)
        self._facts: dict[str, _Facts] = {}

    def fill(self, entry: StoredModel) -> StoredModel:
        """`entry` with its facts, remembered or read. One that is broken is read every time."""
        if entry.broken is not None:
            return entry
        key = os.path.realpath(entry.path)  # other than resolve(), bears links that go in circles
        known = self._before.get(key)
        if known is None or (known.size_bytes, known.modified_s) != _state(entry):
            entry = read_facts(entry)
            if entry.broken is None and entry.format and entry.parameters is not None:
                self._facts[key] = _Facts(
                    *_state(entry), entry.format, entry.codec, entry.family, entry.parameters
                )
            return entry
        self._facts[key] = known
        return replace(
            entry,
            format=known.format,
            codec=known.codec,
            family=known.family,
            parameters=known.parameters,
        )

    def save(self) -> None:
        """Write what was asked for, where that differs from what was there."""
        if self._facts == self._before:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(self.path) as file:
                file.write(msgspec.json.encode(_Content(__version__, self._facts)))
        except OSError as error:
            logger.debug("%s: cannot be written: %s", self.path, error)


def _state(entry: StoredModel) -> tuple[int, float]:
    return entry.size_bytes, entry.modified_s


def _read(path: Path) -> dict[str, _Facts]:
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_Content)
    except (OSError, msgspec.DecodeError) as error:
        logger.debug("%s: not used: %s", path, error)
        return {}
    return content.facts if content.version == __version__ else {}
