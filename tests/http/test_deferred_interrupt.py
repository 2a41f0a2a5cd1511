"""Ctrl-C comes between steps: nothing is half done, and nothing is lost."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from headrace import LLM, SamplingParams
from headrace.http.deferred_interrupt import DeferredInterrupt
from tests.tiny import write_tiny_gguf


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_it_waits_for_the_end_of_the_block() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), DeferredInterrupt():
        interrupt()
        done.append("all of it")
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with DeferredInterrupt():
        pass


def test_other_handlers_and_threads_are_left_alone() -> None:
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        with DeferredInterrupt():
            interrupt()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [1]
    failures: list[BaseException] = []

    def elsewhere() -> None:
        try:
            with DeferredInterrupt():
                pass
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert not failures


def test_an_interrupted_call_leaves_a_sound_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(write_tiny_gguf(tmp_path), backend="reference", num_gpu_blocks_override=64)
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    expected = llm.generate("alpha", params)
    run = llm._core._runner.run
    steps = 0

    def interrupted(rows: object) -> object:
        nonlocal steps
        steps += 1
        if steps == 4:
            interrupt()
        return run(rows)  # type: ignore[arg-type]

    monkeypatch.setattr(llm._core._runner, "run", interrupted)
    open_stream = llm.stream("beside", params)
    pieces = [next(open_stream)]
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["alpha", "beta"], params)
    llm._core.check()
    pieces += list(open_stream)
    assert sum(len(piece.token_ids) for piece in pieces) == 12, "the other stream lost nothing"
    assert llm.stats.num_running == llm.stats.blocks_owned == 0
    assert [one.token_ids for one in llm.generate("alpha", params)] == [expected[0].token_ids]


@pytest.mark.parametrize("call", ["generate", "stream"])
def test_interrupted_while_it_submits_a_call_leaves_nothing_running(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(write_tiny_gguf(tmp_path), backend="reference", num_gpu_blocks_override=64)
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    submit = llm._core.submit

    def interrupted(message: object) -> None:
        submit(message)  # type: ignore[arg-type]
        interrupt()

    monkeypatch.setattr(llm._core, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        if call == "generate":
            llm.generate(["alpha", "beta"], params)
        else:
            next(llm.stream("alpha", params))
    assert llm.stats.num_running == llm.stats.num_waiting == 0
    assert not llm._requests


def test_giving_a_request_up_is_not_interrupted_half_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(write_tiny_gguf(tmp_path), backend="reference", num_gpu_blocks_override=64)
    stream = llm.stream("alpha", SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))
    next(stream)
    release = llm._core.kv.release

    def interrupted(*args: object, **kwargs: object) -> None:
        interrupt()
        release(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(llm._core.kv, "release", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream.close()
    llm._core.check()
    assert llm.stats.num_running == llm.stats.blocks_owned == 0
