"""What a step has to move and to compute, counted from shapes: the figures a roofline needs.

Bytes are those no implementation can avoid: weights as stored, once a step; K and V of every
position a request's new tokens see, once a request; K and V of new tokens, written. Of experts
that are chosen from, those that the tokens of the step are expected to choose. Operations are
multiplications and additions of matrix products and attention; a multiply and an add are two.
Norms, rotations and activations are left out of both: they are of lower order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from headrace.models.visible import Visible, visible_of
from headrace.ops.kv import AttentionShape


class StepCost(NamedTuple):
    """The cost of a step."""

    bytes: int
    """Bytes read and written."""
    operations: int
    """Operations of products and attention."""
    attention_operations: int
    """Those of attention among them."""


class RowCost(NamedTuple):
    """Tokens [start, start + num_tokens) of one request; `samples` where logits are wanted."""

    start: int
    num_tokens: int
    samples: bool


class ExpertCost(NamedTuple):
    """The experts of a model that routers choose from; shared ones are not among them."""

    experts: int
    """Of each layer that has any."""
    experts_per_token: int
    bytes: int
    """Of the experts of all layers as stored."""
    elements: int
    """Values in the matrices of the experts of all layers."""

    def bytes_read(self, tokens: int) -> int:
        """Bytes of the experts that at least one of `tokens` is expected to choose.

        E (1 - (1 - k / E)^tokens) of a layer's E experts, each token's k being taken as uniform and
        independent of those of others.
        """
        missed = (1 - self.experts_per_token / self.experts) ** tokens
        return round(self.bytes * (1 - missed))

    @property
    def operations_of_token(self) -> int:
        """Operations of one token in the experts it chooses."""
        return 2 * self.elements * self.experts_per_token // self.experts


class LayerCost(NamedTuple):
    """The attention of one layer."""

    attention: AttentionShape
    """Its heads, and its window or chunks."""
    kv_token_bytes: int
    """K and V of one token."""

    @property
    def visible(self) -> Visible:
        """The positions that its tokens see."""
        return visible_of(self.attention)

    @property
    def pair_operations(self) -> int:
        """Operations of one token and one position it sees: q.K and p.V."""
        shape = self.attention
        return 2 * (shape.num_heads * shape.head_dim + shape.output_width)


class CostModel:
    """Counts steps of one model over one kind of KV cache.

    weight_bytes: read in every step, lm_head's among them. layer_elements: of the matrices every
    token meets. head_elements: of lm_head, which only rows with logits meet. layers: those that
    have attention. experts: None in models without.
    """

    def __init__(
        self,
        *,
        weight_bytes: int,
        layer_elements: int,
        head_elements: int,
        layers: Iterable[LayerCost],
        experts: ExpertCost | None = None,
    ) -> None:
        self._weight_bytes = weight_bytes
        self._layer_operations = 2 * layer_elements
        self._head_operations = 2 * head_elements
        self._layers = Counter(
            (layer.visible, layer.kv_token_bytes, layer.pair_operations) for layer in layers
        )
        self._experts = experts

    @property
    def pair_tokens(self) -> float:
        """Operations of attention for a pair of tokens, in those of all products of a token."""
        pairs = sum(layers * pair for (_, _, pair), layers in self._layers.items())
        experts = 0 if self._experts is None else self._experts.operations_of_token
        return pairs / max(1, self._layer_operations + experts)

    def of(self, rows: Iterable[tuple[int, int, int]]) -> StepCost:
        """The cost of a step of `rows`, each as RowCost has it; nothing for no rows.

        In place of `samples` may stand of how many positions logits are wanted.
        """
        moved = operations = attention = tokens = 0
        for start, count, samples in rows:
            tokens += count
            operations += self._layer_operations * count + self._head_operations * samples
            for (visible, token_bytes, pair_operations), layers in self._layers.items():
                attention += layers * pair_operations * visible.pairs(start, count)
                moved += layers * token_bytes * (visible.span(start, count) + count)
        if not (operations or attention):
            return StepCost(0, 0, 0)
        if self._experts is not None:
            moved += self._experts.bytes_read(tokens)
            operations += self._experts.operations_of_token * tokens
        return StepCost(moved + self._weight_bytes, operations + attention, attention)
