"""What every head offers the engine. Of token t, whose features the target computed, and the token
t + 1 that followed:

    logits of t + 2, c = begin(token t + 1, features of t)        the first pass of a step
    logits of t + 3, c = go_on(token t + 2, c)                    the next ones, by its own drafts

What a pass gives for the next one (c) stands for the features of what the target has not been at
yet. A head has K and V of its own: an entry for each such pair of a token and features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from headrace.models.blocks import Step
from headrace.models.config import DecoderConfig
from headrace.models.layer_cache import cache_layout
from headrace.models.loader import Loader
from headrace.models.model import Model
from headrace.models.rope_tables import begin_step, rope_tables
from headrace.ops.interface import Array, Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch

Carried = tuple[Array, ...]
"""What a pass gives for the next one, each f32[R, width], of the last token of each request."""


class DraftHead(ABC):
    """A head behind a model, which shares what it has not itself."""

    feature_layers: tuple[int, ...]
    """The layers whose features it reads, as of `Model.forward_with_features`."""
    num_kept: int = 0
    """Of what a pass gives, the first so many are read by the first pass of the next step too, as
    wide as the features: they are of the token before the first of a request in it."""

    def __init__(self, target: Model, config: DecoderConfig, ops: Ops, loader: Loader) -> None:
        """config: of its layers."""
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
    def begin(
        self, batch: RaggedBatch, kv: KVCacheArrays, features: Array, before: Sequence[Array]
    ) -> tuple[Array, Carried]:
        """Logits f32[L, vocab_size] of `batch.logit_rows`, and what is carried on of each request;
        every entry's K and V are stored.

        features: f32[N, feature_width], of the token before each one. before: num_kept arrays
        f32[R, feature_width], as this gave them of the token before each request's first one.
        """

    @abstractmethod
    def go_on(
        self, batch: RaggedBatch, kv: KVCacheArrays, carried: Carried, place: int
    ) -> tuple[Array, Carried]:
        """The same of one more token of each request, its draft at `place` - 1, counted from 0."""

    def _step(self, batch: RaggedBatch, kv: KVCacheArrays) -> Step:
        return begin_step(self._ops, self._config, self._rope, batch, kv)
