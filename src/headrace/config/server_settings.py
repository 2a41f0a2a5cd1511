"""The settings of the HTTP face of an engine; how they become flags is told in `settings`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.config.masked import masked

Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
# Visible ASCII characters: what a header can carry.
Key = Annotated[str, Meta(pattern=r"^[!-~]+\Z")]


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP face of an engine. Secret settings are never shown or logged."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    ] = 8000
    uds: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Path of a Unix socket to listen on, in place of --host and --port."),
    ] = None
    ssl_certfile: Annotated[
        str | None, Meta(description="Certificate chain in PEM; with it the server speaks TLS.")
    ] = None
    ssl_keyfile: Annotated[
        str | None, Meta(description="Key of --ssl-certfile; default: it is in the same file.")
    ] = None
    ssl_ca_certs: Annotated[
        str | None,
        Meta(description="Certificates of authorities; clients have to show one signed by them."),
    ] = None
    api_key: Annotated[
        tuple[Key, ...],
        Meta(
            description="Keys of which a client has to send one (Authorization: Bearer KEY) on "
            "every path but /health, /ready and the page of /docs (not what it shows: "
            "/openapi.json needs one); of visible ASCII characters. Also read from "
            "HEADRACE_API_KEY, several separated by commas, which keeps them out of the process "
            "list.",
            extra={"secret": True, "env": "HEADRACE_API_KEY"},
        ),
    ] = ()
    admin_api_key: Annotated[
        Key | None,
        Meta(
            description="Key of the paths below /admin, which are closed without one. Also read "
            "from HEADRACE_ADMIN_API_KEY.",
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
        Meta(description="Methods such pages may use. Default: GET, POST and OPTIONS."),
    ] = ()
    allowed_headers: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(description="Request headers such pages may send. Default: all."),
    ] = ()
    allow_credentials: Annotated[
        bool, Meta(description="Let such pages send cookies and credentials of the browser's.")
    ] = False
    max_body_bytes: Annotated[
        Positive, Meta(description="Largest body of a request, in bytes; beyond it is a 413.")
    ] = 16 * 2**20
    max_header_bytes: Annotated[
        Annotated[int, Meta(ge=1024)],
        Meta(description="Most bytes of request line and headers; beyond it is a 431."),
    ] = 32 * 2**10
    max_connections: Annotated[
        Positive, Meta(description="Most open connections; one more is answered with a 503.")
    ] = 4096
    slow_client_timeout: Annotated[
        Seconds,
        Meta(
            description="Seconds a client may take to send a request, or take nothing of what is "
            "written to it, before its connection is cut."
        ),
    ] = 60.0
    sse_keep_alive: Annotated[
        Seconds,
        Meta(description="Seconds of silence in a stream after which a comment keeps it open."),
    ] = 15.0
    max_num_queued_reqs: Annotated[
        NotNegative,
        Meta(
            description="Most requests that wait to be scheduled; one more is answered with a 429. "
            "Each choice of `n` and each prompt counts."
        ),
    ] = 512
    max_num_queued_tokens: Annotated[
        Positive,
        Meta(
            description="Most prompt tokens of waiting requests together; beyond it is a 429. A "
            "request is let in whatever its length while no other waits."
        ),
    ] = 2**20
    request_timeout: Annotated[
        Seconds | None,
        Meta(
            description="Seconds after which a request ends with what it has (finish_reason "
            "`timeout`), unless its own `timeout_s` is less. Default: none."
        ),
    ] = None
    shutdown_timeout: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(
            description="Seconds accepted requests may go on after SIGTERM or SIGINT. Default: "
            "until they are done; a second signal ends them at once."
        ),
    ] = None
    max_engine_restarts: Annotated[
        NotNegative,
        Meta(
            description="How often in a row an engine that died or hung is started again; one that "
            "has served for ten minutes counts anew. 0: never."
        ),
    ] = 5
    engine_stall_timeout: Annotated[
        Seconds,
        Meta(
            description="Seconds an engine may say nothing before it counts as hung and is "
            "replaced; longer than its longest step."
        ),
    ] = 120.0
    served_model_name: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(
            description="Names clients may use; the first is in replies. Default: the file's or "
            "folder's name, or the one MODEL was given by; for the model that ships in the "
            "package, headrace-base."
        ),
    ] = ()
    chat_template: Annotated[
        str | None, Meta(description="File with a chat template that replaces the model's own.")
    ] = None
    chat_template_name: Annotated[
        str | None,
        Meta(
            description="Which of the model's named chat templates to use. Default: `default`, "
            "and `tool_use` where there are tools and the model has one."
        ),
    ] = None
    default_chat_template_kwargs: Annotated[
        str | None,
        Meta(
            description="Variables for the chat template, as a JSON object; those of a request's "
            "`chat_template_kwargs` go before them."
        ),
    ] = None
    trust_request_chat_template: Annotated[
        bool,
        Meta(
            description="Take `chat_template` from requests. A template is code: its work is "
            "bounded, and still it is somebody else's."
        ),
    ] = False
    enable_force_include_usage: Annotated[
        bool, Meta(description="End every stream with a usage event, asked for or not.")
    ] = False
    enable_docs: Annotated[bool, Meta(description="Answer /openapi.json and /docs.")] = True
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least level logged."),
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"],
        Meta(description="Log lines for people, or one JSON object each."),
    ] = "text"
    enable_log_requests: Annotated[
        bool,
        Meta(
            description="Log each request when it has ended: id, sizes, times and reason; never "
            "what it says."
        ),
    ] = False
    enable_log_outputs: Annotated[
        bool,
        Meta(
            description="Log prompts and outputs too, with --enable-log-requests. They are "
            "people's words: mind who reads the log."
        ),
    ] = False
    max_log_len: Annotated[
        NotNegative, Meta(description="Most characters of a prompt or an output in the log.")
    ] = 1000
    status_interval: Annotated[
        Annotated[float, Meta(ge=0)],
        Meta(
            description="Seconds between lines that say what the engine does, while it does "
            "anything; 0: none."
        ),
    ] = 10.0
    otlp_traces_endpoint: Annotated[
        str | None,
        Meta(
            description="URL of an OpenTelemetry collector (OTLP over HTTP) that gets a span of "
            "each request; needs the extra `headrace[otel]`."
        ),
    ] = None

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in masked(self).items())
        return f"ServerConfig({values})"
