"""Problems of a model's traffic settings, and expansion of their short forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from headrace.errors import shown
from headrace.gateway.settings.model import ModelSettings
from headrace.gateway.settings.target import TargetSettings

# Who serves a model; exactly one of them is there.
_SERVED_BY = ("targets", "variants", "choose", "cascade", "pipeline")
# On which the ledger has what copies for a shadow cost.
SHADOW_KEY = "shadow"
# It is told in a header.
_VARIANT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def written_targets(value: Any) -> Any:
    """Targets with the short form, the model alone, expanded."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list):
        return [{"model": one} if isinstance(one, str) else one for one in value]
    return value


def written_traffic(model: dict[str, Any]) -> dict[str, Any]:
    """The model with the targets of its variants and its shadow expanded."""
    found = dict(model)
    variants = model.get("variants")
    if isinstance(variants, dict):
        found["variants"] = {
            name: {**one, "targets": written_targets(one["targets"])}
            if isinstance(one, dict) and "targets" in one
            else one
            for name, one in variants.items()
        }
    shadow = model.get("shadow")
    if isinstance(shadow, dict) and isinstance(shadow.get("target"), str):
        found["shadow"] = {**shadow, "target": {"model": shadow["target"]}}
    return found


def target_lists(name: str, model: ModelSettings) -> list[dict[str, TargetSettings]]:
    """Every list of targets that a model has, by its place in the file."""
    lists = [(f"models.{name}.targets", model.targets)]
    lists += [
        (f"models.{name}.variants.{side}.targets", one.targets)
        for side, one in model.variants.items()
    ]
    found = [{f"{at}.{number}": one for number, one in enumerate(each)} for at, each in lists]
    if model.shadow is not None:
        found.append({f"models.{name}.shadow.target": model.shadow.target})
    return found


def traffic_problems(name: str, model: ModelSettings) -> Iterator[tuple[str, str]]:
    """Problems of a model's traffic, each with its place in the file."""
    where = f"models.{name}"
    given = [one for one in _SERVED_BY if getattr(model, one)]
    if len(given) > 1:
        yield where, f"has {' and '.join(given)}; keep one of them"
    if not given:
        yield where, "has no targets; write `targets: [provider/model]`, or `variants`"
    if model.variants and not any(variant.weight for variant in model.variants.values()):
        yield f"{where}.variants", "all weights are 0, so no request would be assigned; raise one"
    for side in model.variants:
        if not _VARIANT_NAME.fullmatch(side):
            yield (
                f"{where}.variants.{side}",
                f"{shown(side)} cannot be sent in a header; use at most 64 letters, digits, "
                "dots, dashes and underscores",
            )
    if model.rollback is not None and len(model.variants) < 2:
        yield f"{where}.rollback", "a rollback takes a variant out; write at least two `variants`"
    hedge = model.hedge
    if hedge is not None and (hedge.after_ms is None) == (hedge.after_percentile is None):
        yield f"{where}.hedge", "give exactly one of after_ms and after_percentile"
    if model.engines.stale_s < model.engines.interval_s:
        yield (
            f"{where}.engines.stale_s",
            f"{model.engines.stale_s:g} s is less than interval_s, "
            f"{model.engines.interval_s:g}; readings would be stale before the next one",
        )
