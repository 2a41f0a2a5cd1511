"""What every head offers the engine. Of token t, whose features the target computed, and the token
t + 1 that followed:

    s = states(features of t)
    logits of t + 2, s' = forward(token t + 1, s)

s' stands for the features of t + 1 where the target has not been yet, so that a head goes on by
itself, a token at a time. It has K and V of its own: an entry for each such pair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from headrace.models.blocks import Step
from headrace.models.config import DecoderConfig
from headrace.models.layer_cache import cache_layout
from headrace.models.loader import Loader
from headrace.models.model import Model
from headrace.models.rope_tables import begin_step, rope_tables
from headrace.ops.interface import Array, Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch


class DraftHead(ABC):
    """A head of one layer behind a model, which shares what it has not itself."""

    feature_layers: tuple[int, ...]
    """The layers whose features it reads, as of `Model.forward_with_features`."""

    def __init__(self, target: Model, config: DecoderConfig, ops: Ops, loader: Loader) -> None:
        """config: of its one layer."""
        self._target = target
        self._ops = ops
        self._config = config
        self._rope = rope_tables(config, ops, loader, target.max_positions)
        self.vocab_size = target.vocab_size
        """Width of its logits, whose columns are the target's ids."""
        self.max_positions = target.max_positions
        self.length_cause = target.length_cause
        self.cache_layout = cache_layout(config.layer_caches)
        self.weight_codec = loader.dominant_codec
        self.weight_bytes = 0
        """Of its own weights."""

    @property
    @abstractmethod
    def model_type(self) -> str:
        """What it is, for reports."""

    @property
    def feature_width(self) -> int:
        """Values of the features of a token."""
        return len(self.feature_layers) * self._target.config.hidden_size

    @abstractmethod
    def states(self, features: Array) -> Array:
        """What goes into its layer of features f32[N, feature_width]: f32[N, hidden]."""

    @abstractmethod
    def forward(self, batch: RaggedBatch, kv: KVCacheArrays, states: Array) -> tuple[Array, Array]:
        """Logits f32[L, vocab_size] of `batch.logit_rows`, and the states f32[L, hidden] of what
        follows these; every entry's K and V are stored. states: of the token before each one."""

    def _step(self, batch: RaggedBatch, kv: KVCacheArrays) -> Step:
        return begin_step(self._ops, self._config, self._rope, batch, kv)
