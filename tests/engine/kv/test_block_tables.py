"""Arrays of block tables kept over steps are what writing every table whole in each step gives."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from headrace.engine.kv.block_tables import BlockTables
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.kv.kv_sizes import most_blocks_of
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.engine.scheduling.scheduler import Scheduler
from headrace.models.layer_cache import CacheGroup
from tests.engine.plans import given

GROUPS = [
    (CacheGroup(0, (0,), 1),),
    (CacheGroup(0, (0, 1, 2), 3),),
    (CacheGroup(9, (0,), 1),),
    (CacheGroup(9, (0, 1, 2, 3, 4), 5), CacheGroup(0, (5,), 1), CacheGroup(30, (6, 7), 2)),
]


def check_tables(
    tables: Sequence[np.ndarray], requests: Sequence[Request], groups: Sequence[CacheGroup]
) -> None:
    """Hold every table against the blocks of the requests, written whole."""
    of_groups = [
        (number, at) for number, group in enumerate(groups) for at in range(group.num_tables)
    ]
    assert len(tables) == len(of_groups)
    for table, (number, at) in zip(tables, of_groups, strict=True):
        expected = np.zeros_like(table)
        for row, request in enumerate(requests):
            blocks = [entry[at] for entry in request.tables[number].blocks]
            expected[row, : len(blocks)] = blocks
        assert (table.dtype, table.flags.c_contiguous) == (np.int32, True)
        assert np.array_equal(table, expected)


@pytest.mark.parametrize("groups", GROUPS, ids=["one", "three tables", "window", "three groups"])
@pytest.mark.parametrize("seed", range(4))
def test_kept_arrays_are_those_written_whole(groups: tuple[CacheGroup, ...], seed: int) -> None:
    """Requests come, go, are preempted, take each other's slots and let blocks of windows go."""
    rng = random.Random(seed)
    num_blocks = most_blocks_of(groups, 100, 4, 16) * 3 // 2
    kv = KVCache(num_blocks, 4, prefix_caching=seed % 2 == 0, groups=groups, max_step_tokens=16)
    scheduler = Scheduler(kv, max_num_batched_tokens=16, max_num_seqs=6)
    tables = BlockTables(groups)
    preempted = 0
    for step in range(300):
        if rng.random() < 0.2:
            tokens = [rng.choice((1, 2))] * rng.choice((3, 8, 20)) + [step] * rng.randint(1, 20)
            length = len(tokens) + rng.randint(1, 60)
            scheduler.submit(
                Request(str(step), tokens, len(tokens), SamplingParams(), length, arrival=step)
            )
        if scheduler.running and rng.random() < 0.05:
            scheduler.finish(rng.choice(scheduler.running), "abort")
        plan = scheduler.schedule(float(step))
        preempted += plan.num_preempted
        requests = [row.request for row in plan.rows]
        if not requests:
            continue
        check_tables(tables.of(requests), requests, groups)
        if rng.random() < 0.1:  # as where a step failed: each row alone
            for request in requests:
                check_tables(tables.of([request]), [request], groups)
        drawn = [rng.randrange(40) if row.samples else None for row in plan.rows]
        scheduler.complete(plan, given(drawn), float(step))
    assert preempted or all(group.window for group in groups), "windows alone do not grow"


def test_a_step_that_changes_nothing_gives_the_same_arrays() -> None:
    kv = KVCache(40, 16)
    scheduler = Scheduler(kv, max_num_batched_tokens=64, max_num_seqs=6)
    tables = BlockTables(kv.groups)
    for number in range(3):
        scheduler.submit(
            Request(str(number), [number] * 5, 5, SamplingParams(), 30, arrival=number)
        )
    found = []
    for step in range(8):
        plan = scheduler.schedule(float(step))
        found.append(tables.of([row.request for row in plan.rows])[0])
        scheduler.complete(plan, given([7] * 3), float(step))
    assert all(table is found[0] for table in found)
