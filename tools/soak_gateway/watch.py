"""What a gateway and its workers hold while nobody asks anything of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import httpx

from tools.soak.watch import metrics_of, total
from tools.soak_gateway.gateway import MASTER


class Held(NamedTuple):
    """What all processes of a gateway hold at one moment."""

    at_s: float
    memory_bytes: int
    handles: int
    """Open files, without the idle connections of its pools, of which there may be any number."""
    threads: int
    tasks: int
    in_flight: int
    """Requests that are not over."""
    resting_connections: int

    def is_at_most(self, other: Held) -> bool:
        """Whether handles, threads and tasks are no more than those of `other`."""
        return (
            self.handles <= other.handles
            and self.threads <= other.threads
            and self.tasks <= other.tasks
        )


async def held(client: httpx.AsyncClient, pid: int, at_s: float) -> Held:
    """client: one that may see /metrics, whose one connection counts as a handle."""
    metrics = await metrics_of(client)
    resting = sum(
        value
        for name, value in metrics.items()
        if name.startswith("headrace:gateway_connections{") and 'state="idle"' in name
    )
    every = [pid, *children(pid)]
    return Held(
        at_s=round(at_s, 1),
        memory_bytes=sum(_status(one, "VmRSS") for one in every) * 1024,
        handles=sum(_handles(one) for one in every) - int(resting),
        threads=sum(_status(one, "Threads") for one in every),
        tasks=int(total(metrics, "headrace:gateway_tasks")),
        in_flight=int(total(metrics, "headrace:gateway_in_flight")),
        resting_connections=int(resting),
    )


def watcher(url: str) -> httpx.AsyncClient:
    """Who may see everything."""
    return httpx.AsyncClient(
        base_url=url, headers={"authorization": f"Bearer {MASTER}"}, timeout=30
    )


def children(pid: int) -> list[int]:
    """All processes below one."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            found += [int(child), *children(int(child))]
    return found


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise KeyError(field)


def _handles(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
