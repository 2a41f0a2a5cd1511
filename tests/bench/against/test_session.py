"""The limits that a comparison reads are those of the kernels that compute, or none; who runs while
another is measured."""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.bench.against import session
from headrace.bench.against.cases import AgainstCase
from headrace.bench.against.peer import ServerFacts
from headrace.bench.against.process import started
from headrace.bench.against.session import (
    ComparisonOptions,
    Environment,
    compared,
    limits_reader,
    too_long,
    with_others_stopped,
)
from headrace.bench.against.turns import CaseResult
from headrace.bench.client.endpoints import Endpoint
from headrace.bench.machine import Probe
from headrace.bench.record import Failure, RequestRecord
from headrace.errors import ConfigError, HeadraceError
from tests.bench.against.test_process import WAITS, comes_to

LABELS = {
    "backend": "cpu", "cpu_level": "avx2", "threads": "3", "weight_codec": "Q8_0",
    "cache_dtype": "bf16",
}  # fmt: skip
RATES = {"f32": 3.0, "bf16": 6.0, "int8": 9.0}


class FixedProbe:
    """A probe of a machine that reads 7 bytes a second and multiplies as RATES has it."""

    def __init__(self, level: str, num_threads: int) -> None:
        self.level = level
        self.num_threads = num_threads

    def read_bandwidth(self, footprint_bytes: int) -> float:
        return 7.0

    def peak_rate(self, kind: str) -> float | None:
        return RATES.get(kind)


def environment_of(asked: list[tuple[str, int]]) -> Environment:
    def probe(level: str, threads: int) -> Probe:
        asked.append((level, threads))
        return FixedProbe(level, threads)

    return Environment({}, probe, lambda: 0.0, lambda: datetime(2026, 1, 1, tzinfo=UTC), print)


def test_limits_are_of_the_level_and_threads_that_compute() -> None:
    asked: list[tuple[str, int]] = []
    limits = limits_reader(LABELS, environment_of(asked))()
    assert limits is not None
    assert limits == (7.0, 9.0, "int8", 6.0)
    assert asked == [("avx2", 3)]


def test_the_limit_of_attention_is_that_of_its_k_and_v() -> None:
    limits = limits_reader(LABELS | {"cache_dtype": "f32"}, environment_of([]))()
    assert limits is not None and limits.attention_ops_per_s == 3.0


def test_whoever_is_measured_runs_alone() -> None:
    case = AgainstCase("a", 1, 100, 1, "prefill")
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(
                started(WAITS, is_ready=lambda: True, timeout_s=20, environ=os.environ)
            )
            for name in ("headrace", "peer")
        }

        def look(*stopped: str) -> None:
            for name, server in servers.items():
                assert comes_to(server.pid, stopped=name in stopped), name

        ours, peer, limits = with_others_stopped(
            lambda _case: cast("Any", look("peer")),
            lambda _case: cast("Any", look("headrace")),
            lambda: cast("Any", look("headrace", "peer")),
            servers,
        )
        for _ in range(2):
            ours(case)
            peer(case)
            limits()
        look()


def compared_with(
    monkeypatch: pytest.MonkeyPatch, case: AgainstCase, context: int | None
) -> tuple[CaseResult, list[str], list[str]]:
    """The result of a case whose requests all fail, what was sent, and what progress said."""
    too_much = RequestRecord(
        index=0, measured=True, intended_ns=0, sent_ns=0, failure=Failure("http", "HTTP 400: short")
    )
    run = SimpleNamespace(requests=(too_much,))
    summary = SimpleNamespace(requests=SimpleNamespace(completed=0))
    done = SimpleNamespace(ending="complete", run=run, summary=summary)
    sent: list[str] = []

    def answer(asked: AgainstCase) -> SimpleNamespace:
        sent.append(asked.name)
        return done

    async def same(endpoint: Endpoint, _model: str | None) -> Endpoint:
        return endpoint

    async def facts(endpoint: Endpoint) -> ServerFacts:
        return ServerFacts(url=endpoint.base_url, context=context)

    async def labels(_endpoint: Endpoint) -> dict[str, str]:
        return LABELS | {"backend": "torch"}

    for name, stub in (
        ("with_model", same), ("server_facts", facts), ("engine_labels", labels),
        ("load_tokenization", lambda _: None), ("Loads", lambda *_, **__: answer),
    ):  # fmt: skip
        monkeypatch.setattr(session, name, stub)
    options = ComparisonOptions(
        peer="http://127.0.0.1:1", own="http://127.0.0.1:2", tokenizer=None, peer_model=None,
        seed=1, budget_s=1, start_timeout_s=1, request_timeout_s=60, api_key=None,
    )  # fmt: skip
    said: list[str] = []
    _, comparison = compared(options, [case], environment_of([])._replace(progress=said.append))
    (result,) = comparison.results
    return result, sent, said


def test_a_case_that_nobody_can_answer_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = AgainstCase("long", 1, 4096, 1, "prefill")
    result, _, said = compared_with(monkeypatch, case, None)
    assert result.why_missing == "headrace: HTTP 400: short (1 http)"
    assert "peer: no request of long succeeded" in said


def test_a_case_that_the_peer_cannot_hold_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    case = AgainstCase("long", 1, 512, 1, "prefill")
    result, sent, said = compared_with(monkeypatch, case, 512)
    assert result.why_missing == (
        "the peer holds 512 tokens a request, this case has 513; start it with a larger context "
        "(llama-server: -c, and -kvu with several slots)"
    )
    assert not sent and not said


def test_a_case_that_just_fits_is_sent() -> None:
    case = AgainstCase("long", 1, 511, 1, "prefill")
    assert not too_long([case], 512) and not too_long([case], None)


def test_a_server_on_a_device_has_none() -> None:
    asked: list[tuple[str, int]] = []
    on_device = LABELS | {"backend": "torch", "cpu_level": "cuda:0"}
    assert limits_reader(on_device, environment_of(asked))() is None
    assert not asked


def test_ours_is_called_by_its_command_where_it_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def same(endpoint: Endpoint, _model: str | None) -> Endpoint:
        return endpoint

    monkeypatch.setattr(session, "with_model", same)
    options = ComparisonOptions(
        peer="http://127.0.0.1:1", own=["sh", "-c", "exit 3", "{port}"], tokenizer=None,
        peer_model=None, seed=1, budget_s=1, start_timeout_s=20, request_timeout_s=60,
        api_key=None,
    )  # fmt: skip
    with pytest.raises(HeadraceError, match=r"^headrace serve ended with status 3"):
        compared(options, [AgainstCase("a", 1, 8, 1, "prefill")], environment_of([]))


def test_a_warm_up_that_was_interrupted_goes_no_further() -> None:
    done = cast("Any", SimpleNamespace(ending="interrupted"))
    with pytest.raises(KeyboardInterrupt):
        session._warmed_up(lambda _case: done, AgainstCase("a", 1, 8, 1, "prefill"))


@pytest.mark.parametrize("option", ["--port", "--host=0.0.0.0", "--uds"])
def test_an_address_of_ours_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=r"^--(port|host|uds) behind --: .*leave it out$"):
        session.check_own_options(["--threads", "2", option, "5"])
    session.check_own_options(["--threads", "2", "--portable"])
