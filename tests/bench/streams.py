"""Records of requests for tests: written by hand in milliseconds, or drawn."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from headrace.bench.record import (
    CONTENT_KINDS,
    Chunk,
    ChunkKind,
    ClientHealth,
    Failure,
    RequestRecord,
    RunRecord,
    Usage,
)

MS = 1_000_000
# Examples are small; a machine that has other work to do is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

IDLE = ClientHealth(schedule_lag_ns=(), loop_lag_ns=(), cpu_share=())


def stream(
    *events: tuple[float, ChunkKind, str],
    index: int = 0,
    intended_ms: float = 0,
    sent_ms: float | None = 0,
    end_ms: float | None = None,
    tokens: int | None = None,
    counted: int | None = None,
    failure: Failure | None = None,
    **rest: object,
) -> RequestRecord:
    """Events of (ms, kind, text); the response ends with the last unless `end_ms` says when.

    tokens: as the server told; counted: as the client did.
    """
    chunks = tuple(Chunk(round(at * MS), kind, text) for at, kind, text in events)
    if end_ms is None and events:
        end_ms = events[-1][0]
    usage = rest.pop("usage", Usage(completion_tokens=tokens))
    return RequestRecord(
        index=index,
        measured=bool(rest.pop("measured", True)),
        intended_ns=round(intended_ms * MS),
        sent_ns=None if sent_ms is None else round(sent_ms * MS),
        end_ns=None if end_ms is None else round(end_ms * MS),
        chunks=chunks,
        client_output_tokens=counted,
        failure=failure,
        usage=usage,  # type: ignore[arg-type]
        **rest,  # type: ignore[arg-type]
    )


def steady(
    count: int, first_ms: float, gap_ms: float, start_ms: float = 0, **rest: object
) -> RequestRecord:
    """A stream of one-token chunks at an even pace, sent at start_ms."""
    events = [(start_ms + first_ms + gap_ms * at, "text", " a") for at in range(count)]
    defaults = {"intended_ms": start_ms, "sent_ms": start_ms, "tokens": count}
    return stream(*events, **{**defaults, **rest})  # type: ignore[arg-type]


def run(*records: RequestRecord, health: ClientHealth = IDLE) -> RunRecord:
    """With an index for each."""
    return RunRecord(about={}, requests=records, health=health)


def spread_ms(values: object, scale: float = 1 / MS) -> list[float]:
    """Nanoseconds as rounded milliseconds."""
    assert isinstance(values, tuple | list)
    return [round(value * scale, 6) for value in values]


_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["role", "text", "reasoning", "tool", "other"]),
        st.integers(0, 10**9),
        st.sampled_from(["", "a", "é b", "abcdef"]),
    ),
    min_size=1,
    max_size=12,
)
_COUNT = st.one_of(st.none(), st.integers(1, 60))


def _drawn(
    events: list[tuple[ChunkKind, int, str]],
    waits: tuple[int, int, int, int],
    told: int | None,
    counted: int | None,
) -> RequestRecord:
    intended, lag, last, tail = waits
    at = intended + lag
    chunks = []
    for kind, gap, text in events:
        at += gap
        chunks.append(Chunk(at, kind, text if kind in CONTENT_KINDS else ""))
    chunks += [Chunk(at + last, "text", "end"), Chunk(at + last + tail, "usage")]
    return RequestRecord(
        index=0,
        measured=True,
        intended_ns=intended,
        sent_ns=intended + lag,
        headers_ns=intended + lag + events[0][1] // 2,
        end_ns=at + last + 2 * tail,
        chunks=tuple(chunks),
        usage=Usage(completion_tokens=told),
        client_output_tokens=counted,
    )


def records() -> st.SearchStrategy[RequestRecord]:
    """Any completed stream that has content, with what servers put around it."""
    waits = st.tuples(*(st.integers(0, 10**9) for _ in range(4)))
    return st.builds(_drawn, _EVENTS, waits, _COUNT, _COUNT)
