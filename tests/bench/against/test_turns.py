"""Pairs in turns: their order, what a budget allows, limits in between, reasons."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from headrace.bench.against.cases import AgainstCase
from headrace.bench.against.turns import CaseResult, Run, in_turns, most_tokens_per_s
from headrace.bench.load.experiment import RunResult
from headrace.bench.load.load_options import LoadOptions
from headrace.bench.record import Chunk, ClientHealth, RequestRecord, RunRecord, Usage
from headrace.errors import HeadraceError
from headrace.telemetry.machine import Limits
from headrace.telemetry.work import Work

A, B = (AgainstCase(name, 1, 100, 1, "prefill") for name in "ab")
LIMITS = Limits(1000.0, 4000.0, "int8", 500.0)


class Machine:
    """A clock that servers move; every run takes `took_s` and shows in `log`."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.log: list[str] = []

    def server(self, name: str, took_s: float, *, moved: int = 0, attention: int = 0) -> Run:
        def run(case: AgainstCase) -> RunResult:
            self.now_s += took_s
            self.log.append(f"{name} {case.name}")
            record = RequestRecord(
                index=0, measured=True, intended_ns=0, sent_ns=0, end_ns=int(took_s * 1e9),
                usage=Usage(prompt_tokens=100, completion_tokens=1),
            )  # fmt: skip
            after = metrics(5 + moved, 7 + 400, attention=2 + attention)
            texts = ((0, metrics(5, 7, attention=2)), (1, after)) if moved else ()
            health = ClientHealth(schedule_lag_ns=(), loop_lag_ns=(), cpu_share=())
            made = RunRecord(about={}, requests=(record,), health=health, server_metrics=texts)
            return RunResult(made, cast("Any", None), "complete", LoadOptions())

        return run

    def limits(self) -> Limits:
        self.log.append("limits")
        return LIMITS


def metrics(moved: int, operations: int, output: int = 0, *, attention: int = 0) -> str:
    return (
        f"headrace:step_bytes_total {moved}\nheadrace:step_operations_total {operations}\n"
        f"vllm:generation_tokens_total {output}\n"
        f"headrace:step_attention_operations_total {attention}\n"
    )


def compared(machine: Machine, ours: Run, peer: Run, budget_s: float) -> list[CaseResult]:
    return in_turns(
        [A, B],
        ours,
        peer,
        read_limits=machine.limits,
        budget_s=budget_s,
        clock=lambda: machine.now_s,
        progress=lambda _text: None,
    ).results


def test_pairs_take_turns_until_the_time_is_over() -> None:
    machine = Machine()
    results = compared(machine, machine.server("ours", 1), machine.server("peer", 3), 17)
    assert machine.log == [
        "limits", "ours a", "peer a", "ours b", "peer b", "limits",
        "peer a", "ours a", "peer b", "ours b", "limits",
    ]  # fmt: skip
    assert [result.ours for result in results] == [(100.0, 100.0)] * 2
    assert [result.ratios for result in results] == [pytest.approx((3.0, 3.0))] * 2


def test_what_time_does_not_allow_is_named() -> None:
    machine = Machine()
    first, second = compared(machine, machine.server("o", 4), machine.server("p", 4), 5)
    assert first.ours == (25.0,) and first.why_missing is None
    assert second.ours == () and "raise --minutes" in (second.why_missing or "")


def test_a_case_that_fails_keeps_the_others() -> None:
    machine = Machine()
    server = machine.server("peer", 1)

    def peer(case: AgainstCase) -> RunResult:
        if case is A:
            raise HeadraceError("context of 64 tokens")
        return server(case)

    first, second = compared(machine, machine.server("ours", 1), peer, 3)
    assert first.why_missing == "the peer: context of 64 tokens"
    assert second.ours == (100.0,)
    assert machine.log.count("ours a") == 1


def test_a_case_that_fails_later_says_so_beside_its_pairs() -> None:
    machine = Machine()
    server = machine.server("peer", 1)

    def peer(case: AgainstCase) -> RunResult:
        if case is A and "peer b" in machine.log:
            raise HeadraceError("refused the connection")
        return server(case)

    first, second = compared(machine, machine.server("ours", 1), peer, 9)
    assert first.ratios == (1.0,)
    assert first.why_missing == "the peer: refused the connection"
    assert len(second.ratios) > 1 and second.why_missing is None


def unseen_where(machine: Machine, unseen: set[int], figures: Run) -> Run:
    """A server whose answers of these runs, counted from 0, came in one go."""
    runs = iter(range(100))

    def run(case: AgainstCase) -> RunResult:
        done = figures(case)
        at_s = (1.0, 1.0) if next(runs) in unseen else (1.0, 2.0)
        record = RequestRecord(
            index=0, measured=True, intended_ns=0, sent_ns=0, end_ns=3 * 10**9,
            chunks=tuple(Chunk(int(time_s * 1e9), "text", "a") for time_s in at_s),
            usage=Usage(prompt_tokens=100, completion_tokens=3),
        )  # fmt: skip
        return done._replace(run=msgspec.structs.replace(done.run, requests=(record,)))

    return run


