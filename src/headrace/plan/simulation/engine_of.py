"""The engine of a replica on hardware as it is named: its KV cache and the times of its steps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from headrace.catalog import Catalog
from headrace.engine.kv.kv_sizes import most_blocks_of
from headrace.errors import ConfigError, shown
from headrace.models.layer_cache import ONE_GROUP, CacheLayout, LayerKV, cache_layout
from headrace.plan.calibration.stored import Found
from headrace.plan.machine.hardware_memory import THIS, constant_span
from headrace.plan.memory.kv_cache import KvCache
from headrace.plan.model.layer_shape import AttentionLayers
from headrace.plan.model.model_shape import ModelShape
from headrace.plan.simulation.settings import EngineSettings
from headrace.plan.speed.latency_of_roofline import latency_of_roofline
from headrace.plan.speed.replica import Replica
from headrace.plan.step.latency_model import LatencyModel

_MOST_PART_S = 3600
_PARTS = tuple(name for name in LatencyModel.__dataclass_fields__ if name != "source")


def engine_of(
    replica: Replica,
    *,
    context_tokens: int,
    max_num_seqs: int,
    prefix_caching: bool = True,
    latency: LatencyModel | None = None,
    kv_tokens: int | None = None,
) -> EngineSettings:
    """The engine of a replica that serves requests of about `context_tokens`.

    latency: None for the line closest to the replica's roofline. kv_tokens: None for what is free
    for KV by the memory plan. Raises ConfigError where not one such request fits.
    """
    block_size = replica.storage.block_tokens
    layout = layout_of(replica.shape)
    groups = ONE_GROUP if layout is None else layout.groups
    if kv_tokens is not None:
        num_tables = 1 if layout is None else layout.num_tables
        num_blocks = max(1, kv_tokens // block_size) * num_tables
    else:
        num_blocks = _blocks(replica, layout, context_tokens, max_num_seqs)
    step_tokens = replica.model.setup.prefill_chunk_tokens
    if latency is None:
        most = num_blocks // most_blocks_of(groups, context_tokens, block_size, step_tokens)
        latency = latency_of_roofline(
            replica.model,
            most_batch=max(1, min(max_num_seqs, most)),
            most_context_tokens=2 * context_tokens,
        ).latency
    return EngineSettings(
        latency=latency,
        num_blocks=num_blocks,
        block_size=block_size,
        groups=groups,
        max_num_batched_tokens=step_tokens,
        max_num_seqs=max_num_seqs,
        prefix_caching=prefix_caching,
    )


def kv_bytes_per_token(replica: Replica, context_tokens: int) -> float:
    """Of all layers, on all devices of the replica together; a mean where layers have windows."""
    cache = replica.memory(context_tokens, 1).cache
    return cache.request_bytes(context_tokens) * replica.place.devices / context_tokens


def measured_latency(found: Found, hardware: str, model: str) -> LatencyModel | None:
    """What `headrace plan calibrate` has fitted to this very model on this machine, if it did."""
    if hardware != THIS or found.calibration is None:
        return None
    fits = (one for one in found.calibration.models if one.model == model)
    return next((one.planned for one in fits if one.planned is not None), None)


def read_latency(path: Path) -> LatencyModel:
    """A JSON object with the fields of LatencyModel. Raises ConfigError."""
    try:
        found: Any = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a file that can be read") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: must be an object with {', '.join(_PARTS)}")
    source = str(found.pop("source", "")) or f"from {path}"
    unknown = [name for name in found if name not in _PARTS]
    missing = [name for name in _PARTS if name not in found and name != "request_s"]
    if unknown or missing:
        wrong = f"has {shown(unknown[0])}" if unknown else f"lacks {missing[0]}"
        raise ConfigError(f"{path}: {wrong}; the fields are {', '.join(_PARTS)}, in seconds")
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{path}: {name} is {shown(value)}; it must be a number of seconds")
        _check_part(f"{path}: {name}", value)
    return LatencyModel(**found, source=source)


def _check_part(name: str, seconds: float) -> None:
    """With longer steps a simulated service does nothing but wait, for years."""
    if not 0 <= seconds <= _MOST_PART_S:
        raise ConfigError(
            f"{name} is {shown(seconds)}; it must be from 0 to {_MOST_PART_S} seconds: is it in "
            "another unit?"
        )


def with_parts(latency: LatencyModel, parts: dict[str, float]) -> LatencyModel:
    """The same with some parts given. Raises ConfigError for a part there is none of."""
    if not parts:
        return latency
    for name in parts:
        if name not in _PARTS:
            raise ConfigError(f"latency {shown(name)}: must be one of {', '.join(_PARTS)}")
        _check_part(f"latency {name}", parts[name])
    said = ", ".join(f"{name} given" for name in parts)
    source = f"{latency.source}; {said}" if latency.source else said
    changed: dict[str, Any] = {**parts, "source": source}
    return replace(latency, **changed)


def latency_of_parts(parts: dict[str, float]) -> LatencyModel:
    """A model of given parts alone, those left out 0."""
    nothing = LatencyModel(
        step_s=0.0, prefill_token_s=0.0, prefill_pair_s=0.0, decode_request_s=0.0,
        decode_context_token_s=0.0,
    )  # fmt: skip
    return with_parts(nothing, parts)


def stated_cold_start_s(catalog: Catalog) -> tuple[float, float]:
    """Least and greatest, of the catalog's constant."""
    return constant_span(catalog, "cold-start-70b")


