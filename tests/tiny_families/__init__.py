"""One module per `model_type`, named as it, for `tests.tiny` and the parity tests. Each has

    config(**overrides) -> dict    config.json of a tiny model; overrides are keys of it
    shapes(config) -> dict         name and shape of every tensor
    CASES: dict[str, dict]         overrides by name of case, each with something of its own
    NOT_IN_GGUF: tuple[str, ...]   (if any) cases that a GGUF file has no word for
    BROKEN_RULES                   (if any) a case, and keys of its config with other values
    BROKEN_TENSORS                 (if any) a case, and the end of the names of tensors set to zero
    SAME_AS: str                   (if any) model_type of the same arithmetic in transformers, where
                                   that has no class of its own
    SPREAD: dict[str, float]       (if any) factors of weights, by the end of their names
    OUTER: dict                    (if any) what a whole model's config.json has around
                                   `text_config`, where transformers has no class for the text
    ORACLE: str                    (if not transformers) what the goldens were computed by

With one of those changes a model must be far from its golden, or no case shows that the rule is
kept; a family has at least one.

Goldens of a family lie in tests/models/goldens/<model_type>.npz.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, Protocol

SHARED = ("base",)
"""Modules here that are no family."""

_WITH_DASHES = {"nemotron_nas": "nemotron-nas"}
"""Families whose `model_type` is not a name for a module."""


class TinyFamily(Protocol):
    """What such a module offers."""

    CASES: Mapping[str, dict[str, Any]]

    def config(self, **overrides: Any) -> dict[str, Any]: ...

    def shapes(self, config: dict[str, Any]) -> dict[str, tuple[int, ...]]: ...


def tiny_family(model_type: str) -> TinyFamily:
    """The module of one family."""
    name = model_type.replace("-", "_")
    module: Any = importlib.import_module(f"tests.tiny_families.{name}")
    family: TinyFamily = module
    return family


def tiny_family_names() -> list[str]:
    """Every `model_type`; there is a module for each."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return [_WITH_DASHES.get(name, name) for name in names if name not in SHARED]
