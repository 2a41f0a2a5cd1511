"""OpenAI's Responses API and llama-server's own endpoints in the OpenAPI document.

What they take is known to their readers, so the schemas here are written by hand, and say less:
fields and types that are certain. Tests send what they forbid and expect it to be refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.protocol.openai.completions import MAX_PROMPTS
from headrace.server.openapi.operations import BUSY, EVENTS, JSON, NO_MODEL, Operation, Reply

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NULL: Schema = {"type": "null"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_ITEM: Schema = {"type": "object"}
_TOKEN_ID: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _maybe(kind: str, **more: Any) -> Schema:
    """Of a field that may be omitted or null."""
    return {"anyOf": [{"type": kind, **more}, _NULL]}


_MESSAGE = _object(
    ("role", "content"),
    type=_maybe("string"),
    role={"enum": ["user", "assistant", "system", "developer"]},
    content=_TEXT,
)
_INPUT: Schema = {
    "anyOf": [_TEXT, {"type": "array", "items": _MESSAGE, "minItems": 1}],
    "description": "A text, or items: messages, function_call, function_call_output, reasoning.",
}
_PROMPT_OF_RESPONSES: Schema = {
    "model": {**_maybe("string"), "description": "A served name; may be omitted."},
    "input": _INPUT,
    "instructions": {
        **_maybe("string"),
        "description": "System text of this response; a later one does not have it.",
    },
    "previous_response_id": {
        **_maybe("string"),
        "description": "The response that this one continues; a 400 where this key has none.",
    },
    "tools": _maybe("array", items={"type": "object"}),
    "reasoning": _maybe("object"),
    "text": _maybe("object"),
    "truncation": {"enum": ["auto", "disabled", None]},
    "conversation": {**_NULL, "description": "Not supported: refused if given."},
}
_NATIVE: Schema = {
    "n_predict": {
        "anyOf": [{"type": "integer", "minimum": -1, "not": {"const": 0}}, _NULL],
        "description": "Most tokens to generate; -1: to the context's end.",
    },
    "n_cmpl": {
        **_maybe("integer", minimum=1, maximum=128),
        "description": "Answers per prompt; of several the reply is a list.",
    },
    "temperature": _maybe("number", minimum=0, maximum=10000),
    "top_p": _maybe("number", minimum=0, maximum=1),
    "min_p": _maybe("number", minimum=0, maximum=1),
    "top_k": _maybe("integer"),
    "seed": _maybe("integer"),
    "stream": _maybe("boolean"),
    "ignore_eos": _maybe("boolean"),
    "n_probs": _maybe("integer", minimum=0),
    "return_tokens": _maybe("boolean"),
    "timings_per_token": _maybe("boolean"),
    "grammar": _maybe("string"),
    "cache_prompt": _maybe("boolean"),
    "post_sampling_probs": {"enum": [False, None]},
    "presence_penalty": {"enum": [0, None]},
    "frequency_penalty": {"enum": [0, None]},
}
_MIXED: Schema = {
    "anyOf": [_TEXT, {"type": "array", "items": {"anyOf": [_TEXT, _TOKEN_ID]}, "minItems": 1}]
}

_ANSWER: Schema = _object(
    (
        "index",
        "content",
        "tokens",
        "stop",
        "stop_type",
        "tokens_predicted",
        "tokens_evaluated",
        "generation_settings",
        "timings",
    ),
    index=_COUNT,
    content=_TEXT,
    tokens={"type": "array", "items": _TOKEN_ID},
    stop={"const": True},
    stop_type={"enum": ["eos", "limit", "word"]},
    stopping_word=_TEXT,
    tokens_predicted=_COUNT,
    tokens_evaluated=_COUNT,
    tokens_cached={**_COUNT, "description": "Prompt tokens found in the prefix cache."},
    truncated={"type": "boolean"},
    generation_settings={"type": "object"},
    timings={"type": "object"},
)

RESPONSES_SCHEMAS: Mapping[str, Schema] = {
    "ResponsesRequest": _object(
        ("input",),
        **_PROMPT_OF_RESPONSES,
        stream=_maybe("boolean"),
        store={**_maybe("boolean"), "description": "Keep the response; true by default."},
        max_output_tokens={
            **_maybe("integer", minimum=1, maximum=2**48),
            "description": "Most tokens to generate; fewer where the context ends.",
        },
        temperature=_maybe("number", minimum=0, maximum=2),
        top_p=_maybe("number", minimum=0, maximum=1),
        top_logprobs=_maybe("integer", minimum=0, maximum=20),
        parallel_tool_calls=_maybe("boolean"),
        include=_maybe("array", items=_TEXT),
        metadata=_maybe("object", additionalProperties=_TEXT),
        background={"enum": [False, None]},
    ),
    "ResponsesCountRequest": _object(("input",), **_PROMPT_OF_RESPONSES),
    "ResponsesCount": _object(
        ("object", "input_tokens"),
        object={"const": "response.input_tokens"},
        input_tokens=_COUNT,
    ),
    "Response": _object(
        ("id", "object", "created_at", "status", "model", "output", "usage", "store"),
        id={**_TEXT, "pattern": "^resp_"},
        object={"const": "response"},
        created_at=_COUNT,
        status={"enum": ["completed", "incomplete", "failed"]},
        model=_TEXT,
        output={"type": "array", "items": _ITEM},
        usage=_object(
            ("input_tokens", "output_tokens", "total_tokens"),
            input_tokens=_COUNT,
            output_tokens=_COUNT,
            total_tokens=_COUNT,
        ),
        store={"type": "boolean"},
        previous_response_id={"type": ["string", "null"]},
    ),
    "ResponsesEvent": {
        **_object(
            ("event", "data"),
            event=_TEXT,
            data={"type": "string", "contentMediaType": JSON},
        ),
        "description": "Each event of the stream: numbered, and named by its type.",
    },
    "ResponseDeleted": _object(
        ("id", "object", "deleted"),
        id=_TEXT,
        object={"const": "response"},
        deleted={"const": True},
    ),
    "ResponseItems": _object(
        ("object", "data", "first_id", "last_id", "has_more"),
        object={"const": "list"},
        data={"type": "array", "items": _ITEM},
        first_id={"type": ["string", "null"]},
        last_id={"type": ["string", "null"]},
        has_more={"type": "boolean"},
    ),
    "NativeCompletionRequest": _object(
        ("prompt",),
        prompt={
            "anyOf": [
                *_MIXED["anyOf"],
                {"type": "array", "items": _MIXED, "minItems": 1, "maxItems": MAX_PROMPTS},
            ],
            "description": "A text, token ids, both mixed, or a list of such prompts.",
        },
        **_NATIVE,
    ),
    "NativeInfillRequest": _object(
        ("input_prefix", "input_suffix"),
        input_prefix=_TEXT,
        input_suffix=_TEXT,
        prompt=_maybe("string"),
        input_extra=_maybe("array", items=_object(("text",), text=_TEXT, filename=_TEXT)),
        **_NATIVE,
    ),
    "NativeReplies": {"anyOf": [_ANSWER, {"type": "array", "items": _ANSWER}]},
    "NativeEvent": {
        **_object(
            ("data",),
            event=_TEXT,
            data={"type": "string", "contentMediaType": JSON},
        ),
        "description": "Each event of the stream.",
    },
}

_HELLO = "Why is the sky blue?"
_NOT_FOUND = Reply("This key has no such response (code `response_not_found`).")
_ID = {"response_id": "The id of a response that is kept."}
_EVENTS_OF_NATIVE = (
    "The answer, a list of several, or, with `stream: true`, events of which the last has "
    "`stop` true."
)

RESPONSES_OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("POST", "/v1/responses"): Operation(
        "createResponse",
        "Responses",
        "Answer a conversation, and keep the response",
        Reply(
            "The response; with `stream: true`, OpenAI's events, without `[DONE]`.",
            {JSON: "Response", EVENTS: "ResponsesEvent"},
        ),
        "OpenAI's Responses API. What only OpenAI's servers do (background responses, "
        "conversations, tools that they run) is refused.",
        body_schema="ResponsesRequest",
        replies={404: NO_MODEL, 429: BUSY},
        example={"model": "", "input": _HELLO, "max_output_tokens": 64},
    ),
    ("POST", "/v1/responses/input_tokens"): Operation(
        "countResponseTokens",
        "Responses",
        "The tokens of a response's prompt",
        Reply("Exactly as many as generation would read.", {JSON: "ResponsesCount"}),
        body_schema="ResponsesCountRequest",
        replies={404: NO_MODEL, 429: BUSY},
        example={"model": "", "input": _HELLO},
    ),
    ("GET", "/v1/responses/{response_id}"): Operation(
        "getResponse",
        "Responses",
        "A response as it was answered",
        Reply("It.", {JSON: "Response"}),
        replies={404: _NOT_FOUND, 400: Reply("`stream` is not supported.")},
        needs_model=False,
        path_params=_ID,
    ),
    ("DELETE", "/v1/responses/{response_id}"): Operation(
        "deleteResponse",
        "Responses",
        "Forget a response",
        Reply("It is not found from now on.", {JSON: "ResponseDeleted"}),
        "What continues it keeps its text.",
        replies={404: _NOT_FOUND},
        needs_model=False,
        path_params=_ID,
    ),
    ("GET", "/v1/responses/{response_id}/input_items"): Operation(
        "listInputItems",
        "Responses",
        "What a response was given",
        Reply("A page of the items.", {JSON: "ResponseItems"}),
        "With all that it continues. Query: `limit` (1 to 100, default 20), `order` (`asc` or "
        "`desc`, the default) and `after`, the id of an item.",
        replies={404: _NOT_FOUND, 400: Reply("A value of the query is wrong.")},
        needs_model=False,
        path_params=_ID,
    ),
    ("POST", "/v1/responses/{response_id}/cancel"): Operation(
        "cancelResponse",
        "Responses",
        "Refused: only background responses can be cancelled",
        None,
        replies={404: _NOT_FOUND, 400: Reply("It has ended.")},
        needs_model=False,
        path_params=_ID,
    ),
    ("POST", "/completion"): Operation(
        "nativeCompletion",
        "llama-server",
        "Continue a text or token ids",
        Reply(_EVENTS_OF_NATIVE, {JSON: "NativeReplies", EVENTS: "NativeEvent"}),
        "llama-server's own form. A field that means something else here is refused.",
        body_schema="NativeCompletionRequest",
        replies={404: NO_MODEL, 429: BUSY},
        example={"prompt": "Once upon a time", "n_predict": 32},
    ),
    ("POST", "/infill"): Operation(
        "infill",
        "llama-server",
        "Fill the gap between two texts",
        Reply(_EVENTS_OF_NATIVE, {JSON: "NativeReplies", EVENTS: "NativeEvent"}),
        "A model that has no tokens for it says so with a 400 `unsupported`.",
        body_schema="NativeInfillRequest",
        replies={
            404: NO_MODEL,
            429: BUSY,
        },
        example={"input_prefix": "def f():\n", "input_suffix": "\nf()", "n_predict": 32},
    ),
}