def decoded(machine: Machine, unseen: set[int], budget_s: float) -> CaseResult:
    """Of a case whose peer's runs are unseen where `unseen` has them."""
    return in_turns(
        [AgainstCase("deep", 1, 100, 3, "decode")],
        unseen_where(machine, set(), machine.server("ours", 1)),
        unseen_where(machine, unseen, machine.server("peer", 1)),
        read_limits=machine.limits,
        budget_s=budget_s,
        clock=lambda: machine.now_s,
        progress=lambda _text: None,
    ).results[0]


def test_a_pair_whose_pace_is_not_seen_is_left_out_and_repeated() -> None:
    machine = Machine()
    result = decoded(machine, {1}, 7)
    assert (result.ours, result.peer, result.left_out) == ((2.0, 2.0), (2.0, 2.0), 1)
    assert result.why_missing is None
    assert "the peer: an answer of 3 tokens" in (result.why_left_out or "")
    # Both servers have made as many runs, so that the next pair has the same prompts.
    assert machine.log.count("ours deep") == machine.log.count("peer deep") == 3


@pytest.mark.parametrize(("budget_s", "tried"), [(1, 1), (100, 3)])
def test_a_case_whose_pace_is_never_seen_has_the_reason(budget_s: float, tried: int) -> None:
    result = decoded(Machine(), set(range(100)), budget_s)
    assert (result.ours, result.left_out) == ((), tried)
    assert "its pace cannot be seen" in (result.why_missing or "")


def test_limits_bound_the_ratio() -> None:
    machine = Machine()
    ours = machine.server("ours", 1, moved=500)
    first, _ = compared(machine, ours, machine.server("peer", 2), 1)
    # 500 bytes at 1,000 a second take 0.5 s, 400 operations 0.1: 100 tokens in 0.5 s at most.
    assert first.most_tokens_per_s == 200.0
    assert (first.most_ratio, first.share) == (4.0, 0.5)


def test_operations_of_attention_count_at_their_own_rate() -> None:
    machine = Machine()
    ours = machine.server("ours", 1, moved=500, attention=300)
    first, _ = compared(machine, ours, machine.server("peer", 2), 1)
    # 100 operations of products at 4,000 a second, 300 of attention at 500: 0.625 s for 100 tokens.
    assert first.most_tokens_per_s == pytest.approx(100 / 0.625)
    assert first.most_ratio == pytest.approx(3.2) and first.share == pytest.approx(0.625)


def test_a_decode_counts_from_its_first_token() -> None:
    machine = Machine()
    case = AgainstCase("deep", 1, 100, 3, "decode")

    def ours(case: AgainstCase) -> RunResult:
        done = machine.server("ours", 1)(case)
        record = RequestRecord(
            index=0, measured=True, intended_ns=0, sent_ns=0, end_ns=6 * 10**9,
            chunks=tuple(Chunk(at_s * 10**9, "text", "a") for at_s in (2, 4, 6)),
            usage=Usage(prompt_tokens=100, completion_tokens=3),
        )  # fmt: skip
        # The prompt's 9,000 bytes are in the first reading since the first token already.
        texts = [(0, metrics(0, 0, 0)), (3, metrics(9000, 9, 1)), (6, metrics(9800, 89, 3))]
        made = msgspec.structs.replace(
            done.run,
            requests=(record,),
            server_metrics=tuple((at_s * 10**9, text) for at_s, text in texts),
        )
        return done._replace(run=made)

    peer = in_turns(
        [case], ours, ours, read_limits=machine.limits, budget_s=0,
        clock=lambda: machine.now_s, progress=lambda _text: None,
    )  # fmt: skip
    # 2 tokens behind the first in 4 s; 400 bytes a token at 1,000 a second allow 2.5 in one.
    assert (peer.results[0].ours, peer.results[0].most_tokens_per_s) == ((0.5,), 2.5)


def test_without_readings_there_is_no_limit() -> None:
    assert most_tokens_per_s([], [LIMITS]) is None
    assert most_tokens_per_s([(1.0, Work(1, 1))], []) is None


def test_a_bound_is_of_the_middle_of_readings_and_of_runs() -> None:
    limits = [LIMITS._replace(attention_ops_per_s=rate) for rate in (100.0, 500.0, 5000.0)]
    done = [(tokens, Work(0, 1000, 1000)) for tokens in (50.0, 100.0, 900.0)]
    assert most_tokens_per_s(done, limits) == pytest.approx(50)


def test_a_case_that_is_refused_is_not_sent() -> None:
    machine = Machine()
    first, second = in_turns(
        [A, B], machine.server("ours", 5), machine.server("peer", 5),
        read_limits=machine.limits, budget_s=5, clock=lambda: machine.now_s,
        progress=lambda _text: None, refused={"a": "too long"},
    ).results  # fmt: skip
    assert (first.why_missing, first.ours) == ("too long", ())
    # The first of those that are sent is measured whatever it takes.
    assert second.why_missing is None and len(second.ours) == 1
    assert machine.log == ["limits", "ours b", "peer b", "limits"]


def test_progress_has_the_figures_so_far_and_the_time_left() -> None:
    machine = Machine()
    said: list[str] = []
    in_turns(
        [A], machine.server("ours", 1), machine.server("peer", 2),
        read_limits=machine.limits, budget_s=7, clock=lambda: machine.now_s,
        progress=said.append,
    )  # fmt: skip
    assert said == [
        "round 1: a (7 s left)",
        "round 2: a, so far headrace 100.0, peer 50.0 tokens/s (4 s left)",
    ]
