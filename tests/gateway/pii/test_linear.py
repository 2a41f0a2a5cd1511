"""Texts made to keep a detector busy."""

from __future__ import annotations

import time
from typing import Any

import pytest

from headrace.gateway.pii import addresses, phones
from headrace.gateway.pii.find import find

_CHARS = 100_000
# A detector that looks at every pair of places has 10^10 of them; these take below a second.
_MOST_S = 15.0


@pytest.mark.parametrize(
    "piece",
    ["@", "a@", "a.", "a@a.", "a" * 64 + "@", "ü@ü.", "1", "1 ", "4", "4-", "4444 ", "+1", "(0",
     "01 ", "+12 000 ", "123-45-", "000-12-3456 ", ":", "a:", "1111:", "1.", "10.0.0.", "sk-",
     "eyJ.", "SG.", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "DE89 ",
     "DE89", "GB82 WEST ", "-", " "],
)  # fmt: skip
def test_hostile_text_takes_linear_time(piece: str) -> None:
    text = (piece * (_CHARS // len(piece) + 1))[:_CHARS]
    before_s = time.process_time()
    find(text)
    assert time.process_time() - before_s < _MOST_S


@pytest.mark.parametrize(
    ("module", "name", "piece"),
    [(phones, "_taken", "1 "), (phones, "_taken", "1-"), (phones, "_taken", "0 "),
     (addresses, "_domain_end", "a@"), (addresses, "_domain_end", "a@b.")],
)  # fmt: skip
def test_what_begins_none_is_passed_over_at_once(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, piece: str
) -> None:
    looked = []
    monkeypatch.setattr(module, name, lambda *given: looked.append(given) or 0)
    find(piece * 10_000)
    assert not looked
