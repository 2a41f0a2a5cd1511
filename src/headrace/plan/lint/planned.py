"""Figures of the planner for an engine as it is set up: its memory, its speed."""

from __future__ import annotations

import math
from dataclasses import replace

from headrace.catalog.rows import Quantization
from headrace.errors import HeadraceError
from headrace.plan.lint.finding import Needs
from headrace.plan.lint.setting import Setting
from headrace.plan.lint.subject import Subject
from headrace.plan.machine.hardware_memory import place_of
from headrace.plan.memory.kv_cache import KvCache, KvKind, kv_kind
from headrace.plan.memory.memory import Load, MemoryPlan, Storage, memory_plan
from headrace.plan.model.model_shape import ModelShape
from headrace.plan.speed.replica import Replica, ReplicaChoice, replica_of

MODEL_NEEDED = "a model whose shape is known: add --model"
HARDWARE_NEEDED = "the hardware: add --hardware (`headrace catalog list hardware`)"

# What runtimes call kinds that the catalog has under another name.
_WEIGHT_NAMES = {
    "awq_marlin": "awq",
    "gptq_marlin": "gptq",
    "bitsandbytes": "nf4",
    "fbgemm_fp8": "fp8",
    "modelopt_fp4": "nvfp4",
}


def weight_kind(subject: Subject) -> Quantization | None:
    """The kind that weights are stored in; None where the model's own header says it."""
    shape, engine = subject.shape, subject.engine
    if subject.quantization is not None:
        return subject.catalog.quantizations[subject.quantization]
    if shape is not None and shape.weight_bytes is not None:
        return None
    stated = engine.quantization.value.lower() if engine and engine.quantization else ""
    if not stated and shape is not None and shape.published is not None:
        stated = shape.published.id
    stated = stated or "bf16"
    found = subject.catalog.quantizations.find(_WEIGHT_NAMES.get(stated, stated))
    if found is None or found.bits_per_weight is None:
        found = subject.catalog.quantizations["bf16"]
    return found


def kv_kinds(subject: Subject) -> tuple[KvKind, KvKind]:
    """Of keys and values. Raises ConfigError for a name nobody knows."""
    engine = subject.engine
    keys = _kv_name(engine.kv_type if engine else None)
    values = _kv_name(engine.kv_type_values) if engine and engine.kv_type_values else keys
    if engine and engine.runtime == "llama.cpp" and engine.kv_type_values is None:
        values = "F16"
    return kv_kind(keys, subject.catalog), kv_kind(values, subject.catalog)


def request_context(subject: Subject) -> Setting[int] | None:
    """Tokens that a request may have: as it is set, else the model's own length."""
    engine, shape = subject.engine, subject.shape
    stated = engine.context_tokens if engine else None
    if stated is not None and stated.value > 0:
        return stated
    if engine and engine.runtime == "llama.cpp":
        return None
    if shape is None or shape.context_tokens is None:
        return None
    return Setting(shape.context_tokens, "the model's own context", shape.origin or shape.source)


def cache_of(subject: Subject, shape: ModelShape, devices: int = 1) -> KvCache:
    """The KV cache of one request after another."""
    keys, values = kv_kinds(subject)
    engine = subject.engine
    block = engine.block_size.value if engine and engine.block_size else 16
    return KvCache(shape, keys, values, block, devices)


def memory(
    subject: Subject,
    context: int,
    users: int,
    *,
    devices: int | None = None,
    weights: Quantization | None = None,
) -> MemoryPlan | Needs:
    """Of each device; the share of GPU memory is the engine's where it states one."""  # fmt: skip
    engine, shape = subject.engine, subject.shape
    if shape is None:
        return subject.need("shape", MODEL_NEEDED)
    if not subject.hardware_name:
        return subject.need("hardware", HARDWARE_NEEDED)
    try:
        place = place_of(subject.catalog, subject.hardware_name)
        place = replace(place, devices=devices or (engine.devices if engine else 1))
        if engine and engine.memory_share is not None:
            place = replace(place, usable_share=engine.memory_share.value)
        keys, values = kv_kinds(subject)
        storage = Storage(weights or weight_kind(subject), keys, values)
        step = engine.step_tokens.value if engine and engine.step_tokens else 2048
        load = Load(context, users, max(1, min(step, context)))
        return memory_plan(subject.catalog, shape, place, storage, load)
    except HeadraceError as error:
        return Needs(f"a plan of memory: {error}")


def replica(subject: Subject, *, devices: int | None = None) -> Replica | Needs:
    """The engine's replica, its layers shared by `devices` (as it is set up)."""
    shape, engine = subject.shape, subject.engine
    if shape is None:
        return subject.need("shape", MODEL_NEEDED)
    if not subject.hardware_name or subject.hardware is None:
        return subject.need("hardware", HARDWARE_NEEDED)
    count = devices or (engine.devices if engine else 1)
    pipeline = engine.pipeline_parallel.value if engine and engine.pipeline_parallel else 1
    if devices is not None:
        pipeline = 1
    try:
        keys, values = kv_kinds(subject)
        storage = Storage(weight_kind(subject), keys, values)
        choice = ReplicaChoice(
            hardware=subject.hardware.id, count=count, tensor=count // pipeline, pipeline=pipeline
        )
        return replica_of(subject.catalog, shape, storage, choice, None)
    except HeadraceError as error:
        return Needs(f"a plan of speed: {error}")


def usual_batch(subject: Subject) -> tuple[int, str, str] | None:
    """Requests decoded together, with name and place: as a run had them, else as is allowed."""
    if subject.run is not None:
        running = [one.values["running"] for one in subject.run.readings if "running" in one.values]
        busy = [value for value in running if value > 0]
        if busy:
            mean = max(1, math.floor(sum(busy) / len(busy) + 0.5))
            return (
                mean,
                "requests running, mean while any ran",
                f"{subject.run.where}/metrics.jsonl",
            )
    engine = subject.engine
    if engine and engine.max_num_seqs and engine.max_num_seqs.value > 0:
        one = engine.max_num_seqs
        return one.value, one.name, one.where
    return None


def _kv_name(stated: Setting[str] | None) -> str:
    name = stated.value if stated else "auto"
    if name.lower() == "auto":
        return "F16"
    return "fp8" if name.lower().startswith("fp8") else name
