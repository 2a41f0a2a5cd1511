"""How much of a prompt a step takes so that it ends in time: the prediction, the budget, and the
scheduler by rates that are told.
"""

from __future__ import annotations

import random

import pytest

from headrace.engine.core import EngineCore
from headrace.engine.drafts.step_costs import StepCosts
from headrace.engine.scheduling.measured_times import MeasuredTimes
from headrace.engine.scheduling.step_budget import (
    LEAST_PROMPT_TOKENS,
    StepBudget,
    StepLimit,
    StepLoad,
    load_of,
    pairs_of,
)
from tests.engine.expected import answer
from tests.engine.mock import Collected, MockModel, collect, drain, make_core, submit
from tests.engine.plans import plans_of, prompt, request, sizes_of
from tests.engine.scheduling.rates import Rates

DECODES = StepLoad(decodes=4, context_tokens=400)


def budget_of(rates: Rates, target_s: float, load: StepLoad = DECODES) -> StepBudget:
    budget = StepBudget(512, StepLimit(target_s, rates))
    budget.take(load.decodes)
    budget.begin_prompts(load)
    return budget


def test_pairs_are_those_of_each_token_and_all_up_to_itself() -> None:
    for start in (0, 1, 7, 100):
        for count in (0, 1, 5):
            assert pairs_of(start, count) == sum(at + 1 for at in range(start, start + count))


def test_a_prompt_takes_the_most_tokens_that_are_predicted_to_end_in_time() -> None:
    rates = Rates(decode_s=0.01, token_s=0.001, pair_s=1e-6)
    for start in (0, 300, 2000):
        budget = budget_of(rates, 0.1)
        count = budget.room(start)
        assert LEAST_PROMPT_TOKENS < count < 508
        assert rates.seconds(DECODES.with_prompt(start, count)) <= 0.1
        assert rates.seconds(DECODES.with_prompt(start, count + 1)) > 0.1


def test_a_prompt_further_on_takes_fewer_tokens() -> None:
    budget = budget_of(Rates(token_s=0.001, pair_s=1e-6), 0.1)
    rooms = [budget.room(start) for start in (0, 500, 1000, 2000, 4000)]
    assert rooms == sorted(rooms, reverse=True)
    assert rooms[0] > 2 * rooms[-1]


def test_where_all_fits_the_tokens_are_the_bound() -> None:
    assert budget_of(Rates(token_s=1e-6), 0.1).room(0) == 508


def test_the_first_prompt_of_a_step_gets_the_least_however_long_decoding_takes() -> None:
    budget = budget_of(Rates(decode_s=1.0, token_s=1.0), 0.1)
    assert not budget.is_spent
    assert budget.room(5000) == LEAST_PROMPT_TOKENS
    budget.take_prompt(5000, 100, LEAST_PROMPT_TOKENS)
    assert budget.room(0) == 0
    assert budget.is_spent
    assert budget.is_short
    few = StepBudget(6, StepLimit(0.1, Rates(decode_s=1.0)))
    few.take(4)
    few.begin_prompts(DECODES)
    assert few.room(0) == 2, "the tokens of a step are the bound of the least too"


def test_where_nobody_decodes_there_is_no_limit() -> None:
    budget = budget_of(Rates(token_s=1.0), 0.1, StepLoad())
    assert budget.room(0) == 512
    budget.take_prompt(0, 512, 512)
    assert not budget.is_short
    assert budget.seconds == 0


def test_those_that_pass_take_at_most_half_of_the_time_that_is_left() -> None:
    rates = Rates(decode_s=0.01, token_s=0.001)
    budget = budget_of(rates, 0.1)
    passing = budget.of_passing()
    most = passing.num_tokens
    assert most == 512 - 256 - 4
    assert passing.room(0) == 30
    passing.take_prompt(0, 40, 30)
    assert passing.room(0) == 0
    budget.join(passing, most)
    assert budget.room(3000) == 30
    assert budget.num_tokens == 508 - 30


def test_where_decoding_takes_all_the_time_one_that_passes_and_the_one_passed_get_the_least() -> (
    None
):
    budget = budget_of(Rates(decode_s=1.0, token_s=0.001), 0.1)
    passing = budget.of_passing()
    most = passing.num_tokens
    assert passing.room(0) == LEAST_PROMPT_TOKENS
    passing.take_prompt(0, 40, LEAST_PROMPT_TOKENS)
    assert passing.room(0) == 0
    budget.join(passing, most)
    assert budget.room(3000) == LEAST_PROMPT_TOKENS
    budget.take_prompt(3000, 4000, LEAST_PROMPT_TOKENS)
    assert budget.is_spent


