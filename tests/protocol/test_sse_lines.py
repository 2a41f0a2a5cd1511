"""An event of JSON is one line to every client, also to those that cut with str.splitlines."""

from __future__ import annotations

import json

from headrace.protocol.sse import data_event


def test_unicode_line_ends_are_escaped_and_nothing_else_changes() -> None:
    value = "a\x85b\u2028c\u2029d é 漢字 🙂 \\u2028"
    event = data_event(json.dumps(value, ensure_ascii=False).encode()).decode()
    assert event.splitlines() == [event.rstrip("\n"), ""]
    assert json.loads(event.removeprefix("data: ")) == value
    assert "é 漢字 🙂" in event
