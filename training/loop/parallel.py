"""Data parallelism over processes of one machine, for cores that other work is using too.

Threads inside an operation meet at a barrier hundreds of times per step, and one that waits for a
core holds up the rest. Processes with one thread each meet once per step, to average gradients.
Whoever stops one of them stops all, after at most one step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist


@dataclass(frozen=True)
class Workers:
    """This process's place among `count` equal ones; rank 0 evaluates, saves and prints."""

    rank: int = 0
    count: int = 1

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace every gradient by its mean over the workers."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        self.sum_over(gradients)
        if self.count > 1:
            for gradient in gradients:
                gradient /= self.count

    def sum_over(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor by its sum over the workers, in one exchange."""
        if self.count == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat)
        sizes = [tensor.numel() for tensor in tensors]
        for tensor, total in zip(tensors, torch.split(flat, sizes), strict=True):
            tensor.copy_(total.view_as(tensor))

    def from_first(self, value: float) -> float:
        """Rank 0's value, on every rank."""
        if self.count == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(shared, src=0)
        return float(shared)


def join(rank: int, count: int, meeting_point: Path) -> Workers:
    """Meet the other workers through the file `meeting_point`, which must not exist before."""
    if count > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting_point.resolve()}", rank=rank, world_size=count
        )
    return Workers(rank, count)
