"""Metrics of hedges, shadows, variants and engines."""

from __future__ import annotations

import asyncio

from headrace.gateway.telemetry.telemetry import Telemetry
from tests.gateway.engines.scripted_engine import ScriptedEngine
from tests.gateway.harness import ask
from tests.gateway.hedging.slow import NEVER_S, after
from tests.gateway.openai_provider import answers, fails
from tests.gateway.telemetry.scraped import CHAT, samples, settings, told_by
from tests.gateway.upstream.scripted import served


async def test_hedges_and_copies_are_counted_and_go_on_with_another_configuration() -> None:
    telemetry = Telemetry()
    async with served(after(NEVER_S)) as slow, served(answers()) as quick:
        config = settings(slow.origin, quick.origin)
        config["models"]["chat"]["hedge"] = {"after_ms": 20, "share": 1.0}
        config["models"]["chat"]["shadow"] = {"target": "b/copy"}
        for _ in range(2):
            built = told_by(telemetry, config)
            assert (await ask(built.app, CHAT)).status == 200
            await built.drain(5)
            built.close()
        found = await samples(built)
    name = "headrace:gateway_hedges_total"
    assert found[f'{name}{{model="chat",outcome="started"}}'] == 2
    assert found[f'{name}{{model="chat",outcome="won"}}'] == 2
    name = "headrace:gateway_shadow_requests_total"
    assert found[f'{name}{{model="chat",outcome="answered"}}'] == 2
    name = "headrace:gateway_side_calls_total"
    assert found[f'{name}{{purpose="hedge",target="a/m0"}}'] == 2
    assert found[f'{name}{{purpose="shadow",target="b/copy"}}'] == 2
    requests = [value for name, value in found.items() if "gateway_requests_total" in name]
    assert sum(requests) == 2, "what was paid for besides is no request"


async def test_a_variant_that_is_taken_out_is_counted() -> None:
    async with served(answers()) as control, served(fails(500)) as new:
        config = settings(control.origin, new.origin)
        config["breaker"] = {"min_attempts": 1000}
        config["models"]["chat"] = {
            "variants": {
                "control": {"weight": 0, "targets": ["a/m0"]},
                "new": {"weight": 1, "targets": ["b/m1"]},
            },
            "rollback": {"error_share": 0.5, "window_requests": 5},
        }
        built = told_by(Telemetry(), config)
        for _ in range(6):
            await ask(built.app, CHAT)
        found = await samples(built)
    name = 'headrace:gateway_variants_ejected_total{model="chat",variant="new"}'
    assert found[name] == 1


async def test_readings_of_engines_are_counted() -> None:
    engine = ScriptedEngine()
    async with served(engine.served) as at:
        config = settings(at.origin)
        config["models"]["chat"]["strategy"] = "engine_load"
        built = told_by(Telemetry(), config)
        assert built.pollers is not None
        await built.pollers.read_all()
        engine.status = 500
        await asyncio.gather(built.pollers.read_all(), built.pollers.read_all())
        found = await samples(built)
    name = "headrace:gateway_engine_reads_total"
    assert found[f'{name}{{outcome="read",provider="a"}}'] == 1
    assert found[f'{name}{{outcome="failed",provider="a"}}'] == 2
