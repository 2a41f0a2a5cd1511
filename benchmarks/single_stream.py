"""Prefill and decode speed of one request, beside llama-bench if it is named.

    python benchmarks/single_stream.py MODEL.gguf --peer LLAMA_BENCH --rounds 3

pp512: 512 prompt tokens over the time to the first token. tg128: 128 tokens after a first one and
a prompt of 16. The two engines take turns, each in a fresh process: A B A B.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

PROMPT, DECODED = 512, 128


def measure(model: str) -> dict[str, float]:
    """Tokens per second in this process, medians of three."""
    from headrace import LLM, SamplingParams

    llm = LLM(model, max_model_len=1024)
    rng = random.Random(0)
    speeds: dict[str, list[float]] = {"pp512": [], "tg128": []}

    def run(prompt_tokens: int, new_tokens: int) -> float:
        prompt = [rng.randrange(256) for _ in range(prompt_tokens)]
        params = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        start = time.perf_counter()
        llm.generate([prompt], params)
        return time.perf_counter() - start

    run(64, 4)
    for _ in range(3):
        speeds["pp512"].append(PROMPT / run(PROMPT, 1))
        first = run(16, 1)
        speeds["tg128"].append(DECODED / (run(16, DECODED + 1) - first))
    return {name: statistics.median(values) for name, values in speeds.items()}


def measure_peer(bench: Path, model: str) -> dict[str, float]:
    """The same of llama-bench."""
    threads = str(len(os.sched_getaffinity(0)))
    command = [str(bench), "-m", model, "-t", threads, "-p", str(PROMPT), "-n", str(DECODED)]
    command += ["-r", "3", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    rows = json.loads(done.stdout)
    return {
        "pp512" if row["n_prompt"] else "tg128": statistics.median(row["samples_ts"])
        for row in rows
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model")
    parser.add_argument("--peer", type=Path, help="path of a llama-bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", action="store_true", help="measure headrace once, print JSON")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(measure(options.model)))
        return
    runs: dict[str, list[dict[str, float]]] = {"headrace": []}
    for _ in range(options.rounds):
        command = [sys.executable, __file__, options.model, "--once"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        runs["headrace"].append(json.loads(done.stdout))
        if options.peer:
            runs.setdefault("llama.cpp", []).append(measure_peer(options.peer, options.model))
    if options.json:
        print(json.dumps(runs))
        return
    print(f"{'tokens/s':12} {'pp512':>22} {'tg128':>22}   ({options.rounds} rounds)")
    for name, them in runs.items():
        cells = []
        for key in ("pp512", "tg128"):
            values = [run[key] for run in them]
            cells.append(f"{statistics.median(values):.1f} [{min(values):.1f}..{max(values):.1f}]")
        print(f"{name:12} {cells[0]:>22} {cells[1]:>22}")


if __name__ == "__main__":
    main()
