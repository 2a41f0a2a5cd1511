"""What the events of each format become."""

from __future__ import annotations

import json
from typing import Any

from headrace.bench.record import Failure, Usage
from tests.bench.client.events import STOP, delta, shape, sse
from tests.bench.client.wire import MS, raw_reply, record_of


def test_chat() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "completion_tokens_details": {"reasoning_tokens": 2},
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    call = {"index": 0, "function": {"name": "f", "arguments": '{"'}}
    record = record_of(
        raw_reply(
            *sse(
                delta(role="assistant", content=""),
                delta(reasoning_content="hm"),
                delta(reasoning="m"),
                delta(content="Hi") | {"mock_sent_ns": 3 * MS},
                delta(content=None, tool_calls=[call]),
                delta(content="") | {"x": None},
                STOP,
                {"choices": [], "usage": usage, "x_groq": None},
                "[DONE]",
            )
        )
    )
    assert shape(record) == [
        (1, "role", ""),
        (2, "reasoning", "hm"),
        (3, "reasoning", "m"),
        (4, "text", "Hi"),
        (5, "tool", 'f{"'),
        (6, "other", ""),
        (7, "other", ""),
        (8, "usage", ""),
    ]
    assert record.chunks[3].stamped_ns == 3 * MS
    assert (record.failure, record.finish_reason, record.end_ns) == (None, "stop", 9 * MS)
    assert record.usage == Usage(9, 5, 2, 4)


def test_servers_that_do_it_otherwise() -> None:
    """A role in every delta, usage with the last content, no last word, a queue time of Groq's."""
    last = delta(role="assistant", content="b")
    last["choices"][0]["finish_reason"] = "length"
    last |= {"usage": None, "x_groq": {"usage": {"completion_tokens": 2, "queue_time": 0.25}}}
    record = record_of(raw_reply(*sse(delta(role="assistant", content="a"), last)))
    assert shape(record) == [(1, "text", "a"), (2, "text", "b")]
    assert (record.failure, record.finish_reason) == (None, "length")
    assert (record.usage.completion_tokens, record.queue_ns) == (2, 250 * MS)
    assert [chunk.tokens for chunk in record.chunks] == [None, None]


def test_tokens_of_each_chunk_where_the_server_counts_them() -> None:
    events = [delta(content="a") | {"usage": {"completion_tokens": 1}}]
    events += [delta(content="bcd") | {"usage": {"completion_tokens": 4}}]
    record = record_of(raw_reply(*sse(delta(role="assistant"), *events, STOP)))
    assert [chunk.tokens for chunk in record.chunks] == [None, 1, 3, None]
    listed = {"choices": [{"index": 0, "delta": {"content": "ab"}, "token_ids": [5, 6]}]}
    record = record_of(raw_reply(*sse(listed, delta(content="c"), listed, STOP)))
    assert [chunk.tokens for chunk in record.chunks] == [2, None, 2, None]
    # Usage with the last content alone is that of all.
    record = record_of(raw_reply(*sse(delta(content="a"), events[1], STOP)))
    assert [chunk.tokens for chunk in record.chunks] == [None, None, None]


