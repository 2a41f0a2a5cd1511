"""The settings of the HTTP face of an engine; how they become flags is told in `settings`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.config import patterns
from headrace.config.masked import masked

Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
Key = Annotated[str, Meta(pattern=patterns.KEY)]
AllowedHost = Annotated[str, Meta(pattern=patterns.HOST_NAME)]


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP face of an engine. Secret settings are never shown or logged."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    ] = 8000
    allowed_hosts: Annotated[
        tuple[AllowedHost, ...],
        Meta(
            description="Names beside localhost and IP addresses that requests may have in `Host` "
            "(may be repeated): `*.name` for all below a name, `*` for any. Others get a 403, so "
            "that no web page can reach the server by a name of its own. Default: none where "
            "--host is loopback, else any."
        ),
    ] = ()
    uds: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Path of a Unix socket to listen on, in place of --host and --port."),
    ] = None
    ssl_certfile: Annotated[
        str | None, Meta(description="Certificate chain in PEM format; turns TLS on.")
    ] = None
    ssl_keyfile: Annotated[
        str | None, Meta(description="Private key of --ssl-certfile; default: in the same file.")
    ] = None
    ssl_ca_certs: Annotated[
        str | None,
        Meta(
            description="Certificates of authorities; clients have to present one signed by them."
        ),
    ] = None
    api_key: Annotated[
        tuple[Key, ...],
        Meta(
            description="API keys; a client has to send one (Authorization: Bearer KEY) on every "
            "path but /health, /ready and the page of /docs (its content, "
            "/openapi.json, needs one); visible ASCII characters only. Also read "
            "from HEADRACE_API_KEY, several separated by commas, which keeps them "
            "out of the process list.",
            extra={"secret": True, "env": "HEADRACE_API_KEY"},
        ),
    ] = ()
    enable_key_shares: Annotated[
        bool,
        Meta(
            description="With several API keys, share the engine and the queue between those that "
            "have requests at the same time."
        ),
    ] = True
    admin_api_key: Annotated[
        Key | None,
        Meta(
            description="Key for the paths below /admin, which are disabled without one. Also "
            "read from HEADRACE_ADMIN_API_KEY.",
            extra={"secret": True, "env": "HEADRACE_ADMIN_API_KEY"},
        ),
    ] = None
    allowed_origins: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(
            description="Origins whose pages may call the server from a browser (CORS); `*` for "
            "all. Default: none."
        ),
    ] = ()
    allowed_methods: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(description="Methods that such pages may use. Default: GET, POST and OPTIONS."),
    ] = ()
    allowed_headers: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(description="Request headers that such pages may send. Default: all."),
    ] = ()
    allow_credentials: Annotated[
        bool, Meta(description="Let such pages send the browser's cookies and credentials.")
    ] = False
    max_body_bytes: Annotated[
        Positive,
        Meta(description="Maximum size of a request body, in bytes; a larger one gets a 413."),
    ] = 16 * 2**20
    max_header_bytes: Annotated[
        Annotated[int, Meta(ge=1024)],
        Meta(description="Maximum bytes of request line and headers; more get a 431."),
    ] = 32 * 2**10
    max_connections: Annotated[
        Positive, Meta(description="Maximum number of open connections; further ones get a 503.")
    ] = 4096
    slow_client_timeout: Annotated[
        Seconds,
        Meta(
            description="Seconds that a client may take to send a request, or may read nothing "
            "of its reply, before its connection is closed."
        ),
    ] = 60.0
    sse_keep_alive: Annotated[
        Seconds,
        Meta(
            description="Seconds of silence in a stream after which a comment is sent to keep it "
            "open."
        ),
    ] = 15.0
    max_num_queued_reqs: Annotated[
        NotNegative,
        Meta(
            description="Maximum number of requests that wait to be scheduled; further ones get "
            "a 429. Each choice of `n` and each prompt counts."
        ),
    ] = 512
    max_num_queued_tokens: Annotated[
        Positive,
        Meta(
            description="Maximum prompt tokens of all waiting requests together; more get a 429. A "
            "request of any length is accepted while no other waits."
        ),
    ] = 2**20
    request_timeout: Annotated[
        Seconds | None,
        Meta(
            description="Seconds after which a request ends with the output so far (finish_reason "
            "`timeout`), unless its own `timeout_s` is less. Default: none."
        ),
    ] = None
    shutdown_timeout: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(
            description="Seconds that accepted requests may continue after SIGTERM or SIGINT. "
            "Default: until they are done; a second signal aborts them at once."
        ),
    ] = None
    max_engine_restarts: Annotated[
        NotNegative,
        Meta(
            description="How many times in a row a dead or hung engine is restarted; the count "
            "resets after ten minutes of service. 0: never."
        ),
    ] = 5
    engine_stall_timeout: Annotated[
        Seconds,
        Meta(
            description="Seconds without a message after which an engine counts as hung and is "
            "replaced; must be longer than its longest step."
        ),
    ] = 120.0
    served_model_name: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(
            description="Names of the model that clients may use; the first is in replies. "
            "Default: the file's or folder's name, or the name given as MODEL; for "
            "the model that ships in the package, headrace-base."
        ),
    ] = ()
    chat_template: Annotated[
        str | None, Meta(description="File with a chat template that replaces the model's own.")
    ] = None
    chat_template_name: Annotated[
        str | None,
        Meta(
            description="Which of the model's named chat templates to use. Default: `default`, or "
            "`tool_use` if there are tools and the model has it."
        ),
    ] = None
    default_chat_template_kwargs: Annotated[
        str | None,
        Meta(
            description="Variables for the chat template, as a JSON object; a request's "
            "`chat_template_kwargs` override them."
        ),
    ] = None
    tool_call_parser: Annotated[
        Annotated[str, Meta(min_length=1)],
        Meta(
            description="The format in which the model writes tool calls. Default: `auto`, the one "
            "that its chat template shows; `none`: calls are not read."
        ),
    ] = "auto"
    exclude_tools_when_tool_choice_none: Annotated[
        bool,
        Meta(
            description="Keep tools out of the prompt where a request's `tool_choice` is `none`. "
            "Such a prompt shares no prefix with those of the same session that may call them."
        ),
    ] = False
    reasoning_parser: Annotated[
        Annotated[str, Meta(min_length=1)],
        Meta(
            description="The format in which the model writes its reasoning. Default: `auto`, the "
            "one that its chat template shows; `none`: reasoning is part of the text."
        ),
    ] = "auto"
    trust_request_chat_template: Annotated[
        bool,
        Meta(
            description="Accept `chat_template` in requests. A template is code: its work is "
            "bounded, but it comes from the client."
        ),
    ] = False
    enable_force_include_usage: Annotated[
        bool, Meta(description="End every stream with a usage event, requested or not.")
    ] = False
    responses_store: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="SQLite file in which responses of /v1/responses are kept across restarts. "
            "It holds texts of conversations: only its owner can read it. Default: they are kept "
            "in memory."
        ),
    ] = None
    max_stored_responses: Annotated[
        NotNegative,
        Meta(
            description="Maximum number of responses that are kept; the oldest go first. 0: none "
            "are kept."
        ),
    ] = 4096
    max_stored_response_bytes: Annotated[
        Positive,
        Meta(description="Maximum bytes of all kept responses together; the oldest go first."),
    ] = 256 * 2**20
    stored_response_days: Annotated[
        Positive, Meta(description="Days after which a kept response is forgotten.")
    ] = 30
    enable_docs: Annotated[
        bool, Meta(description="Serve the chat page at /, /openapi.json and /docs.")
    ] = True
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Lowest level that is logged."),
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"],
        Meta(description="Format of the log: lines of text, or one JSON object per line."),
    ] = "text"
    enable_log_requests: Annotated[
        bool,
        Meta(
            description="Log each request when it has ended: id, sizes, times and reason; never "
            "its text."
        ),
    ] = False
    enable_log_outputs: Annotated[
        bool,
        Meta(
            description="Also log prompts and outputs, with --enable-log-requests. They are "
            "private texts: consider who can read the log."
        ),
    ] = False
    max_log_len: Annotated[
        NotNegative, Meta(description="Maximum characters of a prompt or an output in the log.")
    ] = 1000
    status_interval: Annotated[
        Annotated[float, Meta(ge=0)],
        Meta(
            description="Seconds between log lines about the engine's work, while it has any; 0: "
            "none."
        ),
    ] = 10.0
    otlp_traces_endpoint: Annotated[
        str | None,
        Meta(
            description="URL of an OpenTelemetry collector (OTLP over HTTP) that receives a span "
            "for each request; needs the extra `headrace[otel]`."
        ),
    ] = None

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in masked(self).items())
        return f"ServerConfig({values})"
