"""Models of real shapes without a file, timed on a device; a part of `python -m benchmarks.gpu`.

Weights are drawn on the device (benchmarks/random_weights.py) and take no memory on the host.
Routers are random as a whole, so that a token chooses experts of its own.

Of each model: decode by batch and depth, prefill, the start to the first token, and the share of a
decode step in which the device computes nothing; each is a figure of its own (gpu_pieces.py).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch

from benchmarks.gpu_pieces import Figures, has_failed
from benchmarks.random_weights import RandomOps, stand_in
from headrace.bench.engine import Case, run_case
from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.memory.device_memory import step_bytes
from headrace.engine.memory.kv_memory import plan_kv_cache
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.models import load_model
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import F8_E4M3, F32, get_codec
from headrace.weights.tensors.tensor import Tensor
from tests.tiny import tiny_checkpoint, tiny_config, tiny_shapes

LLAMA_8B = {
    "hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "intermediate": 14336,
    "vocab": 128256, "max_positions": 131072, "tied": False,
}  # fmt: skip
QWEN_30B_A3B = {
    "hidden": 2048, "layers": 48, "heads": 32, "kv_heads": 4, "head_dim": 128,
    "intermediate": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab": 151936, "max_positions": 40960, "tied": False,
}  # fmt: skip
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-3.1-8b": ("llama", LLAMA_8B),
    "qwen3-30b-a3b": ("qwen3_moe", QWEN_30B_A3B),
    "small": ("llama", {"hidden": 128, "intermediate": 256, "vocab": 288, "max_positions": 256}),
    "small-moe": ("qwen3_moe", {"vocab": 288, "max_positions": 256}),
}


class ShapeSizes(NamedTuple):
    """What is timed of which models."""

    models: tuple[tuple[str, str], ...]
    """Shapes and kinds of weights."""
    batches: tuple[int, ...]
    depths: tuple[int, ...]
    prompt: int
    new: int


SIZES = {
    "full": ShapeSizes(
        (("llama-3.1-8b", "BF16"), ("llama-3.1-8b", "F8_E4M3"), ("llama-3.1-8b", "Q8_0"),
         ("llama-3.1-8b", "Q4_K"), ("qwen3-30b-a3b", "BF16"), ("qwen3-30b-a3b", "F8_E4M3"),
         ("qwen3-30b-a3b", "Q8_0"), ("qwen3-30b-a3b", "Q4_K")),
        (1, 8, 32, 128, 256), (1024, 8192, 32768), 2048, 32,
    ),
    "small": ShapeSizes((("small", "BF16"), ("small-moe", "F8_E4M3")), (1, 2), (32,), 32, 2),
}  # fmt: skip


def made_checkpoint(shape: str, codec: str) -> Checkpoint:
    """A model of this shape whose matrices are of this kind."""
    family, sizes = SHAPES[shape]
    config = tiny_config(family, **sizes)
    if "rope_scaling" in config:
        config["rope_scaling"] = None
    tensors = {name: _made(name, size, codec) for name, size in tiny_shapes(config).items()}
    # A tokenizer is not needed, but a checkpoint has one.
    return replace(tiny_checkpoint(family), path=Path(shape), config=config, tensors=tensors)


def _made(name: str, shape: tuple[int, ...], codec: str) -> Tensor:
    if len(shape) == 1:
        return Tensor(name, shape, F32, F32.encode(np.ones((1, shape[0]), np.float32)))
    rows, width = shape[0], shape[-1]
    if name.endswith("mlp.gate.weight"):
        rng = np.random.default_rng(crc32(name.encode()))
        values = rng.standard_normal((rows, width), np.float32) * np.float32(width**-0.5)
        return Tensor(name, shape, F32, F32.encode(values))
    is_table = name.endswith(("embed_tokens.weight", "lm_head.weight"))
    if codec == F8_E4M3.name:
        return stand_in(name, shape, get_codec("BF16") if is_table else F8_E4M3)
    return stand_in(name, shape, get_codec(codec))


def free(device: torch.device) -> None:
    """Give back what nothing holds any more: a start counts what is in use on the device."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def started(
    shape: str, codec: str, device: torch.device, sizes: ShapeSizes
) -> tuple[EngineCore, dict[str, Any]]:
    """An engine over such a model and how long it took: to be ready, and to the first token."""
    free(device)
    begun_s = time.perf_counter()
    checkpoint = made_checkpoint(shape, codec)
    longest = max(case.positions for case in cases(sizes))
    config = EngineConfig(
        backend="torch", device=str(device), max_step_ms=0, speculative_config="none",
        max_model_len=min(longest, checkpoint.config["max_position_embeddings"]),
        max_num_seqs=max(sizes.batches) + 8, max_num_batched_tokens=max(512, sizes.prompt),
    )  # fmt: skip
    ops = RandomOps(str(device))
    model = load_model(checkpoint, ops, max_positions=config.max_model_len)
    ops.release_memory()
    loaded_s = time.perf_counter()
    memory = ops.memory()
    tables = model.cache_layout.num_tables
    reserved = 0
    if memory is not None:
        sizes_of = (model.config, model.vocab_size, config)
        reserved = step_bytes(*sizes_of, recorded_tables=tables)
    plan = plan_kv_cache(model, config, reserved_bytes=reserved, device=memory)
    core = EngineCore(model, ops, config, num_tokens=model.vocab_size, plan=plan)
    core.warm_up()
    ready_s = time.perf_counter()
    core.submit(Submit("first", [1, 2, 3], SamplingParams(max_tokens=1, temperature=0)))
    while core.has_work:
        core.step()
    first_s = time.perf_counter()
    return core, {
        "load_s": loaded_s - begun_s, "ready_s": ready_s - begun_s,
        "first_token_s": first_s - begun_s, "weight_bytes": model.weight_bytes,
        "kv_tokens": plan.pool_tokens, "recorded": list(core._recorded.sizes),
    }  # fmt: skip


