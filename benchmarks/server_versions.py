"""What the server costs beside another version's: `python -m benchmarks.server_versions CHECKOUT`.

Both run at once, each with an engine that computes nothing (server_overhead.py), and take turns in
random order, a request or a crowd of streams at a time, so that whatever else the machine does
meets both. Prints the time from a lone request to its first token, the CPU time of a request, and
that of a token of so many streams, paced (one every 24 ms, each an event of its own) and as fast as
they are sent (several in an event where the server is behind): medians, half the distance of their
quartiles, and the ratio to the other version's.

CHECKOUT: the root of another version's repository, set up there (`make dev`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from benchmarks.markdown import surroundings, surroundings_line, table
from benchmarks.server_overhead import (
    APIS,
    PACED_TOKENS,
    Api,
    cost,
    cpu_s,
    run,
    serving,
    stream,
)
from tools.soak.server import write_model

REQUEST_STEP_S = 0.005
PACED_STEP_S = 0.024
FAST_TOKENS = 400
CROWDS = (1, 32, 128)
BUSY = (128,)
"""Of fewer, whether tokens share an event is chance, and what they cost depends on that."""
WARM_REQUESTS = 60
PAUSE_S = 0.01
"""Between lone requests, so that a server is at rest when one comes."""
Server = tuple[str, int]
"""Its URL and process id."""
Figures = dict[str, tuple[list[float], list[float]]]
"""Of this version and of the other."""


def requests(servers: list[Server], api: Api, rounds: int) -> Figures:
    """Lone requests in turns: milliseconds to the first token, and of CPU."""
    first: tuple[list[float], list[float]] = ([], [])
    cpu: tuple[list[float], list[float]] = ([], [])

    async def take_turns() -> None:
        for url, _ in servers:
            for _ in range(WARM_REQUESTS):
                await stream(url, api, 2, [])
        for _ in range(rounds):
            for version in _any_order():
                url, pid = servers[version]
                taken_s, before_s = list[float](), cpu_s(pid)
                await stream(url, api, 2, taken_s)
                await asyncio.sleep(PAUSE_S)
                cpu[version].append(1e3 * (cpu_s(pid) - before_s))
                first[version].append(1e3 * taken_s[0])

    run(take_turns())
    return {"first token, ms": first, "CPU of a request, ms": cpu}


def tokens(
    servers: list[Server], api: Api, rounds: int, count: int, crowds: Sequence[int], title: str
) -> Figures:
    """Crowds of streams in turns: microseconds of CPU a token."""
    figures: Figures = {f"{title}, {streams} streams, \u00b5s": ([], []) for streams in crowds}
    for url, pid in servers:
        cost(url, pid, api, 8, 20)
    for _ in range(rounds):
        for streams, taken in zip(crowds, figures.values(), strict=True):
            for version in _any_order():
                found = cost(*servers[version], api, streams, count)
                taken[version].append(found["server_cpu_us"] / found["tokens_per_event"])
    return figures


def _any_order() -> list[int]:
    return random.sample((0, 1), 2)


def measure(versions: list[Path | None], api: Api, rounds: int) -> Figures:
    """Every figure."""
    figures: Figures = {}
    parts: list[tuple[float, Callable[[list[Server]], Figures]]] = [
        (REQUEST_STEP_S, lambda servers: requests(servers, api, 100 * rounds)),
        (
            PACED_STEP_S,
            lambda servers: tokens(servers, api, rounds, PACED_TOKENS, CROWDS, "paced token"),
        ),
        (0.0, lambda servers: tokens(servers, api, rounds, FAST_TOKENS, BUSY, "fast token")),
    ]
    for step_s, part in parts:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            model = write_model(folder, "Q8_0")
            servers = [
                stack.enter_context(serving(model, step_s, None, version=version))
                for version in versions
            ]
            figures |= part(servers)
    return figures


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("checkout", type=Path, help="of the other version")
    parser.add_argument("--api", choices=tuple(APIS), default="chat", help="whose streams")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    facts = surroundings(datetime.now())
    figures = measure([None, options.checkout.resolve()], APIS[options.api], options.rounds)
    if options.json:
        sys.stdout.write(json.dumps({"on": facts, "figures": figures}) + "\n")
        return 0
    rows = [
        [
            name,
            _shown(here),
            _shown(there),
            f"{statistics.median(here) / statistics.median(there):.2f}",
        ]
        for name, (here, there) in figures.items()
    ]
    sys.stdout.write(table([options.api, "here", "there", "ratio"], rows) + "\n\n")
    sys.stdout.write(surroundings_line(facts) + "\n")
    return 0


def _shown(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} \u00b1 {(high - low) / 2:.2f}"


if __name__ == "__main__":
    sys.exit(main())
