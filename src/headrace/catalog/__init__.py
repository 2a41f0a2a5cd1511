"""Dated facts with their sources: models, hardware, quantization, runtimes, providers, prices, …

`Catalog.load()` gives typed rows; every field of a row has a `Fact` behind it (value, unit, source,
date, confidence, disputes). The facts are TOML files in `data/`, read when a kind of row is first
asked for. This room knows what is said and by whom; what follows from it is computed elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.catalog.catalog import Catalog
    from headrace.catalog.contradiction import Contradiction
    from headrace.catalog.fact import Confidence, Fact, Source
    from headrace.catalog.span import Span

__all__ = ["Catalog", "Confidence", "Contradiction", "Fact", "Source", "Span"]

_HOMES = {
    "Catalog": "catalog",
    "Confidence": "fact",
    "Contradiction": "contradiction",
    "Fact": "fact",
    "Source": "fact",
    "Span": "span",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headrace.catalog' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"headrace.catalog.{home}"), name)
