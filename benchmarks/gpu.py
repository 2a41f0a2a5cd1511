"""All that waits for a GPU, in one program: `python -m benchmarks.gpu OUT.json [--device cuda]
[--part checks|greedy|roof|kernels|tables|shapes|transformers|plan] [--size full|small]
[--only NAME] [--minutes 8]`.

Figures are entered one by one (benchmarks/gpu_pieces.py): what fails is entered as failed, and the
rest goes on; what the file has is not measured again, so that the next call goes on where one was
ended by its minutes. --again has what failed measured again. Errors are in OUT.log, whole.
`--device cpu --size small` runs all of it without a GPU, whose figures say nothing but that the
program works.

roof    bytes a second that a device reads, and operations of bfloat16 and float32 a second
greedy  tokens of the embedded model on the device beside those of the CPU kernels
kernels single products, experts and attention at shapes of real models, in every kind, with rates,
        errors, and whether a row has the bits it has alone
plan    what `headrace plan speed --hardware h200` says of the models of `shapes`
shapes  models of real shapes without a file (benchmarks/gpu_shapes.py), in BF16, FP8 and GGUF's
        kinds, dense and with experts: by batch and depth to 32k, with the start and the host's gap
tables  prefill and decode of models of a real shape with random weights, from a file, with the
        start from it, and beside the roof the shares of it, where it was measured before
transformers  the same dense shape by transformers, compiled and not, with a static cache
checks  the tests of the torch backend on the device, file by file: operations against the
        reference, kernels, a case of each family

`python -m benchmarks.gpu_page OUT.json PAGE.md` writes the page of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.gpu_kernels import SIZES as KERNEL_SIZES
from benchmarks.gpu_kernels import kernels
from benchmarks.gpu_pieces import Figures, run_apart
from benchmarks.gpu_shapes import SIZES as SHAPE_SIZES
from benchmarks.gpu_shapes import (
    ShapeSizes,
    free,
    row_of,
    time_model,
    transformers_decode,
)
from headrace import LLM, SamplingParams
from headrace.bench.engine import Case
from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.load import load_engine
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams as EngineParams
from headrace.ops.torch.device import fault_of
from headrace.ops.torch.probe import TorchProbe

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/ops/torch", "tests/models/test_torch_backend.py")
PARTS = ("roof", "greedy", "kernels", "plan", "shapes", "tables", "transformers", "checks")
PROMPTS = ("import os\n", "def test_", "class Reader:\n", "for name, value in sorted(")
REPEATS = 5


class Sizes(NamedTuple):
    """What is measured."""

    shapes: tuple[str, ...]
    codecs: tuple[str, ...]
    mixtures: tuple[str, ...]
    """Shapes of models with experts, in the kinds in which they are usually had."""
    batches: tuple[int, ...]
    depths: tuple[int, ...]
    prompt: int
    new: int
    read_bytes: int
    product: int
    """Rows, columns and depth of the product that shows the rate of operations."""
    tokens: int
    """Of each greedy answer."""


SIZES = {
    "full": Sizes(
        ("llama-3.1-8b",), ("BF16", "Q8_0", "Q4_K_M", "Q4_0", "MXFP4"),
        ("qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v2-lite"), (1, 8, 32, 128, 256), (0, 1024, 8192),
        2048, 64, 4 << 30, 8192, 128,
    ),
    "small": Sizes(("small",), ("Q8_0",), ("small",), (1, 2), (32,), 32, 2, 8 << 20, 128, 8),
}  # fmt: skip
"""small: what a test runs on a processor."""


class Task(NamedTuple):
    """What is measured where, and where it is entered."""

    device: torch.device
    size: str
    only: str | None
    figures: Figures

    @property
    def sizes(self) -> Sizes:
        """As they are named."""
        return SIZES[self.size]

    def wants(self, name: str) -> bool:
        """Whether a model is asked for."""
        return self.only in (None, name)

    @property
    def limits(self) -> dict[str, float] | None:
        """The roof, where it was measured."""
        found: dict[str, float] | None = self.figures.get("roof")
        return found


def roof(task: Task) -> None:
    """Limits of the device, as `headrace bench machine --device` measures them."""

    def measured() -> dict[str, float]:
        probe = TorchProbe(str(task.device), size=task.sizes.product)
        read = max(probe.read_bandwidth(task.sizes.read_bytes) for _ in range(REPEATS))
        found = {"read_bytes_per_s": read}
        for kind in ("bf16", "f32", "int8"):
            rates = [probe.peak_rate(kind) for _ in range(REPEATS)]
            known = [rate for rate in rates if rate is not None]
            if known:
                found[f"{kind}_ops_per_s"] = max(known)
        return found

    task.figures.measure(("roof",), measured)


def greedy(task: Task) -> None:
    """Of each prompt, after how many tokens the device's answer leaves that of the CPU kernels."""

    def answers(**settings: str) -> list[list[int]]:
        params = SamplingParams(temperature=0, max_tokens=task.sizes.tokens, ignore_eos=True)
        llm = LLM(kv_cache_dtype="f32", **settings)
        results = llm.generate(list(PROMPTS), params, progress=False)
        return [list(result.token_ids) for result in results]

    def measured() -> list[dict[str, Any]]:
        ours = answers(backend="torch", device=str(task.device))
        found = []
        for prompt, ids, other in zip(PROMPTS, ours, answers(backend="cpu"), strict=True):
            unlike = (
                at for at, pair in enumerate(zip(ids, other, strict=True)) if len({*pair}) > 1
            )
            first = next(unlike, None)
            found.append({"prompt": prompt, "tokens": len(ids), "first_difference": first})
        return found

    task.figures.measure(("greedy",), measured)


