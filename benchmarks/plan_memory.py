"""What `plan fit` says of memory, beside what a server is seen to take.

    python -m benchmarks.plan_memory --folder /tmp/shapes --out plan-memory.json
    python -m benchmarks.plan_memory --only qwen3-8b:Q4_K_M --users 2

For each shape and kind: a file with random weights is made (and removed again), `headrace serve` is
started with a KV cache of exactly the blocks that the load needs, all of them are filled by as many
prompts at once, and the most that the server and its engine had in pages of their own is kept.
The plan is that of `headrace plan fit FILE` for the same load. Memory does not depend on what else
a machine does, so this needs no quiet one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.markdown import number, surroundings, surroundings_line, table, tell
from benchmarks.process_memory import Peak, Resident, children, resident
from headrace.catalog import Catalog
from headrace.engine.memory.weight_memory import copied_bytes
from headrace.plan.machine.hardware_memory import DeviceMemory, place_of
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Load, MemoryPlan, Storage, memory_plan
from headrace.plan.model.model_shape import shape_of_checkpoint
from headrace.weights.open import open_checkpoint

CASES = (
    "qwen3-0.6b:BF16", "qwen3-0.6b:Q8_0", "qwen3-0.6b:Q4_K_M",
    "llama-3.2-1b:BF16", "llama-3.2-1b:Q8_0", "llama-3.2-1b:Q4_K_M", "qwen3-8b:Q4_K_M",
)  # fmt: skip
UNTIED = ("qwen3-8b",)
BLOCK_TOKENS = 32
STEP_TOKENS = 512
LIMIT_S = 1800.0
SHAPED_MODEL = Path(__file__).with_name("shaped_model.py")


@dataclass(frozen=True)
class Measured:
    """Bytes. weights, kv: as the engine says; engine_loaded: before any request.

    mapped: of a table that is only looked up, whose pages stay the file's.
    """

    weights: int
    mapped: int
    kv: int
    engine_loaded: Resident
    engine_peak: Resident
    server_peak: Resident

    @property
    def taken(self) -> int:
        """Own pages of server and engine together, at the most, and the table."""
        return self.engine_peak.own + self.server_peak.own + self.mapped


@dataclass(frozen=True)
class Case:
    """One shape as one kind: what was planned, in bytes by component, and what was seen."""

    name: str
    planned: dict[str, float]
    low: float
    high: float
    measured: Measured

    @property
    def error(self) -> float:
        """Of what is needed in all, above 0 where the plan has more."""
        return self.planned["needed"] / self.measured.taken - 1


def planned(catalog: Catalog, place: DeviceMemory, path: Path, load: Load) -> MemoryPlan:
    """As `headrace plan fit PATH --kv-type BF16 --block-size 32 --step-tokens 512`."""
    kv = kv_kind("BF16", catalog)
    storage = Storage(None, kv, kv, BLOCK_TOKENS)
    return memory_plan(catalog, shape_of_checkpoint(path), place, storage, load)


def measured(path: Path, load: Load, threads: int) -> Measured:
    """Serve the file under the load."""
    blocks = load.users * -(-load.context_tokens // BLOCK_TOKENS)
    command = [
        sys.executable, "-m", "headrace.cli.main", "serve", str(path), "--port", "0", "--json",
        "--log-level", "warning", "--num-gpu-blocks-override", str(blocks),
        "--block-size", str(BLOCK_TOKENS), "--max-num-batched-tokens", str(load.step_tokens),
        "--max-num-seqs", str(load.users), "--max-model-len", str(load.context_tokens),
        "--threads", str(threads),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the server of {path} ended with {process.wait()}")
        url = json.loads(line)["url"]
        engine = max(children(process.pid), key=lambda pid: resident(pid).own)
        loaded = resident(engine)
        with Peak(engine, resident) as of_engine, Peak(process.pid, resident) as of_server:
            figures = asyncio.run(_fill(url, load))
        return Measured(
            weights=figures["headrace:weight_bytes"],
            mapped=figures["headrace:weight_bytes"] - copied_bytes(open_checkpoint(path)),
            kv=figures["headrace:kv_cache_bytes"],
            engine_loaded=loaded,
            engine_peak=of_engine.most,
            server_peak=of_server.most,
        )
    finally:
        process.terminate()
        process.wait(timeout=60)


async def _fill(url: str, load: Load) -> dict[str, int]:
    """A request of the whole context for each user, all at once; what the engine says of itself."""
    rng = random.Random(load.users)
    answer = 8
    async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]

        async def one() -> None:
            prompt = [rng.randrange(1, 256) for _ in range(load.context_tokens - answer)]
            body = {"model": model, "prompt": prompt, "max_tokens": answer, "ignore_eos": True}
            (await client.post("/v1/completions", json=body)).raise_for_status()

        await asyncio.gather(*(one() for _ in range(load.users)))
        lines = (await client.get("/metrics")).text.splitlines()
    found = {}
    for line in lines:
        name = line.split("{")[0].split(" ")[0]
        if name in ("headrace:weight_bytes", "headrace:kv_cache_bytes"):
            found[name] = round(float(line.rpartition(" ")[2]))
    return found


def run(
    catalog: Catalog,
    place: DeviceMemory,
    name: str,
    load: Load,
    folder: Path,
    options: argparse.Namespace,
) -> Case:
    """Make the file, plan, measure, remove the file."""
    shape, _, codec = name.partition(":")
    path = folder / f"{shape}-{codec}.gguf"
    command = [sys.executable, str(SHAPED_MODEL), str(path), "--shape", shape, "--codec", codec]
    if shape in UNTIED:
        command.append("--untied")
    if options.vocabulary is not None:
        command += ["--vocabulary", str(options.vocabulary)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    try:
        plan = planned(catalog, place, path, load)
        seen = measured(path, load, options.threads)
    finally:
        path.unlink()
    parts = {each.id: each.value for each in (*plan.components, plan.needed)}
    low, high = plan.needed.band
    return Case(name, parts, low, high, seen)


def report(cases: list[Case], load: Load) -> str:
    """A table in MB; what is predicted, what was seen, and the error."""
    rows = []
    for case in cases:
        plan, seen = case.planned, case.measured
        rest = plan["activations"] + plan["runtime"]
        rows.append(
            [
                case.name.replace(":", " "), _mb(plan["weights"]), _mb(seen.weights),
                _mb(plan["kv"]), _mb(seen.kv), _mb(rest), _mb(seen.taken - seen.weights - seen.kv),
                _mb(plan["needed"]), _mb(seen.taken), f"{case.error:+.1%}",
            ]
        )  # fmt: skip
    heads = (
        "MB", "weights, plan", "seen", "KV, plan", "seen", "the rest, plan", "seen", "all, plan",
        "seen", "error",
    )  # fmt: skip
    said = f"{load.users} requests of {load.context_tokens} tokens, steps of {load.step_tokens}"
    return f"{said}\n\n{table(heads, rows)}"


def _mb(num_bytes: float) -> str | None:
    return number(num_bytes / 1e6, 0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", action="append", help=f"SHAPE:KIND; default: {', '.join(CASES)}")
    parser.add_argument("--context", type=int, default=1024, help="tokens of a request")
    parser.add_argument("--users", type=int, default=4, help="requests at once")
    parser.add_argument(
        "--folder", type=Path, help="where files are made; default: a temporary one"
    )
    parser.add_argument("--vocabulary", type=Path, help="as of shaped_model.py, for its tokenizer")
    parser.add_argument("--threads", type=int, default=2, help="of the engine")
    parser.add_argument("--out", type=Path, help="JSON of all figures")
    options = parser.parse_args()
    load = Load(options.context, options.users, STEP_TOKENS)
    facts = surroundings(datetime.now(UTC))
    cases: list[Case] = []
    catalog = Catalog.load()
    place = place_of(catalog, "this")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for name in options.only or CASES:
            tell(name)
            cases.append(run(catalog, place, name, load, Path(folder), options))
            tell(json.dumps(asdict(cases[-1])))
    print(report(cases, load))
    print()
    print(surroundings_line(facts))
    if options.out is not None:
        found: dict[str, Any] = {"surroundings": facts, "load": asdict(load)}
        found["cases"] = [{**asdict(case), "error": case.error} for case in cases]
        options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
