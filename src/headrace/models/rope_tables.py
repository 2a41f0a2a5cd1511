"""What all layers of a step share: tables by position, grown as they are needed, and the batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from headrace.models.blocks import Step
from headrace.models.config import DecoderConfig
from headrace.models.loader import Loader
from headrace.models.query_scaling import QueryScaling
from headrace.models.rope import RopeConfig, Rotation, rotation
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch
from headrace.ops.operands import Array, RopeTable

FIRST_ROPE_POSITIONS = 4096
"""Positions of the first table: 1 MiB for rope at a head_dim of 64, made in a few milliseconds."""

Table = TypeVar("Table")


class GrownTable(Generic[Table]):
    """A table by position that covers each batch, made when first needed, doubled when outgrown.

    The full one of Llama 3.1, 131,072 positions, is 64 MiB, and that of Qwen3 takes a tenth of
    a second of a start; few requests ever get there.
    """

    def __init__(self, make: Callable[[int], Table], longest: int) -> None:
        """make: gives a table of so many positions. longest: as many as are ever needed."""
        self._make = make
        self._longest = longest
        self._table: Table | None = None
        self._positions = 0

    def covering(self, batch: RaggedBatch) -> Table:
        """A table with every position of the batch."""
        needed = int(batch.positions.max(initial=0)) + 1
        if self._table is None or self._positions < min(needed, self._longest):
            doubled = max(FIRST_ROPE_POSITIONS, 1 << (needed - 1).bit_length())
            self._positions = min(doubled, self._longest)
            self._table = self._make(self._positions)
        return self._table


class RopeTables(NamedTuple):
    """The tables of a model; None where its layers do not rotate, or none differs."""

    full: GrownTable[RopeTable] | None
    local: GrownTable[RopeTable] | None
    """Of layers with a window, where theirs differs."""
    factors: GrownTable[Array] | None = None
    """f32[positions, 1], of queries, where they are scaled."""


def rope_tables(config: DecoderConfig, ops: Ops, loader: Loader, longest: int) -> RopeTables:
    """The tables that a config says. longest: positions that are ever needed."""

    def table(rope: RopeConfig | None, *, windowed: bool) -> GrownTable[RopeTable] | None:
        if rope is None:
            return None
        shapes = map(config.attention_of, range(config.num_layers))
        widths = (shape.head_dim for shape in shapes if bool(shape.window) is windowed)
        head_dim = next(widths, config.attention.head_dim)
        # Files state divisors for layers without a window where these have another rope.
        divisors = None if windowed else loader.rope_divisors(head_dim, rope)
        turning = rotation(rope, head_dim, divisors=divisors, max_positions=longest)
        return GrownTable(partial(_turned, ops, turning), longest)

    full, local = table(config.rope, windowed=False), table(config.local_rope, windowed=True)
    scaling = config.query_scaling
    if scaling is None:
        return RopeTables(full, local)
    return RopeTables(full, local, GrownTable(partial(_scaled, ops, scaling), longest))


def _turned(ops: Ops, rotation: Rotation, positions: int) -> RopeTable:
    factor = rotation.attention_factor
    return ops.rope_table(rotation.frequencies, positions, attention_factor=factor)


def _scaled(ops: Ops, scaling: QueryScaling, positions: int) -> Array:
    return ops.from_host(scaling.factors(np.arange(positions, dtype=np.int32))[:, None])


def begin_step(ops: Ops, tables: RopeTables, batch: RaggedBatch, kv: KVCacheArrays) -> Step:
    """What every layer gets of a batch."""
    batch = ops.bind(batch, kv)
    rope = None if tables.full is None else tables.full.covering(batch)
    local = rope if tables.local is None else tables.local.covering(batch)
    factors = None if tables.factors is None else tables.factors.covering(batch)
    return Step(ops, batch, kv, rope, local, factors)
