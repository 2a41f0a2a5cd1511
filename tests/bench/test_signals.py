from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
import uvloop

from headrace.bench.mock.run import run_mock
from headrace.bench.mock.settings import MockSettings
from headrace.bench.signals import ended_by_signals, stops_at_signal
from headrace.errors import HeadraceError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_and_afterwards_they_are_as_ever(number: signal.Signals) -> None:
    asked, before = [], signal.getsignal(number)

    async def hear() -> None:
        with stops_at_signal(lambda: asked.append(number)) as stopped:
            os.kill(os.getpid(), number)
            await asyncio.wait_for(stopped.wait(), 10)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(hear())
    assert asked == [number] and signal.getsignal(number) is before


TWICE = """
import asyncio, os, signal, uvloop
from headrace.bench.signals import ended_by_signals, stops_at_signal

async def hear():
    with stops_at_signal(lambda: None) as stopped:
        os.kill(os.getpid(), signal.SIGINT)
        await stopped.wait()
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        await asyncio.sleep(20)

uvloop.run(hear())
"""


@pytest.mark.process
def test_a_second_ctrl_c_ends_the_process_without_a_word() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_an_address_that_cannot_be_listened_at_leaves_ctrl_c_as_it_was() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(HeadraceError, match="cannot listen"):
        run_mock(MockSettings(), "203.0.113.7", 8010, lambda url: None)
    assert signal.getsignal(signal.SIGINT) is before is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_was_begun_is_ended_on_every_signal(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as caught, ended_by_signals():
        os.kill(os.getpid(), number)
        time.sleep(20)
    assert caught.value.code == 128 + number
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_is_after_a_run_that_heard_none_and_on_the_second_signal_of_one(
    number: signal.Signals,
) -> None:
    async def hear(times: int) -> None:
        with stops_at_signal(lambda: None) as stopped:
            for _ in range(times):
                os.kill(os.getpid(), number)
                await asyncio.sleep(0.1)
            assert stopped.is_set() == (times > 0)

    with pytest.raises(SystemExit) as caught, ended_by_signals():
        within = signal.getsignal(number)
        asyncio.run(hear(0))
        asyncio.run(hear(1))
        assert signal.getsignal(number) is within
        asyncio.run(hear(2))
    assert caught.value.code == 128 + number
