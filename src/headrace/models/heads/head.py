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
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.models.blocks import Step
from headrace.models.config import DecoderConfig
from headrace.models.layer_cache import cache_layout
from headrace.models.loader import Loader
from headrace.models.loading.linear import Linear
from headrace.models.loading.reader import HEAD
from headrace.models.model import Model
from headrace.models.rope_tables import begin_step, rope_tables
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch
from headrace.ops.operands import Array, Norm
from headrace.weights.hugging_face.head_folder import HeadFolder
from headrace.weights.tokenizer.data import TokenizerData

Carried = tuple[Array, ...]
"""What a pass gives for the next one, each f32[R, width], of the last token of each request."""


class FirstPass(NamedTuple):
    """The arguments of the first pass of a step, as of `DraftHead.begin`."""

    batch: RaggedBatch
    kv: KVCacheArrays
    features: Array
    before: Sequence[Array]
    most: int


class DraftHead(ABC):
    """A head behind a model, which shares what it has not itself."""

    feature_layers: tuple[int, ...]
    """The layers whose features it reads, as of `Model.forward_with_features`."""
    num_kept: int = 0
    """Of what a pass gives, the first so many are read by the first pass of the next step too, as
    wide as the features: they are of the token before the first of a request in it."""
    block_drafts: int = 0
    """Drafts that the first pass of a step gives together, all that there are: it computes places
    for them and one more behind the last token. 0: each pass gives one."""

    def __init__(self, target: Model, config: DecoderConfig, ops: Ops, loader: Loader) -> None:
        """config: of its layers."""
        self._target = target
        self._ops = ops
        self.config = config
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

    def begin(
        self,
        batch: RaggedBatch,
        kv: KVCacheArrays,
        features: Array,
        before: Sequence[Array],
        most: int = 1,
    ) -> tuple[Array, Carried]:
        """Logits f32[L, vocab_size] of `batch.logit_rows`, and what is carried on of each request;
        every entry's K and V are stored.

        features: f32[N, feature_width], of the token before each one. before: num_kept arrays
        f32[R, feature_width], as this gave them of the token before each request's first one. most:
        drafts that any request wants.
        """
        return self._begin(FirstPass(batch, kv, features, before, most))

    @abstractmethod
    def go_on(
        self, batch: RaggedBatch, kv: KVCacheArrays, carried: Carried, place: int
    ) -> tuple[Array, Carried]:
        """The same of one more token of each request, its draft at `place` - 1, counted from 0."""

    @abstractmethod
    def _begin(self, given: FirstPass) -> tuple[Array, Carried]:
        """What `begin` gives."""

    def _step(self, batch: RaggedBatch, kv: KVCacheArrays) -> Step:
        return begin_step(self._ops, self._rope, batch, kv)


class SomeTokens:
    """An output matrix of a head's own, whose rows are for some of the target's ids."""

    def __init__(
        self,
        loader: Loader,
        ops: Ops,
        ids: npt.NDArray[np.int64],
        vocab: int,
        width: int,
        *,
        bias: bool | None = False,
    ) -> None:
        """ids: int64[rows], as of `target_ids`. vocab: ids of the target. bias: as of
        `Loader.linear`."""
        name = HEAD.removesuffix(".weight")
        self._linear: Linear = loader.linear([name], [len(ids)], width, bias=bias)
        self._ops, self._ids, self._vocab = ops, ids, vocab

    def __call__(
        self, x: Array, norm: Norm, *, scale: float = 1.0, softcap: float | None = None
    ) -> Array:
        """Logits f32[L, vocab] of the norm of f32[L, width], -inf of the other ids."""
        own = self._linear(x, norm=norm, scale=scale)
        own = self._ops.softcap(own, softcap) if softcap else own
        return self._ops.spread(own, self._ids, self._vocab)


def check_vocabulary(path: Path, stated: object, rows: int, tokenizer: TokenizerData) -> None:
    """Raises CheckpointError where config.json of a head states another `vocab_size` than the
    target has.

    rows: of the target's logits. tokenizer: the target's. Ids behind its own are padding, and a
    head's table may have fewer of them: all numbers between both are the target's vocabulary.
    """
    if stated is None or stated == rows:
        return
    place = path / "config.json" if path.is_dir() else path
    if not isinstance(stated, int):
        raise CheckpointError(f"{place}: vocab_size is {stated!r}; it must be a whole number")
    known = tokenizer.num_tokens or rows
    if known <= stated < rows:
        return
    own = str(rows) if known >= rows else f"{rows}, {known} without padding"
    raise CheckpointError(
        f"{place}: vocab_size is {stated!r}, and the model's is {own}; it is a head of another "
        "model"
    )


def target_ids(folder: HeadFolder, own: int, vocab: int) -> npt.NDArray[np.int64]:
    """The target's id of each of a head's, int64[own].

    own: the width of its logits. vocab: that of the target's. Raises CheckpointError where `d2t` is
    missing, of another shape, or names an id that the target does not have, or one twice.
    """
    offsets = folder.offsets
    if offsets is None:
        if own != vocab:
            raise CheckpointError(
                f"{folder.path}: its vocabulary has {own} tokens and the model's {vocab}, and "
                "tensor d2t, which says which these are, is missing; the file is incomplete"
            )
        return np.arange(own)
    if offsets.shape != (own,):
        raise CheckpointError(
            f"{folder.path}: tensor d2t has shape {list(offsets.shape)}, draft_vocab_size is {own}"
        )
    ids = np.arange(own) + offsets
    if ids.size and (ids.min() < 0 or ids.max() >= vocab):
        wrong = int(ids.min() if ids.min() < 0 else ids.max())
        raise CheckpointError(
            f"{folder.path}: tensor d2t names token {wrong}, and the model has {vocab}; it is a "
            "head of another model"
        )
    if len(np.unique(ids)) != own:
        raise CheckpointError(f"{folder.path}: tensor d2t names a token twice; fetch it again")
    return ids
