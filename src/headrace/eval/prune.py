"""Which experts and layers go by what a text used of them, and the checkpoint without them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import ConfigError, UnsupportedModelError
from headrace.eval.usage import Measure, Usage
from headrace.models.config import DecoderConfig
from headrace.models.registry import read_config
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.gguf.values import Typed
from headrace.weights.prune.entries import expert_entries, layer_entries
from headrace.weights.prune.experts import expert_layers, with_experts
from headrace.weights.prune.layers import with_layers

KEY = "headrace.prune"
"""Where a pruned file's metadata holds what was measured and what went, as JSON."""


@dataclass(frozen=True)
class PruneOptions:
    """Numbers of experts and layers that are to stay, and what they are chosen by."""

    experts: int | None = None
    """In each layer that has any; None leaves all."""
    layers: int | None = None
    """None leaves all."""
    measure: Measure = "count"
    """Sums that the least used experts are found by."""


@dataclass(frozen=True)
class PruneResult:
    """A checkpoint without what was used least."""

    checkpoint: Checkpoint
    entries: Mapping[str, Typed]
    """Metadata of a GGUF file that differs from the source's; empty where that is a folder."""
    layers: tuple[int, ...]
    """Those that stay, by their old numbers."""
    experts: Mapping[int, tuple[int, ...]]
    """Those that stay in each layer, by old numbers of both; empty where all do."""
    kept_share: Mapping[int, float]
    """Of what the measure adds up to in each layer, the part of the experts that stay."""


def check_options(checkpoint: Checkpoint, options: PruneOptions) -> DecoderConfig:
    """The config, where `options` can be met by it; reads no tensor.

    Raises ConfigError naming what is out of range, UnsupportedModelError for a model that cannot be
    pruned so.
    """
    config = read_config(checkpoint)
    if options.experts is None and options.layers is None:
        raise ConfigError("nothing says what is to stay: give --experts, --layers or both")
    if options.layers is not None and not 1 <= options.layers <= config.num_layers:
        raise ConfigError(
            f"--layers {options.layers}: the model has {config.num_layers}; choose 1 to "
            f"{config.num_layers - 1} of them to stay"
        )
    if options.experts is None:
        return config
    if config.experts is None:
        raise ConfigError(f"--experts {options.experts}: the model has no experts; omit it")
    routing = config.experts.routing
    groups = routing.num_groups
    # Of the groups that are chosen there have to be experts enough for a token.
    least = -(-routing.experts_per_token // routing.chosen_groups) * groups
    if not least <= options.experts <= routing.num_experts or options.experts % groups:
        multiple = f", a multiple of its {groups} groups" if groups > 1 else ""
        raise ConfigError(
            f"--experts {options.experts}: a layer of the model has {routing.num_experts} and uses "
            f"{routing.experts_per_token} for a token; choose {least} to {routing.num_experts}"
            f"{multiple}"
        )
    behind = [layer for layer in expert_layers(checkpoint) if layer >= config.num_layers]
    if behind:
        raise UnsupportedModelError(
            f"{checkpoint.path}: layer {min(behind)} predicts further tokens and has experts too, "
            "which are not measured; such models cannot lose experts"
        )
    return config


def pruned(checkpoint: Checkpoint, usage: Usage, options: PruneOptions) -> PruneResult:
    """`checkpoint` as `options` say, by `usage`; errors of `check_options`.

    Raises UnsupportedModelError as well where a layer in its new place would be another: where the
    config gives windows, ropes or experts by a rule over places.
    """
    config = check_options(checkpoint, options)
    layers = tuple(range(config.num_layers))
    entries: dict[str, Typed] = {}
    experts: dict[int, tuple[int, ...]] = {}
    shares: dict[int, float] = {}
    result = checkpoint
    if options.experts is not None and config.experts is not None:
        routing = config.experts.routing
        for layer, used in usage.experts.items():
            sums = used.by(options.measure)
            experts[layer] = most_used(sums, options.experts, routing.num_groups)
            total = float(sums.sum())
            shares[layer] = float(sums[list(experts[layer])].sum()) / total if total else 1.0
        result = with_experts(result, experts, routing.num_experts)
        entries |= expert_entries(checkpoint, options.experts)
    if options.layers is not None:
        layers = most_used(np.array(usage.change), options.layers, 1)
        result = with_layers(result, layers)
        entries |= layer_entries(checkpoint, layers)
    kept = {layer: numbers for layer, numbers in experts.items() if layer in layers}
    return PruneResult(result, entries, layers, kept, shares)


def most_used(sums: Any, count: int, groups: int) -> tuple[int, ...]:
    """Numbers of the `count` largest of float64[n], in ascending order, as many of each group of
    neighbours. Of equals the first stay.
    """
    by_group = np.asarray(sums).reshape(groups, -1)
    order = np.argsort(-by_group, axis=1, kind="stable")[:, : count // groups]
    offsets = np.arange(groups)[:, None] * by_group.shape[1]
    return tuple(sorted(int(number) for number in (order + offsets).reshape(-1)))


def check_alike(before: Checkpoint, after: Checkpoint, layers: Sequence[int]) -> None:
    """Check that the layers that stayed are what they were, by what both configs mean.

    after: the model as it was written. Raises UnsupportedModelError naming what would differ.
    """
    was, now = read_config(before), read_config(after)
    for place, layer in enumerate(layers):
        old, new = _of_layer(was, layer), _of_layer(now, place)
        unlike = [name for name, value in old.items() if new[name] != value]
        if unlike:
            raise UnsupportedModelError(
                f"{before.path}: layer {layer} would be another in place {place}, by its "
                f"{' and '.join(unlike)}, since they follow from places; let other layers stay"
            )


def _of_layer(config: DecoderConfig, layer: int) -> dict[str, Any]:
    """What may differ from layer to layer. Scales are left out: containers round them."""
    shape = config.attention_of(layer)
    source = config.kv_source_of(layer)
    rotates = config.rope is not None and (not config.rotates or config.rotates[layer])
    return {
        "window": (shape.window, shape.chunk),
        "heads": (shape.num_heads, shape.num_kv_heads, shape.head_dim),
        "attention": not config.attends or config.attends[layer],
        "rotation": rotates and (bool(shape.window), config.local_rope is not None),
        "experts": config.experts is not None and config.experts.layers[layer],
        "width": config.mlp_widths[layer] if config.mlp_widths else config.intermediate_size,
        "cache": source - layer,
    }


def statement(
    usage: Usage, made: PruneResult, options: PruneOptions, text: str, windows: int, context: int
) -> str:
    """What was measured and what stays, as the JSON that the result keeps under `KEY`."""
    experts = [
        {
            "layer": layer,
            "kept": list(made.experts.get(layer, ())),
            "count": [int(value) for value in used.count],
            "weight": [float(f"{value:.6g}") for value in used.weight],
            "output": [float(f"{value:.6g}") for value in used.output],
        }
        for layer, used in usage.experts.items()
    ]
    return json.dumps(
        {
            "text": text, "windows": windows, "context": context, "tokens": usage.tokens,
            "by": options.measure if made.experts else "change",
            "layers": list(made.layers),
            "change": [float(f"{value:.6g}") for value in usage.change],
            "experts": experts,
        }
    )  # fmt: skip
