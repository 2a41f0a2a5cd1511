"""How far a layer of experts is from the limits of this machine.

Layers of Qwen3-30B-A3B's shape (hidden 2048, 128 experts of 768, 8 of them for each token) with
random weights; layers take turns, and every call has other routes, so that no cache holds what is
read. A decode step of B tokens reads E * (1 - (1 - k/E)^B) experts of a layer, if each is equally
likely: the share is these bytes over the time, of the bandwidth that the backend's own threads
reach with plain reads before and after. Prefill is held against the multiplies. Routing is timed
apart. Between the calls, `linear` multiplies as many rows as an expert has on average with one
large matrix: the ratio says what the experts cost beside a dense product of as many bytes.

    python benchmarks/experts.py [--threads 2] [--level auto] [--seconds 2] [--codec Q8_0 ...]
                                 [--tokens 1 ...] [--layers 2] [--cpu-time] [--json]

--cpu-time counts the CPU time of one thread instead, with other work on the machine the only time
that says something of the kernels.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.random_rows import random_rows
from headrace.ops.cpu import CpuOps
from headrace.ops.experts import ExpertMLP, Routes, Routing
from headrace.ops.operands import LinearWeight
from headrace.weights.codecs import get_codec
from headrace.weights.tensors.tensor import Tensor

HIDDEN, WIDTH = 2048, 768
ROUTING = Routing(num_experts=128, experts_per_token=8, score="softmax", normalised=True)
DENSE = 131072  # outputs of the matrix that linear multiplies
ROUTES = 64  # different ones of each number of tokens


@dataclass(frozen=True)
class Line:
    """One measurement of a layer's experts; rates by the median."""

    codec: str
    tokens: int
    runs: int
    median_us: float
    min_us: float
    max_us: float
    route_us: float
    """Median of the routing of as many tokens, apart."""
    experts_read: float
    """Distinct experts of a call, on average."""
    experts_expected: float
    """By the formula."""
    gigabytes_per_s: float
    """By the formula's bytes."""
    read_limit: float
    """Plain reads in the same minute, GB/s."""
    read_share: float
    best_read_share: float
    """By the shortest time: what the kernels can do where nothing is in the way."""
    gops: float
    multiply_limit: float
    """Multiplies of the codec's operands in the same minute, GOPS."""
    multiply_share: float
    best_multiply_share: float
    """By the shortest time."""
    linear_rows: int
    linear_gigabytes_per_s: float
    """Of `linear` with as many rows as an expert has."""
    of_linear: float
    """Bytes per second of the experts that were read over those of `linear`, medians."""


def matrices(codec: str, out: int, width: int) -> list[Tensor]:
    """One matrix for each expert: all views of the same rows, which packing copies."""
    kind = get_codec(codec)
    data = random_rows(kind, np.random.default_rng(0), out, width, width**-0.5)
    return [Tensor("random", (out, width), kind, data)] * ROUTING.num_experts


def layer(ops: CpuOps, codec: str) -> ExpertMLP:
    return ExpertMLP(
        ops.expert_weight([[part, part] for part in matrices(codec, WIDTH, HIDDEN)]),
        ops.expert_weight([[part] for part in matrices(codec, HIDDEN, WIDTH)]),
        "silu",
    )


def timed(
    clock: Callable[[], float],
    seconds: float,
    call: Callable[[int], object],
    peer: Callable[[], object] | None = None,
) -> tuple[list[float], list[float]]:
    """Times of call(1), call(2), ... after call(0), and of a peer between them."""
    times: list[float] = []
    of_peer: list[float] = []
    call(0)
    if peer is not None:
        peer()
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = clock()
        call(len(times) + 1)
        times.append(clock() - start)
        if peer is not None and (len(of_peer) < 5 or len(times) % 16 == 0):
            start = clock()
            peer()
            of_peer.append(clock() - start)
    return times, of_peer


def limits(ops: CpuOps, kind: str) -> tuple[float, float]:
    """The best of three of each: GB/s of plain reads, GOPS of multiplies of that kind."""
    reads = max(ops.read_bandwidth(1 << 30) for _ in range(3))
    return reads / 1e9, max(ops.peak_rate(kind) or 0.0 for _ in range(3)) / 1e9


