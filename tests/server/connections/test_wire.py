"""HTTP itself: headers, errors, unknown paths, ids, and what happens when things go wrong."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import msgspec
import openai
import pytest

from headrace.config import ServerConfig
from headrace.engine.messages import Output, Submit
from headrace.errors import EngineDeadError
from headrace.http.headers import MAX_VALUE_CHARS, ignored_params
from headrace.protocol.sse import SSEReader
from tests.server.conftest import MODEL, Running
from tests.server.mock_engine import MockEngine, output, says

Start = Callable[..., Running]
MAX_BODY_BYTES = ServerConfig().max_body_bytes
CHAT = {"messages": [{"role": "user", "content": "x"}]}
POSTS = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", {"prompt": "x"}),
    ("/tokenize", {"prompt": "x"}),
    ("/detokenize", {"tokens": [120]}),
]
GETS = ["/v1/models", f"/v1/models/{MODEL}", "/health"]


def error_of(reply: httpx.Response, status: int) -> Any:
    """The error object of a reply; its shape is checked."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"]
    body = reply.json()
    assert list(body) == ["error"]
    is_length = body["error"]["code"] == "context_length_exceeded"
    numbers = ["n_prompt_tokens", "n_ctx"] if is_length else []
    assert list(body["error"]) == ["message", "type", "param", "code", *numbers]
    assert body["error"]["message"]
    assert "Traceback" not in reply.text
    return body["error"]


@pytest.fixture
def server(start: Start) -> Running:
    return start(MockEngine(says("größe 水")))


@pytest.mark.parametrize(("path", "body"), POSTS)
def test_json_is_utf8_without_escapes(server: Running, path: str, body: Any) -> None:
    reply = server.post(path, body)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    assert b"\\u" not in reply.content
    if "completions" in path:
        assert "größe 水".encode() in reply.content


@pytest.mark.parametrize(("path", "body"), POSTS[:2])
def test_headers_of_a_stream(server: Running, path: str, body: Any) -> None:
    reply = server.post(path, {**body, "stream": True, "zeta": 1})
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["x-accel-buffering"] == "no"
    assert reply.headers["x-ignored-params"] == "zeta"
    assert reply.headers["x-request-id"]
    assert "content-length" not in reply.headers
    assert b"\\u" not in reply.content
    assert reply.content.endswith(b"data: [DONE]\n\n")
    assert all(line.startswith("data: {") for line in reply.text.split("\n\n")[:-2])


@pytest.mark.parametrize(("path", "body"), POSTS)
def test_unknown_fields_are_named_in_a_header(server: Running, path: str, body: Any) -> None:
    reply = server.post(path, {**body, "zeta": 1, "alpha": [2], "ö ,\r\n": 3})
    assert reply.status_code == 200
    assert reply.headers["x-ignored-params"] == "?????,alpha,zeta"
    assert "x-ignored-params" not in server.post(path, body).headers


def test_unknown_fields_are_named_on_errors_too(server: Running) -> None:
    reply = server.post("/v1/completions", {"prompt": "x", "zeta": 1, "model": "other"})
    assert reply.status_code == 404
    assert reply.headers["x-ignored-params"] == "zeta"


def test_unknown_fields_are_logged_once(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            server.complete(zeta=1)
    assert sum("zeta" in record.message for record in caplog.records) == 1


def test_the_header_of_ignored_fields_is_bounded() -> None:
    value = ignored_params([f"field{i:04}" + "x" * 100 for i in range(500)])
    assert len(value) <= MAX_VALUE_CHARS + 4
    assert value.endswith(",...")
    assert value.startswith("field0000xxx")
    assert ignored_params(["b", "a", "b"]) == "a,b"
    assert ignored_params([""]) == "?"
    assert ignored_params([]) == ""


@pytest.mark.parametrize(("path", "body"), POSTS[:3])
def test_known_fields_that_cannot_be_honoured(server: Running, path: str, body: Any) -> None:
    field = {"mm_processor_kwargs": {"a": 1}} if "completions" not in path else {"user": 2}
    error = error_of(server.post(path, {**body, **field}), 400)
    assert error["param"] == next(iter(field))
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(("path", "body"), POSTS)
def test_a_request_id_is_echoed_or_made(server: Running, path: str, body: Any) -> None:
    given = server.post(path, body, headers={"X-Request-Id": "my-id_1"})
    assert given.headers["x-request-id"] == "my-id_1"
    for odd in ("a b", "x" * 129, "tab\there"):
        made = server.post(path, body, headers={"X-Request-Id": odd}).headers["x-request-id"]
        assert made != odd
        assert len(made) == 32
    first, second = (server.post(path, body).headers["x-request-id"] for _ in range(2))
    assert first != second


def test_the_same_request_id_twice_at_once(start: Start) -> None:
    """Ids of clients are labels: two requests may carry the same."""
    engine = MockEngine(says("x" * 5, delay_s=0.01))
    server = start(engine)

    async def both() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url, verify=False) as client:
            return await asyncio.gather(
                *(
                    client.post(
                        "/v1/completions", json={"prompt": "x"}, headers={"x-request-id": "1"}
                    )
                    for _ in range(4)
                )
            )

    assert [reply.status_code for reply in asyncio.run(both())] == [200] * 4
    assert len({submit.request_id for submit in engine.submitted}) == 4


