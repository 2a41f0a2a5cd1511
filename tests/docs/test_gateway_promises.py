"""Every test that docs/gateway-promises.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "gateway-promises.md"


def test_every_promise_has_tests_that_are_there() -> None:
    rows = [one for one in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", one)]
    assert len(rows) == 15
    for row in rows:
        named = re.findall(r"`([a-z_/0-9]+\.py)(?:::(test_\w+))?`", row)
        assert named, row
        for path, name in named:
            text = (TESTS / path).read_text()
            assert f"def {name}(" in text if name else "def test_" in text, (path, name)
