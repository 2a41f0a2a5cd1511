"""Where a step's time goes, beside the least that the machine could take for it.

    python -m benchmarks.profile_step [MODEL] [--requests 1] [--depth 8] [--steps 200]
    python -m benchmarks.profile_step [MODEL] --prompt 512 [--steps 5]
        [--cpu-time] [--json]

Decode steps of so many requests at a depth, or, with --prompt, whole prompts, one after another.
Every operation of the backend is wrapped in a clock; what is left is Python: scheduler, runner,
model code and sampler. Prediction first: products and attention have the bytes of their weights, or
of the K and V that they see, and their operations, so that their floor is

    max(bytes / bandwidth, operations / peak)

by readings of this machine taken before and after. Medians over steps; what one operation takes is
its share of their sum. --cpu-time takes one thread and its CPU time, for a machine that has other
work; other readings than these are then not comparable.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from benchmarks.markdown import number, surroundings, surroundings_line, table
from headrace.config import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.load import load_engine
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.ops.cpu import CpuOps
from headrace.ops.interface import HeadWeight, LinearWeight
from headrace.ops.kv import AttentionShape, RaggedBatch
from headrace.telemetry.machine import DRAM_FOOTPRINT_BYTES

OPERATIONS = (
    "embedding", "norm", "norm_columns", "linear", "head_linear", "rope", "bind", "kv_write",
    "kv_copy", "paged_attention", "gated_activation", "activation", "softcap", "take_rows",
    "scale_rows", "gate_heads", "concat", "columns", "widened", "route", "experts", "sample",
    "top_logprobs",
)  # fmt: skip
FLOAT_CODECS = {"F32": "f32", "F16": "f32", "BF16": "bf16"}
"""Codecs whose products are not of integers, and the peak that bounds them."""
REPEATS = 3
"""Readings of the machine before and after."""

Clock = Callable[[], float]


@dataclass
class Spent:
    """What one kind of operation took and moved, over the steps."""

    seconds: float = 0.0
    calls: int = 0
    bytes: int = 0
    operations: int = 0
    floor_s: float = 0.0


@dataclass(frozen=True)
class Limits:
    """What the machine does at most, in bytes and operations a second."""

    bytes_per_s: float
    peaks: dict[str, float]

    def floor(self, moved: int, operations: int, kind: str) -> float:
        """Seconds."""
        peak = self.peaks.get(kind, self.peaks["f32"])
        return max(moved / self.bytes_per_s, operations / peak)


def limits(ops: CpuOps) -> Limits:
    """Readings with the engine's own threads and level, the best of several."""
    bandwidth = max(ops.read_bandwidth(DRAM_FOOTPRINT_BYTES) for _ in range(REPEATS))
    peaks = dict[str, float]()
    for kind in ("f32", "bf16", "int8"):
        rates = [rate for _ in range(REPEATS) if (rate := ops.peak_rate(kind)) is not None]
        if rates:
            peaks[kind] = max(rates)
    return Limits(bandwidth, peaks)


