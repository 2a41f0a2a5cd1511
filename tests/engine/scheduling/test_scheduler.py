"""What is planned when: budget, decode first, admission, cancel in every state."""

from __future__ import annotations

import pytest

from headrace.engine.core import EngineCore
from headrace.engine.request import State
from headrace.engine.scheduling.plan import Row
from tests.engine.expected import answer
from tests.engine.mock import Collected, MockModel, collect, drain, make_core, submit
from tests.engine.plans import plans_of, prompt, request, sizes_of


def test_a_long_prompt_is_cut_by_the_budget_and_samples_once() -> None:
    model = MockModel()
    core = make_core(model, max_num_batched_tokens=64)
    plans = plans_of(core)
    core.submit(submit("a", prompt(150), max_tokens=2))
    results = drain(core)
    rows = [[(row.start, row.num_tokens, row.samples) for row in plan.rows] for plan in plans]
    assert rows == [[(0, 64, False)], [(64, 64, False)], [(128, 22, True)], [(150, 1, True)]]
    assert [len(batch.logit_rows) for batch in model.batches] == [0, 0, 1, 1]
    assert len(results["a"].token_ids) == 2


def test_decodes_come_first_and_the_rest_of_the_budget_prefills() -> None:
    core = make_core(max_num_batched_tokens=32)
    plans = plans_of(core)
    for name, start in (("a", 1), ("b", 2)):
        core.submit(submit(name, prompt(10, start), max_tokens=30))
    core.step()
    core.submit(submit("long", prompt(100, 3), max_tokens=2))
    core.submit(submit("after", prompt(20, 4), max_tokens=2))
    plans.clear()
    for _ in range(4):
        core.step()
    assert sizes_of(plans) == [
        [("a", 1), ("b", 1), ("long", 30)],
        [("a", 1), ("b", 1), ("long", 30)],
        [("a", 1), ("b", 1), ("long", 30)],
        [("a", 1), ("b", 1), ("long", 10), ("after", 20)],
    ]


