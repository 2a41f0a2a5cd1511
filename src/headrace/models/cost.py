"""What a step has to move and to compute, counted from shapes: the figures a roofline needs.

Bytes are those no implementation can avoid: weights as stored, once a step; K and V of every
position a request's new tokens see, once a request; K and V of new tokens, written. Operations are
multiplications and additions of matrix products and attention; a multiply and an add are two.
Norms, rotations and activations are left out of both: they are of lower order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from headrace.ops.interface import AttentionShape


class StepCost(NamedTuple):
    """The cost of a step."""

    bytes: int
    """Bytes read and written."""
    operations: int
    """Operations of products and attention."""


class RowCost(NamedTuple):
    """Tokens [start, start + num_tokens) of one request; `samples` where logits are wanted."""

    start: int
    num_tokens: int
    samples: bool


class CostModel:
    """Counts steps of one model over one kind of KV cache.

    weight_bytes: read in every step, lm_head's among them. layer_elements: of the matrices every
    token meets. head_elements: of lm_head, which only rows with logits meet. windows: of each
    layer, 0 for none. kv_token_bytes: K and V of one token in one layer.
    """

    def __init__(
        self,
        *,
        weight_bytes: int,
        layer_elements: int,
        head_elements: int,
        attention: AttentionShape,
        windows: Iterable[int],
        kv_token_bytes: int,
    ) -> None:
        self._weight_bytes = weight_bytes
        self._layer_operations = 2 * layer_elements
        self._head_operations = 2 * head_elements
        # Of one token and one position it sees, in one layer: q.K and p.V.
        self._pair_operations = 4 * attention.num_heads * attention.head_dim
        self._layers = Counter(windows)
        self._kv_token_bytes = kv_token_bytes

    def of(self, rows: Iterable[tuple[int, int, int]]) -> StepCost:
        """The cost of a step of `rows`, each as RowCost has it; nothing for no rows.

        In place of `samples` may stand of how many positions logits are wanted.
        """
        moved = operations = 0
        for start, count, samples in rows:
            operations += self._layer_operations * count + self._head_operations * samples
            for window, layers in self._layers.items():
                operations += layers * self._pair_operations * _pairs(start, count, window)
                seen = start + count if not window else min(start + count, window - 1 + count)
                moved += layers * self._kv_token_bytes * (seen + count)
        return StepCost(moved + self._weight_bytes if operations else 0, operations)


def _pairs(start: int, count: int, window: int) -> int:
    """Sum over tokens at [start, start + count) of the positions each sees, its own included."""
    end = start + count
    if not window:
        return _triangle(end) - _triangle(start)
    whole = max(0, min(end, window) - start)  # tokens that still see everything before them
    return _triangle(start + whole) - _triangle(start) + (count - whole) * window


def _triangle(n: int) -> int:
    return n * (n + 1) // 2
