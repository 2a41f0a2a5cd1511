"""The storage kind that a checkpoint is published in, by its config.json or its row of the catalog.

A config.json states it in `quantization_config`, in the words of the program that made the file;
the catalog has a repository for each kind (`checkpoints`). Both become the id of a storage kind of
the catalog, and the parts that stay at 16 bits. A checkpoint that states nothing has 16 bits.

Sources: transformers utils/quantization_config.py, compressed-tensors quant_scheme.py, modelopt's
hf_quant_config.json, published configs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headrace.errors import ConfigError, shown

Part = Literal["attention", "ffn"]

FLOATS = ("bf16", "f16", "f32")
"""Kinds of 16 bits and more, as the catalog names them."""

_KEY = "quantization_config"
_METHODS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}
# Methods whose kind depends on the bits that are stated beside them.
_OF_BITS: Mapping[str, Mapping[Any, str]] = {
    "awq": {4: "awq"},
    "gptq": {4: "gptq", 8: "int8"},
    "auto_round": {4: "int4", 8: "int8"},
}
# Of `quant_algo`, modelopt's word for all layers or for those of one group.
_ALGORITHMS = {
    "FP8": "fp8",
    "FP8_PB_WO": "fp8",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "W4A16_AWQ": "awq",
    "INT4_AWQ": "awq",
}
# Keys that list what is left as it was, by program.
_UNCONVERTED = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules")
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
    stated = config.get(_KEY) or text.get(_KEY)
    if stated is None or stated == {}:
        return None
    if not isinstance(stated, Mapping):
        raise ConfigError(
            f"config key {_KEY!r} is {shown(stated)}; it must be an object with 'quant_method'"
        )
    id, wider = _kind(stated)
    method = stated.get("quant_method") or stated.get("quant_algo") or "no quant_method"
    names = [name for key in _UNCONVERTED for name in _names(stated.get(key))]
    layers = text.get("num_hidden_layers")
    wide = _wide_parts([*names, *wider], layers if isinstance(layers, int) else 0)
    return PublishedKind(id, f"{_KEY}: {str(method)[:40]}", wide)


def kind_of_checkpoints(checkpoints: Mapping[str, str], has_experts: bool) -> PublishedKind | None:
    """The first kind of a catalog row's `checkpoints`; None where one of them has 16 bits."""
    if not checkpoints or any(kind in checkpoints for kind in FLOATS):
        return None
    id, repository = next(iter(checkpoints.items()))
    wide: frozenset[Part] = frozenset()
    if has_experts and id in _OF_EXPERTS:
        wide = frozenset(_PARTS)
    return PublishedKind(id, repository, wide)


def _kind(stated: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The kind of most weights, and the modules that have more bits."""
    groups = list(_groups(stated))
    if groups:
        # The upper bound: what has more bits than the kind of fewest is counted at 16.
        fewest = min(bits for bits, _, _ in groups)
        wider = [name for bits, _, names in groups if bits > fewest for name in names]
        return next(kind for bits, kind, _ in groups if bits == fewest), wider
    method = str(stated.get("quant_method") or "").lower().replace("-", "_")
    if method == "bitsandbytes":
        four = stated.get("load_in_4bit") or stated.get("_load_in_4bit")
        return ("nf4" if four else "int8"), []
    if method in _OF_BITS:
        return _OF_BITS[method].get(stated.get("bits", stated.get("w_bit", 4)), ""), []
    algorithm = str(stated.get("quant_algo") or "").upper()
    return _METHODS.get(method) or _ALGORITHMS.get(algorithm, ""), []


def _groups(stated: Mapping[str, Any]) -> Iterator[tuple[int, str, list[str]]]:
    """Bits, kind and modules of each of the `config_groups` of compressed-tensors and modelopt."""
    groups = stated.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping) or not isinstance(weights.get("num_bits"), int):
            continue
        bits, number_type = weights["num_bits"], weights.get("type")
        packed = str(group.get("format") or stated.get("format") or "")
        is_mx = "mxfp4" in packed or weights.get("group_size") == 32
        kinds = {"8 float": "fp8", "8 int": "int8", "4 int": "int4"}
        kinds["4 float"] = "mxfp4" if is_mx else "nvfp4"
        yield bits, kinds.get(f"{bits} {number_type}", ""), list(_names(group.get("targets")))


def _names(value: Any) -> Iterator[str]:
    yield from (name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


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
