"""What the engine needs of a model. `headrace.models.load_model` gives one; tests bring their own.

The one place that says so: sizing the KV cache, running a step and `EngineInfo` read it from here.
"""

from __future__ import annotations

from typing import Protocol

from headrace.ops.interface import Array, KVCacheArrays, KVCacheSpec, KVCodec, RaggedBatch


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
    def weight_codec(self) -> str:
        """Codec of most of its matrices."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights as they are held."""

    @property
    def window(self) -> int:
        """Positions that any layer still reads of a request's past; 0 means all of them."""

    def kv_cache_spec(
        self, block_size: int, num_blocks: int, k_codec: KVCodec, v_codec: KVCodec
    ) -> KVCacheSpec:
        """The KV cache its layers need, of that many blocks."""

    def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> Array:
        """Logits f32[L, vocab_size] of batch.logit_rows; K and V of every new token are stored."""
