"""What operations take and give: arrays of a backend, and weights as it wants them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = Any
"""An array of the backend."""

HostIds = npt.NDArray[np.int32]
"""Ids, positions or numbers of rows, in NumPy on every backend."""

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2", "swiglu_clamped"]
"""silu: x / (1 + exp(-x)). gelu: x Phi(x), by erf. gelu_tanh: its approximation by tanh
(0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³)))), also called gelu_new and gelu_pytorch_tanh.
relu: 0 where x < 0, otherwise x (-0 and NaN too); relu2: its square. swiglu_clamped (gpt_oss;
gated only): gate is at most 7, up in [-7, 7], and the result is
gate / (1 + exp(-1.702 gate)) * (up + 1)."""


@dataclass(frozen=True)
class Norm:
    """A norm of rows, in float32. weight: f32[width]; bias: f32[width] or None.

    kind "rms": x * weight / sqrt(mean(x²) + eps); "layer": the same of x - mean(x) (LayerNorm),
    `+ bias` after it where there is one.
    """

    weight: Array
    eps: float
    kind: Literal["rms", "layer"] = "rms"
    bias: Array | None = None


@dataclass(frozen=True)
class LinearWeight:
    """Weights of y = W x (+ bias) as the backend wants them; rows of all parts stacked."""

    out_features: int
    in_features: int
    codec: str
    nbytes: int
    packed: Any
    column_order: HostIds | None = None
    """int32[in]: column i of `packed` is multiplied by column column_order[i] of x; None where
    columns lie as in x."""


@dataclass(frozen=True)
class HeadWeight:
    """One matrix of every head of a layer, all of one codec and shape."""

    num_heads: int
    out_features: int
    in_features: int
    codec: str
    nbytes: int
    packed: Any


@dataclass(frozen=True)
class EmbeddingWeight:
    """A table of rows to look up; `packed` belongs to the backend."""

    rows: int
    width: int
    codec: str
    packed: Any


@dataclass(frozen=True)
class RopeTable:
    """Cosine and sine of every position, f32[positions, rotary_dim / 2] each, backend arrays."""

    cos: Array
    sin: Array
    rotary_dim: int
