"""Paths of other vendors' APIs in the OpenAPI document: what each does, takes and answers.

What a dialect takes is known to its reader alone, so the schemas here are written by hand, and say
less: fields and types that are certain. Tests send what they forbid and expect it to be refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.server.openapi.operations import EVENTS, JSON, Operation, Reply, busy, no_model

LINES = "application/x-ndjson"

Schema = dict[str, Any]


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _maybe(kind: str, **more: Any) -> Schema:
    """Of a field that may be omitted or null."""
    return {"anyOf": [{"type": kind, **more}, {"type": "null"}]}


_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NAME: Schema = {"type": "string", "minLength": 1}
_BLOCK = _object(("type",), type=_NAME)
_BLOCKS: Schema = {"anyOf": [_TEXT, {"type": "array", "items": _BLOCK}]}
_SHARE = _maybe("number", minimum=0, maximum=1)
_TURN = _object(
    ("role", "content"),
    role={"enum": ["user", "assistant", "system"]},
    content=_BLOCKS,
)
_MESSAGES: Schema = {"type": "array", "items": _TURN, "minItems": 1}
_PROMPT_OF_ANTHROPIC: Schema = {
    "model": {**_NAME, "description": "A served name."},
    "messages": {**_MESSAGES, "description": "Turns: role and content, a text or blocks."},
    "system": {"anyOf": [*_BLOCKS["anyOf"], {"type": "null"}]},
    "tools": _maybe("array", items={"type": "object"}),
    "tool_choice": _maybe(
        "object",
        properties={"type": {"enum": ["auto", "any", "none", "tool"]}},
        required=["type"],
    ),
    "thinking": _maybe(
        "object",
        properties={"type": {"enum": ["enabled", "adaptive", "disabled"]}},
        required=["type"],
    ),
}
_OPTIONS: Schema = {
    "model": {**_NAME, "description": "A served name, with or without `:latest`."},
    "stream": {**_maybe("boolean"), "description": "Lines of JSON; true by default."},
    "think": {"enum": [True, False, "low", "medium", "high", "max", None]},
    "format": {
        "anyOf": [{"const": "json"}, {"const": ""}, {"type": "object"}, {"type": "null"}],
        "description": "`json`, or the JSON schema of the answer.",
    },
    "options": {
        **_maybe("object"),
        "description": "`num_predict`, `temperature`, `top_k`, `top_p`, `min_p`, `seed`, `stop`, "
        "penalties and `num_ctx`; others are named in X-Ignored-Params.",
    },
    "keep_alive": {"description": "Without effect: the model stays loaded."},
}
_TIMES: Schema = {
    name: {**_COUNT, "description": "Nanoseconds."}
    for name in ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
}
_ANSWER: Schema = {
    "model": _TEXT,
    "created_at": {"type": "string", "format": "date-time"},
    "done": {"const": True},
    "done_reason": _TEXT,
    "prompt_eval_count": _COUNT,
    "eval_count": _COUNT,
    **_TIMES,
}
_SUMMARY = _object(("name", "model", "size", "digest", "details"), name=_TEXT, model=_TEXT,
                   size=_COUNT, digest=_TEXT, details={"type": "object"})  # fmt: skip
_MODELS = _object(("models",), models={"type": "array", "items": _SUMMARY})

DIALECT_SCHEMAS: Mapping[str, Schema] = {
    "AnthropicRequest": _object(
        ("model", "messages", "max_tokens"),
        **_PROMPT_OF_ANTHROPIC,
        max_tokens={
            "type": "integer",
            "minimum": 1,
            "description": "Most tokens to generate; fewer where the context ends.",
        },
        stream=_maybe("boolean"),
        temperature=_SHARE,
        top_p=_SHARE,
        top_k=_maybe("integer", minimum=0),
        stop_sequences=_maybe("array", items={"type": "string"}),
        metadata=_maybe("object"),
        output_config=_maybe("object"),
    ),
    "AnthropicCountRequest": _object(("model", "messages"), **_PROMPT_OF_ANTHROPIC),
    "AnthropicCount": _object(("input_tokens",), input_tokens=_COUNT),
    "AnthropicMessage": _object(
        ("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"),
        id=_TEXT,
        type={"const": "message"},
        role={"const": "assistant"},
        model=_TEXT,
        content={"type": "array", "items": _BLOCK},
        stop_reason={"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
        stop_sequence={"type": ["string", "null"]},
        usage=_object(
            ("input_tokens", "output_tokens", "cache_read_input_tokens"),
            input_tokens={**_COUNT, "description": "Those that were not cached."},
            output_tokens=_COUNT,
            cache_read_input_tokens=_COUNT,
        ),
    ),
    "AnthropicEvent": {
        **_object(
            ("event", "data"),
            event={
                "enum": [
                    "message_start",
                    "content_block_start",
                    "content_block_delta",
                    "content_block_stop",
                    "message_delta",
                    "message_stop",
                    "ping",
                    "error",
                ]
            },
            data={"type": "string", "contentMediaType": JSON},
        ),
        "description": "Each event of the stream.",
    },
    "AnthropicError": _object(
        ("type", "error", "request_id"),
        type={"const": "error"},
        error=_object(("type", "message"), type=_TEXT, message=_TEXT),
        request_id=_TEXT,
    ),
    "OllamaChatRequest": _object(
        ("model",),
        **_OPTIONS,
        messages=_maybe("array", items=_object(("role",), role=_TEXT, content=_maybe("string"))),
        tools=_maybe("array", items={"type": "object"}),
    ),
    "OllamaGenerateRequest": _object(
        ("model",),
        **_OPTIONS,
        prompt=_maybe("string"),
        system=_maybe("string"),
        suffix=_maybe("string"),
        raw=_maybe("boolean"),
        context=_maybe("array", items={"type": "integer", "minimum": 0}),
    ),
    "OllamaShowRequest": {
        "type": "object",
        "anyOf": [{"required": [name], "properties": {name: _NAME}} for name in ("model", "name")],
    },
    "OllamaMessage": _object(
        ("model", "created_at", "message", "done"),
        **_ANSWER,
        message=_object(("role", "content"), role={"const": "assistant"}, content=_TEXT),
    ),
    "OllamaText": _object(("model", "created_at", "response", "done"), **_ANSWER, response=_TEXT),
    "OllamaModels": _MODELS,
    "OllamaModel": _object(
        ("details", "model_info", "capabilities"),
        details={"type": "object"},
        model_info={"type": "object"},
        capabilities={"type": "array", "items": _TEXT},
    ),
    "OllamaVersion": _object(("version",), version=_TEXT),
    "OllamaError": _object(("error",), error=_TEXT),
}
"""What is taken and sent on these paths, by name. Errors are named after their dialect."""


def _refused(name: str, summary: str) -> Operation:
    return Operation(
        name,
        "Ollama",
        summary,
        None,
        "Refused: the error says what does it here.",
        replies={400: Reply("Always.", {JSON: "OllamaError"})},
        dialect="Ollama",
        needs_model=False,
    )


_TURNS = [{"role": "user", "content": "Why is the sky blue?"}]

DIALECT_OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("POST", "/v1/messages"): Operation(
        "createMessage",
        "Anthropic",
        "Answer a conversation",
        Reply(
            "The answer; with `stream: true`, Anthropic's events. A failure during the stream is "
            "an event `error`, after which nothing comes.",
            {JSON: "AnthropicMessage", EVENTS: "AnthropicEvent"},
        ),
        "Anthropic's Messages API. What it has and this server has not (pictures, documents, tools "
        "that the provider runs) is refused.",
        body_schema="AnthropicRequest",
        replies={404: no_model("Anthropic"), 429: busy("Anthropic")},
        example={"model": "", "max_tokens": 64, "messages": _TURNS},
        dialect="Anthropic",
    ),
    ("POST", "/v1/messages/count_tokens"): Operation(
        "countMessageTokens",
        "Anthropic",
        "The tokens of a conversation's prompt",
        Reply("Exactly as many as generation would read.", {JSON: "AnthropicCount"}),
        body_schema="AnthropicCountRequest",
        replies={404: no_model("Anthropic"), 429: busy("Anthropic")},
        example={"model": "", "messages": _TURNS},
        dialect="Anthropic",
    ),
    ("POST", "/api/chat"): Operation(
        "ollamaChat",
        "Ollama",
        "Answer a conversation",
        Reply("The answer, or lines of JSON of which each is a part of it.",
              {JSON: "OllamaMessage", LINES: None}),
        "Without messages nothing is generated: the model is loaded.",
        body_schema="OllamaChatRequest",
        replies={404: no_model("Ollama"), 429: busy("Ollama")},
        example={"model": "", "messages": _TURNS, "stream": False},
        dialect="Ollama",
    ),
    ("POST", "/api/generate"): Operation(
        "ollamaGenerate",
        "Ollama",
        "Answer one prompt",
        Reply("The answer, or lines of JSON of which each is a part of it.",
              {JSON: "OllamaText", LINES: None}),
        "`raw` takes the prompt as it stands, `suffix` asks for what stands before it, `context` "
        "goes on after an earlier reply. `template` is refused.",
        body_schema="OllamaGenerateRequest",
        replies={404: no_model("Ollama"), 429: busy("Ollama")},
        example={"model": "", "prompt": "Why is the sky blue?", "stream": False},
        dialect="Ollama",
    ),
    ("GET", "/api/tags"): Operation(
        "ollamaTags", "Ollama", "List the served names",
        Reply("All of them.", {JSON: "OllamaModels"}), dialect="Ollama",
    ),
    ("GET", "/api/ps"): Operation(
        "ollamaPs", "Ollama", "List the loaded models",
        Reply("All that are served.", {JSON: "OllamaModels"}), dialect="Ollama",
    ),
    ("POST", "/api/show"): Operation(
        "ollamaShow",
        "Ollama",
        "What a model can do",
        Reply("Its capabilities and its context.", {JSON: "OllamaModel"}),
        body_schema="OllamaShowRequest",
        replies={404: no_model("Ollama")},
        example={"model": ""},
        dialect="Ollama",
    ),
    ("GET", "/api/version"): Operation(
        "ollamaVersion", "Ollama", "The version of Ollama whose API this is",
        Reply("The version.", {JSON: "OllamaVersion"}), needs_model=False, dialect="Ollama",
    ),
    ("POST", "/api/pull"): _refused("ollamaPull", "Download a model"),
    ("POST", "/api/push"): _refused("ollamaPush", "Upload a model"),
    ("POST", "/api/create"): _refused("ollamaCreate", "Make a model of another"),
    ("POST", "/api/copy"): _refused("ollamaCopy", "Give a model another name"),
    ("DELETE", "/api/delete"): _refused("ollamaDelete", "Delete a model"),
    ("POST", "/api/embed"): _refused("ollamaEmbed", "Vectors of texts"),
    ("POST", "/api/embeddings"): _refused("ollamaEmbeddings", "The vector of a text"),
}  # fmt: skip
