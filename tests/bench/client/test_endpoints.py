"""Requests, byte by byte, for every kind of endpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.bench.client.endpoints import (
    Endpoint,
    build_request,
    get_request,
    without_secrets,
)
from headrace.bench.client.prompt import Prompt
from headrace.errors import ConfigError

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
TALK: tuple[dict[str, Any], ...] = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE]},
)


def endpoint(kind: Any, base_url: str = "http://h:8000", **fields: Any) -> Endpoint:
    return Endpoint(kind=kind, base_url=base_url, model="m", **fields)


def parsed(at: Endpoint, prompt: Prompt) -> tuple[str, dict[str, str], dict[str, Any]]:
    head, _, body = build_request(at, prompt).data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert int(headers["content-length"]) == len(body)
    return first, headers, json.loads(body)


@pytest.mark.parametrize(
    ("base_url", "path", "target"),
    [
        ("http://h", None, "/v1/chat/completions"),
        ("http://h/", None, "/v1/chat/completions"),
        ("http://h/v1", None, "/v1/chat/completions"),
        ("http://h/v1/", None, "/v1/chat/completions"),
        ("http://h/proxy/v1", None, "/proxy/v1/chat/completions"),
        ("http://h/v1/chat/completions", None, "/v1/chat/completions"),
        (
            "http://h/openai?version=1",
            "/deployments/x/chat",
            "/openai/deployments/x/chat?version=1",
        ),
    ],
)
def test_paths_fit_the_address(base_url: str, path: str | None, target: str) -> None:
    first, _, _ = parsed(endpoint("openai-chat", base_url, path=path), Prompt(text="a"))
    assert first == f"POST {target} HTTP/1.1"


def test_chat() -> None:
    at = endpoint("openai-chat", "https://h:8443", api_key="k1", continuous_usage=True)
    prompt = Prompt(
        text="hi", max_tokens=9, min_tokens=9, ignore_eos=True, extra_body={"temperature": 0}
    )
    _, headers, body = parsed(at, prompt)
    assert body == {
        "model": "m",
        "stream": True,
        "max_tokens": 9,
        "min_tokens": 9,
        "ignore_eos": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0,
    }
    assert headers["host"] == "h:8443"
    assert headers["authorization"] == "Bearer k1"
    assert headers["accept-encoding"] == "identity"
    request = build_request(at, prompt)
    assert (request.scheme, request.host, request.port) == ("https", "h", 8443)
    assert request.stream
    other = endpoint("openai-chat", max_tokens_field="max_completion_tokens", include_usage=False)
    _, _, body = parsed(other, Prompt(messages=TALK, max_tokens=3, stream=False))
    assert body == {
        "model": "m",
        "stream": False,
        "max_completion_tokens": 3,
        "messages": list(TALK),
    }


def test_completions_and_embeddings() -> None:
    _, _, body = parsed(endpoint("openai-completions"), Prompt(token_ids=(1, 2), stream=False))
    assert body == {"model": "m", "stream": False, "prompt": [1, 2]}
    first, _, body = parsed(endpoint("openai-embeddings"), Prompt(inputs=("a", "b")))
    assert first == "POST /v1/embeddings HTTP/1.1"
    assert body == {"model": "m", "input": ["a", "b"]}
    assert not build_request(endpoint("openai-embeddings"), Prompt(text="a")).stream


def test_anthropic() -> None:
    at = endpoint("anthropic-messages", api_key="k2", headers={"Anthropic-Beta": "x"})
    first, headers, body = parsed(at, Prompt(messages=TALK, max_tokens=7))
    assert first == "POST /v1/messages HTTP/1.1"
    assert headers["x-api-key"] == "k2"
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["anthropic-beta"] == "x"
    assert "authorization" not in headers
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    content = [{"type": "text", "text": "What is this?"}, {"type": "image", "source": source}]
    assert body == {
        "model": "m",
        "stream": True,
        "max_tokens": 7,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": content}],
    }


def test_ollama() -> None:
    first, _, body = parsed(endpoint("ollama"), Prompt(messages=TALK, max_tokens=7))
    assert first == "POST /api/chat HTTP/1.1"
    assert body == {
        "model": "m",
        "stream": True,
        "options": {"num_predict": 7},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is this?", "images": ["aGk="]},
        ],
    }
    first, _, body = parsed(endpoint("ollama", "http://h/api"), Prompt(text="hi"))
    assert first == "POST /api/generate HTTP/1.1"
    assert body == {"model": "m", "stream": True, "prompt": "hi"}


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        ("ollama", {"text": "a", "ignore_eos": True}, "ignore_eos: True cannot be sent to ollama"),
        ("anthropic-messages", {"text": "a", "min_tokens": 3}, "min_tokens: 3 cannot be sent"),
        ("openai-embeddings", {"text": "a", "max_tokens": 3}, "max_tokens: 3 cannot be sent"),
        ("openai-chat", {"token_ids": (1,)}, "a chat endpoint takes text or messages"),
        ("openai-completions", {"messages": TALK}, "takes text or token ids, not messages"),
        ("openai-embeddings", {"messages": TALK}, "takes text, inputs or token ids"),
        ("openai-chat", {}, "prompt: nothing given; give exactly one of text"),
        ("openai-chat", {"text": "a", "inputs": ("b",)}, "prompt: text and inputs given"),
        (
            "anthropic-messages",
            {"messages": ({"role": "user", "content": [{"type": "input_audio"}]},)},
            "neither text nor image_url",
        ),
        (
            "ollama",
            {
                "messages": (
                    {"role": "user", "content": [IMAGE | {"image_url": {"url": "http://x/y"}}]},
                )
            },
            "the image 'http://x/y' is not a data:...;base64 URL",
        ),
    ],
)
def test_what_cannot_be_said_is_refused(kind: str, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_request(endpoint(kind), Prompt(**fields))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "base_url", ["h:8000", "ftp://h", "http://", "http://h:99999", "http://h/a b", "http://[::1"]
)
def test_addresses_that_are_none(base_url: str) -> None:
    with pytest.raises(ConfigError, match="base_url: '"):
        build_request(endpoint("openai-chat", base_url), Prompt(text="a"))


def test_keys_are_in_headers_only() -> None:
    url = "https://h/v1?key=in-query"
    at = endpoint("openai-chat", url, api_key="sk-1", headers={"X-Api-Key": "sk-2", "X-Team": "t"})
    assert "sk-" not in repr(at)
    assert "in-query" not in repr(at)
    assert "sk-" not in repr(build_request(at, Prompt(text="a")))
    assert set(at.secrets) == {"sk-1", "sk-2", "in-query"}
    assert without_secrets(url) == "https://h/v1"
    assert without_secrets("/next?token=x") == "/next"
    with pytest.raises(ConfigError) as caught:
        build_request(endpoint("openai-chat", api_key="sk-1\n"), Prompt(text="a"))
    assert "authorization has a character" in str(caught.value)
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize("base_url", ["https://user:pass-word@h/v1", "http://user:pass/word@h"])
def test_a_user_and_a_password_would_not_be_sent(base_url: str) -> None:
    at = endpoint("openai-chat", base_url)
    with pytest.raises(ConfigError) as caught:
        build_request(at, Prompt(text="a"))
    assert "word" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        ("openai-completions", {"max_tokens_field": "max_completion_tokens"}, "max_tokens_field: "),
        ("anthropic-messages", {"include_usage": False}, "include_usage: is for openai-chat and"),
        ("ollama", {"continuous_usage": True}, "continuous_usage: is for openai-chat and"),
        ("openai-embeddings", {"return_metrics": True}, "return_metrics: is for openai-chat and"),
        ("openai-chat", {"include_usage": False, "continuous_usage": True}, "need include_usage"),
    ],
)
def test_what_a_kind_cannot_be_asked_is_refused(
    kind: str, fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        endpoint(kind, **fields)
    assert told in str(caught.value)


def test_our_server_is_asked_for_its_times() -> None:
    _, _, body = parsed(endpoint("openai-completions", return_metrics=True), Prompt(text="a"))
    assert body["return_metrics"] is True
    _, _, body = parsed(endpoint("openai-completions"), Prompt(text="a"))
    assert "return_metrics" not in body


def test_other_pages_of_the_host() -> None:
    request = get_request(endpoint("openai-chat", "http://h:8000/v1", api_key="k"), "/metrics")
    assert request.data.startswith(b"GET /metrics HTTP/1.1\r\nhost: h:8000\r\n")
    assert b"authorization: Bearer k\r\n" in request.data
    assert request.data.endswith(b"\r\n\r\n")
