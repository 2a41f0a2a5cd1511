"""What each layer of a model keeps of a request, and how that lies in one pool of blocks.

A model declares it layer by layer; all else follows from there. Layers that keep K and V equally
long form a group: its tokens have one lifetime. A block holds `block_size` tokens of the layers of
one block table; a group of layers that do not fit into a block has several tables. All blocks are
as long as the widest table, so any group may take any of them. Layers are packed into tables so
that as little of the blocks as possible is empty, and then so that there are few tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from headrace.errors import UnsupportedModelError
from headrace.models.visible import Visible
from headrace.ops.kv import KVCacheSpec, KVCodec, LayerPlace

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
class CacheGroup:
    """Layers whose K and V are of use to a request equally long."""

    window: int = 0
    """Positions its layers still read of a request's past; 0 means all of them."""
    layers: tuple[int, ...] = (0,)
    num_tables: int = 1
    """Block tables, each of `layers_per_block` layers: blocks taken for `block_size` tokens."""
    chunked: bool = False
    """Its layers read the chunk of `window` positions that a token is in."""

    @property
    def name(self) -> str:
        """A name of the group in its model, for figures."""
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


def cache_layout(layers: Sequence[LayerCache]) -> CacheLayout:
    """The layout of layers that keep this.

    Raises UnsupportedModelError where no layer keeps anything and where a layer shares with one
    that keeps none.
    """
    members: dict[tuple[int, bool], dict[int, LayerKV]] = {}
    for index, kept in enumerate(layers):
        if isinstance(kept, LayerKV):
            members.setdefault((kept.window, kept.chunked), {})[index] = kept
    if not members:
        raise UnsupportedModelError("no layer of the model keeps K and V")
    groups = []
    places: list[LayerPlace | None] = [None] * len(layers)
    first_table = 0
    packed = _packed(list(members.values()))
    for ((window, chunked), of_group), tables in zip(members.items(), packed, strict=True):
        for table, indices in enumerate(tables):
            for within, index in enumerate(indices):
                kept = of_group[index]
                places[index] = LayerPlace(
                    table=first_table + table,
                    index=within,
                    num_kv_heads=kept.num_kv_heads,
                    head_dim=kept.head_dim,
                    value_dim=kept.value_dim,
                    latent=kept.latent,
                )
        groups.append(CacheGroup(window, tuple(of_group), len(tables), chunked))
        first_table += len(tables)
    for index, kept in enumerate(layers):
        if isinstance(kept, SharedKV):
            if not isinstance(layers[kept.layer], LayerKV):
                raise UnsupportedModelError(
                    f"layer {index} shares K and V with layer {kept.layer}, which keeps none"
                )
            places[index] = places[kept.layer]
    return CacheLayout(tuple(groups), tuple(places))


Tables = list[list[int]]
"""The layers of each table of a group."""


def _packed(members: Sequence[Mapping[int, LayerKV]]) -> list[Tables]:
    """The tables of each group.

    Sizes are counted in values, so that layers lie alike whatever the codecs. The capacities tried
    are those by which the layers of some group fall into equal shares; smaller blocks hold less
    that is empty, larger ones need fewer tables.
    """
    sizes = [{layer: kept.values for layer, kept in of.items()} for of in members]
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
