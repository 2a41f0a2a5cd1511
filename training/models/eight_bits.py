"""Matrices in 8 bits on disk: whole numbers of a byte and a scale for each row.

    NAME.weight         int8 [rows, columns]
    NAME.weight_scale   float32 [rows, 1]; a weight is number * scale

This is what compressed-tensors calls int-quantized, of weights alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

MOST = 127
"""The largest number; -128 stays unused, so that numbers are symmetric."""
SCALE = "_scale"
QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "input_activations": None,
            "output_activations": None,
            "weights": {
                "num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True,
                "dynamic": False,
            },
        }
    },
    "ignore": [],
}  # fmt: skip
"""`quantization_config` of a folder of them."""


def in_eight_bits(weights: Mapping[str, Tensor], rest: torch.dtype) -> dict[str, Tensor]:
    """The tensors of a folder: matrices in 8 bits, others in `rest`."""
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.dim() != 2:
            stored[name] = weight.to(rest)
            continue
        scale = weight.float().abs().amax(dim=1, keepdim=True) / MOST
        # A row of zeros has any scale.
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        stored[name] = (weight.float() / scale).round().to(torch.int8)
        stored[name + SCALE] = scale
    return stored


def from_eight_bits(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a folder's tensors, and of tensors that are no numbers of 8 bits as they
    are."""
    return {
        name: tensor if (scale := stored.get(name + SCALE)) is None else tensor.float() * scale
        for name, tensor in stored.items()
        if not name.endswith(SCALE)
    }
