"""What products of 1 to 512 rows take, at one dispatch level or at several in turns.

    python benchmarks/product_rows.py [--levels avx512] [--shape 1024x6144] [--megabytes 200]
                                      [--codec Q8_0 ...] [--rows 1,4,8] [--threads 1] [--json]

A line for each kind of weights, number of rows and level: the least and the median time of a call,
the least over that of a single row, and by the least ns for a tile of 32 inputs x 16 outputs, GB/s
of weights, GOPS and their share of the probe that binds the kind: int8 for quantised kinds, bf16
for BF16, f32 for the others. Probes are taken before and after each line.

A tile's time leaves out what a call takes beside: Python, the rounding of rows and a panel of
outputs, which is the time of a product with 16 outputs, of the same rows.

With --megabytes as many matrices as it takes are multiplied in turns, so that weights come from
memory; without it one, which stays in a cache where it fits. Levels take turns, so that whatever
else the machine does meets all of them. One thread is timed by its own CPU time, more by the clock.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.kernels import activations, random_matrix
from benchmarks.listed import Numbers, Sizes, levels
from benchmarks.turns import Limits, clock_of, in_turns, measured_limits
from headrace.ops.cpu import CpuOps
from headrace.ops.operands import LinearWeight
from headrace.weights.codecs import CODECS, F8_E4M3, get_codec

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 128, 512)
TILE_INPUTS, TILE_OUTPUTS = 32, 16
KINDS = (*CODECS, F8_E4M3.name)


@dataclass(frozen=True)
class Shape:
    """A matrix: inputs and outputs."""

    inputs: int
    outputs: int

    @property
    def tiles(self) -> int:
        """Of 32 inputs x 16 outputs, begun ones too."""
        return -(-self.inputs // TILE_INPUTS) * -(-self.outputs // TILE_OUTPUTS)


@dataclass(frozen=True)
class Line:
    """The product of some rows at a level. Seconds of a call; limits of the same minute."""

    codec: str
    rows: int
    level: str
    shape: Shape
    weight_bytes: int
    least_s: float
    median_s: float
    beside_s: float
    """Of a product with TILE_OUTPUTS outputs."""
    limits: Limits
    same_bits: bool
    """As at the first level."""

    @property
    def tile_ns(self) -> float | None:
        """ns for one tile; None where there is only a panel of them."""
        panel = Shape(self.shape.inputs, TILE_OUTPUTS).tiles
        if self.shape.tiles == panel:
            return None
        return (self.least_s - self.beside_s) / (self.shape.tiles - panel) * 1e9

    @property
    def read_gb(self) -> float:
        """GB/s of weights."""
        return self.weight_bytes / self.least_s / 1e9

    @property
    def gops(self) -> float:
        """10^9 operations per second, a multiply and an add being two."""
        return 2.0 * self.rows * self.shape.inputs * self.shape.outputs / self.least_s / 1e9

    @property
    def probe(self) -> str:
        """Which of the limits binds many rows of this kind."""
        if self.codec in CODECS and get_codec(self.codec).block_elements > 1:
            return "int8"
        return "bf16" if self.codec == "BF16" else "f32"

    @property
    def share(self) -> float:
        """Of the probe."""
        share: float = self.gops * 1e9 / getattr(self.limits, self.probe)
        return share


def calls_of(
    ops: CpuOps, x: np.ndarray, weights: Sequence[LinearWeight]
) -> Callable[[], np.ndarray]:
    """Products with each of the weights in turns."""
    turn = count()
    return lambda: ops.linear(x, weights[next(turn) % len(weights)])


def lines(
    backends: Mapping[str, CpuOps],
    codec: str,
    shape: Shape,
    rows: Sequence[int],
    *,
    megabytes: float = 0.0,
    seconds: float = 0.3,
) -> Iterator[Line]:
    """A line for each number of rows and level. seconds: for each of them."""
    matrix = random_matrix(shape.outputs, shape.inputs, codec)
    panel = random_matrix(TILE_OUTPUTS, shape.inputs, codec)
    weights, panels = {}, {}
    for name, ops in backends.items():
        first = ops.linear_weight([matrix])
        others = max(0, -int(-megabytes * 1e6 // first.nbytes) - 1)
        weights[name] = [first, *(ops.linear_weight([matrix]) for _ in range(others))]
        panels[name] = [ops.linear_weight([panel])]
    clock = clock_of(max(ops.num_threads for ops in backends.values()))
    before = {name: measured_limits(ops, 2) for name, ops in backends.items()}
    for number in rows:
        x = activations(number, shape.inputs)
        results = [backends[name].linear(x, of[0]) for name, of in weights.items()]
        whole = {name: calls_of(backends[name], x, of) for name, of in weights.items()}
        beside = {name: calls_of(backends[name], x, of) for name, of in panels.items()}
        taken = in_turns(whole, clock, seconds)
        least = in_turns(beside, clock, seconds / 8)
        after = {name: measured_limits(ops, 2) for name, ops in backends.items()}
        for (name, times), result in zip(taken.items(), results, strict=True):
            yield Line(
                codec, number, name, shape, weights[name][0].nbytes, min(times),
                statistics.median(times), min(least[name]), before[name].best(after[name]),
                np.array_equal(result, results[0]),
            )  # fmt: skip
        before = after


def told(line: Line, one_s: float) -> str:
    """A line of the table; one_s: the time of a single row at the first level."""
    tile = "" if line.tile_ns is None else f"{line.tile_ns:.2f}"
    bits = "" if line.same_bits else "  other bits"
    return (
        f"{line.codec:9} {line.rows:4} {line.level:13} {line.least_s * 1e6:11.1f} "
        f"{line.median_s * 1e6:11.1f} {line.least_s / one_s:7.2f} {tile:>8} {line.read_gb:7.1f} "
        f"{line.gops:7.0f} {line.share:6.0%} of {line.probe} "
        f"{getattr(line.limits, line.probe) / 1e9:.0f}, read {line.limits.read / 1e9:.1f}{bits}"
    )


def document(line: Line) -> dict[str, object]:
    """A line for JSON, with what follows from what was measured."""
    derived = ("tile_ns", "read_gb", "gops", "probe", "share")
    return asdict(line) | {name: getattr(line, name) for name in derived}


@click.command(help=(__doc__ or "").replace("    python", "\b\n    python", 1))
@click.option("--levels", "names", default="auto", type=levels(), help="Of dispatch, by commas.")
@click.option(
    "--shape", default="1024x6144", type=Sizes("inputs", "outputs"), help="Inputs x outputs.",
    show_default=True,
)  # fmt: skip
@click.option(
    "--megabytes", default=0.0, help="Matrices in turns take as much; 0: one.", show_default=True
)
@click.option("--threads", default=1, show_default=True)
@click.option(
    "--codec", "codecs", multiple=True, default=("BF16", "Q8_0", "Q4_K"), show_default=True,
    type=click.Choice(KINDS), metavar="KIND", help="A kind of weights; may be repeated.",
)  # fmt: skip
@click.option("--rows", default=",".join(map(str, ROWS)), type=Numbers(), help="By commas.")
@click.option("--seconds", default=0.3, help="For each line.", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def main(
    names: Sequence[str], shape: tuple[int, int], megabytes: float, threads: int,
    codecs: Sequence[str], rows: Sequence[int], seconds: float, as_json: bool,
) -> None:  # fmt: skip
    made_for = [CpuOps(threads=threads, level=name) for name in names]
    backends = {ops.level: ops for ops in made_for}
    if not as_json:
        print(
            f"{'kind':9} {'rows':>4} {'level':13} {'least us':>11} {'median us':>11} {'of one':>7} "
            f"{'ns tile':>8} {'GB/s':>7} {'GOPS':>7}  share"
        )
    made: list[Line] = []
    for codec in codecs:
        one_s = 0.0
        for line in lines(
            backends, codec, Shape(*shape), rows, megabytes=megabytes, seconds=seconds
        ):
            made.append(line)
            one_s = one_s or line.least_s
            if not as_json:
                print(told(line, one_s), flush=True)
    if as_json:
        found = {"threads": threads, "megabytes": megabytes, "lines": [*map(document, made)]}
        json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
