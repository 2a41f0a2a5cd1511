"""Events of streams, and records as tests compare them."""

from __future__ import annotations

import json
from typing import Any

from headrace.bench.record import RequestRecord
from tests.bench.client.wire import MS


def sse(*events: dict[str, Any] | str) -> list[bytes]:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in events]
    return [f"data: {text}\n\n".encode() for text in texts]


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def shape(record: RequestRecord) -> list[tuple[float, str, str]]:
    return [(chunk.at_ns / MS, chunk.kind, chunk.text) for chunk in record.chunks]


STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
