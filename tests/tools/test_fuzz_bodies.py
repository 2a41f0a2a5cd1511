"""The fuzzer of bodies: some inputs at every endpoint, and that it does find things."""

from __future__ import annotations

import random

import pytest

from headrace.errors import RequestError
from headrace.protocol.openai.fields import ENDPOINTS
from tools.fuzz import bodies, harness


@pytest.mark.parametrize("iterations", [700, pytest.param(1500, marks=pytest.mark.long)])
def test_bodies_keep_their_promises(iterations: int) -> None:
    report = harness.run(bodies.make_target(), seed=1, iterations=iterations, limit_s=30)
    assert report.findings == {}
    least = iterations // 150
    for endpoint in ENDPOINTS:
        for outcome in ("accepted", "refused"):
            assert report.outcomes[f"{endpoint.path} {outcome}"] > least, report.outcomes


def test_inputs_are_the_same_for_the_same_seed() -> None:
    target = bodies.make_target()
    first = target.mutate(target.seeds, random.Random("1:2"))
    assert first == target.mutate(target.seeds, random.Random("1:2"))
    assert first != target.mutate(target.seeds, random.Random("1:3"))


@pytest.mark.parametrize("failure", [ValueError("x"), RequestError("x" * 10_000)])
def test_what_must_not_happen_is_found(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object) -> None:
        raise failure

    monkeypatch.setattr(bodies, "parse_request", parse)
    report = harness.run(bodies.make_target(), seed=1, iterations=3)
    assert len(report.findings) == 1


def test_a_field_that_is_dropped_silently_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = bodies.parse_request
    monkeypatch.setattr(bodies, "parse_request", lambda *given: parse(*given)._replace(ignored=()))
    with pytest.raises(AssertionError, match="are unknown"):
        bodies.attempt(b'/detokenize\n{"tokens": [1], "unheard_of": 1}')
