"""The share of the machine's read bandwidth that a product of one row reaches, kind by kind.

    python -m benchmarks.storage_kinds --out benchmarks/storage_kinds.json [--kind Q4_K ...]

A matrix of each kind that weights are stored in, of random bits, as large in memory as --megabytes
say, is multiplied by one row of WIDTH values, as each matrix is when a token is decoded. In turns
with the products the same threads read as many bytes and do nothing with them, which is the limit
of the moment: the share is the median of the ratios of neighbours. Rounds in which other processes,
or other guests of the host, took more than OTHERS of the CPU time are left out and repeated. Bytes
are those that the backend holds. `docs/storage-kinds.md` is made from the file.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.random_rows import random_rows
from headrace.ops.cpu import CpuOps
from headrace.telemetry.machine import this_machine
from headrace.weights.codecs import CODECS, F8_E4M3, OF_FOLDERS, Codec
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.tensor import Tensor

RECORDING = "benchmarks/storage_kinds.json"
"""The file of the repository that docs/storage-kinds.md is made from."""
WIDTH = 4096
"""Columns: those of a model of 8 billion parameters."""
PATTERN_ROWS = 64
"""Rows that are drawn; the others are the same again."""
PANEL = 16
"""Rows that the kernels compute together."""
FP8_BLOCKS = {"tensor": (0, WIDTH), "channel": (1, WIDTH), "block": (128, 128)}
"""Rows and columns that share a scale, by its scope; 0 rows are all."""
OTHERS = 0.06
"""A share of the CPU time; some per cent go to the system itself."""
MOST_SECONDS = 25.0
"""For one kind, on a machine that is never idle."""
SECONDS = 2.0
LEAST_ROUNDS = 7


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of one kind beside the limit."""

    kind: str
    held_bytes: int
    """What the backend holds of the matrix."""
    bits_per_weight: float
    """Of these bytes."""
    rounds: int
    """Those that nothing disturbed."""
    read_gb_s: float
    """Median of reading alone."""
    product_gb_s: float
    """Median of the product."""
    share: float
    """Median of each product's rate over the rate of the reads just before and after it."""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One run: where and how it was measured, and what came out."""

    command: str
    date: str
    cpu: str
    level: str
    threads: int
    width: int
    kinds: list[Share]


def kind_names() -> list[str]:
    """Every kind that a matrix can be held in; FP8 once for each scope of its scales."""
    return [*CODECS, *(f"{F8_E4M3.name} {scope}" for scope in FP8_BLOCKS), *OF_FOLDERS]


def random_matrix(name: str, target_bytes: int) -> Tensor:
    """A matrix of a kind, of about that size, in finite values."""
    rng = np.random.default_rng(0)
    kind, _, scope = name.partition(" ")
    codec = F8_E4M3 if scope else CODECS.get(kind) or OF_FOLDERS[kind]
    rows = max(PANEL, round(target_bytes / codec.row_bytes(WIDTH) / PANEL) * PANEL)
    if kind in CODECS:
        pattern = random_rows(codec, rng, PATTERN_ROWS, WIDTH, WIDTH**-0.5)
    else:
        pattern = _random_blocks(codec, rng)
    data = np.resize(pattern, (rows, pattern.shape[1]))
    if not scope:
        return Tensor(name, (rows, WIDTH), codec, data)
    high, wide = FP8_BLOCKS[scope]
    block = (high or rows, wide)
    shape = (-(-rows // block[0]), WIDTH // wide)
    scales = rng.uniform(1e-4, 1e-3, shape).astype(np.float32)
    return ScaledTensor(
        name, (rows, WIDTH), codec, data, scales=scales, block=block, scale_bytes=scales.nbytes
    )


def _random_blocks(codec: Codec, rng: np.random.Generator) -> np.ndarray:
    """Rows of a kind of folders, whose scales are numbers of float32; of FP8 no code is NaN."""
    rows = rng.integers(0, 0x7F, (PATTERN_ROWS, codec.row_bytes(WIDTH)), np.uint8)
    blocks = rows.view(codec.layout)
    if codec is not F8_E4M3:
        blocks["d"] = rng.uniform(1e-4, 1e-3, blocks["d"].shape)
    return rows


def measured(ops: CpuOps, name: str, target_bytes: int) -> Share:
    """The share of one kind."""
    matrix = random_matrix(name, target_bytes)
    weight = ops.linear_weight([matrix])
    values = matrix.shape[0] * WIDTH
    del matrix
    x = np.random.default_rng(1).standard_normal((1, WIDTH)).astype(np.float32)
    ops.linear(x, weight)
    rounds: list[tuple[float, float, float]] = []
    start = time.perf_counter()
    limit = ops.read_bandwidth(weight.nbytes)
    while len(rounds) < LEAST_ROUNDS or time.perf_counter() < start + SECONDS:
        used = _used_by_others()
        begin = time.perf_counter()
        ops.linear(x, weight)
        rate = weight.nbytes / (time.perf_counter() - begin)
        before, limit = limit, ops.read_bandwidth(weight.nbytes)
        spent = (time.perf_counter() - begin) * (os.cpu_count() or 1)
        if _used_by_others() - used <= OTHERS * spent:
            rounds.append((rate, limit, rate / ((before + limit) / 2)))
        elif time.perf_counter() > start + MOST_SECONDS:
            raise SystemExit(f"{name}: other work takes the CPU; measure when the machine is idle")
    rate, limit, share = (statistics.median(column) for column in zip(*rounds, strict=True))
    return Share(
        kind=name, held_bytes=weight.nbytes, bits_per_weight=round(8 * weight.nbytes / values, 3),
        rounds=len(rounds), read_gb_s=round(limit / 1e9, 1),
        product_gb_s=round(rate / 1e9, 1),
        share=round(share, 3),
    )  # fmt: skip


def _used_by_others() -> float:
    """CPU seconds that went to anything but this process, since the machine began."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields)
    total = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    own = os.times()
    return total - own.user - own.system


def shares(ops: CpuOps, names: list[str], target_bytes: int) -> Iterator[Share]:
    """Each kind's, printed when it is there."""
    for name in names:
        share = measured(ops, name, target_bytes)
        print(
            f"{name:18s} {share.held_bytes / 1e6:6.0f} MB {share.product_gb_s:6.1f} of "
            f"{share.read_gb_s:6.1f} GB/s {share.share:6.0%}", file=sys.stderr, flush=True,
        )  # fmt: skip
        yield share


def command_of(words: Sequence[str], out: str) -> str:
    """As a reader may repeat it: FILE, wherever it was, is that of the repository."""
    named = [word.replace(out, RECORDING) for word in words]
    return " ".join(["python -m benchmarks.storage_kinds", *named])


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and write the recording."""
    words = sys.argv[1:] if words is None else words
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--kind", action="append", choices=kind_names(), metavar="KIND")
    parser.add_argument("--megabytes", type=int, default=400, help="of each matrix, as stored")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--level", default="auto")
    arguments = parser.parse_args(words)
    ops = CpuOps(arguments.level, arguments.threads)
    names = arguments.kind or kind_names()
    recording = Recording(
        command=command_of(words, str(arguments.out)),
        date=date.today().isoformat(), cpu=this_machine()[0], level=ops.level,
        threads=ops.num_threads, width=WIDTH,
        kinds=list(shares(ops, names, arguments.megabytes * 10**6)),
    )  # fmt: skip
    text = msgspec.json.format(msgspec.json.encode(recording), indent=1)
    arguments.out.write_bytes(text + b"\n")


if __name__ == "__main__":
    main()
