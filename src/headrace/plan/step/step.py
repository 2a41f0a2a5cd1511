"""What a step has to read, write and compute, counted from a model's shape.

    bytes       weights once a step, of routed experts those that are touched; K and V of every
                position the new tokens see, once a request, and of new tokens, written
    operations  2 for each weight a token meets and token; of attention 2·heads·(K size + V size)
                for each pair of a token and a position it sees

As in models/cost.py, which counts a model that is loaded: the head works where logits are wanted,
and norms, rotations and activations are left out. `touched_experts` is the one expectation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.plan.model.layer_shape import AttentionLayers, DenseLayers, ExpertLayers, StateLayers
from headrace.plan.model.model_shape import ModelShape
from headrace.plan.validation import above_zero, not_below
from headrace.telemetry.work import Work

_STATE_VALUE_BYTES = 4
_CONV_VALUE_BYTES = 2
# A multiply and an add to bring a state forward, and the same to read it.
_OPERATIONS_PER_STATE_VALUE = 4


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Bytes of what is stored. bytes_per_weight: with scales, over all weights of the model."""

    bytes_per_weight: float
    bytes_per_key_value: float = 2.0
    bytes_per_value_value: float = 2.0

    def __post_init__(self) -> None:
        above_zero("bytes_per_weight", self.bytes_per_weight, "2 for 16 bits")
        above_zero("bytes_per_key_value", self.bytes_per_key_value, "2 for 16 bits")
        above_zero("bytes_per_value_value", self.bytes_per_value_value, "2 for 16 bits")


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """The parts of a step's work, of all devices together.

    The rest is for rates that were measured (`step_rates.py`): head_bytes and head_operations are
    the output matrix's part of the weights'.
    """

    weight_bytes: float
    kv_bytes: float
    state_bytes: float
    weight_operations: float
    attention_operations: float
    state_operations: float
    head_bytes: float = 0.0
    head_operations: float = 0.0
    product_values: float = 0.0
    """Values that go into and out of the matrix products of layers."""
    scores: float = 0.0
    """Pairs of a position and one it sees, for each head and layer."""
    logits: float = 0.0
    """Computed."""
    layers: int = 0
    """Passed through."""

    @property
    def work(self) -> Work:
        """Bytes and operations of all parts."""
        return Work(
            self.weight_bytes + self.kv_bytes + self.state_bytes,
            self.weight_operations + self.attention_operations + self.state_operations,
            self.attention_operations,
        )

    def beside(self, other: StepWork) -> StepWork:
        """Both in one step: weights are read once, all else adds up."""
        return StepWork(
            weight_bytes=max(self.weight_bytes, other.weight_bytes),
            kv_bytes=self.kv_bytes + other.kv_bytes,
            state_bytes=self.state_bytes + other.state_bytes,
            weight_operations=self.weight_operations + other.weight_operations,
            attention_operations=self.attention_operations + other.attention_operations,
            state_operations=self.state_operations + other.state_operations,
            head_bytes=max(self.head_bytes, other.head_bytes),
            head_operations=self.head_operations + other.head_operations,
            product_values=self.product_values + other.product_values,
            scores=self.scores + other.scores,
            logits=self.logits + other.logits,
            layers=max(self.layers, other.layers),
        )


def touched_experts(experts: int, experts_per_token: int, tokens: float) -> float:
    """Experts of a layer that `tokens` tokens need, expected: E·(1 − (1 − k/E)^tokens).

    Each token's experts are taken as uniform and independent of those of others. Real routing is
    skewed and touches fewer.
    """
    not_below("experts", experts, 1, "a dense layer has no experts")
    not_below("experts_per_token", experts_per_token, 1, "a token uses at least one expert")
    not_below("experts - experts_per_token", experts - experts_per_token, 0, "there are no more")
    not_below("tokens", tokens, 0, "a step of nothing has 0")
    return float(experts * (1 - (1 - experts_per_token / experts) ** tokens))


def stored_as_header(
    shape: ModelShape, *, bytes_per_key_value: float = 2.0, bytes_per_value_value: float = 2.0
) -> Storage | None:
    """How a header says its weights are stored, on average; None where no header was read."""
    total = shape.total_weight_bytes
    if total is None:
        return None
    return Storage(
        bytes_per_weight=total / shape.parameters.total,
        bytes_per_key_value=bytes_per_key_value,
        bytes_per_value_value=bytes_per_value_value,
    )


