"""Every stream that was recorded, each with the reader that the gateway reads it with."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from headrace.gateway.building.dialects import provider_side
from headrace.gateway.settings.provider import ProviderSettings
from headrace.protocol.dialects.ollama.generate import GenerateReplies
from headrace.protocol.dialects.openai_completions import REPLIES as COMPLETIONS
from headrace.protocol.dialects.openai_responses import PROVIDER as RESPONSES
from headrace.protocol.dialects.replicate import PROVIDER as REPLICATE
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import ReplySide, StreamReader
from tests.gateway.cassettes.playing import settings_of
from tests.gateway.cassettes.recordings import VENDORS, Vendor, every
from tests.gateway.harness import gateway
from tests.protocol.neutral.cassettes import exchanges

_CALL = ChatCall(dialect="openai-chat", model="m", messages=(), stream=True, stream_usage=True)
_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def side_of(vendor: Vendor) -> ReplySide:
    """How a gateway reads what the vendor says."""
    built = gateway(settings_of(vendor, 9), [])
    built.close()
    return built.providers["a"].side


def _chat(variant: str = "generic") -> ReplySide:
    return provider_side("openai-chat", variant, ProviderSettings())


class Other(NamedTuple):
    """Streams that are no vendor's of the recordings: of a host, at paths with this in them."""

    name: str
    host: str
    path: str
    side: ReplySide
    archive: str = "openllmetry.tar.gz"


_PYDANTIC = "pydantic-ai.tar.gz"
OTHERS = (
    Other("openai-completions", "api.openai.com", "/v1/completions", COMPLETIONS),
    Other(
        "envoy-completions", "api.openai.com", "/v1/completions", COMPLETIONS, "envoy-ai-gateway"
    ),
    Other("vllm-completions", "localhost:8000", "/v1/completions", COMPLETIONS),
    Other("litellm-completions", "localhost:5002", "/v1/completions", COMPLETIONS),
    Other("vllm", "localhost:8000", "/v1/chat/completions", _chat("vllm")),
    Other("litellm", "localhost:5002", "/v1/chat/completions", _chat()),
    Other("crusoe", "crusoecloud.com", "/v1/chat/completions", _chat(), _PYDANTIC),
    Other("snowflake", "snowflakecomputing.com", "/v1/chat/completions", _chat(), _PYDANTIC),
    Other("deepseek-responses", "api.deepseek.com", "/responses", RESPONSES, _PYDANTIC),
    Other("bedrock-responses", "bedrock-mantle", "/responses", RESPONSES, _PYDANTIC),
    Other("openrouter-responses", "openrouter.ai", "/api/v1/responses", RESPONSES, _PYDANTIC),
    Other("ollama-generate", ":11434", "/api/generate", GenerateReplies()),
    Other("replicate", "replicate.net", "/v1/streams/", REPLICATE),
    Other("llm-chat", "api.openai.com", "/v1/chat/completions", _chat("openai"), "llm"),
    Other("llm-responses", "api.openai.com", "/v1/responses", RESPONSES, "llm"),
)
# Of two vendors no stream was recorded.
STREAMED = tuple(one for one in VENDORS if one.name not in ("cerebras", "together"))
NAMES = (*(one.name for one in STREAMED), *(one.name for one in OTHERS))


class RecordedStream(NamedTuple):
    """body: its bytes. side: how it is read."""

    at: str
    body: bytes
    side: ReplySide

    def reader(self) -> StreamReader:
        """A new one."""
        return self.side.stream_reader(_CALL)


def recorded_streams(name: str) -> list[RecordedStream]:
    """All of one of NAMES, no two with the same bytes, the shortest first."""
    bodies: dict[bytes, RecordedStream] = {}
    for vendor in VENDORS:
        if vendor.name == name:
            side = side_of(vendor)
            for recording in every(name, stream=True):
                body = recording.exchange.body
                bodies.setdefault(body, RecordedStream(recording.at, body, side))
    for other in OTHERS:
        if other.name == name:
            common = other.host == "api.openai.com"
            holds = other.path if common else other.host
            for one in exchanges(other.archive, host=other.host, holds=holds):
                path = one.path.partition("?")[0]
                if one.streamed and one.status == 200 and other.path in path:
                    bodies.setdefault(one.body, RecordedStream(one.at, one.body, other.side))
    return sorted(bodies.values(), key=lambda one: len(one.body))


def event_ends(stream: bytes, side: ReplySide) -> list[int]:
    """Where events end: after a blank line, at Bedrock after a frame, at Ollama after a line."""
    if side.name == "bedrock":
        ends, at = [], 0
        while at < len(stream):
            at += struct.unpack_from(">I", stream, at)[0]
            ends.append(at)
        return ends
    mark = re.compile(rb"\n") if side.name.startswith("ollama") else _BLANK_LINE
    return [found.end() for found in mark.finditer(stream)]
