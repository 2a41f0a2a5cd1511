"""What a step of more rows costs: `python -m benchmarks.speculation.step_rows [MODEL ...]`.

One stream decodes behind a prompt of `--context` tokens, and its row carries so many drafts, all of
them wrong, so that each step computes 1 + drafts tokens and gives one. Sizes take turns, a step at
a time, so that whatever else the machine does meets all of them. Prints the median time of a step
of 1 to 16 tokens, and that over the time of one: what drafts have to earn. Beside it, in brackets,
the same of `headrace plan speed`, where `headrace bench machine` has measured this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from benchmarks.markdown import surroundings, surroundings_line, table
from headrace.bench.draft_steps import WrongDrafts, time_steps
from headrace.catalog import Catalog
from headrace.catalog.user_folder import folders
from headrace.config import EngineConfig
from headrace.embedded import embedded_model
from headrace.engine.load import load_engine
from headrace.plan.calibration.stored import stored_calibration
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Storage
from headrace.plan.model.find_model import shape_named
from headrace.plan.speed.replica import ReplicaChoice, replica_of
from headrace.telemetry.machine import stored_machine

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16)


class Rows(NamedTuple):
    """Seconds of a step by its tokens."""

    seconds: dict[int, float]

    def of(self, tokens: float) -> float:
        """Between two sizes the curve is a line, behind the last it goes on as it was."""
        sizes = sorted(self.seconds)
        at = min(max(bisect_right(sizes, tokens), 1), len(sizes) - 1)
        low, high = sizes[at - 1], sizes[at]
        share = (tokens - low) / (high - low)
        return self.seconds[low] + share * (self.seconds[high] - self.seconds[low])


def measured_rows(
    model: str,
    sizes: Sequence[int] = SIZES,
    *,
    context: int = 128,
    rounds: int = 24,
    quantile: float = 0.5,
    threads: int | None = None,
) -> Rows:
    """The medians of a model, or another quantile. threads: None for the engine's default."""
    drafts = WrongDrafts()
    config = EngineConfig(
        model=model, max_model_len=context + 2 * (rounds + 2) * len(sizes) + max(sizes) + 8,
        speculative_config="none", max_num_seqs=2, threads=threads,
    )  # fmt: skip
    core = load_engine(config, proposers=[drafts]).core
    counts = [size - 1 for size in sizes]
    taken_s = time_steps(core, drafts, batch=1, sizes=counts, context=context, rounds=rounds)
    return Rows({1 + each: float(np.quantile(of, quantile)) for each, of in taken_s.items()})


def planned_rows(model: str, sizes: Sequence[int] = SIZES, *, context: int = 128) -> Rows | None:
    """What `headrace plan speed` expects of one request whose step has so many tokens.

    By the stored calibration where there is one; None where the machine was not measured.
    """
    machine = stored_machine(os.environ)
    if machine is None:
        return None
    known = Catalog.load(folders(os.environ, ()))
    shape = shape_named(known, model or str(embedded_model()), os.environ)
    cache = kv_kind("F16", known)
    calibration = stored_calibration(os.environ, datetime.now(UTC))
    choice = ReplicaChoice(hardware="this")
    replica = replica_of(known, shape, Storage(None, cache, cache), choice, machine, calibration)
    return Rows({size: replica.model.decode_step(1, context, size).seconds for size in sizes})


def _in_brackets(planned: Rows | None, size: int) -> str:
    if planned is None:
        return ""
    return f" ({1e3 * planned.of(size):.2f} ms, {planned.of(size) / planned.of(1):.2f})"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("models", nargs="*", default=[""], help="checkpoints, a column each")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=24, help="steps of each size")
    parser.add_argument(
        "--quantile",
        type=float,
        default=0.5,
        help="of the steps of a size; a low one where other work disturbs most of them",
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    facts = surroundings(datetime.now())
    found = {
        model: measured_rows(
            model, context=options.context, rounds=options.rounds, quantile=options.quantile
        )
        for model in options.models
    }
    planned = {model: planned_rows(model, context=options.context) for model in options.models}
    if options.json:
        seconds = {model: rows.seconds for model, rows in found.items()}
        plans = {model: rows and rows.seconds for model, rows in planned.items()}
        sys.stdout.write(json.dumps({"on": facts, "seconds": seconds, "planned": plans}) + "\n")
        return 0
    columns = ["tokens of a step", *(model.rpartition("/")[2] or "embedded" for model in found)]
    lines = [
        [size, *(f"{1e3 * rows.of(size):.2f} ms, {rows.of(size) / rows.of(1):.2f}"
                 f"{_in_brackets(planned[model], size)}" for model, rows in found.items())]
        for size in SIZES
    ]  # fmt: skip
    sys.stdout.write(f"{table(columns, lines)}\n\n{surroundings_line(facts)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
