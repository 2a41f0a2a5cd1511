"""The server with an engine that computes nothing: streams of every API, and what they cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.server_overhead import APIS, cost, first_tokens, run, serving
from tests.tiny import write_tiny_gguf


@pytest.mark.process
def test_streams_of_every_api_are_timed(tmp_path: Path) -> None:
    with serving(write_tiny_gguf(tmp_path), 0.0, None) as (url, pid):
        for api in APIS.values():
            first_s = run(first_tokens(url, api, streams=2, requests=3, max_tokens=4))
            assert len(first_s) == 3 and min(first_s) > 0
        figures = cost(url, pid, APIS["completions"], streams=2, max_tokens=20)
    assert 1 <= figures["tokens_per_event"] <= 20
    assert all(value > 0 for value in figures.values())
