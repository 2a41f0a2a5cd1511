"""POST /v1/completions: text, numbering, stops, log probabilities and usage, whole and streamed."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace.engine.messages import Output, Submit
from tests.server.conftest import MODEL, Running
from tests.server.mock_engine import VOCAB_SIZE, MockEngine, output, says
from tests.tiny import BOS, EOS, IM_END

Start = Callable[..., Running]


def joined(events: list[Any], index: int = 0) -> str:
    return "".join(
        choice["text"]
        for event in events
        for choice in event["choices"]
        if choice["index"] == index
    )


def test_a_whole_reply(start: Start) -> None:
    server = start(MockEngine(says("hello", cached_tokens=1)))
    reply = server.complete(prompt="ab", model=MODEL)
    assert reply["id"].startswith("cmpl-")
    assert reply["object"] == "text_completion"
    assert reply["model"] == MODEL
    assert isinstance(reply["created"], int)
    assert reply["system_fingerprint"] == "fp_0123456789ab"
    assert reply["choices"] == [
        {
            "index": 0,
            "text": "hello",
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]
    assert reply["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 6,  # the end token is one of them, as in vLLM
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


def test_the_openai_package_reads_replies_and_streams(start: Start) -> None:
    server = start(MockEngine(says("hello")))
    whole = server.openai.completions.create(model=MODEL, prompt="ab")
    assert whole.choices[0].text == "hello"
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 6
    pieces = list(
        server.openai.completions.create(
            model=MODEL, prompt="ab", stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(p.choices[0].text for p in pieces if p.choices) == "hello"
    assert pieces[-1].choices == []
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.total_tokens == 8


def test_events_of_a_stream(start: Start) -> None:
    server = start(MockEngine(says("hi")))
    first, second, last = server.stream_completion()
    head = {"object": "text_completion", "model": MODEL, "system_fingerprint": "fp_0123456789ab"}
    for event in (first, second, last):
        assert head.items() <= event.items()
        assert "usage" not in event
        assert event["id"] == first["id"]
        assert event["created"] == first["created"]
    assert first["choices"] == [{"index": 0, "text": "h", "logprobs": None, "finish_reason": None}]
    assert last["choices"] == [
        {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    ]


def test_usage_of_a_stream_comes_last_and_is_null_before(start: Start) -> None:
    server = start(MockEngine(says("hi")))
    *before, last = server.stream_completion(stream_options={"include_usage": True})
    assert [event["usage"] for event in before] == [None] * 3
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3


TEXT = "aé水😀, z"


@pytest.mark.parametrize("cut", range(1, len(TEXT.encode()) + 2))
def test_every_cut_of_the_ids_gives_the_same_text(start: Start, cut: int) -> None:
    server = start(MockEngine(says(TEXT, cut=cut)))
    events = server.stream_completion(max_tokens=30)
    assert joined(events) == TEXT
    assert all("�" not in event["choices"][0]["text"] for event in events)
    assert server.complete(max_tokens=30)["choices"][0]["text"] == TEXT


def test_a_character_cut_off_by_the_limit_becomes_a_replacement(start: Start) -> None:
    server = start(MockEngine(says("水")))
    reply = server.complete(max_tokens=2)
    assert reply["choices"][0]["text"] == "�"
    assert reply["choices"][0]["finish_reason"] == "length"
    assert joined(server.stream_completion(max_tokens=2)) == "�"


STOPPED = "one two three"


@pytest.mark.parametrize("sizes", [*itertools.combinations(range(1, 6), 3)])
@pytest.mark.parametrize(
    ("stop", "text", "tokens"),
    [("two", "one ", 7), (["three", "e t"], "on", 5), (["x", " "], "one", 4), ("o", "", 1)],
)
def test_stop_strings_over_any_cut(
    start: Start, sizes: tuple[int, ...], stop: Any, text: str, tokens: int
) -> None:
    server = start(MockEngine(says(STOPPED, cut=sizes)))
    reply = server.complete(stop=stop, return_token_ids=True)
    choice = reply["choices"][0]
    assert choice["text"] == text
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] in ([stop] if isinstance(stop, str) else stop)
    assert choice["token_ids"] == [*STOPPED.encode()][:tokens]
    assert reply["usage"]["completion_tokens"] == tokens
    events = server.stream_completion(stop=stop)
    assert joined(events) == text
    assert events[-1]["choices"][0]["stop_reason"] == choice["stop_reason"]


def test_a_stop_string_may_be_kept(start: Start) -> None:
    server = start(MockEngine(says(STOPPED)))
    fields = {"stop": "two", "include_stop_str_in_output": True}
    assert server.complete(**fields)["choices"][0]["text"] == "one two"
    assert joined(server.stream_completion(**fields)) == "one two"


def test_what_only_might_have_been_a_stop_string_comes_out(start: Start) -> None:
    server = start(MockEngine(says("a STO")))
    assert server.complete(stop="STOP")["choices"][0]["text"] == "a STO"
    events = server.stream_completion(stop="STOP")
    assert joined(events) == "a STO"
    assert joined(server.stream_completion(stop="a STOP", max_tokens=4)) == "a ST"


def test_a_stop_string_cancels_in_the_engine(start: Start) -> None:
    engine = MockEngine(says("abc" * 50))
    server = start(engine)
    server.complete(stop="ca", max_tokens=100)
    assert engine.ended.wait(5)
    assert len(engine.cancelled) == 1
    assert engine.finished == []


def test_stop_token_ids(start: Start) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        assert submit.params.stop_token_ids == (99,)
        yield output(submit, [*b"ab"])
        yield output(submit, [99], "stop", stop_reason=99)

    server = start(MockEngine(reply))
    choice = server.complete(stop_token_ids=[99])["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("ab", "stop", 99)
    kept = server.complete(stop_token_ids=[99], include_stop_str_in_output=True)["choices"][0]
    assert kept["text"] == "abc"


def test_special_tokens(start: Start) -> None:
    server = start(MockEngine(says([*b"a", BOS, *b"b"])))
    assert server.complete()["choices"][0]["text"] == "ab"
    shown = server.complete(skip_special_tokens=False)
    assert shown["choices"][0]["text"] == "a<|bos|>b"
    everything = server.complete(skip_special_tokens=False, include_stop_str_in_output=True)
    assert everything["choices"][0]["text"] == "a<|bos|>b<|eos|>"


def test_ids_in_the_order_of_the_prompts(start: Start) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        said = bytes(submit.prompt_token_ids).upper()
        for byte in said:
            yield output(submit, [byte], cached_tokens=1)
        yield output(submit, [EOS], "stop")

    engine = MockEngine(reply)
    server = start(engine)
    texts = ["aaaa", "b", "ccc"]
    for prompt in (texts, [[*text.encode()] for text in texts]):
        reply_ = server.complete(prompt=prompt)
        assert [choice["index"] for choice in reply_["choices"]] == [0, 1, 2]
        assert [choice["text"] for choice in reply_["choices"]] == ["AAAA", "B", "CCC"]
        assert reply_["usage"] == {
            "prompt_tokens": 8,
            "completion_tokens": 11,
            "total_tokens": 19,
            "prompt_tokens_details": {"cached_tokens": 3},
        }
        events = server.stream_completion(prompt=prompt, stream_options={"include_usage": True})
        assert [joined(events, index) for index in range(3)] == ["AAAA", "B", "CCC"]
        ends = [c["index"] for e in events for c in e["choices"] if c["finish_reason"]]
        assert sorted(ends) == [0, 1, 2]
        assert events[-1]["usage"]["total_tokens"] == 19
    assert len({submit.request_id for submit in engine.submitted}) == 12


def test_token_ids_as_a_prompt_are_taken_as_they_are(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    ids = [5, BOS, 7, VOCAB_SIZE - 1]
    reply = server.complete(prompt=ids, return_token_ids=True)
    assert engine.submitted[0].prompt_token_ids == ids
    assert reply["choices"][0]["prompt_token_ids"] == ids
    assert reply["choices"][0]["token_ids"] == [*b"x", EOS]


def test_token_ids_of_a_stream(start: Start) -> None:
    server = start(MockEngine(says("水", cut=1)))
    events = server.stream_completion(prompt="ab", return_token_ids=True)
    choices = [event["choices"][0] for event in events]
    assert choices[0]["prompt_token_ids"] == [*b"ab"]
    assert all("prompt_token_ids" not in choice for choice in choices[1:])
    assert [i for choice in choices for i in choice["token_ids"]] == [*"水".encode(), EOS]


def test_log_probabilities(start: Start) -> None:
    server = start(MockEngine(says("aé")))
    columns = server.complete(logprobs=2)["choices"][0]["logprobs"]
    ids = [*"aé".encode(), EOS]
    assert columns["tokens"] == ["a", "bytes:\\xc3", "bytes:\\xa9", "<|eos|>"]
    assert columns["token_logprobs"] == [-i / 1000 for i in ids]
    assert columns["text_offset"] == [0, 1, 1, 2]
    assert columns["top_logprobs"][0] == {"b": 0.0, "c": -9999.0, "a": -0.097}
    assert len(columns["top_logprobs"]) == 4


@pytest.mark.parametrize("cut", [1, 2, 3, 99])
def test_log_probabilities_of_a_stream_are_those_of_a_whole_reply(start: Start, cut: int) -> None:
    server = start(MockEngine(says(TEXT, cut=cut)))
    fields = {"logprobs": 1, "max_tokens": 9, "stop": "zzz"}
    whole = server.complete(**fields)["choices"][0]["logprobs"]
    seen: dict[str, list[Any]] = {name: [] for name in whole}
    for event in server.stream_completion(**fields):
        for name, column in (event["choices"][0]["logprobs"] or {}).items():
            seen[name] += column
    assert seen == whole
    assert len(whole["tokens"]) == 9


def test_log_probabilities_are_cut_at_the_token_that_completed_the_stop(start: Start) -> None:
    server = start(MockEngine(says(STOPPED, cut=99)))
    columns = server.complete(stop="two", logprobs=0)["choices"][0]["logprobs"]
    assert "".join(columns["tokens"]) == "one two"
    assert columns["top_logprobs"][0] == {"o": -0.111}


def test_no_log_probabilities_unless_asked(start: Start) -> None:
    engine = MockEngine(says("x"))
    assert start(engine).complete()["choices"][0]["logprobs"] is None
    assert engine.submitted[0].params.logprobs is None


def test_sampling_fields_reach_the_engine(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    server.complete(
        temperature=0.5, top_p=0.25, top_k=7, min_p=0.125, seed=42, max_tokens=9,
        stop_token_ids=[3, 4], ignore_eos=True, logprobs=5, cache_salt="mine",
    )  # fmt: skip
    submit = engine.submitted[0]
    params = submit.params
    assert submit.cache_salt == "mine"
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.25, 7, 0.125)
    assert (params.seed, params.max_tokens, params.logprobs) == (42, 9, 5)
    assert params.stop_token_ids == (3, 4)
    assert params.ignore_eos


def test_defaults_are_those_of_openai(start: Start) -> None:
    engine = MockEngine(says("x"))
    start(engine).complete()
    params = engine.submitted[0].params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (1, 1, 0, 0)
    assert params.seed is None
    assert params.max_tokens == 16
    assert engine.submitted[0].cache_salt == ""


@pytest.mark.parametrize("seed", [-1, 2**63 - 1, -(2**63)])
def test_the_ends_of_ranges_go_through_unchanged(start: Start, seed: int) -> None:
    engine = MockEngine(says("x"))
    start(engine).complete(top_k=-1, top_p=0, min_p=1, temperature=10_000, seed=seed)
    params = engine.submitted[0].params
    assert (params.top_k, params.top_p, params.min_p) == (-1, 0, 1)
    assert (params.temperature, params.seed) == (10_000, seed)


def test_why_a_prompt_was_not_cached_and_preemptions_are_logged(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield Output(submit.request_id, [65], cache_miss="no_match at token 37")
        yield Output(submit.request_id, [66], finish_reason="length", num_preemptions=2)

    with caplog.at_level(logging.DEBUG, "headrace.server.generation.pieces"):
        request_id = start(MockEngine(reply)).complete()["id"]
    assert caplog.messages == [
        f"request {request_id}-0: not cached: no_match at token 37",
        f"request {request_id}-0: length, preempted 2 times",
    ]


def test_a_prompt_that_ends_within_a_character(start: Start) -> None:
    """The text goes on with the whole character and never shows the prompt's broken half."""
    server = start(MockEngine(says([*"水".encode()[1:], *b"!"])))
    reply = server.complete(prompt=[*b"a", "水".encode()[0]])
    assert reply["choices"][0]["text"] == "水!"


def test_end_tokens_beside_eos(start: Start) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield output(submit, [*b"ok", IM_END], "stop")

    choice = start(MockEngine(reply)).complete(skip_special_tokens=False)["choices"][0]
    assert (choice["text"], choice["stop_reason"]) == ("ok", None)