def cases(sizes: ShapeSizes) -> Iterator[Case]:
    """All of a model, short ones first."""
    yield Case(sizes.prompt, 0, 1, 0)
    for depth in sizes.depths:
        for batch in sizes.batches:
            yield Case(0, sizes.new, batch, depth)


GAPS = {"host_gap": True, "host_gap_waiting": False}
"""Shares of the host, and whether steps are planned ahead meanwhile."""


def time_model(
    shape: str,
    codec: str,
    device: torch.device,
    sizes: ShapeSizes,
    limits: dict[str, float] | None,
    figures: Figures,
) -> None:
    """Measure what lacks of a model, as long as there is time. limits: of the roof."""
    at = ("shapes", f"{shape}-{codec}")
    rows = {("rows", f"{case.name} b{case.batch}"): case for case in cases(sizes)}
    gaps = [(which, str(batch)) for batch in sizes.batches for which in GAPS]
    if figures.is_late or all(figures.has(*at, *keys) for keys in [*rows, *gaps]):
        return
    starts = (figures.get(*at) or {}).get("starts", {})
    if any(map(has_failed, starts.values())):
        return
    cores: list[EngineCore] = []

    def start() -> dict[str, Any]:
        core, facts = started(shape, codec, device, sizes)
        cores.append(core)
        return facts

    # The first compiles the kernels that lie in no cache yet; a call that goes on starts again.
    if not figures.measure((*at, "starts", str(len(starts) + 1)), start):
        return
    for keys, case in rows.items():
        figures.measure((*at, *keys), partial(row_of, cores[0], case, limits))
    ahead = cores[0]._plans_ahead
    for which, batch in gaps:
        # Or each step is read before the next is planned.
        cores[0]._plans_ahead = ahead and GAPS[which]
        figures.measure((*at, which, batch), partial(host_gap, cores[0], int(batch), device))
    cores.clear()
    free(device)


