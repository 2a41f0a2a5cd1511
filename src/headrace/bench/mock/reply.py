"""The bytes of replies: OpenAI's JSON, built so that a chunk costs little when it is due.

All of a chunk but its text and the time is made before. Every event and every body carries the
endpoint's own send time as `mock_sent_ns`, nanoseconds of CLOCK_MONOTONIC: a client on the same
machine holds its own times against it. Knows neither connections nor HTTP heads.
"""

from __future__ import annotations

import base64
import struct
from typing import Any, NamedTuple

import msgspec

from headrace.bench.mock.plan import Plan, Step
from headrace.bench.mock.request import Asked
from headrace.protocol.sse import DONE, data_event

STAMP_FIELD = "mock_sent_ns"

# A token is one of these; plain ASCII, so that they stand in JSON as they are.
_TEXT = (
    " water flows down the headrace and turns a wheel that grinds grain for bread while old stones"
    " hum under boards in cool morning light where swallows nest above quiet doors"
)
_WORDS = tuple(f" {word}" for word in _TEXT.split())


class Facts(NamedTuple):
    """Facts about a reply that are sent with its text. `queue_ns`: how long the request waited."""

    id: str
    created_s: int
    queue_ns: int


def words(first: int, count: int) -> str:
    """The text of tokens first to first + count."""
    many = len(_WORDS)
    return "".join(_WORDS[index % many] for index in range(first, first + count))


class StreamText:
    """The events of one stream."""

    def __init__(self, asked: Asked, plan: Plan, facts: Facts, reasoning_field: str) -> None:
        self._asked = asked
        self._plan = plan
        self._facts = facts
        chat = asked.route == "chat"
        kind = "chat.completion.chunk" if chat else "text_completion"
        head = _json({"id": facts.id, "object": kind, "created": facts.created_s})[:-1]
        self._head = b"%b,%b" % (head, _json({"model": asked.model})[1:-1])
        opening = b'data: %b,"choices":[{"index":0,' % self._head
        if chat:
            self._text = opening + b'"delta":{"content":"'
            self._reasoning = opening + b'"delta":{"%b":"' % reasoning_field.encode()
            self._closing = b'"},"finish_reason":null}],"' + STAMP_FIELD.encode() + b'":'
        else:
            self._text = self._reasoning = opening + b'"text":"'
            self._closing = b'","finish_reason":null}],"' + STAMP_FIELD.encode() + b'":'

    def event(self, step: Step, now_ns: int) -> bytes:
        """The chunk of `step`, sent at `now_ns`."""
        if step.kind == "role":
            delta = {"role": "assistant", "content": ""}
            return self._event([{"index": 0, "delta": delta, "finish_reason": None}], now_ns)
        opening = self._text if step.kind == "text" else self._reasoning
        text = words(step.first_token, step.tokens).encode()
        if self._asked.with_all_usage:
            counts = _json(usage_so_far(self._asked, step.first_token + step.tokens))
            return b'%b%b%b%d,"usage":%b}\n\n' % (opening, text, self._closing, now_ns, counts)
        return b"%b%b%b%d}\n\n" % (opening, text, self._closing, now_ns)

    def ending(self, now_ns: int, begun_ns: int) -> bytes:
        """The chunk with the reason, the usage where it was asked for, and the stream's end."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": self._plan.finish_reason}
        if self._asked.route == "chat":
            choice["delta"] = {}
        else:
            choice["text"] = ""
        if self._asked.with_metrics:
            choice["metrics"] = {
                "queue_s": self._facts.queue_ns / 1e9,
                "e2e_s": (now_ns - begun_ns + self._facts.queue_ns) / 1e9,
            }
        events = self._event([choice], now_ns)
        if self._asked.with_usage:
            usage = usage_of(self._asked, self._plan)
            events += self._event([], now_ns, usage=usage)
        return events + DONE

    def error(self, now_ns: int) -> bytes:
        """An error in the middle of the stream."""
        detail = {
            "message": "the mock was configured to fail",
            "type": "server_error",
            "code": None,
        }
        return data_event(_json({"error": detail, STAMP_FIELD: now_ns}))

    def _event(self, choices: list[dict[str, Any]], now_ns: int, **more: Any) -> bytes:
        rest = _json({"choices": choices, **more, STAMP_FIELD: now_ns})[1:]
        return b"data: %b,%b\n\n" % (self._head, rest)


def usage_so_far(asked: Asked, output_tokens: int) -> dict[str, int]:
    """Token counts up to a chunk, as vLLM tells them in every event."""
    prompt = asked.wanted.prompt_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output_tokens,
        "total_tokens": prompt + output_tokens,
    }


def usage_of(asked: Asked, plan: Plan) -> dict[str, Any]:
    """Token counts as OpenAI tells them; reasoning is part of the completion."""
    usage = usage_so_far(asked, plan.output_tokens)
    details = {"reasoning_tokens": plan.reasoning_tokens}
    cached = {"cached_tokens": 0}
    return usage | {"prompt_tokens_details": cached, "completion_tokens_details": details}


def whole_reply(asked: Asked, plan: Plan, facts: Facts, reasoning_field: str, now_ns: int) -> bytes:
    """The body of a reply that is not streamed."""
    thought = words(0, plan.reasoning_tokens)
    text = words(plan.reasoning_tokens, plan.output_tokens - plan.reasoning_tokens)
    choice: dict[str, Any] = {"index": 0, "finish_reason": plan.finish_reason}
    if asked.route == "chat":
        message = {"role": "assistant", "content": text}
        choice["message"] = message | ({reasoning_field: thought} if thought else {})
    else:
        choice["text"] = thought + text
    if asked.with_metrics:
        choice["metrics"] = {
            "queue_s": facts.queue_ns / 1e9,
            "e2e_s": (plan.end_ns + facts.queue_ns) / 1e9,
        }
    return _json(
        {
            "id": facts.id,
            "object": "chat.completion" if asked.route == "chat" else "text_completion",
            "created": facts.created_s,
            "model": asked.model,
            "choices": [choice],
            "usage": usage_of(asked, plan),
            STAMP_FIELD: now_ns,
        }
    )


def embeddings_reply(asked: Asked, dimensions: int, now_ns: int) -> bytes:
    """One vector for each input: all alike, and of length 1."""
    vector = [dimensions**-0.5] * dimensions
    packed = base64.b64encode(struct.pack(f"<{dimensions}f", *vector)).decode()
    value = packed if asked.as_base64 else vector
    data = [
        {"object": "embedding", "index": index, "embedding": value} for index in range(asked.inputs)
    ]
    tokens = asked.wanted.prompt_tokens
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    body = {"object": "list", "model": asked.model, "data": data, "usage": usage}
    return _json(body | {STAMP_FIELD: now_ns})


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)
