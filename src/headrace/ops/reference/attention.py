"""Paged KV storage and attention with an online softmax, one token at a time.

Keys are visited in spans of 64 positions that start at multiples of 64, in ascending order, so
that what is rounded never depends on how the tokens came into the cache. Per span: scores, the
running maximum, p = exp(score - maximum), then sums of p and of p * v, older sums scaled down.
BF16 K meets q rounded to bfloat16; BF16 V meets p rounded to bfloat16, and the sum of p is then
of the rounded ones. Rotated K meets a rotated q, and what is read of rotated V is turned back in
the end. Latent values are read from K as it is stored, so the codec of K is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.ops.batch_checks import check_cache, seen_positions
from headrace.ops.kv import (
    KV_CODECS,
    NEAR_SPAN,
    AttentionShape,
    KVCacheSpec,
    KVCodec,
    LayerPlace,
    RaggedBatch,
)
from headrace.ops.reference.arithmetic import F32, round_bf16
from headrace.ops.reference.kv_codecs import StoredRows, known_codecs, rotated

SPAN = NEAR_SPAN
"""Positions of a span. Part of the arithmetic, not a tuning knob: changing it changes results."""


@dataclass(frozen=True)
class StoredKV:
    """K and V of one layer. Latent values are a view of K."""

    k: StoredRows
    v: StoredRows
    near: StoredKV | None = None
    """The same in bf16, of which a token reads its own span; in blocks of a table of its own."""


@dataclass(frozen=True)
class PagedKV:
    """The K and V of every place, apart from each other: a block that goes from one table to
    another begins empty."""

    block_size: int
    places: Mapping[tuple[int, int], StoredKV]
    """By table and index."""

    def of(self, place: LayerPlace) -> StoredKV:
        """K and V of a layer that lies there."""
        return self.places[place.table, place.index]


class Terms(NamedTuple):
    """The arguments of `Ops.paged_attention` that most models do without."""

    sinks: F32 | None = None
    slopes: F32 | None = None
    masks: npt.NDArray[np.uint64] | None = None


def new_cache(spec: KVCacheSpec) -> PagedKV:
    """Zeroed storage. Raises ValueError naming what `spec` asks that cannot be."""
    check_cache(spec, known_codecs())
    kept = {place for place in spec.places if place is not None}
    stored = {(place.table, place.index): _stored(spec, place) for place in kept}
    return PagedKV(spec.block_size, stored)


def _stored(spec: KVCacheSpec, place: LayerPlace) -> StoredKV:
    value_dim = place.value_dim or place.head_dim
    slots = (spec.num_blocks, spec.block_size, place.num_kv_heads)
    codecs = spec.codecs(place)
    turned = [KV_CODECS[codec].rotated and not place.latent for codec in codecs]

    def rows(k_codec: KVCodec, v_codec: KVCodec) -> StoredKV:
        k = StoredRows.zeros(k_codec, slots, place.head_dim, turned[0], place.k_scale)
        if place.latent:
            return StoredKV(k, replace(k, codes=k.codes[..., place.head_dim - value_dim :]))
        return StoredKV(k, StoredRows.zeros(v_codec, slots, value_dim, turned[1], place.v_scale))

    if place.near is None:
        return rows(*codecs)
    for codec in codecs[: 1 if place.latent else 2]:
        if KV_CODECS[codec].value_bits > 8:
            raise ValueError(
                "positions near a token are kept in bf16 beside kinds of eight and four bits, not "
                f"beside {codec}"
            )
    return replace(rows(*codecs), near=rows("bf16", "bf16"))


def copy(kv: PagedKV, pairs: npt.NDArray[np.int32]) -> None:
    """Copy blocks (source, target) of all layers."""
    sources, targets = pairs.T
    for stored in kv.places.values():
        for part in (stored, *([stored.near] if stored.near else ())):
            part.k.copy(sources, targets)
            part.v.copy(sources, targets)


def write(
    qkv: F32, shape: AttentionShape, kv: PagedKV, place: LayerPlace, batch: RaggedBatch
) -> None:
    """Store the k and v heads of each new token.

    Latent values are stored with their keys.
    """
    kv_heads, stored = shape.num_kv_heads, kv.of(place)
    parts = [(stored, batch.block_table(place))]
    near_tables = batch.near_table(place)
    if stored.near is not None and near_tables is not None:
        parts.append((stored.near, near_tables))
    k_at = shape.num_heads * shape.head_dim
    v_at = k_at + kv_heads * shape.head_dim
    keys = qkv[:, k_at:v_at].reshape(len(qkv), kv_heads, shape.head_dim)
    values = None if shape.latent else qkv[:, v_at:].reshape(len(qkv), kv_heads, -1)
    for request in range(len(batch.query_start) - 1):
        for row in range(batch.query_start[request], batch.query_start[request + 1]):
            position = batch.positions[row]
            for part, tables in parts:
                slot = (tables[request, position // kv.block_size], position % kv.block_size)
                part.k.write(slot, keys[row])
                if values is not None:
                    part.v.write(slot, values[row])


def attend(
    qkv: F32,
    shape: AttentionShape,
    kv: PagedKV,
    place: LayerPlace,
    batch: RaggedBatch,
    terms: Terms,
) -> F32:
    """Attention of every new token over what it sees: f32[N, output_width]."""
    tables, near_tables = batch.block_table(place), batch.near_table(place)
    out = np.empty((len(qkv), shape.output_width), np.float32)
    width = shape.num_heads * shape.head_dim
    for request in range(len(batch.query_start) - 1):
        near_table = None if near_tables is None else near_tables[request]
        kept = RequestKV(kv.of(place), tables[request], near_table)
        for row in range(batch.query_start[request], batch.query_start[request + 1]):
            query = qkv[row, :width].reshape(shape.num_heads, shape.head_dim)
            mask = None if terms.masks is None else terms.masks[row]
            position = int(batch.positions[row])
            seen = seen_positions(shape, position, mask)
            scores = _Scores(shape, position, terms)
            attended = _attend_one(query, scores, kept, seen)
            out[row] = attended.reshape(-1)
    return out


class _Scores(NamedTuple):
    """A rule from q.K of one token to its scores."""

    shape: AttentionShape
    position: int
    terms: Terms

    def of(
        self, products: npt.NDArray[np.float64], positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """From q.K of [kv_heads, group, positions]."""
        scores = products * self.shape.scale
        if self.shape.softcap:
            scores = self.shape.softcap * np.tanh(scores / self.shape.softcap)
        if self.terms.slopes is None:
            return scores
        slopes = self.terms.slopes.astype(np.float64).reshape(*scores.shape[:2], 1)
        return scores + slopes * (positions - self.position)


class RequestKV(NamedTuple):
    """The K and V of one request in a layer, with its tables."""

    kv: StoredKV
    table: npt.NDArray[np.int32]
    near_table: npt.NDArray[np.int32] | None

    def of(self, span: int, position: int) -> tuple[StoredKV, npt.NDArray[np.int32]]:
        """What a token at `position` reads of a span, and its table."""
        own = span == position // SPAN
        if self.kv.near is not None and self.near_table is not None and own:
            return self.kv.near, self.near_table
        return self.kv, self.table


def _attend_one(query: F32, scored: _Scores, kept: RequestKV, seen: npt.NDArray[np.int64]) -> F32:
    """Attention of one token, f32[num_heads, value_width], over the positions in `seen`.

    Spans begin at multiples of 64, wherever these do. A sink is a score seen before all others.
    """
    shape, sinks, kv = scored.shape, scored.terms.sinks, kept.kv
    block_size = kv.k.codes.shape[1]
    round_p = kv.v.codec == "bf16"
    query = round_bf16(query) if kv.k.codec == "bf16" else query
    query = rotated(query) if kv.k.rotated else query
    group = shape.num_heads // shape.num_kv_heads
    wide_query = query.astype(np.float64).reshape(shape.num_kv_heads, group, 1, shape.head_dim)

    highest = np.full((shape.num_kv_heads, group), -np.inf)
    total = np.zeros((shape.num_kv_heads, group))
    if sinks is not None:
        highest = sinks.astype(np.float64).reshape(highest.shape)
        total = np.ones(highest.shape)
    mixed = np.zeros((shape.num_kv_heads, group, shape.value_width))
    for span in np.unique(seen // SPAN):
        positions = seen[seen // SPAN == span]
        read, table = kept.of(int(span), scored.position)
        slots = (table[positions // block_size], positions % block_size)
        # [positions, kv_heads, width] -> [kv_heads, 1, positions, width]
        keys = read.k.read(slots).swapaxes(0, 1)[:, None]
        values = read.v.read(slots).swapaxes(0, 1)[:, None]
        scores = scored.of(np.add.reduce(wide_query * keys, axis=3), positions)
        higher = np.maximum(highest, scores.max(axis=2))
        p = np.exp(scores - higher[:, :, None])
        if round_p:
            p = round_bf16(p.astype(np.float32)).astype(np.float64)
        keep = np.exp(highest - higher)
        total = total * keep + np.add.reduce(p, axis=2)
        mixed = mixed * keep[:, :, None] + np.add.reduce(p[:, :, :, None] * values, axis=2)
        highest = higher
    out: F32 = (mixed / total[:, :, None]).astype(np.float32)
    out = rotated(out) if kv.v.rotated else out
    return out.reshape(shape.num_heads, shape.value_width)
