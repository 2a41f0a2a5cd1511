"""headrace beside llama.cpp on the same files, threads and machine, in turns.

    python benchmarks/vs_llamacpp.py --llama FOLDER [--codec BF16 Q8_0 Q4_K_M] [--rounds 3]

Per codec: prefill of 512 tokens and decode of 128 (llama-bench; `headrace bench engine`), and 8 and
32 requests of 128 prompt and 128 new tokens each (llama-batched-bench; `--together`), in tokens per
second, prompts included where there are any. Each engine runs in a process of its own, A B A B,
every process measuring several times; the medians over rounds are compared. Models have
Qwen3-0.6B's shape and random weights. FOLDER is built by `python -m benchmarks.llamacpp.build`.
Let nothing else run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.llamacpp.build import Peer, built

CODECS = ("BF16", "Q8_0", "Q4_K_M")
PROMPT, NEW = 512, 128
STREAMS = (8, 32)
STREAM_PROMPT, STREAM_NEW = 128, 128
REPEATS = 3

Figures = dict[str, float]


def own_figures(model: Path, streams: tuple[int, ...], level: str) -> Figures:
    """Tokens per second of every test, by name; medians of one process's repeats."""
    figures = {}
    for row in _own("-p", str(PROMPT), "-n", str(NEW), model=model, level=level, repeats=REPEATS):
        figures["prefill" if row["prompt"] else "decode"] = float(row["tokens_per_s"])
    if streams:
        batches = ",".join(map(str, streams))
        lengths = ("-p", str(STREAM_PROMPT), "-n", str(STREAM_NEW), "-b", batches, "--together")
        for row in _own(*lengths, model=model, level=level, repeats=1):
            figures[f"{row['batch']} streams"] = float(row["tokens_per_s"])
    return figures


def _own(*arguments: str, model: Path, level: str, repeats: int) -> Iterator[dict[str, float]]:
    command = [sys.executable, "-m", "headrace.cli.main", "bench", "engine", str(model), "--json"]
    command += ["--cpu-level", level, "--repeats", str(repeats), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
    yield from map(json.loads, done.stdout.splitlines())


def peer_figures(peer: Peer, model: Path, streams: tuple[int, ...]) -> Figures:
    """The same of llama.cpp's own benchmarks."""
    threads = str(len(os.sched_getaffinity(0)))
    command = [peer.tool("llama-bench"), "-m", str(model), "-t", threads, "-p", str(PROMPT)]
    command += ["-n", str(NEW), "-r", str(REPEATS), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
    figures = {
        "prefill" if row["n_prompt"] else "decode": float(median(row["samples_ts"]))
        for row in json.loads(done.stdout)
    }
    if streams:
        room = max(streams) * (STREAM_PROMPT + STREAM_NEW) + 512
        command = [peer.tool("llama-batched-bench"), "-m", str(model), "-t", threads]
        command += ["-tb", threads, "-c", str(room), "-b", "2048", "-ub", "512"]
        command += ["-npp", str(STREAM_PROMPT), "-ntg", str(STREAM_NEW)]
        command += ["-npl", ",".join(map(str, streams)), "--output-format", "jsonl"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                figures[f"{row['pl']} streams"] = float(row["speed"])
    return figures


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--llama", type=Path, required=True, help="folder of the built llama.cpp")
    parser.add_argument("--codec", nargs="+", default=list(CODECS))
    parser.add_argument("--level", default="auto", help="dispatch level of headrace")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="*", default=list(STREAMS))
    parser.add_argument("--models", type=Path, help="folder to keep the models in")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    peer, streams = built(options.llama), tuple(options.streams)
    everything: dict[str, dict[str, list[Figures]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for codec in options.codec:
            model = (options.models or Path(scratch)) / f"tied-{codec}.gguf"
            if not model.is_file():
                maker = str(Path(__file__).with_name("shaped_model.py"))
                command = [sys.executable, maker, str(model), "--codec", codec]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            runs: dict[str, list[Figures]] = {"headrace": [], "llama.cpp": []}
            for number in range(options.rounds):
                print(f"{codec}: round {number + 1} of {options.rounds}", file=sys.stderr)
                runs["headrace"].append(own_figures(model, streams, options.level))
                runs["llama.cpp"].append(peer_figures(peer, model, streams))
            everything[codec] = runs
    print(json.dumps(everything) if options.json else "\n".join(_table(everything)))


def _table(everything: dict[str, dict[str, list[Figures]]]) -> Iterator[str]:
    yield "| tokens/s | | headrace | llama.cpp | ratio |"
    yield "|---|---|---|---|---|"
    for codec, runs in everything.items():
        for test in runs["headrace"][0]:
            own = [figures[test] for figures in runs["headrace"]]
            peer = [figures[test] for figures in runs["llama.cpp"]]
            ratios = [a / b for a, b in zip(own, peer, strict=True)]
            yield f"| {codec} | {test} | {_spread(own)} | {_spread(peer)} | {_spread(ratios, 2)} |"


def _spread(values: list[float], places: int = 1) -> str:
    low, high = min(values), max(values)
    return f"{median(values):,.{places}f} [{low:,.{places}f}..{high:,.{places}f}]"


if __name__ == "__main__":
    main()
