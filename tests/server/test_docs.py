"""docs/api.md lists the endpoints and the error codes there are."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.engine.limits import CONTEXT_LENGTH_EXCEEDED
from headrace.server import api_error, app

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_endpoints() -> None:
    rows = re.findall(r"^\| (GET|POST) \| `([^`]+)` \|", TEXT, flags=re.M)
    assert sorted(rows) == sorted(
        (method, path.replace("{model:path}", "{model}")) for method, path, _ in app.ROUTES
    )


def test_error_codes() -> None:
    """Every code in the server's sources is documented."""
    sources = Path(api_error.__file__).parent.rglob("*.py")
    source = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    codes = set(re.findall(r'code="([a-z_]+)"', source))
    codes |= set(re.findall(r'unavailable\([^)]*"([a-z]+_?[a-z]+)"\)', source))
    assert len(codes) >= 5
    for code in codes | {api_error.MODEL_NOT_FOUND, CONTEXT_LENGTH_EXCEEDED}:
        assert f"`{code}`" in TEXT, code