def kernel_rates(task: Task) -> None:
    """Of every kind and shape."""
    timed = TorchProbe(str(task.device)).seconds_of
    kernels(task.device, KERNEL_SIZES[task.size], timed, task.figures)


def plan(task: Task) -> None:
    """What is predicted of the models of `shapes`, at their batches and depths."""
    sizes = SHAPE_SIZES[task.size]
    for shape, codec in sizes.models:
        if shape not in PLANNED or not task.wants(f"{shape}-{codec}"):
            continue
        command = _planned(shape, codec, sizes)
        task.figures.measure(("plan", f"{shape}-{codec}"), partial(_json, command))


PLANNED = {"llama-3.1-8b": "llama-3.1-8b", "qwen3-30b-a3b": "qwen3-30b-a3b"}
"""Shapes by the name of their model in the catalog."""
QUANTIZATIONS = {"BF16": "bf16", "F8_E4M3": "fp8", "Q8_0": "q8-0", "Q4_K": "q4-k-m"}


def _planned(shape: str, codec: str, sizes: ShapeSizes) -> list[str]:
    return [
        sys.executable, "-m", "headrace", "plan", "speed", PLANNED[shape], "--hardware", "h200",
        "--quantization", QUANTIZATIONS[codec], "--prompt", str(sizes.prompt),
        "--batches", ",".join(map(str, sizes.batches)),
        "--contexts", ",".join(map(str, sizes.depths)), "--json",
    ]  # fmt: skip


def _json(command: Sequence[str]) -> Any:
    """What a command prints. Raises RuntimeError with its last words where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])}: {done.stderr[-1000:]}")
    return json.loads(done.stdout)


def shapes(task: Task) -> None:
    """Each model of a shape, without a file."""
    sizes = SHAPE_SIZES[task.size]
    for shape, codec in sizes.models:
        if task.wants(f"{shape}-{codec}"):
            time_model(shape, codec, task.device, sizes, task.limits, task.figures)


def models(sizes: Sizes) -> dict[str, list[str]]:
    """What writes the file of each model, by the model's name."""
    found = {
        f"{shape}-{codec}": ["shaped_model.py", "--shape", shape, "--codec", codec]
        for shape in sizes.shapes
        for codec in sizes.codecs
    }
    mixed = {f"{name}-experts": ["shaped_experts.py", "--shape", name] for name in sizes.mixtures}
    return {**found, **mixed}


def tables(task: Task) -> None:
    """Each model from a file."""
    for name, maker in models(task.sizes).items():
        if task.wants(name):
            _table(task, name, maker)


STARTS = ("first_start", "start")
"""Of a model from its file: the first compiles the kernels that lie in no cache yet."""


