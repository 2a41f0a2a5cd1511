"""Stop strings against their definition, for every way of cutting the stream."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.text import StopStrings

short = st.text(alphabet="abc", max_size=12)
stop_lists = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=3)


def _defined(text: str, stops: list[str]) -> tuple[str, str | None]:
    """(text before the stop, stop): the match that ends first, the longest of those."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, None


def _held(text: str, stops: list[str]) -> int:
    """Length of the longest suffix that is a proper prefix of some stop string."""
    prefixes = {stop[:length] for stop in stops for length in range(1, len(stop))}
    return max((n for n in range(1, len(text) + 1) if text[-n:] in prefixes), default=0)


def _streamed(parts: list[str], stops: list[str], **options: bool) -> tuple[str, str | None]:
    search = StopStrings(stops, **options)
    released, fed, stop = "", "", None
    for part in parts:
        fed += part
        text, stop = search.feed(part)
        released += text
        if stop is not None:
            break
        assert released == fed[: len(fed) - _held(fed, stops)], "held back exactly what must be"
    return released + search.flush(), stop


@settings(max_examples=300)
@given(text=short, stops=stop_lists)
def test_every_split_point(text: str, stops: list[str]) -> None:
    expected = _defined(text, stops)
    assert _streamed(list(text), stops) == expected
    for cut in range(len(text) + 1):
        assert _streamed([text[:cut], text[cut:]], stops) == expected


@given(text=short, stops=stop_lists, cuts=st.lists(st.integers(0, 12), max_size=4))
def test_including_the_stop_string(text: str, stops: list[str], cuts: list[int]) -> None:
    before, stop = _defined(text, stops)
    bounds = [0, *sorted(cuts), len(text)]
    parts = [text[a:b] for a, b in pairwise(bounds)]
    assert _streamed(parts, stops, include_stop=True) == (before + (stop or ""), stop)


def test_text_is_released_as_soon_as_it_cannot_be_a_stop_string() -> None:
    search = StopStrings(["\n\nUser:"])
    assert [search.feed(part).text for part in ("a\n", "\n", "U", "x")] == ["a", "", "", "\n\nUx"]
    assert search.flush() == ""


def test_after_a_match_nothing_comes() -> None:
    search = StopStrings(["stop"])
    assert search.feed("a stop b") == ("a ", "stop")
    assert search.feed("more") == ("", "stop")
    assert search.flush() == ""


def test_empty_stop_strings_are_refused() -> None:
    with pytest.raises(RequestError, match="empty string") as raised:
        StopStrings(["a", ""])
    assert raised.value.param == "stop"
