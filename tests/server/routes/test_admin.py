"""Below /admin: open requests, their end, the prefix cache and the settings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace.config import EngineConfig, ServerConfig
from headrace.engine.messages import Output, Submit
from headrace.protocol.sse import SSEReader
from tests.server.conftest import Running
from tests.server.connections.raw import RawClient, post, until
from tests.server.mock_engine import MockEngine, output, says

Start = Callable[..., Running]
ADMIN = "sk-admin"
HEADERS = {"Authorization": f"Bearer {ADMIN}"}
CONFIG = ServerConfig(admin_api_key=ADMIN)


def open_requests(server: Running) -> list[dict[str, Any]]:
    reply = server.client.get("/admin/requests", headers=HEADERS)
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["requests"]
    return [one for one in found if one["endpoint"] != "/admin/requests"]


def cancel(server: Running, request_id: str) -> Any:
    return server.post("/admin/cancel", {"request_id": request_id}, headers=HEADERS)


async def waits_after_three(submit: Submit) -> AsyncIterator[Output]:
    for byte in b"abc":
        yield output(submit, [byte])
    await asyncio.sleep(60)
    yield output(submit, [])


async def waits(submit: Submit) -> AsyncIterator[Output]:
    await asyncio.sleep(60)
    yield output(submit, [])


def test_open_requests_are_listed(start: Start) -> None:
    engine = MockEngine(waits_after_three)
    server = start(engine, config=CONFIG)
    assert open_requests(server) == []
    with RawClient(server.url) as one, RawClient(server.url) as two:
        one.send(post("/v1/completions", {"prompt": "abcd", "max_tokens": 9}, "X-Request-Id: r1"))
        assert until(lambda: len(engine.submitted) == 1)
        two.send(
            post("/v1/chat/completions",
                 {"messages": [{"role": "user", "content": "x"}], "stream": True},
                 "X-Request-Id: r2")
        )  # fmt: skip
        two.until(b'"c"')
        first, second = open_requests(server)
        assert (first["request_id"], first["endpoint"]) == ("r1", "/v1/completions")
        assert first["prompt_tokens"] == 4
        assert first["stream"] is False
        assert second["request_id"] == "r2"
        assert second["stream"] is True
        for facts in (first, second):
            assert facts["state"] == "running"
            assert facts["output_tokens"] == 3
            assert 0 <= facts["age_s"] < 10
    assert until(lambda: open_requests(server) == [])
    assert len(engine.cancelled) == 2


def test_a_request_without_a_whole_body_is_being_prepared(start: Start) -> None:
    server = start(MockEngine(waits), config=CONFIG)
    with RawClient(server.url) as client:
        client.send(post("/v1/completions", {"prompt": "abcd"}, "X-Request-Id: r1")[:-3])
        assert until(lambda: len(open_requests(server)) == 1)
        (facts,) = open_requests(server)
        assert (facts["state"], facts["prompt_tokens"]) == ("preparing", 0)


@pytest.mark.parametrize("reply", [waits, waits_after_three], ids=["silent", "speaking"])
def test_cancelling_a_whole_reply_is_an_error_reply(start: Start, reply: Any) -> None:
    engine = MockEngine(reply)
    server = start(engine, config=CONFIG)
    with RawClient(server.url) as client, RawClient(server.url) as other:
        client.send(post("/v1/completions", {"prompt": ["x", "y"]}, "X-Request-Id: r1"))
        other.send(post("/v1/completions", {"prompt": "z"}, "X-Request-Id: r2"))
        assert until(lambda: len(engine.submitted) == 3)
        assert cancel(server, "r1").json() == {"cancelled": 1}
        answer = client.reply()
        assert (answer.status, answer.code) == (503, "cancelled")
        assert until(lambda: len(engine.cancelled) == 2)
        assert [one["request_id"] for one in open_requests(server)] == ["r2"]
        client.send(post("/tokenize", {"prompt": "x"}))
        assert client.reply().status == 200
    assert cancel(server, "r1").status_code == 404


@pytest.mark.parametrize("reply", [waits, waits_after_three], ids=["silent", "speaking"])
def test_cancelling_a_stream_is_its_last_event(start: Start, reply: Any) -> None:
    engine = MockEngine(reply)
    server = start(engine, config=CONFIG)
    with RawClient(server.url) as client:
        body = {"prompt": "x", "stream": True}
        client.send(post("/v1/completions", body, "X-Request-Id: r1"))
        assert until(lambda: len(engine.submitted) == 1)
        if reply is waits_after_three:
            client.received = client.until(b'"c"') + client.received
        assert cancel(server, "r1").json() == {"cancelled": 1}
        answer = client.reply()
        assert answer.status == 200
        events = [event.data for event in SSEReader().feed(answer.body)]
        assert '"code":"cancelled"' in events[-1]
        assert "[DONE]" not in events
        assert until(lambda: len(engine.cancelled) == 1)
        client.send(post("/tokenize", {"prompt": "x"}))
        assert client.reply().status == 200


def test_clients_with_the_same_id_are_ended_together(start: Start) -> None:
    engine = MockEngine(waits)
    server = start(engine, config=CONFIG)
    with RawClient(server.url) as one, RawClient(server.url) as two:
        for client in (one, two):
            client.send(post("/v1/completions", {"prompt": "x"}, "X-Request-Id: same"))
        assert until(lambda: len(engine.submitted) == 2)
        assert cancel(server, "same").json() == {"cancelled": 2}
        assert [one.reply().code, two.reply().code] == ["cancelled", "cancelled"]


def test_cancelling_at_any_moment_leaves_nothing(start: Start) -> None:
    """Many short requests, cancelled while they begin and end: each gets one proper reply."""
    engine = MockEngine(says("abcdef", delay_s=0.001))
    server = start(engine, config=CONFIG)
    end = threading.Event()

    def canceller() -> None:
        while not end.is_set():
            cancel(server, "r")

    thread = threading.Thread(target=canceller)
    thread.start()
    try:
        outcomes = set()
        with RawClient(server.url) as client:
            for number in range(60):
                stream = bool(number % 2)
                body = {"prompt": "x", "stream": stream}
                client.send(post("/v1/completions", body, "X-Request-Id: r"))
                answer = client.reply()
                ended = b"cancelled" in answer.body
                assert ended or b"[DONE]" in answer.body or not stream
                outcomes.add((stream, answer.status, ended))
    finally:
        end.set()
        thread.join()
    assert {status for _, status, ended in outcomes if not ended} <= {200}
    assert until(lambda: len(engine.finished) + len(engine.cancelled) == len(engine.submitted))
    assert open_requests(server) == []


def test_a_bad_cancel_is_refused(start: Start) -> None:
    server = start(MockEngine(says("x")), config=CONFIG)
    for body in ({}, {"request_id": 1}, []):
        assert server.post("/admin/cancel", body, headers=HEADERS).status_code == 400
    error = cancel(server, "none").json()["error"]
    assert (error["code"], error["param"]) == ("not_found", "request_id")


def test_the_prefix_cache_is_reset(start: Start) -> None:
    server = start(MockEngine(says("x")), config=CONFIG)
    reply = server.post("/admin/reset_prefix_cache", headers=HEADERS)
    assert reply.json() == {"blocks": 7}
    loading = start(MockEngine(says("x")), config=CONFIG, loaded=False)
    assert loading.post("/admin/reset_prefix_cache", headers=HEADERS).status_code == 503


def test_the_engine_is_restarted(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = start(engine, config=CONFIG)
    assert server.post("/admin/restart_engine").status_code == 401
    assert engine.restarted == []
    reply = server.post("/admin/restart_engine", headers=HEADERS)
    assert (reply.status_code, reply.json()["restarts"]) == (200, 0)
    assert engine.restarted == ["the server's administrator restarted the engine"]
    loading = start(MockEngine(says("x")), config=CONFIG, loaded=False)
    assert loading.post("/admin/restart_engine", headers=HEADERS).status_code == 503


def test_the_settings_are_shown_without_secrets(start: Start) -> None:
    config = ServerConfig(admin_api_key=ADMIN, api_key=("sk-1",), port=1234)
    server = start(MockEngine(says("x")), config=config)
    reply = server.client.get("/admin/settings", headers=HEADERS)
    assert reply.json()["engine"] is None
    server.state.engine_config = EngineConfig(model="m.gguf")
    reply = server.client.get("/admin/settings", headers=HEADERS)
    assert reply.json()["server"]["port"] == 1234
    assert reply.json()["server"]["api_key"] == ["********"]
    assert reply.json()["engine"]["model"] == "m.gguf"
    assert ADMIN not in reply.text
    assert "sk-1" not in reply.text
