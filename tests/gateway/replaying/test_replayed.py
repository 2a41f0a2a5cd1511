"""Logged requests sent once more: what is sent, what is refused, what is put beside each other."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.building.request_log import sides_of
from headrace.gateway.replaying.answer import difference, replayed, summaries
from headrace.gateway.replaying.logged_time import LoggedTime
from headrace.gateway.replaying.replay import (
    RefusedKeyError,
    ReplayError,
    Sent,
    poster,
    replay_body,
)
from headrace.gateway.request_log.record import LoggedBody, LogRecord
from tests.gateway.openai_provider import completion, fails
from tests.gateway.request_log.parts import record
from tests.gateway.upstream.scripted import served

ASKED = '{ "model" : "chat",\n "seed": 1.0, "stream":true, "x": {"a": [1e3]}, "stream_options": {}}'


def logged(text: str = ASKED, reply: str = "then", **more: Any) -> LogRecord:
    told = json.dumps(completion(reply))
    request = LoggedBody(text=text, bytes=len(text), **more)
    return record(1, request=request, reply=LoggedBody(text=told, bytes=len(told)))


def answer(text: str, status: int = 200, cost: int | None = 5) -> Sent:
    body = completion(text) if status == 200 else {"error": {"message": text}}
    return Sent(status, json.dumps(body).encode(), "b/m", cost, 30.0)


def test_nothing_changes_but_the_model_and_that_it_is_no_stream() -> None:
    assert replay_body(logged(), 'a "b"').decode() == (
        '{ "model" : "a \\"b\\"",\n "seed": 1.0, "stream":false, "x": {"a": [1e3]}}'
    )
    assert replay_body(logged('{"model":"chat"}'), "b") == b'{"model":"b","stream":false}'


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (record(1, request=None, without_bodies="zero_retention"), "not kept (zero_retention)"),
        (logged(cut=True), "was cut after"),
        (logged(redacted=2), "2 values of its body were redacted"),
        (logged("{not json"), "its body is not readable"),
        (record(1, dialect="none"), "dialect none are not readable"),
    ],
)
def test_what_cannot_be_sent(given: LogRecord, said: str) -> None:
    sent: list[bytes] = []

    def post(path: str, body: bytes, session: str) -> Sent:
        sent.append(body)
        return answer("now")

    with pytest.raises(ReplayError) as raised:
        replayed(given, ["a", "b"], post, sides_of)
    assert said in str(raised.value) and not sent


def test_answers_beside_each_other() -> None:
    sent: list[tuple[str, str, str]] = []
    told = iter([answer("then"), answer("now\nand more", cost=None), answer("no", status=429)])

    def post(path: str, body: bytes, session: str) -> Sent:
        sent.append((path, json.loads(body)["model"], session))
        return next(told)

    given = logged(redacted=1)
    one = replayed(given, ["a", "b", "c"], post, sides_of, even_if_redacted=True)
    session = f"replay:{given.line}"
    assert sent == [("/v1/chat/completions", name, session) for name in "abc"]
    assert one.redacted and one.then.text == "then" and one.then.cost_nusd == 18_000
    same, other, failed = one.now
    assert (same.text, same.target, same.input_tokens, same.output_tokens) == ("then", "b/m", 12, 3)
    assert difference(one.then, same) == []
    assert difference(one.then, other)[3:] == ["-then", "+now", "+and more"]
    assert not failed.answered and '"no"' in failed.text and failed.input_tokens is None
    then, *rest = summaries([one, one])
    assert (then.model, then.requests, then.same, then.cost_nusd) == ("then", 2, 2, 36_000)
    assert [(each.model, each.answered, each.same, each.unknown_cost) for each in rest] == [
        ("a", 2, 2, 0),
        ("b", 2, 0, 2),
        ("c", 0, 0, 0),
    ]
    assert summaries([]) == []


def test_calls_of_tools_are_lines() -> None:
    told = completion("look:")
    told["choices"][0]["message"]["tool_calls"] = [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    ]
    body = LoggedBody(text=json.dumps(told), bytes=1)
    given = record(1, request=LoggedBody(text=ASKED, bytes=1), reply=body)
    one = replayed(given, [], lambda path, body, session: answer(""), sides_of)
    assert one.then.text == 'look:\nf({"a":1})'


def test_times_are_those_of_the_log_which_is_waited_for_a_moment() -> None:
    slept: list[float] = []
    found = iter([None, None, record(7)])
    time = LoggedTime(lambda id: next(found), lambda: sum(slept), slept.append)
    assert time("7") == record(7).total_ms and len(slept) == 2
    slept.clear()
    missing = LoggedTime(lambda id: None, lambda: sum(slept), slept.append)
    assert [missing(str(one)) for one in range(100)] == [None] * 100
    assert sum(slept) < 6, "a log that has none of them is not waited for each time"


def test_a_gateway_that_is_not_there() -> None:
    for url in ("http://127.0.0.1:1", "nonsense"):
        with pytest.raises(ReplayError, match="the gateway is not reachable"):
            poster(url, "hr-secret", lambda id: None)("/v1/chat/completions", b"{}", "s")


@pytest.mark.parametrize(("key", "said"), [(None, "needs a key"), ("hr-x", "a key other than")])
async def test_a_gateway_that_asks_for_a_key(key: str | None, said: str) -> None:
    async with served(fails(401)) as there:
        post = poster(str(there.origin), key, lambda id: None)
        with pytest.raises(RefusedKeyError, match=said) as caught:
            await asyncio.to_thread(post, "/v1/chat/completions", b"{}", "s")
    assert str(caught.value).endswith(": --key env:NAME")
