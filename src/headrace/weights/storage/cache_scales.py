"""Scales that a folder brings for K and V in FP8, by the names of the programs that write them.

What is stored is the nearest e4m3 of x / scale. One number belongs to K of a layer and one to V;
they are read only where the cache has that kind, so that a folder whose scales are of another sort
opens all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from headrace.errors import CheckpointError, UnsupportedModelError, shown
from headrace.weights.tensors.tensor import Tensor

Part = Literal["k", "v", "kv"]

ENDINGS: Mapping[str, Part] = {
    ".k_scale": "k",
    ".v_scale": "v",
    ".kv_scale": "kv",
    ".k_proj.output_scale": "k",
    ".v_proj.output_scale": "v",
}
"""Of modelopt and llm-compressor, of AutoFP8 and of compressed-tensors before them."""

LEAST, MOST = 2.0**-60, 2.0**60
"""Within them no product of a scale and a code is denormal or infinite."""


class LayerScales(NamedTuple):
    """The scales of K and V of one layer, 1 where the folder has none."""

    k: float = 1.0
    v: float = 1.0


def is_cache_scale(name: str) -> bool:
    """Whether a tensor of this name is a scale of K or V."""
    return name.endswith(tuple(ENDINGS))


def layer_scales(tensors: Mapping[str, Tensor]) -> Mapping[int, LayerScales]:
    """The scales of each layer that has some.

    Raises UnsupportedModelError naming a tensor that is not one number of a layer, CheckpointError
    for one that K and V cannot be divided by.
    """
    found: dict[int, LayerScales] = {}
    named: dict[tuple[int, str], tuple[str, float]] = {}
    for name, tensor in sorted(tensors.items()):
        part = next(part for ending, part in ENDINGS.items() if name.endswith(ending))
        numbered = re.search(r"\.(\d{1,6})\.", name)
        if numbered is None or np.prod(tensor.shape, dtype=np.int64) != 1:
            raise UnsupportedModelError(
                f"tensor {shown(name)} has shape {list(tensor.shape)}: scales of K and V in FP8 "
                "are read as one number of each layer. Use --kv-cache-dtype int8, whose scales "
                "are computed as tokens come"
            )
        value = float(tensor.to_f32().reshape(-1)[0])
        if not LEAST <= value <= MOST:
            raise CheckpointError(
                f"tensor {shown(name)} is {value}; K and V are divided by it, so it has to be a "
                "number from 2^-60 to 2^60. Fetch the folder again, or use --kv-cache-dtype int8"
            )
        layer = int(numbered[1])
        for of in part:
            before = named.setdefault((layer, of), (name, value))
            if before[1] != value:
                raise CheckpointError(
                    f"tensors {shown(before[0])} and {shown(name)} are scales of the same K or V "
                    f"and have {before[1]} and {value}. Fetch the folder again, or use "
                    "--kv-cache-dtype int8"
                )
        k, v = found.get(layer, LayerScales())
        found[layer] = LayerScales(value if "k" in part else k, value if "v" in part else v)
    return found
