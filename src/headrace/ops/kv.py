"""What attention works on: heads of a layer, the paged KV cache and the ragged batch of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headrace.ops.sampling_rows import DrawHandle

KVCodec = Literal["f32", "bf16", "fp8", "int8", "q8_0", "q4_0"]
"""Types that K and V are stored in. Of the last three a token of a head has a scale of its own, and
q8_0 and q4_0 are turned by a Hadamard matrix first, as llama.cpp does with its kinds of these names
(which have a scale for each 32 values); docs/kernels.md has the arithmetic."""


@dataclass(frozen=True)
class KVCodecSize:
    """The bytes that a codec takes for one token of a head, of K and of V alike."""

    value_bits: int
    scale_bytes: int = 0
    """Beside the values of the token, whatever their number."""
    rotated: bool = False
    """Stored turned by a Hadamard matrix, except where values are latent."""

    def token_bytes(self, width: int) -> int:
        """Bytes of `width` values and their scale."""
        return width * self.value_bits // 8 + self.scale_bytes


KV_CODECS: Mapping[KVCodec, KVCodecSize] = {
    "f32": KVCodecSize(32),
    "bf16": KVCodecSize(16),
    "fp8": KVCodecSize(8),
    "int8": KVCodecSize(8, 4),
    "q8_0": KVCodecSize(8, 4, rotated=True),
    "q4_0": KVCodecSize(4, 4, rotated=True),
}
"""Of each codec, as in the tables of native/kv_codecs.h."""


NEAR_SPAN = 64
"""Positions of a span that may be kept in bf16 for its own tokens: spans of attention, at multiples
of this."""


@dataclass(frozen=True)
class AttentionShape:
    """Heads of one attention layer. Row layout of a fused projection: q heads and k heads of
    head_dim each, then v heads of value_dim; without v heads where values are latent."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    """Positions a token sees, its own included; 0 means all before it."""
    softcap: float = 0.0
    """Scores become softcap * tanh(score / softcap) after scaling; 0 means they stay."""
    chunk: int = 0
    """Positions are cut into chunks of so many, and a token sees those of its own that are not
    after it; 0 means none."""
    value_dim: int = 0
    """Width of a value; 0 means head_dim."""
    latent: bool = False
    """Values are the last value_dim dimensions of the keys and are stored once, with them (MLA,
    arXiv 2405.04434, absorbed)."""

    @property
    def reach(self) -> int:
        """Positions a token reads at most, 0 for all: the window, or the chunk."""
        return self.window or self.chunk

    @property
    def value_width(self) -> int:
        """Width of a value, head_dim where value_dim is 0."""
        return self.value_dim or self.head_dim

    @property
    def row_width(self) -> int:
        """Values in a row of the fused projection."""
        values = 0 if self.latent else self.num_kv_heads * self.value_width
        return (self.num_heads + self.num_kv_heads) * self.head_dim + values

    @property
    def output_width(self) -> int:
        """Values in the output of all heads."""
        return self.num_heads * self.value_width


@dataclass(frozen=True)
class LayerPlace:
    """The place of one layer's K and V, and their widths."""

    table: int
    """The block table that names its blocks."""
    index: int
    """Which of the layers of a block it is."""
    num_kv_heads: int
    head_dim: int
    value_dim: int = 0
    """Width of a value; 0 means head_dim."""
    latent: bool = False
    """Values are the last value_dim dimensions of the keys; V is not stored."""
    k_codec: KVCodec | None = None
    """None: that of the spec."""
    v_codec: KVCodec | None = None
    near: tuple[int, int] | None = None
    """Table and index of the place where K and V are kept in bf16 too, turned where they are: a
    token reads positions of its own span of NEAR_SPAN there, and the others as they are stored.
    None: all as they are stored. Only for codecs of eight and four bits."""
    k_scale: float = 1.0
    """What fp8 stores is multiplied by; without a meaning for other codecs. From 2^-60 to 2^60."""
    v_scale: float = 1.0
    """The same of V, where values are not latent."""


