"""Exchanges with real providers of this API, read and written again.

What is expected is worked out here from the raw JSON.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from headrace.protocol.dialects.openai_responses import CLIENT, PROVIDER
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import ReplyEnd
from headrace.protocol.neutral.part import Opaque, Part, Refusal, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice
from tests.protocol.dialects.api_description import assert_as_described
from tests.protocol.dialects.openai_responses.samples import told
from tests.protocol.neutral.cassettes import Exchange, exchanges
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut, read_stream

pytestmark = pytest.mark.usefixtures("recordings", "api_descriptions")

SOURCES = (
    ("pydantic-ai.tar.gz", "responses"),
    ("pydantic-ai.tar.gz", "/test_tool_"),
    ("pydantic-ai.tar.gz", "/test_bedrock_mantle/"),
    ("pydantic-ai.tar.gz", "/test_openai_"),
    ("openllmetry.tar.gz", "/test_responses/"),
    ("openllmetry.tar.gz", "TestResponsesAPI"),
    ("openllmetry.tar.gz", "openai-agents/"),
    ("llm", ""),
)
# What a response says that is the provider's to compute anew, or says nothing.
_USAGE = "usage"


@cache
def recorded() -> tuple[Exchange, ...]:
    """All exchanges of POST /responses."""
    found = {
        one.at: one
        for archive, under in SOURCES
        for one in exchanges(archive, under)
        if one.path.partition("?")[0].endswith("/responses") and one.request
    }
    return tuple(found.values())


def raw_events(one: Exchange) -> list[dict[str, Any]]:
    found = []
    for line in one.body.decode().splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            found.append(json.loads(data))
    return found


def raw_response(one: Exchange) -> dict[str, Any]:
    """The whole response of an exchange that went well.

    Of encrypted thoughts that were told twice it has those that their item ended with.
    """
    if not streams(one):
        whole: dict[str, Any] = json.loads(one.body)
        return whole
    events = raw_events(one)
    whole = events[-1]["response"]
    done = {event["item"].get("id"): event["item"] for event in events if "item" in event}
    for item in whole["output"]:
        if item.get("encrypted_content") and item.get("id") in done:
            item["encrypted_content"] = done[item["id"]]["encrypted_content"]
    return whole


def streams(one: Exchange) -> bool:
    return bool(json.loads(one.request).get("stream")) and one.status == 200


def answers() -> list[Exchange]:
    return [one for one in recorded() if one.status == 200]


def call_of(one: Exchange) -> ChatCall:
    return CLIENT.read_call(one.request, one.path, {})


def check_reply(at: str, got: ChatReply, raw: dict[str, Any]) -> None:
    """`got` against the raw response."""
    output = raw["output"]
    (choice,) = got.choices if got.choices else (None,)
    parts = choice.parts if choice else ()
    contents = [part for item in output if item["type"] == "message" for part in item["content"]]
    texts = [part["text"] for part in contents if part["type"] == "output_text"]
    assert [one.text for one in parts if isinstance(one, Text)] == texts, at
    refusals = [part["refusal"] for part in contents if part["type"] == "refusal"]
    assert [one.text for one in parts if isinstance(one, Refusal)] == refusals, at
    calls = [
        (item["call_id"], item["name"], item["arguments"])
        for item in output
        if item["type"] == "function_call"
    ]
    found = [(one.id, one.name, one.arguments) for one in parts if isinstance(one, ToolCall)]
    assert found == calls, at
    thoughts = [
        part["text"]
        for item in output
        if item["type"] == "reasoning"
        for part in [*(item.get("summary") or ()), *(item.get("content") or ())]
    ]
    thinking = [one for one in parts if isinstance(one, Thinking)]
    assert [one.text for one in thinking if not one.redacted] == thoughts, at
    sealed = [item["encrypted_content"] for item in output if item.get("encrypted_content")]
    signed = [one.signature.value for one in parts if isinstance(one, Thinking) and one.signature]
    opaque = [
        one.value["encrypted_content"]
        for one in parts
        if isinstance(one, Opaque) and one.value.get("encrypted_content")
    ]
    assert sorted(signed + opaque) == sorted(sealed), at
    kinds = ("message", "function_call", "reasoning")
    hosted = [item for item in output if item["type"] not in kinds]
    others = [one.value for one in parts if isinstance(one, Opaque)]
    # The end of a stream may know more of an item than its own end did.
    ids = [(one["type"], one.get("id", "")) for one in others if one["type"] not in kinds]
    assert sorted(ids) == sorted((item["type"], item.get("id", "")) for item in hosted), at
    assert got.model == raw["model"] and got.id == raw["id"], at
    check_usage(at, got, raw)
    ends = {"max_output_tokens": "length", "content_filter": "content_filter"}
    if raw["status"] in ("queued", "in_progress"):
        expected = None
    elif raw["status"] == "incomplete":
        expected = ends[raw["incomplete_details"]["reason"]]
    else:
        expected = "tool_calls" if calls else "stop"
    assert choice is not None and choice.finish == expected, at


def check_usage(at: str, got: ChatReply, raw: dict[str, Any]) -> None:
    usage, said = got.usage, raw.get("usage")
    if said is None:
        assert usage is None, at
        return
    assert usage is not None, at
    assert usage.prompt_tokens == said["input_tokens"], at
    assert usage.completion_tokens == said["output_tokens"], at
    assert usage.cache_read_tokens == said["input_tokens_details"]["cached_tokens"], at
    assert usage.reasoning_tokens == said["output_tokens_details"]["reasoning_tokens"], at
    written = said["input_tokens_details"].get("cache_write_tokens", 0)
    assert usage.cache_write_tokens == written, at


def bare(value: Any) -> Any:
    """Without what says nothing: null, and empty lists."""
    if isinstance(value, dict):
        return {name: bare(one) for name, one in value.items() if one is not None and one != []}
    return [bare(one) for one in value] if isinstance(value, list) else value


def test_there_is_something_to_read() -> None:
    assert len(answers()) >= 300
    assert sum(streams(one) for one in answers()) >= 40


def test_replies() -> None:
    for one in answers():
        if not streams(one):
            check_reply(one.at, PROVIDER.read_reply(one.body), json.loads(one.body))


def test_streams() -> None:
    for one in answers():
        if streams(one):
            events = read_stream(PROVIDER.stream_reader(call_of(one)), one.body)
            assert_grammar(events)
            assert isinstance(events[-1], ReplyEnd), one.at
            check_reply(one.at, collected("openai-responses", events), raw_response(one))


def test_a_stream_says_what_its_last_event_says() -> None:
    for one in answers():
        if not streams(one):
            continue
        raw = raw_response(one)
        whole = PROVIDER.read_reply(json.dumps(raw).encode())
        events = read_stream(PROVIDER.stream_reader(call_of(one)), one.body)
        got = collected("openai-responses", events)
        if "openrouter" in one.host:  # its last event has other ids
            continue
        assert _known(got.choices[0]) == _known(whole.choices[0]), one.at
        assert got.choices[0].finish == whole.choices[0].finish, one.at
        assert (got.usage, got.service_tier) == (whole.usage, whole.service_tier), one.at


def _known(choice: Choice) -> list[Part]:
    """But for items of OpenAI alone, of which the last event may know more."""
    return [one for one in choice.parts if not isinstance(one, Opaque)]


@pytest.mark.every_cut
def test_streams_at_every_cut() -> None:
    for one in answers():
        if not streams(one):
            continue
        call = call_of(one)
        if len(one.body) < 6000:
            read_at_every_cut(lambda call=call: PROVIDER.stream_reader(call), one.body)
            continue
        whole = read_stream(PROVIDER.stream_reader(call), one.body)
        for size in (1, 1021):
            pieces = [one.body[at : at + size] for at in range(0, len(one.body), size)]
            assert read_stream(PROVIDER.stream_reader(call), *pieces) == whole, one.at


def test_replies_are_written_as_they_came() -> None:
    for one in answers():
        if streams(one):
            continue
        raw = json.loads(one.body)
        got = json.loads(CLIENT.write_reply(PROVIDER.read_reply(one.body), call_of(one)))
        same_response(one.at, got, raw)


def _item(item: dict[str, Any]) -> Any:
    """An item; that a reasoning item is completed need not be said."""
    item = bare(item)
    if item["type"] == "reasoning":
        item.pop("status", None)
    return item


def _unrounded(value: Any) -> Any:
    """Log probabilities: the last event has them rounded."""
    if isinstance(value, dict):
        return {
            name: round(one, 4) if name == "logprob" else _unrounded(one)
            for name, one in value.items()
        }
    return [_unrounded(one) for one in value] if isinstance(value, list) else value


def same_response(
    at: str, got: dict[str, Any], raw: dict[str, Any], *, streamed: bool = False
) -> None:
    """Nothing that a client could notice is lost or changed."""
    if not streamed:
        assert [_item(one) for one in got["output"]] == [_item(one) for one in raw["output"]], at
    for name, value in bare(raw).items():
        if name not in (_USAGE, "output", "output_text"):
            assert bare(got.get(name)) == value, (at, name)
    for name, value in (raw.get(_USAGE) or {}).items():
        if name.endswith("_details"):
            for key, count in (value or {}).items():
                if count:
                    assert got[_USAGE][name][key] == count, (at, name, key)
        elif name != "cost":
            assert got[_USAGE][name] == value, (at, name)


def test_streams_are_written_as_they_came() -> None:
    """The same events in the same order, but for those of tools that the provider runs."""
    for one in answers():
        if not streams(one) or "openrouter" in one.host:
            continue
        call = call_of(one)
        writer = CLIENT.stream_writer(call)
        events = read_stream(PROVIDER.stream_reader(call), one.body)
        wrote = told(b"".join([writer.write(event) for event in events]))
        kinds = [event["type"] for event in raw_events(one)]
        if kinds.count("response.output_item.added") > kinds.count("response.output_item.done"):
            continue  # an item that only the last event had whole is told there
        assert steps(wrote) == steps(raw_events(one)), one.at
        whole, raw = wrote[-1]["response"], raw_response(one)
        same_response(one.at, whole, raw, streamed=True)
        for item, expected in zip(whole["output"], raw["output"], strict=True):
            if item["type"] in ("message", "function_call", "reasoning"):
                assert _unrounded(_item(item)) == _unrounded(_item(expected)), one.at


_ELSEWHERE = (
    "output_text.annotation",  # told with the end of the text
    "web_search",
    "mcp_",
    "code_interpreter",
    "file_search",
    "image_gen",
    "queued",
)


def steps(events: list[dict[str, Any]]) -> list[tuple[str, Any, Any]]:
    """Types and places of events; deltas that follow each other are one step."""
    found: list[tuple[str, Any, Any]] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind.startswith(_ELSEWHERE):
            continue
        item = event.get("item", {}).get("id") or event.get("item_id")
        step = (kind, event.get("output_index"), item)
        if not (kind.endswith(".delta") and found and found[-1] == step):
            found.append(step)
    return found


def test_requests_are_written_as_they_came() -> None:
    for one in answers():
        raw = json.loads(one.request)
        sent = PROVIDER.write_call(call_of(one), raw["model"])
        assert sent.dropped == (), one.at
        assert plain(json.loads(sent.body)) == plain(raw), one.at


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """A request in the one of several forms that we write."""
    body = bare(body)
    if isinstance(body.get("input"), str):
        body["input"] = [{"role": "user", "content": body["input"]}]
    body["input"] = [_plain_item(one) for one in body.get("input", [])]
    if not body.get("instructions"):
        body.pop("instructions", None)
    if "include" in body:
        body["include"].sort()
    if not body.get("stream"):
        body.pop("stream", None)
    return body


def _plain_item(item: dict[str, Any]) -> dict[str, Any]:
    item = dict(item)
    if "role" in item:
        item.pop("type", None)
        content = item.get("content")
        if isinstance(content, list) and len(content) == 1:
            (part,) = content
            if part.keys() == {"type", "text"}:
                item["content"] = part["text"]
    if item.get("status") == "completed" and item.get("type") in (
        None,
        "function_call",
        "reasoning",
    ):
        del item["status"]
    return item


def test_failures() -> None:
    kinds = set()
    for one in recorded():
        if one.status == 200:
            continue
        got = PROVIDER.read_failure(one.status, one.headers, one.body)
        error = json.loads(one.body)["error"]
        assert (got.message, got.param, got.code) == (
            error["message"],
            error.get("param"),
            error.get("code"),
        ), one.at
        kinds.add(got.kind)
    assert "bad_request" in kinds


@pytest.mark.long
def test_requests_are_written_as_openai_describes_them() -> None:
    """Some of them: each takes a while. What a client sent against the description may stay so."""
    for one in answers()[::3]:
        raw = json.loads(one.request)
        body = json.loads(PROVIDER.write_call(call_of(one), raw["model"]).body)
        if body == raw:
            continue
        try:
            assert_as_described(raw, "openai/openapi.yaml", "/responses")
        except AssertionError:
            continue
        assert_as_described(body, "openai/openapi.yaml", "/responses")
