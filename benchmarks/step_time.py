"""ITL over time of running streams while long prompts arrive, with a limit of a step's time and
without.

    python benchmarks/step_time.py MODEL.gguf --plot docs/step_time.svg

Servers with `--max-step-ms 0` and with `--max-step-ms MS` take turns (A B A B …), one at a time.
In each turn --streams streams of --tokens tokens run, and --prompts prompts of --prompt tokens
arrive, --every seconds apart, each with --answer tokens of its own; the work of all turns is the
same, and all are waited for. Tokens that arrive together count as one arrival. "beside" are the
arrivals while a prompt is read; tokens per second are of prompts and outputs together. Prints a
table as Markdown; the plot has the longest wait of any stream in each second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.markdown import number, surroundings, surroundings_line, table, tell
from benchmarks.standalone import standalone
from benchmarks.streamed import arrivals_s
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.lines import Axis, Line, Point, lines_plot

LIMIT_S = 900.0


class Turn(NamedTuple):
    """What one server did. Times are seconds since the streams began."""

    arrivals: list[list[float]]
    """Of each stream, after its first token."""
    reads: list[tuple[float, float]]
    """When each prompt was sent, and its first token came."""
    wall_s: float
    metrics: dict[str, float]

    def waits(self, *, beside: bool) -> list[float]:
        """Seconds between arrivals of a stream, while a prompt is read or while none is."""
        return [
            at - before
            for stream in self.arrivals
            for before, at in pairwise(stream)
            if any(sent < at and before < first for sent, first in self.reads) == beside
        ]


def _prompt(rng: random.Random, tokens: int) -> list[int]:
    return [rng.randrange(256) for _ in range(tokens)]


async def _measured(url: str, model: str, options: argparse.Namespace, seed: int) -> Turn:
    rng = random.Random(seed)
    streams = [_prompt(rng, options.stream_prompt) for _ in range(options.streams)]
    prompts = [_prompt(rng, options.prompt) for _ in range(options.prompts)]
    limits = httpx.Limits(max_connections=len(streams) + len(prompts) + 1)
    async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S, limits=limits) as client:
        # Rates of prompts are learned from one as those of streams are from what they do.
        await arrivals_s(client, model, _prompt(rng, options.stream_prompt), 8)
        start_s = time.perf_counter()

        async def stream(prompt: list[int]) -> list[float]:
            found = await arrivals_s(client, model, prompt, options.tokens)
            return [arrived_s - start_s for arrived_s in found]

        async def read(number: int, prompt: list[int]) -> tuple[float, float]:
            await asyncio.sleep(options.settle + number * options.every)
            sent_s = time.perf_counter() - start_s
            found = await arrivals_s(client, model, prompt, options.answer)
            return sent_s, found[0] - start_s

        running = asyncio.gather(*map(stream, streams))
        reads = asyncio.gather(*(read(number, prompt) for number, prompt in enumerate(prompts)))
        arrivals, prompts_read = await running, await reads
        wall_s = time.perf_counter() - start_s
        metrics = _figures((await client.get("/metrics")).text)
    return Turn(arrivals, prompts_read, wall_s, metrics)


def _figures(metrics: str) -> dict[str, float]:
    found = {}
    for line in metrics.splitlines():
        if line.startswith("headrace:limited_step"):
            name, _, value = line.rpartition(" ")
            found[name.partition("{")[0]] = float(value)
    return found


def _turn(options: argparse.Namespace, limit_ms: int, seed: int) -> Turn:
    command = [
        sys.executable, "-m", "headrace.cli.main", "serve", options.model, "--port", "0", "--json",
        "--log-level", "warning", "--max-step-ms", str(limit_ms), "--no-enable-prefix-caching",
        "--max-model-len", str(2 * options.prompt), "--kv-cache-memory-bytes",
        str(options.kv_cache_memory_bytes), "--speculative-config", "none",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        return asyncio.run(_measured(ready["url"], ready["model"], options, seed))
    finally:
        process.terminate()
        process.wait(timeout=60)


def covered_s(intervals: Iterable[tuple[float, float]]) -> float:
    """Seconds that lie in any of these; what lies in several counts once."""
    total_s, covered_to_s = 0.0, -math.inf
    for begin_s, end_s in sorted(intervals):
        total_s += max(0.0, end_s - max(begin_s, covered_to_s))
        covered_to_s = max(covered_to_s, end_s)
    return total_s


def _percentile(values: Sequence[float], share: float) -> float | None:
    """None where there are too few to have one."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _ms(seconds: float | None) -> str | None:
    return number(None if seconds is None else 1e3 * seconds, 0)


