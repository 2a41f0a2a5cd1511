"""What repeating steps saves.

    python -m benchmarks.repeated_steps [MODEL] [--streams 1 8 32] [--pairs 8] [--tokens 160]

Two engines in one process, one of which computes each step anew (`--enforce-eager`), decode the
same prompts in turns, A B B A. The answers have to be the same, or the program fails. Prints tokens
per second of both and the median of the ratios with its interval of 95 %.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from benchmarks.markdown import surroundings, surroundings_line, table, tell
from benchmarks.speculation.decoding import Decoded, decode, in_words
from benchmarks.speculation.off_and_on import params
from benchmarks.speculation.tasks import prompts
from headrace.config import EngineConfig
from headrace.engine.load import load_engine


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, allow_abbrev=False, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=160, help="of an answer")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    facts = surroundings(datetime.now())
    cores = []
    for eager in (True, False):
        core, checkpoint = load_engine(
            EngineConfig(
                model=options.model, max_num_seqs=max(options.streams), enforce_eager=eager
            )
        )
        cores.append(core)
    salts = itertools.count()
    cells: list[dict[str, Any]] = []
    for streams in options.streams:
        tell(f"{streams} streams")
        texts = prompts("completion", streams, checkpoint)
        own = params(streams, 0.0, options.tokens, on=False)
        speeds: tuple[list[float], list[float]] = ([], [])
        for pair in range(options.pairs + 1):
            runs: dict[int, Decoded] = {}
            for side in (0, 1) if pair % 2 == 0 else (1, 0):
                runs[side] = decode(cores[side], texts, own, salt=f"run {next(salts)}")
                if pair:  # the first pair warms up
                    speeds[side].append(runs[side].tokens_per_s)
            if runs[0].token_ids != runs[1].token_ids:
                raise AssertionError("repeating steps changed an answer")
        ratios = [repeated / anew for anew, repeated in zip(*speeds, strict=True)]
        medians = [statistics.median(side) for side in speeds]
        cells.append({"streams": streams, "tokens_per_s": medians, "ratios": ratios})
    if options.json:
        sys.stdout.write(json.dumps({"on": facts, "cells": cells}) + "\n")
        return 0
    lines = [
        [
            str(cell["streams"]), *(f"{speed:,.0f}" for speed in cell["tokens_per_s"]),
            in_words(cell["ratios"]),
        ]
        for cell in cells
    ]  # fmt: skip
    columns = ["streams", "computed anew, tokens/s", "repeated, tokens/s", "ratio"]
    sys.stdout.write(f"{table(columns, lines)}\n\n{surroundings_line(facts)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