class Profile:
    """The clocks around the operations of a backend's class."""

    def __init__(self, backend: type[CpuOps], roof: Limits, clock: Clock) -> None:
        self.spent: dict[str, Spent] = defaultdict(Spent)
        self._roof, self._clock = roof, clock
        for name in OPERATIONS:
            setattr(backend, name, self._timed(name, getattr(backend, name)))

    @property
    def seconds(self) -> float:
        """Within operations."""
        return sum(spent.seconds for spent in self.spent.values())

    def _timed(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        clock = self._clock

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = clock()
            result = inner(*args, **kwargs)
            seconds = clock() - start
            label, moved, operations, kind = _work(name, args)
            spent = self.spent[label]
            spent.seconds += seconds
            spent.calls += 1
            spent.bytes += moved
            spent.operations += operations
            spent.floor_s += self._roof.floor(moved, operations, kind)
            return result

        return timed


def _work(name: str, args: tuple[Any, ...]) -> tuple[str, int, int, str]:
    """What a call is counted as, its bytes, operations and the kind of its operands."""
    if name == "linear":
        weight: LinearWeight = args[2]
        rows = len(args[1])
        operations = 2 * rows * weight.out_features * weight.in_features
        label = f"linear {weight.in_features} to {weight.out_features} {weight.codec}"
        return label, weight.nbytes, operations, FLOAT_CODECS.get(weight.codec, "int8")
    if name == "head_linear":
        heads: HeadWeight = args[2]
        operations = 2 * len(args[1]) * heads.num_heads * heads.out_features * heads.in_features
        return name, heads.nbytes, operations, FLOAT_CODECS.get(heads.codec, "int8")
    if name == "paged_attention":
        shape: AttentionShape = args[2]
        batch: RaggedBatch = args[5]
        pairs = int(batch.positions.sum()) + batch.num_tokens
        seen = int((batch.positions[batch.query_start[1:] - 1] + 1).sum())
        operations = 2 * pairs * (shape.num_heads * shape.head_dim + shape.output_width)
        moved = seen * 2 * shape.num_kv_heads * shape.head_dim * 2
        return name, moved, operations, "bf16"
    return name, 0, 0, "f32"


def decoding(core: EngineCore, options: argparse.Namespace) -> Callable[[], object]:
    """Requests that have read their prompts, and what computes a step of them."""
    params = SamplingParams(
        temperature=0, ignore_eos=True, max_tokens=2 * options.steps + 64, speculation=False
    )
    for index in range(options.requests):
        prompt = [(index * 31 + place * 7) % 256 for place in range(options.depth)]
        core.submit(Submit(f"stream {index}", prompt, params))
    while core.stats().generation_tokens < 4 * options.requests:
        core.step()
    return core.step


def prompts(core: EngineCore, options: argparse.Namespace) -> Callable[[], object]:
    """What reads a prompt that no other begins like, and gives one token."""
    params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=1)
    names = itertools.count(1)

    def read() -> None:
        number = next(names)
        prompt = [number % 256, *((number + place * 7) % 256 for place in range(1, options.prompt))]
        core.submit(Submit(f"prompt {number}", prompt, params))
        while (stats := core.stats()).num_running or stats.num_waiting:
            core.step()

    read()
    return read


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--steps", type=int, help="steps, or prompts; 200 or 5")
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--depth", type=int, default=8, help="prompt tokens of each request")
    parser.add_argument("--prompt", type=int, help="profile prompts of so many tokens")
    parser.add_argument("--cpu-time", action="store_true", help="CPU time of one thread")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.steps = options.steps or (5 if options.prompt else 200)
    clock = time.thread_time if options.cpu_time else time.perf_counter
    longest = (options.prompt or options.depth + 2 * options.steps) + 128
    config = EngineConfig(
        model=options.model,
        max_model_len=longest,
        max_num_seqs=max(8, options.requests),
        threads=1 if options.cpu_time else None,
    )
    core, _ = load_engine(config)
    ops = CpuOps(threads=config.threads)
    before = limits(ops)
    step = (prompts if options.prompt else decoding)(core, options)

    def timed() -> float:
        start = clock()
        step()
        return clock() - start

    plain = [timed() for _ in range(options.steps)]
    profile = Profile(CpuOps, before, clock)
    steps, outside = [], []
    for _ in range(options.steps):
        inside = profile.seconds
        steps.append(timed())
        outside.append(steps[-1] - (profile.seconds - inside))
    after = limits(ops)
    spent = {name: asdict(value) for name, value in profile.spent.items()}
    facts = {
        "surroundings": surroundings(datetime.now().astimezone()),
        "step_ms": statistics.median(plain) * 1e3,
        "step_under_clocks_ms": statistics.median(steps) * 1e3,
        "python_ms": statistics.median(outside) * 1e3,
        "floor_ms": sum(value["floor_s"] for value in spent.values()) / options.steps * 1e3,
        "limits_before": asdict(before),
        "limits_after": asdict(after),
        "operations": spent,
    }
    print(json.dumps(facts) if options.json else _page(facts, options.steps))


def _page(facts: dict[str, Any], steps: int) -> str:
    """Tables for a reader."""
    rows = []
    for name, spent in sorted(facts["operations"].items(), key=lambda item: -item[1]["seconds"]):
        ms, floor = (spent[key] / steps * 1e3 for key in ("seconds", "floor_s"))
        share = f"{floor / ms:.0%}" if floor else None
        rows.append((
            name, spent["calls"] // steps, number(spent["bytes"] / steps / 1e6),
            number(spent["operations"] / steps / 1e9), number(floor, 3) if floor else None,
            number(ms, 3), share,
        ))  # fmt: skip
    rows.append(("Python", None, None, None, None, number(facts["python_ms"], 3), None))
    columns = (
        "operation",
        "calls",
        "MB",
        "10⁹ operations",
        "floor, ms",
        "took, ms",
        "of the floor",
    )
    lines = [table(columns, rows), ""]
    step, floor = facts["step_ms"], facts["floor_ms"]
    lines.append(
        f"A step without these clocks: {step:.3f} ms; floor {floor:.3f} ms, {floor / step:.0%}."
    )
    for when in ("before", "after"):
        roof = facts[f"limits_{when}"]
        peaks = ", ".join(f"{kind} {rate / 1e9:.0f}" for kind, rate in roof["peaks"].items())
        read = f"{roof['bytes_per_s'] / 1e9:.1f} GB/s"
        lines.append(f"Machine {when}: {read}; 10⁹ operations a second: {peaks}.")
    lines.append(surroundings_line(facts["surroundings"]))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
