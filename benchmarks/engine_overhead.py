"""What the engine costs beside the model: Python time of a decode step, and of a prefill step.

    python benchmarks/engine_overhead.py

The model does nothing and every token is 1, so the time of a step is scheduler, KV cache, ragged
batch, outputs. Sampling counts with its Python, not with the kernel. Prints the median over steps
in microseconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.messages import Output, Submit
from headrace.engine.params import SamplingParams
from headrace.models.cost import CostModel, LayerCost
from headrace.models.layer_cache import LayerKV, cache_layout
from headrace.ops.device import DeviceOps
from headrace.ops.kv import AttentionShape, KVCacheArrays, KVCacheSpec, RaggedBatch
from headrace.ops.recording import RecordingOps

VOCAB = 1000
STEPS = 300
GEMMA3_4B = [LayerKV(1, 2, 1024 if layer % 6 else 0) for layer in range(1, 35)]
"""29 layers with a window and 5 without: 34 block tables."""


class NoOps(DeviceOps, RecordingOps):
    """Backend of the figures: answers without computing."""

    name, level, num_threads = "none", "none", 1
    expert_layers = 0

    def expert_cache_stats(self) -> None:
        return None

    def kv_cache(self, spec: KVCacheSpec) -> KVCacheArrays:
        return KVCacheArrays(spec, None)

    def kv_populate(self, kv: KVCacheArrays, num_blocks: int, *, wait: bool = False) -> None:
        pass

    def kv_copy(self, kv: KVCacheArrays, pairs: Any) -> None:
        pass

    def sample(self, logits: Any, rows: Any, num_tokens: int) -> Any:
        return np.ones(len(logits), np.int32)


class NoModel:
    """A model without a forward pass. layers: what they keep."""

    model_type, vocab_size, max_positions = "none", VOCAB, 32768
    weight_codec, weight_bytes = "Q8_0", 0
    length_cause = ""

    def __init__(self, layers: Sequence[LayerKV] = (LayerKV(1, 2),)) -> None:
        self.cache_layout = cache_layout(layers)

    def cost(self, kv: Any) -> CostModel:
        return CostModel(
            weight_bytes=0,
            layer_elements=1,
            head_elements=1,
            layers=[LayerCost(AttentionShape(1, 1, 2, 1.0), 16)],
        )

    def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> Any:
        return np.empty((len(batch.logit_rows), 0), np.float32)


def decode_step_us(
    num_requests: int,
    prompt_tokens: int,
    model: NoModel | None = None,
    *,
    steps: int = STEPS,
    **params: Any,
) -> float:
    """Median microseconds of a step in which `num_requests` decode."""
    config = EngineConfig(
        num_gpu_blocks_override=1 << 18, max_num_batched_tokens=2048,
        # Every token is 1, so that each guess would come true and a step give several.
        speculative_config="none",
    )  # fmt: skip
    core = EngineCore(model or NoModel(), NoOps(), config, num_tokens=VOCAB)  # type: ignore[arg-type]
    chosen = SamplingParams(max_tokens=steps + 50, ignore_eos=True, **params)
    for index in range(num_requests):
        prompt = [(index + i) % VOCAB for i in range(prompt_tokens)]
        core.submit(Submit(str(index), prompt, chosen))
    while any(each.lag != 1 for each in core.scheduler.running) or core.scheduler.waiting:
        _check(core.step())
    return _median_us(core, steps)


def prefill_step_us(chunk_tokens: int) -> float:
    """Median microseconds of a step that computes a chunk of one long prompt."""
    config = EngineConfig(num_gpu_blocks_override=1 << 14, max_num_batched_tokens=chunk_tokens)
    core = EngineCore(NoModel(), NoOps(), config, num_tokens=VOCAB)  # type: ignore[arg-type]
    core.submit(Submit("0", [i % VOCAB for i in range(32000)], SamplingParams(max_tokens=1)))
    _check(core.step())
    return _median_us(core, 32000 // chunk_tokens - 2)


def _median_us(core: EngineCore, steps: int) -> float:
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        outputs = core.step()
        times.append(time.perf_counter() - start)
        _check(outputs)
    return statistics.median(times) * 1e6


def _check(outputs: Sequence[Output]) -> None:
    """A request that failed, or none left, makes steps that cost nothing."""
    for output in outputs:
        if output.finish_reason is not None:
            raise RuntimeError(
                f"request {output.request_id} ended while steps were timed: "
                f"{output.finish_reason} {output.error or ''}"
            )


def main() -> None:
    """Print the table."""
    print(f"{'step':<52}{'µs':>8}")
    for count in (1, 16, 64):
        for name, params in (("greedy", {"temperature": 0.0}), ("sampled", {"seed": 1})):
            label = f"decode, {count} requests of 1000 tokens, {name}"
            print(f"{label:<52}{decode_step_us(count, 1000, **params):>8.0f}")
        label = f"decode, {count} requests of 1000 tokens, 34 block tables"
        found = decode_step_us(count, 1000, NoModel(GEMMA3_4B), temperature=0.0)
        print(f"{label:<52}{found:>8.0f}")
    print(f"{'prefill, one chunk of 512 tokens':<52}{prefill_step_us(512):>8.0f}")


if __name__ == "__main__":
    main()
