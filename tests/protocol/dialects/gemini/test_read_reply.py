"""Parts, finish reasons and counts of answers, whole and in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.protocol.dialects.gemini import PROVIDER
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import (
    Event,
    PartDelta,
    ReplyEnd,
    ReplyFailure,
    ReplyUsage,
)
from headrace.protocol.neutral.part import Media, Opaque, Signature, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import Choice
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.gemini.samples import answer, events_of, stream, whole
from tests.protocol.neutral.streams import assert_grammar

SIGNED = Signature("gemini", "c2ln")
CALL = {"functionCall": {"name": "f", "args": {"x": 1}}}


def streamed(*pieces: dict[str, Any]) -> Choice:
    (choice,) = collected("gemini", events_of(*pieces)).choices
    return choice


def text(piece: str, **fields: Any) -> dict[str, Any]:
    return answer({"text": piece, **fields})


def last(piece: str = "", reason: str = "STOP", **fields: Any) -> dict[str, Any]:
    return answer({"text": piece, **fields}, finishReason=reason)


def test_text_in_pieces_is_one_part() -> None:
    choice = streamed(text("Hel"), text("lo 🦆"), last())
    assert choice.parts == (Text(text="Hello 🦆"),)
    assert choice.finish == "stop"


def test_texts_side_by_side_in_one_piece_are_apart() -> None:
    assert whole({"text": "a"}, {"text": "b"}).choices[0].parts == (Text(text="a"), Text(text="b"))


def test_thoughts_come_before_text() -> None:
    choice = streamed(text("hm", thought=True), text("m", thought=True), last("so"))
    assert choice.parts == (Thinking(text="hmm"), Text(text="so"))


def test_a_signature_at_the_end_of_a_stream_signs_the_text_before_it() -> None:
    parted = streamed(text("a"), text("b"), last(thoughtSignature="c2ln"))
    at_once = whole({"text": "ab", "thoughtSignature": "c2ln"}).choices[0]
    assert parted.parts == at_once.parts == (Text(text="ab", signature=SIGNED),)


def test_a_signed_part_is_over() -> None:
    choice = streamed(text("a", thoughtSignature="c2ln"), last("b"))
    assert choice.parts == (Text(text="a", signature=SIGNED), Text(text="b"))


def test_a_signature_with_nothing_to_sign_keeps_its_place() -> None:
    choice = streamed(answer(CALL), last(thoughtSignature="c2ln"))
    assert choice.parts[1] == Text(text="", signature=SIGNED)
    alone = {"thoughtSignature": "c2ln"}
    assert whole(alone).choices[0].parts == (Opaque("gemini", alone),)


def test_calls_are_whole_and_named() -> None:
    signed = {**CALL, "thoughtSignature": "c2ln"}
    named = {"functionCall": {"name": "g", "id": "abc"}}
    choice = whole(signed, CALL, named).choices[0]
    assert choice.finish == "tool_calls"
    assert choice.parts == (
        ToolCall(id="call_r1_0", name="f", arguments='{"x":1}', signature=SIGNED),
        ToolCall(id="call_r1_1", name="f", arguments='{"x":1}'),
        ToolCall(id="abc", name="g", arguments="{}"),
    )


@pytest.mark.parametrize("name", ["", "x" * 29, "a/b", "ü", 5])
def test_ids_of_calls_are_plain_and_short(name: Any) -> None:
    body = {**answer(CALL, CALL, finishReason="STOP"), "responseId": name}
    reply = PROVIDER.read_reply(json.dumps(body).encode())
    assert [one.id for one in reply.choices[0].parts if isinstance(one, ToolCall)] == [
        "call_0",
        "call_1",
    ]


def test_pictures_and_sounds() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "QUJD"}}
    choice = streamed(
        text("see"),
        answer({**picture, "thoughtSignature": "c2ln"}),
        answer({"inlineData": {"mimeType": "audio/L16;rate=24000", "data": "QUJD"}}),
        answer({"fileData": {"mimeType": "video/mp4", "fileUri": "gs://a/b"}}),
        answer({**picture, "thought": True}),
        last("."),
    )
    assert choice.parts == (
        Text(text="see"),
        Media(kind="image", mime="image/png", data="QUJD", signature=SIGNED),
        Media(kind="audio", mime="audio/L16;rate=24000", data="QUJD"),
        Media(kind="video", mime="video/mp4", url="gs://a/b"),
        Opaque("gemini", {**picture, "thought": True}),
        Text(text="."),
    )


def test_what_only_gemini_knows_is_kept_as_it_is() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "c2ln"}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
    hosted = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "t"}}
    choice = whole(code, result, hosted, {"text": "1"}).choices[0]
    assert choice.parts == (
        Opaque("gemini", code),
        Opaque("gemini", result),
        Opaque("gemini", hosted),
        Text(text="1"),
    )
    assert choice.finish == "stop"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("FINISH_REASON_UNSPECIFIED", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("LANGUAGE", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("MODEL_ARMOR", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("IMAGE_PROHIBITED_CONTENT", "content_filter"),
        ("IMAGE_RECITATION", "content_filter"),
        ("OTHER", "stop"),
        ("SOMETHING_NEW", "stop"),
    ],
)
def test_finish_reasons_of_an_answer_with_content(reason: str, finish: str) -> None:
    plain = reason in ("STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED")
    for choice in (whole({"text": "a"}, reason=reason).choices[0], streamed(last("a", reason))):
        assert choice.finish == finish
        assert choice.extra == ({} if plain else {"finishReason": reason})


def test_a_filter_and_a_limit_may_leave_nothing() -> None:
    for reason, finish in (("SAFETY", "content_filter"), ("MAX_TOKENS", "length")):
        body = json.dumps({"candidates": [{"finishReason": reason}]}).encode()
        choice = PROVIDER.read_reply(body).choices[0]
        assert (choice.parts, choice.finish) == ((), finish)


@pytest.mark.parametrize(
    ("reason", "content"),
    [
        ("MALFORMED_FUNCTION_CALL", True),
        ("MALFORMED_FUNCTION_CALL", False),
        ("UNEXPECTED_TOOL_CALL", False),
        ("TOO_MANY_TOOL_CALLS", True),
        ("MALFORMED_RESPONSE", True),
        ("MISSING_THOUGHT_SIGNATURE", False),
        ("OTHER", False),
        ("NO_IMAGE", False),
        ("IMAGE_OTHER", False),
        ("SOMETHING_NEW", False),
    ],
)
def test_a_model_that_broke_off_is_a_failure(reason: str, content: bool) -> None:
    piece = last("a" if content else "", reason)
    piece["candidates"][0]["finishMessage"] = "why"
    piece["usageMetadata"] = {"promptTokenCount": 4, "totalTokenCount": 4}
    with pytest.raises(DamagedReplyError, match=f"{reason}: why") as damaged:
        PROVIDER.read_reply(json.dumps(piece).encode())
    events = events_of(piece)
    assert events[-2] == ReplyUsage(usage=TokenUsage(input_tokens=4))
    failed = events[-1]
    assert isinstance(failed, ReplyFailure)
    assert (failed.failure.kind, failed.failure.code) == ("server", reason)
    assert damaged.value.failure == failed.failure


def test_an_error_in_spite_of_its_status() -> None:
    error = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "busy"}}
    with pytest.raises(DamagedReplyError) as damaged:
        PROVIDER.read_reply(json.dumps(error).encode())
    failure = damaged.value.failure
    assert failure is not None
    assert (failure.kind, failure.status) == ("rate_limit", 429)


def test_a_call_of_an_undeclared_function_is_a_call() -> None:
    choice = whole(CALL, reason="UNEXPECTED_TOOL_CALL").choices[0]
    assert (choice.finish, choice.extra) == ("tool_calls", {"finishReason": "UNEXPECTED_TOOL_CALL"})


def test_one_choice_that_broke_off_does_not_take_the_others_along() -> None:
    body = {
        "candidates": [
            {"index": 0, "finishReason": "OTHER"},
            {"index": 1, "content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"},
        ]
    }
    reply = PROVIDER.read_reply(json.dumps(body).encode())
    assert [one.finish for one in reply.choices] == ["stop", "stop"]
    assert reply.choices[0].extra == {"finishReason": "OTHER"}


def test_a_blocked_prompt_is_a_filtered_choice() -> None:
    feedback = {"blockReason": "PROHIBITED_CONTENT"}
    body = {"promptFeedback": feedback, "responseId": "r"}
    (choice,) = PROVIDER.read_reply(json.dumps(body).encode()).choices
    assert choice == Choice(finish="content_filter", extra={"promptFeedback": feedback})
    assert streamed(body) == choice


def test_a_prompt_blocked_on_the_way() -> None:
    choice = streamed(text("a"), {"promptFeedback": {"blockReason": "OTHER"}})
    assert (choice.parts, choice.finish) == ((Text(text="a"),), "content_filter")


def test_the_first_models_told_a_reason_in_every_piece() -> None:
    assert streamed(last("a"), last("b"), last("c")).parts == (Text(text="abc"),)


def test_several_choices_side_by_side() -> None:
    def of(index: int, piece: str, **fields: Any) -> dict[str, Any]:
        return {"content": {"parts": [{"text": piece}]}, "index": index, **fields}

    events = events_of(
        {"candidates": [of(0, "a"), of(1, "x")]},
        {"candidates": [of(1, "y", finishReason="MAX_TOKENS")]},
        {"candidates": [of(0, "b", finishReason="STOP")]},
    )
    choices = collected("gemini", events).choices
    assert [one.parts for one in choices] == [(Text(text="ab"),), (Text(text="xy"),)]
    assert [one.finish for one in choices] == ["stop", "length"]


def test_fields_without_a_neutral_form_are_kept() -> None:
    pieces = (
        answer({"text": "a"}, groundingMetadata={}, safetyRatings=[{"category": "A"}]),
        answer({"text": "b"}, groundingMetadata={"webSearchQueries": ["q"]}, avgLogprobs=-0.5),
        answer(
            {"text": "c"},
            groundingMetadata={"groundingChunks": [1]},
            citationMetadata={"citationSources": []},
            finishReason="STOP",
        ),
    )
    assert streamed(*pieces).extra == {
        "safetyRatings": [{"category": "A"}],
        "groundingMetadata": {"webSearchQueries": ["q"], "groundingChunks": [1]},
        "avgLogprobs": -0.5,
        "citationMetadata": {"citationSources": []},
    }


def test_what_is_told_of_the_reply() -> None:
    body = {
        **answer({"text": "a"}, finishReason="STOP"),
        "createTime": "2026-02-15T07:50:39.884152Z",
        "newField": 1,
        "usageMetadata": {"promptTokenCount": 1, "trafficType": "ON_DEMAND_FLEX"},
    }
    reply = PROVIDER.read_reply(json.dumps(body).encode())
    assert (reply.id, reply.model, reply.created_s) == ("r1", "gemini-3-flash", 1771141839)
    assert (reply.extra, reply.service_tier) == ({"newField": 1}, "flex")


LOGPROBS = {
    "chosenCandidates": [{"token": "ä", "tokenId": 5, "logProbability": -0.5}, {"token": "b"}],
    "topCandidates": [{"candidates": [{"token": "ä", "logProbability": -0.5}]}, {}],
}
TOLD = [
    {
        "token": "ä",
        "logprob": -0.5,
        "bytes": [195, 164],
        "top_logprobs": [{"token": "ä", "logprob": -0.5, "bytes": [195, 164]}],
    },
    {"token": "b", "logprob": 0.0, "bytes": [98], "top_logprobs": []},
]


def test_logprobs_in_openais_form() -> None:
    reply = whole({"text": "hm", "thought": True}, {"text": "äb"}, logprobsResult=LOGPROBS)
    assert reply.choices[0].logprobs == TOLD
    pieces = (
        answer({"text": "äb"}, logprobsResult=LOGPROBS),
        answer({"text": "äb"}, logprobsResult=LOGPROBS, finishReason="STOP"),
    )
    assert streamed(*pieces).logprobs == TOLD * 2
    grown = [one for one in events_of(*pieces) if isinstance(one, PartDelta)]
    assert [one.logprobs for one in grown] == [TOLD, TOLD]


def test_logprobs_of_a_piece_without_text_are_kept() -> None:
    pieces = (text("a"), answer(logprobsResult=LOGPROBS, finishReason="STOP"))
    assert streamed(*pieces).extra == {"logprobsResult": LOGPROBS}


USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 40,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 30,
    "toolUsePromptTokenCount": 7,
    "totalTokenCount": 157,
    "promptTokensDetails": [
        {"modality": "TEXT", "tokenCount": 70},
        {"modality": "AUDIO", "tokenCount": 30},
    ],
    "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 10}],
    "candidatesTokensDetails": [{"modality": "AUDIO", "tokenCount": 5}],
}


def usage_of(told: dict[str, Any]) -> TokenUsage | None:
    body = {**answer({"text": "a"}, finishReason="STOP"), "usageMetadata": told}
    return PROVIDER.read_reply(json.dumps(body).encode()).usage


def test_lines_of_usage_do_not_overlap() -> None:
    usage = usage_of(USAGE)
    assert usage == TokenUsage(
        input_tokens=47,
        cache_read_tokens=40,
        input_audio_tokens=20,
        output_tokens=15,
        reasoning_tokens=30,
        output_audio_tokens=5,
    )
    assert usage is not None
    assert usage.prompt_tokens + usage.completion_tokens == 157


BILLED = {
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
}


@pytest.mark.parametrize("odd", [None, "x", -5, 1.5e300, True, [], {}, 10**30])
def test_odd_counts_neither_break_nor_go_below_zero(odd: Any) -> None:
    for name in USAGE:
        usage = usage_of({**USAGE, name: odd})
        if usage is None:
            assert odd is not None and name in BILLED, "it is estimated, not billed as 0"
            continue
        assert min(usage.input_tokens, usage.output_tokens, usage.input_audio_tokens) >= 0
    assert usage_of({"promptTokenCount": "12"}) == TokenUsage(input_tokens=12)
    assert usage_of({"trafficType": "ON_DEMAND"}) is None


def test_counts_of_a_stream_are_the_last_ones() -> None:
    def counted(piece: dict[str, Any], **told: int) -> dict[str, Any]:
        return {**piece, "usageMetadata": told}

    pieces = (
        counted(text("a"), promptTokenCount=169, thoughtsTokenCount=5),
        counted(text("b"), promptTokenCount=169),
        counted(last("c"), promptTokenCount=79, candidatesTokenCount=12, totalTokenCount=91),
    )
    assert events_of(*pieces)[-2:] == [
        ReplyUsage(usage=TokenUsage(input_tokens=79, output_tokens=12)),
        ReplyEnd(),
    ]
    cut = events_of(*pieces[:2])
    assert cut[-2] == ReplyUsage(usage=TokenUsage(input_tokens=169, reasoning_tokens=5))


def failed(events: list[Event]) -> str:
    assert_grammar(events)
    event = events[-1]
    assert isinstance(event, ReplyFailure)
    return event.failure.kind


def test_a_stream_without_its_end_was_cut() -> None:
    assert failed(events_of(text("a"))) == "network"
    assert failed(events_of()) == "network"
    assert failed(events_of({"responseId": "r"})) == "damaged"
    two = {"candidates": [{"index": 1, "content": {"parts": [{"text": "a"}]}}]}
    assert failed(events_of(last("a"), two)) == "network"


def test_an_error_in_mid_stream() -> None:
    error = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}
    events = events_of(text("a"), error, last("b"))
    assert failed(events) == "overloaded"
    assert isinstance(events[-1], ReplyFailure)
    assert (events[-1].failure.status, events[-1].failure.message) == (503, "busy")


def test_comments_and_done_are_no_pieces() -> None:
    body = b": ping\n\n" + stream(text("a")) + b"data: [DONE]\n\n" + stream(last("b"))
    reader = PROVIDER.stream_reader(None)  # type: ignore[arg-type]
    events = reader.feed(body) + reader.end()
    assert collected("gemini", events).choices[0].parts == (Text(text="ab"),)
