"""What a product of 1 to 512 rows takes beside one of a single row, at two levels in turns.

    python benchmarks/product_rows.py [--levels avx512,amx] [--shape 1024x8192] [--threads 1]
                                      [--codec BF16 ...] [--rows 1,2,4] [--seconds 0.3] [--json]

Calls of the levels alternate, so that whatever else the machine does meets both; their results
have to be equal bit for bit, as those of `avx512` and `amx` are. One thread is timed by its own CPU
time, more by the clock. The least of the times is printed: what the kernel can do.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.kernels import activations, random_matrix
from headrace.ops.cpu import CpuOps

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 128, 512)


class Products(NamedTuple):
    """The least seconds of a product of so many rows, by level."""

    codec: str
    rows: int
    least_s: dict[str, float]


def least_s(
    levels: dict[str, CpuOps], codec: str, width: int, out: int, rows: int, seconds: float
) -> dict[str, float]:
    """The least time of a product at each level, whose calls take turns for about `seconds` each.

    AssertionError: two levels differ in a bit.
    """
    matrix, x = random_matrix(out, width, codec), activations(rows, width)
    weights = {name: ops.linear_weight([matrix]) for name, ops in levels.items()}
    first, *others = (ops.linear(x, weights[name]) for name, ops in levels.items())
    assert all(np.array_equal(first, other) for other in others), (
        f"{codec}, {rows} rows: bits differ"
    )
    alone = all(ops.num_threads == 1 for ops in levels.values())
    clock = time.thread_time if alone else time.perf_counter
    least = dict.fromkeys(levels, float("inf"))
    end = time.perf_counter() + seconds * len(levels)
    turn = 0
    while turn < 3 or time.perf_counter() < end:
        for name, ops in levels.items():
            begin = clock()
            ops.linear(x, weights[name])
            least[name] = min(least[name], clock() - begin)
        turn += 1
    return least


@click.command()
@click.option("--levels", default="avx512,amx")
@click.option("--shape", default="1024x8192", help="Inputs x outputs.")
@click.option("--threads", default=1)
@click.option("--codec", "codecs", multiple=True, default=("BF16", "Q8_0", "Q4_K"))
@click.option("--rows", default=",".join(map(str, ROWS)))
@click.option("--seconds", default=0.3, help="For each number of rows and level.")
@click.option("--json", "as_json", is_flag=True)
def main(
    levels: str, shape: str, threads: int, codecs: tuple[str, ...], rows: str, seconds: float,
    as_json: bool,
) -> None:  # fmt: skip
    """Time products of few and of many rows."""
    width, out = map(int, shape.split("x"))
    ops = {name: CpuOps(threads=threads, level=name) for name in levels.split(",")}
    lines: list[Products] = []
    for codec in codecs:
        for count in map(int, rows.split(",")):
            taken = least_s(ops, codec, width, out, count, seconds)
            lines.append(Products(codec, count, taken))
    if as_json:
        print(
            json.dumps(
                {"shape": shape, "threads": threads, "lines": [line._asdict() for line in lines]}
            )
        )
        return
    one: dict[str, float] = {}
    for line in lines:
        least = one.setdefault(line.codec, min(line.least_s.values()))
        cells = [f"{name} {s * 1e3:8.3f} ms {s / least:6.2f}" for name, s in line.least_s.items()]
        print(f"{line.codec:8} {line.rows:4}  ", "   ".join(cells))


if __name__ == "__main__":
    main()
