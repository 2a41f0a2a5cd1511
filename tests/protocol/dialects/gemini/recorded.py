"""Exchanges with Google that were recorded, parsed once in a process."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tests.protocol.neutral.cassettes import Exchange, exchanges

_METHODS = (":generateContent", ":streamGenerateContent")
_FOLDERS = {
    "pydantic-ai.tar.gz": (
        "cassettes/test_google/",
        "models/google/",
        "-google_",
        "test_stream_close/",
        "test_model_name_suggestions/",
        "cassettes/test_settings/",
        "test_thinking_wire_contract/",
        "test_ref_sibling_wire_contract/",
        "test_tool_choice_matrix/",
        "test_tool_search/",
        "test_tool_availability_portability/",
        "test_embeddings/",
        "test_openai/test_multiple_agent_tool_calls",
        "test_openai/test_compatible_api",
        "test_anthropic_server_tool_receive_history_from_another_provider",
    ),
    "openllmetry.tar.gz": ("google-generativeai",),
}


@cache
def google_exchanges() -> tuple[Exchange, ...]:
    """All with the Gemini API and Vertex AI of both archives; skips the test without them."""
    found = [
        exchange
        for archive, folders in _FOLDERS.items()
        for under in folders
        for exchange in exchanges(archive, under=under, host="googleapis.com")
    ]
    wanted = {one.at: one for one in found if "oauth2" not in one.host}
    return tuple(wanted.values())


def answers(*, streamed: bool) -> list[Exchange]:
    """Those of generateContent, or of streamGenerateContent, that went well."""
    method = _METHODS[streamed]
    found = [one for one in google_exchanges() if method in one.path and one.status == 200]
    assert found
    return found


def requests() -> list[tuple[Exchange, dict[str, Any]]]:
    """All requests for an answer that were accepted."""
    return [
        (one, json.loads(one.request)) for kind in (False, True) for one in answers(streamed=kind)
    ]


def pieces(exchange: Exchange) -> list[dict[str, Any]]:
    """The objects of a stream, read the simplest way; of a whole reply the one."""
    if not exchange.streamed:
        return [json.loads(exchange.body)]
    text = exchange.body.decode().replace("\r\n", "\n")
    return [
        json.loads(event.removeprefix("data: ")) for event in text.split("\n\n") if event.strip()
    ]


class Told:
    """What an answer says, found in its raw JSON without the code under test."""

    def __init__(self, exchange: Exchange) -> None:
        self.pieces = pieces(exchange)
        self.candidates = [one for piece in self.pieces for one in piece.get("candidates", ())]
        self.parts = [
            part
            for candidate in self.candidates
            for part in candidate.get("content", {}).get("parts", ())
        ]
        self.text = self._joined(thought=False)
        self.thoughts = self._joined(thought=True)
        self.calls = [part["functionCall"] for part in self.parts if "functionCall" in part]
        self.signatures = [
            one["thoughtSignature"] for one in self.parts if "thoughtSignature" in one
        ]
        reasons = [one["finishReason"] for one in self.candidates if "finishReason" in one]
        self.reason = reasons[-1] if reasons else None
        told = [one["usageMetadata"] for one in self.pieces if "usageMetadata" in one]
        self.usage: dict[str, Any] = told[-1] if told else {}

    def _joined(self, *, thought: bool) -> str:
        return "".join(
            part["text"]
            for part in self.parts
            if "text" in part and bool(part.get("thought")) == thought
        )
