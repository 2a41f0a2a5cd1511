"""Row orders of one matrix that holds Q, K and V.

"joined": all heads of Q, then those of K, then those of V. "grouped": for each head of K and V the
heads of Q that use it, then its K, then its V, as Falcon and multi-query models were trained; with
one head of K and V both are the same. Blocks run along a row, so either order is exact in every
codec.

Sources: transformers modeling_falcon.py (_split_heads), llama.cpp conversion/falcon.py.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.weights.checkpoint import Conventions
from headrace.weights.tensors.rope_rows import heads_to_half

Order = npt.NDArray[np.int32]


def grouped_to_joined(num_heads: int, num_kv_heads: int, head_dim: int) -> Order:
    """int32[(num_heads + 2 num_kv_heads) * head_dim]: puts rows stored "grouped" in "joined" order.

    `stored.select_rows(order)` is the matrix in "joined" order; a bias is `bias[order]`.
    """
    heads = np.arange(num_heads + 2 * num_kv_heads, dtype=np.int32)
    groups = heads.reshape(num_kv_heads, num_heads // num_kv_heads + 2)
    joined = np.concatenate([groups[:, :-2].ravel(), groups[:, -2], groups[:, -1]])
    rows = joined[:, None] * head_dim + np.arange(head_dim, dtype=np.int32)
    return np.ascontiguousarray(rows.ravel(), np.int32)


def loaded_order(
    stored: Conventions, num_heads: int, num_kv_heads: int, head_dim: int, rotary_dim: int | None
) -> Order | None:
    """Puts rows stored so in "joined" order with Q and K in "half" order; None: they are.

    rotary_dim: dimensions of a head that are rotated; None means all.
    """
    order = None
    if stored.qkv_layout == "grouped":
        order = grouped_to_joined(num_heads, num_kv_heads, head_dim)
    if stored.rope_layout == "half":
        return order
    rows = np.arange((num_heads + 2 * num_kv_heads) * head_dim, dtype=np.int32)
    turned = heads_to_half(num_heads + num_kv_heads, head_dim, rotary_dim)
    rows[: len(turned)] = turned
    return rows if order is None else order[rows]


def joined_to_grouped(num_heads: int, num_kv_heads: int, head_dim: int) -> Order:
    """The inverse of `grouped_to_joined`."""
    return np.argsort(grouped_to_joined(num_heads, num_kv_heads, head_dim)).astype(np.int32)
