"""Speed-up at a given acceptance: `python -m benchmarks.speculation.synthetic MODEL [--llama DIR]
[--draft MODEL]`.

Drafts whose first j are all right with chance p^j, of as many tokens as --lengths says, behind a
prompt of 64 tokens, one stream, greedy. Ours are made from the answer itself, which was decoded
without drafts before, so that the answer stays what it is (and the program fails where it does
not); nothing chooses how many to take. llama-server takes the first tokens of its own drafts with
the same chances whatever they are (--spec-synth-rates; what it writes then is no answer of the
model). Off and on take turns, ours and theirs too. Printed: tokens of a step as the chance has it
and as counted, tokens per second off, the speed-up, and what formula S3 gives for that chance and
length with our own cost of a step of 1 + length tokens, measured just before, drafts for nothing.

With --draft a smaller model of any weights makes the drafts on both sides, so that what its passes
take counts, and each draft is then replaced likewise. Its own K and V know only what it drafted, so
ours reads again all that came. The formula has its passes then: of one row, measured as its steps.

With other work on the machine `--threads 1` is fairer: threads that wait for each other lose most
by it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.llamacpp.build import built
from benchmarks.llamacpp.server import servers, start_server, stop_server
from benchmarks.markdown import surroundings, surroundings_line, table, tell
from benchmarks.speculation.decoding import decode, in_words
from benchmarks.speculation.step_rows import measured_rows
from headrace.config import EngineConfig
from headrace.engine.drafts.proposer import Proposal
from headrace.engine.load import load_engine
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.plan.speed.speculation import expected_tokens_per_pass

PROMPT = [at * 31 % 200 + 1 for at in range(64)]
_SALTS = itertools.count()


class RightDrafts:
    """A proposer that knows the answer, and makes as many mistakes as it is told to."""

    def __init__(self) -> None:
        self.answer: tuple[int, ...] = ()
        self.length = 0
        self.chance = 0.0
        self._rng = random.Random(0)

    def propose(self, request: Request, most: int) -> Proposal | None:
        """So many tokens, the first wrong one where chance has it."""
        start = len(request.token_ids) - request.num_prompt
        drafts = list(self.answer[start : start + min(self.length, most)])
        for place, token_id in enumerate(drafts):
            if self._rng.random() >= self.chance:
                drafts[place] = token_id + 1 if token_id < 100 else token_id - 1
                break
        return Proposal(drafts, is_certain=False) if drafts else None


class Ours:
    """An engine of ours."""

    def __init__(
        self, model: str, tokens: int, threads: int, draft: str | None, length: int
    ) -> None:
        """length: drafts of a step that are made with a draft model; without one, at most."""
        self._drafts = RightDrafts()
        spec = "none" if draft is None else json.dumps({
            "method": "draft_model", "model": draft, "num_speculative_tokens": length,
            "adaptive": False,
        })  # fmt: skip
        config = EngineConfig(
            model=model, speculative_config=spec, max_model_len=tokens + 128, threads=threads
        )
        proposers = [self._drafts] if draft is None else []
        self._core = load_engine(config, proposers=proposers).core
        if (speculation := self._core._speculation) is not None:
            made = speculation.drafts

            def replaced(request: Request, room: int) -> Sequence[int]:
                count = len(made(request, room))
                proposal = self._drafts.propose(request, count) if count else None
                return () if proposal is None else proposal.token_ids

            vars(speculation)["drafts"] = replaced
        self._tokens = tokens
        self.tokens_per_step: list[float] = []
        """Of each run with drafts."""
        self._drafts.answer = self.run(0, 0.0)[1]

    def run(self, length: int, chance: float) -> tuple[float, tuple[int, ...]]:
        """Tokens per second, and the answer."""
        self._drafts.length, self._drafts.chance = length, chance
        params = SamplingParams(
            temperature=0, max_tokens=self._tokens, ignore_eos=True, speculation=length > 0
        )
        found = decode(self._core, [PROMPT], [params], salt=f"run {next(_SALTS)}")
        if length:
            self.tokens_per_step.append(found.tokens_per_step)
        return found.tokens_per_s, found.token_ids[0]

    def tokens_per_s(self, length: int, chance: float) -> float:
        """The same, where the answer is what it was."""
        speed, answer = self.run(length, chance)
        if answer != self._drafts.answer:
            raise AssertionError("drafts changed the answer")
        return speed


def peer_tokens_per_s(url: str, tokens: int) -> float:
    """By llama-server's own timings."""
    body = {
        "prompt": PROMPT, "n_predict": tokens, "temperature": 0, "ignore_eos": True,
        "cache_prompt": False,
    }  # fmt: skip
    answer = httpx.post(f"{url}/completion", json=body, timeout=600.0)
    answer.raise_for_status()
    return float(answer.json()["timings"]["predicted_per_second"])