def row(name: str, turn: Turn, options: argparse.Namespace) -> list[object]:
    """A line of the table."""
    beside, alone = turn.waits(beside=True), turn.waits(beside=False)
    tokens = options.streams * (options.stream_prompt + options.tokens)
    tokens += options.prompts * (options.prompt + options.answer)
    reading_s = covered_s(turn.reads)
    outputs = sum(
        1
        for stream in turn.arrivals
        for at in stream
        if any(sent < at < first for sent, first in turn.reads)
    )
    ttft = statistics.median(first - sent for sent, first in turn.reads)
    return [
        name, _ms(_percentile(alone, 0.5)), _ms(_percentile(beside, 0.5)),
        _ms(_percentile(beside, 0.99)), _ms(max(beside, default=None)), number(ttft, 1),
        number((options.prompts * options.prompt + outputs) / reading_s, 0),
        number(turn.wall_s, 1), number(tokens / turn.wall_s, 0),
    ]  # fmt: skip


_COLUMNS = (
    "", "ITL p50 alone ms", "ITL p50 beside ms", "p99 beside ms", "longest ms",
    "TTFT of the prompt s", "tokens/s beside", "all done s", "tokens/s of all",
)  # fmt: skip


def plot_of(turns: Sequence[tuple[str, Turn]], target_ms: int) -> Plot | None:
    """The longest wait of any stream in each second, a line for each of the turns."""
    lines = []
    for place, (name, turn) in enumerate(turns):
        longest: dict[int, float] = defaultdict(float)
        for stream in turn.arrivals:
            for before, at in pairwise(stream):
                longest[int(at)] = max(longest[int(at)], 1e3 * (at - before))
        points = [Point(second, wait) for second, wait in sorted(longest.items())]
        lines.append(Line(Key(name, f"c{place + 1}"), points, dots=False))
    return lines_plot(
        "ITL of running streams while prompts arrive", lines,
        Axis("seconds", lambda value: f"{value:.0f}"),
        Axis("longest ITL of the second, ms", lambda value: f"{value:,.0f}", logarithmic=True),
        across=[(target_ms, f"--max-step-ms {target_ms} (blue: held, orange: no limit)")],
        wide=True,
    )  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--stream-prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=800, help="of each stream")
    parser.add_argument("--prompts", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=8192)
    parser.add_argument("--answer", type=int, default=16)
    parser.add_argument(
        "--settle", type=float, default=3.0, help="seconds of the streams before the first prompt"
    )
    parser.add_argument("--every", type=float, default=20.0, help="seconds between prompts")
    parser.add_argument("--max-step-ms", type=int, default=100)
    parser.add_argument("--kv-cache-memory-bytes", type=int, default=5_000_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="SVG file of the last round")
    parser.add_argument("--json", type=Path, help="file for all times")
    options = parser.parse_args(words)
    facts = surroundings(datetime.now(UTC))
    names = {0: "no limit", options.max_step_ms: f"{options.max_step_ms} ms"}
    turns: list[tuple[str, Turn]] = []
    for seed in range(options.rounds):
        for limit_ms, name in names.items():
            tell(f"round {seed + 1}, {name}")
            turns.append((name, _turn(options, limit_ms, seed)))
            tell(
                " ".join(f"{metric}={value:.2f}" for metric, value in turns[-1][1].metrics.items())
            )
    if options.json is not None:
        saved: list[dict[str, Any]] = [{"name": name, **turn._asdict()} for name, turn in turns]
        options.json.write_text(json.dumps(saved))
    print(table(_COLUMNS, [row(name, turn, options) for name, turn in turns]))
    print(f"\n{surroundings_line(facts)}")
    if options.plot is not None:
        plot = plot_of(turns[-len(names) :], options.max_step_ms)
        if plot is None:
            tell(f"{options.plot} is not written: the streams ran for less than a second")
        else:
            options.plot.write_text(standalone(plot))


if __name__ == "__main__":
    main()
