"""That a request has left the queue is said once, before the step in which it does computes."""

from __future__ import annotations

from headrace.engine.messages import Output, Started
from headrace.telemetry.buckets import ITERATION_TOKENS, STEP_S
from tests.engine.mock import MockModel, make_core, submit
from tests.engine.plans import prompt


def test_it_is_said_before_the_step_computes_and_only_the_first_time() -> None:
    model = MockModel()
    core = make_core(model, num_gpu_blocks_override=8, max_num_seqs=3)
    for i, name in enumerate("abc", 1):
        core.submit(submit(name, prompt(30, i), max_tokens=60))
    core.submit(submit("never", prompt(30, 4), max_tokens=60))
    said: list[Started | Output] = []
    steps: list[int] = []

    def on_started(started: list[Started]) -> None:
        assert started
        steps.append(model.steps)
        said.extend(started)

    core.cancel("never")
    while core.has_work:
        said += core.step(on_started)
    assert core.stats().num_preemptions
    assert steps[0] == 0, "nothing had been computed"
    names = [each.request_id for each in said if isinstance(each, Started)]
    assert names == ["a", "b", "c"]
    for name in names:
        first = next(each for each in said if isinstance(each, Output) and each.request_id == name)
        started = next(
            each for each in said if isinstance(each, Started) and each.request_id == name
        )
        assert said.index(started) < said.index(first)
        assert started.queue_s == first.queue_s > 0


def test_steps_are_counted_by_their_time_and_tokens() -> None:
    core = make_core(max_num_batched_tokens=64)
    clock = core._clock
    for tokens, extra_s in ((1, 0.0), (8, 0.15), (9, 3600.0)):
        core.submit(submit(str(tokens), prompt(tokens, tokens), max_tokens=1))
        compute = core._runner.run

        def slow(rows: object, extra_s: float = extra_s, compute: object = compute) -> object:
            clock.now_s += extra_s  # type: ignore[attr-defined]
            return compute(rows)  # type: ignore[operator]

        core._runner.run = slow  # type: ignore[assignment,method-assign]
        core.step()
        core._runner.run = compute  # type: ignore[method-assign]
    stats = core.stats()
    counted = {at: count for at, count in enumerate(stats.step_seconds) if count}
    assert counted == {STEP_S.index(0.002): 1, STEP_S.index(0.2): 1, len(STEP_S): 1}
    counted = {at: count for at, count in enumerate(stats.iteration_tokens) if count}
    bounds = ITERATION_TOKENS.index
    assert counted == {bounds(1.0): 1, bounds(8.0): 1, bounds(16.0): 1}
    assert sum(stats.step_seconds) == sum(stats.iteration_tokens) == stats.steps == 3
    assert list(STEP_S) == sorted(set(STEP_S))
