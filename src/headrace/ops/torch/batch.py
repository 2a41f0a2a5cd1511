"""A ragged batch on the device: what layers read of it, made and copied once for a step."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from headrace.ops.kv import FollowingBatch, RaggedBatch
from headrace.ops.torch.transfer import staged

Tables = tuple[torch.Tensor, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class DeviceBatch:
    """The arrays of a batch, and which request each token is of: views of one buffer, which one
    copy fills.
    """

    host: RaggedBatch
    buffer: torch.Tensor
    """int64[...], all of the following one behind the other."""
    token_ids: torch.Tensor
    """int64[N]"""
    positions: torch.Tensor
    """int64[N]"""
    requests: torch.Tensor
    """int64[N], the request of each token."""
    logit_rows: torch.Tensor
    """int64[L]"""
    tables: Tables
    """int64[R, B] each."""
    _laid_out: dict[Hashable, Any] = field(default_factory=dict)
    _made: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives: made for the first layer of the step that asks for this key. Layers
        that share the key's facts share the result."""
        return _once(self._made, key, make)

    def once_laid_out(self, key: Hashable, make: Callable[[], T]) -> T:
        """The same of what follows from `query_start` alone, and so holds when it is refilled."""
        return _once(self._laid_out, key, make)

    def begin_again(self) -> None:
        """Forget what followed from its values."""
        self._made.clear()

    def refill(self, batch: RaggedBatch) -> None:
        """Take the values of another batch. Raises ValueError where its shapes differ."""
        packed = _packed(batch)
        same = np.array_equal(batch.query_start, self.host.query_start)
        if not same or len(packed) != len(self.buffer):
            raise ValueError(
                f"a batch of {batch.num_tokens} tokens, {len(packed)} numbers in all, does not "
                f"fill the place of one of {self.host.num_tokens}, {len(self.buffer)} in all"
            )
        self.buffer.copy_(staged(packed, self.device), non_blocking=True)
        _fill(self.token_ids, batch)

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
            ("masks", id(masks)), lambda: (masks, staged(masks.view(np.int64), self.device))
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
        buffer = staged(_packed(batch), device)
        sizes = [count, count, count, len(batch.logit_rows)]
        sizes += [table.size for table in batch.block_tables]
        token_ids, positions, requests, logit_rows, *flat = buffer.split(sizes)
        tables = tuple(
            part.view(table.shape) for part, table in zip(flat, batch.block_tables, strict=True)
        )
        _fill(token_ids, batch)
        return cls(batch, buffer, token_ids, positions, requests, logit_rows, tables)


def _packed(batch: RaggedBatch) -> npt.NDArray[np.int64]:
    start = batch.query_start
    requests = np.repeat(np.arange(len(start) - 1), np.diff(start))
    parts: list[npt.NDArray[Any]] = [batch.token_ids, batch.positions, requests, batch.logit_rows]
    parts += [table.reshape(-1) for table in batch.block_tables]
    return np.concatenate(parts, dtype=np.int64)


def _fill(token_ids: torch.Tensor, batch: RaggedBatch) -> None:
    """Put the ids that a step before it draws where the host does not know them."""
    if not isinstance(batch, FollowingBatch):
        return
    drawn: Any = batch.drawing
    rows = staged(batch.drawn_rows.astype(np.int64), token_ids.device)
    token_ids.copy_(torch.where(rows >= 0, drawn.ids[rows.clamp(min=0)], token_ids))


def _once(made: dict[Hashable, Any], key: Hashable, make: Callable[[], T]) -> T:
    if key not in made:
        made[key] = make()
    found: T = made[key]
    return found


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
    of_tokens: torch.Tensor
    """int64[N], where each token is among the T * rows places."""
    requests: torch.Tensor
    """int64[T]"""
    positions: torch.Tensor
    """int64[T, rows]"""
    host_positions: npt.NDArray[np.int64]
    """The same, in NumPy."""

    @classmethod
    def of(cls, batch: DeviceBatch, rows: int) -> DeviceTiles:
        """The tokens of a batch."""
        device = batch.device

        def laid_out() -> tuple[Tiles, torch.Tensor, torch.Tensor, torch.Tensor]:
            tiles = Tiles.of(batch.host.query_start, rows)
            # Tiles hold all tokens in order, so the places that are filled are theirs in order.
            of_tokens = np.flatnonzero(tiles.filled)
            arrays = (tiles.tokens, of_tokens, tiles.requests)
            tokens, places, requests = (staged(array, device) for array in arrays)
            return tiles, tokens, places, requests

        tiles, tokens, of_tokens, requests = batch.once_laid_out(("tiles", rows), laid_out)
        return cls(
            tiles,
            tokens,
            of_tokens,
            requests,
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
