"""The loop of the engine's process: what is answered when, before a step or with what it gave."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest

from headrace.engine.core import EngineCore
from headrace.engine.messages import (
    Cancel,
    FromCore,
    Output,
    Ping,
    Pong,
    PrefixCacheReset,
    ResetPrefixCache,
    Shutdown,
    Started,
    Stats,
    Submit,
    ToCore,
)
from headrace.engine.process import wire
from headrace.engine.process.__main__ import MESSAGES_PER_STEP, serve
from tests.engine.mock import MockModel, make_core, submit
from tests.engine.plans import prompt


class Script:
    """A link whose parent has said all already. frames: (steps computed before, messages)."""

    def __init__(self, model: MockModel, *turns: list[ToCore | bytes]) -> None:
        """turns: what has come before each turn of the loop; after the last one it shuts down."""
        self._model = model
        self._turns = [*turns]
        self.frames: list[tuple[int, list[FromCore]]] = []

    def send(self, messages: list[FromCore]) -> None:
        if messages:
            self.frames.append((self._model.steps, messages))

    def receive(self, *, wait: bool) -> Iterator[bytes]:
        while self._turns and self._turns[0]:
            message = self._turns[0].pop(0)
            yield message if isinstance(message, bytes) else wire.to_core(message)[4:]
        if self._turns:
            self._turns.pop(0)
        elif wait:
            yield wire.to_core(Shutdown())[4:]

    @property
    def said(self) -> list[FromCore]:
        return [message for _, messages in self.frames for message in messages]

    def answers(self) -> list[tuple[int, FromCore]]:
        """Everything but Stats, each with the number of steps computed before it was sent."""
        return [
            (steps, message)
            for steps, messages in self.frames
            for message in messages
            if not isinstance(message, Stats)
        ]


def served(core: EngineCore, *turns: list[ToCore | bytes]) -> Script:
    link = Script(core._model, *turns)  # type: ignore[arg-type]
    serve(core, link)  # type: ignore[arg-type]
    return link


def test_what_needs_no_step_is_said_before_the_next_one() -> None:
    core = make_core(MockModel())
    link = served(
        core,
        [submit("a", prompt(5), max_tokens=2), Ping(7), submit("bad", [], max_tokens=2)],
        [Ping(8)],
    )
    (_, pong), (_, refused), (_, started), (_, first), (_, again), (_, last) = link.answers()
    assert [steps for steps, _ in link.answers()] == [0, 0, 0, 1, 1, 2]
    assert pong == Pong(7) and again == Pong(8)
    assert isinstance(refused, Output) and refused.finish_reason == "error"
    assert isinstance(started, Started) and started.request_id == "a"
    assert isinstance(first, Output) and len(first.token_ids) == 1
    assert isinstance(last, Output) and last.finish_reason == "length"


def test_an_idle_engine_answers_and_forgets_its_prefix_cache() -> None:
    core = make_core(MockModel())
    link = served(core, [submit("a", prompt(40), max_tokens=1)], [], [ResetPrefixCache(3), Ping(1)])
    answers = [each for _, each in link.answers()]
    assert answers[-2:] == [PrefixCacheReset(3, 3), Pong(1)]
    assert core.kv.num_free == core.kv.num_blocks
    last = [each for each in link.said if isinstance(each, Stats)][-1]
    assert last.blocks_cached == 0


def test_a_timeout_and_a_cancel_are_last_words_and_others_go_on() -> None:
    core = make_core(MockModel())
    one = submit("late", prompt(5), max_tokens=500, timeout_s=1.0)
    link = served(core, [one, submit("gone", prompt(6), max_tokens=500)], [Cancel("gone")])
    ends = {
        each.request_id: each.finish_reason
        for each in link.said
        if isinstance(each, Output) and each.finish_reason
    }
    assert ends == {"late": "timeout", "gone": "abort"}


def test_what_cannot_be_read_harms_only_itself() -> None:
    broken = msgspec.msgpack.encode({"type": "Submit", "request_id": "x", "prompt_token_ids": "?"})
    core = make_core(MockModel())
    link = served(core, [broken, b"\xc1", submit("a", prompt(5), max_tokens=1)])
    outputs = [each for each in link.said if isinstance(each, Output)]
    assert [(output.request_id, output.finish_reason) for output in outputs] == [
        ("x", "error"),
        ("a", "length"),
    ]


def test_a_flood_does_not_keep_the_loop_from_stepping() -> None:
    """Nor does it take long: each of 2,000 submits and cancels is some microseconds."""
    model = MockModel()
    core = make_core(model, max_num_seqs=2)
    flood: list[ToCore | bytes] = [
        submit(str(i), prompt(20, i % 30), max_tokens=1) for i in range(MESSAGES_PER_STEP + 500)
    ]
    link = Script(model, flood)
    taken: list[int] = []
    step = core.step

    def counted(on_started: object = None) -> list[Output]:
        taken.append(len(core._requests))
        return step(on_started)  # type: ignore[arg-type]

    core.step = counted  # type: ignore[method-assign]
    begun_s = time.perf_counter()
    serve(core, link)  # type: ignore[arg-type]
    assert time.perf_counter() - begun_s < 20
    assert taken[0] == MESSAGES_PER_STEP
    ends = [
        each for each in link.said if isinstance(each, Output) and each.finish_reason == "length"
    ]
    assert len(ends) == MESSAGES_PER_STEP + 500


@pytest.mark.load
def test_submits_and_cancels_in_a_flood_are_cheap() -> None:
    core = make_core(MockModel(), max_num_seqs=1)
    submits = [Submit(str(i), prompt(100, i % 30), submit("x", [1]).params) for i in range(10_000)]
    begun_s = time.thread_time()
    for each in submits:
        core.submit(each)
    for each in reversed(submits):
        core.cancel(each.request_id)
    # 1 ms each would be 20 s; a scan of the queue or of the heap for each is more than that.
    assert time.thread_time() - begun_s < 5
    assert len(core.step()) == 10_000


def test_a_malformed_message_that_is_no_request_ends_none() -> None:
    core = make_core(MockModel())
    garbled = msgspec.msgpack.encode({"type": "Ping", "request_id": "a", "number": "x"})
    link = served(core, [submit("a", prompt(5), max_tokens=3), garbled])
    said = [each for each in link.said if isinstance(each, Output)]
    assert [each.finish_reason for each in said] == [None, None, "length"]


def test_a_message_nested_without_end_harms_only_itself() -> None:
    core = make_core(MockModel())
    deep = b"\x91" * 6000 + b"\x01"
    named = b"\x83\xa4type\xa6Submit\xaarequest_id\xa1b\xa6params" + deep
    link = served(core, [deep, named, submit("a", prompt(5), max_tokens=3)])
    said = [each for each in link.said if isinstance(each, Output)]
    assert [each.request_id for each in said if each.finish_reason == "length"] == ["a"]
