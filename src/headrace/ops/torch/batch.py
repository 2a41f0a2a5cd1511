"""A ragged batch on the device: what layers read of it, made and copied once for a step."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from headrace.ops.kv import RaggedBatch
from headrace.ops.torch.matrices import on_device

Tables = tuple[torch.Tensor, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class DeviceBatch:
    """The arrays of a batch, and which request each token is of."""

    host: RaggedBatch
    positions: torch.Tensor
    """int64[N]"""
    requests: torch.Tensor
    """int64[N], the request of each token."""
    tables: Tables
    """int64[R, B] each."""
    _made: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives: made for the first layer of the step that asks for this key. Layers
        that share the key's facts share the result."""
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def tiles(self, rows: int) -> DeviceTiles:
        """Its tokens in tiles of `rows`."""
        return self.once(("tiles", rows), lambda: DeviceTiles.of(self, rows))

    def tables_of(self, tiles: DeviceTiles, table: int) -> torch.Tensor:
        """The row of a table that each tile reads: int64[T, B]."""
        key = ("tables", tiles.host.rows, table)
        return self.once(key, lambda: self.tables[table][tiles.requests])

    def places(self, table: int, block_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The block of a table, and the slot of it, in which each token lies: int64[N] each."""

        def made() -> tuple[torch.Tensor, torch.Tensor]:
            entries = self.positions // block_size
            return self.tables[table][self.requests, entries], self.positions % block_size

        return self.once(("places", table, block_size), made)

    def masks(self, masks: npt.NDArray[np.uint64]) -> torch.Tensor:
        """The words of masks uint64[N, spans] on the device: int64[N, spans]."""
        # The array is kept with them, so that nothing else can have its id.
        made = self.once(
            ("masks", id(masks)), lambda: (masks, on_device(masks.view(np.int64), self.device))
        )
        return made[1]

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.positions.device

    @classmethod
    def of(cls, batch: RaggedBatch, device: torch.device) -> DeviceBatch:
        """The batch. Raises ValueError where its arrays do not agree."""
        start, count = batch.query_start, batch.num_tokens
        if len(batch.positions) != count:
            raise ValueError(
                f"{count} token_ids and {len(batch.positions)} positions must be equally many"
            )
        if start[0] != 0 or start[-1] != count or (np.diff(start) < 0).any():
            raise ValueError(f"query_start {start.tolist()} does not rise from 0 to {count}")
        requests = np.repeat(np.arange(len(start) - 1), np.diff(start))
        tables = tuple(on_device(table, device).long() for table in batch.block_tables)
        positions = on_device(batch.positions, device).long()
        return cls(batch, positions, on_device(requests, device), tables)


@dataclass(frozen=True)
class Tiles:
    """Tokens of a batch in tiles of `rows`, each of one request; the last of one may be padded."""

    rows: int
    tokens: npt.NDArray[np.int64]
    """int64[T, rows], the token in each row; that of the row before it where a tile is padded."""
    filled: npt.NDArray[np.bool_]
    """bool[T, rows]"""
    requests: npt.NDArray[np.int64]
    """int64[T]"""

    @classmethod
    def of(cls, query_start: npt.NDArray[np.int32], rows: int) -> Tiles:
        """All tokens in order."""
        counts = np.diff(query_start)
        of_request = -(-counts // rows)
        requests = np.repeat(np.arange(len(counts)), of_request)
        firsts = np.repeat(np.cumsum(of_request) - of_request, of_request)
        offsets = (np.arange(len(requests)) - firsts) * rows
        first = query_start[:-1][requests].astype(np.int64) + offsets
        last = query_start[1:][requests].astype(np.int64) - 1
        tokens = first[:, None] + np.arange(rows)
        return cls(rows, np.minimum(tokens, last[:, None]), tokens <= last[:, None], requests)


class DeviceTiles(NamedTuple):
    """The tiles of a batch on the device."""

    host: Tiles
    tokens: torch.Tensor
    """int64[T, rows]"""
    filled: torch.Tensor
    """bool[T, rows]"""
    requests: torch.Tensor
    """int64[T]"""
    positions: torch.Tensor
    """int64[T, rows]"""
    host_positions: npt.NDArray[np.int64]
    """The same, in NumPy."""

    @classmethod
    def of(cls, batch: DeviceBatch, rows: int) -> DeviceTiles:
        """The tokens of a batch."""
        tiles, device = Tiles.of(batch.host.query_start, rows), batch.device
        tokens = on_device(tiles.tokens, device)
        return cls(
            tiles,
            tokens,
            on_device(tiles.filled, device),
            on_device(tiles.requests, device),
            batch.positions[tokens],
            batch.host.positions[tiles.tokens].astype(np.int64),
        )


class Spans(NamedTuple):
    """The spans that tiles see."""

    first: torch.Tensor
    """int64[T]"""
    last: torch.Tensor
    """int64[T]"""
    host: npt.NDArray[np.int64]
    """int64[2, T], both in NumPy."""

    def most(self, size: int = 1) -> int:
        """Of one tile, in runs of so many spans that begin at multiples of them."""
        first, last = self.host // size
        return int((last - first).max()) + 1
