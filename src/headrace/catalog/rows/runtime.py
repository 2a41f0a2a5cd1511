"""Programs that run or serve models."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.catalog.rows.row import Count, Figure, Row

Category = Literal["server", "local", "library", "edge", "orchestrator", "managed"]


class Runtime(Row, frozen=True, kw_only=True):
    """A program that runs or serves models."""

    developer: str | None = None
    category: Category | None = None
    licence: str | None = None
    languages: tuple[str, ...] = ()
    built_on: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    parallelism: tuple[str, ...] = ()
    """How it spreads a model over devices: of "tensor", "pipeline", "expert", "data", "sequence",
    "layer-split", "rpc".
    """
    features: tuple[str, ...] = ()
    multi_gpu: str | None = None
    concurrency: str | None = None
    most_sequences: Count | None = None
    """The most that a server decodes together, whatever its settings."""
    setup: str | None = None
    serve_command: str | None = None
    """How a server is started today, with {model} for the model."""
    best_for: str | None = None
    not_for: str | None = None
    figures: dict[str, Figure] = msgspec.field(default_factory=dict)
