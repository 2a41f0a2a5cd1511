"""A request with some fields, read."""

from __future__ import annotations

import json
from typing import Any

from headrace.protocol.dialects.anthropic import CLIENT
from headrace.protocol.neutral.call import (
    ChatCall,
)

BASE: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "hi"}],
}


def read(headers: dict[str, str] | None = None, **fields: Any) -> ChatCall:
    body = json.dumps(BASE | fields).encode()
    return CLIENT.read_call(body, "/v1/messages", headers or {})
