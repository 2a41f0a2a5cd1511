"""All that waits for a GPU, in one program: `python -m benchmarks.gpu OUT.json [--device cuda]
[--part checks|greedy|roof|kernels|tables|shapes|transformers] [--size full|small] [--only NAME]`.

Each part stands alone and adds its figures to OUT.json, so that machines that are lent for minutes
can run one at a time; `tables` of one model too (`--only llama-3.1-8b-Q8_0`). `--device cpu
--size small` runs all of it without a GPU, whose figures say nothing but that the program works.

checks  the tests of the torch backend on the device: operations against the reference, kernels,
        a case of each family
greedy  tokens of the embedded model on the device beside those of the CPU kernels
kernels single products, experts and attention at shapes of real models, in every kind, with rates
        and whether a row has the bits it has alone
roof    bytes a second that a device reads, and operations of bfloat16 and float32 a second
tables  prefill and decode of models of a real shape with random weights, and beside the roof the
        shares of it, where it was measured before
shapes  models of real shapes without a file (benchmarks/gpu_shapes.py), in BF16, FP8 and GGUF's
        kinds, dense and with experts: by batch and depth to 32k, with the start and the host's gap;
        what one call leaves undone within --minutes the next one does
transformers  the same dense shape by transformers, compiled, with a static cache

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
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.gpu_kernels import SIZES as KERNEL_SIZES
from benchmarks.gpu_kernels import kernels
from benchmarks.gpu_shapes import SIZES as SHAPE_SIZES
from benchmarks.gpu_shapes import time_model, transformers_decode
from headrace import LLM, SamplingParams
from headrace.bench.engine import Case, run_case
from headrace.config.settings import EngineConfig
from headrace.engine.load import load_engine
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams as EngineParams
from headrace.ops.torch.probe import TorchProbe

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/ops/torch", "tests/models/test_torch_backend.py")
KERNELS = sorted(str(path) for path in (ROOT / TESTS[0]).glob("*_interpreted.py"))
"""The tests of kernels; without a device those of `TESTS` run them, interpreted."""
PARTS = ("roof", "kernels", "greedy", "tables", "shapes", "transformers", "checks")
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


def roof(device: torch.device, sizes: Sizes) -> dict[str, float]:
    """Limits of the device, as `headrace bench machine --device` measures them."""
    probe = TorchProbe(str(device), size=sizes.product)
    found = {
        "read_bytes_per_s": max(probe.read_bandwidth(sizes.read_bytes) for _ in range(REPEATS))
    }
    for kind in ("bf16", "f32", "int8"):
        rates = [probe.peak_rate(kind) for _ in range(REPEATS)]
        known = [rate for rate in rates if rate is not None]
        if known:
            found[f"{kind}_ops_per_s"] = max(known)
    return found


def checks(device: torch.device) -> dict[str, Any]:
    """How many of the tests passed on the device, and which did not."""
    tests = TESTS if device.type == "cpu" else (*TESTS, *KERNELS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "-m", "not matrix", *tests], cwd=ROOT,
        env={**os.environ, "HEADRACE_TEST_DEVICE": str(device)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", _last(done.stdout))}
    failed = re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    return {"counts": counts, "failed": failed, "returned": done.returncode}


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if " passed" in line or " failed" in line]
    return lines[-1] if lines else ""


def greedy(device: torch.device, sizes: Sizes) -> list[dict[str, Any]]:
    """Of each prompt, after how many tokens the device's answer leaves that of the CPU kernels."""
    answers = []
    params = SamplingParams(temperature=0, max_tokens=sizes.tokens, ignore_eos=True)
    for settings in ({"backend": "cpu"}, {"backend": "torch", "device": str(device)}):
        llm = LLM(kv_cache_dtype="f32", **settings)  # type: ignore[arg-type]
        results = llm.generate(list(PROMPTS), params, progress=False)
        answers.append([list(result.token_ids) for result in results])
    found = []
    for prompt, answer, other in zip(PROMPTS, *answers, strict=True):
        same = next((i for i, (a, b) in enumerate(zip(answer, other, strict=True)) if a != b), None)
        found.append({"prompt": prompt, "tokens": len(answer), "first_difference": same})
    return found


def models(sizes: Sizes) -> dict[str, list[str]]:
    """What writes the file of each model, by the model's name."""
    found = {
        f"{shape}-{codec}": ["shaped_model.py", "--shape", shape, "--codec", codec]
        for shape in sizes.shapes
        for codec in sizes.codecs
    }
    mixed = {f"{name}-experts": ["shaped_experts.py", "--shape", name] for name in sizes.mixtures}
    return {**found, **mixed}


