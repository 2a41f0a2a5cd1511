"""The figures of a case are hand-computed ones of records, or a reason."""

from __future__ import annotations

import pytest

from headrace.bench.against.cases import CASES, AgainstCase, UnseenPaceError, tokens_per_s
from headrace.bench.record import Chunk, Failure, RequestRecord, Usage
from headrace.errors import HeadraceError

S = 1_000_000_000


def record(
    sent_s: float, end_s: float, pieces: list[float], prompt: int, new: int
) -> RequestRecord:
    return RequestRecord(
        index=0,
        measured=True,
        intended_ns=0,
        sent_ns=int(sent_s * S),
        end_ns=int(end_s * S),
        chunks=tuple(Chunk(int(at_s * S), "text", "a") for at_s in pieces),
        usage=Usage(prompt_tokens=prompt, completion_tokens=new),
    )


@pytest.mark.parametrize(
    ("figure", "records", "expected"),
    [
        ("prefill", [record(1, 3, [3], 500, 1)], 250.0),
        ("prefill", [record(0, 1, [1], 300, 1), record(0, 3, [3], 300, 1)], 200.0),
        # 8 tokens behind the first in 2 seconds, whatever pieces they came in.
        ("decode", [record(0, 9, [1, 2, 3], 10, 9)], 4.0),
        # From the first request at 1 to the last answer at 5: 2 * (100 + 20) tokens.
        ("total", [record(1, 4, [2], 100, 20), record(2, 5, [3], 100, 20)], 60.0),
    ],
)
def test_figures(figure: str, records: list[RequestRecord], expected: float) -> None:
    case = AgainstCase("x", len(records), 1, 1, figure)  # type: ignore[arg-type]
    assert tokens_per_s(case, records) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "no request was sent"),
        ([RequestRecord(index=0, measured=True, intended_ns=0, sent_ns=0, end_ns=S)], "usage"),
        ([record(0, 1, [1], 10, 9)], "9 tokens came in 1 pieces"),
        (
            [
                record(0, 2, [1, 2], 10, 9),
                RequestRecord(
                    index=1, measured=True, intended_ns=0, failure=Failure("http", "HTTP 404")
                ),
            ],
            "HTTP 404",
        ),
    ],
)
def test_no_figure_has_a_reason(records: list[RequestRecord], message: str) -> None:
    with pytest.raises(HeadraceError, match=message):
        tokens_per_s(CASES["decode"], records)


def steady(*, first: int = 1, last: int = 1, pieces: int = 128) -> list[float]:
    """Times of pieces, one in every 10 ms but for those that came together at an end."""
    between = pieces - first - last
    end_s = 1 + (between + 1) / 100
    return [1.0] * first + [1 + (n + 1) / 100 for n in range(between)] + [end_s] * last


@pytest.mark.parametrize(
    ("pieces", "new"),
    [
        # The client read all of an answer in one go, of which the clock saw 0.05 ms.
        ([1.0] * 64 + [1.00005] * 64, 128),
        ([1 + n * 4e-7 for n in range(128)], 128),
        ([1.0, 1.5, 2.0], 128),
        (steady(first=33), 128),
        (steady(last=33), 128),
        ([], 9),
    ],
)
def test_a_pace_of_few_arrivals_is_not_seen(pieces: list[float], new: int) -> None:
    with pytest.raises(UnseenPaceError, match=f"of {new} tokens .* its pace cannot be seen"):
        tokens_per_s(CASES["decode"], [record(0, 3, pieces, 10, new)])


@pytest.mark.parametrize(
    ("pieces", "per_s"),
    [
        (steady(), 100),
        # What waited in the middle changes neither the first time nor the last.
        ([*steady()[:30], *[1.9] * 61, *steady()[91:]], 100),
        # Drafts: eight tokens of a step are sent as a piece each, or as one piece.
        ([1.0, *(1 + (n // 8 + 1) / 10 for n in range(127))], 127 / 1.6),
        ([1.0, *(1 + (n + 1) / 10 for n in range(16))], 127 / 1.6),
    ],
)
def test_a_pace_with_both_ends_is_seen(pieces: list[float], per_s: float) -> None:
    answer = record(0, 3, pieces, 10, 128)
    assert tokens_per_s(CASES["decode"], [answer]) == pytest.approx(per_s, rel=1e-6)


def test_prompts_are_of_the_lengths_of_the_case() -> None:
    case = CASES["shared-512"]
    prompts = case.prompts(7)
    prefix, own = int(prompts.prefix_tokens or 0), int(prompts.input_tokens)
    assert (prefix, prefix + own, case.positions) == (512, case.prompt, case.prompt + case.new)
    assert (prompts.seed, case.load.users, case.load.requests) == (7, 32, 32)
    assert prompts.request.extra_body == {"temperature": 0}
    assert prompts.request.ignore_eos
    assert CASES["sampled-32"].prompts(7).request.extra_body["top_k"] == 20
