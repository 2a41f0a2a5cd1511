"""Memory: does the KV cache hold what is let in, how much of the GPU is taken, fixed slots."""

from __future__ import annotations

import math

from headrace.errors import ConfigError
from headrace.plan.lint import planned
from headrace.plan.lint.engine_setup import EngineSetup
from headrace.plan.lint.finding import Check, Evidence, Found, Needs, Outcome
from headrace.plan.lint.subject import Subject
from headrace.plan.lint.threshold import threshold
from headrace.plan.lint.traffic import lengths_of
from headrace.plan.memory.kv_cache import KvCache


def kv_overcommit(subject: Subject) -> Outcome:
    """Whether max_num_seqs requests, of their lengths where known, fit into the cache."""
    engine, shape = subject.engine, subject.shape
    if engine is None:
        return Needs("an engine's config")
    if shape is None:
        return subject.need("shape", planned.MODEL_NEEDED)
    if engine.runtime == "llama.cpp":
        return _allocated_at_start(subject, engine)
    context = planned.request_context(subject)
    seqs = engine.max_num_seqs
    if context is None:
        return Needs("the context: state --max-model-len")
    if seqs is None:
        return Needs("--max-num-seqs: the default differs between versions")
    try:
        cache = planned.cache_of(subject, shape, engine.devices)
    except ConfigError as error:  # a type that only the runtime knows
        return Needs(f"the type of keys and values: {error}")
    each = cache.request_bytes(context.value)
    if engine.kv_bytes is not None:
        room: float = engine.kv_bytes.value
        told = engine.kv_bytes.evidence("byte")
    elif engine.kv_blocks is not None:
        block = engine.block_size.value if engine.block_size else 16
        room = engine.kv_blocks.value * block * cache.bytes_per_token
        told = engine.kv_blocks.evidence("blocks")
    elif engine.runtime == "headrace":
        return Needs("the size of the cache: state --kv-cache-memory-bytes")
    else:
        plan = planned.memory(subject, context.value, 1)
        if isinstance(plan, Needs):
            return plan
        low, high = (max(0.0, end) for end in plan.free_for_kv.band)
        room = max(0.0, plan.free_for_kv.value)
        told = Evidence(
            f"free for KV on each of {plan.place.devices} x {plan.place.name}", room,
            f"plan fit, figure free-for-kv, from {low / 1e9:.1f} to {high / 1e9:.1f} GB", "byte",
        )  # fmt: skip
    holds = int(room // each) if each else seqs.value
    if holds >= seqs.value:
        return ()
    evidence = (
        seqs.evidence("requests"),
        context.evidence("tokens"),
        told,
        Evidence("KV of a request of that context", each, "plan fit, formula F7", "byte"),
        Evidence("requests of that context that fit", holds, "computed", "requests"),
    )
    # headrace takes as long a context as its cache holds, where none is stated.
    shortens = engine.runtime == "headrace" and engine.max_model_len is None
    if holds == 0 and not shortens:
        return (
            Found(
                "the cache cannot hold one request of the allowed context",
                evidence,
                f"--max-model-len {max(1, cache.most_tokens(room, 1, context.value))}, or a "
                "smaller --kv-cache-dtype, fewer bits of the weights, or more devices",
                "error",
            ),
        )
    return _of_lengths(subject, cache, room, seqs.value, holds, evidence)


def _of_lengths(
    subject: Subject,
    cache: KvCache,
    room: float,
    seqs: int,
    holds: int,
    evidence: tuple[Evidence, ...],
) -> Outcome:
    """A paged cache is made for more requests than fit at full length: their own lengths decide.

    holds: requests of the whole context that fit; fewer than `seqs`.
    """
    lengths = lengths_of(subject)
    if lengths is None:
        return (
            Found(
                f"{seqs:,} requests are admitted and {holds:,} of full length fit, which is "
                "normal for a paged cache if requests are shorter; to know their lengths "
                "add a run, or --prompts with --tokenizer",
                evidence,
                f"if requests are that long: --max-num-seqs {max(1, holds)}",
                "info",
            ),
        )
    mean = math.ceil(sum(lengths.tokens) / len(lengths.tokens))
    fitting = int(room // max(1.0, cache.request_bytes(mean)))
    if fitting >= seqs:
        return ()
    return (
        Found(
            f"{seqs:,} requests are admitted and {fitting:,} of the mean length fit: the rest "
            "are preempted and computed again",
            (
                *evidence,
                Evidence("mean request", mean, lengths.where, "tokens"),
                Evidence("requests of the mean length that fit", fitting, "computed", "requests"),
            ),
            f"--max-num-seqs {max(1, fitting)}, or a smaller --kv-cache-dtype",
        ),
    )


def _allocated_at_start(subject: Subject, engine: EngineSetup) -> Outcome:
    total = engine.total_context_tokens
    if total is None or total.value <= 0:
        return Needs("--ctx-size: the default is the model's own length, or less")
    plan = planned.memory(subject, total.value, 1)
    if isinstance(plan, Needs):
        return plan
    if plan.fits:
        return ()
    most = plan.cache.most_tokens(max(0.0, plan.free_for_kv.value), 1, total.value)
    layers = engine.gpu_layers
    stated = int(layers.value) if layers is not None and layers.value.isdigit() else None
    if stated is not None and subject.shape is not None and stated < subject.shape.num_layers:
        return Needs("a model wholly on the device: some of its layers are kept outside it")
    return (
        Found(
            "llama-server allocates the whole cache at its start, and it does not fit",
            (
                total.evidence("tokens"),
                Evidence("needed", plan.needed.value, "plan fit, figure needed", "byte"),
                Evidence("usable", plan.usable.value, "plan fit, figure usable", "byte"),
            ),
            f"--ctx-size {max(1, most)}, or --cache-type-k q8_0 --cache-type-v q8_0",
            "error",
        ),
    )


def memory_share(subject: Subject) -> Outcome:
    """gpu_memory_utilization against the range that the documents advise."""
    engine = subject.engine
    if engine is None:
        return Needs("an engine's config")
    share = engine.memory_share
    if share is None:
        return () if engine.runtime != "vllm" else Needs("--gpu-memory-utilization to be stated")
    figure = subject.catalog.runtimes["vllm"].figures["gpu-memory-utilization"]
    low, high = figure.low or 0.0, figure.high or 1.0
    if not 0 < share.value <= 1:
        return (
            Found(
                "it is a share of the memory, above 0 and at most 1: the engine does not start",
                (share.evidence("share"),),
                f"--gpu-memory-utilization {high:g}",
                "error",
            ),
        )
    if low <= share.value <= high:
        return ()
    below = share.value < low
    evidence = [
        share.evidence("share"),
        Evidence("recommended, from", low, "catalog: vllm.figures.gpu-memory-utilization", "share"),
        Evidence("recommended, to", high, "catalog: vllm.figures.gpu-memory-utilization", "share"),
    ]
    if subject.hardware is not None and subject.hardware.memory_bytes:
        unused = subject.hardware.memory_bytes * abs(share.value - (low if below else high))
        evidence.append(
            Evidence(
                "KV cache not available" if below else "headroom lacking", unused,
                f"computed, of {subject.hardware.name}", "byte",
            )
        )  # fmt: skip
    return (
        Found(
            "memory that could hold KV is left idle" if below
            else "there is no room for memory that the runtime does not count: it will run out of "
                "memory under load",
            tuple(evidence),
            f"--gpu-memory-utilization {low if below else high:g}",
        ),
    )  # fmt: skip


def fixed_slots(subject: Subject) -> Outcome:
    """llama-server's cache is divided evenly among slots unless it is unified."""
    engine = subject.engine
    if engine is None:
        return Needs("an engine's config")
    seqs, total = engine.max_num_seqs, engine.total_context_tokens
    if engine.runtime != "llama.cpp" or (engine.kv_unified and engine.kv_unified.value):
        return ()
    if seqs is None or total is None or total.value <= 0:
        return Needs("--parallel and --ctx-size to be stated")
    if seqs.value <= 1:
        return ()
    lengths = lengths_of(subject)
    if lengths is None:
        return Needs("lengths of requests: add a run, or --prompts with --tokenizer")
    slot = total.value // seqs.value
    longest, mean = max(lengths.tokens), sum(lengths.tokens) / len(lengths.tokens)
    evidence = (
        total.evidence("tokens"),
        seqs.evidence("slots"),
        Evidence("context of a slot", slot, "computed: one divided by the other", "tokens"),
        Evidence("longest request", longest, lengths.where, "tokens"),
        Evidence("mean request", round(mean), lengths.where, "tokens"),
    )
    if longest > slot:
        return (
            Found(
                "requests are longer than a slot, though the cache as a whole would hold them",
                evidence,
                f"--kv-unified, or --ctx-size {longest * seqs.value}",
                "error",
            ),
        )
    if mean > slot * (1 - threshold(subject, "wasted-slot-share")):
        return ()
    return (
        Found(
            "each slot keeps room for its longest request, and most of it stays empty",
            evidence,
            "--kv-unified, or more slots: "
            f"--parallel {max(seqs.value + 1, int(total.value // max(longest, 1)))}",
        ),
    )


CHECKS = (
    Check(
        "L-kv-overcommit", "KV overcommit", "warning", ("engine", "run", "prompts"),
        "the model's shape, the context, --max-num-seqs; the cache's size or --hardware; "
            "lengths of requests, else it is only information",
        "fewer sequences, a shorter context, a smaller KV type",
        ("qg-963", "memory-aware-batching", "kv-reserve"), kv_overcommit,
    ),
    Check(
        "L-memory-share", "share of GPU memory", "warning", ("engine",),
        "--gpu-memory-utilization stated",
        "--gpu-memory-utilization from 0.85 to 0.95",
        ("qg-975", "qg-963", "vllm"), memory_share,
    ),
    Check(
        "L-kv-slots", "KV divided into fixed slots", "warning", ("engine", "run", "prompts"),
        "--parallel and --ctx-size of llama-server, and lengths of requests",
        "--kv-unified, or a paged cache",
        ("cr-462", "paged-attention"), fixed_slots,
    ),
)  # fmt: skip
