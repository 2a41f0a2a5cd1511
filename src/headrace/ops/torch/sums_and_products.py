"""Sums and products whose result for a row does not depend on the other rows.

Libraries choose the order of a sum by the shape of all they are given. Here a sum is halves added
to halves, elementwise, so its order follows from its length alone; a product always takes as many
rows, those that lack being zeros, so that it is the same product whatever the batch. Without
`--reproducible` a library is handed all rows at once, and chooses.
"""

from __future__ import annotations

import torch

CPU_ROWS = 16
"""Rows of a product on a processor: what fills its vectors. Products of fewer rows are padded."""

DEVICE_ROWS = 128
"""Rows of a product on a device: as many as half precision multiplies about as fast as weights are
read (an H100 or H200 reaches both limits at 200 to 300 rows), so that decoding with few rows is
bound by memory still, and prefill reads weights once for so many."""


def tile_rows(device: torch.device, count: int, *, reproducible: bool = True) -> int:
    """Rows of one product on a device, of `count` in all."""
    if not reproducible:
        return max(1, count)
    return CPU_ROWS if device.type == "cpu" else DEVICE_ROWS


def tree_sum(x: torch.Tensor) -> torch.Tensor:
    """Sums of the last axis: [...] of [..., n]. An odd value in the middle waits a round."""
    if not x.shape[-1]:
        return x.new_zeros(x.shape[:-1])
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        joined = x[..., :half] + x[..., half : 2 * half]
        x = joined if x.shape[-1] == 2 * half else torch.cat([joined, x[..., 2 * half :]], dim=-1)
    return x[..., 0]


def product(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, rows: int) -> None:
    """out[n, outs] = x[n, k] times weight[outs, k], `rows` rows at a time; float32 out of operands
    of one type, float32 or bfloat16. n is a multiple of `rows`.
    """
    turned = weight.t()
    for at in range(0, len(x), rows):
        part, into = x[at : at + rows], out[at : at + rows]
        if x.dtype == torch.float32:
            torch.mm(part, turned, out=into) if into.is_contiguous() else into.copy_(part @ turned)
        else:
            into.copy_(torch.mm(part, turned, out_dtype=torch.float32))


def padded(x: torch.Tensor, rows: int) -> torch.Tensor:
    """x[n, k] with rows of zeros behind, up to a multiple of `rows`."""
    lacking = -len(x) % rows
    return torch.nn.functional.pad(x, (0, 0, 0, lacking)) if lacking else x