def table(
    device: torch.device,
    maker: Sequence[str],
    sizes: Sizes,
    limits: dict[str, float] | None,
) -> dict[str, Any]:
    """Load of a model from a file that `maker` writes, then prefill and decode."""
    cases = [Case(sizes.prompt, 0, 1, 0)]
    cases += [Case(0, sizes.new, batch, d) for d in sizes.depths for batch in sizes.batches]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        script, *arguments = maker
        make = [sys.executable, str(ROOT / "benchmarks" / script), str(path), *arguments]
        subprocess.run(make, check=True, capture_output=True)
        config = EngineConfig(
            model=str(path), backend="torch", device=str(device), max_step_ms=0,
            max_model_len=max(case.positions for case in cases), speculative_config="none",
            max_num_seqs=max(sizes.batches) + 8, max_num_batched_tokens=max(512, sizes.prompt),
        )  # fmt: skip
        start_s = time.perf_counter()
        core, _ = load_engine(config)
        load_s = time.perf_counter() - start_s
        core.submit(Submit("first", [1, 2, 3], EngineParams(max_tokens=1)))
        while core.has_work:
            core.step()
        found: dict[str, Any] = {
            "load_s": load_s,
            "first_token_s": time.perf_counter() - start_s,
            "phases_s": core.info().phases_s,
            "kv_tokens": core.info().pool_tokens,
            "weight_bytes": core.info().weight_bytes,
            "tests": [],
        }
        for case in cases:
            needed = case.batch * core.kv.most_blocks(case.positions)
            row: dict[str, Any] = {"test": case.name, "batch": case.batch}
            if needed > 0.95 * core.kv.num_blocks:
                row["left_out"] = f"{needed} blocks; the KV cache has {core.kv.num_blocks}"
            else:
                result = run_case(core, case, repeats=2)
                row |= {"tokens_per_s": result.tokens_per_s, "bytes_per_s": result.bytes_per_s,
                        "ops_per_s": result.ops_per_s}  # fmt: skip
                if limits is not None:
                    row["share_of_read"] = result.bytes_per_s / limits["read_bytes_per_s"]
                    row["share_of_bf16"] = result.ops_per_s / limits["bf16_ops_per_s"]
            found["tests"].append(row)
    return found


def machine(device: torch.device) -> dict[str, Any]:
    """What computes."""
    on_cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_cuda else platform.processor() or "cpu",
        "memory_bytes": torch.cuda.mem_get_info(device)[1] if on_cuda else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def main() -> None:
    """Run the parts that are asked for and write their figures."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--only", help="of tables and shapes: one SHAPE-CODEC or SHAPE-experts")
    parser.add_argument("--minutes", type=float, default=8.0, help="of shapes: when no more begin")
    given = parser.parse_args()
    device, sizes = torch.device(given.device), SIZES[given.size]
    found: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    found["machine"] = machine(device)

    def save() -> None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")

    for part in given.part or PARTS:
        if part == "roof":
            found["roof"] = roof(device, sizes)
        elif part == "greedy":
            found["greedy"] = greedy(device, sizes)
        elif part == "kernels":
            timed = TorchProbe(str(device)).seconds_of
            found["kernels"] = kernels(device, KERNEL_SIZES[given.size], timed)
        elif part == "checks":
            found["checks"] = checks(device)
        elif part == "shapes":
            ends_s = time.perf_counter() + 60 * given.minutes
            of_shapes = SHAPE_SIZES[given.size]
            for shape, codec in of_shapes.models:
                name = f"{shape}-{codec}"
                if given.only in (None, name):
                    model = found.setdefault("shapes", {}).setdefault(name, {})
                    time_model(
                        name, device, of_shapes, found.get("roof"), model,
                        ends_s=ends_s, on_row=save,
                    )  # fmt: skip
        elif part == "transformers":
            for shape in sizes.shapes:
                found.setdefault("transformers", {})[shape] = transformers_decode(
                    shape, device, sizes.batches[:2], sizes.new, compiled=given.size == "full"
                )
        else:
            tables = found.setdefault("tables", {})
            for name, maker in models(sizes).items():
                if given.only in (None, name):
                    tables[name] = table(device, maker, sizes, found.get("roof"))
        save()


if __name__ == "__main__":
    main()
