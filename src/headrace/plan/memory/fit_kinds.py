"""Storage kinds that are worth trying on hardware: those that a program there reads."""

from __future__ import annotations

from headrace.catalog import Catalog
from headrace.catalog.rows import Hardware, Quantization
from headrace.plan.machine.hardware_memory import DeviceMemory
from headrace.plan.memory.memory import Storage
from headrace.plan.model.model_shape import ModelShape

# From the least loss to the most; those that GGUF files are to be had in.
_GGUF_WEIGHTS = ("q8-0", "q6-k", "q5-k-m", "q4-k-m", "iq4-xs", "q3-k-m", "q2-k-mix", "iq2-m")
_GGUF_KV = ("Q8_0", "Q4_0")
_GGUF_FAMILIES = ("gguf", "gguf-mix")
_BACKENDS = {"NVIDIA": "cuda", "AMD": "rocm"}
_RELEASED_ONLY = ("mxfp4",)
"""Kinds in which only makers release models; such models are in no other."""


def kinds_to_try(
    catalog: Catalog, shape: ModelShape, place: DeviceMemory, storage: Storage
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids of weight kinds and names of KV kinds, each from the least loss to the most.

    Weights of a GGUF file, CPUs, Apple's chips and cards without HBM have the kinds of llama.cpp;
    data-centre GPUs, and weights that are stored in a kind of theirs, those of the servers that run
    there, as far as the device computes in them or they are unpacked to 16 bits.
    """
    row = catalog.hardware.find(place.name)
    stored = storage.weights
    is_gguf = stored.family in _GGUF_FAMILIES if stored else shape.source == "GGUF header"
    backend = _BACKENDS.get((row.vendor if row else None) or "")
    stacked = row is not None and (row.memory_type or "").startswith("HBM")
    of_servers = stacked or (stored is not None and stored.family == "gpu")
    if row is None or is_gguf or backend is None or not of_servers:
        return _GGUF_WEIGHTS, _GGUF_KV
    servers = {
        one.id for one in catalog.runtimes if one.category == "server" and backend in one.backends
    }
    read = [
        one
        for one in catalog.quantizations
        if one.bits_per_weight is not None
        and servers & set(one.runtimes)
        and one.id not in _RELEASED_ONLY
    ]
    weights = [one for one in read if one.family == "gpu" and _computes(row, one)]
    weights.sort(key=lambda one: -(one.bits_per_weight or 0))
    if stored is not None and stored.id in _RELEASED_ONLY:
        weights = []
    caches = [one for one in read if one.family == "kv-cache" and _is_native(row, one)]
    caches.sort(key=lambda one: -(one.bits_per_weight or 0))
    return (
        tuple(one.id for one in weights),
        tuple(one.id.removeprefix("kv-") for one in caches),
    )


def _computes(row: Hardware, kind: Quantization) -> bool:
    return (kind.activation_type or "fp16") in ("fp16", "bf16") or _is_native(row, kind)


def _is_native(row: Hardware, kind: Quantization) -> bool:
    """As the kind's row says, or the device has a peak in it."""
    types = {kind.activation_type, kind.id.removeprefix("kv-")} - {None}
    has = any(getattr(row, f"dense_{one}_flops", None) for one in types)
    return row.id in kind.native_on or (bool(kind.native_on) and has)
