from __future__ import annotations

import asyncio
import os
import signal

import pytest
import uvloop

from headrace.bench.mock.run import run_mock
from headrace.bench.mock.settings import MockSettings
from headrace.bench.signals import stops_at_signal
from headrace.errors import HeadraceError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_and_the_second_is_as_ever(number: signal.Signals) -> None:
    asked = []

    async def hear() -> None:
        with stops_at_signal(lambda: asked.append(number)) as stopped:
            os.kill(os.getpid(), number)
            await asyncio.wait_for(stopped.wait(), 10)
            assert signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(hear())
    assert asked == [number]


def test_an_address_that_cannot_be_listened_at_leaves_ctrl_c_as_it_was() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(HeadraceError, match="cannot listen"):
        run_mock(MockSettings(), "203.0.113.7", 8010, lambda url: None)
    assert signal.getsignal(signal.SIGINT) is before is signal.default_int_handler
