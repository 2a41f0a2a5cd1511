"""The request log: one line per call, what is in it, and what never is."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import msgspec
import pytest

from headrace.config import ServerConfig
from headrace.engine.messages import Output, Submit
from headrace.server.observability import access_log
from headrace.server.observability.access_log import MAX_ID_CHARS, summary
from headrace.telemetry.call import CallRecord, Timeline
from headrace.telemetry.logs import CallFilter, LogFormat, formatter
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, output, says

Start = Callable[..., Running]

SECRET = "sk-very-secret-key"
PROMPT = "the quick brown prompt"


class Log:
    """What all loggers write, as a server that logs to stderr would."""

    def __init__(self, log_format: LogFormat) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(formatter(log_format))
        self.handler.addFilter(CallFilter())
        # The test's client logs what it sends, in the same process.
        self.handler.addFilter(lambda record: record.name.startswith(("headrace", "uvicorn")))

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def calls(self, count: int) -> list[dict[str, Any]]:
        """The lines of ended calls, once there are so many."""
        for _ in range(200):
            objects = [json.loads(line) for line in self.text.splitlines()]
            found = [one for one in objects if one["logger"] == "headrace.access"]
            if len(found) >= count:
                return found
            time.sleep(0.02)
        raise AssertionError(self.text)


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    """Everything from debug on; the format is the parameter, json where there is none."""
    opened = Log(getattr(request, "param", "json"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(opened.handler)
    root.setLevel(logging.DEBUG)
    yield opened
    root.setLevel(level)
    root.removeHandler(opened.handler)


LOGGED = ServerConfig(enable_log_requests=True)


def test_a_call(start: Start, log: Log) -> None:
    server = start(MockEngine(says("hello", cached_tokens=3)), config=LOGGED)
    reply = server.post(
        "/v1/completions", {"prompt": PROMPT, "max_tokens": 9}, headers={"x-request-id": "mine"}
    )
    (line,) = log.calls(1)
    assert line["message"] == "request ended"
    assert line["request_id"] == line["client_request_id"] == "mine"
    assert line["engine_id"].startswith("cmpl-") and reply.json()["id"] in line["engine_id"]
    assert (line["endpoint"], line["status"], line["stream"]) == ("/v1/completions", 200, False)
    usage = reply.json()["usage"]
    assert line["prompt_tokens"] == usage["prompt_tokens"]
    assert line["output_tokens"] == usage["completion_tokens"]
    assert (line["cached_tokens"], line["n"], line["finish_reason"]) == (3, 1, "stop")
    assert (line["queue_s"], line["preemptions"]) == (0.25, 0)
    assert 0 < line["ttft_s"] <= line["e2e_s"] < 20


def test_several_prompts_are_one_call(start: Start, log: Log) -> None:
    server = start(MockEngine(says("hello", cached_tokens=3)), config=LOGGED)
    body = {"prompt": ["ab", "cde"], "max_tokens": 4, "n": 2}
    usage = server.post("/v1/completions", body).json()["usage"]
    (line,) = log.calls(1)
    assert line["prompt_tokens"] == usage["prompt_tokens"]
    assert line["output_tokens"] == usage["completion_tokens"]
    assert (line["n"], line["finish_reason"]) == (2, "length")
    assert line["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"] == 6


def test_times_of_several_choices_are_the_longest_wait_and_the_first_token() -> None:
    choices = [
        Timeline(0.0, 4, 8, started_s=1.0, queue_s=0.5, first_token_s=3.0),
        Timeline(0.0, 4, 8, started_s=1.0, queue_s=0.75, first_token_s=2.0),
        Timeline(0.0, 4, 8, queue_s=9.0),  # never started
    ]
    record = CallRecord("r", "/v1/completions", 1.0, status=200, timelines=choices)
    line = summary(record, 4.0)
    assert (line["queue_s"], line["ttft_s"], line["e2e_s"]) == (0.75, 1.0, 3.0)


def test_long_ids_of_clients_are_cut(start: Start, log: Log) -> None:
    server = start(MockEngine(says("x")), config=LOGGED)
    server.post("/v1/completions", {"prompt": "x"}, headers={"x-request-id": "i" * 3000})
    (line,) = log.calls(1)
    assert line["client_request_id"] == "i" * MAX_ID_CHARS
    assert "i" * (MAX_ID_CHARS + 1) not in log.text


def test_a_stream_is_logged_when_it_has_ended(start: Start, log: Log) -> None:
    server = start(MockEngine(says("hello", delay_s=0.05)), config=LOGGED)
    with server.client.stream("POST", "/v1/completions", json={"prompt": "x", "stream": True}) as r:
        r.read()
    (line,) = log.calls(1)
    assert line["stream"] is True and line["e2e_s"] > 0.2
    assert line["output_tokens"] == 6


def test_a_refused_call_has_no_tokens(start: Start, log: Log) -> None:
    server = start(MockEngine(says("x")), config=LOGGED)
    server.post("/v1/completions", {"prompt": "x", "max_tokens": -1})
    (line,) = log.calls(1)
    assert line["status"] == 400
    assert "prompt_tokens" not in line and "finish_reason" not in line


def test_calls_without_the_key_are_logged(start: Start, log: Log) -> None:
    config = msgspec.structs.replace(LOGGED, api_key=("sk-1",))
    server = start(MockEngine(says("x")), config=config)
    wrong = {"Authorization": "Bearer sk-wrong", "X-Request-Id": "r1"}
    server.post("/v1/completions", {"prompt": "x"}, headers=wrong)
    server.client.get("/metrics")
    server.client.get("/nothing%0Ahere")
    server.client.get("/admin/settings")
    calls = log.calls(4)
    assert [(one["endpoint"], one["status"]) for one in calls] == [
        ("/v1/completions", 401), ("/metrics", 401), ("other", 401), ("/admin/settings", 403)
    ]  # fmt: skip
    assert "[request r1]" in log.text or '"r1"' in log.text
    assert "sk-" not in log.text


def test_refused_calls_are_not_logged_unless_asked(start: Start, log: Log) -> None:
    server = start(MockEngine(says("x")), config=ServerConfig(api_key=("sk-1",)))
    assert server.post("/v1/completions", {"prompt": "x"}).status_code == 401
    assert "request ended" not in log.text


def test_a_client_that_goes(start: Start, log: Log) -> None:
    server = start(MockEngine(says("hello", delay_s=30)), config=LOGGED)
    with pytest.raises(httpx.TimeoutException):
        server.post("/v1/completions", {"prompt": "x"}, timeout=0.2)
    (line,) = log.calls(1)
    assert (line["status"], line["finish_reason"]) == (499, "abort")


def test_gets_are_not_logged_and_off_is_off(start: Start, log: Log) -> None:
    server = start(MockEngine(says("hello")), config=LOGGED)
    server.client.get("/health")
    server.complete()
    assert len(log.calls(1)) == 1
    before = log.text
    off = start(MockEngine(says("hello")))
    off.complete()
    assert "headrace.access" not in log.text[len(before) :]


@pytest.mark.parametrize("config", [LOGGED, ServerConfig()])
def test_no_words_of_people_and_no_secrets(start: Start, log: Log, config: ServerConfig) -> None:
    server = start(MockEngine(says("sesame")), config=config)
    server.chat(messages=[{"role": "user", "content": PROMPT}])
    headers = {"authorization": f"Bearer {SECRET}"}
    server.post("/v1/completions", {"prompt": PROMPT, "nonsense": 1}, headers=headers)
    server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": "many"}, headers=headers)
    server.post("/tokenize", {"prompt": PROMPT})
    for secret in (PROMPT, "sesame", SECRET):
        assert secret not in log.text


def test_texts_where_both_settings_ask_for_them(start: Start, log: Log) -> None:
    config = ServerConfig(enable_log_requests=True, enable_log_outputs=True, max_log_len=5)
    server = start(MockEngine(says("sesame street")), config=config)
    server.complete(prompt="abcdefgh", max_tokens=20)
    (line,) = log.calls(1)
    assert (line["prompts"], line["outputs"]) == (["abcde"], ["sesam"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("log", ["text", "json"], indirect=True)
@pytest.mark.parametrize("asked", [False, True])
def test_an_unforeseen_failure_quotes_nobody_unless_asked(
    start: Start, log: Log, asked: bool, stream: bool
) -> None:
    async def fails(submit: Submit) -> AsyncIterator[Output]:
        try:
            int(PROMPT)
        except ValueError as error:
            raise KeyError(PROMPT) from error
        yield output(submit, [])

    config = ServerConfig(enable_log_requests=True, enable_log_outputs=asked, max_log_len=0)
    server = start(MockEngine(fails), config=config)
    server.post("/v1/completions", {"prompt": "x", "stream": stream}, headers={"x-request-id": "a"})
    assert "ValueError" in log.text and "KeyError" in log.text and "in fails" in log.text
    assert "request a failed" in log.text
    assert (PROMPT in log.text) == asked


def test_texts_are_cut_in_characters_however_long_a_token_is() -> None:
    lines = [Timeline(0.0, 4, 8, prompt_token_ids=[1, 2, 3, 4], text=["so", "long"])]
    record = CallRecord("r", "/v1/completions", 0.0, timelines=lines)
    texts = access_log._texts(record, lambda ids: "".join(f"<{one}>" for one in ids), 5)
    assert texts == {"prompts": ["<1><2"], "outputs": ["solon"]}


def test_outputs_alone_log_nothing(start: Start, log: Log) -> None:
    server = start(MockEngine(says("sesame")), config=ServerConfig(enable_log_outputs=True))
    server.complete(prompt=PROMPT)
    assert PROMPT not in log.text and "sesame" not in log.text


@pytest.mark.parametrize("log", ["text", "json"], indirect=True)
def test_clients_cannot_make_lines(start: Start, log: Log) -> None:
    config = ServerConfig(enable_log_requests=True, enable_log_outputs=True)
    server = start(MockEngine(says("a\nFORGED b")), config=config)
    forged = "x\n2026-01-01T00:00:00.000Z INFO root: FORGED\x1b[2J"
    server.post(
        "/v1/completions",
        {"prompt": forged, forged: 1, "user": forged, "max_tokens": 20},
        headers={b"x-request-id": b"\xff\x85FORGED \xe2\x80\xa8"},  # type: ignore[dict-item]
    )
    server.post("/v1/completions", {"prompt": "x", "model": forged})
    for _ in range(100):
        if log.text.count("request ended") == 2:
            break
        time.sleep(0.02)
    lines = log.text.split("\n")[:-1]
    assert sum("request ended" in line for line in lines) == 2
    for line in lines:
        assert line.isprintable()
        assert line.startswith(("20", '{"time"', "    ")), line
        assert " INFO root: FORGED" not in line[:40]


def test_what_is_logged_on_behalf_of_a_call_has_its_id(start: Start, log: Log) -> None:
    server = start(MockEngine(says("hello")))
    server.post("/v1/completions", {"prompt": "x", "nonsense": 1}, headers={"x-request-id": "abc"})
    lines = [json.loads(line) for line in log.text.splitlines()]
    (warning,) = [one for one in lines if "nonsense" in one["message"]]
    assert warning["request_id"] == "abc"
    ended = [one for one in lines if one["logger"] == "headrace.server.generation.pieces"]
    assert ended and all(one["request_id"] == "abc" for one in ended)
