"""Where the time of a step goes: its floor, what it takes, and which operations take it.

    python benchmarks/profile_step.py [MODEL.gguf] [--requests 1 8 32] [--prompts 0 4096]
                                      [--steps 24] [--cpu-time]

A column for each number of decoding requests, and for each depth at which the next tokens of a
prompt, as many as a step takes, are read. First what is predicted: bytes and operations of the step
by the engine's own counts, and its floor, the larger of bytes / bandwidth and (operations of
products / their peak + operations of attention / its peak), by limits that are read in the same
process before and after each column. Then the step, its share of the floor, and the time in each
operation of the backend. That is of a second engine, loaded when the first is gone, whose
operations have a clock and whose steps are all computed anew (`enforce_eager`), since a repeated
one calls no operation. What is left is Python: scheduler, runner, model code and sampler. The last
row is that engine's own step, to which operations and the rest sum: the machine may have been
another then than for the step above. Medians.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.markdown import number, table
from headrace.bench.machine import Probe
from headrace.config import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.load import load_engine
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.ops.cpu import CpuOps
from headrace.telemetry.machine import DRAM_FOOTPRINT_BYTES, PEAK_KINDS, attention_rate_of
from headrace.telemetry.work import Work

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


class Column(NamedTuple):
    """Steps of one kind in one engine."""

    name: str
    bytes: int
    products: int
    attention: int
    peaks: Peaks
    step_s: float
    operations: dict[str, float]
    """Seconds of a step in each operation that had a clock."""

    @property
    def floor_s(self) -> float:
        """What no step can be quicker than."""
        work = Work(self.bytes, self.products + self.attention, self.attention)
        computing_s = work.computing_s(self.peaks.products_per_s, self.peaks.attention_per_s)
        return max(work.bytes / self.peaks.bytes_per_s, computing_s)

    @property
    def rest_s(self) -> float:
        """Seconds of a step in no operation that had a clock."""
        return self.step_s - sum(self.operations.values())


class Profile(NamedTuple):
    """Steps of one kind: as the engine takes them, and computed anew with a clock."""

    column: Column
    clocked: Column

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.column._asdict(),
            "floor_s": self.column.floor_s,
            "operations": self.clocked.operations,
            "rest_s": self.clocked.rest_s,
            "clocked_s": self.clocked.step_s,
            "clocked_peaks": self.clocked.peaks,
        }


def peaks(probe: Probe, codec: str, kv_types: str) -> Peaks:
    """Of this machine, now, with weights, K and V of these kinds."""
    products = probe.peak_rate(PEAK_KINDS.get(codec, "int8")) or probe.peak_rate("f32") or 1.0
    attention = attention_rate_of(probe.peak_rate, kv_types) or 1.0
    return Peaks(probe.read_bandwidth(DRAM_FOOTPRINT_BYTES), products, attention)


class Steps:
    """Steps of one engine, of requests of random tokens; with a clock where there is one."""

    def __init__(self, core: EngineCore, now: Callable[[], float], clock: Clock | None) -> None:
        self._core = core
        self._kinds = core.info().weight_codec, core.info().kv_cache_dtype
        self._now = now
        self._clock = clock
        self._probe = CpuOps()
        self._probe.peak_rate("f32")  # its threads have woken before anything is read
        self._rng = random.Random(0)
        self._names = map(str, range(1 << 30))

    def decoding(self, requests: int, steps: int) -> Column:
        """A step of so many requests."""
        names = [self._submit(PROMPT, steps + SPARE) for _ in range(requests)]
        while len(self._core.step()) < requests:
            pass
        found = self._column(f"{requests} decoding", steps)
        self._forget(names)
        return found

    def reading(self, depth: int, size: int, steps: int) -> Column:
        """A step that reads the `size` tokens of a prompt behind `depth` others, whole steps."""

        def prepare() -> None:
            self._submit(depth + size, 1)
            for _ in range(depth // size):
                self._core.step()

        title = f"{size} of a prompt" + (f" behind {depth:,}" if depth else "")
        return self._column(title, steps, prepare)

    def _column(self, name: str, steps: int, prepare: Callable[[], None] = lambda: None) -> Column:
        before = peaks(self._probe, *self._kinds)
        seconds: list[float] = []
        spent: dict[str, list[float]] = defaultdict(list)
        for _ in range(steps):
            prepare()
            if self._clock is None:
                seconds.append(self._step_s())
                continue
            with self._clock as clock:
                seconds.append(self._step_s())
            for operation in OPERATIONS:
                spent[operation].append(clock.spent.get(operation, 0.0))
        stats = self._core.stats()
        after = peaks(self._probe, *self._kinds)
        return Column(
            name,
            stats.step_bytes,
            stats.step_operations - stats.step_attention_operations,
            stats.step_attention_operations,
            Peaks(*map(statistics.mean, zip(before, after, strict=True))),
            statistics.median(seconds),
            {operation: statistics.median(of) for operation, of in spent.items()},
        )

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

    def row(name: str, of: Callable[[Column], float], digits: int = 1) -> list[object]:
        return [name, *(number(of(profile.column), digits) for profile in profiles)]

    yield row("bytes, GB", lambda column: column.bytes / 1e9, 2)
    yield row("operations of products, G", lambda column: column.products / 1e9)
    yield row("operations of attention, G", lambda column: column.attention / 1e9)
    yield row("read, GB/s", lambda column: column.peaks.bytes_per_s / 1e9)
    yield row("products at most, GOPS", lambda column: column.peaks.products_per_s / 1e9, 0)
    yield row("attention at most, GOPS", lambda column: column.peaks.attention_per_s / 1e9, 0)
    yield row("floor, ms", lambda column: column.floor_s * 1e3)
    yield row("a step, ms", lambda column: column.step_s * 1e3)
    yield row("share of the floor, %", lambda column: 100 * column.floor_s / column.step_s, 0)
    clocked = [profile.clocked for profile in profiles]
    for name in OPERATIONS:
        taken_ms = [column.operations[name] * 1e3 for column in clocked]
        if max(taken_ms) >= LEAST_MS:
            yield [f"`{name}`, ms", *(number(ms, 2) for ms in taken_ms)]
    yield ["the rest, ms", *(number(column.rest_s * 1e3, 2) for column in clocked)]
    yield ["a step with a clock, ms", *(number(column.step_s * 1e3, 2) for column in clocked)]


def measured(config: EngineConfig, options: argparse.Namespace, *, clocked: bool) -> list[Column]:
    """The columns of an engine that is loaded for them and gone behind them."""
    now = time.thread_time if options.cpu_time else time.perf_counter
    core, _ = load_engine(config)
    steps = Steps(core, now, Clock(now) if clocked else None)
    columns = [steps.decoding(requests, options.steps) for requests in options.requests]
    size, few = config.max_num_batched_tokens, max(3, options.steps // 8)
    return columns + [steps.reading(depth, size, few) for depth in options.prompts]


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--requests", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--prompts", type=int, nargs="*", default=[0], help="depths, whole steps")
    parser.add_argument("--steps", type=int, default=24, help="with a clock, and as many without")
    parser.add_argument("--cpu-time", action="store_true", help="CPU time of one thread")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    config = EngineConfig(
        model=options.model, threads=1 if options.cpu_time else None, enable_prefix_caching=False,
        speculative_config="none", max_step_ms=0,
    )  # fmt: skip
    if uneven := [depth for depth in options.prompts if depth % config.max_num_batched_tokens]:
        parser.error(
            f"--prompts {uneven[0]}: no multiple of {config.max_num_batched_tokens}, the tokens of "
            "a step"
        )
    plain = measured(config, options, clocked=False)
    anew = measured(replace(config, enforce_eager=True), options, clocked=True)
    profiles = [Profile(*columns) for columns in zip(plain, anew, strict=True)]
    if options.json:
        print(json.dumps([profile.as_dict() for profile in profiles]))
    else:
        print(table(("", *(column.name for column in plain)), list(rows(profiles))))


if __name__ == "__main__":
    main()
