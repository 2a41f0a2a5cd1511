"""Which layers of a config have experts or a window, as lists by layer say it.

Lists that speak of the same layers have to agree, so that no reader goes by one of them and a
second reader by the other.
"""

from __future__ import annotations

from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import FULL, WINDOWED


def read_sparse_mlps(
    config: ConfigReader, layers: int, usual: tuple[bool, ...]
) -> tuple[bool, ...]:
    """Layers with experts, as `mlp_layer_types` or `moe_layer_freq` says; `usual` without either.

    Raises UnsupportedModelError for a list that is too short, has other entries, or contradicts
    the other one.
    """
    kinds, flags = config.raw("mlp_layer_types"), read_flags(config, "moe_layer_freq", layers)
    usual = usual if flags is None else flags
    if kinds is None:
        return usual
    known = isinstance(kinds, list) and all(kind in ["dense", "sparse"] for kind in kinds)
    found = tuple(kind == "sparse" for kind in kinds) if known else ()
    if len(found) != layers or (flags is not None and found != usual):
        config.refuse("mlp_layer_types", kinds, f"'dense' or 'sparse', {layers} times")
    return found


def read_window_kinds(config: ConfigReader, layers: int, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Kinds of the layers, as `layer_types` or `hybrid_layer_pattern` says; `usual` without either.

    Raises UnsupportedModelError for a list that is too short, has other entries, or contradicts
    the other one.
    """
    kinds, flags = config.raw("layer_types"), read_flags(config, "hybrid_layer_pattern", layers)
    if flags is not None:
        usual = tuple(WINDOWED if flag else FULL for flag in flags)
    if kinds is None:
        return usual
    known = isinstance(kinds, list) and all(kind in [FULL, WINDOWED] for kind in kinds)
    found = tuple(kinds) if known else ()
    if len(found) != layers or (flags is not None and found != usual):
        config.refuse("layer_types", kinds, f"{FULL!r} or {WINDOWED!r}, {layers} times")
    return found


def read_flags(config: ConfigReader, key: str, layers: int) -> tuple[bool, ...] | None:
    """Which layers a list of 0 and 1 marks; None where the config has no such list."""
    flags = config.raw(key)
    if flags is None:
        return None
    is_list = isinstance(flags, list) and [*map(type, flags)] == [int] * layers
    if not is_list or not {*flags} <= {0, 1}:
        config.refuse(key, flags, f"0 or 1, {layers} times")
    return tuple(bool(flag) for flag in flags)
