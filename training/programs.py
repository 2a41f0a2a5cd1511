"""Run the programs of stages, each to its end; a request to stop is passed on to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from types import FrameType
from typing import Protocol


class RunProgram(Protocol):
    """Runs a module with arguments and returns its exit status.

    What it prints goes to stderr: stdout is for the plan.
    """

    def __call__(self, module: str, arguments: Sequence[str]) -> int: ...


def run_program(module: str, arguments: Sequence[str]) -> int:
    """In a Python of its own."""
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=sys.stderr)
    with _signals_passed_on(process.send_signal):
        return process.wait()


def run_forked(main: Callable[[str, Sequence[str]], None]) -> RunProgram:
    """`main` in a copy of this process, which has imported what takes long to import."""

    def work(module: str, arguments: Sequence[str]) -> None:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        main(module, arguments)

    def run(module: str, arguments: Sequence[str]) -> int:
        process = get_context("fork").Process(target=work, args=(module, arguments))
        process.start()
        with _signals_passed_on(lambda number: os.kill(process.pid or 0, number)):
            process.join()
        return process.exitcode or 0

    return run


@contextmanager
def _signals_passed_on(send: Callable[[int], None]) -> Iterator[None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        send(number)

    before = {n: signal.signal(n, pass_on) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
