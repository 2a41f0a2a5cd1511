"""Mixtures of experts beside llama.cpp and ik_llama.cpp: same file, threads and machine, in turns.

    python benchmarks/experts_vs_llamacpp.py --llama BUILD [--ik BUILD] [--shape NAME ...]
                                             [--rounds 3] [--models FOLDER] [--json]

Models have the shapes of shaped_experts.py and random weights. Per model and round each engine gets
a process of its own: prefill of 512 tokens, and 32 decode steps of 1, 8 and 32 streams behind 32
tokens each. Peers are measured by llama-bench, and streams by llamacpp/streams.cpp, which is linked
with their libraries: each of their streams gets random tokens, so that they choose experts as ours
do. BUILD is a CMake build folder with bin/llama-bench; ik_llama.cpp repacks weights at load (-rtr).

Beside the tokens per second stand, of headrace: the experts of a layer that a step really read and
those that the formula expects, E (1 - (1 - k/E)^B); the bytes of a step by the formula, and their
rate as a share of what the backend's own threads read in the same minute (before and after each
test, the larger of both). Then decoding with memory for half of the packed experts
(`--cache-share`): the bytes that a step missed; the tokens per second that reading them alone would
allow, at the rate at which pieces of that size are read from the file; and those of the step
without misses with the misses behind it, at the rate at which the backend reads and packs experts
(the first use of each less the second, in a process of its own). Without `--llama` and `--ik` that
is all that is measured. Let nothing else run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.shaped_experts import SHAPES, write

PROMPT, NEW, DEPTH = 512, 32, 32
MODELS = ("qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v2-lite")
STREAMS = (1, 8, 32)
REPEATS = 3
PROBE_BYTES = 1 << 30
"""Read for the bandwidth of the minute."""
READ_BYTES = 1 << 29
"""Read of the model's file in pieces."""
STREAMS_CPP = Path(__file__).with_name("llamacpp") / "streams.cpp"

Figures = dict[str, Any]


class Peer(NamedTuple):
    """A built llama.cpp or ik_llama.cpp."""

    name: str
    build: Path
    repack: bool
    """Whether it repacks weights at load."""
    streams: Path
    """streams.cpp, linked with its libraries."""


def linked(name: str, build: Path, repack: bool, folder: Path) -> Peer:
    """The peer in `build`, with its streams.cpp compiled into `folder`."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    home = next(line for line in cache.splitlines() if line.startswith("CMAKE_HOME_DIRECTORY"))
    source = Path(home.partition("=")[2])
    program = folder / f"streams-{name}"
    folders = sorted({path.parent for path in build.rglob("lib*.so")})
    names = ["llama", "ggml"] + (["ggml-base"] if any(build.rglob("libggml-base.so")) else [])
    command = ["g++", "-O2", "-std=c++20", f"-I{source / 'include'}"]
    command += [f"-I{source / 'ggml' / 'include'}", str(STREAMS_CPP), "-o", str(program)]
    for path in folders:
        command += [f"-L{path}", f"-Wl,-rpath,{path}"]
    subprocess.run([*command, *(f"-l{library}" for library in names)], check=True)
    return Peer(name, build, repack, program)


def peer_figures(peer: Peer, model: Path) -> Figures:
    """Tokens per second of a peer, by test."""
    threads = str(len(os.sched_getaffinity(0)))
    command = [str(peer.build / "bin" / "llama-bench"), "-m", str(model), "-t", threads]
    command += ["-p", str(PROMPT), "-n", str(NEW), "-r", str(REPEATS), "-o", "json"]
    done = _run([*command, "-rtr", "1"] if peer.repack else command)
    figures = {
        "prefill" if row["n_prompt"] else "decode 1": median(row["samples_ts"])
        for row in _rows(done)
    }
    command = [str(peer.streams), str(model), threads, str(DEPTH), str(NEW)]
    done = _run([*command, str(int(peer.repack)), *(str(n) for n in STREAMS if n > 1)])
    for line in done.splitlines():
        if line.startswith("{"):  # ik_llama.cpp writes what it converts between the rows
            row = json.loads(line)
            figures[f"decode {row['streams']}"] = row["tokens_per_s"]
    return figures


def _rows(output: str) -> list[Figures]:
    """The rows of llama-bench, between whose lines ik_llama.cpp writes what it converts."""
    lines = (line for line in output.splitlines() if line[:1] in ("[", "]", " "))
    rows: list[Figures] = json.loads("\n".join(lines))
    return rows


def own_figures(model: Path, share: float | None) -> Figures:
    """The same of headrace, with what its experts and the machine's memory say; see `measured`."""
    command = [sys.executable, str(Path(__file__).resolve()), "--once", str(model)]
    done = _run(command if share is None else [*command, "--cache-share", str(share)])
    figures: Figures = json.loads(done)
    return figures


