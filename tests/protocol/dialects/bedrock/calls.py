"""Calls made for tests, and what is written of them."""

from __future__ import annotations

import json
from typing import Any

from headrace.protocol.dialects.bedrock import PROVIDER
from headrace.protocol.neutral.call import ChatCall, Message, Role
from headrace.protocol.neutral.dialect import EncodedRequest
from headrace.protocol.neutral.part import Part, Text
from tests.protocol.dialects.bedrock.service_model import FILE, faults

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
NEW_CLAUDE = "us.anthropic.claude-sonnet-4-6"
NOVA = "us.amazon.nova-micro-v1:0"
LLAMA = "us.meta.llama4-maverick-17b-instruct-v1:0"
PROFILE = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/mi1dadi0g15f"


def said(role: Role, *parts: Part | str) -> Message:
    """A turn; text may be given as it is."""
    return Message(
        role=role, parts=tuple(Text(text=one) if isinstance(one, str) else one for one in parts)
    )


def call(*messages: Message, **fields: Any) -> ChatCall:
    """A call of `messages`, "Hi" if there are none."""
    given = messages or (said("user", "Hi"),)
    return ChatCall(dialect="openai_chat", model="m", messages=given, **fields)


def written(wanted: ChatCall, model: str = CLAUDE) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Body and what was dropped, after a look into the API's description where it is there."""
    request: EncodedRequest = PROVIDER.write_call(wanted, model)
    body: dict[str, Any] = json.loads(request.body)
    if FILE.exists():
        shape = "ConverseStreamRequest" if wanted.stream else "ConverseRequest"
        assert faults(shape, body) == []
    return body, request.dropped


def contents(wanted: ChatCall, model: str = CLAUDE) -> list[tuple[str, list[dict[str, Any]]]]:
    """The turns written, as pairs of role and blocks."""
    body, _ = written(wanted, model)
    return [(turn["role"], turn["content"]) for turn in body["messages"]]
