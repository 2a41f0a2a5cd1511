"""How rates are judged and chosen, and what the source of chunks writes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from benchmarks import chunk_source
from benchmarks.client_chunk_rate import (
    CHUNKS,
    chunk_figures,
    divide,
    next_rate,
    report,
    standing,
)
from headrace.bench.record import Chunk, RequestRecord
from headrace.protocol.sse import SSEReader

MS = 1_000_000
HELD: dict[str, Any] = {
    "offered_per_s": 1000.0, "requests": 10, "completed": 10, "sent_per_s": 1000.0,
    "received_per_s": 1000.0, "lag_p50_ms": 0.2, "lag_p99_ms": 1.0, "source_late_p99_ms": 1.0,
    "client_bound": False, "allowed_lag_ms": 5.0, "loop_lag_p99_ms": 0.5, "cpu_share": 0.3,
    "client_cpu_us": 9.0, "source_cpu_us": 6.0, "verdict": ["It was not."],
}  # fmt: skip


def streams(count: int, chunks: int, *, late_ms: int = 0) -> list[RequestRecord]:
    """One every 10 ms, a chunk every 5 ms; the last chunk of each is written `late_ms` late."""
    found = []
    for index in range(count):
        start = 10 * index
        stamps = [start + 5 * k + (late_ms if k == chunks - 1 else 0) for k in range(chunks)]
        parts = tuple(Chunk((at + 2) * MS, "text", " water", at * MS) for at in stamps)
        found.append(
            RequestRecord(
                index=index,
                measured=True,
                intended_ns=start * MS,
                sent_ns=start * MS,
                end_ns=parts[-1].at_ns,
                chunks=parts,
            )
        )
    return found


def test_rates_are_those_while_all_streams_were_at_work() -> None:
    # From 47 ms, the first end, to 990 ms, the last start: ten streams with 200 chunks/s each.
    got = chunk_figures(streams(100, 10), 5.0)
    assert got["window_s"] == pytest.approx(0.943)
    assert got["sent_per_s"] == pytest.approx(1000, rel=0.01)
    assert got["received_per_s"] == pytest.approx(1000, rel=0.01)
    assert got["lag_p50_ms"] == got["lag_p99_ms"] == pytest.approx(2.0)
    assert got["source_late_p99_ms"] == 0.0


def test_a_late_source_is_seen_and_is_no_lag() -> None:
    got = chunk_figures(streams(100, 10, late_ms=40), 5.0)
    assert got["source_late_p99_ms"] == pytest.approx(40.0)
    assert got["lag_p99_ms"] == pytest.approx(2.0)


def test_without_a_time_in_which_all_were_at_work_there_is_no_rate() -> None:
    got = chunk_figures(streams(3, 100), 5.0)
    assert (got["window_s"], got["sent_per_s"], got["received_per_s"]) == (0.0, None, None)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "held"),
        ({"client_bound": True, "sent_per_s": 10.0}, "client"),
        ({"lag_p99_ms": 5.1}, "unsaid"),
        ({"lag_p99_ms": 4.9}, "late"),
        ({"sent_per_s": 970.0, "received_per_s": 970.0}, "source"),
        ({"source_late_p99_ms": 6.0}, "source"),
        ({"completed": 9}, "source"),
        ({"sent_per_s": None, "received_per_s": None}, "source"),
        ({"received_per_s": 970.0}, "late"),
    ],
)
def test_what_a_rate_showed(change: dict[str, Any], expected: str) -> None:
    assert standing(HELD | change) == expected


def test_rates_double_while_they_are_held_and_then_the_bracket_is_halved() -> None:
    limit, steps, tried = 53_000.0, list[dict[str, Any]](), list[float]()
    while (rate := next_rate(steps, 10_000.0, 0.1)) is not None:
        tried.append(rate)
        steps.append({"offered_per_s": rate, "standing": "held" if rate <= limit else "client"})
    assert tried == [10_000, 20_000, 40_000, 80_000, 60_000, 50_000, 55_000]
    # And down where the first is not held, but not for ever.
    steps = []
    while (rate := next_rate(steps, 1000.0, 0.1)) is not None:
        steps.append({"offered_per_s": rate, "standing": "source"})
    assert [step["offered_per_s"] for step in steps] == [1000 / 2**k for k in range(7)]


def test_a_late_client_is_driven_on_until_it_says_so() -> None:
    steps, tried = list[dict[str, Any]](), list[float]()
    while (rate := next_rate(steps, 10_000.0, 0.5)) is not None:
        tried.append(rate)
        name = "held" if rate <= 10_000 else "late" if rate < 40_000 else "client"
        steps.append({"offered_per_s": rate, "standing": name})
    assert tried == [10_000, 20_000, 15_000, 30_000, 45_000]


def test_the_sources_have_what_the_client_leaves() -> None:
    assert divide([0, 1, 2, 3], 1) == ([0], [1, 2, 3])
    assert divide([4, 5], 1) == ([4], [5])
    assert divide([4, 5], 2) == ([4, 5], [4, 5])


def test_the_report_says_what_held_and_whose_limit_came_then() -> None:
    beyond = HELD | {"offered_per_s": 2000.0, "verdict": ["The client was the limit."]}
    found = {"processes": 1, "client_cores": [0], "source_cores": [1]}
    steps = [HELD | {"standing": "held"}, beyond | {"standing": "client"}]
    told = report([found | {"steps": steps}])
    assert "Held: 1,000 chunks/s. At 2,000: the client says that it was the limit." in told
    assert "Its words at 2,000: The client was the limit." in told
    assert "shares" not in told
    steps[1]["standing"] = "source"
    told = report([found | {"source_cores": [0], "steps": steps}])
    assert "so the client's own limit lies higher" in told and "shares 1 of them" in told


def test_the_source_writes_the_mocks_events_in_whole_pieces() -> None:
    event = chunk_source._EVENT % 123_456_789_012
    size, _, data = event.partition(b"\r\n")
    assert len(data) == int(size, 16) + 2 and data.endswith(b"\r\n")
    assert len(chunk_source._EVENT % 10**18) == len(event)
    tail = chunk_source.ending(CHUNKS)
    size, _, last = tail.partition(b"\r\n")
    assert last[int(size, 16) :] == b"\r\n0\r\n\r\n"
    reader = SSEReader(max_event_bytes=4096)
    events = [each.data for each in reader.feed(data + last[: int(size, 16)])]
    first, ends, done = (json.loads(each) if "{" in each else each for each in map(_text, events))
    assert first["mock_sent_ns"] == 123_456_789_012
    assert first["choices"][0]["delta"]["content"] == " water"
    assert ends["usage"]["completion_tokens"] == CHUNKS and done == "[DONE]"


def _text(data: str | bytes) -> str:
    return data.decode() if isinstance(data, bytes) else data


def test_the_source_finds_the_end_of_a_request() -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 5\r\n\r\n"
    assert chunk_source.request_bytes(head[:-1]) is None
    assert chunk_source.request_bytes(head + b"12345POST") == len(head) + 5
    assert chunk_source.request_bytes(b"GET / HTTP/1.1\r\n\r\n") == 18
    assert re.match(rb"HTTP/1.1 200", chunk_source._HEAD)
