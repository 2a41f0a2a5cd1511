"""Paged attention of a ragged batch, in tiles of tokens over spans of 64 positions.

The order of sums is that of docs/kernels.md where a sum is over spans: for each span, in ascending
order, scores, the running maximum, p = exp(score - maximum), then sums of p and of p * v, older
sums scaled down. Within a span products are those of a library, of shapes that follow from the
heads alone: a tile has always as many rows, and a span that a tile does not see changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from headrace.ops.kv import NEAR_SPAN, AttentionShape, LayerPlace
from headrace.ops.torch import kv_codecs
from headrace.ops.torch.batch import DeviceBatch, DeviceTiles, Spans
from headrace.ops.torch.kv_pool import KVPool, StoredKV
from headrace.ops.torch.rounding import round_bf16
from headrace.ops.torch.sums_and_products import tree_sum

if TYPE_CHECKING:
    from headrace.ops.torch.triton.rope import Rotation

SPAN = NEAR_SPAN
"""Positions of a span. Part of the arithmetic, as on every backend."""

TILE_ROWS = 128
"""Rows of q that meet one head of K at a time, at most: tokens of a tile times heads of a group."""

DEVICE_TILES = 8
"""Tiles whose products a device's library is handed at a time, padded with zeros. One token alone
so pays for eight, 64 requests take eight calls for each span; it is paid where no kernel computes
attention."""


class Terms(NamedTuple):
    """The arguments of `Ops.paged_attention` that most models do without."""

    sinks: torch.Tensor | None = None
    slopes: torch.Tensor | None = None
    masks: npt.NDArray[np.uint64] | None = None


def write(
    qkv: torch.Tensor,
    shape: AttentionShape,
    pool: KVPool,
    place: LayerPlace,
    batch: DeviceBatch,
    *,
    kernels: bool = False,
) -> None:
    """Store the k and v heads of every new token."""
    stored = pool.of(place)
    if kernels and written_by_kernel(qkv, shape, pool, place, batch, None):
        return
    k_at = shape.num_heads * shape.head_dim
    v_at = k_at + shape.num_kv_heads * shape.head_dim
    keys = qkv[:, k_at:v_at].unflatten(1, (shape.num_kv_heads, shape.head_dim))
    values = None
    if not shape.latent:
        values = qkv[:, v_at:].unflatten(1, (shape.num_kv_heads, shape.value_width))
    parts = [(stored, place.table)]
    if stored.near is not None and place.near is not None:
        parts.append((stored.near, place.near[0]))
    for part, table in parts:
        blocks, slots = batch.places(table, pool.block_size)
        part.k.write(blocks, slots, keys)
        if part.v is not None and values is not None:
            part.v.write(blocks, slots, values)


def written_by_kernel(
    qkv: torch.Tensor,
    shape: AttentionShape,
    pool: KVPool,
    place: LayerPlace,
    batch: DeviceBatch,
    rotation: Rotation | None,
) -> bool:
    """Rotate q and k heads, where there is a rotation, and store k and v heads; False, and nothing
    is changed, where no kernel writes what is stored there."""
    from headrace.ops.torch.triton import rope

    stored = pool.of(place)
    if not rope.takes(stored):
        return False
    rope.place(qkv, shape, stored, *batch.places(place.table, pool.block_size), rotation)
    if stored.near is not None and place.near is not None:
        rope.place(qkv, shape, stored.near, *batch.places(place.near[0], pool.block_size))
    return True


def attend(
    qkv: torch.Tensor,
    shape: AttentionShape,
    pool: KVPool,
    place: LayerPlace,
    batch: DeviceBatch,
    terms: Terms,
    *,
    kernels: bool = False,
    reproducible: bool = True,
) -> torch.Tensor:
    """Attention of every new token over what it sees: f32[N, output_width].

    kernels: whether those in Triton compute it, where they can. reproducible: whether a token's
    result is the same in every batch where they do not.
    """
    if not len(qkv):
        return qkv.new_empty((0, shape.output_width))
    group = shape.num_heads // shape.num_kv_heads
    tiles = batch.tiles(max(1, min(16, TILE_ROWS // group)))
    run = _Run(qkv, shape, pool, place, batch, terms, tiles, DEVICE_TILES if reproducible else 0)
    attended = run.by_kernel() if kernels else None
    if attended is None:
        spans = run.spans()
        for number in range(spans.most()):
            run.add(spans.first + number)
        attended = run.result()
    return attended.flatten(0, 1)[tiles.of_tokens]


class _Run:
    """The sums of all tiles, span after span."""

    def __init__(
        self,
        qkv: torch.Tensor,
        shape: AttentionShape,
        pool: KVPool,
        place: LayerPlace,
        batch: DeviceBatch,
        terms: Terms,
        tiles: DeviceTiles,
        together: int,
    ) -> None:
        """together: tiles whose products a device's library is handed at a time; 0: all."""
        device = qkv.device
        self._together = together
        self._shape, self._pool, self._terms, self._tiles = shape, pool, terms, tiles
        self._batch, self._place = batch, place
        self._kv = pool.of(place)
        self._group = shape.num_heads // shape.num_kv_heads
        tokens = tiles.tokens
        self._positions = tiles.positions
        self._table = batch.tables_of(tiles, place.table)
        near = place.near if self._kv.near is not None else None
        self._near_table = None if near is None else batch.tables_of(tiles, near[0])
        self._masks = None if terms.masks is None else batch.masks(terms.masks)[tokens]
        # [T, kv_heads, rows * group, head_dim]
        q = qkv[:, : shape.num_heads * shape.head_dim][tokens]
        q = q.unflatten(2, (shape.num_kv_heads, self._group, shape.head_dim))
        q = round_bf16(q) if self._kv.rounds_q else q
        q = kv_codecs.turned(q) if self._kv.k.turned else q
        self._q = q.transpose(1, 2).reshape(len(q), shape.num_kv_heads, -1, shape.head_dim)
        sums = self._q.shape[:3]
        self._highest = torch.full(sums, -torch.inf, device=device)
        self._total = torch.zeros(sums, device=device)
        if terms.sinks is not None:
            self._highest = self._of_heads(terms.sinks).expand(sums).clone()
            self._total = torch.ones(sums, device=device)
        self._mixed = torch.zeros((*sums, shape.value_width), device=device)

    def spans(self) -> Spans:
        """The first and the last span of each tile."""
        shape, tiles = self._shape, self._tiles
        key = ("spans", tiles.host.rows, shape.window, shape.chunk)
        return self._batch.once(key, lambda: _spans(shape, tiles))

    def add(self, spans: torch.Tensor) -> None:
        """One span of each tile, int64[T]; of those that have no more nothing is added."""
        at = spans[:, None] * SPAN + torch.arange(SPAN, device=spans.device)  # [T, 64]
        seen = self._seen(at)  # [T, rows, 64]
        if self._near_table is None or self._kv.near is None:
            self._add(at, [(self._kv, self._table, seen)])
            return
        own = (self._positions // SPAN == spans[:, None])[..., None]
        parts = [
            (self._kv, self._table, seen & ~own),
            (self._kv.near, self._near_table, seen & own),
        ]
        self._add(at, parts)

    def _add(
        self, at: torch.Tensor, parts: list[tuple[StoredKV, torch.Tensor, torch.Tensor]]
    ) -> None:
        """parts: what is stored, its tables, and who sees which of the positions there."""
        read = [self._read(stored, table, at, seen) for stored, table, seen in parts]
        scores = torch.stack([self._scores(keys, at, mask) for keys, _, mask in read])
        higher = torch.maximum(self._highest, scores.amax(dim=(0, 4)))
        # A row that has seen nothing yet has no maximum.
        finite = torch.where(higher == -torch.inf, 0.0, higher)
        p = torch.exp(scores - finite[..., None])
        if self._kv.values.codec == "bf16":
            p = round_bf16(p)
        keep = torch.where(self._highest == higher, 1.0, torch.exp(self._highest - finite))
        self._total = self._total * keep + tree_sum(p.sum(dim=0) if len(read) > 1 else p[0])
        self._mixed = self._mixed * keep[..., None]
        for share, (_, values, _) in zip(p, read, strict=True):
            self._mixed = self._mixed + _products(share, values, self._together)
        self._highest = higher

    def _read(
        self, stored: StoredKV, table: torch.Tensor, at: torch.Tensor, seen: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """K and V [T, kv_heads, 64, width] of a span, and who sees what [T, 1, rows * group, 64].

        What nobody in a tile sees is read as zero: it may be anything, NaN too, and its block any.
        """
        size = self._pool.block_size
        some = seen.any(dim=1)  # [T, 64]
        entries = torch.where(some, at // size, 0)
        blocks = torch.where(some, table.gather(1, entries), 0)
        keys, values = stored.read(blocks, at % size)
        unseen = ~some[..., None, None]
        keys, values = keys.masked_fill(unseen, 0.0), values.masked_fill(unseen, 0.0)
        mask = seen.repeat_interleave(self._group, dim=1)[:, None]
        return keys.transpose(1, 2), values.transpose(1, 2), mask

    def _scores(self, keys: torch.Tensor, at: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """[T, kv_heads, rows * group, 64], -inf where a row does not see."""
        shape = self._shape
        scores = _products(self._q, keys.transpose(2, 3), self._together) * shape.scale
        if shape.softcap:
            scores = shape.softcap * torch.tanh(scores / shape.softcap)
        if self._terms.slopes is not None:
            distance = at[:, None] - self._positions[..., None]  # [T, rows, 64]
            distance = distance.float().repeat_interleave(self._group, dim=1)[:, None]
            scores = scores + self._of_heads(self._terms.slopes)[..., None] * distance
        return scores.masked_fill(~mask, -torch.inf)

    def _seen(self, at: torch.Tensor) -> torch.Tensor:
        """Which of positions int64[T, 64] each row sees: bool[T, rows, 64]."""
        shape, own, at = self._shape, self._positions[..., None], at[:, None]
        seen = at <= own
        if shape.window:
            seen = seen & (at > own - shape.window)
        if shape.chunk:
            seen = seen & (at >= own - own % shape.chunk)
        if self._masks is None:
            return seen
        words = (at // 64).clamp(max=self._masks.shape[-1] - 1).expand(*seen.shape[:2], SPAN)
        return seen & ((self._masks.gather(2, words) >> (at % 64)) & 1).bool()

    def _of_heads(self, values: torch.Tensor) -> torch.Tensor:
        """f32[heads] by the rows of q: f32[kv_heads, rows * group]."""
        return values.reshape(-1, self._group).repeat(1, self._tiles.host.rows)

    def by_kernel(self) -> torch.Tensor | None:
        """All of it in one launch: f32[T, rows, output_width]; None where no kernel computes it."""
        from headrace.ops.torch.triton import attention as kernel

        if not kernel.takes(self._shape, self._kv):
            return None
        shape, rows, table, group = self._shape, self._tiles.host.rows, self._table, self._group
        terms, of_rows, near_table = self._terms, self._positions, self._near_table
        positions = self._batch.once(
            ("kernel positions", rows, group),
            lambda: _of_tokens(of_rows, self._tiles.tokens).int().repeat_interleave(group, dim=1),
        )
        tables = self._batch.once(("kernel tables", rows, self._place.table), table.int)
        spans = self._batch.once(
            ("kernel spans", rows, shape.window, shape.chunk),
            lambda: torch.stack(self.spans()[:2], dim=1).int(),
        )
        if near_table is not None and self._place.near is not None:
            wide = near_table
            near_table = self._batch.once(("kernel tables", rows, self._place.near[0]), wide.int)
        tile = kernel.Tile(
            self._q.contiguous(),
            positions,
            tables,
            spans,
            self.spans().most(kernel.SPLIT),
            None if terms.sinks is None else self._of_heads(terms.sinks).contiguous(),
            None if terms.slopes is None else self._of_heads(terms.slopes).contiguous(),
            None if self._masks is None else self._masks.contiguous(),
            near_table,
        )
        return self._by_token(kernel.attend(tile, self._shape, self._kv, self._pool.block_size))

    def result(self) -> torch.Tensor:
        """f32[T, rows, output_width]."""
        return self._by_token(self._mixed / self._total[..., None])

    def _by_token(self, out: torch.Tensor) -> torch.Tensor:
        """f32[T, kv_heads, rows * group, value_width] with all heads of a token in one row."""
        out = kv_codecs.turned(out) if self._kv.values.turned else out
        out = out.unflatten(2, (self._tiles.host.rows, self._group))
        return out.permute(0, 2, 1, 3, 4).flatten(2)


def _spans(shape: AttentionShape, tiles: DeviceTiles) -> Spans:
    """On the device from the positions there, so that a recorded step has those of its own; in
    NumPy for their number."""
    first, last = tiles.positions[:, 0], tiles.positions[:, -1] // SPAN
    opening = torch.zeros_like(first)
    host_first, host_last = tiles.host_positions[:, 0], tiles.host_positions[:, -1] // SPAN
    host_opening = np.zeros_like(host_first)
    if shape.window:
        opening = torch.maximum(opening, first + 1 - shape.window)
        host_opening = np.maximum(host_opening, host_first + 1 - shape.window)
    if shape.chunk:
        opening = torch.maximum(opening, first - first % shape.chunk)
        host_opening = np.maximum(host_opening, host_first - host_first % shape.chunk)
    return Spans(opening // SPAN, last, np.stack([host_opening // SPAN, host_last]))


def _of_tokens(positions: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Positions int64[T, rows], -1 in rows that a tile is padded with: their token is that of the
    row before."""
    again = torch.nn.functional.pad(tokens[:, 1:] == tokens[:, :-1], (1, 0))
    return torch.where(again, -1, positions)


def _products(left: torch.Tensor, right: torch.Tensor, together: int) -> torch.Tensor:
    """[T, heads, m, n] of [T, heads, m, k] and [T, heads, k, n].

    A processor's library multiplies each pair by itself. One of a device may choose by their
    number how, so it always gets `together` tiles; 0: all there are.
    """
    if left.device.type == "cpu" or not together:
        return torch.bmm(left.flatten(0, 1), right.flatten(0, 1)).unflatten(0, left.shape[:2])
    return products_of_tiles(left, right, together)


def products_of_tiles(left: torch.Tensor, right: torch.Tensor, count: int) -> torch.Tensor:
    """The same, so many tiles at a time, those that lack being zeros."""
    tiles, lacking = len(left), -len(left) % count
    if lacking:
        left, right = (
            torch.cat([of, of.new_zeros((lacking, *of.shape[1:]))]) for of in (left, right)
        )
    parts = [
        torch.bmm(left[at : at + count].flatten(0, 1), right[at : at + count].flatten(0, 1))
        for at in range(0, len(left), count)
    ]
    return torch.cat(parts).unflatten(0, left.shape[:2])[:tiles]