def _blocks(
    replica: Replica, layout: CacheLayout | None, context_tokens: int, max_num_seqs: int
) -> int:
    """Blocks that what is free for KV holds, one such request at least. Raises ConfigError."""
    plan = replica.memory(context_tokens, max_num_seqs)
    size = replica.storage.block_tokens
    free = plan.free_for_kv.value
    if layout is not None:
        blocks = int(free / _block_bytes(layout, plan.cache))
        step = replica.model.setup.prefill_chunk_tokens
        fits = most_blocks_of(layout.groups, context_tokens, size, step) <= blocks
        held = blocks // layout.num_tables * size
    else:
        # With states a request needs more than tokens alone say, so a block is as large as those
        # of such a request are on average.
        blocks = int(free / (plan.cache.request_bytes(context_tokens) / -(-context_tokens // size)))
        held = blocks * size
        fits = held >= context_tokens
    if not fits:
        replica.check_fits(context_tokens, 1)
        raise ConfigError(
            f"the KV cache of a replica holds {max(0, held):,} tokens, and a request "
            f"has {context_tokens:,}: use more devices with --count, or fewer bits with "
            "--kv-type"
        )
    return blocks


def layout_of(shape: ModelShape) -> CacheLayout | None:
    """The engine's layout of a model some of whose layers have a window; None where no layer has,
    so that tokens are all that counts, and where layers keep states.
    """
    if shape.states or not any(kind.window_tokens for kind in shape.attention):
        return None
    return cache_layout([_kept(kind) for kind in shape.attention for _ in range(kind.count)])


def _kept(kind: AttentionLayers) -> LayerKV | None:
    if kind.shared:
        return None
    window = kind.window_tokens or 0
    if kind.kind == "mla":
        return LayerKV(1, kind.key_values_per_token, window, kind.kv_lora_rank or 0, latent=True)
    return LayerKV(kind.kv_heads, kind.head_dim, window, kind.value_head_dim, chunked=kind.chunked)


def _block_bytes(layout: CacheLayout, cache: KvCache) -> float:
    """Of the widest table, which all blocks are as long as."""
    kinds = [kind for kind in cache.shape.attention for _ in range(kind.count)]
    tables: dict[int, float] = defaultdict(float)
    for kind, place in zip(kinds, layout.places, strict=True):
        if place is not None:
            tables[place.table] += cache.layer_token_bytes(kind)
    return max(tables.values()) * cache.block_tokens
