"""What the torch backend refuses: arrays and batches that do not keep the interface's words.

Shapes are asked, and what is in NumPy; values on the device are not looked at, which would have the
step wait for it. Each check raises ValueError naming the field, the value and the limit.
"""

from __future__ import annotations

import torch

from headrace.ops.batch_checks import check_limits, place_of
from headrace.ops.kv import AttentionShape, KVCacheSpec, LayerPlace, RaggedBatch


def check_rows(name: str, x: torch.Tensor, width: int, count: int | None = None) -> None:
    """x must be float32[N, width]; count: of its rows, where that is known."""
    if x.dtype != torch.float32 or x.ndim != 2 or x.shape[1] != width:
        raise ValueError(f"{name} must be float32[N, {width}], not {x.dtype}{list(x.shape)}")
    if count is not None and len(x) != count:
        raise ValueError(f"{name} has {len(x)} rows, x has {count}")


def check_vector(name: str, values: torch.Tensor | None, size: int) -> None:
    """There must be so many values, where there are any."""
    if values is not None and (values.dtype != torch.float32 or values.shape != (size,)):
        raise ValueError(f"{name} must be float32[{size}], not {values.dtype}{list(values.shape)}")


def check_shape(qkv: torch.Tensor, shape: AttentionShape) -> None:
    """Heads must divide, qkv must hold q, k and v heads, and limits must mean something."""
    check_limits(shape)
    check_rows("qkv", qkv, shape.row_width)


def check_layer(
    qkv: torch.Tensor, shape: AttentionShape, spec: KVCacheSpec, layer: int, batch: RaggedBatch
) -> LayerPlace:
    """The place of the layer. The batch must describe these rows."""
    check_shape(qkv, shape)
    place = place_of(shape, spec, layer)
    if len(qkv) != batch.num_tokens:
        raise ValueError(f"{len(qkv)} rows and {batch.num_tokens} token_ids must be equally many")
    return place
