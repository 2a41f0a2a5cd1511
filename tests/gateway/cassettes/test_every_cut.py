"""Every recorded stream, cut everywhere: readers give the same events, clients get the same bytes.

A stream of n bytes has n cuts in two, and to read it at all of them takes n * n bytes: 10 GB for
those of 100 kB. So each stream is read in ways that together cut it everywhere:

- byte by byte over its whole length;
- in pieces of some bytes, from each of the places where the first may end: every position is a cut;
- with a cut in every event at once, near its end: pieces hold the end of one and the next's begin;
- and where a vendor has a short stream, that in two at every position.

What clients get is read byte by byte, over the whole length of each vendor's shortest stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest

from headrace.gateway.serving.passed_on import WithoutUsage
from headrace.protocol.neutral.event import Event
from tests.gateway.cassettes.heard import HEARD, asked
from tests.gateway.cassettes.playing import playing, wire
from tests.gateway.cassettes.recorded_streams import (
    NAMES,
    STREAMED,
    RecordedStream,
    event_ends,
    recorded_streams,
)
from tests.gateway.cassettes.recordings import Vendor, every
from tests.gateway.harness import ask
from tests.protocol.neutral.streams import assert_grammar, read_stream

# Bytes that are read of one stream in pieces: some 5 ms, and there are 300 streams. The longer the
# stream, the smaller its pieces, down to the least: 2 MB are read of one of 200 kB.
_MOST_BYTES = 50_000
_LEAST_PIECE_BYTES = 12
# Around the end of an event: the blank line in all its spellings, and a character of four bytes.
_AROUND_END_BYTES = 4
# The longest that is cut in two everywhere: 6 MB are read of it, which takes some 0.6 s.
_MOST_IN_TWO_BYTES = 2_500
# The longest that clients of every dialect get byte by byte: some 0.3 s for each of them.
_MOST_FOR_ALL_BYTES = 7_000


def pieces(stream: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    """The stream, cut at those of the positions that are inside."""
    inside = sorted({0, len(stream), *(cut for cut in cuts if 0 < cut < len(stream))})
    return (stream[begin:end] for begin, end in pairwise(inside))


def ways(one: RecordedStream) -> Iterator[tuple[str, Iterable[int]]]:
    """Names and cuts; all of them together cut at every position."""
    size = len(one.body)
    yield "byte by byte", range(size)
    step = min(size, max(_LEAST_PIECE_BYTES, _MOST_BYTES // size))
    for first in range(step):
        yield f"in pieces of {step} bytes from {first}", range(first, size, step)
    ends = event_ends(one.body, one.side)
    for offset in range(-_AROUND_END_BYTES, _AROUND_END_BYTES + 1):
        yield f"{offset} bytes from the end of each event", [end + offset for end in ends]


def check(one: RecordedStream, whole: list[Event], way: str, cuts: Iterable[int]) -> None:
    """The events of these pieces are those of the whole."""
    events = read_stream(one.reader(), *pieces(one.body, cuts))
    if events != whole:  # compared by hand: to tell how two long lists differ takes minutes
        pytest.fail(f"{one.at} {way}: {len(events)} events, not the {len(whole)} of the whole")


@pytest.mark.parametrize("name", NAMES)
def test_readers_give_the_same_events(name: str) -> None:
    streams = recorded_streams(name)
    assert streams
    for one in streams:
        whole = read_stream(one.reader(), one.body)
        assert_grammar(whole)
        for way, cuts in ways(one):
            check(one, whole, way, cuts)
    shortest = streams[0]
    if len(shortest.body) <= _MOST_IN_TWO_BYTES:
        whole = read_stream(shortest.reader(), shortest.body)
        for cut in range(1, len(shortest.body)):
            check(shortest, whole, f"in two at {cut}", (cut,))


def test_the_cuts_are_at_every_position() -> None:
    for name in NAMES:
        for one in recorded_streams(name):
            _, *others = ways(one)
            found = {cut for _, cuts in others for cut in cuts}
            assert found >= set(range(len(one.body))), one.at


@pytest.mark.parametrize("name", ["openai", "azure", "openrouter", "openai-completions"])
def test_what_is_passed_on_without_usage_is_the_same(name: str) -> None:
    for one in recorded_streams(name)[:20]:  # the others would take longer and say no more
        whole = WithoutUsage()
        wanted = whole.feed(one.body) + whole.end()
        for way, cuts in ways(one):
            if "pieces" not in way:
                cut = WithoutUsage()
                told = b"".join(map(cut.feed, pieces(one.body, cuts))) + cut.end()
                assert told == wanted, f"{one.at} {way}"


@pytest.mark.parametrize("vendor", STREAMED, ids=lambda one: one.name)
async def test_clients_get_the_same_bytes_and_the_same_bill(vendor: Vendor) -> None:
    shortest = min(every(vendor.name, stream=True), key=lambda one: len(one.exchange.body))
    async with playing(vendor) as player:
        player.recording = shortest
        short = len(shortest.exchange.body) <= _MOST_FOR_ALL_BYTES
        for path in HEARD if short else ("/v1/messages",):
            told = []
            for cuts in ((), range(len(wire(shortest)))):
                player.cuts = cuts
                answer = await ask(
                    player.gateway.app,
                    asked(path, stream=True),
                    path=path,
                    headers={"x-request-id": "one"},
                )
                entry = player.entries[-1]
                line = (entry.usage, entry.finish, entry.outcome, entry.cost_nusd)
                told.append((answer.status, answer.body, line))
            assert told[0] == told[1], f"{path} {shortest.at}"
            assert told[0][0] == 200, f"{path} {shortest.at}"