class Told:
    """An engine whose scheduler has these rates, with a stream that runs."""

    def __init__(self, rates: Rates, target_s: float, **settings: object) -> None:
        chosen = {"num_gpu_blocks_override": 400, "max_num_batched_tokens": 256, **settings}
        self.core: EngineCore = make_core(MockModel(max_positions=20_000), **chosen)
        self.core.scheduler._limit = StepLimit(target_s, rates)
        self.plans = plans_of(self.core)
        self.results: dict[str, Collected] = {}
        self.stream = submit("stream", prompt(10, 1), max_tokens=400)
        self.core.submit(self.stream)
        self.step()
        self.plans.clear()

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            collect(self.results, self.core.step())
            self.core.check()


def test_chunks_shrink_with_depth_while_a_stream_runs_and_no_step_is_too_long() -> None:
    rates = Rates(decode_s=0.01, token_s=0.001, pair_s=2e-6)
    told = Told(rates, 0.1)
    long = submit("long", prompt(2000, 2), max_tokens=2)
    told.core.submit(long)
    while "long" not in told.results:
        told.step()
    rows = [row for plan in told.plans for row in plan.rows if row.request.request_id == "long"]
    counts = [row.num_tokens for row in rows]
    assert sum(counts) == 2000
    assert counts[:-1] == sorted(counts[:-1], reverse=True)
    assert 2 * counts[-2] < counts[0] < 100
    cut = [plan for plan in told.plans if plan.limited_s]
    assert len(cut) == len(told.plans) - 1, "the last chunk is all that was left"
    assert all(0.09 < plan.limited_s <= 0.1 for plan in cut)
    assert told.core.stats().limited_steps == len(cut)
    drain(told.core, told.results)
    for each in (told.stream, long):
        assert told.results[each.request_id].token_ids == answer(each)[0]


def test_chunks_are_whole_before_a_stream_begins_and_after_it_ends() -> None:
    told = Told(Rates(token_s=0.01), 0.1)
    told.core.cancel("stream")
    told.core.submit(submit("long", prompt(600, 2), max_tokens=2))
    told.step(3)
    assert sizes_of(told.plans) == [[("long", 256)], [("long", 256)], [("long", 88)]]
    assert told.core.stats().limited_steps == 0


def test_a_prompt_comes_to_its_end_where_decoding_alone_takes_too_long() -> None:
    told = Told(Rates(decode_s=1.0, token_s=1.0), 0.1)
    told.core.submit(submit("long", prompt(100, 2), max_tokens=2))
    told.step(10)
    assert sizes_of(told.plans)[:2] == 2 * [[("stream", 1), ("long", LEAST_PROMPT_TOKENS)]]
    assert told.results["long"].token_ids


def test_a_short_prompt_passes_a_long_one_in_several_steps_where_time_is_short() -> None:
    told = Told(Rates(decode_s=0.02, token_s=0.001), 0.1)
    told.core.submit(submit("long", prompt(1500, 2), max_tokens=2))
    told.step()
    short = submit("short", prompt(100, 3), max_tokens=3)
    told.core.submit(short)
    told.core.submit(submit("other", prompt(600, 4), max_tokens=2))
    told.step(4)
    assert sizes_of(told.plans) == [
        [("stream", 1), ("long", 80)],
        [("stream", 1), ("short", 40), ("long", 40)],
        [("stream", 1), ("short", 40), ("long", 40)],
        [("stream", 1), ("short", 20), ("long", 60)],
        [("stream", 1), ("short", 1), ("long", 60)],
    ]
    drain(told.core, told.results)
    assert told.results["short"].token_ids == answer(short)[0]


def test_no_new_request_is_let_in_without_room_for_any_of_it() -> None:
    told = Told(Rates(decode_s=0.02, token_s=0.001), 0.1)
    for number in range(3):
        told.core.submit(submit(f"{number}", prompt(100, 5 + number), max_tokens=2))
    told.step()
    assert sizes_of(told.plans) == [[("stream", 1), ("0", 80)]]
    assert [each.request_id for each in told.core.scheduler.waiting] == ["1", "2"]


