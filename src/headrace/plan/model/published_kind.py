"""The storage kind that a checkpoint is published in, by its config.json or its row of the catalog.

A config.json states it in `quantization_config`, which `headrace.weights.storage` reads for the
engine too; the catalog has a repository for each kind (`checkpoints`). Both become the id of a
storage kind of the catalog, and the parts that stay at 16 bits. A checkpoint that states nothing
has 16 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headrace.errors import ConfigError, UnsupportedModelError, shown
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.storage.quantisation import KEY
from headrace.weights.storage.statement import read_storage
from headrace.weights.storage.storage import WeightFormat

Part = Literal["attention", "ffn"]

FLOATS = ("bf16", "f16", "f32")
"""Kinds of 16 bits and more, as the catalog names them."""

# Kinds of 4 bits that makers release: those of routed experts, beside 16 bits for all else.
_OF_EXPERTS = ("mxfp4", "int4")
_PROJECTION = r"\.\(?(\w*_proj|[\w|]+\)_proj|in_proj_\w+)"
# A name that ends in the module, or in one of its projections; norms and gates say nothing of it.
_PARTS: Mapping[Part, re.Pattern[str]] = {
    "attention": re.compile(rf"(attn|attention)({_PROJECTION})?[.*$]*$"),
    "ffn": re.compile(rf"(mlp|shared_experts?|feed_forward|ffn)({_PROJECTION})?[.*$]*$"),
}
_SMALL = re.compile(r"norm|indexer|vision|visual|audio|mtp|router|gate[.*$]*$")
_LAYER = re.compile(r"layers\.(\d+)")


@dataclass(frozen=True)
class PublishedKind:
    """The storage kind that the weights of a checkpoint are published in."""

    id: str
    """Row of the catalog ("fp8"); "" for a kind that the catalog does not have."""
    stated: str
    """What states it, for people: "quantization_config: fp8"."""
    wide: frozenset[Part] = frozenset()
    """Parts that stay at 16 bits, beside embedding and head."""

    @property
    def note(self) -> str:
        """For people who did not choose the kind."""
        parts = {"attention": "attention", "ffn": "what is not routed experts"}
        wide = " and ".join(parts[part] for part in sorted(self.wide))
        kept = f", with {wide} at 16 bits" if wide else ""
        return f"published in {self.id or 'another kind'} ({self.stated}){kept}"


def kind_of_config(config: Mapping[str, Any], text: Mapping[str, Any]) -> PublishedKind | None:
    """The kind that a config.json states; None for 16 bits.

    text: the language model's part of the config. Raises ConfigError for a quantization_config
    that is not an object.
    """
    stated = config.get(KEY) or text.get(KEY)
    if stated is None or stated == {}:
        return None
    if not isinstance(stated, Mapping):
        raise ConfigError(
            f"config key {KEY!r} is {shown(stated)}; it must be an object with 'quant_method'"
        )
    method = stated.get("quant_method") or stated.get("quant_algo") or "no quant_method"
    words = f"{KEY}: {str(method)[:40]}"
    try:
        storage = read_storage(ConfigReader({KEY: stated}))
    except UnsupportedModelError:
        storage = None
    if storage is None or not storage.formats:
        return PublishedKind("", words)
    # The upper bound: what has more bits than the kind of fewest is counted at 16.
    fewest = min(storage.formats, key=lambda stored: stored.bits)
    wider = [
        name
        for modules, stored in storage.groups
        if stored is None or stored.bits > fewest.bits
        for name in modules.names
    ]
    layers = text.get("num_hidden_layers")
    wide = _wide_parts(
        [*storage.unquantised.names, *wider], layers if isinstance(layers, int) else 0
    )
    return PublishedKind(_id(fewest, storage.method), words, wide)


def kind_of_checkpoints(checkpoints: Mapping[str, str], has_experts: bool) -> PublishedKind | None:
    """The first kind of a catalog row's `checkpoints`; None where one of them has 16 bits."""
    if not checkpoints or any(kind in checkpoints for kind in FLOATS):
        return None
    id, repository = next(iter(checkpoints.items()))
    wide: frozenset[Part] = frozenset()
    if has_experts and id in _OF_EXPERTS:
        wide = frozenset(_PARTS)
    return PublishedKind(id, repository, wide)


def _id(stored: WeightFormat, method: str) -> str:
    """The catalog's row of a format; "" where it has none."""
    if stored.number == "int" and stored.bits == 4:
        return {"awq": "awq", "modelopt": "awq", "gptq": "gptq"}.get(method, "int4")
    if stored.number == "e2m1":
        return "mxfp4" if stored.scale == "e8m0" else "nvfp4"
    return {("e4m3", 8): "fp8", ("int", 8): "int8", ("nf4", 4): "nf4"}.get(
        (stored.number, stored.bits), ""
    )


def _wide_parts(names: Iterable[str], num_layers: int) -> frozenset[Part]:
    """Parts that `names` have in at least half of the layers; a name without a number is of all."""
    layers: dict[Part, set[str]] = {part: set() for part in _PARTS}
    wide: set[Part] = set()
    for name in names:
        plain = name.removeprefix("re:").replace("\\", "")
        if _SMALL.search(plain):
            continue
        for part, pattern in _PARTS.items():
            if pattern.search(plain):
                layer = _LAYER.search(plain)
                if layer is None:
                    wide.add(part)
                else:
                    layers[part].add(layer[1])
    return frozenset(
        wide | {part for part, seen in layers.items() if 2 * len(seen) >= num_layers > 0}
    )
