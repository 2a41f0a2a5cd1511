"""How much memory this process could still take.

It is the least of what the machine, its control groups (v1 and v2) and the limits of the process
leave, with file pages that can be dropped counted as free.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.errors import ConfigError


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Bytes this process could still take: MemAvailable, or what its groups and limits leave.

    root: where proc/ and sys/ lie. Raises ConfigError where /proc/meminfo cannot be read.
    """
    meminfo = root / "proc" / "meminfo"
    try:
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(
            f"cannot read how much memory is available from {meminfo}; "
            "set --kv-cache-memory-bytes or --num-gpu-blocks-override"
        ) from error
    return max(0, min([available, *_cgroup_rooms(root), *_limit_rooms(root)]))


def _cgroup_rooms(root: Path) -> Iterator[int]:
    """Bytes left in each control group above this process that has a limit."""
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts, names = ["sys/fs/cgroup", "sys/fs/cgroup/unified"], _V2
        elif "memory" in controllers.split(","):
            mounts, names = ["sys/fs/cgroup/memory"], _V1
        else:
            continue
        for mount in mounts:
            group = (root / mount / path.lstrip("/")).resolve()
            top = (root / mount).resolve()
            # In a container the path may name a group that is not mounted here; its top is ours.
            for folder in [group, *group.parents] if group.is_relative_to(top) else [top]:
                room = _room(folder, names)
                if room is not None:
                    yield room
                if folder == top:
                    break


class _Names(NamedTuple):
    limit: str
    usage: str
    droppable: str


_V2 = _Names("memory.max", "memory.current", "inactive_file")
_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _room(folder: Path, names: _Names) -> int | None:
    """Bytes left in one control group; None without a limit or without such a group."""
    try:
        limit = (folder / names.limit).read_text().strip()
        usage = int((folder / names.usage).read_text())
        statistics = (folder / "memory.stat").read_text()
    except OSError:
        return None
    if limit == "max":
        return None
    droppable = 0
    for line in statistics.splitlines():
        name, _, value = line.partition(" ")
        if name == names.droppable:
            droppable = int(value)
    return int(limit) - usage + droppable


_LIMITED = {"Max address space": "VmSize", "Max data size": "VmData"}
"""Limits of a process (`ulimit -v`, `ulimit -d`), and what counts against each."""


def _limit_rooms(root: Path) -> Iterator[int]:
    """Bytes left below each limit that this process has on its memory."""
    folder = root / "proc" / "self"
    try:
        limits = (folder / "limits").read_text().splitlines()
        status = (folder / "status").read_text().splitlines()
    except OSError:
        return
    used = dict(line.split(":", 1) for line in status)
    for line in limits:
        for name, figure in _LIMITED.items():
            soft = line.removeprefix(name).split()[0] if line.startswith(name) else "unlimited"
            if soft != "unlimited":
                yield int(soft) - int(used[figure].split()[0]) * 1024
