"""How large the KV cache is: the memory there is, and the arithmetic from it to blocks and length.

Available memory is the least of what the machine, its control groups (v1 and v2) and the limits of
the process leave, with file pages that can be dropped counted as free. What does not fit is refused
with the arithmetic and the values of the flags that do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.config.settings import EngineConfig
from headrace.engine.kv_cache import most_blocks
from headrace.engine.model import Model
from headrace.errors import ConfigError
from headrace.ops.interface import KVCodec

DEFAULT_SHARE = 4
"""One part in four of what is available goes to the KV cache by default: the machine is shared."""

MAX_BLOCKS = (1 << 31) - 1
"""Block tables hold numbers of 32 bits."""

MIB = 1 << 20

REST_BYTES = 64 * MIB
"""Of what is available, left to what steps compute with: a process whose KV cache took all there is
could not even grow its stack."""

UNKNOWN_BYTES = 1 << 62
"""Stands for memory whose size cannot be read: more than any machine has."""


class CachePlan(NamedTuple):
    """The KV cache to be made and the length of the longest request it serves.

    pool_tokens: the longest request for which there are blocks, whatever the model allows.
    """

    block_size: int
    num_blocks: int
    codec: KVCodec
    max_model_len: int
    block_bytes: int
    pool_tokens: int


def plan_kv_cache(
    model: Model, config: EngineConfig, available_bytes: int | None = None
) -> CachePlan:
    """Size the KV cache. available_bytes: of memory, for it; looked up when None.

    Raises ConfigError where the size asked for is more than there is memory for, or max_model_len
    more than the model or the cache can hold.
    """
    codec = _codec(config, model.weight_codec)
    block_bytes = model.kv_cache_spec(config.block_size, 1, codec, codec).block_bytes
    asked = config.max_model_len
    if asked is not None and asked > model.max_positions:
        raise ConfigError(
            f"max_model_len is {asked}; the model was made for {model.max_positions} tokens. "
            f"Use --max-model-len {model.max_positions} or less."
        )
    wanted_len = asked if asked is not None else model.max_positions
    available = _available(config) if available_bytes is None else available_bytes
    if config.num_gpu_blocks_override is not None:
        num_blocks = config.num_gpu_blocks_override
        _check_override(num_blocks, block_bytes, available)
        origin = f"--num-gpu-blocks-override {num_blocks}"
    else:
        budget, origin = _budget_bytes(config, available)
        num_blocks = min(budget // block_bytes, MAX_BLOCKS)
        if config.kv_cache_memory_bytes is None:
            num_blocks = min(num_blocks, config.max_num_seqs * _blocks(model, config, wanted_len))
    held = num_blocks * config.block_size
    if num_blocks >= _blocks(model, config, wanted_len):
        held = max(held, wanted_len)
    if held < (asked or 1):
        length = asked or config.block_size
        blocks = _blocks(model, config, length)
        raise _does_not_fit(config, length, blocks, held, block_bytes, origin)
    return CachePlan(
        block_size=config.block_size,
        num_blocks=num_blocks,
        codec=codec,
        max_model_len=min(wanted_len, held),
        block_bytes=block_bytes,
        pool_tokens=held,
    )


def _blocks(model: Model, config: EngineConfig, length: int) -> int:
    """Blocks that a request of this length takes at most."""
    step = config.max_num_batched_tokens
    return most_blocks(length, config.block_size, model.window, step)


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


def _available(config: EngineConfig) -> int:
    """Bytes there are for it; unreadable, a size that was asked for is taken at its word."""
    try:
        return max(0, available_memory_bytes() - REST_BYTES)
    except ConfigError:
        if config.num_gpu_blocks_override is None and config.kv_cache_memory_bytes is None:
            raise
        return UNKNOWN_BYTES


def _codec(config: EngineConfig, weight_codec: str) -> KVCodec:
    if config.kv_cache_dtype != "auto":
        return config.kv_cache_dtype
    return "f32" if weight_codec.upper() == "F32" else "bf16"


def _check_override(num_blocks: int, block_bytes: int, available: int) -> None:
    most = min(available // block_bytes, MAX_BLOCKS)
    if num_blocks <= most:
        return
    size = num_blocks * block_bytes
    if most == MAX_BLOCKS:
        reason = f"block numbers have 32 bits, so there are at most {MAX_BLOCKS}"
    else:
        reason = (
            f"{num_blocks} x {block_bytes} = {size} bytes ({size // MIB} MiB); only {available} "
            f"bytes ({available // MIB} MiB) of memory are available"
        )
    remedy = f"Use --num-gpu-blocks-override {most} or less" if most else "Free some memory"
    raise ConfigError(f"num_gpu_blocks_override is {num_blocks}: {reason}. {remedy}.")


def _budget_bytes(config: EngineConfig, available: int) -> tuple[int, str]:
    """Bytes for the KV cache and the words for where the figure is from."""
    asked = config.kv_cache_memory_bytes
    if asked is None:
        return available // DEFAULT_SHARE, (
            f"a quarter of the {available} bytes ({available // MIB} MiB) of available memory"
        )
    if asked > available:
        raise ConfigError(
            f"kv_cache_memory_bytes is {asked} ({asked // MIB} MiB); only {available} bytes "
            f"({available // MIB} MiB) of memory are available. "
            f"Use --kv-cache-memory-bytes {available} or less."
        )
    return asked, f"--kv-cache-memory-bytes {asked}"


def _does_not_fit(
    config: EngineConfig, length: int, blocks: int, held: int, block_bytes: int, origin: str
) -> ConfigError:
    if config.num_gpu_blocks_override is not None:
        remedy = f"--num-gpu-blocks-override {blocks}"
    else:
        remedy = f"--kv-cache-memory-bytes {blocks * block_bytes}"
    shorter = f"--max-model-len {held} or " if held else ""
    return ConfigError(
        f"max_model_len {length} does not fit in the KV cache: it needs {blocks} blocks of "
        f"{config.block_size} tokens, {blocks} x {block_bytes} = {blocks * block_bytes} bytes "
        f"({blocks * block_bytes // MIB} MiB); there is room for {held} tokens ({origin}). "
        f"Use {shorter}{remedy}."
    )
