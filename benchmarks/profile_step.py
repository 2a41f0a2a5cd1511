"""Where the time of a step goes: its floor, what it takes, and which operations take it.

    python benchmarks/profile_step.py [MODEL.gguf] [--requests 1 8 32] [--prompts 0 4096]
                                      [--steps 24] [--cpu-time]

A column for each number of decoding requests, and for each depth at which the next tokens of a
prompt, as many as a step takes, are read. First what is predicted: bytes and operations of the step
by the engine's own counts, and its floor, the larger of bytes / bandwidth and (operations of
products / their peak + operations of attention / its peak), by limits that are read in the same
process before and after each column. Then the step, its share of the floor, and the time in each
operation of the backend, which has a clock in every other step: one that is computed anew, since a
repeated one calls no operation. What is left is Python: scheduler, runner, model code and
sampler. Medians.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.markdown import number, table
from headrace.config import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.load import load_engine
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.ops.cpu import CpuOps
from headrace.telemetry.machine import DRAM_FOOTPRINT_BYTES, PEAK_KINDS

OPERATIONS = (
    "embedding", "norm", "norm_columns", "linear", "head_linear", "rope", "bind", "kv_write",
    "kv_copy", "paged_attention", "gated_activation", "activation", "softcap", "take_rows",
    "scale_rows", "gate_heads", "concat", "columns", "widened", "route", "experts", "sample",
    "top_logprobs",
)  # fmt: skip
LEAST_MS = 0.05
"""Operations that take less are not shown."""
PROMPT, SPARE = 64, 64
"""Tokens of the prompt of a request that decodes; answers that steps before and after take."""


class Clock:
    """Times of the backend's operations while it is on."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._now = now
        self._inner = {name: getattr(CpuOps, name) for name in OPERATIONS}

    def __enter__(self) -> Clock:
        self.spent.clear()
        for name, inner in self._inner.items():
            setattr(CpuOps, name, self._timed(name, inner))
        return self

    def __exit__(self, *_: object) -> None:
        for name, inner in self._inner.items():
            setattr(CpuOps, name, inner)

    def _timed(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = self._now()
            try:
                return inner(*args, **kwargs)
            finally:
                self.spent[name] += self._now() - start

        return timed


class Peaks(NamedTuple):
    """Bytes and operations per second: of memory, of products and of attention."""

    bytes_per_s: float
    products_per_s: float
    attention_per_s: float


class Profile(NamedTuple):
    """One column. Seconds of a step; `operations` has those of the steps with a clock."""

    name: str
    bytes: int
    products: float
    attention: float
    peaks: Peaks
    step_s: float
    clocked_s: float
    operations: dict[str, float]

    @property
    def floor_s(self) -> float:
        """What no step can be quicker than."""
        computing = self.products / self.peaks.products_per_s
        computing += self.attention / self.peaks.attention_per_s
        return max(self.bytes / self.peaks.bytes_per_s, computing)


def peaks(probe: CpuOps, codec: str) -> Peaks:
    """Of this machine, now. At `amx` that of attention is the rate of tiles for BF16, which its
    VDPBF16PS cannot reach: a floor still, but a low one."""
    plain = probe.peak_rate("f32") or 1.0
    products = probe.peak_rate(PEAK_KINDS.get(codec, "int8")) or plain
    attention = probe.peak_rate("bf16") or plain
    return Peaks(probe.read_bandwidth(DRAM_FOOTPRINT_BYTES), products, attention)


class Steps:
    """Steps of one engine, of requests of random tokens."""

    def __init__(self, core: EngineCore, codec: str, clock: Callable[[], float]) -> None:
        self._core = core
        self._codec = codec
        self._now = clock
        self._rng = random.Random(0)
        self._names = map(str, range(1 << 30))

    def decoding(self, requests: int, steps: int) -> Profile:
        """A step of so many requests."""
        names = [self._submit(PROMPT, 2 * steps + SPARE) for _ in range(requests)]
        while len(self._core.step()) < requests:
            pass
        found = self._profile(f"{requests} decoding", steps, [PROMPT + steps] * requests, 1)
        self._forget(names)
        return found

    def reading(self, depth: int, size: int, steps: int) -> Profile:
        """A step that reads the `size` tokens of a prompt behind `depth` others."""

        def prepare() -> None:
            self._submit(depth + size, 1)
            for _ in range(depth // size):
                self._core.step()

        title = f"{size} of a prompt" + (f" behind {depth:,}" if depth else "")
        return self._profile(title, steps, [depth], size, prepare)

    def _profile(
        self,
        name: str,
        steps: int,
        starts: list[int],
        count: int,
        prepare: Callable[[], None] = lambda: None,
    ) -> Profile:
        probe = CpuOps()
        before = peaks(probe, self._codec)
        clock = Clock(self._now)
        plain: list[float] = []
        clocked: list[float] = []
        spent: dict[str, list[float]] = defaultdict(list)
        for _ in range(steps):
            prepare()
            plain.append(self._step_s())
            prepare()
            with clock, self._computed_anew():
                clocked.append(self._step_s())
            for operation in OPERATIONS:
                spent[operation].append(clock.spent.get(operation, 0.0))
        stats = self._core.stats()
        after = peaks(probe, self._codec)
        attention = self._attention(starts, count)
        return Profile(
            name,
            stats.step_bytes,
            stats.step_operations - attention,
            attention,
            Peaks(*map(statistics.mean, zip(before, after, strict=True))),
            statistics.median(plain),
            statistics.median(clocked),
            {operation: statistics.median(of) for operation, of in spent.items()},
        )

    @contextmanager
    def _computed_anew(self) -> Iterator[None]:
        """A step that is repeated calls no operation that has a clock."""
        runs = self._core._runner._runs
        repeats, runs.repeats = runs.repeats, False
        try:
            yield
        finally:
            runs.repeats = repeats

    def _attention(self, starts: list[int], count: int) -> float:
        """Operations of attention of `count` tokens behind each of `starts`, seeing all of it."""
        cost = self._core._cost
        token = cost.of([(0, 1, 0)]).operations / (1 + cost.pair_tokens)
        pairs = sum(start * count + count * (count + 1) / 2 for start in starts)
        return cost.pair_tokens * token * pairs

    def _step_s(self) -> float:
        start = self._now()
        self._core.step()
        return self._now() - start

    def _submit(self, tokens: int, new: int) -> str:
        name = next(self._names)
        ids = [self._rng.randrange(256) for _ in range(tokens)]
        params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=new)
        self._core.submit(Submit(name, ids, params))
        return name

    def _forget(self, names: list[str]) -> None:
        for name in names:
            self._core.cancel(name)
        self._core.step()


def rows(profiles: list[Profile]) -> Iterator[list[object]]:
    """The table: predictions, then measurements."""

    def row(name: str, of: Callable[[Profile], float], digits: int = 1) -> list[object]:
        return [name, *(number(of(profile), digits) for profile in profiles)]

    yield row("bytes, GB", lambda one: one.bytes / 1e9, 2)
    yield row("operations of products, G", lambda one: one.products / 1e9)
    yield row("operations of attention, G", lambda one: one.attention / 1e9)
    yield row("read, GB/s", lambda one: one.peaks.bytes_per_s / 1e9)
    yield row("products at most, GOPS", lambda one: one.peaks.products_per_s / 1e9, 0)
    yield row("attention at most, GOPS", lambda one: one.peaks.attention_per_s / 1e9, 0)
    yield row("floor, ms", lambda one: one.floor_s * 1e3)
    yield row("a step, ms", lambda one: one.step_s * 1e3)
    yield row("share of the floor, %", lambda one: 100 * one.floor_s / one.step_s, 0)
    for name in OPERATIONS:
        if max(profile.operations[name] for profile in profiles) * 1e3 >= LEAST_MS:
            yield row(f"`{name}`, ms", lambda one, name=name: one.operations[name] * 1e3, 2)  # type: ignore[misc]
    yield row("the rest, ms", lambda one: (one.clocked_s - sum(one.operations.values())) * 1e3, 2)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--requests", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--prompts", type=int, nargs="*", default=[0], help="depths")
    parser.add_argument("--steps", type=int, default=24, help="with a clock, and as many without")
    parser.add_argument("--cpu-time", action="store_true", help="CPU time of one thread")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    config = EngineConfig(
        model=options.model, threads=1 if options.cpu_time else None, enable_prefix_caching=False,
        speculative_config="none", max_step_ms=0,
    )  # fmt: skip
    core, _ = load_engine(config)
    clock = time.thread_time if options.cpu_time else time.perf_counter
    steps = Steps(core, core.info().weight_codec, clock)
    profiles = [steps.decoding(requests, options.steps) for requests in options.requests]
    size = config.max_num_batched_tokens
    profiles += [
        steps.reading(depth, size, max(3, options.steps // 8)) for depth in options.prompts
    ]
    if options.json:
        print(
            json.dumps([{**profile._asdict(), "floor_s": profile.floor_s} for profile in profiles])
        )
    else:
        print(table(("", *(profile.name for profile in profiles)), list(rows(profiles))))


if __name__ == "__main__":
    main()
