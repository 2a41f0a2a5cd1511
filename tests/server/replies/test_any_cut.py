"""Whatever the engine's outputs are cut into, a stream adds up to the whole reply.

Text, log probabilities, token ids, reasons and usage, for several choices at once, with stop
strings, min_tokens, echo and log probabilities of the prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.engine.messages import Output, Submit
from tests.server.conftest import Running, events_of
from tests.server.mock_engine import MockEngine, cut_up, output, prompt_logprobs
from tests.tiny import EOS

Start = Callable[..., Running]
SAID = st.text(alphabet="abé水 ", max_size=12)


def folded(events: list[Any]) -> dict[str, Any]:
    """The reply that the events of a stream add up to, in the shape of a whole one."""
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        for name in ("id", "model", "system_fingerprint"):
            whole[name] = event[name]
        for name in ("prompt_logprobs", "prompt_token_ids"):
            if name in event:
                assert name not in whole
                whole[name] = event[name]
        if not event["choices"]:
            whole["usage"] = event["usage"]
        for part in event["choices"]:
            _add(choices.setdefault(part["index"], {"logprobs": None}), part)
    return {**whole, "choices": [choices[index] for index in sorted(choices)]}


def _add(choice: dict[str, Any], part: dict[str, Any]) -> None:
    assert choice.get("finish_reason") is None, "nothing follows the end"
    if "delta" in part:
        message = choice.setdefault("message", {"content": "", "refusal": None})
        message["role"] = part["delta"].get("role", message.get("role"))
        message["content"] += part["delta"].get("content", "")
    else:
        choice["text"] = choice.get("text", "") + part["text"]
    for name in ("index", "finish_reason", "stop_reason", "prompt_logprobs", "prompt_token_ids"):
        if name in part:
            choice[name] = part[name]
    choice["token_ids"] = choice.get("token_ids", []) + part.get("token_ids", [])
    if part["logprobs"] is not None:
        columns = choice["logprobs"] = choice["logprobs"] or {}
        for name, column in part["logprobs"].items():
            columns[name] = None if column is None else columns.get(name, []) + column


def replies(said: list[str], cuts: list[list[int]], reason: str) -> Callable[[Submit], Any]:
    """Choice i says said[i], cut by cuts[i], and yields to the others between its outputs."""

    async def reply(submit: Submit) -> AsyncIterator[Output]:
        choice = submit.params.choice
        ids = [*said[choice].encode()]
        if reason == "stop":
            ids.append(EOS)
        parts = cut_up(ids, [max(1, size) for size in cuts[choice]])
        for index, part in enumerate(parts):
            await asyncio.sleep(0)
            told = prompt_logprobs(submit) if index == 0 else None
            end: Any = reason if index == len(parts) - 1 else None
            yield output(submit, part, end, cached_tokens=1, prompt_logprobs=told)

    return reply


@pytest.fixture
def any_server(start: Start) -> Running:
    """One server for all examples; each gives its engine what to say."""
    return start(MockEngine(replies([""], [[]], "stop")))


@pytest.mark.load
@settings(
    max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.data(), chat=st.booleans(), n=st.integers(1, 3))
def test_a_stream_adds_up_to_the_whole_reply(
    any_server: Running, data: st.DataObject, chat: bool, n: int
) -> None:
    body: dict[str, Any] = {
        "n": n,
        "return_token_ids": True,
        "max_tokens": 100,
        "stop": data.draw(st.lists(st.text(alphabet="abé ", min_size=1, max_size=3), max_size=2)),
        "include_stop_str_in_output": data.draw(st.booleans()),
        "min_tokens": data.draw(st.integers(0, 4)),
        "prompt_logprobs": data.draw(st.none() | st.integers(0, 2)),
        "return_tokens_as_token_ids": data.draw(st.booleans()),
        "request_id": "same",
    }
    logprobs = data.draw(st.none() | st.integers(0, 2))
    if chat:
        path = "/v1/chat/completions"
        body["messages"] = [{"role": "user", "content": "x"}]
        if logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": logprobs}
    else:
        path = "/v1/completions"
        prompts = st.sampled_from(["x", "水", [*"水".encode()[:2]], ["a", "bé"]])
        body |= {
            "prompt": data.draw(prompts),
            "logprobs": logprobs,
            "echo": data.draw(st.booleans()),
        }
    said = data.draw(st.lists(SAID, min_size=n, max_size=n))
    cuts = st.lists(st.integers(1, 6), max_size=8)
    reason = data.draw(st.sampled_from(["stop", "length", "timeout"]))

    def ask(**fields: Any) -> Any:
        any_server.engine.reply = replies(said, [data.draw(cuts) for _ in range(n)], reason)
        return any_server.post(path, {**body, **fields})

    whole = ask().json()
    options = {"include_usage": True, "continuous_usage_stats": data.draw(st.booleans())}
    once = folded(events_of(ask(stream=True, stream_options=options)))
    for name in ("created", "object"):
        del whole[name]
    for choice in once["choices"]:
        if chat and logprobs is not None and not choice["token_ids"]:
            choice["logprobs"] = {"content": [], "refusal": None}  # no event had any to tell
    assert once == whole