LONG = [(7 * i + i // 40) % 40 for i in range(30_000)]


def test_a_short_prompt_starts_while_a_long_one_is_prefilled() -> None:
    core = make_core(
        MockModel(max_positions=40_000), num_gpu_blocks_override=2500, max_num_batched_tokens=512
    )
    plans = plans_of(core)
    core.submit(submit("long", LONG, max_tokens=2))
    results: dict[str, Collected] = {}
    for _ in range(5):
        collect(results, core.step())
    alone = -(-len(LONG) // 512)
    submits = {}
    while "long" not in results:
        if len(plans) % 3 == 2 and len(submits) < 6:
            name = f"short{len(submits)}"
            submits[name] = submit(name, prompt(50, len(submits)), max_tokens=3)
            core.submit(submits[name])
            step = len(plans)
        collect(results, core.step())
        if submits and len(plans) == step + 2:
            assert results[name].outputs, "no first token within two steps"
    assert len(submits) == 6
    assert len(plans) <= 2 * alone
    long_rows = [row for plan in plans for row in plan.rows if row.request.request_id == "long"]
    assert all(row.num_tokens >= 256 for row in long_rows[:-1])
    assert sum(row.num_tokens for row in long_rows) == len(LONG)
    drain(core, results)
    unhurried = submit("long", LONG, max_tokens=2)
    for each in (*submits.values(), unhurried):
        assert results[each.request_id].token_ids == answer(each)[0]


def test_any_flood_of_short_prompts_leaves_half_of_each_step_to_the_long_one() -> None:
    core = make_core(num_gpu_blocks_override=200, max_num_batched_tokens=32, max_num_seqs=64)
    plans = plans_of(core)
    core.submit(submit("long", prompt(640, 1), max_tokens=1))
    results: dict[str, Collected] = {}
    count = 0
    while "long" not in results:
        for _ in range(4):
            core.submit(submit(f"s{count}", prompt(3 + count % 11, count), max_tokens=30))
            count += 1
        collect(results, core.step())
        core.check()
    assert len(plans) <= 2 * 640 / 32
    rows = [row for plan in plans for row in plan.rows if row.request.request_id == "long"]
    assert len(rows) == len(plans)
    assert all(row.num_tokens >= 16 for row in rows[:-1])
    assert all(plan.num_tokens <= 32 for plan in plans)
    assert {row.request.request_id for plan in plans for row in plan.rows} > {"long", "s0", "s5"}


def test_what_passes_is_computed_whole_and_passes_only_what_waits_for_the_long_one() -> None:
    core = make_core(num_gpu_blocks_override=200, max_num_batched_tokens=32, max_num_seqs=8)
    plans = plans_of(core)
    core.submit(submit("long", prompt(100, 1), max_tokens=2))
    core.step()
    core.submit(submit("second", prompt(100, 2), max_tokens=2))
    core.submit(submit("seventeen", prompt(17, 3), max_tokens=2))
    core.submit(submit("sixteen", prompt(16, 4), max_tokens=2))
    for _ in range(6):
        core.step()
    assert sizes_of(plans) == [
        [("long", 32)],
        [("sixteen", 16), ("long", 16)],
        [("sixteen", 1), ("long", 31)],
        [("long", 21), ("second", 11)],
        [("long", 1), ("second", 31)],
        [("second", 32)],
        [("second", 26), ("seventeen", 6)],
    ]


def test_a_waiting_request_older_than_the_one_in_prefill_is_not_passed() -> None:
    core = make_core(num_gpu_blocks_override=200, max_num_batched_tokens=32)
    plans = plans_of(core)
    core.submit(submit("older", prompt(100, 1), max_tokens=2))
    core.submit(submit("long", prompt(300, 2), max_tokens=2))
    for _ in range(4):
        core.step()
    older = request(core, "older")
    # As if it had been preempted, and its blocks evicted.
    core.scheduler._stop(older, keep=False)
    older.state = State.WAITING
    older.cache_salt = "nothing of it is cached"
    core.scheduler.waiting.put_back(older)
    core.submit(submit("short", prompt(5, 3), max_tokens=2))
    plans.clear()
    core.step()
    assert sizes_of(plans) == [[("long", 32)]]


def test_the_cached_part_of_a_prompt_counts_for_nothing_when_it_passes() -> None:
    core = make_core(num_gpu_blocks_override=200, max_num_batched_tokens=32)
    plans = plans_of(core)
    core.submit(submit("turn", prompt(90, 1), max_tokens=1))
    drain(core)
    core.submit(submit("long", prompt(300, 2), max_tokens=2))
    core.step()
    core.submit(submit("next turn", [*prompt(90, 1), *prompt(10, 5)], max_tokens=2))
    plans.clear()
    core.step()
    assert sizes_of(plans) == [[("next turn", 10), ("long", 22)]]


def test_a_decode_does_not_wait_for_the_prompt_of_an_older_request() -> None:
    """The older one waited for a prefix while the younger passed it."""
    core = make_core(max_num_batched_tokens=48)
    plans = plans_of(core)
    core.submit(submit("first", prompt(32, 1), max_tokens=20))
    core.submit(submit("older", prompt(32, 1) + prompt(100, 2), max_tokens=2))
    core.submit(submit("younger", prompt(10, 3), max_tokens=20))
    for _ in range(4):
        core.step()
    assert sizes_of(plans) == [
        [("first", 32), ("younger", 10)],
        [("first", 1), ("younger", 1), ("older", 46)],
        [("first", 1), ("younger", 1), ("older", 46)],
        [("first", 1), ("younger", 1), ("older", 8)],
    ]


def test_a_budget_below_the_number_of_decodes_serves_the_oldest_and_all_finish() -> None:
    core = make_core(max_num_batched_tokens=2)
    plans = plans_of(core)
    for i in range(5):
        core.submit(submit(str(i), prompt(3, i), max_tokens=6))
    results = drain(core)
    assert all(plan.num_tokens <= 2 for plan in plans)
    assert all(len(result.token_ids) == 6 for result in results.values())
    finished = [name for name, result in results.items() if result.finish_reason]
    assert finished == ["0", "1", "2", "3", "4"]


def test_no_more_than_max_num_seqs_run() -> None:
    core = make_core(max_num_seqs=3)
    for i in range(10):
        core.submit(submit(str(i), prompt(5, i), max_tokens=4))
    results: dict[str, Collected] = {}
    while core.has_work:
        collect(results, core.step())
        core.check()
        assert len(core.scheduler.running) <= 3
    assert len(results) == 10


def test_admission_waits_until_the_whole_prompt_and_the_watermark_fit() -> None:
    core = make_core(num_gpu_blocks_override=10, max_num_batched_tokens=128)
    core.submit(submit("a", prompt(70, 1), max_tokens=9))  # 5 blocks, enough to its end
    core.submit(submit("b", prompt(80, 2), max_tokens=4))  # 5 of 5, and none left over
    results: dict[str, Collected] = {}
    for _ in range(8):
        collect(results, core.step())
        assert request(core, "a").state is State.RUNNING
        assert request(core, "b").state is State.WAITING
        assert core.kv.num_free == 5
    drain(core, results)
    assert results["b"].outputs[-1].num_preemptions == 0
    assert len(results["b"].token_ids) == 4


def test_a_request_as_large_as_the_pool_is_served_alone() -> None:
    core = make_core(num_gpu_blocks_override=4)
    core.submit(submit("all", prompt(60), max_tokens=4))
    assert len(drain(core)["all"].token_ids) == 4


def test_a_head_that_does_not_fit_is_not_passed() -> None:
    core = make_core(num_gpu_blocks_override=10)
    core.submit(submit("a", prompt(30, 1), max_tokens=40))
    core.step()
    core.submit(submit("large", prompt(130, 2), max_tokens=4))
    core.submit(submit("small", prompt(5, 3), max_tokens=4))
    core.step()
    assert [each.request_id for each in core.scheduler.waiting] == ["large", "small"]
    results = drain(core)
    assert list(results) == ["a", "large", "small"]


@pytest.mark.parametrize("victim", ["old", "decoding", "preempted", "prefilling", "waiting"])
def test_cancel_frees_everything_at_once_in_every_state(victim: str) -> None:
    core = make_core(num_gpu_blocks_override=12, max_num_batched_tokens=16, max_num_seqs=4)
    submits = {
        "old": submit("old", prompt(20, 1), max_tokens=100),
        "decoding": submit("decoding", prompt(20, 2), max_tokens=100),
        "preempted": submit("preempted", prompt(20, 3), max_tokens=100),
    }
    results: dict[str, Collected] = {}
    for each in submits.values():
        core.submit(each)
    while not request(core, "preempted").num_preemptions:
        collect(results, core.step())
    assert request(core, "preempted").state is State.WAITING
    if victim in ("prefilling", "waiting"):
        core.cancel("preempted")
        core.cancel("decoding")
        submits["prefilling"] = submit("prefilling", prompt(64, 4), max_tokens=9)
        submits["waiting"] = submit("waiting", prompt(64, 4), max_tokens=9)
        for name in ("prefilling", "waiting"):
            core.submit(submits[name])
        collect(results, core.step())
        collect(results, core.step())
        assert 0 < request(core, "prefilling").num_computed < 64
        assert request(core, "waiting").state is State.WAITING
    gone = request(core, victim)
    owned = core.kv.num_owned
    own = sum(len(table.blocks) for table in gone.tables)
    core.cancel(victim)
    core.check()
    assert core.kv.num_owned == owned - own
    assert (gone.state, gone.tables, gone.nodes) == (State.FINISHED, [], [])
    core.cancel(victim)
    assert not any(row.request is gone for row in rows_after(core, results))
    drain(core, results)
    assert core.kv.num_owned == 0
    last = results[victim].outputs[-1]
    assert (last.finish_reason, last.token_ids) == ("abort", [])
    for name, each in submits.items():
        expected = answer(each)[0]
        got = results[name].token_ids
        whole = results[name].finish_reason == "length"
        assert got == (expected if whole else expected[: len(got)])


def rows_after(core: EngineCore, results: dict[str, Collected]) -> list[Row]:
    """Rows of the next step."""
    plans = plans_of(core)
    collect(results, core.step())
    return [row for plan in plans for row in plan.rows]
