"""Recorded answers of real providers, by vendor, and which of them are played back.

What is chosen hangs on nothing but the recordings: those with much in them first (tool calls,
thoughts, cached tokens, unusual ends), then others spread over all there are.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

from tests.protocol.neutral.cassettes import Exchange, exchanges

ARCHIVES = ("pydantic-ai.tar.gz", "openllmetry.tar.gz", "envoy-ai-gateway")


class Vendor(NamedTuple):
    """host, path: what the recordings' addresses hold. kind: of the gateway's provider."""

    name: str
    kind: str
    host: str
    path: str


VENDORS = (
    Vendor("openai", "openai", "api.openai.com", "/v1/chat/completions"),
    Vendor("openai-responses", "openai", "api.openai.com", "/v1/responses"),
    Vendor("azure", "azure-openai", "azure.com", "/chat/completions"),
    Vendor("anthropic", "anthropic", "api.anthropic.com", "/v1/messages"),
    Vendor("gemini", "google", "generativelanguage.googleapis.com", "enerateContent"),
    Vendor("vertex", "google-vertex", "aiplatform.googleapis.com", "enerateContent"),
    Vendor("bedrock", "aws-bedrock", "bedrock-runtime", "/converse"),
    Vendor("cohere", "cohere", "api.cohere.com", "/v2/chat"),
    Vendor("mistral", "mistral", "api.mistral.ai", "/v1/chat/completions"),
    Vendor("groq", "groq", "api.groq.com", "/chat/completions"),
    Vendor("deepseek", "deepseek", "api.deepseek.com", "/chat/completions"),
    Vendor("openrouter", "openrouter", "openrouter.ai", "/chat/completions"),
    Vendor("cerebras", "cerebras", "api.cerebras.ai", "/chat/completions"),
    Vendor("together", "together", "together", "/chat/completions"),
    Vendor("huggingface", "huggingface", "router.huggingface.co", "/chat/completions"),
    Vendor("zai", "zai", "api.z.ai", "/chat/completions"),
    Vendor("ollama", "ollama", ":11434", "/api/chat"),
)
# What says that there is more in an answer than a sentence.
_MARKS = (
    b"tool_use", b'"tool_calls": [{', b'"tool_calls":[{', b"functionCall", b"toolUse",
    b'"function_call"', b"thinking", b"reasoning", b"thought", b"length", b"max_tokens",
    b"MAX_TOKENS", b"content_filter", b"refusal", b"cache_read", b"cached", b"server_tool_use",
    b"citations", b"pause_turn", b"incomplete", b"audio", b"logprobs", b"\\u", b"x_groq",
)  # fmt: skip


class Recording(NamedTuple):
    """exchange: one that went well. asked: the recorded request."""

    vendor: Vendor
    exchange: Exchange
    asked: dict[str, Any]
    stream: bool

    @property
    def at(self) -> str:
        return self.exchange.at


@cache
def _all() -> dict[str, list[Recording]]:
    found: dict[str, list[Recording]] = {one.name: [] for one in VENDORS}
    seen: set[tuple[bytes, bytes]] = set()
    for archive in ARCHIVES:
        for exchange in exchanges(archive):
            if exchange.status != 200 or (exchange.request, exchange.body) in seen:
                continue
            path = exchange.path.partition("?")[0]
            for vendor in VENDORS:
                if vendor.host in exchange.host and (
                    path.endswith((vendor.path, vendor.path + "-stream"))
                ):
                    seen.add((exchange.request, exchange.body))
                    found[vendor.name] += _recording(vendor, exchange)
                    break
    return found


def _recording(vendor: Vendor, exchange: Exchange) -> list[Recording]:
    try:
        asked = json.loads(exchange.request)
    except ValueError:  # a few were cut when they were recorded
        asked = {}
    stream = exchange.streamed or asked.get("stream") is True
    if not exchange.body.strip() or asked.get("background"):
        return []
    return [Recording(vendor, exchange, asked, stream)]


def every(vendor: str, *, stream: bool) -> list[Recording]:
    """All of a vendor's, no two of them the same."""
    return [one for one in _all()[vendor] if one.stream == stream]


def chosen(vendor: str, *, stream: bool, most: int) -> list[Recording]:
    """At most so many, the same ones in every run."""
    left = sorted(every(vendor, stream=stream), key=lambda one: one.at)
    taken: list[Recording] = []
    for mark in _MARKS:
        new = next((one for one in left if mark in one.exchange.body and one not in taken), None)
        if new is not None and len(taken) < most * 3 // 4:
            taken.append(new)
    rest = [one for one in left if one not in taken]
    step = max(1, len(rest) // max(1, most - len(taken)))
    return (taken + rest[::step])[:most]
