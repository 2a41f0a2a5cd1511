"""One answer from several targets: a slow target gets a competitor.

The first target with content wins. The others are cut off at once, and this does not count against
them: being slower than another says nothing about their health.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

from headrace.errors import RequestError
from headrace.gateway.routing.decision import Candidate
from headrace.gateway.routing.hedging import Hedging
from headrace.gateway.serving.after_failure import class_of
from headrace.gateway.serving.aside import Aside
from headrace.gateway.serving.attempt import AttemptFailedError, Opened
from headrace.gateway.serving.bill import cost_nusd
from headrace.gateway.serving.sent import Sent
from headrace.gateway.serving.tally import Tally

_S_PER_NS = 1e-9


class Runner(NamedTuple):
    """A target in the race. `task` returns None if it cannot honour the request."""

    candidate: Candidate
    sent: Sent
    task: asyncio.Task[Opened | None]


class Race(NamedTuple):
    """The result of a race between targets."""

    opened: Opened | None
    """The winner's answer; None if no target answered."""
    failures: list[tuple[Candidate, AttemptFailedError]]
    """Attempts that failed, in their order."""
    asides: list[Aside]
    """The billed calls of targets that were cut off."""
    hedges: int
    hedge_won: bool


async def race(
    first: Candidate,
    another: Callable[[list[Candidate]], Candidate | None],
    ask: Callable[[Candidate, Sent], Coroutine[Any, Any, Opened | None]],
    hedging: Hedging,
    *,
    input_tokens: int,
    stream: bool,
    clock_ns: Callable[[], int],
    on_asides: Callable[[list[Aside]], None],
) -> Race:
    """Race targets, beginning with `first`.

    `another` returns the next target that may join those it is given, or None; it joins only while
    `hedging` has a share left. `on_asides` is called in any case, also if this is cancelled;
    nothing runs on afterwards. Raises what `ask` raises except AttemptFailedError.
    """
    runners: list[Runner] = []

    def start(candidate: Candidate) -> None:
        sent = Sent(clock_ns)
        made = besides(candidate, sent) if runners else ask(candidate, sent)
        runners.append(Runner(candidate, sent, asyncio.ensure_future(made)))

    async def besides(candidate: Candidate, sent: Sent) -> Opened | None:
        try:
            return await ask(candidate, sent)
        except RequestError:  # this target cannot take it, but the first may still answer
            return None

    after_s = hedging.after_s(stream=stream)
    winner: Runner | None = None
    start(first)
    try:
        while winner is None:
            running = {runner.task for runner in runners if not runner.task.done()}
            if not running or _ends_it(runners[0]):
                break
            may_more = after_s is not None and len(runners) <= hedging.most
            done, _ = await asyncio.wait(
                running,
                timeout=after_s if may_more else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                after_s = after_s if _hedge(runners, another, hedging, clock_ns, start) else None
            winner = next((runner for runner in runners if _answer(runner) is not None), None)
    finally:
        is_cancelled = await _end(runner.task for runner in runners if runner is not winner)
        if is_cancelled:  # while the losers were being ended, the client left too
            winner = None
        asides = _lost(runners, winner, hedging, input_tokens, stream, clock_ns)
        on_asides(asides)
        if is_cancelled:
            raise asyncio.CancelledError
    failures = [
        (runner.candidate, error) for runner in runners if (error := _failure(runner)) is not None
    ]
    hedge_won = winner is not None and winner is not runners[0]
    if hedge_won:
        hedging.won()
    opened = None if winner is None else _answer(winner)
    return Race(opened, failures, asides, len(runners) - 1, hedge_won)


def _hedge(
    runners: list[Runner],
    another: Callable[[list[Candidate]], Candidate | None],
    hedging: Hedging,
    clock_ns: Callable[[], int],
    start: Callable[[Candidate], None],
) -> bool:
    """Start one more target if there is one and `hedging` allows it; return whether it did."""
    candidate = another([runner.candidate for runner in runners])
    if candidate is None or not hedging.take(clock_ns() * _S_PER_NS):
        return False
    start(candidate)
    return True


def _answer(runner: Runner) -> Opened | None:
    """The runner's answer. Raises its error, except for an attempt that failed."""
    task = runner.task
    if not task.done() or task.cancelled() or _failure(runner) is not None:
        return None
    return task.result()


def _failure(runner: Runner) -> AttemptFailedError | None:
    task = runner.task
    if not task.done() or task.cancelled():
        return None
    error = task.exception()
    return error if isinstance(error, AttemptFailedError) else None


def _ends_it(runner: Runner) -> bool:
    """Whether the first target found the client at fault. If a hedge does, the first may not."""
    error = _failure(runner)
    return error is not None and class_of(error.failure).next == "stop"


async def _end(tasks: Iterable[asyncio.Task[Opened | None]]) -> bool:
    """Cancel the tasks and wait for them; return whether the caller was cancelled meanwhile."""
    every = list(tasks)
    for task in every:
        task.cancel()
    is_cancelled = False
    while running := [task for task in every if not task.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError:
            is_cancelled = True
    return is_cancelled


def _lost(
    runners: list[Runner],
    winner: Runner | None,
    hedging: Hedging,
    input_tokens: int,
    stream: bool,
    clock_ns: Callable[[], int],
) -> list[Aside]:
    """Abort what is not wanted, and list what each may have cost. If no target won, the first is
    the request's own attempt, which its ledger line records."""
    now_ns = clock_ns()
    asides = []
    for runner in runners:
        if runner is winner:
            continue
        task = runner.task
        answered = None
        if not task.cancelled() and task.exception() is None:
            answered = task.result()
        if answered is not None:
            answered.reply.abort()
            health = answered.candidate.target.health
            health.ended()
            health.did_not_count(now_ns * _S_PER_NS)
        elif not task.cancelled():
            continue  # it failed, which is recorded elsewhere, or was not sent
        if runner.sent.at_ns is None:
            continue  # nothing was sent
        if winner is not None:
            hedging.had_first_token((now_ns - runner.sent.at_ns) * _S_PER_NS, stream=stream)
        if winner is not None or runner is not runners[0]:
            asides.append(_aside(runner, runner.sent.at_ns, answered, input_tokens, stream, now_ns))
    return asides


def _aside(
    runner: Runner,
    sent_ns: int,
    answered: Opened | None,
    input_tokens: int,
    stream: bool,
    now_ns: int,
) -> Aside:
    tally = Tally(input_tokens)
    if answered is not None and answered.glance is not None:
        tally.take_glance(answered.glance)
    elif answered is not None and answered.body is not None:
        tally.take_reply(answered.read())
    elif answered is not None:
        for event in answered.events:
            tally.take(event)
    usage, usage_from = tally.usage
    target = runner.candidate.target
    is_open = runner.sent.is_open and usage_from == "estimated"
    return Aside(
        purpose="hedge",
        model=runner.candidate.model,
        target=target,
        usage=usage,
        usage_from=usage_from,
        cost_nusd=None
        if is_open
        else cost_nusd(
            usage, target.price, tally.service_tier, asked_tier=runner.sent.service_tier
        ),
        sent_ns=sent_ns,
        first_ns=None if answered is None else answered.first_ns,
        ended_ns=now_ns,
        outcome="client_gone",
        stream=stream,
        finish=tally.finish,
        error="another target answered first",
    )
