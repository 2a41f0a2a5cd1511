"""The list of models as Anthropic's clients read it: GET /v1/models and /v1/models/{id}."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec


def write_models(names: Sequence[str], created_s: int) -> bytes:
    """All of them on one page. created_s: Unix time of each."""
    return msgspec.json.encode(
        {
            "data": [_entry(name, created_s) for name in names],
            "has_more": False,
            "first_id": names[0] if names else None,
            "last_id": names[-1] if names else None,
        }
    )


def write_model(name: str, created_s: int) -> bytes:
    """One of them."""
    return msgspec.json.encode(_entry(name, created_s))


def _entry(name: str, created_s: int) -> dict[str, Any]:
    created_at = datetime.fromtimestamp(created_s, UTC).isoformat().replace("+00:00", "Z")
    return {"type": "model", "id": name, "display_name": name, "created_at": created_at}
