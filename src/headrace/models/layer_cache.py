"""What each layer of a model keeps of a request, and how that lies in one pool of blocks.

A model declares it layer by layer; all else follows from there. Layers that keep K and V equally
long form a group: its tokens have one lifetime. A block holds `block_size` tokens of the layers of
one block table; a group of layers that do not fit into a block has several tables. All blocks are
as long as the widest table, so any group may take any of them. Layers are packed into tables so
that as little of the blocks as possible is empty, and then so that there are few tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import UnsupportedModelError
from headrace.models.visible import Visible
from headrace.ops.kv import NEAR_SPAN, KVCacheSpec, KVCodec, LayerPlace, stored_bytes
from headrace.weights.storage.cache_scales import LayerScales, layer_scales
from headrace.weights.tensors.tensor import Tensor

MAX_CAPACITIES = 256
"""Sizes of blocks that are tried. Published models have at most some 130 layers, and no more sizes;
a hostile config of thousands of unequal layers would take seconds without a limit."""


@dataclass(frozen=True)
class LayerKV:
    """K and V of a layer's tokens."""

    num_kv_heads: int
    head_dim: int
    window: int = 0
    """Positions that a token reads, its own included; 0 means all of them."""
    value_dim: int = 0
    """Width of a value; 0 means head_dim."""
    latent: bool = False
    """Values are the last value_dim dimensions of the keys and are not stored again."""
    chunked: bool = False
    """A token reads those of its own chunk of `window` positions, not the last `window`."""

    @property
    def values(self) -> int:
        """Values that a token takes in the cache."""
        values = 0 if self.latent else self.value_dim or self.head_dim
        return self.num_kv_heads * (self.head_dim + values)


@dataclass(frozen=True)
class SharedKV:
    """A reference to another layer, whose K and V this one reads; it keeps nothing itself."""

    layer: int


LayerCache = LayerKV | SharedKV | None
"""What one layer keeps; None for a layer without attention."""


@dataclass(frozen=True)
class CacheKind:
    """The types that K and V of a layer are stored in."""

    k: KVCodec
    v: KVCodec
    near: bool = False
    """A token reads the span of NEAR_SPAN positions that it is in in bf16, in which that is kept as
    long as tokens of it come."""

    @property
    def name(self) -> str:
        """As in reports: `int8`, `q8_0,q4_0`, `q4_0+near`."""
        types = self.k if self.k == self.v else f"{self.k},{self.v}"
        return f"{types}+near" if self.near else types


@dataclass(frozen=True)
class CacheKinds:
    """The kinds of layers that see everything, and of those with a window or chunks."""

    full: CacheKind
    sliding: CacheKind

    @classmethod
    def of(cls, k: KVCodec, v: KVCodec | None = None) -> CacheKinds:
        """One kind for all layers; v: None for that of K."""
        kind = CacheKind(k, v or k)
        return cls(kind, kind)

    @property
    def plain(self) -> bool:
        """Whether all layers have one kind, and nothing is kept near."""
        return self.full == self.sliding and not self.full.near

    def of_layer(self, kept: LayerKV) -> CacheKind:
        """The kind of a layer that keeps this."""
        return self.sliding if kept.window else self.full


@dataclass(frozen=True)
class CacheGroup:
    """Layers whose K and V are of use to a request equally long."""

    window: int = 0
    """Positions its layers still read of a request's past; 0 means all of them."""
    layers: tuple[int, ...] = (0,)
    num_tables: int = 1
    """Block tables, each of `layers_per_block` layers: blocks taken for `block_size` tokens."""
    chunked: bool = False
    """Its layers read the chunk of `window` positions that a token is in."""
    near: bool = False
    """It keeps in bf16 what layers store for good in another group."""

    @property
    def name(self) -> str:
        """A name of the group in its model, for figures."""
        if self.near:
            return "near"
        if not self.window:
            return "full"
        return f"{'chunk' if self.chunked else 'window'}_{self.window}"

    @property
    def visible(self) -> Visible:
        """The positions that its layers read."""
        return Visible(self.window, self.chunked)


ONE_GROUP = (CacheGroup(),)
"""Of a model all of whose layers see everything, where only numbers of blocks matter."""


@dataclass(frozen=True)
class CacheLayout:
    """The groups of a model and the place of each of its layers."""

    groups: tuple[CacheGroup, ...]
    places: tuple[LayerPlace | None, ...]
    """Of each layer; None where it keeps nothing."""
    layers: tuple[LayerCache, ...] = ()
    """What it was made of."""
    scales: Mapping[str, Tensor] = field(default_factory=dict, compare=False)
    """Of K and V in FP8, by the checkpoint's names of them."""

    def stored_as(self, kinds: CacheKinds) -> CacheLayout:
        """The layout of the same layers stored so, packed anew where their kinds differ.

        Raises what `layer_scales` does where a kind is fp8.
        """
        found = self if kinds.plain else cache_layout(self.layers, kinds)
        of_kinds = {kinds.full.k, kinds.full.v, kinds.sliding.k, kinds.sliding.v}
        if not self.scales or "fp8" not in of_kinds:
            return found
        return replace(found, places=_scaled(found.places, self.layers, layer_scales(self.scales)))

    @property
    def num_tables(self) -> int:
        """Blocks that `block_size` tokens take in all layers while they are inside all windows."""
        return sum(group.num_tables for group in self.groups)

    @property
    def layers_per_block(self) -> int:
        """Layers of the table that has most of them."""
        return 1 + max(place.index for place in self.places if place is not None)

    def tables(self, entries: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], ...]:
        """Block tables int32[R, B] for callers that number entries, not blocks, where entry e has
        the blocks [e * num_tables, (e + 1) * num_tables).
        """
        count = self.num_tables
        return tuple(entries * np.int32(count) + np.int32(table) for table in range(count))

    def spec(
        self, block_size: int, num_blocks: int, k_codec: KVCodec, v_codec: KVCodec
    ) -> KVCacheSpec:
        """A KV cache of so many blocks."""
        return KVCacheSpec(self.places, block_size, num_blocks, k_codec, v_codec)


