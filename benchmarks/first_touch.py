"""Steps of streams that all take blocks of the KV cache which were never used, with memory made
ready ahead of them and without.

    python benchmarks/first_touch.py MODEL.gguf

Fresh processes take turns (A B A B): in each, --streams streams of --tokens tokens run in an engine
whose populating is on or off, after a prompt of a step's tokens alone. Prints the prompt's seconds,
and of steps in which every stream decodes the median, and the longest of those in which all of them
take a block; of the process its resident memory with weights packed and after the streams.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.markdown import number, surroundings, surroundings_line, table
from headrace.config.settings import EngineConfig
from headrace.engine.load import load_engine
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams


class Run(NamedTuple):
    """One process. Seconds; bytes resident."""

    prompt_s: float
    median_s: float
    taking_median_s: float
    """Of the steps in which all streams take a block."""
    longest_s: float
    longest_other_s: float
    """Of the steps in which no stream takes one: what other work on the machine does."""
    loaded_bytes: int
    ended_bytes: int


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not say what is resident")


def _measured(options: argparse.Namespace) -> Run:
    config = EngineConfig(
        model=options.model, kv_cache_memory_bytes=options.kv_cache_memory_bytes,
        enable_prefix_caching=False, speculative_config="none", max_step_ms=0,
    )  # fmt: skip
    core, _ = load_engine(config)
    if options.mode == "off":
        core._runner.populate = lambda *_, **__: None  # type: ignore[method-assign]
    time.sleep(0.5)
    loaded = _resident_bytes()
    rng = random.Random(options.seed)

    def submit(name: str, prompt: int, tokens: int) -> None:
        ids = [rng.randrange(256) for _ in range(prompt)]
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        core.submit(Submit(name, ids, params))

    begun_s = time.perf_counter()
    submit("prompt", config.max_num_batched_tokens, options.tokens)
    core.step()
    prompt_s = time.perf_counter() - begun_s
    core.cancel("prompt")
    core.step()
    for stream in range(options.streams):
        # All of them begin in one step, and so come to the end of a block together.
        submit(f"{stream}", config.max_num_batched_tokens // options.streams, options.tokens)
    steps: list[tuple[float, int]] = []
    while core.has_work:
        before, begun_s = core.kv.num_owned, time.perf_counter()
        outputs = core.step()
        if len(outputs) == options.streams:
            steps.append((time.perf_counter() - begun_s, core.kv.num_owned - before))
    seconds = [took for took, _ in steps[5:]]
    taking = [took for took, taken in steps[5:] if taken == options.streams]
    others = [took for took, taken in steps[5:] if not taken]
    return Run(
        prompt_s, statistics.median(seconds), statistics.median(taking), max(taking), max(others),
        loaded, _resident_bytes(),
    )  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print."""
    words = sys.argv[1:] if words is None else words
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=260)
    parser.add_argument("--kv-cache-memory-bytes", type=int, default=4_000_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=("on", "off"), help="measure this one, in this process")
    options = parser.parse_args(words)
    if options.mode is not None:
        print(json.dumps(_measured(options)))
        return
    facts = surroundings(datetime.now(UTC))
    rows = []
    for seed in range(options.rounds):
        for mode in ("off", "on"):
            command = [sys.executable, __file__, *words, "--mode", mode, "--seed", str(seed)]
            reply = subprocess.run(command, check=True, capture_output=True, text=True)
            run = Run(*json.loads(reply.stdout.splitlines()[-1]))
            rows.append(
                [
                    mode, number(run.prompt_s), number(1e3 * run.median_s, 1),
                    number(1e3 * run.taking_median_s, 1), number(1e3 * run.longest_s, 1),
                    number(run.longest_s / run.median_s), number(1e3 * run.longest_other_s, 1),
                    number(run.loaded_bytes / 1e6, 0), number(run.ended_bytes / 1e6, 0),
                ]
            )  # fmt: skip
    columns = (
        "populated ahead", "prompt of a step s", "median ms", "all take a block, median ms",
        "longest ms", "longest / median", "longest of others ms", "resident, loaded MB", "after MB",
    )  # fmt: skip
    print(table(columns, rows))
    print(f"\n{surroundings_line(facts)}")


if __name__ == "__main__":
    main()
