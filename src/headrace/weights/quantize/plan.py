"""The kind that every tensor of a model gets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import ConfigError
from headrace.weights.codecs import CODECS, Codec, get_codec
from headrace.weights.gguf.values import Typed
from headrace.weights.quantize.mixes import ALIASES, MIXES, NARROWER, Mix, Position, Shape
from headrace.weights.quantize.roles import Role, layer_of, may_be_quantised, role_of
from headrace.weights.tensors.source import TensorSource

# Architectures and numbers of layers that llama.cpp calls 70B (LLM_TYPE_70B).
_WIDE_SHARING = {("llama", 80), ("qwen2", 80), ("deci", 80), ("olmo", 80), ("jais2", 68)}


@dataclass(frozen=True)
class Override:
    """A kind for all tensors whose names a pattern is found in."""

    pattern: re.Pattern[str]
    codec: Codec


def mix_of(name: str) -> Mix:
    """The mix called `name`, in any case; raises ConfigError naming what there is."""
    wanted = name.upper()
    mix = MIXES.get(ALIASES.get(wanted, wanted))
    if mix is None:
        raise ConfigError(f"type {name!r} is unknown; known are {', '.join([*MIXES, *ALIASES])}")
    return mix


def override_of(text: str) -> Override:
    """PATTERN=KIND as a person writes it; raises ConfigError."""
    pattern, equals, kind = text.rpartition("=")
    if not equals or not pattern:
        raise ConfigError(f"{text!r} is not PATTERN=KIND, such as ffn_down=Q6_K")
    codec = CODECS.get(kind.upper())
    if codec is None or not codec.can_encode:
        made = ", ".join(name for name, codec in CODECS.items() if codec.can_encode)
        raise ConfigError(f"{text!r}: {kind!r} is not a kind that can be made; these are: {made}")
    try:
        return Override(re.compile(pattern), codec)
    except re.error as error:
        raise ConfigError(f"{text!r}: {pattern!r} is not a regular expression: {error}") from error


def shape_of(
    metadata: Mapping[str, Any], sources: Sequence[TensorSource], has_importance: bool
) -> Shape:
    """What mixes need to know, from a file's metadata."""
    architecture = str(_plain(metadata.get("general.architecture", "")))

    def number(key: str) -> int:
        value = _plain(metadata.get(f"{architecture}.{key}", 0))
        # Where layers differ there is a number for each; the first speaks for all.
        if not isinstance(value, (int, float)):
            value = value[0] if len(value) else 0
        return int(value)

    layers, heads = number("block_count"), number("attention.head_count")
    kv_heads = number("attention.head_count_kv") or heads
    return Shape(
        architecture=architecture,
        layers=layers,
        experts=number("expert_count"),
        queries_per_kv=heads // kv_heads if kv_heads else 0,
        wide_sharing=(architecture, layers) in _WIDE_SHARING
        and (architecture != "llama" or heads != kv_heads),
        tied=all(source.name != "output.weight" for source in sources),
        has_importance=has_importance,
    )


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Typed) else value


def kinds_of(
    sources: Sequence[TensorSource],
    mix: Mix,
    shape: Shape,
    overrides: Sequence[Override] = (),
    *,
    pure: bool = False,
) -> dict[str, Codec]:
    """The codec of each tensor by name.

    overrides: the first whose pattern is found in a name decides over the mix. pure: the mix's own
    kind for all matrices. Rows that are not whole blocks get the kind of narrower blocks, or F16.
    """
    ordered = sorted(sources, key=lambda source: (layer_of(source.name), source.name))
    codec = get_codec(mix.kind)
    chosen: dict[str, Codec] = {}
    counters: Counter[Role] = Counter()
    values = sum(role_of(source.name) is Role.VALUES for source in sources)
    for source in ordered:
        if not may_be_quantised(source.name, source.shape):
            chosen[source.name] = source.codec
            continue
        role = role_of(source.name)
        number = counters[role]
        if role in (Role.DOWN, Role.GATE, Role.UP) and shape.experts > 1:
            number = layer_of(source.name)
        place = Position(number, values if role is Role.VALUES else shape.layers)
        counters[role] += 1
        override = next((each for each in overrides if each.pattern.search(source.name)), None)
        if override is not None:
            kind = override.codec
        elif codec.block_elements == 1 or pure:
            kind = codec
        elif mix.stacks and len(source.shape) > 2 and role is not Role.OUTPUT:
            kind = get_codec(mix.stacks)
        else:
            kind = get_codec(_mixed(mix, role, place, shape, source, codec))
        chosen[source.name] = fitting_codec(kind, source.shape[-1])
    return {source.name: chosen[source.name] for source in sources}


def _mixed(
    mix: Mix, role: Role, place: Position, shape: Shape, source: TensorSource, codec: Codec
) -> str:
    final = role is Role.OUTPUT or (role is Role.EMBEDDING and shape.tied)
    if final and source.shape[-1] % codec.block_elements:
        return "Q8_0"
    return mix.kind_of(role, place, shape)


def fitting_codec(codec: Codec, width: int) -> Codec:
    """The codec, or what is taken instead where rows are not whole blocks."""
    if width % codec.block_elements == 0:
        return codec
    narrower = get_codec(NARROWER.get(codec.name, "F16"))
    return narrower if width % narrower.block_elements == 0 else get_codec("F16")
