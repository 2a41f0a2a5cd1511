"""Medusa: heads that guess the tokens after next of the last one alone, each a place of its own.

    x = features of t, behind the final norm
    x = x + silu(linear(x))                       once for each block of a head
    logits of t + 1 + j = lm_head(x)              of head j, counted from 1

All places come from one pass. There is no attention; what the cache keeps of a token is nothing
that is read, and as little as every kind of cache can store.

Sources: arXiv 2401.10774; FasterDecoding's medusa_model.py for arithmetic and names
(`J.B.linear`, `J.N`), text-generation-inference's medusa.py for folders whose heads have no matrix
of logits, vLLM's medusa.py for its names (`blocks.J.layers.B`, `lm_heads.J`).
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from headrace.errors import CheckpointError
from headrace.models.config import DecoderConfig
from headrace.models.heads.head import Carried, DraftHead, FirstPass
from headrace.models.loader import Loader
from headrace.models.loading.linear import Linear
from headrace.models.model import NORMED, Model
from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape, KVCacheArrays, RaggedBatch
from headrace.ops.operands import Array
from headrace.weights.hugging_face.head_folder import HeadFolder
from headrace.weights.model_config.config_reader import ConfigReader

MAX_HEADS = 64
"""Published folders have 3 to 5; the bound is for hostile configs."""
MAX_BLOCKS = 16
LEAST_DIM = 32
"""Values of a head of K: every type of cache stores blocks of so many."""


class MedusaHead(DraftHead):
    """The heads of Medusa."""

    feature_layers = (NORMED,)

    def __init__(
        self, target: Model, ops: Ops, loader: Loader, num_heads: int, num_blocks: int
    ) -> None:
        """num_blocks: of each head. loader: of tensors named as vLLM's."""
        hidden = target.config.hidden_size
        shape = AttentionShape(1, 1, LEAST_DIM, scale=1.0)
        kept = DecoderConfig("medusa", None, hidden, hidden, 1, shape, None,
                             target.max_positions, 1e-6)  # fmt: skip
        super().__init__(target, kept, ops, loader)
        self.block_drafts = num_heads
        self._blocks = [
            [
                loader.linear([f"model.blocks.{head}.layers.{at}"], [hidden], hidden, bias=None)
                for at in range(num_blocks)
            ]
            for head in range(num_heads)
        ]
        names = [f"model.lm_heads.{head}" for head in range(num_heads)]
        self._own_heads: list[Linear] = []
        if loader.has(f"{names[0]}.weight"):
            rows = [target.vocab_size]
            self._own_heads = [loader.linear([name], rows, hidden, bias=None) for name in names]
        loader.finish()
        self.weight_bytes = loader.total_bytes

    @property
    def model_type(self) -> str:
        """The kind of head."""
        return "medusa"

    def _begin(self, given: FirstPass) -> tuple[Array, Carried]:
        """Carried are the logits of the later places, each f32[R, vocab_size]."""
        batch = given.batch
        last = self._ops.take_rows(given.features, batch.query_start[1:] - np.int32(1))
        places = [self._logits(head, last) for head in range(min(given.most, self.block_drafts))]
        ends = np.searchsorted(batch.query_start[1:], batch.logit_rows, side="right")
        return self._ops.take_rows(places[0], ends.astype(np.int32)), tuple(places[1:])

    def go_on(
        self, batch: RaggedBatch, kv: KVCacheArrays, carried: Carried, place: int
    ) -> tuple[Array, Carried]:
        """As of DraftHead: nothing is computed any more."""
        del batch, kv, place
        return carried[0], carried[1:]

    def _logits(self, head: int, x: Array) -> Array:
        for block in self._blocks[head]:
            x = self._ops.added(x, self._ops.activation(block(x), "silu"))
        if not self._own_heads:
            return self._target.logits(x, None)
        return self._own_heads[head](x)


def load_medusa(folder: HeadFolder, target: Model, ops: Ops) -> MedusaHead:
    """The heads in a folder, for their target.

    Raises UnsupportedModelError for what is not implemented and CheckpointError where tensors are
    missing, damaged or of another model.
    """
    reader = ConfigReader(folder.config)
    reader.unused(*_OF_NO_EFFECT)
    reader.expect("model_type", str, ("medusa",), "medusa")
    reader.expect("original_lm_head", bool, (False,), False)
    hidden, vocab = target.config.hidden_size, target.vocab_size
    for key, own in (("hidden_size", hidden), ("vocab_size", vocab)):
        if (stated := reader.size(key, own)) != own:
            raise CheckpointError(
                f"{folder.path}: {key} is {stated}, and the model's is {own}; these are heads of "
                "another model"
            )
    reader.expect("truncated_vocab_size", int, (vocab,), vocab)
    own_words = reader.raw("medusa_num_heads") is not None
    heads_key, blocks_key = _KEYS[0] if own_words else _KEYS[1]
    heads = reader.size(heads_key, most=MAX_HEADS)
    blocks = reader.size(blocks_key, 1, most=MAX_BLOCKS)
    reader.finish()
    tensors = {
        own: tensor.renamed(own)
        for name, tensor in folder.tensors.items()
        for own in [_as_vllm(name, blocks)]
    }
    checkpoint = replace(folder.checkpoint, tensors=tensors)
    return MedusaHead(target, ops, Loader(checkpoint, ops), heads, blocks)


_KEYS = (("medusa_num_heads", "medusa_num_layers"), ("num_heads", "num_hidden_layers"))
_OF_NO_EFFECT = (
    "architectures", "base_model_name_or_path", "torch_dtype", "dtype", "max_paths", "topk",
    "medusa_fc_bias", "max_seq_len", "version",
)  # fmt: skip
"""Keys that say where heads are from, or how trees of drafts are made of them."""
_PREFIX = re.compile(r"^model\.(medusa_heads?\.)?")
_BLOCK = re.compile(r"^([0-9]+)\.([0-9]+)\.linear\.(weight|bias)$")
_LAST = re.compile(r"^([0-9]+)\.([0-9]+)\.(weight|bias)$")


def _as_vllm(name: str, blocks: int) -> str:
    """A tensor's name in vLLM's words."""
    own = _PREFIX.sub("", name)
    if (found := _BLOCK.match(own)) is not None:
        own = f"blocks.{found[1]}.layers.{found[2]}.{found[3]}"
    elif (found := _LAST.match(own)) is not None and found[2] == str(blocks):
        own = f"lm_heads.{found[1]}.{found[3]}"
    return f"model.{own}"
