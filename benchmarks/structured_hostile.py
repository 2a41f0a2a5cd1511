"""What hostile grammars cost streams beside them: `python -m benchmarks.structured_hostile`.

An engine in a process of its own with the embedded model writes free streams for some seconds, and
then as long with hostile grammars asked for one after another, each by a request of its own: they
are compiled, refused, or followed until they give up. Prints the times between pieces of the free
streams without and with them, and how the hostile requests ended.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections import Counter
from contextlib import aclosing
from datetime import datetime
from typing import Any

import numpy as np

from benchmarks.markdown import surroundings, surroundings_line, table, tell
from headrace import AsyncLLM, SamplingParams
from headrace.errors import HeadraceError
from headrace.structured.request import grammar_of
from tests.structured.hostile import CASES

_ANSWER_TOKENS = 24
"""Of a hostile request that compiles."""


class Streams:
    """Free streams, and when each piece of them came."""

    def __init__(self, llm: AsyncLLM, count: int) -> None:
        self._llm = llm
        self._count = count
        self.gaps_s: list[float] = []

    async def run(self, until_s: float) -> None:
        """Write streams until the time, by the clock of `time.perf_counter`."""
        await asyncio.gather(*(self._one(number, until_s) for number in range(self._count)))

    async def _one(self, number: int, until_s: float) -> None:
        params = SamplingParams(max_tokens=1500, temperature=1.0, seed=number, ignore_eos=True)
        while time.perf_counter() < until_s:
            times_s = []
            async with aclosing(self._llm.stream(f"def f{number}(", params)) as deltas:
                async for _ in deltas:
                    times_s.append(time.perf_counter())
                    if times_s[-1] > until_s:
                        break
            self.gaps_s += [after - before for before, after in itertools.pairwise(times_s)]


async def _hostile(llm: AsyncLLM, until_s: float) -> Counter[str]:
    """Ask for each case in turn, over and over."""
    ended: Counter[str] = Counter()
    for name, fields in itertools.cycle(CASES.items()):
        if time.perf_counter() > until_s:
            return ended
        try:
            # In a thread, as a server reads what constrains an answer.
            grammar = await asyncio.to_thread(grammar_of, fields)
            params = SamplingParams(max_tokens=_ANSWER_TOKENS, grammar=grammar)
            [result] = await llm.generate(f"{name}: ", params)
            ended[f"answered, {result.choices[0].finish_reason}"] += 1
        except HeadraceError as error:
            ended[str(getattr(error, "code", "")) or type(error).__name__] += 1
    raise AssertionError("a cycle has no end")


async def measured(streams: int, seconds: float) -> dict[str, Any]:
    """The gaps of free streams without and with hostile requests, and how these ended."""
    async with await AsyncLLM.start() as llm:
        warm = Streams(llm, streams)
        await warm.run(time.perf_counter() + 1)
        params = SamplingParams(max_tokens=2, grammar=grammar_of({"guided_regex": "a+"}))
        await llm.generate("a", params)  # the vocabulary is read for the first grammar
        alone, beside = Streams(llm, streams), Streams(llm, streams)
        tell("without")
        await alone.run(time.perf_counter() + seconds)
        tell("with")
        until_s = time.perf_counter() + seconds
        _, ended = await asyncio.gather(beside.run(until_s), _hostile(llm, until_s))
    return {
        "without, ms": _quantiles(alone.gaps_s),
        "with, ms": _quantiles(beside.gaps_s),
        "hostile requests": dict(ended.most_common()),
    }


def _quantiles(values: list[float]) -> dict[str, float]:
    at = {"p50": 50, "p99": 99, "p99.9": 99.9, "max": 100}
    return {name: round(1e3 * float(np.percentile(values, share)), 2) for name, share in at.items()}


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=15.0, help="without, and with")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measured(options.streams, options.seconds)
    facts = {"on": surroundings(datetime.now()), **asyncio.run(found)}
    if options.json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return 0
    for title in ("without, ms", "with, ms", "hostile requests"):
        rows = [[key, value] for key, value in facts[title].items()]
        sys.stdout.write(table([title, ""], rows) + "\n\n")
    sys.stdout.write(surroundings_line(facts["on"]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
