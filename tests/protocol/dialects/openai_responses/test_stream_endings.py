"""How streams to clients end: by a reason, by a failure, or cut off."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.dialects.openai_responses import CLIENT
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    ReplyEnd,
    ReplyFailure,
)
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import (
    Signature,
)
from headrace.protocol.neutral.reply import Finish
from tests.protocol.dialects.openai_responses.samples import read, told
from tests.protocol.dialects.openai_responses.test_stream_writer import (
    BEGAN,
    END,
    client_reads,
    output,
    part,
)


def test_a_call_whose_arguments_broke_off_is_incomplete_and_not_called_done() -> None:
    events = [
        BEGAN,
        *part(0, "tool_call", '{"a":', " 1}", id="a", name="f"),
        *part(1, "tool_call", '{"a":', ' "b', id="b", name="f"),
        ChoiceEnd(choice=0, reason="length"),
        ReplyEnd(),
    ]
    found = client_reads(read(), events)
    assert [(item["status"], item["arguments"]) for item in output(found)] == [
        ("completed", '{"a": 1}'),
        ("incomplete", '{"a": "b'),
    ]
    done = [one["output_index"] for one in found if one["type"].endswith("arguments.done")]
    assert done == [0]
    (last,) = [one for one in found if one["type"].endswith("item.done")][1:]
    assert last["item"]["status"] == "incomplete"
    assert found[-1]["type"] == "response.incomplete"


@pytest.mark.parametrize("signature", [None, Signature("anthropic", "sig")])
def test_a_thought_that_was_cut_is_incomplete_and_one_before_text_is_not(
    signature: Signature | None,
) -> None:
    thought = part(0, "thinking", "hm", signature=signature)
    cut: Event = ChoiceEnd(choice=0, reason="length")
    (item,) = output(client_reads(read(), [BEGAN, *thought, cut, ReplyEnd()]))
    assert (item["type"], item["status"]) == ("reasoning", "incomplete")
    assert read(input=[item]).messages[0].parts
    found = client_reads(read(), [BEGAN, *thought, *part(1, "text", "Hi"), cut, ReplyEnd()])
    assert [item.get("status") for item in output(found)] == [None, "incomplete"]


@pytest.mark.parametrize(
    ("reason", "kind", "details", "status"),
    [
        ("stop", "completed", None, "completed"),
        ("pause", "completed", None, "completed"),
        ("length", "incomplete", {"reason": "max_output_tokens"}, "incomplete"),
        ("content_filter", "incomplete", {"reason": "content_filter"}, "incomplete"),
    ],
)
def test_how_it_ends(reason: Finish, kind: str, details: Any, status: str) -> None:
    events = [BEGAN, *part(0, "text", "Hi"), ChoiceEnd(choice=0, reason=reason), ReplyEnd()]
    found = client_reads(read(), events)
    whole = found[-1]["response"]
    assert found[-1]["type"] == f"response.{kind}" and whole["status"] == kind
    assert whole["incomplete_details"] == details
    assert output(found)[0]["status"] == status


def test_a_failure_in_mid_stream_tells_what_came() -> None:
    failure = Failure(kind="rate_limit", message="slow down")
    events = [
        BEGAN,
        *part(0, "tool_call", "{", '"a"', id="a", name="f")[:-1],
        ReplyFailure(failure),
        ReplyEnd(),
    ]
    found = client_reads(read(), events)
    assert found[-1]["type"] == "response.failed"
    whole = found[-1]["response"]
    assert whole["error"] == {"code": "rate_limit_exceeded", "message": "slow down"}
    assert (whole["status"], whole["output"][0]["arguments"]) == ("failed", '{"a"')
    text = client_reads(read(), [BEGAN, *part(0, "text", "Hi")[:-1], ReplyFailure(failure)])
    assert output(text)[0]["content"][0]["text"] == "Hi"
    assert output(text)[0]["status"] == "incomplete"


def test_a_failure_before_anything() -> None:
    found = client_reads(read(), [ReplyFailure(Failure(kind="server", message="no", param="p"))])
    assert found == [
        {
            "type": "error",
            "code": "server_error",
            "message": "no",
            "param": "p",
            "sequence_number": 0,
        }
    ]


def test_nothing_is_written_after_the_end() -> None:
    writer = CLIENT.stream_writer(read())
    raw = b"".join([writer.write(one) for one in [BEGAN, *part(0, "text", "x"), *END]])
    assert writer.write(ReplyEnd()) == b"" and writer.write(BEGAN) == b""
    assert b"[DONE]" not in raw
    assert told(writer.keep_alive()) == []