@pytest.mark.parametrize(("path", "body"), POSTS)
def test_an_unknown_model(server: Running, path: str, body: Any) -> None:
    error = error_of(server.post(path, {**body, "model": "gpt-9"}), 404)
    assert error["code"] == "model_not_found"
    assert error["param"] == "model"
    assert "gpt-9" in error["message"]
    assert MODEL in error["message"]
    assert server.post(path, {**body, "model": "alias"}).status_code == 200


@pytest.mark.parametrize("path", ["/v2", "/v1/nothing", "/v1/completions/", "/doc", "/../x"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_unknown_paths(server: Running, method: str, path: str) -> None:
    error = error_of(server.client.request(method, path), 404)
    assert error["code"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", f"/v1/models/{MODEL}", "GET"),
        ("POST", "/health", "GET"),
        ("POST", "/", "GET"),
        ("DELETE", "/v1", "GET"),
        ("GET", "/chat/completions", "POST"),
        ("GET", "/tokenize", "POST"),
    ],
)
def test_wrong_methods(server: Running, method: str, path: str, allowed: str) -> None:
    reply = server.client.request(method, path)
    error = error_of(reply, 405)
    assert error["code"] == "method_not_allowed"
    assert allowed in reply.headers["allow"]
    assert allowed in error["message"]


@pytest.mark.parametrize("path", [*GETS, "/metrics"])
def test_head_is_get_without_a_body(server: Running, path: str) -> None:
    reply = server.client.head(path)
    assert reply.status_code == 200
    assert reply.content == b""
    got = server.client.get(path)
    assert reply.headers["content-type"] == got.headers["content-type"]


def test_head_of_unknown_paths(server: Running) -> None:
    assert server.client.head("/v1/nothing").status_code == 404
    assert server.client.head("/v1/completions").status_code == 405


def test_bodies_that_are_no_json(server: Running) -> None:
    for body in (b"", b"{", b"[1]", b'{"prompt": "\xff"}', b"[" * 100_000):
        headers = {"content-type": "application/json"}
        reply = server.client.post("/v1/completions", content=body, headers=headers)
        assert error_of(reply, 400)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("text/plain", 415),
        ("multipart/form-data; boundary=x", 415),
    ],
)
def test_content_types(server: Running, kind: str, status: int) -> None:
    reply = server.client.post(
        "/v1/completions", content=b'{"prompt": "x"}', headers={"content-type": kind}
    )
    assert reply.status_code == status
    if status != 200:
        assert "application/json" in error_of(reply, status)["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://elsewhere.example"}, 415),
        ({"origin": "null"}, 415),
        ({"sec-fetch-site": "cross-site"}, 415),
        ({"referer": "http://elsewhere.example/"}, 415),
        ({"origin": ""}, 415),
    ],
)
def test_what_curl_sends_without_a_type_is_json_but_from_a_browser(
    server: Running, headers: dict[str, str], status: int
) -> None:
    """`curl -d '{...}' URL`, as in Ollama's examples."""
    for kind in ({"content-type": "application/x-www-form-urlencoded"}, {}):
        for path in ("/v1/completions", "/api/generate"):
            body = json.dumps({"model": MODEL, "prompt": "x", "stream": False}).encode()
            reply = server.client.post(path, content=body, headers={**kind, **headers})
            assert reply.status_code == status


