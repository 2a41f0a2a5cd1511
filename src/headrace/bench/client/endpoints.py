"""Requests as each kind of endpoint wants them: URL, headers and body.

A field that an endpoint cannot be told is refused, not left out: a run whose answers are shorter
than asked would measure something else. Keys go into headers and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

from headrace.bench.client.messages import anthropic_body, ollama_messages
from headrace.bench.client.prompt import Prompt
from headrace.bench.client.secrets import secrets_of
from headrace.errors import ConfigError, shown

EndpointKind = Literal[
    "openai-chat", "openai-completions", "openai-embeddings", "anthropic-messages", "ollama"
]

ANTHROPIC_VERSION = "2023-06-01"
# Anthropic does not answer without max_tokens; as many as the mock and most servers give.
DEFAULT_MAX_TOKENS = 128
_USER_AGENT = "headrace-bench"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint that requests go to. Raises ConfigError for an option that its kind does not
    have."""

    kind: EndpointKind
    base_url: str
    """The address, with or without /v1; `path` replaces the kind's own path."""
    model: str
    api_key: str | None = None
    path: str | None = None
    headers: dict[str, str] = {}
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Field of a chat that limits the answer; OpenAI's reasoning models take only
    max_completion_tokens, older servers only max_tokens."""
    include_usage: bool = True
    """Ask for token counts at the end of a stream of OpenAI's."""
    continuous_usage: bool = False
    """Ask for token counts in every event, which vLLM, headrace and the mock support."""
    return_metrics: bool = False
    """Ask for each request's times and cache use, which headrace reports."""

    def __post_init__(self) -> None:
        """Check that the kind has what is asked for."""
        if self.max_tokens_field != "max_tokens" and self.kind != "openai-chat":
            raise ConfigError(
                f"max_tokens_field: {self.max_tokens_field} is for openai-chat, not for "
                f"{self.kind}; omit it"
            )
        if self.kind not in ("openai-chat", "openai-completions"):
            for name, usual in (
                ("include_usage", True),
                ("continuous_usage", False),
                ("return_metrics", False),
            ):
                if getattr(self, name) is not usual:
                    raise ConfigError(
                        f"{name}: is for openai-chat and openai-completions, not for "
                        f"{self.kind}; omit it"
                    )
        if self.continuous_usage and not self.include_usage:
            raise ConfigError(
                "continuous_usage: counts in every event need include_usage; turn it on, or "
                "continuous_usage off"
            )

    def __repr__(self) -> str:
        """Without what may be secret."""
        return f"Endpoint(kind={self.kind!r}, base_url={without_secrets(self.base_url)!r}, ...)"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What may stand in no record and no message."""
        return secrets_of(self.api_key, self.base_url, self.headers, self.path)


class HttpRequest(NamedTuple):
    """A request ready to be sent: `data` is all of its bytes."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    data: bytes
    stream: bool

    @property
    def origin(self) -> tuple[str, str, int]:
        """Which connections it can take."""
        return self.scheme, self.host, self.port

    def __repr__(self) -> str:
        """Without the bytes, which hold the key."""
        return f"HttpRequest({self.scheme}://{self.host}:{self.port}, {len(self.data)} bytes)"


class _Format(NamedTuple):
    path: Callable[[Prompt], str]
    body: Callable[[Endpoint, Prompt], dict[str, Any]]


