"""What a server counts of drafts, of one text and of readings."""

from __future__ import annotations

import pytest

from headrace.telemetry.draft_counts import counts_of_readings, counts_of_text
from headrace.telemetry.readings import read_texts


def text(rows: float, *accepted: float, own: bool = True) -> str:
    lines = [f"vllm:spec_decode_num_drafts_total {rows}",
             f"vllm:spec_decode_num_draft_tokens_total {3 * rows}",
             f"vllm:spec_decode_num_accepted_tokens_total {sum(accepted)}"]  # fmt: skip
    lines += [
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{at}"}} {count}'
        for at, count in enumerate(accepted)
    ]
    if own:
        lines += [f"headrace:spec_decode_compared_steps_total {rows}",
                  f"headrace:spec_decode_compared_tokens_total {2 * rows}",
                  f"headrace:spec_decode_compared_seconds_total {rows * 0.3}",
                  f"headrace:spec_decode_plain_seconds_total {rows * 0.2}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def test_figures_follow_from_the_counts() -> None:
    found = counts_of_text(text(10, 8, 4))
    assert found is not None
    assert found.reached == (0.8, 0.4) and found.drafts_per_row == 3
    assert found.tokens_per_step == pytest.approx(2.2)
    assert found.cost_ratio == pytest.approx(1.5) and found.speedup == pytest.approx(2 / 1.5)


def test_a_server_that_compares_nothing_has_no_cost() -> None:
    found = counts_of_text(text(10, 8, own=False))
    assert found is not None
    assert found.cost_ratio is None and found.speedup is None


def test_of_readings_only_what_grew_counts() -> None:
    readings, _ = read_texts([(0, text(10, 8, 4)), (10**9, text(20, 11, 5))])
    found = counts_of_readings(readings)
    assert found is not None
    assert (found.rows, found.accepted, found.accepted_by_place) == (10, 4, (3, 1))
    assert counts_of_readings(readings[:1]) is None


def test_nothing_drafted_is_nothing() -> None:
    assert counts_of_text(text(0)) is None and counts_of_text("<html>") is None
