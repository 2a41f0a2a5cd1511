"""Every recorded stream, cut: the reader of its dialect gives the same events.

A stream of n bytes has n cuts in two, and to read it at all of them takes n * n bytes: 10 GB for
those of 100 kB. Marked `every_cut`, each stream is read in ways that together cut it everywhere:

- byte by byte over its whole length;
- with a cut in every event at once, near its end: pieces hold the end of one and the next's begin;
- some streams of each vendor in pieces of some bytes, from each of the places where the first may
  end: every position is a cut;
- and where a vendor has a short stream, that in two at every position.

Unmarked, some streams of each vendor are cut near the end of every event, and at random.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from headrace.protocol.neutral.event import Event
from tests.gateway.cassettes.recorded_streams import (
    NAMES,
    RecordedStream,
    event_ends,
    recorded_streams,
)
from tests.protocol.neutral.streams import assert_grammar, cut_at, read_stream

pytestmark = pytest.mark.usefixtures("recordings")

# Bytes that are read of one stream in pieces: some 5 ms, and there are 300 streams. The longer the
# stream, the smaller its pieces, down to the least: 2 MB are read of one of 200 kB.
_MOST_BYTES = 50_000
_LEAST_PIECE_BYTES = 12
# Around the end of an event: the blank line in all its spellings, and a character of four bytes.
_AROUND_END_BYTES = 4
# The longest that is cut in two everywhere: 6 MB are read of it, which takes some 0.6 s.
_MOST_IN_TWO_BYTES = 2_500
# What of a vendor's streams is cut without a mark: each byte of them is read ten times.
_MOST_QUICK_BYTES = 50_000
# What of them is read in pieces from each place.
_MOST_IN_PIECES_BYTES = 100_000
_RANDOM_PIECE_BYTES = 50


def near_ends(stream: RecordedStream) -> Iterator[tuple[str, Iterable[int]]]:
    """Names and cuts: in every event at once, at each distance from its end."""
    ends = event_ends(stream.body, stream.side)
    for offset in range(-_AROUND_END_BYTES, _AROUND_END_BYTES + 1):
        yield f"{offset} bytes from the end of each event", [end + offset for end in ends]


def in_pieces(stream: RecordedStream) -> Iterator[tuple[str, Iterable[int]]]:
    """Names and cuts; all of them together cut at every position."""
    size = len(stream.body)
    step = min(size, max(_LEAST_PIECE_BYTES, _MOST_BYTES // size))
    for first in range(step):
        yield f"in pieces of {step} bytes from {first}", range(first, size, step)


def at_random(stream: RecordedStream, source: random.Random) -> list[int]:
    """Cuts into pieces of some bytes."""
    size = len(stream.body)
    return sorted(source.sample(range(size), size // _RANDOM_PIECE_BYTES))


def spread(
    streams: list[RecordedStream], most_bytes: int = _MOST_QUICK_BYTES
) -> list[RecordedStream]:
    """Some of a vendor's streams, the shortest first, whatever there is of them."""
    chosen, total = streams[:1], len(streams[0].body)
    for stream in streams[1 :: max(1, len(streams) // 12)]:
        total += len(stream.body)
        if total > most_bytes:
            break
        chosen.append(stream)
    return chosen


def check(stream: RecordedStream, whole: list[Event], way: str, cuts: Iterable[int]) -> None:
    """The events of these pieces are those of the whole."""
    events = read_stream(stream.reader(), *cut_at(stream.body, cuts))
    if events != whole:  # compared by hand: to tell how two long lists differ takes minutes
        pytest.fail(f"{stream.at} {way}: {len(events)} events, not the {len(whole)} of the whole")


@pytest.mark.parametrize("name", NAMES)
def test_cuts_near_the_ends_of_events_change_nothing(name: str) -> None:
    source = random.Random(1)
    for stream in spread(recorded_streams(name), _MOST_QUICK_BYTES):
        whole = read_stream(stream.reader(), stream.body)
        assert_grammar(whole)
        check(stream, whole, "at random", at_random(stream, source))
        for way, cuts in near_ends(stream):
            check(stream, whole, way, cuts)


@pytest.mark.every_cut
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.smoke] * (name == "cohere")) for name in NAMES]
)
def test_cuts_everywhere_change_nothing(name: str) -> None:
    streams = recorded_streams(name)
    assert streams
    for stream in streams:
        whole = read_stream(stream.reader(), stream.body)
        assert_grammar(whole)
        check(stream, whole, "byte by byte", range(len(stream.body)))
        for way, cuts in near_ends(stream):
            check(stream, whole, way, cuts)
    for stream in spread(streams, _MOST_IN_PIECES_BYTES):
        whole = read_stream(stream.reader(), stream.body)
        for way, cuts in in_pieces(stream):
            check(stream, whole, way, cuts)
    shortest = streams[0]
    if len(shortest.body) <= _MOST_IN_TWO_BYTES:
        whole = read_stream(shortest.reader(), shortest.body)
        for cut in range(1, len(shortest.body)):
            check(shortest, whole, f"in two at {cut}", (cut,))


@pytest.mark.every_cut
def test_the_cuts_are_at_every_position() -> None:
    for name in NAMES:
        for stream in recorded_streams(name):
            found = {cut for _, cuts in in_pieces(stream) for cut in cuts}
            assert found >= set(range(len(stream.body))), stream.at
