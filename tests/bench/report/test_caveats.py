"""Why a comparison may mislead."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.bench.record import ClientHealth, Failure, RunRecord
from headrace.bench.report.caveats import Caveat, caveats
from headrace.bench.summary import summarize
from tests.bench.streams import run, steady, stream

ABOUT: dict[str, Any] = {
    "endpoint": "http://a/v1",
    "model": "m",
    "load": "closed loop of 8",
    "prompts": "synthetic",
    "prompts_fingerprint": "1",
    "client_cpu": "x",
    "definitions": "headrace",
    "ending": "complete",
}


def made(count: int = 20, chunks: int = 4, failed: int = 0, **about: Any) -> RunRecord:
    requests = [steady(chunks, 10, 10, tokens=chunks, index=at) for at in range(count)]
    requests += [stream(failure=Failure("http", "no"), index=count + at) for at in range(failed)]
    whole = run(*requests)
    return RunRecord(about={**ABOUT, **about}, requests=whole.requests, health=whole.health)


def said(*runs: RunRecord, under: str = "headrace") -> tuple[Caveat, ...]:
    names = [chr(ord("A") + at) for at in range(len(runs))]
    return caveats(names, runs, [summarize(one) for one in runs], under)


def test_equal_runs_need_none() -> None:
    assert said(made(), made()) == ()


@pytest.mark.parametrize(
    ("about", "text", "misleads"),
    [
        ({"load": "poisson, 3/s"}, "The loads differ (A: closed loop of 8; B: poisson, 3/s)", True),
        ({"prompts": "file"}, "The prompts differ", True),
        ({"prompts_fingerprint": "2", "seed": 4}, "(seeds: A: –; B: 4)", False),
        ({"client_cpu": "y"}, "The client's machines differ (A: x; B: y)", True),
        ({"endpoint_kind": "ollama"}, "The APIs differ (A: –; B: ollama)", True),
        ({"version": "9"}, "Different versions of headrace", False),
        ({"endpoint": "http://b/v1"}, "Endpoints differ (A: http://a/v1; B: http://b/v1).", False),
        ({"definitions": "vllm"}, "here all are by headrace", False),
        ({"ending": "partial"}, "The client of B did not finish", True),
        ({"ending": "duration"}, "", False),
    ],
)
def test_what_differs_is_named(about: dict[str, Any], text: str, misleads: bool) -> None:
    found = said(made(), made(**about))
    assert [one.misleads for one in found] == ([misleads] if text else [])
    assert all(text in one.text for one in found)


def test_more_than_one_difference_hides_its_cause() -> None:
    found = said(made(), made(endpoint="http://b/v1", load="other"))
    assert found[0].misleads and not found[1].misleads
    assert found[1].text.endswith(
        "with more than one difference a ratio does not show which of them caused it."
    )


def test_answers_of_different_length_are_other_work() -> None:
    (found,) = said(made(chunks=4), made(chunks=8))
    assert found.misleads and "A: 4.00, B: 8.00" in found.text and "compare TPOT" in found.text


def test_failures_are_in_no_latency() -> None:
    (found,) = said(made(), made(failed=5))
    assert found.misleads and "A: 0 %, B: 20 %" in found.text


def test_a_client_that_was_the_limit_is_named() -> None:
    busy = ClientHealth(schedule_lag_ns=(), loop_lag_ns=(), cpu_share=(0.99,))
    bound = made()
    (found,) = said(made(), RunRecord(about=bound.about, requests=bound.requests, health=busy))
    assert found.misleads and found.text.startswith("In B the client was the limit")
