"""Recorded exchanges of all servers that write like OpenAI, through readers and writers.

What is expected is computed from the raw JSON here, without the readers.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from headrace.protocol.dialects.openai_chat import CLIENT, PRESETS, OpenAIChatProvider
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import ReplyEnd, ReplyFailure
from headrace.protocol.neutral.part import Refusal, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply
from tests.protocol.dialects.openai_chat.samples import chunks_of, stream_bytes
from tests.protocol.neutral.cassettes import Exchange, exchanges
from tests.protocol.neutral.streams import assert_grammar, read_stream

pytestmark = pytest.mark.usefixtures("recordings")

_VARIANTS = {
    "api.openai.com": "openai",
    "azure.com": "azure",
    "api.groq.com": "groq",
    "api.deepseek.com": "deepseek",
    "openrouter.ai": "openrouter",
    "api.cerebras.ai": "cerebras",
    "api.together": "together",
    "googleapis.com": "google",
}
# Another dialect of the same path.
_OTHERS = ("mistral.ai", "cohere")


@cache
def recorded(archive: str) -> tuple[Exchange, ...]:
    """Exchanges of chat completions."""
    return tuple(
        one
        for one in exchanges(archive, holds="/chat/completions")
        if one.request
        and urlsplit(one.path).path.endswith("/chat/completions")
        and not any(host in one.host for host in _OTHERS)
    )


def provider_of(exchange: Exchange) -> OpenAIChatProvider:
    """The provider side of a host."""
    name = next((one for host, one in _VARIANTS.items() if host in exchange.host), "generic")
    return OpenAIChatProvider(PRESETS[name])


class Told:
    """What a reply or a stream says, put together without our readers."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.thoughts: dict[int, str] = {}
        self.refusals: dict[int, str] = {}
        self.arguments: dict[int, list[tuple[str, str]]] = {}
        self.finish: dict[int, str] = {}
        self.usage: dict[str, Any] = {}
        self.error = False

    def take(self, body: dict[str, Any], field: str) -> None:
        """A reply (field "message") or a chunk (field "delta")."""
        self.error = self.error or bool(body.get("error"))
        usage = body.get("usage") or (body.get("x_groq") or {}).get("usage")
        self.usage = usage or self.usage
        for choice in body.get("choices") or ():
            at = choice["index"]
            said = choice.get(field) or {}
            if isinstance(said.get("content"), str):
                self.texts[at] = self.texts.get(at, "") + said["content"]
            thought = said.get("reasoning_content") or said.get("reasoning") or ""
            if not thought:
                for detail in said.get("reasoning_details") or ():
                    thought += detail.get("text") or detail.get("summary") or ""
            self.thoughts[at] = self.thoughts.get(at, "") + thought
            self.refusals[at] = self.refusals.get(at, "") + (said.get("refusal") or "")
            self._take_calls(at, said)
            self.finish[at] = choice.get("finish_reason") or self.finish.get(at, "")

    def _take_calls(self, at: int, said: dict[str, Any]) -> None:
        calls = self.arguments.setdefault(at, [])
        for number, call in enumerate(said.get("tool_calls") or ()):
            function = call["function"]
            index = call.get("index", number)
            if index >= len(calls):
                calls.append((function["name"], ""))
            name, before = calls[index]
            calls[index] = (name, before + (function.get("arguments") or ""))
        legacy = said.get("function_call") or {}
        if legacy.get("name"):
            calls.append((legacy["name"], legacy.get("arguments") or ""))

    @property
    def called(self) -> dict[int, list[tuple[str, str]]]:
        """The calls of each choice; a call without arguments has an empty object."""
        return {
            at: [(name, arguments or "{}") for name, arguments in calls]
            for at, calls in self.arguments.items()
        }


