"""/metrics of a gateway: what requests leave in it, and that clients cannot make it grow."""

from __future__ import annotations

from headrace.gateway.serving.entry import Entry
from headrace.gateway.telemetry.telemetry import Telemetry
from tests.gateway.harness import ask, gateway
from tests.gateway.ledger.entries import entry
from tests.gateway.openai_provider import answers, fails
from tests.gateway.telemetry.scraped import CHAT, samples, settings, told_by
from tests.gateway.upstream.scripted import served

GEN_AI = (
    'gen_ai_operation_name="chat",gen_ai_original_model="chat",gen_ai_provider_name="b",'
    'gen_ai_request_model="m1"'
)


async def test_what_a_request_leaves() -> None:
    async with served(fails(500)) as bad, served(answers("one two")) as good:
        built = gateway(settings(bad.origin, good.origin), [])
        assert (await ask(built.app, CHAT)).status == 200
        assert (await ask(built.app, {**CHAT, "model": "gpt", "stream": True})).status == 200
        found = await samples(built)
    served_by = 'model="chat",outcome="answered",provider="b",status="200",target="b/m1"'
    assert found[f"headrace:gateway_requests_total{{{served_by}}}"] == 2
    assert found['headrace:gateway_attempts_total{target="a/m0"}'] == 2
    assert found['headrace:gateway_attempts_total{target="b/m1"}'] == 2
    assert found['headrace:gateway_attempt_failures_total{kind="server",target="a/m0"}'] == 2
    assert found['headrace:gateway_tokens_total{line="input",target="b/m1"}'] == 24
    assert found['headrace:gateway_tokens_total{line="output",target="b/m1"}'] == 6
    # 12 tokens at $1 and 3 at $2 per million, twice.
    assert found['headrace:gateway_cost_nanodollars_total{model="chat",target="b/m1"}'] == 36_000
    assert found['headrace:gateway_request_seconds_count{model="chat"}'] == 2
    assert found['headrace:gateway_time_to_first_token_seconds_count{model="chat"}'] == 2
    assert found["headrace:gateway_overhead_seconds_count"] == 2
    assert found[f"gen_ai_server_request_duration_count{{{GEN_AI}}}"] == 2
    assert found[f"gen_ai_server_time_to_first_token_count{{{GEN_AI}}}"] == 1, "of streams"
    tokens = f'{GEN_AI},gen_ai_token_type="input"'
    assert found[f"gen_ai_client_token_usage_sum{{{tokens}}}"] == 24
    assert found[f'gen_ai_client_token_usage_bucket{{{tokens},le="16.0"}}'] == 2
    path = 'endpoint="/v1/chat/completions",status="200"'
    assert found[f"headrace:http_requests_total{{{path}}}"] == 2


async def test_how_it_stands_at_the_scrape() -> None:
    async with served(fails(401)) as bad, served(answers()) as good:
        config = settings(bad.origin, good.origin)
        config["providers"]["a"]["api_key"] = ["env:ONE", "env:TWO"]
        built = gateway(config, [], environ={"ONE": "1", "TWO": "2"})
        assert (await ask(built.app, CHAT)).status == 200
        found = await samples(built)
    assert found["headrace:ready"] == 1 and found["headrace:gateway_in_flight"] == 0
    assert found['headrace:gateway_keys{provider="a",state="cooling_down"}'] == 2
    assert found['headrace:gateway_keys{provider="a",state="usable"}'] == 0
    assert found['headrace:gateway_connections{provider="b",state="idle"}'] == 1
    assert found['headrace:gateway_connections{provider="b",state="active"}'] == 0
    assert found['headrace:gateway_target_in_flight{target="b/m1"}'] == 0
    states = {
        state: found[f'headrace:gateway_breaker_state{{state="{state}",target="a/m0"}}']
        for state in ("closed", "open", "probing")
    }
    assert states == {"closed": 1, "open": 0, "probing": 0}, "a bad key blames no target"


async def test_a_breaker_that_opened_is_seen() -> None:
    async with served(fails(500)) as bad:
        config = settings(bad.origin, breaker={"min_attempts": 1}, retries={"attempts": 1})
        built = gateway(config, [])
        assert (await ask(built.app, CHAT)).status == 502
        found = await samples(built)
    assert found['headrace:gateway_breaker_state{state="open",target="a/m0"}'] == 1
    assert found["headrace:ready"] == 0


