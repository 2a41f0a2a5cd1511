"""A glance never says that there is nothing where there is something."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.gateway.pii.find import DETECTORS
from headrace.gateway.pii.glance import may_have
from headrace.gateway.pii.plain import plain
from headrace.gateway.pii.span import KINDS, PiiKind
from tests.gateway.pii.test_found import FOUND

SAMPLES = [(kind, text) for kind, texts in FOUND.items() for text in texts]


@pytest.mark.parametrize(("kind", "text"), SAMPLES)
def test_what_there_is_is_seen(kind: PiiKind, text: str) -> None:
    assert may_have(f"so: {text}.", [kind])
    assert may_have(json.dumps({"a": f"\n{text}\t"}, ensure_ascii=False), [kind])


def test_most_texts_are_passed_over() -> None:
    text = "The quick brown fox jumps over 13 lazy dogs at noon; 3 of 100 saw it."
    assert not may_have(text, [kind for kind in KINDS if kind != "ip"])
    assert not may_have(text, [])


# What the detectors are made of, so that random texts come near to what they find.
PIECES = st.sampled_from(
    ["1", "23", "456", "7890", "4111", " ", "-", ".", "(", ")", "+", "/", ":", "@", "a", "b.co",
     "DE89",
     "sk-", "AKIA", "x", "0", "\u00a0", "４", "::", "\n", '"', "\\"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=30).map("".join))
@example("+1 (2) 3-4 5 6 7 8")
@example("0 1 2 3 4 5 6 7 8")
def test_nothing_is_overlooked(text: str) -> None:
    for kind in KINDS:
        assert may_have(text, [kind]) or not list(DETECTORS[kind](plain(text)))
