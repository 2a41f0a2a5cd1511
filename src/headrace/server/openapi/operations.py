"""What each route does, takes and answers: the table the OpenAPI document is made from.

A route without a row here fails a test, and so does a row without a route. Replies name the structs
that are sent; statuses that every route shares are added where the document is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from headrace.protocol.openai.apply_template import ApplyTemplateReply
from headrace.protocol.openai.chat import ChatCompletion, ChatCompletionChunk
from headrace.protocol.openai.completions import Completion
from headrace.protocol.openai.error import ErrorBody
from headrace.protocol.openai.fields import (
    APPLY_TEMPLATE,
    CHAT,
    COMPLETIONS,
    DETOKENIZE,
    TOKENIZE,
)
from headrace.protocol.openai.models import Model, ModelList
from headrace.protocol.openai.tokenize import DetokenizeReply, TokenizeReply
from headrace.protocol.request import Endpoint
from headrace.server.service_messages import (
    CANCEL,
    Cancelled,
    EngineRestart,
    Health,
    Load,
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
    """The meaning of one status."""

    meaning: str
    content: Mapping[str, Struct | str | None] = field(default_factory=lambda: {JSON: ErrorBody})
    """Struct of each media type, or the name of its schema; None is text."""


@dataclass(frozen=True)
class Operation:
    """One route."""

    name: str
    tag: str
    summary: str
    ok: Reply | None
    """None for what always fails."""
    description: str = ""
    body: Endpoint[Any] | None = None
    """What it takes."""
    events: Struct | None = None
    """Events of a stream, one each."""
    replies: Mapping[int, Reply] = field(default_factory=dict)
    """Replies of its own, beside the common ones."""
    key: Key = "client"
    """Key that it needs if the server has keys."""
    needs_model: bool = True
    """503 until there is a model."""
    path_params: Mapping[str, str] = field(default_factory=dict)
    """Their meaning by name."""
    example: Mapping[str, Any] | None = None
    """A body to begin with; an empty `model` stands for the served name."""
    body_schema: str | None = None
    """Schema of what it takes, where no struct has it."""
    dialect: str = ""
    """Whose API the path is of, "" for OpenAI's and our own: errors have its form."""

    @property
    def takes_body(self) -> bool:
        """Whether it has one."""
        return self.body is not None or self.body_schema is not None


def _json(meaning: str, struct: Struct) -> Reply:
    return Reply(meaning, {JSON: struct})


NO_MODEL = Reply("`model` is not a served name (code `model_not_found`).")
_TEXT_BUSY = Reply("Too many large texts are waiting (code `queue_full`); see `Retry-After`.")
BUSY = Reply(
    "Too many requests are waiting (code `queue_full`); `Retry-After` says when to try again."
)


def in_dialect(reply: Reply, dialect: str) -> Reply:
    """An error reply in the form of a dialect."""
    return replace(reply, content={JSON: f"{dialect}Error"})


def busy(dialect: str) -> Reply:
    """The reply of a queue that is full, in the form of a dialect."""
    return in_dialect(BUSY, dialect)


def no_model(dialect: str) -> Reply:
    """The reply about a name that is not served, in the form of a dialect."""
    return in_dialect(Reply("`model` is not a served name."), dialect)


OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("POST", "/v1/chat/completions"): Operation(
        "createChatCompletion",
        "Generation",
        "Answer a conversation",
        Reply(
            "The answer; with `stream: true`, events: each a JSON object after `data: `, the "
            "last `data: [DONE]`. A failure during the stream is an event with `error`, "
            "without `[DONE]`.",
            {JSON: ChatCompletion, EVENTS: None},
        ),
        "The messages are rendered by the model's chat template. Prompt and output have to "
        "fit into the context, or the reply is a 400 with code `context_length_exceeded`.",
        CHAT,
        ChatCompletionChunk,
        {404: NO_MODEL, 429: BUSY},
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
            "One numbered choice per prompt; with `stream: true`, events: each a JSON object "
            "after `data: `, the last `data: [DONE]`.",
            {JSON: Completion, EVENTS: None},
        ),
        "Special tokens written in the text are read as special tokens. Prompt and output "
        "have to fit into the context, or the reply is a 400 with code "
        "`context_length_exceeded`.",
        COMPLETIONS,
        Completion,
        {404: NO_MODEL, 429: BUSY},
        example={"prompt": "Once upon a time", "max_tokens": 32, "temperature": 0},
    ),
    ("POST", "/tokenize"): Operation(
        "tokenize",
        "Tokens",
        "Token ids of a text or a conversation",
        _json("Exactly the ids that generation would use.", TokenizeReply),
        "Either `prompt` or `messages`, not both.",
        TOKENIZE,
        replies={404: NO_MODEL, 429: _TEXT_BUSY},
        example={"prompt": "Hello there", "return_token_strs": True},
    ),
    ("POST", "/detokenize"): Operation(
        "detokenize",
        "Tokens",
        "Text of token ids",
        _json("The text, with special tokens written out.", DetokenizeReply),
        body=DETOKENIZE,
        replies={404: NO_MODEL, 429: _TEXT_BUSY},
        example={"tokens": [1, 2, 3]},
    ),
    ("POST", "/apply-template"): Operation(
        "applyTemplate",
        "Tokens",
        "A conversation as the prompt it becomes, as text",
        _json("The text that generation would tokenize.", ApplyTemplateReply),
        body=APPLY_TEMPLATE,
        replies={404: NO_MODEL, 429: _TEXT_BUSY},
        example={"messages": [{"role": "user", "content": "Why is the sky blue?"}]},
    ),
    ("GET", "/v1/models"): Operation(
        "listModels", "Models", "List the served names", _json("All of them.", ModelList)
    ),
    ("GET", "/v1/models/{model:path}"): Operation(
        "getModel",
        "Models",
        "One served name",
        _json("The model, with its `max_model_len` and `default_sampling_params`.", Model),
        replies={404: NO_MODEL},
        path_params={"model": "A served name; it may contain slashes."},
    ),
    ("GET", "/health"): Operation(
        "health",
        "Operation",
        "Whether the engine is running",
        _json("It does.", Health),
        replies={503: _json("It is loading, stalled, or has ended; see `status`.", Health)},
        key="none",
        needs_model=False,
    ),
    ("GET", "/ready"): Operation(
        "ready",
        "Operation",
        "Whether new requests are accepted",
        _json("They are.", Health),
        replies={503: _json("They are not, or not yet; see `status`.", Health)},
        key="none",
        needs_model=False,
    ),
    ("GET", "/load"): Operation(
        "load",
        "Operation",
        "How many requests are open",
        _json("Their number.", Load),
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
        "Open calls, oldest first",
        _json("All of them.", OpenRequests),
        key="admin",
        needs_model=False,
    ),
    ("POST", "/admin/cancel"): Operation(
        "cancelRequest",
        "Administration",
        "End an open call",
        _json("Number of calls that had the id and were ended.", Cancelled),
        body=CANCEL,
        replies={404: Reply("No open call has this id.")},
        key="admin",
        needs_model=False,
        example={"request_id": "0123456789abcdef"},
    ),
    ("POST", "/admin/reset_prefix_cache"): Operation(
        "resetPrefixCache",
        "Administration",
        "Forget prefix cache blocks that no request uses",
        _json("Number of blocks forgotten.", PrefixCacheReset),
        key="admin",
    ),
    ("POST", "/admin/restart_engine"): Operation(
        "restartEngine",
        "Administration",
        "End the engine and start another",
        _json("The old one has ended, the next is being started.", EngineRestart),
        "Open requests end with an error. Answers 503 while an engine is already being "
        "started; also starts an engine whose restarts were given up.",
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
    ("GET", "/"): Operation(
        "greet",
        "Documentation",
        "A greeting, also at `/v1`",
        Reply("A line of text, or for a browser the chat page.", {TEXT: None, HTML: None}),
        replies={303: Reply("A browser is sent from `/v1` to `/`.", {})},
        key="none",
        needs_model=False,
    ),
    ("GET", "/page/{name:path}"): Operation(
        "pageFile",
        "Documentation",
        "Scripts, styles and icon of the chat page",
        Reply("The file.", {"text/javascript": None, "text/css": None, "image/svg+xml": None}),
        replies={404: Reply("No such file, or `--no-enable-docs`.")},
        key="none",
        needs_model=False,
        path_params={"name": "Such as `app.js` or `shared/base.css`."},
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
        "It contains nothing of this server and needs no key: it requests the document with yours.",
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
