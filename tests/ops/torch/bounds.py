"""What rounding alone may change where the order of a sum is a library's: error analysis.

A sum of n products in any order passes each of its terms through at most n roundings (a product and
n - 1 sums; Higham, chapter 3), whatever the shape of its tree.
"""

from __future__ import annotations

import math

import numpy as np

from headrace.ops.kv import KV_CODECS, AttentionShape, KVCodec
from headrace.ops.operands import Norm
from tests.ops.cpu.cases import F32, UNIT

FUNCTION = 4
"""Roundings of one value of exp, erfc, tanh or 1 / sqrt: libraries state 1 to 2 units in the last
place, each of which is two of ours."""


def of_product(operand: np.ndarray, weight: np.ndarray, *added: np.ndarray) -> np.ndarray:
    """Of rows times a matrix and what is added to them. Of the operand one rounding more: scale
    times number, where it was quantised."""
    magnitude = np.abs(operand).astype(np.float64) @ np.abs(weight).astype(np.float64).T
    for part in added:
        magnitude = magnitude + np.abs(part)
    return np.asarray((operand.shape[1] + 1 + 2 * len(added) + 1) * UNIT * magnitude)


def of_norm(x: F32, norm: Norm, expected: np.ndarray) -> np.ndarray:
    """Of the norm of rows. A mean of values, and with it each difference from it, is off by the
    roundings of its halving sums; the inverse of the root by half of those of the squares' sum.
    """
    depth = math.ceil(math.log2(max(2, x.shape[1]))) + 2
    wide = x.astype(np.float64)
    off = np.zeros_like(wide)
    if norm.kind == "layer":
        off = off + depth * np.abs(wide).mean(axis=1, keepdims=True) + np.abs(wide)
        wide = wide - wide.mean(axis=1, keepdims=True)
    spread = np.sqrt((wide * wide).mean(axis=1, keepdims=True) + norm.eps)
    # What each difference is off by moves the row itself, and its spread by as much at most.
    moved = (off + off.max(axis=1, keepdims=True)) / spread * np.abs(norm.weight)
    bias = 0.0 if norm.bias is None else np.abs(norm.bias)
    return np.asarray(UNIT * (moved + (depth / 2 + FUNCTION + 4) * (np.abs(expected) + bias)))


def of_attention(shape: AttentionShape, rows: np.ndarray, codecs: tuple[KVCodec, KVCodec]) -> float:
    """Of attention over these rows of q, k and v, as tests/ops/cpu/attention_cases.py has it: a
    score carries the roundings of its product, which shift its p by as much, relatively; sums of p
    and of p v a rounding per token at most.
    """
    d = shape.head_dim
    k, v = codecs[0], codecs[0 if shape.latent else 1]
    keys_end = (shape.num_heads + shape.num_kv_heads) * d
    heads = rows[:, :keys_end].reshape(len(rows), -1, d)
    longest = np.sqrt((heads.astype(np.float64) ** 2).sum(axis=2)).max()
    largest_v = np.abs(heads[:, shape.num_heads :] if shape.latent else rows[:, keys_end:]).max()
    turns = math.log2(d) + 1 if KV_CODECS[k].rotated else 0
    score = (d + 3 + turns) * UNIT * longest * longest * shape.scale
    if KV_CODECS[v].rotated and not shape.latent:
        largest_v *= shape.value_width
    # A p that lies near a tie of bfloat16 may round the other way, by 2^-7 of itself.
    ties = 2.0**-7 if v == "bf16" else 0.0
    return float(largest_v * (2 * score + (len(rows) + 24) * UNIT + ties))