def pairs(
    count: int, off: Callable[[], float], on: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Off and on in turns."""
    speeds: tuple[list[float], list[float]] = ([], [])
    for pair in range(count):
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            speeds[side].append((off, on)[side]())
    return speeds


def _start(stack: ExitStack, program: str, model: str, threads: int, extra: list[str]) -> str:
    options = ["-c", "2048", "-np", "1", "-t", str(threads), "--no-webui", *extra]
    process, url = start_server(program, Path(model), options)
    stack.callback(stop_server, process)
    return url


def measured(
    options: argparse.Namespace,
    ours: Ours,
    program: str | None,
    cost: float,
    length: int,
    chance: float,
) -> dict[str, Any]:
    """One cell: off and on in turns, of our engine and of the peer's program.

    cost: what a step with `length` drafts takes over one without.
    """
    expected = expected_tokens_per_pass(chance, length)
    found: dict[str, Any] = {
        "chance": chance,
        "length": length,
        "expected": expected,
        "formula": expected / cost,
        "ours": pairs(
            options.pairs,
            lambda: ours.tokens_per_s(0, 0.0),
            lambda: ours.tokens_per_s(length, chance),
        ),
    }
    found["tokens_per_step"] = statistics.mean(ours.tokens_per_step[-options.pairs :])
    if program is not None:
        rates = ",".join(f"{chance**place:.6f}" for place in range(1, length + 1))
        source = [
            "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "1",
            "--spec-ngram-simple-size-m", str(length),
        ]  # fmt: skip
        if options.draft:
            source = ["--spec-type", "draft-simple", "--spec-draft-model", options.draft]
        extra = [*source, "--spec-draft-n-max", str(length), "--spec-synth-rates", rates]
        with servers() as stack:
            off, on = (
                _start(stack, program, options.model, options.threads, more) for more in ([], extra)
            )
            found["llama-server"] = pairs(
                options.pairs,
                lambda: peer_tokens_per_s(off, options.tokens),
                lambda: peer_tokens_per_s(on, options.tokens),
            )
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--llama", type=Path, help="folder of the built llama.cpp")
    parser.add_argument("--draft", help="a GGUF file of a smaller model, which makes the drafts")
    parser.add_argument("--chances", type=float, nargs="+", default=[0.5, 0.7, 0.9])
    parser.add_argument("--lengths", type=int, nargs="+", default=[3, 5, 8])
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="of both")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    facts = surroundings(datetime.now())
    sizes = sorted({1, *(1 + length for length in options.lengths)})
    rows = measured_rows(options.model, sizes, threads=options.threads)
    draft_s = 0.0
    if options.draft:
        draft_s = measured_rows(options.draft, [1, 2], threads=options.threads).of(1)
    program = built(options.llama).tool("llama-server") if options.llama else None
    cells: list[dict[str, Any]] = []
    for length in options.lengths:
        ours = Ours(options.model, options.tokens, options.threads, options.draft, length)
        for chance in options.chances:
            tell(f"{length} drafts, chance {chance:g}")
            cost = (rows.of(1 + length) + length * draft_s) / rows.of(1)
            cells.append(measured(options, ours, program, cost, length, chance))
        del ours  # its weights go before the next are read
    if options.json:
        sys.stdout.write(json.dumps({"on": facts, "cells": cells}) + "\n")
        return 0
    engines = ["ours", *(["llama-server"] if program else [])]
    columns = ["chance", "drafts", "tokens a step: expected", "counted", "formula"]
    for name in engines:
        columns += [f"{name}: off", "on / off"]
    lines = []
    for each in cells:
        line = [
            f"{each['chance']:g}", each["length"], f"{each['expected']:.2f}",
            f"{each['tokens_per_step']:.2f}", f"{each['formula']:.2f}",
        ]  # fmt: skip
        for name in engines:
            off, on = each[name]
            ratios = [high / low for low, high in zip(off, on, strict=True)]
            line += [f"{statistics.median(off):.1f}", in_words(ratios)]
        lines.append(line)
    sys.stdout.write(f"{table(columns, lines)}\n\n{surroundings_line(facts)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