def check(reply: ChatReply, told: Told, at: str) -> None:
    """The neutral reply says what was told."""
    assert {one.index for one in reply.choices} == set(told.texts) | set(told.thoughts), at
    for choice in reply.choices:
        index, parts = choice.index, choice.parts
        joined = {
            kind: "".join(one.text for one in parts if isinstance(one, kind))
            for kind in (Text, Thinking, Refusal)
        }
        assert joined[Text] == told.texts.get(index, ""), at
        assert joined[Thinking] == told.thoughts.get(index, ""), at
        assert joined[Refusal] == told.refusals.get(index, ""), at
        calls = [one for one in parts if isinstance(one, ToolCall)]
        assert [(one.name, one.arguments) for one in calls] == told.called[index], at
        assert all(one.id for one in calls), at
        word = told.finish[index]
        silent = "tool_calls" if calls else "stop"
        if word in ("", "stop", "eos", "function_call"):
            assert choice.finish == silent, at
        else:
            assert choice.finish == word, at
    if told.usage:
        assert reply.usage is not None, at
        assert reply.usage.prompt_tokens == told.usage["prompt_tokens"], at
        completion = told.usage["completion_tokens"]
        beyond = told.usage["total_tokens"] - told.usage["prompt_tokens"] - completion
        assert reply.usage.completion_tokens in (completion, completion + beyond), at
        details = told.usage.get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens") or told.usage.get("prompt_cache_hit_tokens") or 0
        assert reply.usage.cache_read_tokens == cached, at


def replay(found: tuple[Exchange, ...]) -> Counter[str]:
    """Send all through; how many of which kind there were."""
    seen: Counter[str] = Counter()
    for one in found:
        provider = provider_of(one)
        seen[f"at {one.host}"] += 1
        if one.status != 200:
            failure = provider.read_failure(one.status, one.headers, one.body)
            assert failure.status == one.status and failure.message, one.at
            seen["error"] += 1
            continue
        told = Told()
        call = CLIENT.read_call(one.request, one.path, {})
        if one.streamed:
            _replay_stream(one, provider, told, seen)
        else:
            # Hosts that answer with what they were asked, as tests of clients use them.
            is_answer = b'"choices"' in one.body or b'"error"' in one.body
            if is_answer:
                told.take(json.loads(one.body), "message")
            else:
                with pytest.raises(DamagedReplyError):
                    provider.read_reply(one.body)
                seen["no reply"] += 1
                continue
            if told.error:
                with pytest.raises(DamagedReplyError) as caught:
                    provider.read_reply(one.body)
                assert caught.value.failure is not None, one.at
                assert caught.value.failure.kind == "content_policy", one.at
                seen["error in a reply"] += 1
                continue
            reply = provider.read_reply(one.body)
            check(reply, told, one.at)
            answer = json.loads(CLIENT.write_reply(reply, call))
            ChatCompletion.model_validate(_of_openai(answer))
            again = provider.read_reply(json.dumps(answer).encode())
            assert [c.parts for c in again.choices] == [c.parts for c in reply.choices], one.at
            assert again.usage == reply.usage, one.at
            seen["reply"] += 1
    return seen


def _of_openai(body: dict[str, Any]) -> dict[str, Any]:
    """Without words that only other vendors have: the package itself does not check them."""
    body = json.loads(json.dumps(body))
    body.pop("service_tier", None)
    for choice in body["choices"]:
        said = choice.get("message") or choice.get("delta") or {}
        if any(one["type"] != "url_citation" for one in said.get("annotations") or ()):
            del said["annotations"]
    return body


