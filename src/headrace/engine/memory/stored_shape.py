"""The sizes of a model that memory depends on, from the headers of its file: no weight is read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from headrace.models import DecoderConfig
from headrace.models.layer_cache import CacheLayout, cache_layout
from headrace.weights.checkpoint import Checkpoint


@dataclass(frozen=True)
class StoredShape:
    """The sizes of a model that a KV cache depends on, from its config alone."""

    config: DecoderConfig
    weight_codec: str

    @property
    def max_positions(self) -> int:
        """Tokens the model was made for."""
        return self.config.max_positions

    @cached_property
    def cache_layout(self) -> CacheLayout:
        """What its layers keep of a request, in groups."""
        return cache_layout(self.config.layer_caches)


def stored_shape(checkpoint: Checkpoint, config: DecoderConfig) -> StoredShape:
    """The shape of a checkpoint whose config has been read."""
    return StoredShape(config, _dominant_codec(checkpoint))


def _dominant_codec(checkpoint: Checkpoint) -> str:
    """Codec of most bytes of matrices, by which the engine chooses the type of K and V."""
    sizes = Counter[str]()
    for tensor in checkpoint.tensors.values():
        if len(tensor.shape) == 2:
            sizes[tensor.codec.name] += tensor.nbytes
    return sizes.most_common(1)[0][0] if sizes else "F32"