def test_large_bodies_are_refused(server: Running) -> None:
    headers = {"content-type": "application/json"}
    body = b'{"prompt": "' + b"x" * MAX_BODY_BYTES + b'"}'
    error = error_of(server.client.post("/v1/completions", content=body, headers=headers), 413)
    assert error["code"] == "body_too_large"
    assert str(MAX_BODY_BYTES) in error["message"]

    def pieces() -> Any:  # without a content-length
        for _ in range(MAX_BODY_BYTES // 2**20 + 2):
            yield b" " * 2**20

    reply = server.client.post("/v1/completions", content=pieces(), headers=headers)
    assert error_of(reply, 413)["code"] == "body_too_large"


def test_one_bad_request_ends_that_request_only(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        if submit.prompt_token_ids == [*b"bad"]:
            raise ZeroDivisionError("a secret of the server's")
        yield output(submit, [*b"good"], "length")

    server = start(MockEngine(reply))
    with caplog.at_level(logging.ERROR):
        failed = server.post("/v1/completions", {"prompt": "bad"}, headers={"x-request-id": "r7"})
    error = error_of(failed, 500)
    assert error["type"] == "server_error"
    assert "secret" not in failed.text
    assert "r7" in error["message"]
    assert any(record.exc_info and "r7" in record.message for record in caplog.records)
    assert server.complete(prompt="ok")["choices"][0]["text"] == "good"
    several = server.post("/v1/completions", {"prompt": ["ok", "bad", "ok"]})
    error_of(several, 500)


def test_a_request_the_engine_gives_up(start: Start) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield output(submit, [*b"ab"])
        yield Output(submit.request_id, [], finish_reason="error", error="block 7 is damaged")

    server = start(MockEngine(reply))
    error = error_of(server.post("/v1/completions", {"prompt": "x"}), 500)
    assert "block 7 is damaged" in error["message"]
    assert error["code"] == "generation_failed"


def test_a_request_that_the_engine_finds_at_fault_is_refused(start: Start) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield Output(
            submit.request_id, [], finish_reason="error", error="it is too complex",
            error_code="grammar_too_large",
        )  # fmt: skip

    error = error_of(start(MockEngine(reply)).post("/v1/completions", {"prompt": "x"}), 400)
    assert (error["message"], error["code"]) == ("it is too complex", "grammar_too_large")


@pytest.mark.parametrize(("path", "body"), POSTS[:2])
def test_a_stream_that_fails_ends_with_an_error_event(start: Start, path: str, body: Any) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield output(submit, [*b"ab"])
        yield Output(submit.request_id, [], finish_reason="error", error="block 7 is damaged")

    server = start(MockEngine(reply))
    whole = server.post(path, {**body, "stream": True})
    assert whole.status_code == 200
    events = [event.data for event in SSEReader().feed(whole.content)]
    assert "[DONE]" not in events
    last = msgspec.json.decode(events[-1])
    assert last["error"]["code"] == "generation_failed"
    assert "ab" in whole.text
    with pytest.raises(openai.APIError, match="block 7 is damaged"):
        list(server.openai.completions.create(model=MODEL, prompt="x", stream=True))


def test_an_engine_that_ends(start: Start) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield output(submit, [*b"ab"])
        raise EngineDeadError("the engine process ended with exit code -9 (SIGKILL)")

    engine = MockEngine(reply)
    server = start(engine)
    error = error_of(server.post("/v1/completions", {"prompt": "x"}), 503)
    assert error["code"] == "engine_dead"
    assert "SIGKILL" in error["message"]
    streamed = server.post("/v1/completions", {"prompt": "x", "stream": True})
    assert b'"code":"engine_dead"' in streamed.content
    engine.alive = False
    assert error_of(server.post("/v1/completions", {"prompt": "x"}), 503)["code"] == "engine_dead"
    assert server.client.get("/v1/models").status_code == 200


def test_an_engine_that_gives_up_everything(start: Start) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield output(submit, [*b"ab"], "abort")

    server = start(MockEngine(reply))
    assert error_of(server.post("/v1/completions", {"prompt": "x"}), 503)["code"] == "engine_dead"


def test_an_engine_that_stops_without_a_word(start: Start) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield output(submit, [*b"ab"])

    server = start(MockEngine(reply))
    assert error_of(server.post("/v1/completions", {"prompt": "x"}), 500)["type"] == "server_error"


@pytest.mark.parametrize(("path", "body"), POSTS)
def test_while_the_model_loads(start: Start, path: str, body: Any) -> None:
    server = start(MockEngine(says("x")), loaded=False)
    error = error_of(server.post(path, body), 503)
    assert error["code"] == "loading"
    assert server.post(path, {**body, "n": 2, "tools": [1]}).status_code in (400, 503)


@pytest.mark.parametrize("delay_s", [0.02, 0.15])
def test_keep_alive_comments_during_silence(start: Start, delay_s: float) -> None:
    server = start(
        MockEngine(says("abc", delay_s=delay_s)), config=ServerConfig(sse_keep_alive=0.1)
    )
    reply = server.post("/v1/completions", {"prompt": "x", "stream": True})
    assert (b"\n\n: keep-alive\n\n" in b"\n\n" + reply.content) == (delay_s > 0.1)
    texts = [event.data for event in SSEReader().feed(reply.content)]
    assert len(texts) == 5
    assert texts[-1] == "[DONE]"


def test_one_event_is_one_write(start: Start) -> None:
    """Each event goes out when its tokens come, not with a later one."""
    server = start(MockEngine(says("abc", delay_s=0.15)))
    body = {"prompt": "x", "stream": True}
    with server.client.stream("POST", "/v1/completions", json=body) as reply:
        chunks = list(reply.iter_raw())
    assert [chunk.count(b"data: ") for chunk in chunks[:3]] == [1, 1, 1]
