"""What the engine needs of a model. `headrace.models.load_model` gives one; tests bring their own.

The one place that says so: sizing the KV cache, running a step and `EngineInfo` read it from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.models.cost import CostModel
from headrace.models.layer_cache import CacheLayout
from headrace.ops.kv import KVCacheArrays, KVCacheSpec, RaggedBatch
from headrace.ops.operands import Array


class Model(Protocol):
    """A model as the engine sees it. Widths in values, lengths in tokens."""

    @property
    def model_type(self) -> str:
        """The family's name, as in its config."""

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""

    @property
    def max_positions(self) -> int:
        """Tokens the model was made for."""

    @property
    def length_cause(self) -> str:
        """What keeps requests at max_positions where the model was made for more; "" elsewhere."""

    @property
    def weight_codec(self) -> str:
        """Codec of most of its matrices."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights as they are held."""

    @property
    def cache_layout(self) -> CacheLayout:
        """What its layers keep of a request, in groups."""

    def cost(self, kv: KVCacheSpec) -> CostModel:
        """What steps move and compute with such a KV cache."""

    def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> Array:
        """Logits f32[L, vocab_size] of batch.logit_rows; K and V of every new token are stored."""

    def forward_with_features(
        self, batch: RaggedBatch, kv: KVCacheArrays, layers: Sequence[int]
    ) -> tuple[Array, Array | None]:
        """What `forward` gives, and the features of every token that a draft head reads; None
        where `layers` are none."""
