"""What steps with drafts take, and passes of a draft model: timed in an engine, sizes in turns.

Requests decode behind prompts of the same length, and each row carries so many drafts, all of them
wrong, so that a step computes 1 + drafts tokens of each request and gives one. Sizes take turns, a
step at a time, so that whatever else the machine does meets all of them. Passes are those that a
draft makes by itself when it drafts for all requests.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from headrace.bench.engine import Case, check_fits
from headrace.engine.core import EngineCore
from headrace.engine.drafts.proposer import Proposal
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.errors import HeadraceError

FIRST_TURNS = 2
"""Meet cold caches and new shapes, and are not counted."""
DRAFTS_OF_PASSES = 4
_FIRST_PASSES = 8
"""Steps in which a draft reads the prompts; of a request each one more."""


class WrongDrafts:
    """A proposer of as many tokens as it is set to, none of which comes but by chance."""

    def __init__(self) -> None:
        self.count = 0

    def propose(self, request: Request, most: int) -> Proposal | None:
        """That many."""
        count = min(self.count, most)
        wrong = (request.token_ids[-1] * 7 + 3) % 200 + 1
        return Proposal([wrong] * count, is_certain=False) if count else None


def case_of(batch: int, sizes: Sequence[int], context: int, rounds: int) -> Case:
    """The requests of `time_steps`, by what they need of the KV cache."""
    return Case(context, _tokens_of(sizes, rounds) + max(sizes), batch, 0)


def time_steps(
    core: EngineCore,
    drafts: WrongDrafts,
    *,
    batch: int,
    sizes: Sequence[int],
    context: int,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, list[float]]:
    """Seconds of steps of `batch` requests, by the drafts of each.

    drafts: a proposer of the engine, which has no other source. Raises ConfigError where the KV
    cache cannot hold the requests, HeadraceError where one fails.
    """
    check_fits(core, case_of(batch, sizes, context, rounds))
    names = _submit(core, batch, context, _tokens_of(sizes, rounds) + max(sizes))
    drafts.count = 0
    begun: set[str] = set()
    while len(begun) < batch:
        begun |= _given(core)
    rng = random.Random(batch)
    taken_s: dict[int, list[float]] = {size: [] for size in sizes}
    for turn in range(rounds + FIRST_TURNS):
        for size in rng.sample(list(sizes), len(sizes)):
            drafts.count = size
            seconds = timed_step_s(core, clock)
            if turn >= FIRST_TURNS:
                taken_s[size].append(seconds)
    drafts.count = 0
    _end(core, names)
    return taken_s


def time_passes(core: EngineCore, *, batch: int, context: int, rounds: int) -> list[float]:
    """Seconds of passes of the draft of an engine that always drafts, of a token of each request.

    Raises ConfigError and HeadraceError as `time_steps`, and where the engine has no draft.
    """
    drafter = core.scheduler.drafter
    chain = None
    if drafter is not None and drafter.speculation is not None:
        chain = drafter.speculation.model
    if chain is None:
        raise HeadraceError("the engine has no draft model whose passes could be timed")
    steps = batch + _FIRST_PASSES + rounds
    tokens = (1 + DRAFTS_OF_PASSES) * (steps + 1)
    check_fits(core, Case(context, tokens, batch, 0))
    names = _submit(core, batch, context, tokens, temperature=1.0)
    found = []
    for turn in range(steps):
        _given(core)
        if turn >= batch + _FIRST_PASSES:
            found += [each.seconds for each in chain.passes if each.num_tokens == batch]
    _end(core, names)
    return found


def timed_step_s(core: EngineCore, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the next step."""
    begun_s = clock()
    core.step()
    return clock() - begun_s


def _tokens_of(sizes: Sequence[int], rounds: int) -> int:
    """Of each request; a wrong draft may be right by chance, and gives one more then."""
    return 2 + 2 * len(sizes) * (rounds + FIRST_TURNS)


def _submit(
    core: EngineCore, batch: int, context: int, tokens: int, *, temperature: float = 0.0
) -> list[str]:
    params = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=temperature)
    names = [f"drafts-{number}" for number in range(batch)]
    for number, name in enumerate(names):
        prompt = [(at * 31 + number) % 200 + 1 for at in range(context)]
        core.submit(Submit(name, prompt, params))
    return names


def _given(core: EngineCore) -> set[str]:
    """Requests that a step gave tokens."""
    outputs = core.step()
    for output in outputs:
        if output.error is not None:
            raise HeadraceError(f"{output.request_id} failed: {output.error}")
    return {output.request_id for output in outputs if output.token_ids}


def _end(core: EngineCore, names: Sequence[str]) -> None:
    for name in names:
        core.cancel(name)
    core.step()
