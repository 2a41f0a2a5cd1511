"""The figures of a call, the bar that shows them, and who gets to see one."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from headrace.errors import RequestError
from headrace.offline.progress import (
    GenerationProgress,
    ProgressMeter,
    bar,
    figures,
    reporting,
)
from headrace.offline.results import GenerationDelta


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def ticking(step_s: float) -> Iterator[float]:
    now_s = 100.0
    while True:
        yield now_s
        now_s += step_s


def delta(tokens: int, *, ends: bool = False, cached: int = 0) -> GenerationDelta:
    ids = tuple(range(tokens))
    return GenerationDelta("", ids, finish_reason="length" if ends else None, cached_tokens=cached)


def test_the_figures_of_a_call() -> None:
    told: list[GenerationProgress] = []
    clock = ticking(1.0)
    meter = ProgressMeter(3, told.append, lambda: next(clock))
    meter.add("a", 10, delta(1, cached=6))
    assert told[-1] == GenerationProgress(3, 0, 10, 6, 1, 1.0)
    assert told[-1].eta_s is None
    meter.add("a", 10, delta(3, cached=6))
    meter.add("b", 20, delta(1, ends=True))
    meter.add("a", 10, delta(1, ends=True, cached=6))
    last = told[-1]
    assert last == GenerationProgress(3, 2, 30, 6, 6, 4.0)
    assert last.prompt_tokens_per_s == 24 / 4
    assert last.output_tokens_per_s == 6 / 4
    assert last.eta_s == 4.0 / 2 * 1


def test_figures_are_told_at_ends_and_otherwise_ten_times_a_second() -> None:
    told: list[GenerationProgress] = []
    clock = ticking(0.01)
    meter = ProgressMeter(2, told.append, lambda: next(clock))
    for _ in range(100):
        meter.add("a", 1, delta(1))
    assert 8 <= len(told) <= 11
    before = len(told)
    meter.add("a", 1, delta(1, ends=True))
    meter.add("b", 1, delta(1, ends=True))
    assert len(told) == before + 2
    assert told[-1].output_tokens == 102


def test_the_bar_shows_requests_rates_and_time_to_go() -> None:
    out = Terminal()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    with bar(4, console) as show:
        show(GenerationProgress(4, 1, 1000, 200, 50, 2.0))
    text = out.getvalue()
    assert "generating" in text
    assert "1/4" in text
    assert "prompt 400 tok/s, output 25.0 tok/s, ETA 0:06" in text
    assert figures(GenerationProgress(4, 4, 1000, 0, 50, 2.0)).endswith("25.0 tok/s, 2.0 s")
    assert "ETA" not in figures(GenerationProgress(4, 0, 1000, 0, 50, 2.0))
    assert figures(GenerationProgress(1001, 1, 1, 0, 1, 5.0)).endswith("ETA 1:23:20")


@pytest.mark.parametrize(
    ("progress", "terminal", "requests", "shown"),
    [
        (None, True, 2, True),
        (None, True, 1, False),
        (None, False, 2, False),
        (True, False, 1, True),
        (False, True, 9, False),
    ],
)
def test_who_sees_a_bar(progress: bool | None, terminal: bool, requests: int, shown: bool) -> None:
    out = Terminal() if terminal else io.StringIO()
    with reporting(progress, requests, stream=out) as meter:
        assert (meter is not None) == shown
        if meter is not None:
            for index in range(requests):
                meter.add(str(index), 3, delta(2, ends=True))
    assert (f"{requests}/{requests}" in out.getvalue()) == shown


def test_anything_else_is_refused() -> None:
    with (
        pytest.raises(RequestError, match="progress is 'yes'; it must be True, False, None"),
        reporting("yes", 2),
    ):
        pass
