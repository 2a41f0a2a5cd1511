"""docs/api.md says what the code accepts."""

from __future__ import annotations

from headrace.protocol.openai.fields import ENDPOINTS
from tests.protocol.api_tables import API, tables, with_tables


def test_the_field_tables_are_those_of_the_code() -> None:
    text = API.read_text(encoding="utf-8")
    assert text == with_tables(text), "run `python -m tests.protocol.api_tables`"


def test_every_field_has_a_row() -> None:
    honoured, known = ("\n".join(tables()[mark]) for mark in ("honoured", "known"))
    for endpoint in ENDPOINTS:
        for name in endpoint.honoured:
            assert f"| `{name}` |" in honoured
        for name in endpoint.known:
            assert f"| `{name}` |" in known
