"""The controller while the load changes: `python -m benchmarks.speculation.changing_load [MODEL]`.

    python -m benchmarks.speculation.changing_load [MODEL] --plot FILE.svg

Three engines: without speculation, with as many drafts as there are (`adaptive: false`), and as it
chooses itself. Each goes through the same phases of so many streams of easy text (functions that
were in the prompt, greedy) and of hard text (pages of the docs, temperature 1); a stream that ends
is followed by the next. The engines take turns by rounds of all phases and keep what they have
learned. Printed: tokens per second of each phase, medians over rounds, and the chooser's over that
of the better of the two others; the plot has the same over time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.markdown import surroundings, surroundings_line, table, tell
from benchmarks.speculation.tasks import prompts
from benchmarks.standalone import standalone
from headrace.config import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.load import load_engine
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.lines import Axis, Line, Point, lines_plot

CONFIGS = {
    "off": "none",
    "fixed": '{"method": "auto", "adaptive": false, "num_speculative_tokens": 5}',
    "auto": "auto",
}
_NUMBERS = itertools.count()


class Phase(NamedTuple):
    """So many streams of one kind of text."""

    streams: int
    task: str
    temperature: float

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.streams} {'easy' if self.task == 'editing' else 'hard'}"


EASY, HARD = ("editing", 0.0), ("free", 1.0)
PHASES = (
    Phase(1, *EASY), Phase(8, *EASY), Phase(32, *EASY), Phase(1, *EASY), Phase(1, *HARD),
    Phase(8, *HARD), Phase(32, *HARD), Phase(8, *EASY), Phase(1, *HARD), Phase(1, *EASY),
)  # fmt: skip


def tokens_per_s(
    core: EngineCore, phase: Phase, texts: Sequence[list[int]], tokens: int, seconds: float
) -> float:
    """Of one phase; what is not finished at its end is dropped."""
    following = _submits(phase, texts, tokens)
    open_ids = set[str]()
    begun_s = time.perf_counter()
    total = 0
    while (elapsed_s := time.perf_counter() - begun_s) < seconds:
        while len(open_ids) < phase.streams:
            submit = next(following)
            core.submit(submit)
            open_ids.add(submit.request_id)
        for output in core.step():
            assert output.error is None, output.error
            total += len(output.token_ids)
            if output.finish_reason is not None:
                open_ids.discard(output.request_id)
    for request_id in open_ids:
        core.cancel(request_id)
    while core.has_work:
        core.step()
    return total / elapsed_s


def _submits(phase: Phase, texts: Sequence[list[int]], tokens: int) -> Iterator[Submit]:
    for text in itertools.cycle(texts):
        number = next(_NUMBERS)
        params = SamplingParams(
            temperature=phase.temperature, seed=number, max_tokens=tokens, ignore_eos=True
        )
        # A salt of its own: what an earlier answer to the same prompt said is no guess.
        yield Submit(str(number), list(text), params, cache_salt=str(number))


def plot_of(speeds: Mapping[str, Sequence[float]], seconds: float) -> Plot:
    """Tokens per second of each phase over time, a line for each engine. seconds: of a phase."""
    lines = [
        Line(
            Key(name, f"c{place + 1}"),
            [
                Point(seconds * at, rate)
                for phase, rate in enumerate(rates)
                for at in (phase, phase + 1)
            ],
            dots=False,
        )
        for place, (name, rates) in enumerate(speeds.items())
    ]
    phases = ", ".join(phase.name for phase in PHASES)
    plot = lines_plot(
        f"off (orange), fixed (blue), auto (green): {phases}", lines,
        Axis("seconds", lambda value: f"{value:g}"),
        Axis("tokens per second", lambda value: f"{value:,.0f}"),
        wide=True,
    )  # fmt: skip
    assert plot is not None, "each phase is a line of two points"
    return plot


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a phase")
    parser.add_argument("--tokens", type=int, default=120, help="of an answer")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", type=Path, help="SVG file of the medians")
    options = parser.parse_args()
    facts = surroundings(datetime.now())
    cores: dict[str, EngineCore] = {}
    for name, text in CONFIGS.items():
        config = EngineConfig(model=options.model, speculative_config=text, max_num_seqs=32)
        cores[name], checkpoint = load_engine(config)
    texts = {task: prompts(task, 32, checkpoint) for task in ("editing", "free")}
    speeds: dict[str, list[list[float]]] = {name: [[] for _ in PHASES] for name in CONFIGS}
    for turn in range(options.rounds + 1):
        tell(f"round {turn}")
        for at, phase in enumerate(PHASES):
            for name in list(CONFIGS)[:: 1 if turn % 2 else -1]:
                found = tokens_per_s(
                    cores[name], phase, texts[phase.task], options.tokens, options.seconds
                )
                if turn:  # in the first one shapes, caches and costs are new
                    speeds[name][at].append(found)
    if options.plot is not None:
        medians = {name: [*map(statistics.median, of)] for name, of in speeds.items()}
        options.plot.write_text(standalone(plot_of(medians, options.seconds)), "utf-8")
    if options.json:
        named = {name: [*zip([phase.name for phase in PHASES], of, strict=True)]
                 for name, of in speeds.items()}  # fmt: skip
        sys.stdout.write(json.dumps({"on": facts, "tokens_per_s": named}) + "\n")
        return 0
    lines = []
    for at, phase in enumerate(PHASES):
        better = [max(pair) for pair in zip(speeds["off"][at], speeds["fixed"][at], strict=True)]
        shares = [own / best for own, best in zip(speeds["auto"][at], better, strict=True)]
        lines.append(
            [f"{at + 1}: {phase.name}"]
            + [f"{statistics.median(speeds[name][at]):.0f}" for name in CONFIGS]
            + [f"{statistics.median(shares):.2f}"]
        )
    columns = ["phase, streams", *CONFIGS, "auto / better"]
    sys.stdout.write(f"{table(columns, lines)}\n\n{surroundings_line(facts)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