def build_request(endpoint: Endpoint, prompt: Prompt) -> HttpRequest:
    """All bytes of the request; ConfigError for a prompt that the endpoint cannot take."""
    form = _FORMATS[endpoint.kind]
    body = msgspec.json.encode(form.body(endpoint, prompt) | prompt.extra_body)
    url = split_url(endpoint.base_url)
    stream = prompt.stream and endpoint.kind != "openai-embeddings"
    lines = [f"POST {_target(url, endpoint.path or form.path(prompt))} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in _headers(endpoint, url, stream).items()]
    lines.append(f"content-length: {len(body)}")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return HttpRequest(*_origin(url), head + body, stream)


def get_request(endpoint: Endpoint, path: str) -> HttpRequest:
    """A GET of `path` on the endpoint's host, such as /metrics, with its key."""
    url = split_url(endpoint.base_url)
    headers = _headers(endpoint, url, stream=False)
    del headers["content-type"]
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    data = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return HttpRequest(*_origin(url), data, stream=False)


def _origin(url: SplitResult) -> tuple[Literal["http", "https"], str, int]:
    """Of an address that `split_url` has taken."""
    assert url.hostname is not None
    if url.scheme == "https":
        return "https", url.hostname, url.port or 443
    return "http", url.hostname, url.port or 80


def split_url(base_url: str, name: str = "base_url") -> SplitResult:
    """The parts of an endpoint's address; ConfigError where it is none, by the name it was given
    by."""
    told = f"{name}: {shown(without_secrets(base_url))}"
    try:
        url = urlsplit(base_url)
        port_is_valid = url.port is None or url.port > 0
    except ValueError:
        # Its words repeat parts of the address, which may be those of a password.
        raise ConfigError(f"{told} has no valid host and port; write http://host:port") from None
    if url.scheme not in ("http", "https") or not url.hostname or not port_is_valid:
        raise ConfigError(f"{told} is not an address; write http://host:port or https://host")
    if url.username is not None or url.password is not None:
        raise ConfigError(
            f"{told} has a user or password before the host, which are not sent; send them in "
            "a header, authorization: Basic with both in base64"
        )
    if not (url.hostname + url.path + url.query).isascii() or " " in url.path + url.query:
        raise ConfigError(f"{told} has characters that have to be percent-encoded")
    return url


def without_secrets(url: str) -> str:
    """An address as it may be shown: without user, password and query."""
    _, separator, rest = url.partition("://")
    scheme = url[: len(url) - len(rest)] if separator else ""
    rest = (rest if separator else url).partition("?")[0].partition("#")[0]
    host, slash, path = rest.partition("/")
    port = host.rpartition(":")[2] if ":" in host and not host.endswith("]") else "0"
    if "@" in path and not port.isdigit():  # a password with a slash
        host, slash, path = path.rpartition("@")[2].partition("/")
    return scheme + host.rpartition("@")[2] + slash + path


def _target(url: SplitResult, path: str) -> str:
    base = url.path.rstrip("/")
    for version in ("/v1", "/api"):
        if base.endswith(version) and path.startswith(version + "/"):
            base = base.removesuffix(version)
    if base.endswith(path):
        path = ""
    return base + path + (f"?{url.query}" if url.query else "")


def _headers(endpoint: Endpoint, url: SplitResult, stream: bool) -> dict[str, str]:
    host = url.netloc.rpartition("@")[2]
    headers = {
        "host": host,
        "user-agent": _USER_AGENT,
        "accept": "text/event-stream" if stream and endpoint.kind != "ollama" else "*/*",
        # Compressed events come in bursts of the compressor's, not at the times of tokens.
        "accept-encoding": "identity",
        "content-type": "application/json",
    }
    if endpoint.kind == "anthropic-messages":
        headers["anthropic-version"] = ANTHROPIC_VERSION
    if endpoint.api_key is not None:
        if endpoint.kind == "anthropic-messages":
            headers["x-api-key"] = endpoint.api_key
        else:
            headers["authorization"] = f"Bearer {endpoint.api_key}"
    headers |= {name.lower(): value for name, value in endpoint.headers.items()}
    for name, value in headers.items():
        if any(not 32 <= ord(letter) <= 255 for letter in name + value) or not name:
            raise ConfigError(
                f"headers: {name} has a character that no header can carry; is the value whole?"
            )
    return headers


def _generation(endpoint: Endpoint, prompt: Prompt) -> dict[str, Any]:
    """What OpenAI's two endpoints and the servers that speak like them have in common."""
    body: dict[str, Any] = {"model": endpoint.model, "stream": prompt.stream}
    if prompt.max_tokens is not None:
        body[endpoint.max_tokens_field] = prompt.max_tokens
    if prompt.min_tokens is not None:
        body["min_tokens"] = prompt.min_tokens
    if prompt.ignore_eos:
        body["ignore_eos"] = True
    if prompt.stream and endpoint.include_usage:
        body["stream_options"] = {"include_usage": True}
        if endpoint.continuous_usage:
            body["stream_options"]["continuous_usage_stats"] = True
    if endpoint.return_metrics:
        body["return_metrics"] = True
    return body


def _chat(endpoint: Endpoint, prompt: Prompt) -> dict[str, Any]:
    return _generation(endpoint, prompt) | {"messages": prompt.as_messages()}


def _completions(endpoint: Endpoint, prompt: Prompt) -> dict[str, Any]:
    ids = None if prompt.token_ids is None else list(prompt.token_ids)
    given = prompt.text if ids is None else ids
    if given is None:
        raise ConfigError(f"prompt: {endpoint.kind} takes text or token ids, not messages")
    return _generation(endpoint, prompt) | {"prompt": given}


def _embeddings(endpoint: Endpoint, prompt: Prompt) -> dict[str, Any]:
    _refuse_lengths(endpoint, prompt, ("max_tokens", "min_tokens", "ignore_eos"))
    given: Any = prompt.text if prompt.inputs is None else list(prompt.inputs)
    if prompt.token_ids is not None:
        given = list(prompt.token_ids)
    if given is None:
        raise ConfigError(f"prompt: {endpoint.kind} takes text, inputs or token ids, not messages")
    return {"model": endpoint.model, "input": given}


def _anthropic(endpoint: Endpoint, prompt: Prompt) -> dict[str, Any]:
    _refuse_lengths(endpoint, prompt, ("min_tokens", "ignore_eos"))
    body = {"model": endpoint.model, "stream": prompt.stream}
    body["max_tokens"] = DEFAULT_MAX_TOKENS if prompt.max_tokens is None else prompt.max_tokens
    return body | anthropic_body(prompt.as_messages())


def _ollama(endpoint: Endpoint, prompt: Prompt) -> dict[str, Any]:
    _refuse_lengths(endpoint, prompt, ("min_tokens", "ignore_eos"))
    body: dict[str, Any] = {"model": endpoint.model, "stream": prompt.stream}
    if prompt.max_tokens is not None:
        body["options"] = {"num_predict": prompt.max_tokens}
    if prompt.text is not None:
        return body | {"prompt": prompt.text}
    return body | {"messages": ollama_messages(prompt.as_messages())}


def _refuse_lengths(endpoint: Endpoint, prompt: Prompt, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(prompt, name) not in (None, False):
            raise ConfigError(
                f"{name}: {shown(getattr(prompt, name))} cannot be sent to {endpoint.kind}; omit it"
            )


_FORMATS: dict[EndpointKind, _Format] = {
    "openai-chat": _Format(lambda prompt: "/v1/chat/completions", _chat),
    "openai-completions": _Format(lambda prompt: "/v1/completions", _completions),
    "openai-embeddings": _Format(lambda prompt: "/v1/embeddings", _embeddings),
    "anthropic-messages": _Format(lambda prompt: "/v1/messages", _anthropic),
    "ollama": _Format(
        lambda prompt: "/api/chat" if prompt.text is None else "/api/generate", _ollama
    ),
}
