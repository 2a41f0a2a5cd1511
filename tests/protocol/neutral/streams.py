"""What every dialect's stream has to keep, to be used by its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from headrace.protocol.neutral.dialect import StreamReader
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    CompletePart,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)


def read_stream(reader: StreamReader, *pieces: bytes) -> list[Event]:
    """All events of a stream that came in `pieces`."""
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + reader.end()


def cut_at(stream: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    """The stream, cut at those of the positions that are inside."""
    inside = sorted({0, len(stream), *(cut for cut in cuts if 0 < cut < len(stream))})
    return (stream[begin:end] for begin, end in pairwise(inside))


def read_at_every_cut(new_reader: Callable[[], StreamReader], stream: bytes) -> list[Event]:
    """The events, after asserting that no cut of the stream in two, nor into bytes, changes them.

    For streams that a test writes. Of long ones some 400 cuts are tried, spread over all of it;
    recorded ones are cut by `tests/protocol/dialects/test_cut_contract.py`.
    """
    whole = read_stream(new_reader(), stream)
    step = max(1, len(stream) // 400)
    for cut in range(0, len(stream), step):
        assert read_stream(new_reader(), stream[:cut], stream[cut:]) == whole, cut
    pieces = [stream[at : at + 1] for at in range(len(stream))]
    assert read_stream(new_reader(), *pieces) == whole
    return whole


def assert_grammar(events: Sequence[Event]) -> None:
    """The order that `headrace.protocol.neutral.event` promises."""
    assert events, "a stream without events"
    assert isinstance(events[0], ReplyStart | ReplyFailure), events[0]
    assert isinstance(events[-1], ReplyEnd | ReplyFailure), events[-1]
    assert not any(isinstance(one, ReplyEnd | ReplyFailure) for one in events[:-1])
    assert sum(isinstance(one, ReplyStart) for one in events) <= 1
    assert sum(isinstance(one, ReplyUsage) for one in events) <= 1
    next_part: dict[int, int] = {}
    open_parts: dict[int, dict[int, str]] = {}
    finished: set[int] = set()
    for event in events:
        if isinstance(event, PartStart | CompletePart):
            assert event.choice not in finished, event
            assert event.part == next_part.get(event.choice, 0), event
            next_part[event.choice] = event.part + 1
            opened = open_parts.setdefault(event.choice, {})
            kind = event.kind if isinstance(event, PartStart) else "complete"
            assert not opened or (kind == "tool_call" and set(opened.values()) == {"tool_call"})
            if isinstance(event, PartStart):
                assert (event.kind == "tool_call") == bool(event.name), event
                opened[event.part] = event.kind
        elif isinstance(event, PartDelta):
            assert event.part in open_parts.get(event.choice, {}), event
        elif isinstance(event, PartEnd):
            del open_parts[event.choice][event.part]
        elif isinstance(event, ChoiceEnd):
            assert event.choice not in finished, event
            assert not open_parts.get(event.choice), event
            finished.add(event.choice)
    if isinstance(events[-1], ReplyEnd):
        assert not any(open_parts.values())