async def test_an_unknown_price_is_counted_and_costs_nothing() -> None:
    async with served(answers()) as provider:
        config = settings(provider.origin)
        config["models"]["chat"]["targets"] = ["a/m0"]
        built = gateway(config, [])
        await ask(built.app, CHAT)
        found = await samples(built)
    labels = '{model="chat",target="a/m0"}'
    assert found[f"headrace:gateway_cost_unknown_requests_total{labels}"] == 1
    assert f"headrace:gateway_cost_nanodollars_total{labels}" not in found


async def test_names_that_clients_invent_make_no_series() -> None:
    async with served(answers()) as provider:
        built = gateway(settings(provider.origin), [])
        await ask(built.app, CHAT)

        async def round_of(mark: str) -> None:
            await ask(built.app, {**CHAT, "model": f"{mark}-nobody"})
            await ask(built.app, {**CHAT, "model": f"a/{mark}"})
            await ask(built.app, {**CHAT, "model": f"a/{mark}", "stream": True})
            await ask(built.app, {**CHAT, "model": "chat:floor"})
            await ask(built.app, b"", path=f"/{mark}", method="GET")
            await ask(built.app, b"", path="/v1/models", method=mark.upper())

        await round_of("first")
        before = set(await samples(built))
        for at in range(20):
            await round_of(f"other{at}")
        found = await samples(built)
    # The first scrape is itself among what the next one counts.
    new = set(found) - before
    assert all('endpoint="/metrics"' in one for one in new), new
    mine = 'model="other",outcome="answered",provider="a",status="200",target="a/other"'
    assert found[f"headrace:gateway_requests_total{{{mine}}}"] == 42
    refused = 'model="other",outcome="refused",status="404"'
    assert found[f"headrace:gateway_requests_total{{{refused}}}"] == 21
    assert found['headrace:http_requests_total{endpoint="other",status="404"}'] == 21


async def test_cost_is_exact_where_floats_are_not() -> None:
    entries: list[Entry] = []
    async with served(answers()) as provider:
        built = gateway(settings(provider.origin), entries)
        for _ in range(30):
            await ask(built.app, CHAT)
        found = await samples(built)
    total = sum(one.cost_nusd or 0 for one in entries)
    name = 'headrace:gateway_cost_nanodollars_total{model="chat",target="a/m0"}'
    assert found[name] == total == 30 * 18_000
    assert found[name].is_integer()


async def test_what_is_refused_before_it_is_routed_is_counted_by_status() -> None:
    built = gateway(settings("http://127.0.0.1:9", listen={"max_body_bytes": 1024}), [])
    await ask(built.app, b"{")
    await ask(built.app, b" " * 5000)
    found = await samples(built)
    for status in (400, 413):
        labels = f'endpoint="/v1/chat/completions",status="{status}"'
        assert found[f"headrace:http_requests_total{{{labels}}}"] == 1


async def test_another_configuration_goes_on_counting_under_its_own_names() -> None:
    telemetry = Telemetry()
    async with served(answers()) as provider:
        first = told_by(telemetry, settings(provider.origin))
        await ask(first.app, CHAT)
        config = settings(provider.origin)
        config["models"]["talk"] = config["models"].pop("chat")
        second = told_by(telemetry, {**config, "aliases": {}})
        await ask(second.app, {**CHAT, "model": "talk"})
        await ask(second.app, CHAT)
        found = await samples(second)
    count = "headrace:gateway_request_seconds_count"
    assert found[f'{count}{{model="chat"}}'] == 1
    assert found[f'{count}{{model="talk"}}'] == 1
    assert found[f'{count}{{model="other"}}'] == 1, "the name is not the file's any more"


async def test_an_answer_paid_for_besides_is_no_request() -> None:
    built = gateway(settings("http://127.0.0.1:9"), [])
    built.serving.on_entry(entry(1, purpose="judge", parent="req-0", target="a/m0", provider="a"))
    found = await samples(built)
    assert found['headrace:gateway_side_calls_total{purpose="judge",target="a/m0"}'] == 1
    assert found['headrace:gateway_tokens_total{line="input",target="a/m0"}'] == 12
    assert not any(name.startswith("headrace:gateway_requests_total{") for name in found)
