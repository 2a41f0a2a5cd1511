"""Which layers of a config have experts, as lists by layer say it.

Lists that speak of the same layers have to agree, so that no reader goes by one of them and a
second reader by the other.
"""

from __future__ import annotations

from headrace.weights.config_reader import ConfigReader


def read_sparse_mlps(
    config: ConfigReader, layers: int, usual: tuple[bool, ...]
) -> tuple[bool, ...]:
    """Layers with experts, as `mlp_layer_types` or `moe_layer_freq` says; `usual` without either.

    Raises UnsupportedModelError for a list that is too short, has other entries, or contradicts
    the other one.
    """
    kinds, flags = config.raw("mlp_layer_types"), config.raw("moe_layer_freq")
    if flags is not None:
        if not isinstance(flags, list) or [*map(type, flags)] != [int] * layers:
            config.refuse("moe_layer_freq", flags, f"0 or 1, {layers} times")
        usual = tuple(bool(flag) for flag in flags)
    if kinds is None:
        return usual
    known = isinstance(kinds, list) and all(kind in ["dense", "sparse"] for kind in kinds)
    found = tuple(kind == "sparse" for kind in kinds) if known else ()
    if len(found) != layers or (flags is not None and found != usual):
        config.refuse("mlp_layer_types", kinds, f"'dense' or 'sparse', {layers} times")
    return found
