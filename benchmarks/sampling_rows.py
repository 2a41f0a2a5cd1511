"""What it takes to draw a token from a row of logits of a large vocabulary, a row and thread.

    python benchmarks/sampling_rows.py [--level auto] [--threads 1] [--rows 32] [--seconds 0.4]
                                       [--json]

Two kinds of rows. "trained": those of headrace-base over a text of Python, its vocabulary made as
wide as a large one by further tokens that it gives what its own less likely three quarters have
(with noise of 0.2, so that hardly two are equal). "flat": normal, with a standard deviation of 1,
as of a model with random weights: of a share of 0.95 most tokens are kept. Every row is another,
and together they are larger than a core's caches. Least and median of the calls, over their rows.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import click
import numpy as np
import numpy.typing as npt

from headrace.embedded import embedded_model
from headrace.models import load_model
from headrace.ops.cpu import CpuOps
from headrace.ops.kv import RaggedBatch
from headrace.ops.sampling_rows import Chain, LogitsEdit, Penalties, SamplingRows
from headrace.text.tokenizer import load_tokenizer
from headrace.weights.open import open_checkpoint

F32 = npt.NDArray[np.float32]

VOCABULARY = 151936
TEXT = "def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n"


def own_logits(ops: CpuOps, count: int) -> F32:
    """headrace-base's logits of `count` positions of TEXT, repeated as often as that takes."""
    checkpoint = open_checkpoint(embedded_model())
    model = load_model(checkpoint, ops)
    once = load_tokenizer(checkpoint.tokenizer).encode(TEXT, add_special_tokens=False)
    ids = (once * (count // len(once) + 1))[:count]
    entries, layout = -(-count // 32), model.cache_layout
    cache = ops.kv_cache(layout.spec(32, entries * layout.num_tables, "bf16", "bf16"))
    batch = RaggedBatch(
        token_ids=np.array(ids, np.int32),
        positions=np.arange(count, dtype=np.int32),
        query_start=np.array([0, count], np.int32),
        block_tables=layout.tables(np.arange(entries, dtype=np.int32)[None]),
        logit_rows=np.arange(count, dtype=np.int32),
    )
    return np.asarray(model.forward(batch, cache))


def trained(ops: CpuOps, count: int) -> F32:
    """f32[count, VOCABULARY], as the module says."""
    rng = np.random.default_rng(1)
    own = own_logits(ops, count)
    wide = np.empty((count, VOCABULARY), np.float32)
    for row, logits in zip(wide, own, strict=True):
        usual = np.sort(logits)[: len(logits) * 3 // 4]
        row[:] = rng.choice(usual, VOCABULARY) + rng.normal(0, 0.2, VOCABULARY)
        row[rng.choice(VOCABULARY, len(logits), replace=False)] = logits
    return wide


def flat(count: int) -> F32:
    """f32[count, VOCABULARY], as the module says."""
    return np.random.default_rng(2).standard_normal((count, VOCABULARY), np.float32)


def rows_of(
    count: int, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> SamplingRows:
    """The same parameters for all rows, each with its own draw."""
    return SamplingRows(
        np.full(count, temperature, np.float32),
        np.full(count, top_k, np.int32),
        np.full(count, top_p, np.float32),
        np.full(count, min_p, np.float32),
        np.random.default_rng(3).random(count),
    )


def cases(ops: CpuOps, logits: F32) -> dict[str, Callable[[], object]]:
    """Calls by what they do, each over all rows."""
    count = len(logits)
    rng = np.random.default_rng(4)
    settings = {
        "greedy": rows_of(count, 0.0),
        "temperature 0.8": rows_of(count, 0.8),
        "top_k 20, top_p 0.95": rows_of(count, 0.8, 20, 0.95),
        "top_k 1000": rows_of(count, 0.8, 1000),
        "top_p 0.9": rows_of(count, 0.8, top_p=0.9),
        "min_p 0.05": rows_of(count, 0.8, min_p=0.05),
        "all three": rows_of(count, 0.8, 50, 0.9, 0.02),
    }
    made: dict[str, Callable[[], object]] = {
        name: partial(ops.sample, logits, rows, VOCABULARY) for name, rows in settings.items()
    }
    few = settings["top_k 20, top_p 0.95"]
    # Of 300 tokens so far; nine in ten allowed, as within a string, or one in 500.
    said = rng.choice(VOCABULARY, 300, replace=False).astype(np.int32)
    penalties = Penalties(said, rng.integers(0, 3, 300).astype(np.int32), 1.1, 0.2, 0.1)
    edits = [
        LogitsEdit(row, said[:0], np.zeros(0, np.float32), None, said[:0], penalties)
        for row in range(count)
    ]
    words = (VOCABULARY + 31) // 32

    def mask(share: float) -> npt.NDArray[np.uint32]:
        bits = np.packbits(rng.random(words * 32) < share, bitorder="little")
        return bits.view("<u4").astype(np.uint32)

    most, least = (
        replace(few, masks=(mask(0.9),) * count),
        replace(few, masks=(mask(0.002),) * count),
    )
    made["…, most allowed"] = lambda: ops.sample(logits, most, VOCABULARY)
    made["…, few allowed"] = lambda: ops.sample(logits, least, VOCABULARY)
    order = Chain(("penalties", "temperature", "top_k", "top_p"), penalties)
    chained = replace(few, chains=(order,) * count)
    made["…, in an order, penalties"] = lambda: ops.sample(logits, chained, VOCABULARY)
    chosen = ops.sample(logits, few, VOCABULARY)
    made["20 log probabilities"] = lambda: ops.top_logprobs(logits, chosen, 20, VOCABULARY)
    # Penalties are taken off a copy of what was, so that every call finds the same.
    changed = logits.copy()

    def everything() -> None:
        changed[:, said] = logits[:, said]
        ops.adjust(changed, edits)
        ids = ops.sample(changed, most, VOCABULARY)
        ops.top_logprobs(logits, ids, 20, VOCABULARY)

    made["penalties, mask, 20 log probabilities"] = everything
    return made


def taken_ms(call: Callable[[], object], rows: int, seconds: float, threads: int) -> list[float]:
    """Sorted times of a row and thread, ms, of calls for about so long."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3 * threads / rows)
    return sorted(times)


@click.command()
@click.option("--level", default="auto")
@click.option("--threads", default=1)
@click.option("--rows", default=32)
@click.option("--seconds", default=0.4, help="For each line.")
@click.option("--json", "as_json", is_flag=True)
def main(level: str, threads: int, rows: int, seconds: float, as_json: bool) -> None:
    """Time rows of logits on their way to tokens."""
    ops = CpuOps(level, threads)
    lines = []
    for kind, logits in (("trained", trained(ops, rows)), ("flat", flat(rows))):
        for name, call in cases(ops, logits).items():
            times = taken_ms(call, rows, seconds, threads)
            lines.append(
                {"logits": kind, "case": name, "least_ms": times[0],
                 "median_ms": statistics.median(times)}
            )  # fmt: skip
            if not as_json:
                print(
                    f"{kind:8} {name:38} {times[0]:7.3f} {statistics.median(times):7.3f} ms a row"
                )
    if as_json:
        print(json.dumps({"level": level, "threads": threads, "rows": rows, "lines": lines}))


if __name__ == "__main__":
    main()
