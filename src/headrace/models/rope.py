"""Rotary embeddings: the frequencies that a config asks for.

    default    theta^(-2 i / d) for pair i of d rotated dimensions
    linear     all divided by a factor
    dynamic    theta grown for the longest request that will be run (NTK)
    llama3     long waves divided, short ones kept, a blend between
    yarn       the same with a ramp over dimensions, and cos and sin times an attention factor
    longrope   each divided by a number of its own: one list for short contexts, one for long ones
    proportional  of all dimensions of a head, and 0 for all pairs but the first share of them

What depends on the length of a request is decided once, by the longest that will be run
(`--max-model-len`), as vLLM does: keys in the cache were rotated once and for all.
Sources: transformers modeling_rope_utils.py; arXiv 2309.00071 (yarn), 2402.13753 (longrope).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import UnsupportedModelError
from headrace.weights.model_config.rope_config import RopeConfig, RopeKind
from headrace.weights.tensors.rope_rows import llama3_factors

__all__ = ["RopeConfig", "RopeKind", "Rotation", "rotation"]

Frequencies = npt.NDArray[np.float64]


class Rotation(NamedTuple):
    """Radians per position, float64[rotary_dim / 2]; cos and sin are times `attention_factor`."""

    frequencies: Frequencies
    attention_factor: float


def rotation(
    rope: RopeConfig,
    head_dim: int,
    *,
    divisors: npt.NDArray[np.float32] | None = None,
    max_positions: int | None = None,
) -> Rotation:
    """Frequencies for heads of this width, of which `rotary_dim` dimensions are rotated.

    divisors: float32[rotary_dim / 2] stored with the weights (GGUF's rope_freqs.weight). Those of
        llama3 are float32 as well when they come from the config, so that both kinds of file give
        the same angles.
    max_positions: the longest request that will be run, in tokens; None: the original length.
    Raises UnsupportedModelError where divisors and config contradict each other.
    """
    dims = rope.rotary_dim(head_dim)
    if divisors is not None and rope.kind not in ("default", "linear"):
        raise UnsupportedModelError(
            f"rope scaling is stated twice: {rope.kind} in the config and rope_freqs.weight "
            "among the tensors; remove one of them"
        )
    length = rope.original_max_positions if max_positions is None else max_positions
    theta = rope.grown_theta(dims)
    if rope.kind == "dynamic":
        theta = _grown_theta(rope, dims, length)
    plain = theta ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    if divisors is not None:
        plain = plain / divisors.astype(np.float64)
    if rope.kind == "linear":
        plain = plain / rope.factor
    elif rope.kind == "llama3":
        plain = plain / llama3_factors(dims, rope.theta, rope.llama3()).astype(np.float64)
    elif rope.kind == "yarn":
        kept = _kept_share(rope, dims)
        plain = plain / rope.factor * (1 - kept) + plain * kept
    elif rope.kind == "longrope":
        plain = plain / _longrope_divisors(rope, dims, length)
    elif rope.kind == "proportional":
        plain = plain / rope.factor
        plain[rope.turning_pairs(head_dim) :] = 0.0
    return Rotation(plain, rope.attention_factor)


def _grown_theta(rope: RopeConfig, dims: int, length: int) -> float:
    """theta (s n / original - (s - 1))^(d / (d - 2)), for n of at least the original length."""
    if dims < 4:
        raise UnsupportedModelError(
            f"rope scaling is dynamic and {dims} dimensions of a head are rotated; at least 4 are "
            "required. Use a checkpoint with wider heads, or without rope scaling"
        )
    stretched = rope.factor * max(length, rope.original_max_positions) / rope.original_max_positions
    # At least 1, which the difference of two large numbers may miss.
    grown = max(1.0, stretched - (rope.factor - 1))
    return float(rope.theta * grown ** (dims / (dims - 2)))


def _kept_share(rope: RopeConfig, dims: int) -> Frequencies:
    """float64[dims / 2] from 1 (a frequency stays) to 0 (it is divided by the factor)."""
    low, high = (
        dims
        * math.log(rope.original_max_positions / (turns * 2 * math.pi))
        / (2 * math.log(rope.theta))
        for turns in (rope.beta_fast, rope.beta_slow)
    )
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    # A ramp of no width is a step.
    width = high - low or 0.001
    return 1 - np.clip((np.arange(dims // 2, dtype=np.float64) - low) / width, 0, 1)


def _longrope_divisors(rope: RopeConfig, dims: int, length: int) -> Frequencies:
    long = length > rope.original_max_positions
    name, values = ("long", rope.long_factor) if long else ("short", rope.short_factor)
    if len(values) != dims // 2:
        raise UnsupportedModelError(
            f"config key {name}_factor has {len(values)} numbers; {dims} rotated dimensions need "
            f"{dims // 2}"
        )
    return np.array(values, np.float64)
