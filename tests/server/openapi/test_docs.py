"""docs/api.md lists the endpoints there are."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.server import app

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_endpoints() -> None:
    rows = re.findall(r"^\| (GET|POST|DELETE) \| `([^`]+)` \|", TEXT, flags=re.M)
    assert sorted(rows) == sorted(
        (method, path.replace(":path}", "}")) for method, path, _ in app.ROUTES
    )
