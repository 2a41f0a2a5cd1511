"""Decoding with speculation off and on, in turns: `python -m benchmarks.speculation.off_and_on`.

    python -m benchmarks.speculation.off_and_on [MODEL] [--config CONFIG] [--tasks NAME ...]
        [--streams 1 8 32] [--temperatures 0 1] [--pairs 8] [--seconds 3] [--cpu-time]

One engine in one process. A cell is a task, a number of streams and a temperature; off and on take
turns in it (A B B A ...), each for at least so many seconds, and a pair gives a ratio. The answers
of both have to be the same, or the program fails. Every run has caches of its own, so that drafts
come from the prompt and the answer itself, from a draft model, or from what a run's own answers
have in common. Prints tokens per second off, the median of the ratios with its interval of 95 %,
tokens of a step, drafts of a row that has any and the share of them that came, and what the formula
of speculation (docs/plan.md, S3) gives: tokens of a step over what a step with so many more rows
costs, as step_rows.py measured it just before.

With --cpu-time one thread computes, and all times, those that the engine learns from too, are the
process's own: beside other work this says what an idle machine would do, but for caches that are
shared.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from benchmarks.markdown import surroundings, surroundings_line, table, tell
from benchmarks.speculation.decoding import Clock, Decoded, decode, in_words
from benchmarks.speculation.step_rows import Rows, measured_rows
from benchmarks.speculation.tasks import TASKS, prompts
from headrace.config import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.load import load_engine
from headrace.engine.params import SamplingParams

_SALTS = itertools.count()


def params(count: int, temperature: float, tokens: int, *, on: bool) -> list[SamplingParams]:
    """Of so many streams."""
    return [
        SamplingParams(
            temperature=temperature, seed=seed, max_tokens=tokens, ignore_eos=True, speculation=on
        )
        for seed in range(count)
    ]


def half(
    core: EngineCore,
    texts: Sequence[list[int]],
    own: Sequence[SamplingParams],
    seconds: float,
    clock: Clock,
) -> list[Decoded]:
    """Runs of one side for at least so long."""
    until_s, runs = clock() + seconds, list[Decoded]()
    while not runs or clock() < until_s:
        runs.append(decode(core, texts, own, salt=f"run {next(_SALTS)}", clock=clock))
    return runs


def clock_of(options: argparse.Namespace) -> Clock:
    """What times are taken by."""
    return time.process_time if options.cpu_time else time.perf_counter


def cell(
    core: EngineCore,
    texts: Sequence[list[int]],
    temperature: float,
    options: argparse.Namespace,
    rows: Rows,
) -> dict[str, Any]:
    """Figures of one cell."""
    count = len(texts)
    sides = [params(count, temperature, options.tokens, on=on) for on in (False, True)]
    speeds: tuple[list[float], list[float]] = ([], [])
    drafted = accepted = with_drafts = steps = 0
    per_step = list[float]()
    decode(core, texts, sides[1], salt=f"run {next(_SALTS)}")
    for pair in range(options.pairs):
        answers = []
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            runs = half(core, texts, sides[side], options.seconds, clock_of(options))
            answers.append(runs[0].token_ids)
            speeds[side].append(statistics.median(run.tokens_per_s for run in runs))
            if side:
                drafted += sum(run.draft_tokens for run in runs)
                accepted += sum(run.accepted_tokens for run in runs)
                with_drafts += sum(run.rows_with_drafts for run in runs)
                steps += sum(run.steps for run in runs)
                per_step += [run.tokens_per_step for run in runs]
        if answers[0] != answers[1]:
            raise AssertionError("speculation changed an answer")
    tokens_per_step = statistics.median(per_step)
    cost = rows.of(count + drafted / steps) / rows.of(count)
    return {
        "streams": count,
        "temperature": temperature,
        "off_tokens_per_s": statistics.median(speeds[0]),
        "ratios": [on / off for off, on in zip(*speeds, strict=True)],
        "tokens_per_step": tokens_per_step,
        "draft_length": drafted / with_drafts if with_drafts else 0.0,
        "accepted_of_drafts": accepted / drafted if drafted else 0.0,
        "formula": tokens_per_step / cost,
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, allow_abbrev=False, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--config", default="auto", help="of --speculative-config")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--tokens", type=int, default=160, help="of an answer")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one side of a pair")
    parser.add_argument("--cpu-time", action="store_true", help="of one thread")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    facts = surroundings(datetime.now())
    config = EngineConfig(
        model=options.model, speculative_config=options.config, max_num_seqs=max(options.streams),
        threads=1 if options.cpu_time else None,
    )  # fmt: skip
    core, checkpoint = load_engine(config, clock=clock_of(options))
    sizes = sorted({*options.streams, 2, 4, 6, 9, 12, 17, 24, 33, 48})
    rows = measured_rows(options.model, sizes, threads=config.threads)
    cells: list[dict[str, Any]] = []
    for task in options.tasks:
        texts = prompts(task, max(options.streams), checkpoint)
        for streams in options.streams:
            for temperature in options.temperatures:
                tell(f"{task}, {streams} streams, temperature {temperature:g}")
                found = cell(core, texts[:streams], temperature, options, rows)
                cells.append({"task": task, **found})
    if options.json:
        sys.stdout.write(json.dumps({"on": facts, "cells": cells}) + "\n")
        return 0
    columns = ["task", "streams", "temperature", "off, tokens/s", "on / off", "tokens a step",
               "drafts", "came", "formula"]  # fmt: skip
    lines = [
        [
            each["task"], each["streams"], f"{each['temperature']:g}",
            f"{each['off_tokens_per_s']:.0f}", in_words(each["ratios"]),
            f"{each['tokens_per_step']:.2f}", f"{each['draft_length']:.1f}",
            f"{100 * each['accepted_of_drafts']:.0f} %", f"{each['formula']:.2f}",
        ]
        for each in cells
    ]  # fmt: skip
    medians = [statistics.median(each["ratios"]) for each in cells]
    sys.stdout.write(
        f"{table(columns, lines)}\n\nMedian of the cells' medians {statistics.median(medians):.2f},"
        f" least {min(medians):.2f}.\n{surroundings_line(facts)}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
