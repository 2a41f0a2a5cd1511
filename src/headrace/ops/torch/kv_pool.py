"""The paged KV cache on a device: blocks of bytes, in which the layers of a table lie.

Every block is as long as the table whose layers keep most, so that it may be of any table. Of a
layer there are codes of K [slot of the block][head][dimension], their scales, then those of V.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from headrace.ops.batch_checks import check_cache
from headrace.ops.kv import KV_CODECS, KVCacheSpec, KVCodec, LayerPlace
from headrace.ops.torch import kv_codecs
from headrace.ops.torch.rounding import quotient


@dataclass(frozen=True)
class StoredPart:
    """K or V of one layer."""

    codec: KVCodec
    codes: torch.Tensor
    """[blocks, block_size, kv_heads, codes of a head], a view of the pool."""
    scales: torch.Tensor | None
    """f32[blocks, block_size, kv_heads], a view too; None where the codec has none."""
    turned: bool
    """Whether heads are stored turned."""
    of_layer: float = 1.0
    """What fp8 stores is multiplied by."""

    def write(self, blocks: torch.Tensor, slots: torch.Tensor, heads: torch.Tensor) -> None:
        """Store heads f32[N, kv_heads, width], those of token i in a slot of blocks[i]."""
        if self.codec == "fp8":
            heads = quotient(heads, self.of_layer, heads)
        stored = kv_codecs.encode(self.codec, kv_codecs.turned(heads) if self.turned else heads)
        self.codes[blocks, slots] = stored.codes
        if self.scales is not None and stored.scales is not None:
            self.scales[blocks, slots] = stored.scales

    def read(self, blocks: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """What lies in these slots [...]: f32[..., kv_heads, width], still turned."""
        scales = None if self.scales is None else self.scales[blocks, slots]
        return kv_codecs.decode(self.codec, self.codes[blocks, slots], scales, self.of_layer)


@dataclass(frozen=True)
class StoredKV:
    """K and V of one layer."""

    k: StoredPart
    v: StoredPart | None
    """None where values are latent: the last value_dim dimensions of the keys."""
    value_dim: int
    near: StoredKV | None = None
    """The same in bf16, of which a token reads its own span; in blocks of a table of its own."""

    @property
    def rounds_q(self) -> bool:
        """Whether q is rounded to bfloat16, as K is in it."""
        return self.k.codec == "bf16"

    @property
    def values(self) -> StoredPart:
        """The part in which values lie."""
        return self.v or self.k

    def read(self, blocks: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of these slots [...]: f32[..., kv_heads, width] each."""
        keys = self.k.read(blocks, slots)
        if self.v is None:
            return keys, keys[..., keys.shape[-1] - self.value_dim :]
        return keys, self.v.read(blocks, slots)


@dataclass(frozen=True)
class KVPool:
    """The blocks of a cache."""

    block_size: int
    pages: torch.Tensor
    """uint8[blocks, block_bytes]"""
    places: Mapping[tuple[int, int], StoredKV]
    """By table and index."""

    def of(self, place: LayerPlace) -> StoredKV:
        """K and V of a layer that lies there."""
        return self.places[place.table, place.index]


def new_pool(spec: KVCacheSpec, device: torch.device) -> KVPool:
    """Zeroed storage. Raises ValueError naming what `spec` asks that cannot be, and MemoryError
    where the device has no room."""
    check_cache(spec, KV_CODECS)
    try:
        pages = torch.zeros((spec.num_blocks, spec.block_bytes), dtype=torch.uint8, device=device)
    except RuntimeError as error:
        # The error of a full device is one; that of a full processor's memory has no type.
        if isinstance(error, torch.OutOfMemoryError) or device.type == "cpu":
            raise MemoryError(str(error)) from error
        raise
    places: dict[tuple[int, int], StoredKV] = {}
    ends: dict[int, int] = {}
    kept = {place for place in spec.places if place is not None}
    for place in sorted(kept, key=lambda place: (place.table, place.index)):
        places[place.table, place.index] = _stored(spec, place, pages, ends)
    for place in sorted(kept, key=lambda place: place.near or (0, 0)):
        if place.near is not None:
            at = (place.table, place.index)
            places[at] = replace(places[at], near=_near(spec, place, pages, ends))
    return KVPool(spec.block_size, pages, places)


def _stored(
    spec: KVCacheSpec, place: LayerPlace, pages: torch.Tensor, ends: dict[int, int]
) -> StoredKV:
    k_codec, v_codec = spec.codecs(place)
    cut = _Cut(spec, place, pages, ends, place.table)
    value_dim = place.value_dim or place.head_dim
    k = cut.part(k_codec, place.head_dim, _turned(k_codec, place), place.k_scale)
    if place.latent:
        return StoredKV(k, None, value_dim)
    v = cut.part(v_codec, value_dim, _turned(v_codec, place), place.v_scale)
    return StoredKV(k, v, value_dim)


def _near(
    spec: KVCacheSpec, place: LayerPlace, pages: torch.Tensor, ends: dict[int, int]
) -> StoredKV:
    """What is kept in bf16 too, turned where the codes are."""
    assert place.near is not None
    k_codec, v_codec = spec.codecs(place)
    for codec in (k_codec,) if place.latent else (k_codec, v_codec):
        if KV_CODECS[codec].value_bits > 8:
            raise ValueError(
                "positions near a token are kept in bf16 beside kinds of eight and four bits, not "
                f"beside {codec}"
            )
    cut = _Cut(spec, place, pages, ends, place.near[0])
    value_dim = place.value_dim or place.head_dim
    k = cut.part("bf16", place.head_dim, _turned(k_codec, place))
    if place.latent:
        return StoredKV(k, None, value_dim)
    return StoredKV(k, cut.part("bf16", value_dim, _turned(v_codec, place)), value_dim)


def _turned(codec: KVCodec, place: LayerPlace) -> bool:
    return KV_CODECS[codec].rotated and not place.latent


@dataclass
class _Cut:
    """A knife for the parts of one place: each begins where the last one of its table ended, which
    `ends` keeps for all tables."""

    spec: KVCacheSpec
    place: LayerPlace
    pages: torch.Tensor
    ends: dict[int, int]
    table: int

    def part(self, codec: KVCodec, width: int, turned: bool, of_layer: float = 1.0) -> StoredPart:
        """The next part: codes, and scales behind them."""
        heads, size = self.place.num_kv_heads, KV_CODECS[codec]
        codes = self._view(kv_codecs.value_type(codec), heads, width * size.value_bits // 8)
        scales = None
        if size.scale_bytes:
            scales = self._view(torch.float32, heads, size.scale_bytes)[..., 0]
        return StoredPart(codec, codes, scales, turned, of_layer)

    def _view(self, kind: torch.dtype, heads: int, head_bytes: int) -> torch.Tensor:
        block_size = self.spec.block_size
        start = self.ends.get(self.table, 0)
        end = self.ends[self.table] = start + block_size * heads * head_bytes
        shape = (self.spec.num_blocks, block_size, heads, -1)
        return self.pages[:, start:end].view(kind).unflatten(1, shape[1:])