def row_of(core: EngineCore, case: Case, limits: dict[str, float] | None) -> dict[str, Any]:
    """Rates of a case, and their shares of the limits; what the KV cache cannot hold is left out.

    What an earlier case that failed has left behind is ended first."""
    for name in list(core._requests):
        core.cancel(name)
    while core.has_work:
        core.step()
    needed = case.batch * core.kv.most_blocks(case.positions)
    if case.positions > core.limits.context_tokens or needed > 0.95 * core.kv.num_blocks:
        return {"left_out": f"{needed} blocks; the KV cache has {core.kv.num_blocks}"}
    result = run_case(core, case, repeats=2)
    row: dict[str, Any] = {
        "tokens_per_s": result.tokens_per_s, "bytes_per_s": result.bytes_per_s,
        "ops_per_s": result.ops_per_s, "least_tokens_per_s": result.least_tokens_per_s,
        "most_tokens_per_s": result.most_tokens_per_s,
    }  # fmt: skip
    for share, rate, limit in (
        ("share_of_read", result.bytes_per_s, "read_bytes_per_s"),
        ("share_of_bf16", result.ops_per_s, "bf16_ops_per_s"),
    ):
        if limits is not None and limit in limits:
            row[share] = rate / limits[limit]
    return row


GAP_STEPS = 8
CPU_GAP_STEPS = 1
"""On a processor each operation of PyTorch is an event, of which the profiler makes objects."""


def host_gap(core: EngineCore, batch: int, device: torch.device) -> float:
    """The share of decode steps in which the device computes nothing: kernels by PyTorch's
    profiler, the time of as many steps without it, as it slows the host. On a processor what
    PyTorch's operations do not take of a step. Raises RuntimeError where the profiler sees no
    kernels."""
    on_cuda = device.type == "cuda"
    steps = GAP_STEPS if on_cuda else CPU_GAP_STEPS
    params = SamplingParams(max_tokens=2 * steps + 4, ignore_eos=True, temperature=0)
    for index in range(batch):
        core.submit(Submit(f"gap{index}", [1 + index % 200, 2], params))
    for _ in range(3):
        core.step()

    def steps_s() -> float:
        begun_s = time.perf_counter()
        for _ in range(steps):
            core.step()
        if on_cuda:
            torch.cuda.synchronize(device)
        return time.perf_counter() - begun_s

    activity = torch.profiler.ProfilerActivity
    seconds = steps_s()
    with torch.profiler.profile(activities=[activity.CUDA if on_cuda else activity.CPU]) as seen:
        steps_s()
    while core.has_work:
        core.step()
    events = seen.key_averages()
    kind = "self_device_time_total" if on_cuda else "self_cpu_time_total"
    busy_s: float = sum(getattr(event, kind) for event in events) / 1e6
    if not busy_s:
        raise RuntimeError("the profiler of PyTorch has seen no kernels")
    return max(0.0, 1 - busy_s / seconds)


def transformers_decode(
    shape: str, device: torch.device, batches: tuple[int, ...], new: int, *, compiled: bool
) -> dict[str, Any]:
    """Tokens a second of transformers in BF16 with a static cache, by batch, a prompt of 128."""
    import transformers

    family, sizes = SHAPES[shape]
    config = transformers.AutoConfig.for_model(**tiny_config(family, **sizes))
    torch.set_default_device(device)
    try:
        model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    finally:
        torch.set_default_device("cpu")
    model.eval()
    if compiled:
        model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
    found = {}
    for batch in batches:
        ids = torch.ones((batch, 128), dtype=torch.long, device=device)

        def run(count: int, ids: torch.Tensor = ids) -> float:
            begun_s = time.perf_counter()
            with torch.no_grad():
                model.generate(
                    ids, attention_mask=torch.ones_like(ids), do_sample=False,
                    max_new_tokens=count, min_new_tokens=count, cache_implementation="static",
                )  # fmt: skip
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            return time.perf_counter() - begun_s

        run(new)
        # The prompt is in both, so that the difference is of decoding alone.
        few, many = run(1), run(new + 1)
        found[str(batch)] = batch * new / max(1e-9, many - few)
    return {"tokens_per_s": found, "compiled": compiled, "version": transformers.__version__}
