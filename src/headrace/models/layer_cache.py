"""What each layer of a model keeps of a request, and how that lies in one pool of blocks.

A model declares it layer by layer; all else follows from there. Layers that keep the same form a
group: its tokens have one lifetime. A block holds `block_size` tokens of `layers_per_block` layers
of one group. That number divides the layers of every group, so all blocks have one size and any
group may take any of them; a group of more layers has several block tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from headrace.ops.interface import KVCacheSpec, KVCodec, LayerPlace
from headrace.ops.shared import heads_in_words


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

    @property
    def widths(self) -> LayerKV:
        """The same without a window: what a token takes in the cache."""
        return LayerKV(
            self.num_kv_heads, self.head_dim, 0, self.value_dim or self.head_dim, self.latent
        )


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

    @property
    def name(self) -> str:
        """A name of the group in its model, for figures."""
        return f"window_{self.window}" if self.window else "full"


ONE_GROUP = (CacheGroup(),)
"""Of a model all of whose layers see everything, where only numbers of blocks matter."""


@dataclass(frozen=True)
class CacheLayout:
    """The groups of a model and the place of each of its layers."""

    groups: tuple[CacheGroup, ...]
    widths: LayerKV
    """What every layer keeps of a token."""
    layers_per_block: int
    places: tuple[LayerPlace | None, ...]
    """Of each layer; None where it keeps nothing."""

    @property
    def num_tables(self) -> int:
        """Blocks that `block_size` tokens take in all layers while they are inside all windows."""
        return sum(group.num_tables for group in self.groups)

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
        return KVCacheSpec(
            num_layers=self.layers_per_block,
            num_kv_heads=self.widths.num_kv_heads,
            head_dim=self.widths.head_dim,
            block_size=block_size,
            num_blocks=num_blocks,
            k_codec=k_codec,
            v_codec=v_codec,
            places=self.places,
            value_dim=self.widths.value_dim,
            latent=self.widths.latent,
        )


def cache_layout(layers: Sequence[LayerCache]) -> CacheLayout:
    """The layout of layers that keep this.

    Raises ValueError where no layer keeps anything, where K and V of two layers differ in width,
    which one size of blocks does not allow yet, and where a layer shares with one that keeps none.
    """
    members: dict[int, list[int]] = {}
    widths: dict[LayerKV, int] = {}
    for index, kept in enumerate(layers):
        if isinstance(kept, LayerKV):
            members.setdefault(kept.window, []).append(index)
            widths.setdefault(kept.widths, index)
    if len(widths) != 1:
        raise ValueError(_widths_refused(widths))
    (common,) = widths
    layers_per_block = gcd(*map(len, members.values()))
    groups = []
    places: list[LayerPlace | None] = [None] * len(layers)
    first_table = 0
    for window, indices in members.items():
        for at, index in enumerate(indices):
            table, within = divmod(at, layers_per_block)
            places[index] = LayerPlace(first_table + table, within)
        num_tables = len(indices) // layers_per_block
        groups.append(CacheGroup(window, tuple(indices), num_tables))
        first_table += num_tables
    for index, kept in enumerate(layers):
        if isinstance(kept, SharedKV):
            if not isinstance(layers[kept.layer], LayerKV):
                raise ValueError(f"layer {index} shares with layer {kept.layer}, which keeps none")
            places[index] = places[kept.layer]
    return CacheLayout(tuple(groups), common, layers_per_block, tuple(places))


def _widths_refused(widths: dict[LayerKV, int]) -> str:
    if not widths:
        return "no layer keeps K and V"
    found = ", ".join(f"{heads_in_words(kept)} in layer {layer}" for kept, layer in widths.items())
    return f"K and V differ in width between layers, which blocks of one size do not hold: {found}"
