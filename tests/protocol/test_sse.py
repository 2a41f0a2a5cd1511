"""Server-sent events: any way of cutting a stream gives the same events."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol import sse
from headrace.protocol.sse import Event, SSEReader, StreamTooLargeError, data_event, write_event


def _read(*pieces: bytes) -> list[Event]:
    reader = SSEReader()
    return [event for piece in pieces for event in reader.feed(piece)]


# Each stream uses other line ends, fields and oddities of the standard.
STREAMS = [
    (b"data: a\n\ndata: b\n\n", [Event("a"), Event("b")]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [Event("a"), Event("b")]),
    (b"data: a\r\rdata: b\r\r", [Event("a"), Event("b")]),
    (b"\xef\xbb\xbfdata: a\n\n", [Event("a")]),
    (b": comment\n\ndata: a\n: another\ndata: b\n\n", [Event("a\nb")]),
    (
        b"event: ping\ndata: {}\nid: 7\n\ndata: x\n\n",
        [Event("{}", "ping", "7"), Event("x", id="7")],
    ),
    (b"data:no space\n\ndata:  two spaces\n\n", [Event("no space"), Event(" two spaces")]),
    (b"data\n\n", [Event("")]),
    (b"data:\ndata:\n\n", [Event("\n")]),
    (b"event: lost\n\ndata: a\n\n", [Event("a")]),
    (b"retry: 250\ndata: a\n\nretry: soon\ndata: b\n\n", [Event("a", retry_ms=250), Event("b")]),
    (b"retry: " + b"9" * 5000 + b"\ndata: a\n\n", [Event("a")]),
    (b"other: x\ndata: a\n\n", [Event("a")]),
    ("data: größe 水\r\n\r\n".encode(), [Event("größe 水")]),
    (b"data: whole\n\ndata: cut off\n", [Event("whole")]),
    (
        b"data: whole\r\n\r\n: keep-alive\r\n\r\ndata: [DONE]\r\n\r\n",
        [Event("whole"), Event("[DONE]")],
    ),
]


@pytest.mark.parametrize(("stream", "events"), STREAMS)
def test_events_of_a_stream(stream: bytes, events: list[Event]) -> None:
    assert _read(stream) == events


@pytest.mark.parametrize(("stream", "events"), STREAMS)
def test_every_cut_into_two_and_into_bytes(stream: bytes, events: list[Event]) -> None:
    for cut in range(len(stream) + 1):
        assert _read(stream[:cut], stream[cut:]) == events
        assert _read(stream[:cut], b"", stream[cut:]) == events
    assert _read(*(stream[i : i + 1] for i in range(len(stream)))) == events


def test_every_cut_into_three() -> None:
    stream = b"event: a\r\ndata: \xf0\x9f\x98\x80\r\ndata\r\n\r\nid:1\rdata:2\r\r"
    events = [Event("😀\n", "a"), Event("2", id="1")]
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            assert _read(stream[:first], stream[first:second], stream[second:]) == events


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=5), st.data())
def test_what_is_written_is_read(texts: list[str], data: st.DataObject) -> None:
    stream = b"".join(write_event(text) for text in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    unified = [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]
    assert [event.data for event in _read(*pieces)] == unified


def test_an_event_of_json_is_one_line() -> None:
    json = msgspec.json.encode({"text": "two\nlines\r and 水"})
    written = data_event(json)
    assert written.count(b"\n") == 2
    assert "水".encode() in written
    assert msgspec.json.decode(_read(written)[0].data) == {"text": "two\nlines\r and 水"}


def test_names_with_line_ends_are_refused() -> None:
    with pytest.raises(ValueError, match="event"):
        write_event("x", event="a\nb")
    with pytest.raises(ValueError, match="id"):
        write_event("x", id="a\rb")


def test_constants_are_what_they_say() -> None:
    assert _read(sse.DONE) == [Event(sse.DONE_DATA)]
    assert _read(sse.KEEP_ALIVE) == []


def test_endless_events_are_refused() -> None:
    reader = SSEReader(max_event_bytes=100)
    with pytest.raises(StreamTooLargeError, match="100 bytes"):
        for _ in range(30):
            reader.feed(b"data: x")
    reader = SSEReader(max_event_bytes=100)
    with pytest.raises(StreamTooLargeError):
        for _ in range(30):
            reader.feed(b"data: x\n")


def test_many_small_events_are_no_large_one() -> None:
    reader = SSEReader(max_event_bytes=100)
    for _ in range(200):
        assert reader.feed(b"data: 1234567890\n\n") == [Event("1234567890")]
        assert reader.feed(b": a comment counts for nothing\n") == []
