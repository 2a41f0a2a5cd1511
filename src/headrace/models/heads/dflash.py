"""DFlash: a block of drafts in one pass, of marks in the places of the tokens that are to come.

    c = norm(fc(features of t)) of every token t that the target has been at
    x = embeddings of the last token and of B - 1 marks, a block at the places from that token on
    k, v of a layer: k_proj(c), v_proj(c) before the block, k_proj(norm(x)), v_proj(norm(x)) in it
    h = x + o_proj(attention(rope(q_norm(q)), rope(k_norm(k)), v))      q of the block alone
    x = h + mlp(norm(h))
    logits of the j-th draft = head(norm(x at the j-th mark))

Tokens of a block see all of it and all before it; in layers with a window, or where the config says
is_causal, those before them. K and V of c are the same in every block, so that they are kept; what
a block has written is written over once the target has been there. The table and the head are the
target's where the folder has none, without factors of the target's family.

Sources: arXiv 2602.06036; z-lab's dflash/model.py for arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.models.blocks import Attention
from headrace.models.families.qwen3 import Qwen3Layer
from headrace.models.heads.dflash_config import DflashConfig, read_dflash
from headrace.models.heads.head import Carried, DraftHead, FirstPass, SomeTokens, target_ids
from headrace.models.loader import Loader
from headrace.models.loading.reader import EMBEDDING, HEAD
from headrace.models.model import Model
from headrace.ops.interface import Ops
from headrace.ops.kv import BoundBatch, KVCacheArrays, RaggedBatch
from headrace.ops.operands import Array, EmbeddingWeight
from headrace.weights.hugging_face.head_folder import HeadFolder


class DflashHead(DraftHead):
    """A head of DFlash."""

    def __init__(
        self,
        target: Model,
        config: DflashConfig,
        ops: Ops,
        loader: Loader,
        ids: npt.NDArray[np.int64] | None,
    ) -> None:
        """ids: int64[draft_vocab_size], the target's id of each of its own; None where it has no
        head of its own."""
        decoder = config.decoder
        super().__init__(target, decoder, ops, loader)
        hidden, eps = decoder.hidden_size, decoder.norm_eps
        self.feature_layers = config.feature_layers
        self.block_drafts = config.block_size - 1
        self.max_positions = min(self.max_positions, decoder.max_positions)
        self._block = config
        self._own_embedding: EmbeddingWeight | None = None
        if loader.has(EMBEDDING):
            rows = max(loader.rows(EMBEDDING), target.vocab_size)
            self._own_embedding = loader.embedding(EMBEDDING, rows, hidden)
        width = len(config.feature_layers) * config.target_hidden_size
        self._fc = loader.linear(["model.fc"], [hidden], width, bias=False)
        self._context_norm = loader.norm("model.hidden_norm", hidden, eps)
        self._layers = [Qwen3Layer(decoder, loader, at) for at in range(decoder.num_layers)]
        self._norm = loader.norm("model.norm", hidden, eps)
        self._own_head: SomeTokens | None = None
        if ids is not None:
            self._own_head = SomeTokens(loader, ops, ids, target.vocab_size, hidden)
        loader.finish()
        self.weight_bytes = loader.total_bytes

    @property
    def model_type(self) -> str:
        """The kind of head."""
        return "dflash"

    def _begin(self, given: FirstPass) -> tuple[Array, Carried]:
        """Carried are the logits of the later places, each f32[R, vocab_size]."""
        ops, batch, kv = self._ops, given.batch, given.kv
        context = ops.norm(self._fc(given.features), self._context_norm)
        blocks = _Blocks.behind(batch, self._block.block_size)
        x = self._embedded(batch, blocks)
        step = self._step(blocks.joined(batch), kv)
        sees_all = ops.bind(blocks.queries(sees_all=True), kv)
        sees_past = ops.bind(blocks.queries(sees_all=False), kv)
        for index, layer in enumerate(self._layers):
            attention = layer.attention
            assert isinstance(attention, Attention)
            inner = ops.norm(x, layer.input_norm)
            qkv = attention.qkv_proj(ops.take_rows(ops.stacked((context, inner)), blocks.order))
            attention.rotate(qkv, step, stores=True)
            if not blocks.count:
                continue
            sight: BoundBatch = sees_past if self._block.causal[index] else sees_all
            attended = ops.paged_attention(
                ops.take_rows(qkv, blocks.rows), attention.shape, kv, index, sight
            )
            h = attention.o_proj(attended, residual=x)
            x = layer.mlp(h, step, norm=layer.post_norm, residual=h)
        if not blocks.count:
            return self._logits(x), ()
        places = min(given.most, self.block_drafts)
        logits = self._logits(ops.take_rows(x, blocks.marks(places)))
        first = np.arange(blocks.count, dtype=np.int32)
        # Requests without a block are not asked for what they carry.
        of_request = np.minimum(np.cumsum(blocks.draws) - 1, first[-1]).clip(0).astype(np.int32)
        later = (of_request + np.int32(place * blocks.count) for place in range(1, places))
        return ops.take_rows(logits, first), tuple(ops.take_rows(logits, at) for at in later)

    def go_on(
        self, batch: RaggedBatch, kv: KVCacheArrays, carried: Carried, place: int
    ) -> tuple[Array, Carried]:
        """As of DraftHead: nothing is computed any more."""
        del batch, kv, place
        return carried[0], carried[1:]

    def _embedded(self, batch: RaggedBatch, blocks: _Blocks) -> Array:
        """f32[blocks * block_size, hidden]."""
        size = self._block.block_size
        token_ids = np.full((blocks.count, size), self._block.mask_id, np.int32)
        token_ids[:, 0] = batch.token_ids[batch.query_start[1:][blocks.draws] - 1]
        scale = self._block.embedding_scale
        if self._own_embedding is None:
            return self._target.embed_tokens(token_ids.reshape(-1), scale=scale)
        return self._ops.embedding(self._own_embedding, token_ids.reshape(-1), scale=scale)

    def _logits(self, x: Array) -> Array:
        scale, softcap = self._block.logit_scale, self._block.logit_softcap
        if self._own_head is None:
            return self._target.logits(x, self._norm, scale=scale, softcap=softcap)
        return self._own_head(x, self._norm, scale=scale, softcap=softcap)


@dataclass(frozen=True)
class _Blocks:
    """Blocks behind the requests of a batch that draw."""

    size: int
    draws: npt.NDArray[np.bool_]
    """bool[R], which do."""
    ends: npt.NDArray[np.int32]
    """int32[D], the position of the last entry of each that does."""
    order: npt.NDArray[np.int32]
    """int32[N + D * size]: entries and blocks of each request in turn, of the N entries followed by
    the blocks."""
    rows: npt.NDArray[np.int32]
    """int32[D * size], where the blocks are in that."""
    tables: tuple[npt.NDArray[np.int32], ...]
    """The block tables of those that draw."""

    @classmethod
    def behind(cls, batch: RaggedBatch, size: int) -> _Blocks:
        """Blocks of so many tokens."""
        ends = batch.query_start[1:] - 1
        draws = np.isin(ends, batch.logit_rows)
        total, spans, block = int(batch.query_start[-1]), list[Any](), 0
        for start, end, has_block in zip(batch.query_start, ends + 1, draws, strict=False):
            spans.append(np.arange(start, end))
            if has_block:
                spans.append(np.arange(total + block * size, total + (block + 1) * size))
                block += 1
        order = np.concatenate(spans).astype(np.int32)
        return cls(
            size,
            draws,
            batch.positions[ends[draws]],
            order,
            np.flatnonzero(order >= total).astype(np.int32),
            tuple(table[draws] for table in batch.block_tables),
        )

    @property
    def count(self) -> int:
        """D."""
        return len(self.ends)

    def _positions(self) -> npt.NDArray[np.int32]:
        """int32[D * size], of the tokens of blocks."""
        ahead = np.arange(1, self.size + 1, dtype=np.int32)
        return (self.ends[:, None] + ahead).reshape(-1)

    def joined(self, batch: RaggedBatch) -> RaggedBatch:
        """Entries and blocks as one batch, whose K and V are written."""
        positions = np.concatenate([batch.positions, self._positions()])[self.order]
        counts = np.diff(batch.query_start) + self.draws * self.size
        query_start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return RaggedBatch(
            np.zeros(len(self.order), np.int32), positions, query_start, batch.block_tables, _NONE
        )

    def queries(self, *, sees_all: bool) -> RaggedBatch:
        """The tokens of blocks, each by itself, so that it sees what is up to its position: that of
        the end of its block, or its own."""
        positions = self._positions()
        if sees_all:
            positions = np.repeat(self.ends + np.int32(self.size), self.size)
        starts = np.arange(len(positions) + 1, dtype=np.int32)
        tables = tuple(np.repeat(table, self.size, axis=0) for table in self.tables)
        return RaggedBatch(np.zeros(len(positions), np.int32), positions, starts, tables, _NONE)

    def marks(self, places: int) -> npt.NDArray[np.int32]:
        """int32[places * D], the rows of the first marks of all blocks, place after place."""
        firsts = np.arange(self.count) * self.size
        return (np.arange(1, places + 1)[:, None] + firsts).reshape(-1).astype(np.int32)


_NONE = np.zeros(0, np.int32)


def load_dflash(folder: HeadFolder, target: Model, ops: Ops) -> DflashHead:
    """The head in a folder, for its target.

    Raises UnsupportedModelError for what is not implemented and CheckpointError where tensors are
    missing, damaged or of another model.
    """
    config = read_dflash(folder, target)
    hidden, tensors = target.config.hidden_size, _without_copies(folder.tensors)
    if config.target_hidden_size != hidden:
        raise CheckpointError(
            f"{folder.path}: it reads features of {config.target_hidden_size} values, and the "
            f"model's have {hidden}; it is a head of another model"
        )
    own = config.decoder.hidden_size
    for name in (EMBEDDING, HEAD):
        if name not in tensors and own != hidden:
            raise CheckpointError(
                f"{folder.path}: {name} is missing, and the model's is {hidden} wide where the "
                f"head's layers are {own}; it is a head of another model"
            )
    if HEAD not in tensors and folder.offsets is not None:
        raise CheckpointError(
            f"{folder.path}: {HEAD} is missing, and tensor d2t says which of the model's ids it "
            "has; the file is incomplete"
        )
    ids = None
    if HEAD in tensors:
        ids = target_ids(folder, config.draft_vocab_size, target.vocab_size)
    checkpoint = replace(folder.checkpoint, tensors=tensors)
    return DflashHead(target, config, ops, Loader(checkpoint, ops), ids)


def _without_copies(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Without what `speculators` keeps of the target for training."""
    copies = ("model.verifier_lm_head.weight", "model.verifier_norm.weight")
    return {name: tensor for name, tensor in tensors.items() if name not in copies}
