"""How far a call of `generate` is: the figures, and a bar of them on stderr.

A call with `progress=None` shows the bar where there is somebody to see it (stderr is a terminal)
and something to wait for (more than one answer); True shows it, False does not, and a callable gets
the figures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from headrace.errors import RequestError
from headrace.offline.results import GenerationDelta

if TYPE_CHECKING:
    from rich.console import Console

TELL_EVERY_S = 0.1
"""Minimum interval between progress reports while no answer ends."""


@dataclass(frozen=True)
class GenerationProgress:
    """Figures of one call so far. A request is an answer asked for: a prompt with n=4 is four."""

    num_requests: int
    num_finished: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """With `prompt_tokens`: of requests that have given something; cached ones were not
    computed."""
    output_tokens: int = 0
    elapsed_s: float = 0.0
    """Since the call began."""

    @property
    def prompt_tokens_per_s(self) -> float:
        """Prompt tokens computed, over all the time so far."""
        return (self.prompt_tokens - self.cached_tokens) / max(self.elapsed_s, 1e-9)

    @property
    def output_tokens_per_s(self) -> float:
        """New tokens over all the time so far."""
        return self.output_tokens / max(self.elapsed_s, 1e-9)

    @property
    def eta_s(self) -> float | None:
        """Seconds still to go at the pace of the requests finished; None before the first is."""
        if not self.num_finished:
            return None
        return self.elapsed_s / self.num_finished * (self.num_requests - self.num_finished)


Show = Callable[[GenerationProgress], None]
Progress = bool | Show | None
"""What `progress` of a call may be."""


class ProgressMeter:
    """A counter of what the requests of one call give, shown by `show`."""

    def __init__(
        self, num_requests: int, show: Show, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._show = show
        self._clock = clock
        self._start_s = self._told_s = clock()
        self._begun: set[str] = set()
        self._at = GenerationProgress(num_requests)

    def add(self, request_id: str, prompt_tokens: int, delta: GenerationDelta) -> None:
        """Take the next delta of a request."""
        at, now_s = self._at, self._clock()
        begins = request_id not in self._begun
        self._begun.add(request_id)
        finished = delta.finish_reason is not None
        self._at = GenerationProgress(
            num_requests=at.num_requests,
            num_finished=at.num_finished + finished,
            prompt_tokens=at.prompt_tokens + (prompt_tokens if begins else 0),
            cached_tokens=at.cached_tokens + (delta.cached_tokens if begins else 0),
            output_tokens=at.output_tokens + len(delta.token_ids),
            elapsed_s=now_s - self._start_s,
        )
        if finished or now_s - self._told_s >= TELL_EVERY_S:
            self._told_s = now_s
            self._show(self._at)


@contextmanager
def reporting(
    progress: object,
    num_requests: int,
    *,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[ProgressMeter | None]:
    """The meter of one call, None where nobody wants to know.

    stream: in place of stderr. Raises RequestError for a `progress` that is none of the above.
    """
    seen = sys.stderr if stream is None else stream
    if progress is None:
        progress = num_requests > 1 and seen is not None and seen.isatty()
    if progress is False:
        yield None
    elif progress is True:
        from rich.console import Console

        with bar(num_requests, Console(file=seen)) as show:
            yield ProgressMeter(num_requests, show, clock)
    elif callable(progress):
        yield ProgressMeter(num_requests, progress, clock)
    else:
        raise RequestError(
            f"progress is {progress!r}; it must be True, False, None or a callable",
            param="progress",
            code="invalid_type",
        )


@contextmanager
def bar(num_requests: int, console: Console) -> Iterator[Show]:
    """A bar on `console`, which stays there with the last figures; what to call with figures."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("generating"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Bar(*columns, console=console) as shown:
        task = shown.add_task("", total=num_requests, figures="")

        def show(at: GenerationProgress) -> None:
            shown.update(task, completed=at.num_finished, figures=figures(at))

        yield show


def figures(at: GenerationProgress) -> str:
    """The rates and the time to go, for people."""
    rates = (
        f"prompt {at.prompt_tokens_per_s:,.0f} tok/s, output {at.output_tokens_per_s:,.1f} tok/s"
    )
    if at.num_finished == at.num_requests:
        return f"{rates}, {at.elapsed_s:,.1f} s"
    return rates if at.eta_s is None else f"{rates}, ETA {_clock_time(at.eta_s)}"


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
