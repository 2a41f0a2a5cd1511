"""Where a decode step's time goes: kernels against everything else.

    python benchmarks/profile_step.py [MODEL.gguf] --steps 200 [--requests 1] [--cpu-time]

Every operation of the backend is wrapped in a clock; what is left of a step is Python: scheduler,
runner, model code and sampler. Prints medians over the steps, and bytes read per second, which for
one request is bounded by the memory's bandwidth (`benchmarks/kernels.py` measures it).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from headrace.config import EngineConfig
from headrace.engine.load import load_engine
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.ops.cpu import CpuOps

OPERATIONS = (
    "embedding", "norm", "norm_columns", "linear", "head_linear", "rope", "bind", "kv_write",
    "kv_copy", "paged_attention", "gated_activation", "activation", "softcap", "take_rows",
    "scale_rows", "gate_heads", "concat", "columns", "widened", "route", "experts", "sample",
    "top_logprobs",
)  # fmt: skip


def _wrap(
    backend: type[CpuOps],
    spent: dict[str, float],
    calls: dict[str, int],
    clock: Callable[[], float],
) -> None:
    for name in OPERATIONS:
        inner = getattr(backend, name)

        def timed(*args: Any, _inner: Any = inner, _name: str = name, **kwargs: Any) -> Any:
            start = clock()
            try:
                return _inner(*args, **kwargs)
            finally:
                spent[_name] += clock() - start
                calls[_name] += 1

        setattr(backend, name, timed)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true", help="CPU time of one thread")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    clock = time.thread_time if options.cpu_time else time.perf_counter
    threads = 1 if options.cpu_time else None
    core, _ = load_engine(EngineConfig(model=options.model, max_model_len=1024, threads=threads))
    params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=options.steps + 8)
    for index in range(options.requests):
        core.submit(Submit(str(index), [index + 1] * 8, params))
    for _ in range(4):
        core.step()
    spent: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    plain = []
    for _ in range(options.steps // 2):
        start = clock()
        core.step()
        plain.append(clock() - start)
    moved = core.stats().moved_bytes
    _wrap(CpuOps, spent, calls, clock)
    steps, kernels = [], []
    for _ in range(options.steps // 2):
        before = sum(spent.values())
        start = clock()
        core.step()
        steps.append(clock() - start)
        kernels.append(sum(spent.values()) - before)
    step, inside, unwrapped = map(statistics.median, (steps, kernels, plain))
    facts = {
        "step_ms": unwrapped * 1e3,
        "outside_operations_ms": (step - inside) * 1e3,
        "outside_share": (step - inside) / step,
        "calls_per_step": sum(calls.values()) / len(steps),
        "gb_per_s": (core.stats().moved_bytes - moved) / len(steps) / unwrapped / 1e9,
        "ms_per_step": {name: spent[name] / len(steps) * 1e3 for name in spent},
    }
    if options.json:
        print(json.dumps(facts))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            for operation, ms in sorted(value.items(), key=lambda item: -item[1]):
                print(f"  {operation:20} {ms:8.3f} ms")
        else:
            print(f"{name:22} {value:8.3f}")


if __name__ == "__main__":
    main()
