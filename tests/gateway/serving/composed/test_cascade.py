"""Models asked one after another until an answer is good enough."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import completion, fails, reply
from tests.gateway.serving.composed.models import (
    COST_NUSD,
    asked,
    cascade,
    late,
    model_of,
    says,
    settings,
    sure,
)
from tests.gateway.upstream.scripted import served

CHAT = {"model": "auto", "messages": [{"role": "user", "content": "What is 2+2?"}]}
BY_RULES = cascade("small", "strong", by="rules")
BY_LOGPROBS = cascade("small", "medium", "strong", by="logprobs", threshold=0.7)


def lines(entries: list[Entry]) -> list[tuple[str, str, str | None, int | None]]:
    return [(one.purpose, one.parent, one.target, one.cost_nusd) for one in entries]


async def test_a_good_answer_of_the_first_stage_is_told_and_nobody_else_asked() -> None:
    entries: list[Entry] = []
    async with served(says(small="Four.")) as provider:
        built = gateway(settings(provider.origin, BY_RULES), entries)
        told = await ask(built.app, CHAT)
        assert told.status == 200 and told.json["choices"][0]["message"]["content"] == "Four."
        assert told.headers["x-headrace-model"] == "small"
        assert told.headers["x-headrace-route"] == "small: rules hold"
        assert told.headers["x-headrace-cost-usd"] == f"0.{COST_NUSD['small']:09d}"
    assert lines(entries) == [("", "", "a/small", COST_NUSD["small"])]
    assert built.router.routes["small"].targets[0].health.in_flight == 0


async def test_an_unsure_answer_goes_on_and_is_billed_beside_the_one_told() -> None:
    entries: list[Entry] = []
    answer = says(small=sure("Five maybe", 0.4), medium=sure("Four maybe", 0.6), strong="Four.")
    async with served(answer) as provider:
        built = gateway(settings(provider.origin, BY_LOGPROBS), entries)
        told = await ask(built.app, CHAT)
        assert told.json["choices"][0]["message"]["content"] == "Four."
        assert told.headers["x-headrace-route"] == (
            "small: logprobs 0.4 < 0.7; medium: logprobs 0.6 < 0.7"
        )
        assert asked(provider.requests, model_of) == ["small", "medium", "strong"]
        assert asked(provider.requests, lambda body: body.get("logprobs")) == [True, True, None]
        paid = sum(COST_NUSD[one] for one in ("small", "medium", "strong"))
        assert told.headers["x-headrace-cost-usd"] == f"0.{paid:09d}"
    assert lines(entries) == [
        ("", "", "a/strong", COST_NUSD["strong"]),
        ("stage", entries[0].id, "a/small", COST_NUSD["small"]),
        ("stage", entries[0].id, "a/medium", COST_NUSD["medium"]),
    ]
    assert entries[0].model == "auto" and entries[1].model == "small"


async def test_what_a_provider_does_besides_an_answer_is_done_once() -> None:
    entries: list[Entry] = []
    async with served(says(small="I don't know.", strong="Four.")) as provider:
        built = gateway(settings(provider.origin, BY_RULES), entries)
        told = await ask(built.app, {**CHAT, "web_search_options": {"a": 1}})
        assert told.headers["x-headrace-route"] == "strong: it acts, so it must not be sent twice"
        assert asked(provider.requests, model_of) == ["strong"]


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_stay_hidden_from_who_did_not_ask(stream: bool) -> None:
    async with served(says(small=sure("Four it is", 0.9))) as provider:
        built = gateway(settings(provider.origin, BY_LOGPROBS), [])
        told = await ask(built.app, {**CHAT, "stream": stream})
        assert b"Four it is" in told.body and b'"logprob"' not in told.body
        told = await ask(built.app, {**CHAT, "stream": stream, "logprobs": True})
        assert b'"logprob"' in told.body


async def test_a_held_back_stream_ends_as_its_dialect_says() -> None:
    entries: list[Entry] = []
    async with served(says(small=sure("Four it is", 0.9))) as provider:
        built = gateway(settings(provider.origin, BY_LOGPROBS), entries)
        body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
        told = await ask(built.app, body)
        assert told.headers["content-type"].startswith("text/event-stream")
        assert told.body.endswith(b"data: [DONE]\n\n") and b'"prompt_tokens":12' in told.body
        assert asked(provider.requests, lambda sent: sent.get("stream")) == [False]
    assert entries[0].stream and entries[0].usage_from == "provider"


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/messages", {"max_tokens": 50}, b"message_stop"),
        ("/v1/responses", {"input": "What is 2+2?", "messages": None}, b"response.completed"),
        ("/api/chat", {}, b'"done":true'),
    ],
)
async def test_other_dialects_are_held_back_and_told_too(
    path: str, body: dict[str, Any], said: bytes
) -> None:
    asked_for = {name: one for name, one in {**CHAT, **body, "stream": True}.items() if one}
    async with served(says(small=sure("Four it is", 0.9))) as provider:
        built = gateway(settings(provider.origin, BY_LOGPROBS), [])
        told = await ask(built.app, asked_for, path=path)
        assert told.status == 200, told.body
        assert b"Four it is" in told.body and said in told.body and b'logprob"' not in told.body
        assert told.headers["x-headrace-route"] == "small: logprobs 0.9 >= 0.7"


async def test_a_stage_that_fails_or_is_slow_goes_on_to_the_next() -> None:
    entries: list[Entry] = []
    models = cascade({"model": "small", "timeout_s": 0.5}, "medium", "strong", by="rules")
    async with served(
        says(small=late(5.0, fails(500)), medium=fails(503), strong="Four.")
    ) as provider:
        built = gateway(settings(provider.origin, models), entries)
        told = await ask(built.app, CHAT)
        assert told.json["choices"][0]["message"]["content"] == "Four."
        assert told.headers["x-headrace-route"] == ("small: no answer in 0.5 s; medium: no answer")
    assert [(one.purpose, one.target, one.usage_from) for one in entries] == [
        ("", "a/strong", "provider"), ("stage", "a/small", "estimated"),
    ]  # fmt: skip
    assert [one.target for one in entries[0].attempts] == ["a/medium", "a/strong"]
    assert entries[1].cost_nusd is not None and entries[1].cost_nusd > 0


async def test_the_last_one_failing_is_a_failure_that_bills_the_stages() -> None:
    entries: list[Entry] = []
    async with served(says(small="I cannot help with that.", strong=fails(500))) as provider:
        built = gateway(settings(provider.origin, BY_RULES), entries)
        told = await ask(built.app, CHAT)
        assert told.status == 502
    assert [(one.purpose, one.outcome) for one in entries] == [
        ("", "failed"), ("stage", "answered"),
    ]  # fmt: skip
    assert entries[1].cost_nusd == COST_NUSD["small"]


async def test_a_judge_decides_and_is_billed_as_one() -> None:
    entries: list[Entry] = []
    models = cascade("small", "strong", by="judge", threshold=6, judge={"model": "judge"})
    points = iter(["I give it 3/10", "9"])

    async def judge(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, completion(next(points), "judge")))

    async with served(says(small="Four.", strong="It is four.", judge=judge)) as provider:
        built = gateway(settings(provider.origin, models), entries)
        first, second = await ask(built.app, CHAT), await ask(built.app, CHAT)
        assert first.headers["x-headrace-route"] == "small: judge 3 < 6"
        assert second.headers["x-headrace-route"] == "small: judge 9 >= 6"
        question = json.loads(provider.requests[1].partition(b"\r\n\r\n")[2])
        assert "What is 2+2?" in question["messages"][1]["content"]
        assert "Four." in question["messages"][1]["content"] and question["max_tokens"] == 8
    assert [(one.purpose, one.target) for one in entries] == [
        ("", "a/strong"), ("judge", "a/judge"), ("stage", "a/small"),
        ("", "a/small"), ("judge", "a/judge"),
    ]  # fmt: skip
    assert entries[1].cost_nusd == COST_NUSD["judge"]


async def test_a_judge_needs_no_room_for_what_the_client_allows() -> None:
    judge = {"targets": [{"model": "a/judge", "context_tokens": 16_000}]}
    models = cascade("small", "strong", by="judge", judge={"model": "judge"})
    words = [{"role": "user", "content": "river " * 17_000}]
    async with served(says(small="Four.", strong="Four.", judge="9")) as provider:
        built = gateway(settings(provider.origin, models | {"judge": judge}), [])
        told = await ask(built.app, CHAT | {"messages": words, "max_tokens": 20_000})
        assert told.headers["x-headrace-route"] == "small: judge 9 >= 7"


async def test_a_judge_that_counts_nothing_is_billed_by_the_bytes_it_was_asked() -> None:
    entries: list[Entry] = []
    models = cascade("small", "strong", by="judge", judge={"model": "judge"})
    silent = {name: value for name, value in completion("9", "judge").items() if name != "usage"}

    async def judge(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, silent))

    async with served(says(small="四。", judge=judge)) as provider:
        built = gateway(settings(provider.origin, models), entries)
        told = await ask(built.app, CHAT | {"messages": [{"role": "user", "content": "二" * 2000}]})
        assert told.status == 200
    billed = {one.purpose: one.usage for one in entries}["judge"]
    assert billed is not None and billed.input_tokens >= 2000


@pytest.mark.parametrize(("on_error", "target"), [("escalate", "a/strong"), ("accept", "a/small")])
async def test_a_judge_without_a_word_leaves_it_to_on_error(on_error: str, target: str) -> None:
    entries: list[Entry] = []
    judge = {"model": "judge", "timeout_s": 0.1, "on_error": on_error}
    models = cascade("small", "strong", by="judge", judge=judge)
    async with served(
        says(small="Four.", strong="It is four.", judge=late(1.0, fails(500)))
    ) as provider:
        built = gateway(settings(provider.origin, models), entries)
        told = await ask(built.app, CHAT)
        assert "judge unknown" in told.headers["x-headrace-route"]
    assert entries[0].target == target


@pytest.mark.parametrize(("probability", "target"), [(0.8, "a/small"), (0.3, "a/strong")])
async def test_a_verifier_goes_by_the_probability_of_yes(probability: float, target: str) -> None:
    entries: list[Entry] = []
    models = cascade("small", "strong", by="verifier", judge={"model": "judge"})

    async def verifier(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        told = completion("yes", "judge")
        import math

        told["choices"][0]["logprobs"] = {"content": [{
            "token": "yes", "logprob": math.log(probability), "bytes": None,
            "top_logprobs": [
                {"token": "yes", "logprob": math.log(probability), "bytes": None},
                {"token": "No", "logprob": math.log(1 - probability), "bytes": None},
            ],
        }]}  # fmt: skip
        writer.write(reply(200, told))

    async with served(says(small="Four.", strong="It is four.", judge=verifier)) as provider:
        built = gateway(settings(provider.origin, models), entries)
        told = await ask(built.app, CHAT)
        assert f"verifier {probability:g}" in told.headers["x-headrace-route"]
    assert entries[0].target == target


async def test_a_client_that_goes_ends_the_stage_and_is_billed_for_what_was_done() -> None:
    entries: list[Entry] = []
    models = cascade("small", "medium", "strong", by="rules")
    async with served(says(small="I don't know.", medium=late(5.0, fails(500)))) as provider:
        built = gateway(settings(provider.origin, models), entries)
        await ask(
            built.app, {**CHAT, "stream": True}, goes_when=lambda: len(provider.requests) == 2
        )
    assert [(one.purpose, one.outcome) for one in entries] == [
        ("", "client_gone"), ("stage", "answered"), ("stage", "cut"),
    ]  # fmt: skip
    assert all(one.targets[0].health.in_flight == 0 for one in built.router.routes.values())


async def test_a_stream_that_waits_is_told_that_it_is_alive() -> None:
    entries: list[Entry] = []
    models = cascade("small", "strong", by="rules")
    models["auto"]["cascade"]["heartbeat_s"] = 0.03
    async with served(says(small=late(0.12, fails(500)), strong="Four it is.")) as provider:
        built = gateway(settings(provider.origin, models), entries)
        told = await ask(built.app, {**CHAT, "stream": True})
        assert told.status == 200 and told.body.startswith(b":")
        assert told.body.count(b"Four") == 1 and told.body.endswith(b"data: [DONE]\n\n")
        assert "x-request-id" in told.headers
    assert entries[0].outcome == "answered"


async def test_a_failure_after_a_heartbeat_is_told_within_the_stream() -> None:
    entries: list[Entry] = []
    models = cascade("small", "strong", by="rules")
    models["auto"]["cascade"]["heartbeat_s"] = 0.03
    async with served(says(small=late(0.1, fails(500)), strong=fails(500, "broken"))) as provider:
        built = gateway(settings(provider.origin, models), entries)
        told = await ask(built.app, {**CHAT, "stream": True})
        assert told.status == 200 and b'"error"' in told.body and b"broken" in told.body
    assert (entries[0].outcome, entries[0].status) == ("failed", 200)


async def test_the_answer_that_was_told_is_kept_by_the_cache() -> None:
    entries: list[Entry] = []
    async with served(says(small="I don't know.", strong="Four.")) as provider:
        cache = {"enabled": True, "models": ["auto"]}
        built = gateway(settings(provider.origin, BY_RULES, cache=cache), entries)
        body = {**CHAT, "temperature": 0}
        await ask(built.app, body)
        told = await ask(built.app, body)
        assert told.headers["x-headrace-cache"] == "hit"
        assert told.json["choices"][0]["message"]["content"] == "Four."
        assert len(provider.requests) == 2
    assert [one.cost_nusd for one in entries][-1] == 0