def measure(
    ops: CpuOps,
    codec: str,
    layers: list[ExpertMLP],
    dense: LinearWeight,
    tokens: int,
    seconds: float,
    clock: Callable[[], float],
) -> Line:
    random = np.random.default_rng(tokens)
    experts, chosen = ROUTING.num_experts, ROUTING.experts_per_token
    x = random.standard_normal((tokens, HIDDEN)).astype(np.float32)
    logits = random.standard_normal((ROUTES, tokens, experts)).astype(np.float32)
    routes: list[Routes] = [ops.route(rows, ROUTING) for rows in logits]
    kind = "int8" if get_codec(codec).block_elements > 1 else "f32"
    kind = "bf16" if codec == "BF16" and ops.peak_rate("bf16") else kind
    reads, multiplied = limits(ops, kind)
    read = statistics.mean(len(np.unique(route.experts)) for route in routes)
    rows = round(tokens * chosen / read)
    few = random.standard_normal((rows, HIDDEN)).astype(np.float32)
    times, linear = timed(
        clock,
        seconds,
        lambda turn: ops.experts(x, layers[turn % len(layers)], routes[turn % ROUTES], residual=x),
        lambda: ops.linear(few, dense),
    )
    route_times, _ = timed(
        clock, seconds / 10, lambda turn: ops.route(logits[turn % ROUTES], ROUTING)
    )
    linear_rate = dense.nbytes / statistics.median(linear) / 1e9
    again = limits(ops, kind)
    read_limit, multiplies = max(reads, again[0]), max(multiplied, again[1])
    median = statistics.median(times)
    of_expert = (layers[0].gate_up.nbytes + layers[0].down.nbytes) / experts
    expected = experts * (1 - (1 - chosen / experts) ** tokens)
    rate = expected * of_expert / median / 1e9
    gops = 2.0 * tokens * chosen * 3 * HIDDEN * WIDTH / median / 1e9
    return Line(
        codec=codec,
        tokens=tokens,
        runs=len(times),
        median_us=median * 1e6,
        min_us=min(times) * 1e6,
        max_us=max(times) * 1e6,
        route_us=statistics.median(route_times) * 1e6,
        experts_read=read,
        experts_expected=expected,
        gigabytes_per_s=rate,
        read_limit=read_limit,
        read_share=rate / read_limit,
        best_read_share=rate / read_limit * median / min(times),
        gops=gops,
        multiply_limit=multiplies,
        multiply_share=gops / multiplies,
        best_multiply_share=gops / multiplies * median / min(times),
        linear_rows=rows,
        linear_gigabytes_per_s=linear_rate,
        of_linear=read * of_expert / median / 1e9 / linear_rate,
    )


def show(line: Line) -> None:
    print(
        f"{line.codec:6s} {line.tokens:4d} tokens {line.median_us:10.0f} us "
        f"[{line.min_us:.0f}..{line.max_us:.0f}], routing {line.route_us:.1f} us; "
        f"{line.experts_read:.1f} experts ({line.experts_expected:.1f}); "
        f"{line.gigabytes_per_s:.1f} GB/s, {line.read_share:.0%} "
        f"[best {line.best_read_share:.0%}] of {line.read_limit:.1f}; "
        f"{line.gops:.0f} GOPS, {line.multiply_share:.0%} "
        f"[best {line.best_multiply_share:.0%}] of {line.multiply_limit:.0f}; "
        f"{line.of_linear:.2f} of linear's {line.linear_gigabytes_per_s:.1f} GB/s "
        f"({line.linear_rows} rows)",
        flush=True,
    )


@click.command()
@click.option("--threads", type=int, default=None, help="Compute threads; default: all CPUs.")
@click.option("--level", default="auto", help="Dispatch level.")
@click.option("--seconds", type=float, default=2.0, help="Time spent on each line.")
@click.option(
    "--codec", "codecs", multiple=True, default=("Q8_0", "BF16"), help="Kinds of weights."
)
@click.option("--tokens", multiple=True, type=int, default=(1, 8, 32, 512), help="Rows at a time.")
@click.option("--layers", "count", type=int, default=2, help="Layers that take turns.")
@click.option(
    "--cpu-time", is_flag=True, help="CPU time of one thread; the limits are by the clock."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def main(
    threads: int | None,
    level: str,
    seconds: float,
    codecs: tuple[str, ...],
    tokens: tuple[int, ...],
    count: int,
    cpu_time: bool,
    as_json: bool,
) -> None:
    """Measure a layer of experts against the limits of this machine."""
    ops = CpuOps(level, 1 if cpu_time else threads)
    clock = time.process_time if cpu_time else time.perf_counter
    if not as_json:
        print(f"level {ops.level}, {ops.num_threads} threads, {count} layers")
    lines: list[Line] = []
    for codec in codecs:
        layers = [layer(ops, codec) for _ in range(count)]
        dense = ops.linear_weight(matrices(codec, DENSE // ROUTING.num_experts, HIDDEN))
        for rows in tokens:
            lines.append(measure(ops, codec, layers, dense, rows, seconds, clock))
            if not as_json:
                show(lines[-1])
        del layers, dense
    if as_json:
        document = {
            "level": ops.level,
            "threads": ops.num_threads,
            "layers": count,
            "cpu_time": cpu_time,
            "lines": [asdict(line) for line in lines],
        }
        json.dump(document, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
