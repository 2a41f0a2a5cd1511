"""AWS event streams: any way of cutting one gives the same frames, and damage is told."""

from __future__ import annotations

import struct
import uuid
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.aws.event_stream import (
    MAX_HEADERS_BYTES,
    MAX_PAYLOAD_BYTES,
    EventStreamReader,
    Frame,
    HeaderValue,
    Timestamp,
    write_frame,
)

HEADERS: dict[str, HeaderValue] = {
    "true": True,
    "false": False,
    "byte": -128,
    "short": 300,
    "integer": -70_000,
    "long": 2**40,
    "bytes": b"\x00\xff",
    "string": "größe 水",
    "timestamp": Timestamp(1_700_000_000_123),
    "uuid": uuid.UUID(int=7),
}


def _read(*pieces: bytes) -> tuple[list[Frame], str | None]:
    reader = EventStreamReader()
    frames = [frame for piece in pieces for frame in reader.feed(piece)]
    return frames, reader.damage


def _framed(headers: bytes, payload: bytes) -> bytes:
    """A frame of raw headers, made without the writer."""
    front = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    front += struct.pack(">I", zlib.crc32(front)) + headers + payload
    return front + struct.pack(">I", zlib.crc32(front))


def test_a_frame_without_headers_and_payload() -> None:
    """The smallest frame, as the specification of the format's test vectors has it."""
    raw = bytes.fromhex("000000100000000005c248eb7d98c8ff")
    assert write_frame({}, b"") == raw
    assert _read(raw) == ([Frame({}, b"")], None)


def test_a_frame_with_payload_alone() -> None:
    raw = bytes.fromhex("0000001d00000000fd528c5a7b27666f6f273a27626172277dc3653936")
    assert write_frame({}, b"{'foo':'bar'}") == raw
    assert _read(raw) == ([Frame({}, b"{'foo':'bar'}")], None)


def test_the_bytes_of_an_integer_header() -> None:
    raw = _framed(b"\x0aevent-type\x04\x00\x00\xa0\x0c", b"{'foo':'bar'}")
    assert _read(raw) == ([Frame({"event-type": 40972}, b"{'foo':'bar'}")], None)
    assert write_frame({"event-type": 40972}, b"{'foo':'bar'}") == raw


def test_all_ten_types_of_headers() -> None:
    frames, damage = _read(write_frame(HEADERS, b"x"))
    assert damage is None
    assert frames == [Frame(HEADERS, b"x")]
    assert [type(value) for value in frames[0].headers.values()] == [
        type(value) for value in HEADERS.values()
    ]


def test_botocore_reads_what_is_written() -> None:
    eventstream = pytest.importorskip("botocore.eventstream")
    buffer = eventstream.EventStreamBuffer()
    buffer.add_data(write_frame(HEADERS, b"x") + write_frame({}, b""))
    first, second = buffer
    plain = {"timestamp": 1_700_000_000_123, "uuid": uuid.UUID(int=7).bytes}
    assert first.headers == {**HEADERS, **plain}
    assert (first.payload, second.headers, second.payload) == (b"x", {}, b"")


def test_every_cut() -> None:
    stream = write_frame(HEADERS, b"first") + write_frame({":a": "b"}, b"") + write_frame({}, b"3")
    whole = _read(stream)
    assert [frame.payload for frame in whole[0]] == [b"first", b"", b"3"]
    for cut in range(len(stream) + 1):
        assert _read(stream[:cut], b"", stream[cut:]) == whole
    assert _read(*(stream[at : at + 1] for at in range(len(stream)))) == whole


def test_partial_says_whether_a_frame_is_open() -> None:
    reader = EventStreamReader()
    stream = write_frame({}, b"x")
    assert not reader.partial
    reader.feed(stream[:5])
    assert reader.partial
    reader.feed(stream[5:])
    assert not reader.partial


def test_text_of_a_header() -> None:
    frame = Frame({"a": "b", "c": 1}, b"")
    assert (frame.text("a"), frame.text("c"), frame.text("d")) == ("b", "", "")


def test_any_bit_that_flips_is_found() -> None:
    good = write_frame({"a": "b"}, b"good")
    frame = bytearray(write_frame({":event-type": "x"}, b'{"y": 1}'))
    for at in range(len(frame)):
        damaged = bytearray(frame)
        damaged[at] ^= 0x10
        reader = EventStreamReader()
        assert [one.payload for one in reader.feed(good + bytes(damaged) + good)] == [b"good"]
        assert reader.damage is not None
        assert reader.feed(good) == []


def test_damage_keeps_what_came_before_it_at_any_cut() -> None:
    stream = write_frame({}, b"1") + b"HTTP/1.1 500 Internal Server Error\r\n\r\n"
    frames, damage = _read(stream)
    assert [frame.payload for frame in frames] == [b"1"]
    assert damage is not None
    for cut in range(len(stream) + 1):
        assert _read(stream[:cut], stream[cut:]) == (frames, damage)


@pytest.mark.parametrize(
    ("total", "headers"),
    [
        (15, 0),
        (0, 0),
        (2**32 - 1, 0),
        (16, 1),
        (2**31, MAX_HEADERS_BYTES + 1),
        (16 + MAX_PAYLOAD_BYTES + 1, 0),
    ],
)
def test_lengths_that_cannot_be_are_refused_before_a_frame_is_held(
    total: int, headers: int
) -> None:
    lengths = struct.pack(">II", total, headers)
    reader = EventStreamReader()
    assert reader.feed(lengths + struct.pack(">I", zlib.crc32(lengths))) == []
    assert reader.damage is not None
    assert not reader.partial


@pytest.mark.parametrize(
    "headers",
    [
        b"\x00\x00",
        b"\x01a",
        b"\x01a\x0a",
        b"\x01a\xff",
        b"\x05a",
        b"\x01a\x07\x00\x05abc",
        b"\x01a\x07\x00\x01\xff",
        b"\x01\xff\x00",
        b"\x01a\x05\x00\x00",
        b"\x01a\x09\x00",
        b"\x01a\x00\x01a\x01",
    ],
)
def test_damaged_headers(headers: bytes) -> None:
    frames, damage = _read(_framed(headers, b""))
    assert frames == []
    assert damage is not None


def test_what_no_frame_can_hold() -> None:
    for headers in ({"": 1}, {"x" * 256: 1}, {"a": 2**63}, {"a": "x" * 2**16}):
        with pytest.raises(ValueError, match="header"):
            write_frame(headers, b"")
    with pytest.raises(ValueError, match="payload"):
        write_frame({}, bytes(MAX_PAYLOAD_BYTES + 1))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 80))
def test_any_bytes_do_no_harm(garbage: bytes, cut: int) -> None:
    assert _read(garbage[:cut], garbage[cut:]) == _read(garbage)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_any_headers_do_no_harm(headers: bytes) -> None:
    frames, damage = _read(_framed(headers, b"p"))
    assert bool(frames) != bool(damage)
