"""How large the KV cache is: the arithmetic from available memory to blocks and length.

What does not fit is refused with the arithmetic and the values of the flags that do.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.config.settings import EngineConfig
from headrace.engine.kv.kv_sizes import most_blocks_of
from headrace.engine.memory.available import available_memory_bytes
from headrace.engine.memory.device_memory import device_room
from headrace.errors import ConfigError
from headrace.models.layer_cache import CacheKind, CacheKinds, CacheLayout
from headrace.ops.device import DeviceMemory
from headrace.ops.interface import Ops
from headrace.ops.kv import KV_CODECS, KVCacheArrays, KVCacheSpec, KVCodec

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


class CacheShape(Protocol):
    """The sizes of a model that a KV cache depends on; as in engine/model.py."""

    @property
    def max_positions(self) -> int: ...

    @property
    def weight_codec(self) -> str: ...

    @property
    def cache_layout(self) -> CacheLayout: ...


class CachePlan(NamedTuple):
    """The KV cache to be made and the length of the longest request it serves."""

    block_size: int
    num_blocks: int
    kinds: CacheKinds
    """What K and V are stored in."""
    layout: CacheLayout
    """The model's, stored so."""
    max_model_len: int
    block_bytes: int
    pool_tokens: int
    """The longest request for which there are blocks, whatever the model allows."""
    available_bytes: int = 0
    """Of memory, for the KV cache, when it was sized; 0 where that is not known."""
    budget: str = ""
    """In words, where the number of blocks is from."""

    @property
    def spec(self) -> KVCacheSpec:
        """The KV cache itself."""
        return spec_of(self.layout, self.kinds, self.block_size, self.num_blocks)

    @property
    def types(self) -> str:
        """Of K and V, or of each where they differ, and of layers with a window after those
        without: `int8,q4_0`, `fp8;bf16`, `q4_0+near`.
        """
        groups = [group for group in self.layout.groups if not group.near]
        names = (
            (self.kinds.full.name, [group for group in groups if not group.window]),
            (self.kinds.sliding.name, [group for group in groups if group.window]),
        )
        return ";".join(dict.fromkeys(name for name, of in names if of))


