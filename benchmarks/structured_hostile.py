"""What hostile grammars cost streams beside them: `python -m benchmarks.structured_hostile`.

An engine in a process of its own with the embedded model writes free streams for some seconds, and
then as long with hostile grammars asked for one after another, each by a request of its own: they
are compiled, refused, or followed until they give up. Prints the times between pieces of the free
streams and their tokens per second, without and with them, how the hostile requests ended, and
beside which of them the longest times were. A piece has as many tokens as a step gave its stream.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import sys
import time
from collections import Counter
from contextlib import aclosing
from datetime import datetime
from typing import Any, NamedTuple

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
        self.gaps: list[tuple[float, float]] = []
        """Between two pieces: when the first came and when the second, by `time.perf_counter`."""
        self.num_tokens = 0

    async def run(self, until_s: float) -> None:
        """Write streams until the time, by the clock of `time.perf_counter`."""
        await asyncio.gather(*(self._one(number, until_s) for number in range(self._count)))

    async def _one(self, number: int, until_s: float) -> None:
        params = SamplingParams(max_tokens=1500, temperature=1.0, seed=number, ignore_eos=True)
        while time.perf_counter() < until_s:
            times_s = []
            async with aclosing(self._llm.stream(f"def f{number}(", params)) as deltas:
                async for delta in deltas:
                    times_s.append(time.perf_counter())
                    self.num_tokens += len(delta.token_ids)
                    if times_s[-1] > until_s:
                        break
            self.gaps += itertools.pairwise(times_s)


class Hostile(NamedTuple):
    """A request with a case."""

    name: str
    begun_s: float
    ended_s: float
    ended: str


async def _hostile(llm: AsyncLLM, until_s: float) -> list[Hostile]:
    """Ask for each case in turn, over and over."""
    requests: list[Hostile] = []
    for name, fields in itertools.cycle(CASES.items()):
        begun_s = time.perf_counter()
        if begun_s > until_s:
            return requests
        try:
            # In a thread, as a server reads what constrains an answer.
            grammar = await asyncio.to_thread(grammar_of, fields)
            params = SamplingParams(max_tokens=_ANSWER_TOKENS, grammar=grammar)
            [result] = await llm.generate(f"{name}: ", params)
            ended = f"answered, {result.choices[0].finish_reason}"
        except HeadraceError as error:
            ended = str(getattr(error, "code", "")) or type(error).__name__
        requests.append(Hostile(name, begun_s, time.perf_counter(), ended))
    raise AssertionError("a cycle has no end")


async def measured(streams: int, seconds: float, speculation: str) -> dict[str, Any]:
    """The gaps of free streams without and with hostile requests, and how these ended."""
    async with await AsyncLLM.start(speculative_config=speculation) as llm:
        warm = Streams(llm, streams)
        await warm.run(time.perf_counter() + 1)
        params = SamplingParams(max_tokens=2, grammar=grammar_of({"guided_regex": "a+"}))
        await llm.generate("a", params)  # the vocabulary is read for the first grammar
        gc.freeze()  # as a server does with what is loaded
        alone, beside = Streams(llm, streams), Streams(llm, streams)
        tell("without")
        await alone.run(time.perf_counter() + seconds)
        tell("with")
        until_s = time.perf_counter() + seconds
        _, requests = await asyncio.gather(beside.run(until_s), _hostile(llm, until_s))
    return {
        "without, ms": _figures(alone, seconds),
        "with, ms": _figures(beside, seconds),
        "hostile requests": dict(Counter(request.ended for request in requests).most_common()),
        "longest beside, ms": _longest_beside(beside.gaps, requests),
    }


def _figures(streams: Streams, seconds: float) -> dict[str, float]:
    gaps_ms = [1e3 * (after - before) for before, after in streams.gaps]
    at = {"p50": 50, "p99": 99, "p99.9": 99.9, "max": 100}
    found = {name: round(float(np.percentile(gaps_ms, share)), 2) for name, share in at.items()}
    return {**found, "tokens/s": round(streams.num_tokens / seconds)}


def _longest_beside(
    gaps: list[tuple[float, float]], requests: list[Hostile], most: int = 8
) -> dict[str, float]:
    """Cases by the longest time that they overlapped, from the largest."""
    longest: dict[str, float] = {}
    for name, begun_s, ended_s, _ in requests:
        own = [after - before for before, after in gaps if before < ended_s and after > begun_s]
        longest[name] = max(longest.get(name, 0.0), round(1e3 * max(own, default=0.0), 2))
    return dict(sorted(longest.items(), key=lambda pair: -pair[1])[:most])


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=15.0, help="without, and with")
    parser.add_argument(
        "--speculative-config",
        default="none",
        help="of the engine: with guesses a step, and so a time between pieces, is as long as pays",
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measured(options.streams, options.seconds, options.speculative_config)
    facts = {"on": surroundings(datetime.now()), **asyncio.run(found)}
    if options.json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return 0
    for title in ("without, ms", "with, ms", "hostile requests", "longest beside, ms"):
        rows = [[key, value] for key, value in facts[title].items()]
        sys.stdout.write(table([title, ""], rows) + "\n\n")
    sys.stdout.write(surroundings_line(facts["on"]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
