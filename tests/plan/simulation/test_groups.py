"""A model with windows is simulated with the engine's own groups of layers: the same counts."""

from __future__ import annotations

import random

import pytest

from headrace.catalog import Catalog
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.engine.scheduling.scheduler import Scheduler
from headrace.models.layer_cache import LayerKV, cache_layout
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Storage as MemoryStorage
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.simulation.arrival import Arrival, PromptWriter, own_token
from headrace.plan.simulation.engine_of import engine_of, layout_of
from headrace.plan.simulation.service import Service
from headrace.plan.simulation.settings import EngineSettings
from headrace.plan.speed.replica import Replica, ReplicaChoice, replica_of
from tests.engine.plans import given
from tests.plan.simulation.services import engine, service

CATALOG = Catalog.load()
GPT_OSS = cache_layout([LayerKV(8, 64, 128), LayerKV(8, 64)] * 12)
PARAMS = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)


def requests_of(arrivals: list[Arrival]) -> list[Request]:
    writer = PromptWriter()
    found = []
    for number, arrival in enumerate(arrivals):
        tokens = writer.prompt(arrival, number)
        length = len(tokens) + arrival.output_tokens
        found.append(
            Request(str(number), tokens, len(tokens), PARAMS, max_len=length, arrival=number)
        )
    return found


def of_the_engine(settings: EngineSettings, arrivals: list[Arrival]) -> dict[str, int]:
    """What the engine's scheduler counts: the first request comes alone, the rest in its step."""
    kv = KVCache(
        settings.num_blocks,
        settings.block_size,
        prefix_caching=settings.prefix_caching,
        groups=GPT_OSS.groups,
        max_step_tokens=settings.max_num_batched_tokens,
    )
    scheduler = Scheduler(
        kv,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_seqs=settings.max_num_seqs,
    )
    first, *others = requests_of(arrivals)
    scheduler.submit(first)
    while scheduler.running or scheduler.waiting:
        plan = scheduler.schedule(0.0)
        while others:
            scheduler.submit(others.pop(0))
        tokens = [own_token(row.request.arrival) if row.samples else None for row in plan.rows]
        scheduler.complete(plan, given(tokens), 0.0)
    kv.check([])
    totals = scheduler.totals
    return {
        "steps": totals.steps,
        "generated": totals.generation_tokens,
        "computed": totals.computed_tokens,
        "preemptions": totals.preemptions.total(),
        "hits": totals.prefix_hits_tokens,
    }


def of_the_simulation(settings: EngineSettings, arrivals: list[Arrival]) -> dict[str, int]:
    run = Service(service(settings), arrivals).run()
    assert not run.refused
    replica = run.replicas[0]
    return {
        "steps": replica.steps,
        "generated": replica.generated_tokens,
        "computed": replica.computed_tokens,
        "preemptions": replica.preemptions,
        "hits": replica.hit_tokens,
    }


@pytest.mark.parametrize("caching", [True, False])
def test_windows_give_the_counts_of_the_engine(caching: bool) -> None:
    preemptions = hits = 0
    for seed in range(4):
        source = random.Random(seed)
        arrivals = [
            Arrival(
                0, source.choice((60, 300, 700)), source.choice((2, 80, 200)),
                shared=tuple(source.choice(((), (1,), (1, 2)))), shared_tokens=100,
            )
            for _ in range(16)
        ]  # fmt: skip
        settings = engine(
            groups=GPT_OSS.groups,
            num_blocks=source.choice((110, 140)),
            max_num_batched_tokens=source.choice((64, 256)),
            max_num_seqs=16,
            prefix_caching=caching,
        )
        found = of_the_simulation(settings, arrivals)
        assert found == of_the_engine(settings, arrivals)
        preemptions += found["preemptions"]
        hits += found["hits"]
    assert preemptions
    assert bool(hits) == caching


def replica(model: str) -> Replica:
    kind = kv_kind("BF16", CATALOG)
    storage = MemoryStorage(CATALOG.quantizations["mxfp4"], kind, kind)
    shape = shape_of_catalog(CATALOG.models[model])
    return replica_of(CATALOG, shape, storage, ReplicaChoice(hardware="h100"), None)


def test_a_model_s_groups_and_blocks_follow_from_what_its_layers_keep() -> None:
    one = replica("gpt-oss-20b")
    layout = layout_of(one.shape)
    assert layout is not None
    kept = {(group.window, len(group.layers), group.num_tables) for group in layout.groups}
    assert kept == {(group.window, len(group.layers), group.num_tables) for group in GPT_OSS.groups}
    made = engine_of(one, context_tokens=4000, max_num_seqs=64)
    assert made.groups == layout.groups
    block_bytes = layout.spec(16, 1, "bf16", "bf16").block_bytes
    assert made.num_blocks == int(one.memory(4000, 64).free_for_kv.value / block_bytes)
    assert made.kv_tokens == made.num_blocks // 2 * 16
    given = engine_of(one, context_tokens=4000, max_num_seqs=64, kv_tokens=64_000)
    assert (given.num_blocks, given.kv_tokens) == (8000, 64_000)
