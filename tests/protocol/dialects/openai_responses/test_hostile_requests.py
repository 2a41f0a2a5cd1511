"""Requests of which any field may be anything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.protocol.dialects.openai_responses import CLIENT, PROVIDER, needs_state
from headrace.protocol.neutral.event import ReplyEnd, ReplyStart
from tests.protocol.dialects.openai_responses.samples import PATH

_WORDS = [
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "input_text",
    "input_image",
    "input_file",
    "input_audio",
    "output_text",
    "refusal",
    "user",
    "assistant",
    "system",
    "function",
    "auto",
    "json_schema",
    "headrace:a:b",
    "data:image/png;base64,AA",
    "data:,",
    "hrsig-AAAA",
    "low",
]
_NAMES = [
    "type",
    "role",
    "content",
    "text",
    "id",
    "call_id",
    "name",
    "arguments",
    "output",
    "summary",
    "encrypted_content",
    "image_url",
    "file_id",
    "file_data",
    "input_audio",
    "data",
    "format",
    "detail",
    "parameters",
    "strict",
    "function",
    "effort",
    "verbosity",
    "schema",
    "phase",
    "status",
    "annotations",
    "prompt_cache_breakpoint",
]
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, -1, 1.5, 10**40, 1e308])
    | st.sampled_from(_WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=5)
    ),
    max_leaves=15,
)
_ITEM = st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=6)
_TYPED = st.tuples(_ITEM, st.sampled_from(_WORDS), st.sampled_from(_WORDS)).map(
    lambda drawn: {**drawn[0], "type": drawn[1], "role": drawn[2]}
)
_FIELDS = [
    "model",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "temperature",
    "top_p",
    "top_logprobs",
    "text",
    "reasoning",
    "include",
    "metadata",
    "user",
    "service_tier",
    "stream",
    "store",
    "background",
    "previous_response_id",
    "conversation",
    "prompt",
    "other",
]


@pytest.mark.long
@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    fields=st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=3),
    items=st.lists(_TYPED | _ITEM, max_size=3) | _VALUES,
    tools=st.lists(_TYPED, max_size=2),
)
def test_any_request_is_read_or_refused(fields: Any, items: Any, tools: Any) -> None:
    body = json.dumps({"model": "m", "tools": tools, **fields, "input": items}).encode()
    try:
        call = CLIENT.read_call(body, PATH, {})
    except RequestError:
        return
    needs_state(call)
    json.loads(PROVIDER.write_call(call, "m").body)
    writer = CLIENT.stream_writer(call)
    assert writer.write(ReplyStart(id="x", model="m")) and writer.write(ReplyEnd())
