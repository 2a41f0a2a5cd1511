"""A ragged batch on the device: what layers read of it, copied once for a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from headrace.ops.kv import RaggedBatch
from headrace.ops.torch.matrices import on_device

Tables = tuple[torch.Tensor, ...]


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
