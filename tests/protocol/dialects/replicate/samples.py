"""Calls and predictions that several tests use."""

from __future__ import annotations

import json
from typing import Any

from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import Text

STREAM = "https://stream.replicate.com/v1/files/abc"


def call(*texts: str, **fields: Any) -> ChatCall:
    """A call of a client of another dialect; `texts` are turns, the user's first."""
    turns = tuple(
        Message(role="assistant" if number % 2 else "user", parts=(Text(text=text),))
        for number, text in enumerate(texts or ("Hi",))
    )
    return ChatCall(dialect="openai_chat", **{"model": "m", "messages": turns} | fields)


def prediction(status: str, **fields: Any) -> bytes:
    """A prediction as it is told at any time."""
    told = {
        "id": "2knutntbosoct6233zaqaieafa",
        "model": "meta/meta-llama-3-8b-instruct",
        "version": "hidden",
        "input": {"prompt": "Hi"},
        "logs": "",
        "output": None,
        "error": None,
        "status": status,
        "created_at": "2024-02-12T16:45:41.730471035Z",
        "urls": {"get": "https://elsewhere.example/steal", "stream": STREAM},
    }
    return json.dumps(told | fields).encode()
