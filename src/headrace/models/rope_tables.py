"""What all layers of a step share: the rope tables, grown as they are needed, and the batch."""

from __future__ import annotations

from typing import NamedTuple

from headrace.models.blocks import Step
from headrace.models.config import DecoderConfig
from headrace.models.loader import Loader
from headrace.models.rope import RopeConfig, Rotation, rotation
from headrace.ops.interface import Ops, RopeTable
from headrace.ops.kv import KVCacheArrays, RaggedBatch

FIRST_ROPE_POSITIONS = 4096
"""Positions of the first rope table: 1 MiB at a head_dim of 64, made in a few milliseconds."""


class GrownTable:
    """A rope table that covers each batch, made when first needed and doubled when outgrown.

    The full one of Llama 3.1, 131,072 positions, is 64 MiB, and that of Qwen3 takes a tenth of
    a second of a start; few requests ever get there.
    """

    def __init__(self, ops: Ops, rotation: Rotation, longest: int) -> None:
        self._ops = ops
        self._rotation = rotation
        self._longest = longest
        self._table: RopeTable | None = None
        self._positions = 0

    def covering(self, batch: RaggedBatch) -> RopeTable:
        """A table with every position of the batch."""
        needed = int(batch.positions.max(initial=0)) + 1
        if self._table is None or self._positions < min(needed, self._longest):
            doubled = max(FIRST_ROPE_POSITIONS, 1 << (needed - 1).bit_length())
            self._positions = min(doubled, self._longest)
            self._table = self._ops.rope_table(
                self._rotation.frequencies,
                self._positions,
                attention_factor=self._rotation.attention_factor,
            )
        return self._table


class RopeTables(NamedTuple):
    """The tables of a model; None where its layers do not rotate, or none differs."""

    full: GrownTable | None
    local: GrownTable | None
    """Of layers with a window, where theirs differs."""


def rope_tables(config: DecoderConfig, ops: Ops, loader: Loader, longest: int) -> RopeTables:
    """The tables that a config says. longest: positions that are ever needed."""

    def table(rope: RopeConfig | None, *, windowed: bool) -> GrownTable | None:
        if rope is None:
            return None
        shapes = map(config.attention_of, range(config.num_layers))
        widths = (shape.head_dim for shape in shapes if bool(shape.window) is windowed)
        head_dim = next(widths, config.attention.head_dim)
        # Files state divisors for layers without a window where these have another rope.
        divisors = None if windowed else loader.rope_divisors(head_dim, rope)
        turning = rotation(rope, head_dim, divisors=divisors, max_positions=longest)
        return GrownTable(ops, turning, longest)

    return RopeTables(table(config.rope, windowed=False), table(config.local_rope, windowed=True))


def begin_step(
    ops: Ops, config: DecoderConfig, tables: RopeTables, batch: RaggedBatch, kv: KVCacheArrays
) -> Step:
    """What every layer gets of a batch."""
    batch = ops.bind(batch, kv)
    rope = None if tables.full is None else tables.full.covering(batch)
    local = rope if tables.local is None else tables.local.covering(batch)
    scaling = config.query_scaling
    factors = None if scaling is None else scaling.factors(batch.positions)
    return Step(ops, batch, kv, rope, local, factors)
