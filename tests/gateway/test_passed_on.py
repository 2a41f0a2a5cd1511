"""Streams are passed on by whole events, without that of usage alone, however they are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.serving.passed_on import WholeEvents, WithoutUsage, passing

USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1}}'
OTHERS = (
    b'data: {"choices":[{"index":0}],"usage":null}',
    b'data: {"choices":[]}',
    b'data: {"choices": [{"delta":{"content":"\\"choices\\":[] \\"usage\\""}}]}',
    b": ping",
    b"data: [DONE]",
)
ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


@given(
    events=st.lists(st.tuples(st.sampled_from((USAGE, *OTHERS)), st.sampled_from(ENDS))),
    cuts=st.lists(st.integers(1, 60)),
    rest=st.sampled_from((b"", b"data: {")),
)
def test_every_cut_gives_the_same(
    events: list[tuple[bytes, bytes]], cuts: list[int], rest: bytes
) -> None:
    data = b"".join(event + end for event, end in events) + rest
    without, passed, at = WithoutUsage(), b"", 0
    for size in (*cuts, len(data)):
        passed += without.feed(data[at : at + size])
        at += size
    passed += without.end()
    assert passed == b"".join(event + end for event, end in events if event != USAGE) + rest


def test_whole_events_go_on_at_once() -> None:
    without = WithoutUsage()
    assert without.feed(b"data: 1\n\ndata: 2\n\ndata:") == b"data: 1\n\ndata: 2\n\n"
    assert without.feed(b" 3\n") == b""
    assert without.feed(b"\n") == b"data: 3\n\n"


def test_a_piece_of_whole_events_is_not_copied() -> None:
    piece = b"data: 1\n\ndata: 2\r\n\r\n"
    assert WholeEvents().feed(piece) is piece
    assert passing("text/event-stream", hides_usage=False).feed(piece) is piece


@given(
    events=st.lists(st.sampled_from((b"data: 1\n\n", b": c\r\n\r\n", b"data: 2\ndata: 3\n\r\n"))),
    cuts=st.lists(st.integers(1, 12)),
)
def test_each_piece_that_goes_on_ends_with_an_event(events: list[bytes], cuts: list[int]) -> None:
    data = b"".join(events)
    whole, passed, at = WholeEvents(), b"", 0
    for size in (*cuts, len(data)):
        passed += whole.feed(data[at : at + size])
        at += size
        assert any(passed == b"".join(events[:n]) for n in range(len(events) + 1))
    assert passed == data and whole.end() == b""


def test_lines_are_events_where_the_stream_is_of_lines() -> None:
    lines = passing("application/x-ndjson", hides_usage=False)
    assert lines.feed(b'{"a":1}\n{"b"') == b'{"a":1}\n'
    assert lines.feed(b":2") == b""
    assert lines.feed(b"}\n") == b'{"b":2}\n'
    assert lines.feed(b'{"c"') == b"" and lines.end() == b'{"c"' and lines.end() == b""


def test_what_does_not_come_to_its_end_is_known() -> None:
    whole = WholeEvents(most_bytes=10)
    assert whole.feed(b"data: 1\n\n" * 9) and not whole.too_long
    assert whole.feed(b"data: 1234") == b"" and not whole.too_long
    assert whole.feed(b"5") == b"" and whole.too_long
