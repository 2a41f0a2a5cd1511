"""Work in a thread is done on behalf of the call that asked for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.server.admission.off_loop import off_loop
from headrace.telemetry.call import CallRecord, as_current, current_call


@pytest.mark.parametrize(("size", "elsewhere"), [(9, False), (10, True), (11, True)])
async def test_large_work_has_a_thread_and_the_calls_record(size: int, elsewhere: bool) -> None:
    def work() -> tuple[bool, CallRecord | None]:
        return threading.current_thread() is not threading.main_thread(), current_call()

    with (
        ThreadPoolExecutor(1) as workers,
        as_current(CallRecord("r1", "/tokenize", 0.0)) as record,
    ):
        assert await off_loop(workers, size, 10, work) == (elsewhere, record)


async def test_what_goes_wrong_there_is_raised_here() -> None:
    with ThreadPoolExecutor(1) as workers:
        for size in (1, 10):
            with pytest.raises(ZeroDivisionError):
                await off_loop(workers, size, 10, lambda: 1 // 0)
