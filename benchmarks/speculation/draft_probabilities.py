"""How often drafts are right by their own probability: `python -m
benchmarks.speculation.draft_probabilities [HEAD]`, a head or draft model of the embedded model.

Greedy, three drafts in each step, six prompts of each task and 160 tokens behind each. A draft
counts where those before it in its row were right.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from benchmarks.markdown import surroundings, surroundings_line, table
from benchmarks.speculation.decoding import decode
from benchmarks.speculation.tasks import ROOT, TASKS, prompts
from headrace.config import EngineConfig
from headrace.engine.drafts.passes.draft_generator import RatedDraft
from headrace.engine.load import load_engine
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request

BOUNDS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.97)
"""Where kinds of probabilities begin; below the first is one more."""

Row = tuple[Sequence[RatedDraft], Sequence[int]]
"""Drafts, and the tokens that came in their places."""


def right_by_probability(rows: Iterable[Row]) -> list[list[bool]]:
    """Whether each draft that counts was right, by kind."""
    kinds: list[list[bool]] = [[] for _ in range(len(BOUNDS) + 1)]
    for drafts, token_ids in rows:
        for draft, token_id in zip(drafts, token_ids, strict=False):
            right = draft.token_id == token_id
            kinds[bisect_right(BOUNDS, draft.probability)].append(right)
            if not right:
                break
    return kinds


def _rows(task: str, head: str) -> list[Row]:
    drafts = {"model": head, "adaptive": False, "num_speculative_tokens": 3}
    core, checkpoint = load_engine(EngineConfig(speculative_config=json.dumps(drafts)))
    scheduler: Any = core.scheduler
    maker = scheduler.drafter.speculation.model
    guess, made = maker.guess, list[tuple[Request, int, list[RatedDraft]]]()

    def rated(*wanted: Any, **how: Any) -> dict[Request, list[int]]:
        how["judge"] = lambda judged: ["on"] * len(judged)  # rates drafts and leaves none out
        found: dict[Request, list[int]] = guess(*wanted, **how)
        made.extend((each, len(each.token_ids), [*maker.rated(each)]) for each in found)
        return found

    maker.guess = rated
    params = SamplingParams(temperature=0.0, max_tokens=160, ignore_eos=True)
    for prompt in prompts(task, 6, checkpoint):
        decode(core, [prompt], [params], salt=task)
    return [(drafts, request.token_ids[start:]) for request, start, drafts in made]


def main() -> int:
    """Count and print."""
    head = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "models/headrace-head")
    facts = surroundings(datetime.now())
    lines = [[task, *(f"{sum(kind) / max(1, len(kind)):.2f} of {len(kind)}"
                      for kind in right_by_probability(_rows(task, head)))]
             for task in TASKS]  # fmt: skip
    columns = ["right, of those from", "0", *map(str, BOUNDS)]
    sys.stdout.write(f"{table(columns, lines)}\n\n{surroundings_line(facts)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
