"""The line of the log that a request leaves."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.serving.entry import Entry
from headrace.gateway.telemetry.access_log import AccessLog, fields_of, logger
from headrace.telemetry.logs import CallFilter, LogFormat, formatter
from tests.gateway.harness import ask, gateway
from tests.gateway.ledger.entries import entry
from tests.gateway.openai_provider import answers, fails, reply
from tests.gateway.telemetry.scraped import CHAT, settings
from tests.gateway.upstream.scripted import served


def logged(entries: list[Entry], log_format: LogFormat, level: int = logging.INFO) -> str:
    """What `entries` leave in a log."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter(log_format))
    handler.addFilter(CallFilter())
    before, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        log = AccessLog(stream, log_format)
        for one in entries:
            log.take(one)
        log.flush()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        logger.propagate = propagates
    return stream.getvalue()


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("more", [{"purpose": "judge", "variant": "a b"}, {"key": "k 1"}])
@given(model=st.text(st.characters(exclude_categories=[])), ended=st.integers(0, 10**10))
def test_a_line_is_as_logging_would_write_it(
    log_format: LogFormat, more: dict[str, str], model: str, ended: int
) -> None:
    one = entry(1, model=model, at_s=ended / 8, total_ms=0.0, **more)
    record = logger.makeRecord(
        logger.name, logging.INFO, "", 0, "request ended", (), None,
        extra={"request_id": one.id, "fields": fields_of(one)},
    )  # fmt: skip
    record.created = one.at_s
    expected = formatter(log_format).format(record)
    written = logged([one], log_format)
    if log_format == "json":
        assert json.loads(written) == json.loads(expected) and written.isascii()
    else:
        assert written == expected + "\n"


async def test_as_json() -> None:
    entries: list[Entry] = []
    async with served(answers()) as provider:
        await ask(gateway(settings(provider.origin), entries).app, {**CHAT, "stream": True})
    line: dict[str, Any] = json.loads(logged(entries, "json"))
    assert line["message"] == "request ended" and line["request_id"] == "req-1"
    assert (line["model"], line["target"], line["outcome"]) == ("chat", "a/m0", "answered")
    assert (line["prompt_tokens"], line["output_tokens"], line["cost_nusd"]) == (12, 3, 18_000)
    assert line["status"] == 200 and line["stream"] is True and line["finish_reason"] == "stop"
    assert line["e2e_s"] >= line["ttft_s"] > 0 and "error" not in line


async def test_as_text() -> None:
    entries: list[Entry] = []
    async with served(answers()) as provider:
        await ask(gateway(settings(provider.origin), entries).app, CHAT)
    text = logged(entries, "text")
    assert "request ended [request req-1]" in text and text.count("\n") == 1
    assert "target=a/m0" in text and "cost_nusd=18000" in text


async def test_words_of_providers_are_at_debug_alone() -> None:
    async def tells(_number: int, request: bytes, writer: Any) -> None:
        message = request.partition(b"\r\n\r\n")[2].decode()
        writer.write(reply(500, {"error": {"message": f"cannot {message}"}}))

    entries: list[Entry] = []
    async with served(tells) as provider:
        body = {"model": "chat", "messages": [{"role": "user", "content": "a private matter"}]}
        assert (await ask(gateway(settings(provider.origin), entries).app, body)).status == 502
    line = logged(entries, "json")
    assert "private" not in line
    assert json.loads(line)["failures"] == "a/m0 server 500; a/m0 server 500"
    assert "private" in logged(entries, "json", logging.DEBUG)


async def test_a_providers_refusal_is_ours_to_count_and_its_words_are_not_told() -> None:
    entries: list[Entry] = []
    async with served(fails(400, "a private matter is too long")) as provider:
        assert (await ask(gateway(settings(provider.origin), entries).app, CHAT)).status == 400
    line = json.loads(logged(entries, "json"))
    assert (line["outcome"], line["failures"]) == ("refused", "a/m0 bad_request 400")
    assert "error" not in line and "private" in entries[0].error


async def test_why_nobody_was_asked_is_in_the_line() -> None:
    entries: list[Entry] = []
    async with served(fails(401, "sk-a****bcde is no key")) as provider:
        config = settings(provider.origin)
        config["providers"]["a"]["api_key"] = ["sk-a1234567890bcde"]
        app = gateway(config, entries).app
        assert [(await ask(app, CHAT)).status for _ in range(2)] == [502, 503]
    line = json.loads(logged(entries[1:], "json"))
    assert (line["outcome"], line["attempts"]) == ("failed", 0)
    assert "since m0 was refused: authentication 401" in line["error"]
    assert "sk-a" not in line["error"]


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_a_name_cannot_end_the_line(log_format: LogFormat) -> None:
    entries: list[Entry] = []
    built = gateway(settings("http://127.0.0.1:9"), entries)
    await ask(built.app, {**CHAT, "model": "x"})
    forged = msgspec.structs.replace(entries[0], model="x\n2026 INFO forged")
    text = logged([forged], log_format)
    assert text.count("\n") == 1 and "refused" in text


async def test_nothing_below_the_level() -> None:
    entries: list[Entry] = []
    await ask(gateway(settings("http://127.0.0.1:9"), entries).app, {**CHAT, "model": "x"})
    assert logged(entries, "text", logging.WARNING) == ""