@dataclass(frozen=True)
class KVCacheSpec:
    """The size and storage of a paged KV cache. Codecs of K and V are independent.

    A block holds `block_size` tokens of the layers of one table, in the order of their indices. All
    blocks are as long as the widest table needs, so that each may be of any table.
    """

    places: tuple[LayerPlace | None, ...]
    """Of each layer of the model, None where it keeps nothing. Layers that share K and V have one
    place."""
    block_size: int
    """Tokens a block holds; a power of two from 16 to the backend's attention span."""
    num_blocks: int
    k_codec: KVCodec
    """Of layers whose places name none."""
    v_codec: KVCodec

    @classmethod
    def uniform(
        cls,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        block_size: int,
        num_blocks: int,
        k_codec: KVCodec,
        v_codec: KVCodec,
        *,
        value_dim: int = 0,
        latent: bool = False,
    ) -> KVCacheSpec:
        """A cache of layers that keep the same, all in one table."""
        places = tuple(
            LayerPlace(0, index, num_kv_heads, head_dim, value_dim, latent)
            for index in range(num_layers)
        )
        return cls(places, block_size, num_blocks, k_codec, v_codec)

    def place(self, layer: int) -> LayerPlace:
        """Where K and V of a layer lie; ValueError for a layer that has no place."""
        if not 0 <= layer < len(self.places):
            raise ValueError(f"layer {layer} is not in [0, {len(self.places)})")
        place = self.places[layer]
        if place is None:
            raise ValueError(f"layer {layer} keeps no K and V")
        return place

    def codecs(self, place: LayerPlace) -> tuple[KVCodec, KVCodec]:
        """Of K and V of a layer that lies there."""
        return place.k_codec or self.k_codec, place.v_codec or self.v_codec

    def token_bytes(self, place: LayerPlace) -> int:
        """Bytes of one token in a layer that lies there, K and V, without what is kept near."""
        return stored_bytes(place, *self.codecs(place))

    @property
    def block_bytes(self) -> int:
        """Bytes of one block: of the table whose layers keep most."""
        tables = Counter[int]()
        for place in {place for place in self.places if place is not None}:
            tables[place.table] += self.token_bytes(place)
            if place.near is not None:
                tables[place.near[0]] += stored_bytes(place, "bf16", "bf16")
        return self.block_size * max(tables.values(), default=0)


def stored_bytes(place: LayerPlace, k_codec: KVCodec, v_codec: KVCodec) -> int:
    """Bytes of K and V of one token of a layer in these codecs."""
    head_bytes = KV_CODECS[k_codec].token_bytes(place.head_dim)
    if not place.latent:
        head_bytes += KV_CODECS[v_codec].token_bytes(place.value_dim or place.head_dim)
    return place.num_kv_heads * head_bytes


@dataclass(frozen=True)
class KVCacheArrays:
    """K and V of all layers; `arrays` belongs to the backend. Fresh arrays are zero."""

    spec: KVCacheSpec
    arrays: Any


@dataclass(frozen=True)
class RaggedBatch:
    """The new tokens of one step: R requests, N tokens, prefill chunks and decodes mixed freely."""

    token_ids: npt.NDArray[np.int32]
    """int32[N]"""
    positions: npt.NDArray[np.int32]
    """int32[N], absolute position of each token in its request"""
    query_start: npt.NDArray[np.int32]
    """int32[R + 1], half-open ranges of each request's tokens; [0] is 0, [R] is N"""
    block_tables: tuple[npt.NDArray[np.int32], ...]
    """The block tables that `KVCacheSpec.places` name, each int32[R, B]: ids of each request's
    blocks in order; unused entries are 0 and never read. Token at position p of request r lies in
    block table[r, p // block_size] at offset p % block_size. Every position up to the last new one
    is covered, but for those that lie before the windows of all new tokens in every layer of the
    table: their entries are 0, unread."""
    logit_rows: npt.NDArray[np.int32]
    """int32[L], rows of N whose logits are wanted, ascending"""

    @property
    def num_tokens(self) -> int:
        """N."""
        return len(self.token_ids)

    @property
    def num_requests(self) -> int:
        """R."""
        return len(self.query_start) - 1

    def following(self, drawing: DrawHandle, drawn_rows: npt.NDArray[np.int32]) -> FollowingBatch:
        """The same with ids that a step before it draws."""
        return FollowingBatch(
            self.token_ids,
            self.positions,
            self.query_start,
            self.block_tables,
            self.logit_rows,
            drawing,
            drawn_rows,
        )

    def block_table(self, place: LayerPlace) -> npt.NDArray[np.int32]:
        """The table that names the blocks of a layer; ValueError where there is none."""
        return self._table(place.table)

    def near_table(self, place: LayerPlace) -> npt.NDArray[np.int32] | None:
        """The table of the blocks of what a layer keeps near, None where it keeps nothing."""
        return None if place.near is None else self._table(place.near[0])

    def _table(self, table: int) -> npt.NDArray[np.int32]:
        if table >= len(self.block_tables):
            raise ValueError(
                f"the batch has {len(self.block_tables)} block tables, and the blocks of a layer "
                f"are in table {table}"
            )
        return self.block_tables[table]


@dataclass(frozen=True)
class FollowingBatch(RaggedBatch):
    """A batch of which some ids are those that a step before it draws, and the host does not know
    yet: `token_ids` is 0 there."""

    drawing: DrawHandle
    drawn_rows: npt.NDArray[np.int32]
    """int32[N], for each token the row of the drawing that gives it; -1: it is in token_ids."""


@dataclass(frozen=True)
class BoundBatch(RaggedBatch):
    """A batch that a backend has made ready for the layers of one KV cache; see `Ops.bind`."""

    kv: KVCacheArrays
    bound: Any
    """Of the backend."""
