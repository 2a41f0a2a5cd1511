"""What each route does, takes and answers: the table the OpenAPI document is made from.

A route without a row here fails a test, and so does a row without a route. Replies name the structs
that are sent; statuses that every route shares are added where the document is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from headrace.protocol.openai.chat import ChatCompletion, ChatCompletionChunk
from headrace.protocol.openai.completions import Completion
from headrace.protocol.openai.error import ErrorBody
from headrace.protocol.openai.fields import CHAT, COMPLETIONS, DETOKENIZE, TOKENIZE
from headrace.protocol.openai.models import Model, ModelList
from headrace.protocol.openai.tokenize import DetokenizeReply, TokenizeReply
from headrace.protocol.request import Endpoint
from headrace.server.service_messages import (
    CANCEL,
    Cancelled,
    EngineRestart,
    Health,
    OpenRequests,
    PrefixCacheReset,
    Settings,
    Version,
)

JSON = "application/json"
EVENTS = "text/event-stream"
TEXT = "text/plain"
HTML = "text/html"

Struct = type[msgspec.Struct]
Key = Literal["none", "client", "admin"]


@dataclass(frozen=True)
class Reply:
    """What one status means. content: struct of each media type; None is text."""

    meaning: str
    content: Mapping[str, Struct | None] = field(default_factory=lambda: {JSON: ErrorBody})


@dataclass(frozen=True)
class Operation:
    """One route. body: what it takes. replies: those of its own. events: of a stream, one each.

    key: which key it needs where the server has keys. needs_model: 503 until there is a model.
    path_params: their meaning by name. example: a body to begin with.
    """

    name: str
    tag: str
    summary: str
    ok: Reply
    description: str = ""
    body: Endpoint[Any] | None = None
    events: Struct | None = None
    replies: Mapping[int, Reply] = field(default_factory=dict)
    key: Key = "client"
    needs_model: bool = True
    path_params: Mapping[str, str] = field(default_factory=dict)
    example: Mapping[str, Any] | None = None


def _json(meaning: str, struct: Struct) -> Reply:
    return Reply(meaning, {JSON: struct})


_NO_MODEL = Reply("`model` is not a served name (code `model_not_found`).")
_TEXT_BUSY = Reply("Too many large texts wait (code `queue_full`); see `Retry-After`.")
_BUSY = Reply("Too many requests wait (code `queue_full`); `Retry-After` says when to come back.")

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("POST", "/v1/chat/completions"): Operation(
        "createChatCompletion",
        "Generation",
        "Answer a conversation",
        Reply(
            "The answer; with `stream: true`, events: each a JSON object after `data: `, the last "
            "`data: [DONE]`. A failure on the way is an event with `error`, and no `[DONE]`.",
            {JSON: ChatCompletion, EVENTS: None},
        ),
        "The messages are rendered by the model's chat template. Prompt and output have to fit "
        "into the context, else the reply is a 400 with code `context_length_exceeded`.",
        CHAT,
        ChatCompletionChunk,
        {404: _NO_MODEL, 429: _BUSY},
        example={
            "messages": [{"role": "user", "content": "Why is the sky blue?"}],
            "max_tokens": 64,
            "stream": True,
        },
    ),
    ("POST", "/v1/completions"): Operation(
        "createCompletion",
        "Generation",
        "Continue a text or token ids",
        Reply(
            "A numbered choice per prompt; with `stream: true`, events: each a JSON object after "
            "`data: `, the last `data: [DONE]`.",
            {JSON: Completion, EVENTS: None},
        ),
        "Special tokens written in the text are taken as such. Prompt and output have to fit into "
        "the context, else the reply is a 400 with code `context_length_exceeded`.",
        COMPLETIONS,
        Completion,
        {404: _NO_MODEL, 429: _BUSY},
        example={"prompt": "Once upon a time", "max_tokens": 32, "temperature": 0},
    ),
    ("POST", "/tokenize"): Operation(
        "tokenize",
        "Tokens",
        "Token ids of a text or a conversation",
        _json("Exactly the ids that generation would take.", TokenizeReply),
        "Either `prompt` or `messages`, and not both.",
        TOKENIZE,
        replies={404: _NO_MODEL, 429: _TEXT_BUSY},
        example={"prompt": "Hello there", "return_token_strs": True},
    ),
    ("POST", "/detokenize"): Operation(
        "detokenize",
        "Tokens",
        "Text of token ids",
        _json("The text, special tokens written out.", DetokenizeReply),
        body=DETOKENIZE,
        replies={404: _NO_MODEL, 429: _TEXT_BUSY},
        example={"tokens": [1, 2, 3]},
    ),
    ("GET", "/v1/models"): Operation(
        "listModels", "Models", "The names that are served", _json("All of them.", ModelList)
    ),
    ("GET", "/v1/models/{model:path}"): Operation(
        "getModel",
        "Models",
        "One served name",
        _json("The model, with its `max_model_len`.", Model),
        replies={404: _NO_MODEL},
        path_params={"model": "A served name; it may contain slashes."},
    ),
    ("GET", "/health"): Operation(
        "health",
        "Operation",
        "Whether the engine works",
        _json("It does.", Health),
        replies={503: _json("It loads, is stalled, or has ended; see `status`.", Health)},
        key="none",
        needs_model=False,
    ),
    ("GET", "/ready"): Operation(
        "ready",
        "Operation",
        "Whether new requests are taken",
        _json("They are.", Health),
        replies={503: _json("They are not, or not yet; see `status`.", Health)},
        key="none",
        needs_model=False,
    ),
    ("GET", "/version"): Operation(
        "version", "Operation", "What runs here", _json("The version.", Version), needs_model=False
    ),
    ("GET", "/metrics"): Operation(
        "metrics",
        "Operation",
        "Metrics for Prometheus",
        Reply("Prometheus's text format.", {TEXT: None}),
        needs_model=False,
    ),
    ("GET", "/admin/requests"): Operation(
        "listRequests",
        "Administration",
        "Calls that are open, the oldest first",
        _json("All of them.", OpenRequests),
        key="admin",
        needs_model=False,
    ),
    ("POST", "/admin/cancel"): Operation(
        "cancelRequest",
        "Administration",
        "End an open call",
        _json("How many calls had the id and were ended.", Cancelled),
        body=CANCEL,
        replies={404: Reply("No open call has this id.")},
        key="admin",
        needs_model=False,
        example={"request_id": "0123456789abcdef"},
    ),
    ("POST", "/admin/reset_prefix_cache"): Operation(
        "resetPrefixCache",
        "Administration",
        "Forget what the prefix cache holds for nobody",
        _json("How many blocks were forgotten.", PrefixCacheReset),
        key="admin",
    ),
    ("POST", "/admin/restart_engine"): Operation(
        "restartEngine",
        "Administration",
        "End the engine and start another",
        _json("The old one is gone, the next is being started.", EngineRestart),
        "Requests that are open end with an error. Answered with a 503 while an engine is being "
        "started already; one that was given up is started as well.",
        key="admin",
    ),
    ("GET", "/admin/settings"): Operation(
        "settings",
        "Administration",
        "Every setting, secrets hidden",
        _json("Settings of server and engine.", Settings),
        key="admin",
        needs_model=False,
    ),
    ("GET", "/openapi.json"): Operation(
        "openapi",
        "Documentation",
        "This document",
        Reply("OpenAPI 3.1.", {JSON: None}),
        replies={404: Reply("`--no-enable-docs` turned it off.")},
        needs_model=False,
    ),
    ("GET", "/docs"): Operation(
        "docs",
        "Documentation",
        "This document as a page, with a form to try it",
        Reply("A page.", {HTML: None}),
        "It holds nothing of this server and needs no key: it asks for the document with yours.",
        replies={404: Reply("`--no-enable-docs` turned it off.")},
        key="none",
        needs_model=False,
    ),
    ("GET", "/docs/{name}"): Operation(
        "docsFile",
        "Documentation",
        "Script and style of the page",
        Reply("The file.", {"text/javascript": None, "text/css": None}),
        replies={404: Reply("No such file, or `--no-enable-docs`.")},
        key="none",
        needs_model=False,
        path_params={"name": "`app.js` or `style.css`."},
    ),
}
