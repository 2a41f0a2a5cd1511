"""A supervised engine with real processes: killed, stopped, garbled, and back as before."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.engine.messages import Output, Submit
from headrace.engine.process.supervisor import SupervisedEngine
from headrace.engine.process.supervisor_events import (
    EngineGivenUp,
    EngineRestarting,
    Event,
    Supervision,
)
from headrace.errors import EngineDeadError, EngineRestartingError
from tests.engine.process.test_client import config_of, request
from tests.tiny import write_tiny_gguf
from tests.waiting import PATIENCE_S, children, descriptors, runs, threads, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def engine(model: Path) -> AsyncIterator[SupervisedEngine]:
    how = Supervision(max_restarts=100, sleep=lambda seconds: asyncio.sleep(seconds / 50))
    engine = await SupervisedEngine.start(config_of(model), how)
    yield engine
    await engine.close()


async def read(engine: SupervisedEngine, submit: Submit) -> list[int]:
    return [token for each in await outputs(engine, submit) for token in each.token_ids]


async def outputs(engine: SupervisedEngine, submit: Submit) -> list[Output]:
    return [output async for output in engine.generate(submit)]


async def serves_again(engine: SupervisedEngine, restarts: int) -> None:
    await until(lambda: engine.status.alive and engine.status.restarts >= restarts, "a new engine")


async def test_ten_kills_end_all_streams_leak_nothing_and_change_no_result(
    engine: SupervisedEngine,
) -> None:
    before = await read(engine, request("same"))
    # A heartbeat may be alive now or later, so that there may be fewer at the end.
    files_before, tasks_before, threads_before = (
        len(descriptors()), len(asyncio.all_tasks()), threads()
    )  # fmt: skip
    for kill in range(1, 11):
        streams = [engine.generate(request(f"{i}", max_tokens=400)) for i in range(16)]
        for stream in streams:
            await anext(stream)
        pid = engine.pid
        os.kill(pid, signal.SIGKILL)
        for stream in streams:
            with pytest.raises(EngineDeadError, match=r"exit code -9 \(SIGKILL\)"):
                async with asyncio.timeout(PATIENCE_S):
                    async for _ in stream:
                        pass
        assert not engine.status.alive
        await serves_again(engine, kill)
        assert engine.pid != pid
        await until(lambda: not Path(f"/proc/{pid}").exists(), "an end of a zombie")  # noqa: B023
        assert await read(engine, request("same")) == before
    await until(lambda: len(descriptors()) <= files_before, lambda: f"files: {descriptors()}")
    await until(
        lambda: len(asyncio.all_tasks()) <= tasks_before, lambda: f"tasks: {asyncio.all_tasks()}"
    )
    await until(lambda: len(children()) == 1, lambda: f"one process: {children()}")
    # asyncio's pool for blocking calls grows to its bound and stays there.
    pool = min(32, (os.cpu_count() or 1) + 4)
    await until(lambda: threads() - threads_before <= pool, lambda: f"threads: {threads()}")
    assert engine.restarts == {"died": 10, "stalled": 0, "failed_to_load": 0, "requested": 0}
    assert len(engine.recoveries_s) == 10


async def test_a_stopped_engine_is_replaced(model: Path) -> None:
    # Longer than a busy machine keeps a process from its turn, or from its imports.
    how = Supervision(stall_timeout_s=2.0)
    engine = await SupervisedEngine.start(config_of(model), how)
    try:
        signs, idle_since_s = engine._client.heartbeats, how.clock()
        await until(
            lambda: (
                how.clock() - idle_since_s > 1.2 * how.stall_timeout_s
                and engine._client.heartbeats >= signs + 3
            ),
            "answers of an idle engine to pings, for longer than a silent one is left alone",
        )
        assert engine.status.restarts == 0
        stream = engine.generate(request("open", max_tokens=400))
        await anext(stream)
        pid = engine.pid
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EngineDeadError, match="sent nothing for"):
            async with asyncio.timeout(PATIENCE_S):
                async for _ in stream:
                    pass
        await serves_again(engine, 1)
        assert not runs(pid)
        assert engine.restarts["stalled"] == 1
        assert len(await read(engine, request("open"))) == 8
    finally:
        await engine.close()


@pytest.mark.parametrize(
    "noise",
    [b"\x05\x00\x00\x00hello", b"\xff\xff\xff\xff", b"\x09\x00\x00\x00\x91\x81\xa4type\xa1\xff"],
    ids=["no msgpack", "a frame of 4 GiB", "no text"],
)
async def test_garbage_ends_streams_and_engine(engine: SupervisedEngine, noise: bytes) -> None:
    stream = engine.generate(request("open", max_tokens=400))
    await anext(stream)
    pid, transport = engine.pid, engine._client._transport
    assert isinstance(transport, asyncio.Transport)
    protocol = transport.get_protocol()
    assert isinstance(protocol, asyncio.Protocol)
    protocol.data_received(noise)
    with pytest.raises(EngineDeadError, match="the engine sent"):
        async with asyncio.timeout(PATIENCE_S):
            async for _ in stream:
                pass
    await serves_again(engine, 1)
    assert not runs(pid)
    assert len(await read(engine, request("open"))) == 8


async def test_killed_while_loading_again(engine: SupervisedEngine) -> None:
    first = engine.pid
    os.kill(first, signal.SIGKILL)
    await until(lambda: children() - {first}, "the next engine's process")
    (second,) = children() - {first}
    os.kill(second, signal.SIGKILL)
    await serves_again(engine, 2)
    assert engine.restarts == {"died": 1, "stalled": 0, "failed_to_load": 1, "requested": 0}
    assert len(await read(engine, request("x"))) == 8


async def test_a_kill_loop_ends_in_a_clear_state(model: Path) -> None:
    events: list[Event] = []
    how = Supervision(
        max_restarts=3, on_event=events.append, sleep=lambda seconds: asyncio.sleep(seconds / 50)
    )
    engine = await SupervisedEngine.start(config_of(model), how)
    for restarts in range(4):
        await serves_again(engine, restarts)
        os.kill(engine.pid, signal.SIGKILL)
        await until(lambda: not engine.status.alive, "an end")
    # The state is known as soon as the process is gone, its cause when the process was waited for.
    await until(lambda: "SIGKILL" in engine.status.failure, "the cause of its end")
    assert engine.status.state == "failed"
    assert isinstance(events[-1], EngineGivenUp)
    with pytest.raises(EngineDeadError, match="SIGKILL"):
        engine.generate(request("late"))
    assert not children()
    await engine.close()


async def test_a_model_that_is_gone_is_a_failed_attempt(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path)
    how = Supervision(max_restarts=2, sleep=lambda seconds: asyncio.sleep(seconds / 50))
    engine = await SupervisedEngine.start(config_of(path), how)
    path.unlink()
    os.kill(engine.pid, signal.SIGKILL)
    await until(lambda: engine.status.state == "failed", "an end for good")
    assert path.name in engine.status.failure
    assert engine.restarts == {"died": 1, "stalled": 0, "failed_to_load": 1, "requested": 0}
    await engine.close()


async def test_a_reset_whose_caller_gave_up_disturbs_nobody(engine: SupervisedEngine) -> None:
    await read(engine, request("cached", length=40))
    given_up = asyncio.ensure_future(engine.reset_prefix_cache())
    await asyncio.sleep(0)
    given_up.cancel()
    assert await engine.reset_prefix_cache() == 0  # the first has done it
    await read(engine, request("cached", length=40))
    assert await engine.reset_prefix_cache() >= 1
    waiting = asyncio.ensure_future(engine.reset_prefix_cache())
    await asyncio.sleep(0)
    os.kill(engine.pid, signal.SIGKILL)
    done, _ = await asyncio.wait({waiting}, timeout=PATIENCE_S)
    assert done
    failure = waiting.exception()
    assert failure is None or isinstance(failure, EngineDeadError)
    assert engine._client._resets == {}


async def test_a_restart_that_is_asked_for(model: Path) -> None:
    """It ends what is open, is no failure, and may come as often as one likes."""
    events: list[Event] = []
    how = Supervision(max_restarts=0, on_event=events.append)
    engine = await SupervisedEngine.start(config_of(model), how)
    try:
        before = await read(engine, request("same"))
        for number in range(1, 4):
            stream = engine.generate(request("open", max_tokens=400))
            await anext(stream)
            pid = engine.pid
            asked = [asyncio.ensure_future(engine.restart(f"why {number}")) for _ in range(3)]
            with pytest.raises(EngineDeadError, match=f"why {number}"):
                async for _ in stream:
                    pass
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes].count(EngineRestartingError) == 2
            assert not runs(pid)
            assert engine.status.state in ("restarting", "ready")
            await serves_again(engine, number)
            assert engine.status.failure == f"why {number}"
            assert await read(engine, request("same")) == before
        assert engine.restarts["requested"] == 3
        assert sum(engine.restarts.values()) == 3
        assert [event for event in events if isinstance(event, EngineRestarting)] == [
            EngineRestarting("requested", 0, 0, 0.0)
        ] * 3
    finally:
        await engine.close()
    with pytest.raises(EngineDeadError, match="closed"):
        await engine.restart("too late")


async def test_an_engine_that_was_given_up_is_started_when_asked(model: Path) -> None:
    engine = await SupervisedEngine.start(config_of(model), Supervision(max_restarts=0))
    try:
        os.kill(engine.pid, signal.SIGKILL)
        await until(lambda: engine._watch is not None and engine._watch.done(), "an end for good")
        assert engine.status.state == "failed"
        await engine.restart("again, please")
        assert engine.status.state == "restarting"
        await serves_again(engine, 1)
        assert len(await read(engine, request("x"))) == 8
        os.kill(engine.pid, signal.SIGKILL)
        await until(lambda: engine.status.state == "failed", "an end for good")
    finally:
        await engine.close()


async def test_a_stopped_engine_can_be_restarted(engine: SupervisedEngine) -> None:
    pid = engine.pid
    os.kill(pid, signal.SIGSTOP)
    await engine.restart("it hangs")
    assert not runs(pid)
    await serves_again(engine, 1)
    assert len(await read(engine, request("x"))) == 8