def part_figures(model: Path, share: float) -> Figures:
    """Those of decoding with memory for a share of the experts, and the rate of packing them."""
    command = [sys.executable, str(Path(__file__).resolve()), "--packing", str(model)]
    return {"packing_bytes_per_s": float(_run(command)), **own_figures(model, share)}


def _run(command: list[str]) -> str:
    start = time.perf_counter()
    # Some tools of ik_llama.cpp write a log where they run.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=1800, cwd=folder
        )
    print(f"{time.perf_counter() - start:6.1f} s: {' '.join(command)}", file=sys.stderr)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2000:])
    print(done.stdout, file=sys.stderr)
    return done.stdout


def measured(model: Path, share: float | None) -> Figures:
    """The figures of this process: of all tests, or, with a share of the experts in memory, of
    decoding 1 and 8 streams.
    """
    from headrace.bench.engine import Case, run_case
    from headrace.config import EngineConfig
    from headrace.engine.load import load_engine
    from headrace.engine.memory.expert_memory import plan_weights
    from headrace.ops.cpu import CpuOps
    from headrace.weights.open import open_checkpoint

    checkpoint = open_checkpoint(model)
    sizes = _expert_sizes(checkpoint)
    packed = plan_weights(checkpoint, EngineConfig(), 1 << 60).expert_bytes
    rate = _read_rate(model, sizes) if share is not None else 0.0
    config = EngineConfig(
        model=str(model),
        max_model_len=PROMPT + NEW + DEPTH,
        max_num_seqs=2 * max(STREAMS),
        expert_cache_memory_bytes=None if share is None else int(share * packed),
    )
    core, _ = load_engine(config)
    probe = CpuOps()
    reads = [probe.read_bandwidth(PROBE_BYTES)]
    calls = _watch_experts(CpuOps)
    cases = {f"decode {n}": Case(0, NEW, n, DEPTH) for n in STREAMS}
    if share is None:
        cases = {"prefill": Case(PROMPT, 0, 1, 0)} | cases
    else:
        del cases["decode 32"]
    tests: Figures = {}
    for name, case in cases.items():
        calls.clear()
        # Other tokens in each run: those of the last one left their experts in the cache.
        runs = [
            run_case(core, case, repeats=1, warm_up=False, seed=seed) for seed in range(REPEATS + 1)
        ]
        result = sorted(runs[1:], key=lambda run: run.tokens_per_s)[REPEATS // 2]
        reads.append(probe.read_bandwidth(PROBE_BYTES))
        row = tests[name] = {
            "tokens_per_s": result.tokens_per_s,
            "step_bytes": result.step_bytes,
            "bytes_per_s": result.bytes_per_s,
            "read_limit": max(reads[-2:]),
        }
        if case.new:
            steps = [call for call in calls if call.tokens == case.batch]
            row["experts_of_layer"] = mean(call.experts for call in steps)
            row["missed_bytes_of_layer"] = mean(call.missed_bytes for call in steps)
            row["file_bytes_per_s"] = rate
    return {"tests": tests, "expert_bytes": packed}


def _expert_sizes(checkpoint: Any) -> list[int]:
    """Stored bytes of each matrix of an expert."""
    tensors = checkpoint.tensors
    return [
        tensors[name].nbytes for name in tensors if ".experts." in name and name.endswith(".weight")
    ]


def _read_rate(model: Path, sizes: list[int]) -> float:
    """Bytes per second at which pieces as large as those of experts are read, in random order."""
    draw, whole, done = random.Random(0), model.stat().st_size, 0
    buffer = memoryview(bytearray(max(sizes)))
    with model.open("rb", buffering=0) as file:
        start = time.perf_counter()
        while done < READ_BYTES:
            size = draw.choice(sizes)
            file.seek(draw.randrange(whole - size))
            done += file.readinto(buffer[:size]) or 0
        return done / (time.perf_counter() - start)


def packing_rate(model: Path) -> float:
    """Stored bytes per second at which experts that are missing are read and packed, as many at a
    time as a token has: the first use of each less the second.
    """
    import numpy as np

    from headrace.models import load_model, read_config
    from headrace.ops.cpu import CpuOps
    from headrace.ops.experts import ExpertMLP, Routes
    from headrace.weights.open import open_checkpoint

    checkpoint = open_checkpoint(model)
    config = read_config(checkpoint)
    assert config.experts is not None, "the shapes have experts"
    chosen, count = config.experts.routing.experts_per_token, config.experts.routing.num_experts
    ops = CpuOps(expert_cache_bytes=1 << 60)
    loaded: Any = load_model(checkpoint, ops)
    mixtures = [getattr(layer.mlp, "mlp", None) for layer in loaded._layers]
    row = np.ones((1, config.hidden_size), np.float32)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        for mlp in mixtures:
            if not isinstance(mlp, ExpertMLP):
                continue
            for first in range(0, count, chosen):
                ids = np.arange(first, min(first + chosen, count), dtype=np.int32)[None]
                ops.experts(row, mlp, Routes(ids, np.ones(ids.shape, np.float32)))
        seconds.append(time.perf_counter() - start)
    stats = ops.expert_cache_stats()
    assert stats is not None and stats.misses, "nothing was packed"
    return stats.read_bytes / (seconds[0] - seconds[1])


class _Call(NamedTuple):
    tokens: int
    experts: int
    """How many the tokens chose."""
    missed_bytes: int
    """Read because they were not in the cache of experts."""


def _watch_experts(backend: Any) -> list[_Call]:
    """A list that gets every later call of the operation `experts`."""
    import numpy as np

    inner, calls = backend.experts, []

    def missed_bytes(ops: Any) -> int:
        stats = ops.expert_cache_stats()
        return 0 if stats is None else stats.read_bytes

    def experts(ops: Any, x: Any, mlp: Any, routes: Any, **others: Any) -> Any:
        before = missed_bytes(ops)
        y = inner(ops, x, mlp, routes, **others)
        if mlp.gate_up.num_experts > 1:
            count = len(np.unique(routes.experts))
            calls.append(_Call(len(x), count, missed_bytes(ops) - before))
        return y

    backend.experts = experts
    return calls


def main() -> None:
    """Measure, and print tables or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--llama", type=Path, help="build folder of llama.cpp")
    parser.add_argument("--ik", type=Path, help="build folder of ik_llama.cpp")
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", type=Path, help="folder to keep the models in")
    parser.add_argument("--cache-share", type=float, help="of the experts; default: 0.5")
    parser.add_argument("--once", type=Path, help="measure headrace once on this file, print JSON")
    parser.add_argument(
        "--packing", type=Path, help="print the rate of packing this file's experts"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.packing:
        print(packing_rate(options.packing))
        return
    if options.once:
        print(json.dumps(measured(options.once, options.cache_share)))
        return
    share = 0.5 if options.cache_share is None else options.cache_share
    everything: dict[str, dict[str, list[Figures]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        peers = []
        for name, build in (("llama.cpp", options.llama), ("ik_llama.cpp", options.ik)):
            if build is not None:
                peers.append(linked(name, build.resolve(), name == "ik_llama.cpp", Path(scratch)))
        for shape in options.shape:
            model = (options.models or Path(scratch)).resolve() / f"{shape}.gguf"
            if not model.is_file():
                write(model, shape)
            runs: dict[str, list[Figures]] = {"headrace": [], **{peer.name: [] for peer in peers}}
            for number in range(options.rounds):
                print(f"{shape}: round {number + 1} of {options.rounds}", file=sys.stderr)
                runs["headrace"].append(own_figures(model, None))
                for peer in peers:
                    runs[peer.name].append(peer_figures(peer, model))
            runs["half"] = [part_figures(model, share)] if share else []
            everything[shape] = runs
            if options.models is None:
                model.unlink()
    print(json.dumps(everything) if options.json else "\n".join(_tables(everything)))


def _tables(everything: dict[str, dict[str, list[Figures]]]) -> Iterator[str]:
    names = [name for runs in everything.values() for name in runs]
    peers = [name for name in dict.fromkeys(names) if name not in ("headrace", "half")]
    yield f"| tokens/s | | headrace |{''.join(f' {name} | ratio |' for name in peers)}"
    yield "|---|---|---|" + "---|---|" * len(peers)
    for shape, runs in everything.items():
        for test in runs["headrace"][0]["tests"]:
            own = _of(runs, test, "tokens_per_s")
            cells = [shape, test, _spread(own)]
            for name in peers:
                peer = [figures[test] for figures in runs[name]]
                ratios = [a / b for a, b in zip(own, peer, strict=True)]
                cells += [_spread(peer), _spread(ratios, 2)]
            yield f"| {' | '.join(cells)} |"
    yield ""
    yield "| a step | streams | experts of a layer (formula) | MB by it | GB/s | limit | share |"
    yield "|---|---|---|---|---|---|---|"
    for name, runs in everything.items():
        sizes = SHAPES[name]
        for streams in STREAMS:
            test = f"decode {streams}"
            count, chosen = sizes.experts, sizes.experts_per_token
            expected = count * (1 - (1 - chosen / count) ** streams)
            rates = _of(runs, test, "bytes_per_s")
            limits = _of(runs, test, "read_limit")
            shares = [100 * a / b for a, b in zip(rates, limits, strict=True)]
            yield (
                f"| {name} | {streams} | {mean(_of(runs, test, 'experts_of_layer')):.1f} "
                f"({expected:.1f}) | {_of(runs, test, 'step_bytes')[0] / 1e6:,.0f} | "
                f"{_spread([rate / 1e9 for rate in rates])} | "
                f"{_spread([limit / 1e9 for limit in limits])} | {_spread(shares, 0)} % |"
            )
    yield ""
    yield (
        "| part of the experts | streams | MB missed a step | file, GB/s | packing, GB/s | "
        "tokens/s, all packed | tokens/s | of the reads alone | of a step and its packing |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, runs in everything.items():
        mixed_layers = SHAPES[name].layers - SHAPES[name].dense_layers
        for figures in runs["half"]:
            for test, row in figures["tests"].items():
                streams = int(test.split()[1])
                missed = row["missed_bytes_of_layer"] * mixed_layers
                rate = row["file_bytes_per_s"]
                bound = f"{streams * rate / missed:,.1f}" if missed else "-"
                packing = figures["packing_bytes_per_s"]
                whole = median(_of(runs, test, "tokens_per_s"))
                expected = streams / (streams / whole + missed / packing)
                yield (
                    f"| {name} | {streams} | {missed / 1e6:,.1f} | {rate / 1e9:.2f} | "
                    f"{packing / 1e9:.2f} | {whole:,.1f} | {row['tokens_per_s']:,.1f} | {bound} | "
                    f"{expected:,.1f} |"
                )


def _of(runs: dict[str, list[Figures]], test: str, figure: str) -> list[float]:
    return [figures["tests"][test][figure] for figures in runs["headrace"]]


def _spread(values: list[float], places: int = 1) -> str:
    low, high = min(values), max(values)
    return f"{median(values):,.{places}f} [{low:,.{places}f}..{high:,.{places}f}]"


if __name__ == "__main__":
    main()