def test_an_urgent_one_displaces_nobody_in_a_step_without_time_for_it() -> None:
    told = Told(
        Rates(decode_s=0.02, token_s=0.001), 0.1, scheduling_policy="priority", max_num_seqs=3
    )
    told.core.submit(submit("first", prompt(900, 2), max_tokens=2, priority=1))
    told.core.submit(submit("last", prompt(10, 3), max_tokens=90, priority=9))
    told.step(2)
    assert len(told.core.scheduler.running) == 2
    told.core.submit(submit("urgent", prompt(50, 4), max_tokens=2, priority=5))
    told.step()
    assert request(told.core, "urgent").num_computed == 0


def test_what_decodes_attend_to_takes_the_time_of_an_urgent_one_too() -> None:
    rates = Rates(context_s=0.01, token_s=0.001)
    told = Told(rates, 0.1, scheduling_policy="priority", max_num_seqs=3)
    told.core.submit(submit("last", prompt(10, 3), max_tokens=90, priority=9))
    told.step(2)
    told.core.submit(submit("first", prompt(2 * LEAST_PROMPT_TOKENS, 2), max_tokens=2, priority=1))
    told.step()
    assert len(told.core.scheduler.running) == 3
    told.core.submit(submit("urgent", prompt(50, 4), max_tokens=2, priority=5))
    told.step()
    assert request(told.core, "first").num_computed == 2 * LEAST_PROMPT_TOKENS
    assert told.core.stats().num_preemptions == 0


def test_the_load_of_a_step_counts_decodes_prompts_and_pairs() -> None:
    told = Told(Rates(), 0.1)
    told.core.submit(submit("long", prompt(300, 2), max_tokens=2))
    made = told.core.scheduler.schedule(0.0)
    decode, chunk = made.rows
    assert (decode.start, chunk.start, chunk.num_tokens) == (10, 0, 255)
    assert load_of(made.rows) == StepLoad(1, 0, 11, 255, pairs_of(0, 255))


def costs_of(decode_s: float) -> StepCosts:
    costs = StepCosts()
    for _ in range(5):
        costs.note(4, 4, decode_s)
    return costs


PAIR = 3e-4


def test_measured_rates_are_found_again() -> None:
    times = MeasuredTimes(costs_of(0.04), PAIR)
    loads = [DECODES.with_prompt(start, 60) for start in range(0, 3000, 60)]
    for load in loads:
        times.note(load, 0.04 + 0.0015 * load.prompt_tokens + 5e-7 * load.pairs)
    for start, count in ((0, 100), (2900, 30), (6000, 12)):
        load = DECODES.with_prompt(start, count)
        took = 0.04 + 0.0015 * count + 5e-7 * pairs_of(start, count)
        assert times.seconds(load) == pytest.approx(took, rel=0.03)


def test_where_only_short_prompts_were_seen_pairs_take_their_operations_time() -> None:
    times = MeasuredTimes(costs_of(0.04), PAIR)
    alone_s = times.seconds(StepLoad())
    for _ in range(20):
        times.note(StepLoad().with_prompt(0, 20), alone_s + 20 * 0.0015)
    deep = DECODES.with_prompt(4000, 50)
    assert times.seconds(deep) == pytest.approx(
        0.04 + 0.0015 * (50 + PAIR * pairs_of(4000, 50)), rel=0.1
    )


def test_pairs_that_were_hardly_seen_are_not_made_up_from_noise() -> None:
    drawn = random.Random(1)
    times = MeasuredTimes(costs_of(0.04), PAIR)
    for _ in range(40):
        count = drawn.choice((16, 20, 24))
        took = (0.04 + 0.0015 * count) * drawn.uniform(0.95, 1.05)
        times.note(DECODES.with_prompt(0, count), took)
    deep = DECODES.with_prompt(4000, 50)
    assert times.seconds(deep) == pytest.approx(
        0.04 + 0.0015 * (50 + PAIR * pairs_of(4000, 50)), rel=0.1
    )


def test_rates_follow_a_machine_that_gets_slower() -> None:
    times = MeasuredTimes(costs_of(0.04), PAIR)
    load = DECODES.with_prompt(500, 40)
    for _ in range(10):
        times.note(load, 0.1)
    assert times.seconds(load) == pytest.approx(0.1, rel=0.02)
    for _ in range(25):
        times.note(load, 0.16)
    assert times.seconds(load) == pytest.approx(0.16, rel=0.05)


