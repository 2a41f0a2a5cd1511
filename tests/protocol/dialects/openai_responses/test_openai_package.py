"""OpenAI's own client reads whole replies and errors; its streams are in test_stream_writer."""

from __future__ import annotations

import httpx
import openai
import pytest

from headrace.protocol.dialects.openai_responses import CLIENT
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.protocol.neutral.part import Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice
from tests.protocol.dialects.openai_responses.samples import PATH


def client(status: int, answer: bytes | None) -> openai.OpenAI:
    """A client whose requests are read, and answered with `answer` or a reply of ours."""
    parts = (
        Thinking(text="hm"),
        Text(text="Hel"),
        Text(text="lo"),
        ToolCall(id="call_1", name="f", arguments='{"a":1}'),
    )
    reply = ChatReply(
        dialect="x", id="1", model="m", choices=(Choice(parts=parts, finish="tool_calls"),)
    )

    def handle(request: httpx.Request) -> httpx.Response:
        assert request.url.path == PATH
        call = CLIENT.read_call(request.content, PATH, request.headers)
        body = CLIENT.write_reply(reply, call) if answer is None else answer
        return httpx.Response(status, content=body, headers={"content-type": "application/json"})

    http = httpx.Client(transport=httpx.MockTransport(handle))
    return openai.OpenAI(api_key="k", base_url="http://x/v1", http_client=http, max_retries=0)


def test_a_reply() -> None:
    got = client(200, None).responses.create(
        model="m",
        input=[{"role": "user", "content": "Hi"}],
        tools=[{"type": "function", "name": "f", "parameters": None, "strict": None}],
    )
    assert got.output_text == "Hello"
    assert [one.type for one in got.output] == ["reasoning", "message", "function_call"]
    assert got.status == "completed"


@pytest.mark.parametrize(
    ("status", "kind", "error", "code"),
    [
        (400, "context_length", openai.BadRequestError, "context_length_exceeded"),
        (401, "authentication", openai.AuthenticationError, "invalid_api_key"),
        (404, "not_found", openai.NotFoundError, "model_not_found"),
        (429, "rate_limit", openai.RateLimitError, "rate_limit_exceeded"),
        (500, "server", openai.InternalServerError, "server_error"),
    ],
)
def test_errors(
    status: int, kind: FailureKind, error: type[openai.APIStatusError], code: str
) -> None:
    body = CLIENT.write_failure(Failure(kind=kind, message="no", param="p"), status, "r")
    with pytest.raises(error, match="no") as caught:
        client(status, body).responses.create(model="m", input="Hi")
    assert (caught.value.code, caught.value.param) == (code, "p")