def _table(task: Task, name: str, maker: Sequence[str]) -> None:
    """Starts of a model from a file that `maker` writes, then prefill and decode."""
    sizes, figures = task.sizes, task.figures
    cases = [Case(sizes.prompt, 0, 1, 0)]
    cases += [Case(0, sizes.new, batch, d) for d in sizes.depths for batch in sizes.batches]
    rows = [("tables", name, "rows", f"{case.name} b{case.batch}") for case in cases]
    if figures.is_late or all(figures.has(*keys) for keys in rows):
        return
    cores: list[EngineCore] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        config = EngineConfig(
            model=str(path), backend="torch", device=str(task.device), max_step_ms=0,
            max_model_len=max(case.positions for case in cases), speculative_config="none",
            max_num_seqs=max(sizes.batches) + 8, max_num_batched_tokens=max(512, sizes.prompt),
        )  # fmt: skip

        def made() -> float:
            script, *arguments = maker
            make = [sys.executable, str(ROOT / "benchmarks" / script), str(path), *arguments]
            done = subprocess.run(make, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{script}: {done.stderr[-1000:]}")
            return path.stat().st_size / 1e9

        def start() -> dict[str, Any]:
            cores.clear()
            free(task.device)
            core, facts = _started(config)
            cores.append(core)
            return facts

        # A file is written for each call; the figure is its size.
        figures.found.get("tables", {}).get(name, {}).pop("file_gb", None)
        if not figures.measure(("tables", name, "file_gb"), made):
            return
        starts = [("tables", name, which) for which in STARTS]
        if not all(figures.measure(keys, start) for keys in starts):
            return
        if not cores:  # a call that goes on
            start()
        for case, keys in zip(cases, rows, strict=True):
            figures.measure(keys, partial(row_of, cores[0], case, task.limits))
        cores.clear()
        free(task.device)


def _started(config: EngineConfig) -> tuple[EngineCore, dict[str, Any]]:
    """An engine from a file, and what its start took to its first token."""
    start_s = time.perf_counter()
    core, _ = load_engine(config)
    load_s = time.perf_counter() - start_s
    core.submit(Submit("first", [1, 2, 3], EngineParams(max_tokens=1)))
    while core.has_work:
        core.step()
    info = core.info()
    return core, {
        "load_s": load_s, "first_token_s": time.perf_counter() - start_s,
        "phases_s": info.phases_s, "kv_tokens": info.pool_tokens,
        "weight_bytes": info.weight_bytes,
    }  # fmt: skip


def beside(task: Task) -> None:
    """transformers, not compiled and compiled, each in turn."""
    for shape in task.sizes.shapes:
        for compiled in (False, True) if task.size == "full" else (False,):
            keys = ("transformers", shape, "compiled" if compiled else "eager")
            batches, new = task.sizes.batches[:2], task.sizes.new
            run = partial(transformers_decode, shape, task.device, batches, new, compiled=compiled)
            task.figures.measure(keys, run)
            free(task.device)


def checks(task: Task) -> None:
    """How many of the tests passed on the device, and which did not, by file."""
    for path in test_files(task.device):
        task.figures.measure(("checks", path), partial(_checked, path, task.device))


def test_files(device: torch.device) -> list[str]:
    """Tests of kernels without a device are run by others, interpreted."""
    found: list[str] = []
    for each in TESTS:
        path = ROOT / each
        paths = [path] if path.is_file() else sorted(path.glob("test_*.py"))
        if path.is_dir() and device.type != "cpu":
            paths += sorted(path.glob("*_interpreted.py"))
        found += [str(file.relative_to(ROOT)) for file in paths]
    return found


def _checked(path: str, device: torch.device) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "-m", "not matrix", path], cwd=ROOT,
        env={**os.environ, "HEADRACE_TEST_DEVICE": str(device)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", _last(done.stdout))}
    failed = re.findall(r"^FAILED (.+)", done.stdout, re.MULTILINE)
    found = {"counts": counts, "failed_tests": failed, "returned": done.returncode}
    return found if not done.returncode else {**found, "output": done.stdout[-6000:]}


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if re.search(r"\d (passed|failed|error)", line)]
    return lines[-1] if lines else ""


def machine(device: torch.device) -> dict[str, Any]:
    """What computes."""
    on_cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_cuda else platform.processor() or "cpu",
        "memory_bytes": torch.cuda.mem_get_info(device)[1] if on_cuda else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


MEASURES = {
    "roof": roof, "greedy": greedy, "kernels": kernel_rates, "plan": plan, "shapes": shapes,
    "tables": tables, "transformers": beside, "checks": checks,
}  # fmt: skip


def measure(given: argparse.Namespace, ends_s: float) -> None:
    """The parts that are asked for, in this process."""
    device = torch.device(given.device)

    def is_fatal(error: Exception) -> bool:
        return fault_of(error, device) == "lost"

    figures = Figures(given.out, ends_s, is_fatal=is_fatal, tidy=lambda: free(device))
    figures.enter(("machine",), machine(device))
    task = Task(device, given.size, given.only, figures)
    for part in given.part or PARTS:
        if not figures.is_late:
            MEASURES[part](task)
            free(device)


def main() -> None:
    """Have the parts that are asked for measured, by a process that may be ended by one of them."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--only", help="of plan, tables and shapes: one SHAPE-CODEC")
    parser.add_argument("--minutes", type=float, default=7.5, help="when nothing more begins")
    parser.add_argument("--again", action="store_true", help="measure what failed again")
    parser.add_argument("--apart", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.apart is not None:
        measure(given, given.apart)
        return
    ends_s = time.monotonic() + 60 * given.minutes
    if given.again:
        Figures(given.out, ends_s).forget_failed()
    command = [sys.executable, "-m", "benchmarks.gpu", *sys.argv[1:], "--apart", str(ends_s)]
    run_apart(command, given.out, given.out.with_suffix(".log"), ends_s)
    if Figures(given.out, ends_s).is_late:
        print("the minutes are over: the same call goes on with what is left")


if __name__ == "__main__":
    main()