def _replay_stream(
    one: Exchange,
    provider: OpenAIChatProvider,
    told: Told,
    seen: Counter[str],
) -> None:
    for line in one.body.decode().split("\n"):
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            told.take(json.loads(data), "delta")
    call = CLIENT.read_call(one.request, one.path, {})
    events = read_stream(provider.stream_reader(call), one.body)
    for size in (1000, 4096):
        pieces = [one.body[at : at + size] for at in range(0, len(one.body), size)]
        assert read_stream(provider.stream_reader(call), *pieces) == events, one.at
    assert_grammar(events)
    if told.error:
        assert isinstance(events[-1], ReplyFailure), one.at
        assert events[-1].failure.kind != "damaged", one.at
        seen["stream that failed"] += 1
        return
    assert isinstance(events[-1], ReplyEnd), (one.at, events[-1])
    reply = collected("openai-chat", events)
    check(reply, told, one.at)
    written = chunks_of(stream_bytes(call, events))
    again = Told()
    for chunk in written:
        again.take(chunk, "delta")
    for chunk in written[:4] + written[-4:]:
        ChatCompletionChunk.model_validate(_of_openai(chunk))
    silent = dict.fromkeys(again.texts.keys() - told.texts.keys(), "")
    assert again.texts == told.texts | silent, one.at
    assert again.called == told.called, one.at
    if call.stream_usage and told.usage:
        assert again.usage["prompt_tokens"] == told.usage["prompt_tokens"], one.at
    else:
        assert again.usage == {}, one.at
    seen["stream"] += 1


def test_envoys() -> None:
    seen = replay(recorded("envoy-ai-gateway"))
    assert seen["reply"] >= 12 and seen["stream"] >= 3 and seen["error"] >= 3, seen


def test_pydantics() -> None:
    seen = replay(recorded("pydantic-ai.tar.gz"))
    assert seen["reply"] >= 100 and seen["stream"] >= 20 and seen["error"] >= 3, seen
    assert seen["stream that failed"] >= 2, seen


@pytest.mark.long
def test_openllmetrys() -> None:
    seen = replay(recorded("openllmetry.tar.gz"))
    assert seen["reply"] >= 60 and seen["stream"] >= 20, seen


def _comparable(body: dict[str, Any]) -> dict[str, Any]:
    """A request without what means the same in two ways."""
    body = {name: value for name, value in body.items() if value is not None}
    for limit in ("max_tokens", "max_completion_tokens"):
        if limit in body:
            body["most tokens"] = body.pop(limit)
    for name, default in (("stream", False), ("tools", []), ("n", 1), ("stop", None)):
        if body.get(name) == default:
            body.pop(name, None)
    body.pop("stream_options", None)
    if isinstance(body.get("stop"), str):
        body["stop"] = [body["stop"]]
    body["messages"] = [_message(one) for one in body["messages"]]
    return body


def _message(message: dict[str, Any]) -> dict[str, Any]:
    message = {name: value for name, value in message.items() if value is not None}
    content = message.get("content")
    plain = {"type", "text"}
    if isinstance(content, list) and len(content) == 1 and content[0].keys() == plain:
        content = content[0]["text"]
    if isinstance(content, list) and message["role"] == "assistant":
        content = "".join(one["text"] for one in content)
    message["content"] = content or ""
    for call in message.get("tool_calls") or ():
        call.setdefault("type", "function")
    for index, detail in enumerate(message.get("reasoning_details") or ()):
        # Told anew: the place in the list, and formats of what nobody signed.
        detail["index"] = index
        if "data" not in detail and "signature" not in detail:
            detail.pop("format", None)
        for name in [name for name, value in detail.items() if value is None]:
            del detail[name]
    if "reasoning_details" in message:
        message.pop("reasoning", None)
    return message


def test_requests_come_out_as_they_came_in() -> None:
    """Through read_call and write_call of the variant they were sent to."""
    seen = 0
    for archive in ("envoy-ai-gateway", "pydantic-ai.tar.gz", "openllmetry.tar.gz"):
        for one in recorded(archive):
            provider = provider_of(one)
            if one.status != 200 or provider.variant.name == "generic":
                continue
            sent = json.loads(one.request)
            if "functions" in sent or "model" not in sent:
                continue
            call = CLIENT.read_call(one.request, one.path, {})
            request = provider.write_call(call, call.model)
            if request.dropped:
                continue
            assert _comparable(json.loads(request.body)) == _comparable(sent), one.at
            seen += 1
    assert seen >= 150, seen
