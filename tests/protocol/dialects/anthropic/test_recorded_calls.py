"""Recorded requests, read and written again, and as if they came in another dialect."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.anthropic import CLIENT, PROVIDER
from headrace.protocol.dialects.anthropic.request.cache_marks import MOST_MARKS
from headrace.protocol.neutral.call import ChatCall
from tests.protocol.dialects.anthropic.recorded import plain, recorded
from tests.protocol.neutral.cassettes import Exchange

pytestmark = pytest.mark.usefixtures("recordings")


def _answered() -> list[Exchange]:
    return [one for one in recorded() if one.status == 200]


def _read(exchange: Exchange) -> ChatCall:
    return CLIENT.read_call(exchange.request, exchange.path, {})


def _meant(body: dict[str, Any]) -> dict[str, Any]:
    """A request without the choices of spelling that change nothing."""
    body = plain(body)
    if body.get("stream") is False:
        del body["stream"]
    if "output_format" in body:
        body["output_config"] = {"format": body.pop("output_format")}
    system = body.get("system")
    if isinstance(system, list) and len(system) == 1 and system[0].keys() == {"type", "text"}:
        body["system"] = system[0]["text"]
    for tool in body.get("tools", ()):
        if tool.get("type") == "custom":
            del tool["type"]
    messages: list[dict[str, Any]] = []
    for message in body["messages"]:
        content = _blocks(message["content"])
        if messages and messages[-1]["role"] == message["role"] != "system":
            messages[-1]["content"] += content
        else:
            messages.append({**message, "content": content})
    body["messages"] = messages
    return body


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    for block in content:
        if block["type"] == "tool_result":
            if block.get("is_error") is False:
                del block["is_error"]
            if "content" in block:
                block["content"] = _blocks(block["content"])
    return list(content)


def test_recorded_requests_come_out_as_they_came() -> None:
    found = _answered()
    for exchange in found:
        call = _read(exchange)
        raw = json.loads(exchange.request)
        counting = "count_tokens" in exchange.path
        write = PROVIDER.write_count if counting else PROVIDER.write_call
        written = write(call, call.model)
        assert not written.dropped, exchange.at
        assert written.path == exchange.path.partition("?")[0]
        assert _meant(json.loads(written.body)) == _meant(raw), exchange.at
    assert len(found) >= 240


def test_recorded_requests_of_other_dialects_keep_the_rules() -> None:
    """What the API refuses is not in a request that was mended."""
    checked = 0
    for exchange in _answered():
        call = msgspec.structs.replace(_read(exchange), dialect="openai_chat")
        try:
            written = PROVIDER.write_call(call, call.model)
        except RequestError as error:
            assert "another vendor" in str(error), exchange.at
            continue
        body = json.loads(written.body)
        roles = [one["role"] for one in body["messages"]]
        assert roles[0] == "user"
        assert all(a != b or a == "system" for a, b in pairwise(roles))
        blocks = [block for one in body["messages"] for block in one["content"]]
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        assert written.body.count(b'"cache_control"') <= MOST_MARKS
        thinking = body.get("thinking", {})
        if thinking.get("type") == "enabled":
            assert 1024 <= thinking["budget_tokens"] < body["max_tokens"]
        checked += 1
    assert checked >= 240


def test_nothing_of_a_recorded_request_raises_anything_else() -> None:
    """Also of those that Anthropic refused."""
    for exchange in recorded():
        try:
            call = _read(exchange)
        except RequestError:
            assert exchange.status >= 400, exchange.at
            continue
        PROVIDER.write_call(call, call.model)