def plan_kv_cache(
    model: CacheShape,
    config: EngineConfig,
    available_bytes: int | None = None,
    reserved_bytes: int = 0,
    *,
    device: DeviceMemory | None = None,
) -> CachePlan:
    """Size the KV cache. available_bytes: of memory, now; looked up when None.

    reserved_bytes: of these, what steps will take besides: packed experts and the rows of theirs.
    device: where the cache is kept on a device with memory of its own, that memory, now; its share
    of it is all that is left there, and not a part.

    Raises ConfigError where the size asked for is more than there is memory for, or max_model_len
    more than the model or the cache can hold.
    """
    check_sliding(config, model.cache_layout)
    kinds = kinds_of(config, model.weight_codec)
    layout = model.cache_layout.stored_as(kinds)
    block_bytes = block_bytes_of(layout, kinds, config)
    asked = config.max_model_len
    if asked is not None and asked > model.max_positions:
        raise ConfigError(
            f"--max-model-len is {asked}; the model was made for {model.max_positions} tokens. "
            f"Use --max-model-len {model.max_positions} or less."
        )
    wanted_len = asked if asked is not None else model.max_positions
    if device is not None:
        available = device_room(device, config.gpu_memory_utilization)
    else:
        available = _available(config) if available_bytes is None else available_bytes
    room = _Room(layout, config, block_bytes, max(0, available - reserved_bytes))
    if config.num_gpu_blocks_override is not None:
        num_blocks = config.num_gpu_blocks_override
        room.check_override(num_blocks)
        budget = f"--num-gpu-blocks-override {num_blocks}"
    elif config.kv_cache_memory_bytes is not None:
        num_bytes = config.kv_cache_memory_bytes
        room.check_bytes(num_bytes)
        num_blocks = min(num_bytes // block_bytes, MAX_BLOCKS)
        budget = f"--kv-cache-memory-bytes {num_bytes}"
    else:
        parts = DEFAULT_SHARE if device is None else 1
        share = min(available // parts, room.available)
        num_blocks = min(share // block_bytes, MAX_BLOCKS)
        enough = config.max_num_seqs * blocks_of_request(layout, config, wanted_len)
        if enough < num_blocks:
            num_blocks = enough
            budget = f"enough for --max-num-seqs {config.max_num_seqs} of {wanted_len} tokens"
        elif device is not None:
            budget = (
                f"--gpu-memory-utilization {config.gpu_memory_utilization:g} of "
                f"{_in_mib(device.total_bytes)}, less what is in use there and what steps take"
            )
        elif share < available // DEFAULT_SHARE:
            budget = f"what experts leave of {available // MIB:,} MiB available"
        else:
            budget = f"a quarter of {available // MIB:,} MiB available"
    held = room.tokens(num_blocks, wanted_len)
    if held < (asked or 1):
        raise room.does_not_fit(asked, held, budget)
    return CachePlan(
        block_size=config.block_size,
        num_blocks=num_blocks,
        kinds=kinds,
        layout=layout,
        max_model_len=min(wanted_len, held),
        block_bytes=block_bytes,
        pool_tokens=held,
        available_bytes=0 if available == UNKNOWN_BYTES else available,
        budget=budget,
    )


def spec_of(
    layout: CacheLayout, kinds: CacheKinds, block_size: int, num_blocks: int
) -> KVCacheSpec:
    """A KV cache of a layout that is stored so."""
    return layout.spec(block_size, num_blocks, kinds.full.k, kinds.full.v)


def block_bytes_of(layout: CacheLayout, kinds: CacheKinds, config: EngineConfig) -> int:
    """Bytes of one block."""
    return spec_of(layout, kinds, config.block_size, 1).block_bytes


def blocks_of_request(layout: CacheLayout, config: EngineConfig, length: int) -> int:
    """Blocks that a request of this length takes at most."""
    step = config.max_num_batched_tokens
    return most_blocks_of(layout.groups, length, config.block_size, step)


def _available(config: EngineConfig) -> int:
    """Bytes there are for it; unreadable, a size that was asked for is taken at its word."""
    try:
        return max(0, available_memory_bytes() - REST_BYTES)
    except ConfigError:
        if config.num_gpu_blocks_override is None and config.kv_cache_memory_bytes is None:
            raise
        return UNKNOWN_BYTES


def check_sliding(config: EngineConfig, layout: CacheLayout) -> None:
    """Raise ConfigError where layers with a window have a type set, and the model has none."""
    if any(group.window and not group.near for group in layout.groups):
        return
    for flag, value in (
        ("--kv-cache-dtype-sliding", config.kv_cache_dtype_sliding),
        ("--kv-cache-dtype-sliding-v", config.kv_cache_dtype_sliding_v),
    ):
        if value != "auto":
            raise ConfigError(
                f"{flag} {value} is for layers with a window, and this model has none. Omit it, or "
                "set --kv-cache-dtype"
            )


def kinds_of(config: EngineConfig, weight_codec: str) -> CacheKinds:
    """What K and V are stored in. weight_codec: that of most of the weights.

    Raises ConfigError where nothing could be kept near.
    """
    k: KVCodec = "f32" if weight_codec.upper() == "F32" else "bf16"
    if config.kv_cache_dtype != "auto":
        k = config.kv_cache_dtype
    v = k if config.kv_cache_dtype_v == "auto" else config.kv_cache_dtype_v
    of_sliding = (k, v)
    if config.kv_cache_dtype_sliding != "auto":
        of_sliding = (config.kv_cache_dtype_sliding, config.kv_cache_dtype_sliding)
    if config.kv_cache_dtype_sliding_v != "auto":
        of_sliding = (of_sliding[0], config.kv_cache_dtype_sliding_v)
    full, sliding = (_kind(config, *types) for types in ((k, v), of_sliding))
    if config.kv_cache_near == "bf16" and not (full.near or sliding.near):
        raise ConfigError(
            f"--kv-cache-near bf16 is for K and V that are both of 8 or 4 bits, and they are "
            f"{full.name}. Use --kv-cache-near none, or --kv-cache-dtype fp8, int8, q8_0 or q4_0."
        )
    return CacheKinds(full, sliding)


def _kind(config: EngineConfig, k: KVCodec, v: KVCodec) -> CacheKind:
    """The kind of layers with these types."""
    narrow = max(KV_CODECS[k].value_bits, KV_CODECS[v].value_bits) <= 8
    wanted = config.kv_cache_near == "bf16" or (config.kv_cache_near == "auto" and "q4_0" in (k, v))
    return CacheKind(k, v, near=narrow and wanted)


def _in_mib(num_bytes: int) -> str:
    return f"{num_bytes} bytes ({num_bytes // MIB} MiB)"


class _Room(NamedTuple):
    """The memory for the blocks of a model, and the errors if it is too small.

    Every flag value in those errors works when it is used; tests try them.
    """

    layout: CacheLayout
    config: EngineConfig
    block_bytes: int
    available: int

    @property
    def most_blocks(self) -> int:
        """Blocks that all of the available memory holds."""
        return min(self.available // self.block_bytes, MAX_BLOCKS)

    def tokens(self, num_blocks: int, wanted_len: int) -> int:
        """The longest request so many blocks serve. Where every layer has a window there may be no
        such length: it is then `wanted_len`, or what the blocks hold where that is more.
        """
        held = self.longest(num_blocks)
        return max(held, wanted_len) if self.blocks(wanted_len) <= num_blocks else held

    def blocks(self, length: int) -> int:
        """Blocks that a request of this length takes at most."""
        return blocks_of_request(self.layout, self.config, length)

    def longest(self, num_blocks: int) -> int:
        """Tokens, in whole blocks, that fit in so many; no more than they hold of one table."""
        size = self.config.block_size
        fits, too_long = 0, num_blocks + 1
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            if self.blocks(middle * size) <= num_blocks:
                fits = middle
            else:
                too_long = middle
        return fits * size

    def check_override(self, num_blocks: int) -> None:
        """Raises ConfigError where there is no memory for so many blocks."""
        most = self.most_blocks
        if num_blocks <= most:
            return
        if most == MAX_BLOCKS:
            reason = f"block numbers have 32 bits, so there are at most {MAX_BLOCKS}"
        else:
            reason = (
                f"{num_blocks} x {self.block_bytes} = {_in_mib(num_blocks * self.block_bytes)}; "
                f"only {_in_mib(self.available)} of memory are available"
            )
        raise ConfigError(
            f"--num-gpu-blocks-override is {num_blocks}: {reason}. "
            f"{self._at_most('--num-gpu-blocks-override', most)}"
        )

    def check_bytes(self, num_bytes: int) -> None:
        """Raises ConfigError where there is not so much memory."""
        if num_bytes > self.available:
            raise ConfigError(
                f"--kv-cache-memory-bytes is {num_bytes} ({num_bytes // MIB} MiB); only "
                f"{_in_mib(self.available)} of memory are available. "
                f"{self._at_most('--kv-cache-memory-bytes', self.available)}"
            )

    def does_not_fit(self, asked: int | None, held: int, budget: str) -> ConfigError:
        """The error for a length that the blocks do not hold. held: the tokens they do."""
        config, block_bytes = self.config, self.block_bytes
        length = config.block_size if asked is None else asked
        blocks = self.blocks(length)
        remedies = [f"--max-model-len {held}"] if held else []
        overridden = config.num_gpu_blocks_override is not None
        most = self.most_blocks
        if blocks <= most:
            remedies.append(self._size(blocks))
        elif self.longest(most) > held and not (overridden and held):
            remedies.append(f"--max-model-len {self.longest(most)} {self._size(most)}")
        remedy = f"Use {' or '.join(remedies)}" if remedies else self._nothing_fits
        shortest = "one block" if blocks == 1 else f"a request of {length} tokens"
        subject = shortest if asked is None else f"--max-model-len is {length}, which"
        return ConfigError(
            f"{subject} does not fit in the KV cache: it needs {blocks} "
            f"block{'' if blocks == 1 else 's'} of {config.block_size} tokens, "
            f"{blocks} x {block_bytes} = "
            f"{_in_mib(blocks * block_bytes)}; there is room for {held} tokens ({budget}). "
            f"{remedy}."
        )

    def _size(self, num_blocks: int) -> str:
        """The flag that gives so many blocks, of those that set the size."""
        if self.config.num_gpu_blocks_override is not None:
            return f"--num-gpu-blocks-override {num_blocks}"
        return f"--kv-cache-memory-bytes {num_blocks * self.block_bytes}"

    def _at_most(self, flag: str, most: int) -> str:
        """The remedy that lowers a flag, and the length with it where that is then too long."""
        if not self.longest(self.most_blocks):
            return f"{self._nothing_fits}."
        asked = self.config.max_model_len
        held = self.longest(self.most_blocks)
        if asked is not None and self.tokens(self.most_blocks, asked) < asked:
            return f"Use {flag} {most} --max-model-len {held}."
        return f"Use {flag} {most} or less."

    @property
    def _nothing_fits(self) -> str:
        return "Free some memory, or use a smaller model: not even one block fits"


def allocate(ops: Ops, spec: KVCacheSpec) -> KVCacheArrays:
    """The arrays of the KV cache. It was planned to fit, but memory may be gone since then."""
    try:
        return ops.kv_cache(spec)
    except MemoryError as error:
        size = spec.num_blocks * spec.block_bytes
        raise ConfigError(
            f"the KV cache cannot be allocated: {spec.num_blocks} blocks of {spec.block_bytes} "
            f"bytes are {size} bytes ({size // MIB} MiB). Free memory, or use "
            f"--num-gpu-blocks-override {max(1, spec.num_blocks // 2)} or less."
        ) from error