def test_completions_and_whole_replies() -> None:
    piece = {"choices": [{"index": 0, "text": "a", "finish_reason": None}]}
    end = {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}
    record = record_of(raw_reply(*sse(piece, end, "[DONE]")), "openai-completions")
    assert shape(record) == [(1, "text", "a"), (2, "other", "")]
    assert record.streamed
    reply = {
        "choices": [
            {
                "message": {"content": "Hi", "reasoning": "hm"},
                "finish_reason": "stop",
                "metrics": {"queue_s": 0.5},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "prompt_cache_hit_tokens": 1},
    }
    body = json.dumps(reply).encode()
    raw = raw_reply(body[:9], body[9:], content_type="application/json")
    record = record_of(raw, stream=False)
    assert shape(record) == [(2, "text", "Hi")]
    assert (record.streamed, record.queue_ns) == (False, 500 * MS)
    assert record.usage == Usage(1, 2, None, 1)
    vectors = json.dumps({"data": [{"embedding": [1, 2, 3]}], "usage": {"prompt_tokens": 4}})
    record = record_of(
        raw_reply(vectors.encode(), content_type="application/json"),
        "openai-embeddings",
        stream=False,
    )
    assert shape(record) == [(1, "text", "1 x 3 numbers")]
    assert len(record.content) == 1


def test_anthropic() -> None:
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {
                "usage": {
                    "input_tokens": 3,
                    "cache_read_input_tokens": 10,
                    "cache_creation_input_tokens": 7,
                    "output_tokens": 1,
                }
            },
        },
        {"type": "content_block_start", "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "x"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f"}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}},
        {"type": "content_block_stop"},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"input_tokens": 3, "output_tokens": 6},
        },
        {"type": "message_stop"},
    ]
    pieces = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events]
    record = record_of(raw_reply(*pieces), "anthropic-messages")
    assert [chunk.kind for chunk in record.chunks] == [
        "role",
        "other",
        "other",
        "reasoning",
        "other",
        "text",
        "tool",
        "tool",
        "other",
        "usage",
        "other",
    ]
    assert [chunk.text for chunk in record.content] == ["hm", "Hi", "f", "{"]
    assert (record.failure, record.finish_reason) == (None, "tool_use")
    assert record.usage == Usage(20, 6, None, 10)
    cut = record_of(raw_reply(*pieces[:-1]), "anthropic-messages")
    assert cut.failure is None  # there was a reason; only the last word is missing
    cut = record_of(raw_reply(*pieces[:-2]), "anthropic-messages")
    assert cut.failure == Failure("truncated", "the stream ended after 9 events, unfinished")
    whole = {
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    record = record_of(
        raw_reply(json.dumps(whole).encode(), content_type="application/json"),
        "anthropic-messages",
        stream=False,
    )
    assert shape(record) == [(1, "text", "Hi")]
    assert record.usage == Usage(1, 2, None, None)


def test_ollama() -> None:
    lines: list[dict[str, Any]] = [
        {"message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False},
        {"message": {"role": "assistant", "content": "Hi"}, "done": False},
        {"message": {"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}},
        {
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 3,
            "eval_count": 4,
        },
    ]
    pieces = [json.dumps(line).encode() + b"\n" for line in lines]
    kind = "application/x-ndjson"
    record = record_of(raw_reply(*pieces, content_type=kind), "ollama")
    assert shape(record) == [
        (1, "reasoning", "hm"),
        (2, "text", "Hi"),
        (3, "tool", 'f{"a":1}'),
        (4, "usage", ""),
    ]
    assert (record.failure, record.finish_reason) == (None, "stop")
    assert record.usage == Usage(3, 4)
    cut = record_of(raw_reply(*pieces[:3], content_type=kind), "ollama")
    assert cut.failure is not None
    assert cut.failure.kind == "truncated"
    generate = b'{"response":"a","done":false}\n{"response":"","done":true}'  # no last line end
    record = record_of(raw_reply(generate, content_type=kind), "ollama")
    assert shape(record) == [(1, "text", "a"), (1, "usage", "")]
    whole = b'{"message":{"content":"Hi","thinking":"hm"},"done":true,"eval_count":2}'
    record = record_of(raw_reply(whole, content_type="application/json"), "ollama", stream=False)
    assert shape(record) == [(1, "text", "Hi")]
    broken = record_of(raw_reply(b'{"error":"no such model"}\n', content_type=kind), "ollama")
    assert broken.failure == Failure("stream", "the server reported: no such model")


def test_counts_that_no_answer_can_have_say_nothing() -> None:
    told = {"usage": {"prompt_tokens": 2**62, "completion_tokens": 2**40}}
    record = record_of(raw_reply(*sse(delta(content="a") | told, delta(content="b") | told, STOP)))
    assert record.failure is None
    assert record.usage == Usage()
    assert [chunk.tokens for chunk in record.content] == [None, None]
    largest = {"usage": {"prompt_tokens": 2**24, "completion_tokens": 2**20}}
    record = record_of(raw_reply(*sse(delta(content="a"), largest, STOP)))
    assert record.usage == Usage(prompt_tokens=2**24, completion_tokens=2**20)
