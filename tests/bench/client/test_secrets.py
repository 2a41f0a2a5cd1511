"""Secrets of an endpoint: which they are, and where they are blotted out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.client.secrets import (
    BLOT,
    as_in_json,
    blotted_metrics,
    blotted_pieces,
    secrets_of,
)

KEY = "sk-a-secret-key"


@pytest.mark.parametrize(
    ("headers", "base_url", "secrets"),
    [
        ({"X-Pass": "hunter2"}, "http://h", {"hunter2"}),
        ({"X-Pass": "abc"}, "http://h", {"abc"}),
        ({"X-Whatever": "hunter2"}, "http://h", {"hunter2"}),
        ({"X-Level": "3"}, "http://h", set()),
        ({"Accept": "application/json", "User-Agent": "somebody/1.0"}, "http://h", set()),
        ({"Authorization": "Bearer abc"}, "http://h", {"Bearer abc", "abc"}),
        (
            {"Cookie": "a=1; session=123456789"},
            "http://h",
            {"a=1; session=123456789", "session=123456789", "session", "123456789"},
        ),
        ({}, "http://h?api-key=hunter%2F22&v=1", {"hunter%2F22", "hunter/22"}),
    ],
)
def test_names_of_headers_and_queries_do_not_tell(
    headers: dict[str, str], base_url: str, secrets: set[str]
) -> None:
    assert set(secrets_of(None, base_url, headers)) == secrets
    assert set(secrets_of(KEY, base_url, headers)) == secrets | {KEY}


def test_a_path_may_have_a_query() -> None:
    assert secrets_of(None, "http://h", {}, "/v2?sig=0123456789") == ("0123456789",)


@given(cuts=st.lists(st.integers(0, 41), max_size=6))
def test_a_secret_across_pieces(cuts: list[int]) -> None:
    text = f"it is {KEY}, {KEY}{KEY}."
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    told = blotted_pieces(pieces, (KEY, "secret"))
    assert len(told) == len(pieces)
    rest = "".join(told).replace("*", "")
    assert rest == "it is , ."
    assert [bool(one) for one in told] == [bool(one) for one in pieces]


def test_words_that_stand_for_a_key_stay_in_answers_and_metrics() -> None:
    assert blotted_pieces(["a test"], ("test", "none")) == ["a test"]
    text = '# HELP headrace:x of headrace\nheadrace:x{key="headrace",a="b"} 1\n'
    assert blotted_metrics(text, ("vllm",)) == text
    told = blotted_metrics(text, ("headrace",))
    assert told == f'# HELP headrace:x of {BLOT}\nheadrace:x{{key="{BLOT}",a="b"}} 1\n'


def test_a_secret_as_a_body_may_write_it() -> None:
    ways = as_in_json(('a/ü"7890',))
    assert 'a/ü\\"7890'.encode() in ways
    assert b'a\\/\\u00fc\\"7890' in ways
