"""A request whose grammar is slow sits out until it has answered; others go on."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from headrace.engine.core import EngineCore
from headrace.engine.grammars import beside, pace
from headrace.engine.grammars.beside import Reader
from headrace.engine.grammars.constraint import Constraint, Look
from headrace.engine.grammars.pace import QUICK_QUESTIONS, SLOW_S, SLOW_TO_COMPILE_S, Pace
from headrace.engine.messages import Submit
from headrace.structured.compile import GrammarTokenizer, compile_grammar
from headrace.structured.give_way import give_way
from headrace.structured.grammar import Grammar
from tests.engine.drafts.test_drafts import check_same, run
from tests.engine.drafts.test_forced_spans import core_of, made
from tests.engine.expected import answer
from tests.engine.grammars.test_grammars import (
    CHARACTERS,
    core_with_text,
    regex,
    text_of,
    vocabulary,
)
from tests.engine.mock import Collected, collect, drain, submit
from tests.engine.plans import prompt, request


@pytest.fixture
def always_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every grammar is slow from its compiling on, and stays it."""
    monkeypatch.setattr(pace, "SLOW_TO_COMPILE_S", -1.0)
    monkeypatch.setattr(pace, "SLOW_S", -1.0)


class Gate:
    """Holds the thread that asks slow grammars until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = threading.Event()
        look = Constraint.look

        def held(constraint: Constraint, token_ids: list[int]) -> Look:
            if threading.current_thread().name.startswith("slow-grammars"):
                assert self.is_open.wait(30)
            return look(constraint, token_ids)

        monkeypatch.setattr(Constraint, "look", held)


def step(core: EngineCore, results: dict[str, Collected], times: int = 1) -> None:
    for _ in range(times):
        collect(results, core.step())
        core.check()


@pytest.mark.usefixtures("always_slow")
def test_answers_of_slow_grammars_are_those_of_quick_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    submits = made(12, 4)
    beside_steps = core_of(scheduling_policy="priority", speculative_config="none")
    found = run(beside_steps, submits)
    assert beside_steps._beside._thread is not None
    monkeypatch.undo()
    within = core_of(scheduling_policy="priority", speculative_config="none")
    check_same(found, run(within, submits))
    assert within._beside._thread is None


@pytest.mark.usefixtures("always_slow")
def test_an_answer_that_is_whole_at_its_last_token_stops_and_one_that_is_cut_says_so() -> None:
    core = core_with_text()
    core.submit(submit("whole", prompt(5), grammar=regex("[a-d]{3}"), max_tokens=3))
    core.submit(submit("cut", prompt(5, 1), grammar=regex("[a-d]{4}"), max_tokens=3))
    core.submit(submit("empty", prompt(5, 2), grammar=regex("")))
    results = drain(core)
    ends = {name: (got.finish_reason, len(got.token_ids)) for name, got in results.items()}
    assert ends == {"whole": ("stop", 3), "cut": ("length", 3), "empty": ("stop", 0)}
    assert results["whole"].outputs[-1].ends_with_text


@pytest.mark.usefixtures("always_slow")
def test_others_go_on_while_a_slow_grammar_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    core = core_with_text()
    other = submit("other", prompt(20), max_tokens=12)
    results: dict[str, Collected] = {}
    core.submit(submit("slow", prompt(5), grammar=regex("[a-d]{3}"), max_tokens=9))
    while not core._beside.num_asking:
        step(core, results)
    core.submit(other)
    while "other" not in results or results["other"].finish_reason is None:
        step(core, results)
    assert results["other"].token_ids == answer(other)[0]
    assert "slow" not in results and core.has_work
    step(core, results, 2)  # with nothing else to do it waits, and ends nobody
    gate.is_open.set()
    drain(core, results)
    assert len(text_of(results["slow"])) == 3 and results["slow"].finish_reason == "stop"


@pytest.mark.usefixtures("always_slow")
def test_one_that_sits_out_can_be_cancelled_preempted_and_can_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    core = core_with_text(max_num_seqs=2, scheduling_policy="priority")
    results: dict[str, Collected] = {}
    for index, (name, timeout_s) in enumerate([("gone", None), ("late", 0.01), ("pushed", None)]):
        core.submit(submit(name, prompt(5, index), grammar=regex("[a-d]{3}"), max_tokens=9,
                           priority=1, timeout_s=timeout_s))  # fmt: skip
    while core._beside.num_asking < 2:
        step(core, results)
    core.cancel("gone")
    while "late" not in results:
        step(core, results)
    for index in range(2):
        core.submit(submit(f"urgent{index}", prompt(9, 5 + index), max_tokens=4))
    while len(results) < 4 or any(got.finish_reason is None for got in results.values()):
        step(core, results)
    assert results["gone"].finish_reason == "abort" and results["late"].finish_reason == "timeout"
    assert request(core, "pushed").sits_out
    gate.is_open.set()
    drain(core, results)
    expected = core_with_text()
    expected.submit(submit("pushed", prompt(5, 2), grammar=regex("[a-d]{3}"), max_tokens=9))
    assert results["pushed"].token_ids == drain(expected)["pushed"].token_ids


def test_a_grammar_that_fails_beside_the_steps_ends_its_request_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "SLOW_TO_COMPILE_S", -1.0)
    core = core_with_text()
    ambiguous = Grammar("lark", 'start: s "h"\ns: s s | s s s | /[a-d]/')
    params = {"max_tokens": 90, "logit_bias": {CHARACTERS.index("h"): -100.0}}
    core.submit(submit("r", prompt(5), grammar=ambiguous, **params))
    last = drain(core)["r"].outputs[-1]
    assert (last.finish_reason, last.error_code) == ("error", "grammar_too_large")
    assert last.error is not None and "max is 256" in last.error


def ticks(each_s: float) -> Iterator[float]:
    now_s = 0.0
    while True:
        yield now_s
        now_s += each_s


def asked(pace: Pace) -> None:
    pace.end(pace.begin())


def test_a_grammar_is_slow_once_a_question_takes_long_of_the_processor() -> None:
    clock, processor = ticks(2 * SLOW_S), ticks(2 * SLOW_S)
    own = Pace(lambda: next(clock), lambda: next(processor))
    asked(own)
    assert not own.is_slow, "by the clock alone, which counts what others took"
    asked(own)
    assert own.is_slow
    for _ in range(QUICK_QUESTIONS - 1):
        own.enter(0.0)
    own.enter(2 * SLOW_S)
    for _ in range(QUICK_QUESTIONS - 1):
        own.enter(0.0)
    assert own.is_slow
    own.enter(0.0)
    assert not own.is_slow


def test_a_clock_that_others_held_up_makes_no_grammar_slow() -> None:
    clock, processor = ticks(2 * SLOW_S), ticks(SLOW_S / 2)
    own = Pace(lambda: next(clock), lambda: next(processor))
    for _ in range(200):
        asked(own)
    assert not own.is_slow
    own.compiled(2 * SLOW_TO_COMPILE_S)
    assert own.is_slow


def test_a_grammar_stays_slow_for_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    core = core_with_text()
    grammar = regex("[a-d]{3}")
    core.submit(submit("first", prompt(5), grammar=grammar))
    drain(core)
    core._grammars._paces[grammar].is_slow = True
    (kept,) = core._grammars._kept.values()
    kept.result().anew()  # so that it is compiled again
    begun: list[str] = []
    begin = beside.Beside.begin

    def noted(self: beside.Beside, request: object) -> None:
        begun.append(request.request_id)  # type: ignore[attr-defined]
        begin(self, request)  # type: ignore[arg-type]

    monkeypatch.setattr(beside.Beside, "begin", noted)
    core.submit(Submit("second", prompt(5), submit("x", prompt(5), grammar=grammar).params))
    assert len(drain(core)["second"].token_ids) > 0
    assert set(begun) == {"second"}


def test_reading_a_token_beside_the_steps_lets_other_threads_run() -> None:
    tokenizer = GrammarTokenizer(vocabulary())
    compiled = compile_grammar(regex("[a-d]{3}"), tokenizer)
    reader = Reader()
    a, z = vocabulary().encode("a")[0], vocabulary().encode("0")[0]
    matcher = compiled.matcher()
    assert reader.read(matcher, a) and reader.read(matcher, a) and reader.read(matcher, a)
    assert matcher.is_stopped()
    refused = compiled.matcher()
    assert not reader.read(refused, z) and refused.is_error()
    # A thread that does not let go of the interpreter's lock would keep it for an hour now.
    usual = sys.getswitchinterval()
    many, num_read, seen = compiled.matcher(), 0, set()

    def read() -> None:
        nonlocal num_read
        for _ in range(2000):
            reader.read(many, z)
            num_read += 1

    thread = threading.Thread(target=read)
    sys.setswitchinterval(3600)
    try:
        thread.start()
        while thread.is_alive():
            time.sleep(0)
            seen.add(num_read)
    finally:
        sys.setswitchinterval(usual)
        thread.join()
    assert any(0 < count < 2000 for count in seen)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority of their own on Linux")
def test_a_thread_that_gives_way_runs_where_no_other_wants_the_processor() -> None:
    policies: list[int] = []

    def run_there() -> None:
        give_way()
        policies.append(os.sched_getscheduler(threading.get_native_id()))

    thread = threading.Thread(target=run_there)
    thread.start()
    thread.join()
    assert policies == [os.SCHED_IDLE]
    assert os.sched_getscheduler(0) != os.SCHED_IDLE, "of that thread alone"
    give_way(thread.native_id)  # it has ended, which is of no account
