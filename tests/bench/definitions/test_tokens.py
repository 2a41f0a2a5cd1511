"""Tokens of a stream and of each chunk: sums are exact, whatever the chunks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.definitions.tokens import chunk_tokens, streamed_tokens, token_gaps_ns
from headrace.bench.record import Chunk, RequestRecord, Usage
from tests.bench.streams import MS, records, spread_ms, stream, unhurried

contents = st.lists(st.text("ab é", min_size=1, max_size=9), min_size=1, max_size=15)


def chunks(*texts: str, told: list[int | None] | None = None) -> tuple[Chunk, ...]:
    counts = told or [None] * len(texts)
    return tuple(
        Chunk(at * 10 * MS, "text", text, tokens=count)
        for at, (text, count) in enumerate(zip(texts, counts, strict=True))
    )


@unhurried
@given(contents, st.integers(0, 80))
def test_shares_add_up_and_nobody_goes_without_who_need_not(texts: list[str], total: int) -> None:
    shares = chunk_tokens(chunks(*texts), total)
    assert sum(shares) == total and len(shares) == len(texts)
    assert min(shares) >= (1 if total >= len(texts) else 0)
    if total > 1 and len(texts) > 1:
        assert shares[0] and shares[-1]


@unhurried
@given(st.lists(st.integers(1, 6), min_size=1, max_size=10))
def test_tokens_of_equal_length_are_found_exactly(counts: list[int]) -> None:
    assert chunk_tokens(chunks(*("abcd" * n for n in counts)), sum(counts)) == tuple(counts)


def test_what_the_server_tells_of_chunks_is_believed_if_it_adds_up() -> None:
    told = chunks("aaaaaaaa", "b", told=[1, 4])
    assert chunk_tokens(told, 5) == chunk_tokens(told, None) == (1, 4)
    assert chunk_tokens(told, 9) == (8, 1)
    assert chunk_tokens(chunks("aaaa", "b", told=[1, None]), 5) == (4, 1)


def test_without_any_count_a_chunk_is_a_token() -> None:
    assert chunk_tokens(chunks("a", "bcd"), None) == (1, 1)
    assert chunk_tokens((), None) == chunk_tokens((), 7) == ()
    assert chunk_tokens(chunks("a"), 0) == (0,)


def test_a_gap_is_shared_among_the_tokens_that_came_after_it() -> None:
    assert spread_ms(token_gaps_ns(chunks("a", "bb", "c"), 4)) == [5, 5, 10]
    # Three pieces of two characters: the middle one completes no token.
    assert spread_ms(token_gaps_ns(chunks("a", "b", "c"), 2)) == [20]
    assert token_gaps_ns((), 3) == ()


@unhurried
@given(records())
def test_token_gaps_add_up_to_the_time_from_first_chunk_to_last(record: RequestRecord) -> None:
    content, total = record.content, streamed_tokens(record)
    gaps = token_gaps_ns(content, total)
    if len(content) > 1 and (total is None or total > 1):
        assert round(sum(gaps)) == content[-1].at_ns - content[0].at_ns
    if total is not None:
        assert len(gaps) == total - chunk_tokens(content, total)[0]


def test_reasoning_that_was_not_sent_does_not_count_as_streamed() -> None:
    hidden = Usage(completion_tokens=50, reasoning_tokens=40)
    assert streamed_tokens(stream((9, "text", "a"), usage=hidden)) == 10
    assert streamed_tokens(stream((5, "reasoning", "h"), (9, "text", "a"), usage=hidden)) == 50
    assert streamed_tokens(stream((9, "text", "a"), counted=7)) == 7
    assert streamed_tokens(stream((9, "text", "a"))) is None