def cache_layout(layers: Sequence[LayerCache], kinds: CacheKinds | None = None) -> CacheLayout:
    """The layout of layers that keep this.

    kinds: what they are stored in; None where all layers have one kind, whichever it is.

    Raises UnsupportedModelError where no layer keeps anything and where a layer shares with one
    that keeps none.
    """
    members: dict[_Lifetime, dict[int, LayerKV]] = {}
    for index, kept in enumerate(layers):
        if isinstance(kept, LayerKV):
            members.setdefault(_Lifetime(kept.window, kept.chunked), {})[index] = kept
            if kinds is not None and kinds.of_layer(kept).near:
                members.setdefault(_NEAR, {})[index] = kept
    if not members:
        raise UnsupportedModelError("no layer of the model keeps K and V")
    groups = []
    places: list[LayerPlace | None] = [None] * len(layers)
    near: dict[int, tuple[int, int]] = {}
    first_table = 0
    packed = _packed(
        [
            {index: _size(kept, lifetime.near, kinds) for index, kept in of_group.items()}
            for lifetime, of_group in members.items()
        ]
    )
    for (lifetime, of_group), tables in zip(members.items(), packed, strict=True):
        for table, indices in enumerate(tables):
            for within, index in enumerate(indices):
                kept = of_group[index]
                if lifetime.near:
                    near[index] = (first_table + table, within)
                    continue
                kind = None if kinds is None else kinds.of_layer(kept)
                places[index] = LayerPlace(
                    table=first_table + table,
                    index=within,
                    num_kv_heads=kept.num_kv_heads,
                    head_dim=kept.head_dim,
                    value_dim=kept.value_dim,
                    latent=kept.latent,
                    k_codec=None if kind is None else kind.k,
                    v_codec=None if kind is None else kind.v,
                )
        groups.append(
            CacheGroup(
                lifetime.window, tuple(of_group), len(tables), lifetime.chunked, lifetime.near
            )
        )
        first_table += len(tables)
    for index, at in near.items():
        place = places[index]
        places[index] = None if place is None else replace(place, near=at)
    for index, kept in enumerate(layers):
        if isinstance(kept, SharedKV):
            if not isinstance(layers[kept.layer], LayerKV):
                raise UnsupportedModelError(
                    f"layer {index} shares K and V with layer {kept.layer}, which keeps none"
                )
            places[index] = places[kept.layer]
    return CacheLayout(tuple(groups), tuple(places), tuple(layers))


class _Lifetime(NamedTuple):
    """The positions for which tokens of a group are of use, and whether they are kept near."""

    window: int
    chunked: bool
    near: bool = False


_NEAR = _Lifetime(NEAR_SPAN, chunked=True, near=True)


def _size(kept: LayerKV, near: bool, kinds: CacheKinds | None) -> int:
    """What a token of a layer takes: bytes, or values where all layers have one kind, so that they
    lie alike whatever it is.
    """
    if kinds is None:
        return kept.values
    kind = CacheKind("bf16", "bf16") if near else kinds.of_layer(kept)
    place = LayerPlace(0, 0, kept.num_kv_heads, kept.head_dim, kept.value_dim, kept.latent)
    return stored_bytes(place, kind.k, kind.v)


def _scaled(
    places: Sequence[LayerPlace | None],
    layers: Sequence[LayerCache],
    scales: Mapping[int, LayerScales],
) -> tuple[LayerPlace | None, ...]:
    """The places with the scales of their layers; of one that shares, those of the other."""
    found = []
    for index, place in enumerate(places):
        kept = layers[index]
        of_layer = kept.layer if isinstance(kept, SharedKV) else index
        k, v = scales.get(of_layer, LayerScales())
        found.append(None if place is None else replace(place, k_scale=k, v_scale=v))
    return tuple(found)


Tables = list[list[int]]
"""The layers of each table of a group."""


def _packed(sizes: Sequence[Mapping[int, int]]) -> list[Tables]:
    """The tables of each group, of layers of these sizes.

    The capacities tried are those by which the layers of some group fall into equal shares; smaller
    blocks hold less that is empty, larger ones need fewer tables.
    """
    widest = max(max(of.values()) for of in sizes)
    shares = {-(-sum(of.values()) // count) for of in sizes for count in range(1, len(of) + 1)}
    best: list[Tables] = []
    least = (inf, inf)
    capacities = sorted({max(widest, share) for share in shares})
    for share in capacities[:: -(-len(capacities) // MAX_CAPACITIES)]:
        packed = [_first_fit(of, share) for of in sizes]
        loads = [
            sum(of[layer] for layer in table)
            for of, tables in zip(sizes, packed, strict=True)
            for table in tables
        ]
        wasted = len(loads) * max(loads) - sum(loads), len(loads)
        if wasted < least:
            least, best = wasted, packed
    return best


def _first_fit(sizes: Mapping[int, int], capacity: int) -> Tables:
    """Layers in tables of at most `capacity`: the largest first, each where it first fits."""
    tables: Tables = []
    free: list[int] = []
    size_before = first = 0
    for layer in sorted(sizes, key=lambda layer: -sizes[layer]):
        size = sizes[layer]
        if size != size_before:
            size_before, first = size, 0
        while first < len(tables) and free[first] < size:
            first += 1
        if first == len(tables):
            tables.append([])
            free.append(capacity)
        tables[first].append(layer)
        free[first] -= size
    return [sorted(table) for table in tables]
