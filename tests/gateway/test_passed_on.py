"""Streams that are passed on lose the event of usage alone, however they are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.serving.passed_on import WithoutUsage

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


def test_what_is_no_event_is_not_held_for_ever() -> None:
    without = WithoutUsage()
    data = b"x" * (4 * 2**20 + 1)
    assert without.feed(data) == data and without.end() == b""
