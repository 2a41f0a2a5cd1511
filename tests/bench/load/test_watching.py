"""What is told of a run while it is on: the client's health, the server's metrics, the view."""

from __future__ import annotations

import asyncio
import gc
import io
import re
import time
from collections.abc import Callable

import pytest

from headrace.bench.load import health
from headrace.bench.load.health import TICK_NS, CollectionWatch, LoopWatch
from headrace.bench.load.health import added as all_collections
from headrace.bench.load.live import Block, Figures, Lines, Quiet, make_view
from headrace.bench.load.progress import Progress, added, progress
from headrace.bench.load.runner import Counts
from headrace.bench.load.server_metrics import MetricsWatch
from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from headrace.bench.record import Collections
from headrace.bench.timer import Deadline
from tests.bench.client.wire import scripted
from tests.bench.load.helpers import MS, endpoint
from tests.bench.streams import stream


class FakeTimer:
    """Keeps the last deadline; `fire` calls it as late as it is told."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.due_ns = 0
        self.callback: Callable[[], None] = lambda: None

    def call_at_ns(self, when_ns: int, callback: Callable[[], None]) -> Deadline:
        self.due_ns, self.callback = when_ns, callback
        return Deadline(callback)

    def fire(self, late_ns: int) -> None:
        self.now_ns = self.due_ns + late_ns
        self.callback()


def test_the_loops_lag_is_how_late_its_ticks_are(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, cpu_s = FakeTimer(), iter([1.0, 1.05])
    watch = LoopWatch(timer, lambda: timer.now_ns, lambda: next(cpu_s))  # type: ignore[arg-type]
    watch.start()
    for late_ns in (0, 3 * MS, 55 * MS, 0):
        timer.fire(late_ns)
    watch.stop()
    assert watch.lags_ns == [0, 3 * MS, 55 * MS, 0]
    assert watch.cpu_share == pytest.approx(0.05 / (timer.now_ns / 1e9))
    monkeypatch.setattr(health, "MAX_SAMPLES", 8)
    for _ in range(20):
        timer.fire(0)
    assert len(watch.lags_ns) < 8
    before_ns = timer.due_ns
    timer.fire(0)
    assert timer.due_ns - before_ns >= 2 * TICK_NS


async def test_metrics_are_read_before_during_and_after() -> None:
    async with MockEndpoint(MockSettings()) as url:
        watch = MetricsWatch(endpoint(url), every_s=0.02)
        began_ns = time.monotonic_ns()
        assert await watch.start()
        for _ in range(2000):
            if len(watch.readings) >= 2:
                break
            await asyncio.sleep(0.01)
        await watch.stop()
    times = [at_ns for at_ns, _ in watch.readings]
    assert len(times) >= 3
    assert times == sorted(times)
    assert times[0] >= began_ns
    assert all("vllm:num_requests_running" in text for _, text in watch.readings)


async def test_metrics_that_repeat_a_key_are_kept_without_it() -> None:
    said = b'requests{key="sk-0123456789"} 1\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(said)
    async with scripted(head + said) as url:
        watch = MetricsWatch(endpoint(url, api_key="sk-0123456789"), every_s=1000)
        assert await watch.start()
        await watch.stop()
    assert {text for _, text in watch.readings} == {'requests{key="********"} 1\n'}


async def test_what_is_kept_of_metrics_is_bounded_and_has_both_ends() -> None:
    async with MockEndpoint(MockSettings()) as url:
        watch = MetricsWatch(endpoint(url), every_s=0.001, kept_bytes=5000)
        await watch.start()
        first = watch.readings[0]
        for _ in range(30):
            await watch._read()
        last_ns = watch.readings[-1][0]
        await watch.stop()
    assert sum(len(text) for _, text in watch.readings) < 10_000
    assert watch.readings[0] == first
    assert watch.readings[-1][0] > last_ns


async def test_a_server_without_metrics_is_no_failure() -> None:
    async with MockEndpoint(MockSettings()) as url:
        watch = MetricsWatch(endpoint(url), "/nothing")
        assert not await watch.start()
        await watch.stop()
    assert watch.readings == []
    gone = MetricsWatch(endpoint(url))
    assert not await gone.start()
    await gone.stop()


def told(ended: int, ttft_ms: tuple[float, ...] = ()) -> Progress:
    return Progress(counts=Counts(ended + 2, ended, 1, 2, 3), ttft_ms=ttft_ms)


def test_progress_is_of_what_was_read() -> None:
    records = [
        stream((30, "text", "a"), (40, "text", "b"), tokens=2),
        stream((50, "text", "a"), tokens=1),
    ]
    got = progress(Counts(5, 2, 0, 3, 0), records)
    assert got.ttft_ms == (30.0, 50.0)
    assert got.tpot_ms == (10.0,)
    both = added([got, told(4, (7.0,))])
    assert both.counts == Counts(11, 6, 1, 5, 3)
    assert both.ttft_ms == (30.0, 50.0, 7.0)
    assert added([]).counts == Counts(0, 0, 0, 0, 0)


def test_lines_come_every_few_seconds_with_the_rate_since() -> None:
    lines: list[str] = []
    view = Lines(Figures(100, None), lines.append, every_s=5)
    for second in range(1, 11):
        view.show(float(second), told(second * 4, (10.0, 20.0)))
    view.close()
    assert len(lines) == 2
    assert "time 10 s" in lines[1]
    assert "ended 40 of 100" in lines[1]
    assert "rate 4.0/s" in lines[1]
    assert "in flight 2 (+3 waiting)" in lines[1]
    assert "TTFT p50/p99 15.0/20.0 ms" in lines[1]
    assert "TPOT p50/p99 -" in lines[1]
    assert "errors 1" in lines[1]


def test_the_view_fits_where_it_is_shown() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    block = make_view(screen, quiet=False, requests=None, duration_s=60.0)
    assert isinstance(block, Block)
    block.show(3.0, told(7))
    block.close()
    assert "3 of 60 s" in screen.getvalue()
    assert "\x1b[?25h" in screen.getvalue()  # the cursor is back
    log = make_view(io.StringIO(), quiet=False, requests=None, duration_s=None)
    assert isinstance(log, Lines)
    quiet = make_view(screen, quiet=True, requests=None, duration_s=None)
    assert isinstance(quiet, Quiet)
    assert not quiet.reads


def test_a_block_is_drawn_over_itself_and_never_wraps() -> None:
    screen = io.StringIO()
    block = Block(Figures(1_000_000, 3600.0), screen, lambda: 40)
    for second in (1.0, 2.0):
        block.show(second, told(7, (10.0,)))
    block.close()
    first, second_drawing, end = screen.getvalue().split("\r")
    assert first.count("\n") == second_drawing.count("\n") == 1
    assert second_drawing.startswith("\x1b[A")
    assert end.startswith("\x1b[A\x1b[J")
    plain = re.sub(r"\x1b\[\??[0-9]*[A-Za-z]", "", second_drawing)
    names, values = plain.split("\n")
    assert max(len(names), len(values)) <= 39
    assert names.index("ended") + len("ended") == values.index("000,000") + len("000,000")


def test_garbage_collections_are_noted_while_they_are_watched() -> None:
    times = iter(range(0, 1000, 7))
    watch = CollectionWatch(lambda: next(times))
    before = len(gc.callbacks)
    gc.disable()
    try:
        watch.start()
        gc.collect()
        gc.collect()
        watch.stop()
        gc.collect()
    finally:
        gc.enable()
    assert watch.collections == Collections(count=2, total_ns=14, longest_ns=7)
    watch.stop()
    assert len(gc.callbacks) == before


def test_what_a_full_collection_left_is_not_walked_through_again() -> None:
    watch = CollectionWatch()
    gc.disable()
    try:
        watch.start()
        kept = [[index] for index in range(1000)]
        gc.collect(1)
        before = gc.get_freeze_count()
        gc.collect()
        assert gc.get_freeze_count() >= before + len(kept)
        lost: list[object] = []
        lost.append(lost)
        del lost
        assert gc.collect() >= 1
    finally:
        watch.stop()
        gc.enable()


def test_one_that_had_begun_before_is_not_counted() -> None:
    watch = CollectionWatch(lambda: 5)
    watch._note("stop", {"generation": 0})
    assert watch.collections == Collections(0, 0, 0)
    together = all_collections([Collections(2, 10, 6), Collections(1, 9, 9)])
    assert together == Collections(3, 19, 9)
