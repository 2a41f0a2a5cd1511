"""Groups of layers over one pool: each keeps what its layers read, and any may take any block."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.kv.kv_sizes import most_blocks_of
from headrace.engine.kv.prefix_tree import HOLLOW
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.engine.scheduling.scheduler import Scheduler, watermark_blocks
from headrace.models.layer_cache import CacheGroup, CacheLayout, LayerKV, cache_layout
from tests.engine.expected import answer
from tests.engine.mock import MockModel, collect, drain, make_core, submit
from tests.engine.plans import given

BLOCK = 16
GPT_OSS = cache_layout([LayerKV(8, 64, 128), LayerKV(8, 64)] * 12)
GEMMA2_9B = cache_layout([LayerKV(8, 256, 4096), LayerKV(8, 256)] * 21)
LLAMA4 = cache_layout(
    [LayerKV(8, 128, 8192 if i % 4 else 0, chunked=bool(i % 4)) for i in range(1, 49)]
)
GEMMA3_4B = cache_layout([LayerKV(4, 256, 1024 if i % 6 else 0) for i in range(1, 35)])


def one_group(layout: CacheLayout) -> CacheLayout:
    """The same layers, all of which keep everything: one block holds them all."""
    kept = [place for place in layout.places if place is not None]
    return cache_layout([LayerKV(place.num_kv_heads, place.head_dim) for place in kept])


def run_until_preempted(kv: KVCache, lengths: Sequence[tuple[int, int]]) -> tuple[float, int]:
    """The share of the pool that is owned just before the first preemption, and how many requests
    run then.
    """
    source = random.Random(5)
    scheduler = Scheduler(kv, max_num_batched_tokens=512, max_num_seqs=len(lengths))
    for number, (prompt, new) in enumerate(lengths):
        tokens = [source.randrange(1000) for _ in range(prompt)]
        scheduler.submit(
            Request(str(number), tokens, prompt, SamplingParams(), prompt + new, arrival=number)
        )
    for step in range(20_000):
        owned, running = kv.num_owned, len(scheduler.running)
        plan = scheduler.schedule(float(step))
        if plan.num_preempted:
            return owned / kv.num_blocks, running
        assert plan.rows, "all of them ended before the pool was full"
        scheduler.complete(
            plan, given([5 if row.samples else None for row in plan.rows]), float(step)
        )
        if step % 50 == 0:
            kv.check(scheduler.running)
    raise AssertionError("nobody was preempted")


def mixed_lengths(short: int = 64, long: int = 4) -> list[tuple[int, int]]:
    source = random.Random(2)
    made = [(source.randint(200, 500), 4000) for _ in range(short)]
    made += [(source.randint(6000, 8000), 4000) for _ in range(long)]
    source.shuffle(made)
    return made


@pytest.mark.long
@pytest.mark.parametrize("layout", [GPT_OSS, GEMMA3_4B], ids=["gpt-oss", "gemma3"])
@pytest.mark.parametrize("caching", [True, False])
def test_short_and_long_requests_fill_the_pool_before_the_first_preemption(
    layout: CacheLayout, caching: bool
) -> None:
    """64 short and 4 long ones."""
    kv = KVCache(
        4500 * layout.num_tables,
        BLOCK,
        prefix_caching=caching,
        groups=layout.groups,
        max_step_tokens=512,
    )
    share, running = run_until_preempted(kv, mixed_lengths())
    assert running == 68
    assert share >= 0.95


def test_the_same_memory_serves_more_requests_than_without_groups() -> None:
    def running(layout: CacheLayout) -> int:
        # As many bytes: blocks of all layers are larger.
        num_blocks = 800 * layout.num_tables
        kv = KVCache(num_blocks, BLOCK, groups=layout.groups, max_step_tokens=512)
        return run_until_preempted(kv, [(1900, 4000)] * 64)[1]

    assert running(GPT_OSS) > 1.6 * running(one_group(GPT_OSS))


def held_bytes(layout: CacheLayout, num_tokens: int) -> int:
    """Bytes that a request of that length holds at most, in bf16 and with the default steps."""
    block_bytes = layout.spec(32, 1, "bf16", "bf16").block_bytes
    return block_bytes * most_blocks_of(layout.groups, num_tokens, 32, 512)


def test_the_bytes_of_a_long_request_are_those_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "engine.md").read_text()
    for name, layout in (
        ("Gemma 2 9B", GEMMA2_9B),
        ("Gemma 3 4B", GEMMA3_4B),
        ("gpt-oss 20B", GPT_OSS),
        ("Llama 4 Scout", LLAMA4),
    ):
        row = re.search(
            rf"^\| {name} \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| (\d+) % \|", page, re.MULTILINE
        )
        assert row is not None, f"{name} is not on the page"
        length, before, after, share = (int(value.replace(",", "")) for value in row.groups())
        assert before == held_bytes(one_group(layout), length)
        assert after == held_bytes(layout, length)
        assert share == round(100 * after / before)
    assert held_bytes(one_group(GPT_OSS), 32_768) == 24 * 2 * 8 * 64 * 2 * 32_768


@pytest.mark.parametrize("caching", [True, False])
def test_a_long_request_holds_of_each_group_what_its_layers_read(caching: bool) -> None:
    windows = (40, 0, 40)
    model = MockModel(windows=windows)
    core = make_core(
        model,
        num_gpu_blocks_override=120,
        max_num_batched_tokens=32,
        enable_prefix_caching=caching,
    )
    full, local = 1, 0
    core.submit(submit("long", [i % 30 for i in range(400)], max_tokens=60))
    most = {"full": 0, "window_40": 0}
    while core.has_work:
        core.step()
        core.check()
        now = core.stats()
        owned = now.group_blocks
        assert sum(owned.values()) == now.blocks_owned
        assert sum(now.group_cached.values()) == now.blocks_cached
        assert now.blocks_free + now.blocks_cached + now.blocks_owned == now.blocks_total
        most = {name: max(most[name], owned[name]) for name in owned}
        for request in core.scheduler.running:
            dropped = [table.num_dropped for table in request.tables]
            assert dropped[full] == 0
            first_seen = max(0, request.num_computed + 1 - 40) // BLOCK
            assert first_seen - 1 <= dropped[local] <= first_seen
    assert most["full"] == 29
    # 40 seen and 32 computed, and the two blocks at the ends; in two tables.
    assert most["window_40"] <= 2 * 7


def test_a_prefix_is_of_use_as_far_as_every_group_has_it() -> None:
    model = MockModel(windows=(0, 40))
    core = make_core(model, num_gpu_blocks_override=40, max_num_batched_tokens=32)
    prompt = [i % 37 for i in range(200)]
    core.submit(submit("first", prompt, max_tokens=1))
    results = drain(core)
    model.computed.clear()
    longer, middle = [*prompt, 1, 2, 3], [*prompt[:100], 39]
    core.submit(submit("again", longer, max_tokens=3))
    collect_all(core, results)
    assert min(position for position, _ in model.computed) == 200
    # The oldest blocks are those that lay before the window; they go, and what is left of the
    # nodes has the part of the other group only.
    for number in range(1, 13):
        request = submit(f"other {number}", [number] * 30, max_tokens=1)
        core.submit(request)
        collect_all(core, results)
        if hollow(core.kv) >= 6:
            break
    assert hollow(core.kv) >= 6
    model.computed.clear()
    core.submit(submit("middle", middle, max_tokens=3))
    collect_all(core, results)
    assert min(position for position, _ in model.computed) == 0, "no window is there in the middle"
    assert "evicted" in (results["middle"].outputs[0].cache_miss or "")
    model.computed.clear()
    core.submit(submit("middle again", middle, max_tokens=3))
    collect_all(core, results)
    assert min(position for position, _ in model.computed) == 100, "hollow parts were filled"
    for name, tokens in (("again", longer), ("middle", middle), ("middle again", middle)):
        expected = answer(submit(name, tokens, max_tokens=3), windows=model.windows)
        assert results[name].token_ids == expected[0]


def test_hollow_blocks_are_computed_once_for_all_who_wait_for_them() -> None:
    model = MockModel(windows=(0, 40))
    core = make_core(model, num_gpu_blocks_override=80, max_num_batched_tokens=32)
    prompt = [i % 37 for i in range(200)]
    core.submit(submit("first", prompt, max_tokens=1))
    results = drain(core)
    # What lies before the window goes; the blocks that see everything stay.
    cached = core.kv._tree.cached
    window = [part for part in cached if part.group == 1 and not part.node.is_tail]
    for part in window[:11]:
        cached.move_to_end(part, last=False)
    for _ in range(11):
        core.kv._free.extend(core.kv._tree.evict())
    core.check()
    assert hollow(core.kv) == 11
    model.computed.clear()
    requests = [submit(str(i), [*prompt[:160], i], max_tokens=3) for i in range(4)]
    for request in requests:
        core.submit(request)
    collect_all(core, results)
    counts = Counter(position for position, _ in model.computed)
    assert all(counts[position] == 1 for position in range(160))
    for request in requests:
        expected = answer(request, windows=model.windows)
        assert results[request.request_id].token_ids == expected[0]


def test_what_an_output_has_left_behind_goes_before_what_prefixes_are_found_by() -> None:
    model = MockModel(windows=(0, 40))
    core = make_core(model, num_gpu_blocks_override=60, max_num_batched_tokens=64)
    shared = [i % 37 for i in range(96)]
    core.submit(submit("shared", shared, max_tokens=0))
    results = drain(core)
    core.submit(submit("long", [38, 39], max_tokens=500, seed=2))
    collect_all(core, results)
    model.computed.clear()
    core.submit(submit("again", [*shared, 1, 2]))
    collect_all(core, results)
    assert results["again"].outputs[0].cached_tokens == 96


def test_the_watermark_is_of_all_tables() -> None:
    groups = [CacheGroup(0, (0,), 1), CacheGroup(8, (1, 2, 3), 3)]
    kv = KVCache(240, 4, groups=groups, max_step_tokens=16)
    assert watermark_blocks(kv) == 4, "of each table one"
    assert watermark_blocks(KVCache(1000, 4, groups=groups, max_step_tokens=16)) == 8
    assert watermark_blocks(KVCache(240, 4)) == 2


def collect_all(core, results) -> None:  # type: ignore[no-untyped-def]
    while core.has_work:
        collect(results, core.step())
        core.check()


def hollow(kv: KVCache) -> int:
    """Parts of the tree without blocks."""
    return sum(part.blocks == HOLLOW for node in kv._tree.nodes() for part in node.parts)


def grown(kv: KVCache, request: Request, num_tokens: int) -> None:
    """Let `request` in and compute so many of its tokens."""
    assert kv.admit(request, kv.find(request), num_tokens, 0)
    while request.num_computed < num_tokens:
        assert kv.grow(request)
        request.num_computed = min(num_tokens, request.num_computed + 16)
        kv.commit(request)


def test_a_block_of_any_group_serves_any_other() -> None:
    """A pool that one group has filled and let go is taken by the other."""
    groups = [CacheGroup(0, (0,), 1), CacheGroup(8, (1, 2, 3), 3)]
    kv = KVCache(64, 4, groups=groups, max_step_tokens=16)
    assert kv.most_blocks(1000) == 250 + 3 * 8
    served: list[set[int]] = [set(), set()]
    for number in range(20):
        request = Request(str(number), [number] * 100, 100, SamplingParams(), 120)
        grown(kv, request, 100)
        kv.check([request])
        for blocks, table in zip(served, request.tables, strict=True):
            blocks.update(block for entry in table.blocks[table.num_dropped :] for block in entry)
        kv.release(request)
        kv.check([])
    assert len(served[0] & served[1]) > 32


def test_what_a_request_gives_back_is_what_it_gains() -> None:
    """Of a prefix that is cached further than it goes, what lies before the window is a gain."""
    groups = [CacheGroup(0, (0,), 1), CacheGroup(8, (1, 2), 2)]
    kv = KVCache(200, 4, groups=groups, max_step_tokens=16)
    tokens = list(range(60))
    first = Request("first", tokens, 60, SamplingParams(), 70)
    grown(kv, first, 60)
    kv.release(first)
    running = Request("running", [*tokens[:24], *range(100, 130)], 54, SamplingParams(), 60)
    assert kv.admit(running, kv.find(running), 54, 0)
    again = Request("again", [*tokens, 1], 61, SamplingParams(), 70)
    match = kv.find(again)
    missing = kv.missing(match, 61, 0)
    (gained,) = kv.gains([running], match)
    kv.release(running)
    assert missing - kv.missing(match, 61, 0) == gained
