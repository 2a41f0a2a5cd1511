"""What rotary embeddings leave in files: row orders of Q and K, frequency factors of Llama 3.

A converter of the llama family stores each head's rows with dimensions i and i + head_dim/2 next to
each other. Blocks run along a row, so putting rows back in order is exact for every codec.

Sources: convert_hf_to_gguf.py (permute; rope_freqs), transformers modeling_rope_utils.py (llama3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError

LLAMA3_KEYS = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
)
"""What a rope_scaling of type "llama3" consists of, in the order `llama3_factors` takes it."""


def heads_to_half(
    num_heads: int, head_dim: int, rotary_dim: int | None = None
) -> npt.NDArray[np.int32]:
    """int32[num_heads * head_dim]: puts rows stored "interleaved" in "half" order.

    `stored.select_rows(order)` is the matrix in "half" order; a bias is `bias[order]`.
    Row h*head_dim + s*rotary_dim/2 + j of the result is stored row h*head_dim + 2*j + s; rows of a
    head past rotary_dim (None: head_dim) stay where they are.
    Raises ValueError when rotary_dim is odd.
    """
    rows, rotary = _rows(num_heads, head_dim, rotary_dim)
    pairs = rows[:, :rotary].reshape(num_heads, rotary // 2, 2).swapaxes(1, 2)
    rows[:, :rotary] = pairs.reshape(num_heads, rotary).copy()
    return rows.ravel()


def heads_to_interleaved(
    num_heads: int, head_dim: int, rotary_dim: int | None = None
) -> npt.NDArray[np.int32]:
    """The inverse of `heads_to_half`: the order in which a GGUF file of the llama family stores."""
    rows, rotary = _rows(num_heads, head_dim, rotary_dim)
    pairs = rows[:, :rotary].reshape(num_heads, 2, rotary // 2).swapaxes(1, 2)
    rows[:, :rotary] = pairs.reshape(num_heads, rotary).copy()
    return rows.ravel()


def _rows(
    num_heads: int, head_dim: int, rotary_dim: int | None
) -> tuple[npt.NDArray[np.int32], int]:
    rotary = head_dim if rotary_dim is None else rotary_dim
    if rotary % 2:
        raise ValueError(f"head_dim is {rotary}; rotary pairs need an even number")
    return np.arange(num_heads * head_dim, dtype=np.int32).reshape(num_heads, head_dim), rotary


def llama3_factors(
    head_dim: int, theta: float, scaling: Mapping[str, Any]
) -> npt.NDArray[np.float32]:
    """float32[head_dim / 2]: what each rotary frequency is divided by under rope_type "llama3".

    1 for wavelengths shorter than original_max / high_freq_factor, `factor` for those longer than
    original_max / low_freq_factor (Llama 4 has these two the same), and in between
    1 / ((1 - t) / factor + t), where t goes from 0 to 1 with
    original_max / wavelength. Raises CheckpointError naming a missing or bad value.
    """
    values = {}
    for key in LLAMA3_KEYS:
        value = scaling.get(key)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
            raise CheckpointError(f"rope_scaling.{key} is {value!r}; a positive number is required")
        values[key] = float(value)
    factor, low, high, original = values.values()
    if not low <= high:
        raise CheckpointError(
            f"rope_scaling.low_freq_factor is {low}; it must not be above high_freq_factor {high}"
        )
    factors = np.empty(head_dim // 2, np.float32)
    for index in range(head_dim // 2):
        wavelength = 2 * math.pi * theta ** (2 * index / head_dim)
        if wavelength < original / high or wavelength == original / low:
            factors[index] = 1
        elif wavelength > original / low:
            factors[index] = factor
        else:
            share = (original / wavelength - low) / (high - low)
            factors[index] = 1 / ((1 - share) / factor + share)
    return factors


def llama3_scaling_of(
    factors: npt.NDArray[np.float32], head_dim: int, theta: float
) -> dict[str, Any] | None:
    """The rope_scaling entry that gives these factors, or None.

    A GGUF file keeps only the factors. The four numbers cannot be solved for, but every published
    Llama 3 model uses low 1, high 4 and 8192 positions, and Llama 4 high 1; they are tried and
    checked. The tolerance
    is float32's: converters computed the factors in float32.
    """
    if factors.shape != (head_dim // 2,) or not np.isfinite(factors).all():
        return None
    factor = float(factors.max(initial=0.0))
    if factor <= 0:
        return None
    for high in (4.0, 1.0):
        scaling = {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": high,
            "original_max_position_embeddings": 8192,
        }
        expected = llama3_factors(head_dim, theta, scaling)
        if np.allclose(factors, expected, rtol=1e-5, atol=0):
            return scaling
    return None
