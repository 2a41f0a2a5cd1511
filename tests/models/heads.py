"""What tests of draft heads share: batches, caches, and parts of slow twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.models import Model
from headrace.models.heads import DraftHead
from headrace.ops.interface import Ops
from headrace.ops.kv import RaggedBatch

Floats = npt.NDArray[np.float64]
Values = npt.NDArray[np.float32]


def whole(model: Model | DraftHead, token_ids: list[int]) -> RaggedBatch:
    """All tokens of one request, with logits of each."""
    count = len(token_ids)
    tables = model.cache_layout.tables(np.arange(4, 0, -1, dtype=np.int32)[None])
    return RaggedBatch(
        token_ids=np.array(token_ids, np.int32),
        positions=np.arange(count, dtype=np.int32),
        query_start=np.array([0, count], np.int32),
        block_tables=tables,
        logit_rows=np.arange(count, dtype=np.int32),
    )


def cache(model: Model | DraftHead, ops: Ops) -> Any:
    layout = model.cache_layout
    return ops.kv_cache(layout.spec(16, 5 * layout.num_tables, "f32", "f32"))


def run(head: DraftHead, ops: Ops, token_ids: list[int], features: Values) -> tuple[Any, Any]:
    return head.begin(whole(head, token_ids), cache(head, ops), features, ())


def rms(x: Floats, weight: Values, eps: float = 1e-5) -> Floats:
    return x * weight / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def rotated(x: Floats, theta: float = 10000.0) -> Floats:
    """Heads f64[N, heads, dim] turned by their positions."""
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
