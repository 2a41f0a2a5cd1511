"""The client's errors, of records whose times are known."""

from __future__ import annotations

import os

import pytest

from benchmarks.client_precision import (
    ERRORS,
    RECOVERED,
    Programme,
    beyond,
    errors_ms,
    is_chunked,
    magnitudes,
    on_screen,
    report,
)
from headrace.bench.record import Chunk, RequestRecord

MS = 1_000_000
PROGRAMME = Programme(ttft_ms=100.0, tpot_ms=5.0, tokens_per_chunk=4)


def record(*, first_lag_ms: float = 0.5, last_lag_ms: float = 0.5, sizes: int = 4) -> RequestRecord:
    """Sent at 10 ms; the mock had it at 11 ms and kept its times, all chunks lagged by 0.5 ms."""
    stamps = [11 + 100 + 20 * index for index in range(16)]
    lags = [first_lag_ms, *[0.5] * 14, last_lag_ms]
    chunks = [Chunk(round(7 * MS), "role", "", 7 * MS)]
    for index, (stamp, lag) in enumerate(zip(stamps, lags, strict=True)):
        text = " word" * (1 if index == 0 else sizes)
        chunks.append(Chunk(round((stamp + lag) * MS), "text", text, stamp * MS))
    return RequestRecord(
        index=0, measured=True, intended_ns=9 * MS, sent_ns=10 * MS, chunks=tuple(chunks)
    )


def test_a_constant_lag_is_in_ttft_and_in_no_gap() -> None:
    got = errors_ms(record(), 11 * MS, PROGRAMME)
    assert got["chunk"] == pytest.approx([0.5] * 16)
    assert got["request"] == pytest.approx([1.0])
    assert got["ttft"] == got["e2e"] == pytest.approx([1.5])
    assert got["itl"] == pytest.approx([0.0] * 15)
    assert got["tpot"] == got["tpot_programmed"] == got["mock_tpot"] == pytest.approx([0.0])
    assert got["mock_ttft"] == pytest.approx([0.0])
    assert got["ttft_programmed"] == pytest.approx([1.5])


def test_a_late_first_chunk_shortens_what_follows() -> None:
    got = errors_ms(record(first_lag_ms=6.5), 11 * MS, PROGRAMME)
    assert got["ttft"] == pytest.approx([7.5])
    assert got["itl"] == pytest.approx([-6.0, *[0.0] * 14])
    assert got["tpot"] == pytest.approx([-0.1])
    assert got["e2e"] == pytest.approx([1.5])


def test_the_mocks_own_lateness_is_no_error_of_the_client() -> None:
    got = errors_ms(record(), 3 * MS, PROGRAMME)
    assert got["mock_ttft"] == pytest.approx([8.0])
    assert got["ttft"] == pytest.approx([-6.5])
    assert got["ttft_programmed"] == pytest.approx([1.5])


def test_chunks_are_compared_with_the_programme() -> None:
    assert PROGRAMME.output_tokens == 61
    assert is_chunked(record(), PROGRAMME)
    assert not is_chunked(record(sizes=3), PROGRAMME)


def test_a_record_without_stamps_is_refused() -> None:
    bare = RequestRecord(
        index=3, measured=True, intended_ns=0, sent_ns=0, chunks=(Chunk(1, "text", " word"),) * 2
    )
    with pytest.raises(ValueError, match="request 3"):
        errors_ms(bare, 0, PROGRAMME)


def test_percentiles_of_magnitudes_are_samples() -> None:
    got = magnitudes([float(value) for value in range(-100, 0)])
    assert got == {"p50": 50.0, "p99": 99.0, "most": 100.0, "count": 100}
    assert magnitudes([-2.0])["p99"] == 2.0


def test_a_target_is_missed_by_either_percentile() -> None:
    fine = {"p50": 0.9, "p99": 2.9, "most": 90.0}
    errors = dict.fromkeys((*ERRORS, *RECOVERED), fine)
    assert beyond(errors, ERRORS) == []
    assert beyond({**errors, "itl": {**fine, "p50": 1.1}}, ERRORS) == ["itl"]
    assert beyond({**errors, "tpot_programmed": {**fine, "p99": 3.1}}, ERRORS) == []


def test_the_report_has_a_row_for_each_metric_and_says_what_was_missed() -> None:
    errors = {
        name: magnitudes(values) for name, values in errors_ms(record(), 11 * MS, PROGRAMME).items()
    }
    run = {
        "rate": 50.0, "requests": 1, "completed": 1, "chunked_as_programmed": 1,
        "errors_ms": errors, "verdict": ["The client was not the limit."],
        "drawings": 0, "drawn_bytes": 0,
    }  # fmt: skip
    told = report([run], PROGRAMME)
    assert "The live view" not in told
    drawn = report([run | {"drawings": 120, "drawn_bytes": 24_000}], PROGRAMME)
    assert "The live view was on: 120 drawings, 24,000 bytes." in drawn
    assert "| TTFT, error | 1.500 | 1.500 | 1.500 |" in told
    assert "stamps no (ttft), what was programmed no (ttft_programmed). The client" in told


def test_what_is_drawn_on_a_screen_is_counted() -> None:
    with on_screen() as screen:
        os.write(2, b"12345")
    assert (screen.drawn_bytes, screen.drawings) == (5, 1)
