"""Many steps at once leave the very state that single steps leave."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.engine.scheduling.fast_forward import fast_forward, steps_alike
from headrace.engine.scheduling.scheduler import Scheduler
from headrace.engine.scheduling.step_budget import StepLimit
from headrace.models.layer_cache import CacheGroup
from tests.engine.plans import given
from tests.engine.scheduling.rates import Rates

PARAMS = SamplingParams(temperature=0)


def made_up(request: Request) -> int:
    return -1 - request.arrival


def single_step(scheduler: Scheduler, now_s: float) -> None:
    plan = scheduler.schedule(now_s)
    scheduler.complete(
        plan, given(made_up(row.request) if row.samples else None for row in plan.rows), now_s
    )


def state(scheduler: Scheduler) -> dict[str, Any]:
    kv = scheduler.kv
    return {
        "running": [
            (each.request_id, list(each.token_ids), each.num_computed,
             [(table.blocks, table.num_dropped) for table in each.tables], each.num_covered,
             each.slot, [node.digest for node in each.nodes], each.num_preemptions,
             each.first_token_s)
            for each in scheduler.running
        ],
        "waiting": [(each.request_id, list(each.token_ids)) for each in scheduler.waiting],
        "cached": [(part.node.digest, part.blocks) for part in kv._tree.cached],
        "free": list(kv._free),
        "touched": kv._num_touched,
        "owned": kv.num_owned,
        "evicted": list(kv._tree._evicted),
        "totals": scheduler.totals,
    }  # fmt: skip


def workload(source: random.Random, count: int, priorities: int) -> list[tuple[int, Request]]:
    """Requests and the steps in which they come; some share beginnings with others."""
    found, at = [], 0
    for number in range(count):
        at += source.choice((0, 0, 1, 3, 20, 60))
        length = source.randint(1, 90)
        shared = source.choice((0, 0, 8, 24, 48))
        tokens = [source.choice((7, 7, 9))] * min(shared, length)
        tokens += [1000 + number] * (length - len(tokens))
        request = Request(
            str(number), tokens, length, PARAMS, max_len=length + source.randint(1, 90),
            priority=source.randrange(priorities), arrival=number,
        )  # fmt: skip
        found.append((at, request))
    return found


WINDOWS = (
    (CacheGroup(num_tables=2, window=9),),
    (CacheGroup(num_tables=1), CacheGroup(num_tables=2, window=13)),
    (CacheGroup(num_tables=1, window=3), CacheGroup(num_tables=1, window=30)),
    (CacheGroup(num_tables=1), CacheGroup(num_tables=1, window=8), CacheGroup(window=21)),
)
"""Groups of layers, some of which let go of blocks while a request runs."""


def scheduler_of(source: random.Random, *, windows: bool) -> Scheduler:
    groups = [CacheGroup(num_tables=source.choice((1, 1, 3)))]
    if windows:
        groups = list(source.choice(WINDOWS))
    num_tables = sum(group.num_tables for group in groups)
    budget = source.choice((3, 16, 64))
    kv = KVCache(
        source.choice((46, 60, 200)) * num_tables,  # 46 hold the longest request alone
        4,
        prefix_caching=source.random() < 0.7,
        groups=groups,
        max_step_tokens=budget,
    )
    return Scheduler(
        kv,
        max_num_batched_tokens=budget,
        max_num_seqs=source.choice((1, 3, 8)),
        limit=source.choice((None, StepLimit(0.1, Rates(0.02, 0.003, 1e-4)))),
    )


@pytest.mark.parametrize("seed", range(30))
def test_many_steps_at_once_are_as_many_single_steps(seed: int) -> None:
    check_seed(seed, windows=False)


@pytest.mark.parametrize("seed", range(60))
def test_so_they_are_where_windows_let_go_of_blocks(seed: int) -> None:
    check_seed(seed, windows=True)


def check_seed(seed: int, *, windows: bool) -> None:
    def made() -> tuple[Scheduler, list[tuple[int, Request]]]:
        source = random.Random(seed)
        return scheduler_of(source, windows=windows), workload(source, 20, source.choice((1, 1, 3)))

    (quick, ahead), (slow, behind) = made(), made()
    cuts = random.Random(seed)
    step, skipped = 0, 0
    while ahead or quick.running or quick.waiting:
        while ahead and ahead[0][0] <= step:
            quick.submit(ahead.pop(0)[1])
            slow.submit(behind.pop(0)[1])
        steps = steps_alike(quick)
        if ahead:
            steps = min(steps, ahead[0][0] - step)
        steps = cuts.randint(0, steps)
        if steps:
            fast_forward(quick, steps, made_up)
            skipped += steps
        else:
            single_step(quick, step)
            steps = 1
        for at in range(step, step + steps):
            single_step(slow, at)
        step += steps
        if steps > 1 or not ahead:
            assert state(quick) == state(slow)
    quick.kv.check(quick.running)
    assert skipped, "nothing was skipped"


def pair(num_blocks: int, prompt: int, steps: int, caching: bool) -> Scheduler:
    """Two that have decoded for a while, and one that waits; windows of 8 and 12, blocks of 4."""
    groups = [CacheGroup(window=8), CacheGroup(window=12)]
    kv = KVCache(num_blocks, 4, groups=groups, max_step_tokens=16, prefix_caching=caching)
    scheduler = Scheduler(kv, max_num_batched_tokens=16, max_num_seqs=4)
    for arrival, length in enumerate((7, 7)):
        tokens = [1 + arrival] * length
        scheduler.submit(
            Request(str(arrival), tokens, length, PARAMS, max_len=400, arrival=arrival)
        )
    for step in range(steps):
        single_step(scheduler, step)
    scheduler.submit(Request("2", [3] * prompt, prompt, PARAMS, max_len=prompt + 8, arrival=2))
    return scheduler


@pytest.mark.long
@pytest.mark.parametrize("caching", [False, True])
def test_who_waits_for_blocks_comes_in_with_the_step_after_a_window_let_go_of_enough(
    caching: bool,
) -> None:
    """A stretch ends there at the latest, so that the next step lets it in."""
    stretches = set()
    for num_blocks, prompt, start in product(range(17, 24), (8, 16), range(40, 44)):
        quick, slow = (pair(num_blocks, prompt, start, caching) for _ in range(2))
        step, stretch = start, 0
        while quick.waiting and step < start + 12:
            stretch = steps_alike(quick)
            if stretch:
                fast_forward(quick, stretch, made_up)
            else:
                single_step(quick, step)
            for _ in range(stretch or 1):
                single_step(slow, step)
                step += 1
            assert state(quick) == state(slow)
            if stretch and not quick.missing_blocks():
                single_step(quick, step)
                single_step(slow, step)
                step += 1
                assert state(quick) == state(slow)
                if not quick.waiting:
                    stretches.add(stretch)
    assert len(stretches) > 1, "what a window lets go of let nobody in"


def test_nothing_is_skipped_while_a_prompt_is_read_or_somebody_may_enter() -> None:
    scheduler = Scheduler(KVCache(100, 4), max_num_batched_tokens=8, max_num_seqs=4)
    assert steps_alike(scheduler) == 0
    scheduler.submit(Request("a", [1] * 12, 12, PARAMS, max_len=40))
    single_step(scheduler, 0)
    assert steps_alike(scheduler) == 0  # four tokens of the prompt are left
    single_step(scheduler, 1)
    assert steps_alike(scheduler) == 40 - 13 - 1
    scheduler.submit(Request("b", [2] * 4, 4, PARAMS, max_len=6, arrival=1))
    assert steps_alike(scheduler) == 0