def test_a_disturbed_step_counts_for_nearly_nothing() -> None:
    times = MeasuredTimes(costs_of(0.04), PAIR)
    load = DECODES.with_prompt(500, 40)
    for _ in range(10):
        times.note(load, 0.1)
    times.note(load, 30.0)
    assert times.seconds(load) == pytest.approx(0.1, rel=0.01)


def test_pairs_of_drafts_are_in_what_steps_with_drafts_take() -> None:
    """These were learned with their attention, so that it is not counted once more."""
    times = MeasuredTimes(costs_of(0.04), PAIR)
    load = DECODES.with_prompt(500, 40)
    for _ in range(10):
        times.note(load._replace(draft_pairs=10**6), 0.1)
    assert times.seconds(load) == pytest.approx(0.1, rel=0.02)
    assert times.seconds(load._replace(draft_pairs=10**6)) == times.seconds(load)


def test_rates_are_never_below_zero() -> None:
    times = MeasuredTimes(costs_of(0.04), PAIR)
    for start, seconds in ((0, 0.2), (5000, 0.05), (100, 0.03), (9000, 0.01), (0, 0.01)):
        times.note(DECODES.with_prompt(start, 40), seconds)
        small = times.seconds(DECODES.with_prompt(start, 10))
        assert 0 < small <= times.seconds(DECODES.with_prompt(start + 50, 30))


class TimedModel(MockModel):
    """Takes 20 ms, and 1 ms for each token of a prompt and 1 us for each pair, by the clock."""

    def forward(self, batch, kv):  # type: ignore[no-untyped-def]
        self.clock.now_s += 0.02
        for start, stop in zip(batch.query_start, batch.query_start[1:], strict=False):
            if stop - start > 1:
                positions = batch.positions[start:stop]
                self.clock.now_s += float(0.001 * len(positions) + 1e-6 * (positions + 1).sum())
        return super().forward(batch, kv)


@pytest.mark.parametrize("speculation", ["auto", "none"])
def test_an_engine_learns_its_rates_and_holds_the_target(speculation: str) -> None:
    model = TimedModel(max_positions=20_000)
    core = make_core(
        model, num_gpu_blocks_override=400, max_num_batched_tokens=512, max_step_ms=100,
        speculative_config=speculation,
    )  # fmt: skip
    model.clock = core._clock  # type: ignore[attr-defined]
    plans = plans_of(core)
    before = submit("before", prompt(1500, 3), max_tokens=1)
    core.submit(before)
    results = drain(core)
    assert [plan.num_tokens for plan in plans] == [512, 512, 476], "nobody ran beside it"
    stream = submit("stream", prompt(10, 1), max_tokens=300, speculation=False)
    core.submit(stream)
    for _ in range(5):
        collect(results, core.step())
    plans.clear()
    long = submit("long", prompt(3000, 2), max_tokens=1)
    core.submit(long)
    took = []
    while "long" not in results:
        begun_s = model.clock.now_s  # type: ignore[attr-defined]
        collect(results, core.step())
        took.append(model.clock.now_s - begun_s)  # type: ignore[attr-defined]
    rows = [row for plan in plans for row in plan.rows if row.request.request_id == "long"]
    counts = [row.num_tokens for row in rows]
    assert sum(counts) == 3000
    assert counts[0] > 2 * counts[-2]
    assert max(took) < 0.115
    assert sum(took[:-1]) > 0.085 * (len(took) - 1)
    stats = core.stats()
    assert stats.limited_steps == len(took) - 1
    assert stats.limited_step_s == pytest.approx(stats.limited_step_predicted_s, rel=0.05)
    drain(core, results)
    for each in (before, stream, long):
        assert results[each.request_id].token_ids == answer(each)[0]


def test_without_a_limit_chunks_are_whole_beside_a_stream() -> None:
    model = TimedModel(max_positions=20_000)
    core = make_core(model, num_gpu_blocks_override=400, max_num_batched_tokens=512, max_step_ms=0)
    model.clock = core._clock  # type: ignore[attr-defined]
    core.submit(submit("stream", prompt(10, 1), max_tokens=300))
    core.step()
    plans = plans_of(core)
    core.submit(submit("long", prompt(1200, 2), max_tokens=1))
    for _ in range(3):
        core.step()
    assert sizes_of(plans) == [
        [("stream", 1), ("long", 511)], [("stream", 1), ("long", 511)],
        [("stream", 1), ("long", 178)],
    ]  # fmt: skip