class StepCounter:
    """Counts steps of a model as it is stored.

    tensor: devices that each layer is divided over. Heads of K and V that are fewer are kept by
    several devices, latent caches (MLA) by all, and read by each.
    """

    def __init__(self, shape: ModelShape, storage: Storage, *, tensor: int = 1) -> None:
        not_below("tensor", tensor, 1, "1 means not divided")
        parameters = shape.parameters
        self._storage = storage
        self._hidden_size = shape.hidden_size
        self._head = parameters.embedding if shape.tied_embeddings else parameters.head
        self._every_token = parameters.attention + parameters.ffn + parameters.other
        self._experts = parameters.experts
        self._expert_layers = shape.moe
        self._attention = [
            (layer, tensor / min(tensor, layer.kv_heads)) for layer in shape.attention
        ]
        self._states = shape.states
        self._vocabulary = shape.vocabulary_tokens
        self._num_layers = shape.num_layers
        self._values = _product_values(shape)

    def prefill(
        self, chunk_tokens: int, start: int = 0, *, requests: int = 1, last: bool = True
    ) -> StepWork:
        """A chunk of each of `requests` prompts, `start` tokens of which are in the cache.

        last: whether it ends the prompts, so that logits of one position each are wanted.
        """
        not_below("chunk_tokens", chunk_tokens, 1, "a step computes at least one token")
        not_below("start", start, 0, "it counts the tokens before the chunk")
        return self._step(requests, start, chunk_tokens, int(last), prefill=True)

    def decode(self, batch: int, context_tokens: int, tokens_per_request: int = 1) -> StepWork:
        """A step of `batch` requests that have `context_tokens` each in the cache.

        tokens_per_request: 1, or K + 1 where K drafts are verified.
        """
        not_below("context_tokens", context_tokens, 0, "it counts the tokens before")
        not_below("tokens_per_request", tokens_per_request, 1, "a step computes at least one token")
        return self._step(
            batch, context_tokens, tokens_per_request, tokens_per_request, prefill=False
        )

    def _step(
        self, requests: int, start: int, count: int, samples: int, *, prefill: bool
    ) -> StepWork:
        not_below("batch", requests, 1, "a step has at least one request")
        tokens = requests * count
        return StepWork(
            weight_bytes=self._weights_read(tokens, bool(samples)) * self._storage.bytes_per_weight,
            kv_bytes=requests * self._kv_bytes(start, count),
            state_bytes=requests * self._state_bytes(),
            weight_operations=2.0
            * (tokens * self._weights_met() + requests * samples * self._head),
            attention_operations=float(requests * self._pair_operations(start, count, prefill)),
            state_operations=float(
                tokens * _OPERATIONS_PER_STATE_VALUE * _state_values(self._states)
            ),
            head_bytes=self._head * self._storage.bytes_per_weight if samples else 0.0,
            head_operations=2.0 * requests * samples * self._head,
            product_values=float(tokens * self._values),
            scores=float(
                requests
                * sum(
                    layer.count * layer.heads * layer.visible.pairs(start, count)
                    for layer, _ in self._attention
                )
            ),
            logits=float(requests * samples * self._vocabulary),
            layers=self._num_layers,
        )

    def _weights_read(self, tokens: int, logits: bool) -> float:
        """Weights that `tokens` tokens need, rows of the input embedding among them."""
        rows = tokens * self._hidden_size + (self._head if logits else 0)
        touched = _experts_share(
            (layer, touched_experts(layer.experts, layer.experts_per_token, tokens))
            for layer in self._expert_layers
        )
        return self._every_token + rows + self._experts * touched

    def _weights_met(self) -> float:
        """Weights that one token is multiplied with, the head's left out."""
        used = _experts_share((layer, layer.experts_per_token) for layer in self._expert_layers)
        return self._every_token + self._experts * used

    def _kv_bytes(self, start: int, count: int) -> float:
        """Read and written of one request that computes `count` tokens after `start`."""
        moved = 0.0
        for layer, copies in self._attention:
            key = layer.key_values_per_token * self._storage.bytes_per_key_value
            value = layer.value_values_per_token * self._storage.bytes_per_value_value
            written = 0 if layer.shared else count
            tokens = layer.visible.span(start, count) + written
            moved += layer.count * (key + value) * copies * tokens
        return moved

    def _state_bytes(self) -> float:
        return sum(
            2.0  # read and written
            * layer.count
            * (layer.state_values * _STATE_VALUE_BYTES + layer.conv_values * _CONV_VALUE_BYTES)
            for layer in self._states
        )

    def _pair_operations(self, start: int, count: int, prefill: bool) -> int:
        return sum(
            layer.count
            * (_expanded_pair_operations(layer) if prefill else layer.flops_per_pair())
            * layer.visible.pairs(start, count)
            for layer, _ in self._attention
        )


def _product_values(shape: ModelShape) -> int:
    """Of one token: what goes into and comes out of the matrix products of all layers."""
    hidden = shape.hidden_size
    total = 0
    for layer in shape.layers:
        if isinstance(layer, AttentionLayers):
            heads = layer.heads * (layer.head_dim + layer.value_head_dim)
            kept = 0 if layer.shared else layer.values_per_token
            total += layer.count * (2 * hidden + heads + kept)
        elif isinstance(layer, DenseLayers):
            total += layer.count * (2 * hidden + layer.matrices * layer.width)
        elif isinstance(layer, ExpertLayers):
            experts = layer.experts_per_token + layer.shared_experts
            total += layer.count * (2 * hidden + 3 * experts * layer.expert_width)
        else:
            total += layer.count * 4 * hidden
    return total


def _expanded_pair_operations(layer: AttentionLayers) -> int:
    """Of a prefill: latent keys and values are expanded to heads, which computes less there."""
    return 2 * layer.heads * (layer.head_dim + layer.value_head_dim)


def _experts_share(used: Iterable[tuple[ExpertLayers, float]]) -> float:
    """Of the weights of all routed experts, those of so many experts of each layer."""
    taken = whole = 0.0
    for layer, experts in used:
        weights = layer.count * layer.expert_parameters
        taken += weights * experts
        whole += weights * layer.experts
    return taken / whole if whole else 0.0


def _state_values(layers: Iterable[StateLayers]) -> int:
    return sum(layer.count * layer.state_values for layer in layers)
