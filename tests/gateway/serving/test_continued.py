"""Responses that go on from one that a provider stores: what it took is held, who has it asked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.building.gateway import Gateway
from headrace.gateway.routing.told_responses import UNKNOWN, ToldResponse, ToldResponses
from headrace.gateway.serving.demanded import demand_of
from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import reply
from tests.gateway.providers.test_responses_passed_on import RESPONSE, both
from tests.gateway.routing.parts import asking, route, router, target
from tests.gateway.test_accounts_of_the_file import KEY, SOURCES, accounts
from tests.gateway.upstream.scripted import Scripted, served

PRICE = {"input": 1.0, "output": 2.0}
LONG = {"input_tokens": 40_000, "output_tokens": 16, "total_tokens": 40_016}


class Stores:
    """A provider that knows its own responses alone, each of which took 40,000 tokens."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.answered = 0

    async def __call__(self, number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(request.partition(b"\r\n\r\n")[2])
        previous = asked.get("previous_response_id")
        if previous is not None and not previous.startswith(self.name):
            error = {
                "message": "not found",
                "type": "invalid_request_error",
                "param": "previous_response_id",
                "code": "previous_response_not_found",
            }
            writer.write(reply(400, {"error": error}))
            return
        self.answered += 1
        answer = {**RESPONSE, "id": f"{self.name}_{number}", "usage": LONG}
        writer.write(reply(200, answer))


def settings(*providers: Scripted, **target: Any) -> dict[str, Any]:
    targets = [{"model": f"p{at}/m", "price": PRICE, **target} for at, _ in enumerate(providers)]
    return {
        "providers": {
            f"p{at}": {
                "kind": "openai", "base_url": f"{one.origin}/v1", "api_key": "k", "responses": True
            }
            for at, one in enumerate(providers)
        },
        "models": {"m1": {"targets": targets}},
    }  # fmt: skip


async def respond(built: Gateway, **body: Any) -> Told:
    body = {"model": "m1", "input": "go on", "max_output_tokens": 16, **body}
    headers = {"authorization": f"Bearer {KEY}"}
    return await ask(built.app, body, path="/v1/responses", headers=headers)


@pytest.mark.parametrize("stored_ids", ["own", "any"])
async def test_what_the_earlier_one_took_is_held(stored_ids: str) -> None:
    stores = Stores("a")
    keys = {"alice": {"key": "env:KEY", "budgets": [{"usd": 0.13, "per": "1d"}]}}
    async with served(stores) as provider:
        config = {
            **settings(provider), "access": {"keys": keys, "stored_ids": stored_ids}
        }  # fmt: skip
        book = await accounts(config)
        built = gateway(config, [], accounts=book, environ=dict(SOURCES.environ))
        first = await respond(built)
        assert first.status == 200
        more = await asyncio.gather(
            *(respond(built, previous_response_id=first.json["id"]) for _ in range(10))
        )
        # 0.04 are spent, and each of them is held 0.04.
        assert sorted(one.status for one in more) == [200] * 2 + [429] * 8
        assert stores.answered == 3
        built.close()
        await book.close()


async def test_whoever_has_it_is_asked_first() -> None:
    async with served(Stores("a")) as one, served(Stores("b")) as other:
        built = gateway(settings(one, other), [])
        told_by = set()
        for _ in range(12):
            first = await respond(built)
            told_by.add(first.json["id"][0])
            more = await respond(built, previous_response_id=first.json["id"])
            assert more.status == 200
            assert more.json["id"][0] == first.json["id"][0]
        assert told_by == {"a", "b"}
        built.close()


class Falters(Stores):
    """It can be out of work for a while."""

    is_down = False

    async def __call__(self, number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        if self.is_down:
            writer.write(reply(503, {"error": {"message": "busy", "type": "server_error"}}))
        else:
            await super().__call__(number, request, writer)


async def first_of(built: Gateway, name: str) -> str:
    """The id of a response that it has."""
    for _ in range(100):
        told = await respond(built)
        if told.json["id"].startswith(name):
            return str(told.json["id"])
    raise AssertionError(f"{name} was never asked")


async def asked_after_a_restart(times: int, **more: Any) -> list[Told]:
    """What goes on from a response of one of two providers, where it is not known whose it is."""
    async with served(Stores("a")) as one, served(Stores("b")) as other:
        built = gateway(settings(one, other), [])
        response_id = await first_of(built, "a")
        built.close()
        anew = gateway(settings(one, other) | more, [])
        told = [await respond(anew, previous_response_id=response_id) for _ in range(times)]
        anew.close()
    return told


@pytest.mark.parametrize("breaker", [{}, {"breaker": {"min_attempts": 1, "cooldown_s": 30}}])
async def test_that_others_do_not_have_it_is_no_fault_of_the_clients(
    breaker: dict[str, Any],
) -> None:
    stores = Falters("a")
    async with served(stores) as one, served(Stores("b")) as other:
        config = settings(one, other) | {"retries": {"backoff_s": 0.001}}
        built = gateway({**config, **breaker}, [])
        response_id = await first_of(built, "a")
        stores.is_down = True
        for _ in range(2):
            told = await respond(built, previous_response_id=response_id)
            assert told.status == 503, told.body
        built.close()


async def test_who_has_it_is_found_where_that_is_not_known() -> None:
    assert [told.status for told in await asked_after_a_restart(6)] == [200] * 6


async def test_who_was_not_asked_may_have_it() -> None:
    told = await asked_after_a_restart(24, retries={"attempts": 1})
    assert {answer.status for answer in told} == {200, 404}
    missed = next(answer for answer in told if answer.status == 404)
    assert "1 more not tried" in missed.json["error"]["message"]


async def test_one_that_nobody_has_is_the_clients_own_fault() -> None:
    entries: list[Entry] = []
    async with served(Stores("a")) as one, served(Stores("b")) as other:
        built = gateway(settings(one, other), entries)
        told = await respond(built, previous_response_id="c_1")
        assert told.status == 400
        assert told.json["error"]["code"] == "previous_response_not_found"
        assert told.json["error"]["type"] == "invalid_request_error"
        assert (entries[0].outcome, entries[0].status) == ("refused", 400)
        built.close()


async def test_of_a_stream_its_end_counts() -> None:
    async with served(both) as provider:
        built = gateway(settings(provider), [])
        assert (await respond(built, stream=True)).status == 200
        found = built.router.told_responses.find("resp_1")
        assert found == ToldResponse("p0/m", 15)
        built.close()


async def test_what_is_not_stored_is_not_kept() -> None:
    async with served(both) as provider:
        built = gateway(settings(provider), [])
        assert (await respond(built, store=False)).status == 200
        assert len(built.router.told_responses) == 0
        built.close()


def test_whoever_has_it_goes_before_order_and_models() -> None:
    near, far, last = target("a/m"), target("b/m", order=1), target("c/m")
    made = router(route("m", near, far, fallbacks=("n",)), route("n", last))
    for has in ("b/m", "c/m"):
        ask = asking(continued=ToldResponse(has, 10))
        assert made.decide(ask, 0.0).candidates[0].target.name == has
    assert made.decide(asking(continued=UNKNOWN), 0.0).candidates[0].target is near


def test_of_one_that_nobody_knows_budgets_hold_a_whole_context() -> None:
    some = target("a/m", usd=(1.0, 0.0), context_tokens=8192)
    unknown = target("b/m", usd=(1.0, 0.0))
    candidates = router(route("m", some, unknown)).decide(asking(), 0.0).candidates

    def held_nusd(tokens: int) -> int:
        return tokens * 1000

    assert demand_of(asking(), candidates).most_cost_nusd == held_nusd(1000)
    demand = demand_of(asking(continued=UNKNOWN), candidates)
    assert demand.most_cost_nusd == held_nusd(8192)
    assert demand.input_tokens == 1000, "a limit of tokens a minute holds what is known"
    ask = asking(continued=ToldResponse("a/m", 10))
    assert demand_of(ask, candidates).most_cost_nusd == held_nusd(1000)
    of_unknown = [one for one in candidates if one.target is unknown]
    assert demand_of(asking(continued=UNKNOWN), of_unknown).most_cost_nusd == held_nusd(1000)


def test_the_oldest_is_forgotten() -> None:
    told = ToldResponses(most=2)
    for id in ("a", "b", "a", "c"):
        told.told(id, ToldResponse("t", 1))
    assert [told.find(id) for id in "ab"] == [ToldResponse("t", 1), UNKNOWN]
