"""What the scripts that judge `headrace bench` have in common: endpoints, runs, cores.

Endpoints are processes of their own on loopback, on a free port, and end with the block that
started them. A run is the command `headrace bench load` itself, as a process (`load_apart`) or in
this one where its records are wanted without files (`load_here`). Ctrl-C ends both.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from headrace.bench.load.experiment import RunResult

HEADRACE = (sys.executable, "-m", "headrace")
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 30.0
# Of `headrace bench load`: as asked, some requests failed, the SLO was missed. All have figures.
STATUSES_WITH_FIGURES = (0, 1, 4)


def as_script(main: Callable[[], int]) -> int:
    """The exit status of `main`: 2 where it failed, which is told. SIGTERM ends it as Ctrl-C does,
    so that nothing that was started is left behind.
    """
    from headrace.errors import HeadraceError

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return main()
    except (RunError, HeadraceError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130


class Endpoint(NamedTuple):
    """One that listens. facts: the line of JSON with which it told so."""

    url: str
    process: subprocess.Popen[str]
    facts: dict[str, Any]


class RunError(RuntimeError):
    """A process did not do what it was started for; the text says which and why."""


def cores() -> list[int]:
    """Those that this process may use."""
    return sorted(os.sched_getaffinity(0))


@contextmanager
def pinned(to: Sequence[int] | None) -> Iterator[None]:
    """What is started inside runs on these cores; None: on those of now."""
    before = os.sched_getaffinity(0)
    if to is not None:
        os.sched_setaffinity(0, to)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, of the threads it has now."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


@contextmanager
def endpoint(command: Sequence[str], on: Sequence[int] | None = None) -> Iterator[Endpoint]:
    """Start what prints one line of JSON with its `url` once it listens; SIGTERM ends it."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with pinned(on):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    watchdog = threading.Timer(START_TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        watchdog.cancel()
        if not line:
            raise RunError(f"{' '.join(command)} ended with {process.wait()} before it listened")
        facts = json.loads(line)
        yield Endpoint(facts["url"], process, facts)
    finally:
        watchdog.cancel()
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def mock_command(*flags: str) -> list[str]:
    """`headrace bench mock` on a free port."""
    return [*HEADRACE, "bench", "mock", "--port", "0", "--json", *flags]


def serve_command(*flags: str) -> list[str]:
    """`headrace serve` of the embedded model, or what the flags say, on a free port."""
    return [*HEADRACE, "serve", "--port", "0", "--json", "--log-level", "warning", *flags]


def wait_ready(url: str, timeout_s: float = START_TIMEOUT_S) -> None:
    """Until /ready says 200. RunError where it does not in time."""
    end_s = time.monotonic() + timeout_s
    last = "nobody answers"
    while time.monotonic() < end_s:
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=5):
                return
        except urllib.error.HTTPError as error:
            last = f"HTTP {error.code}"
        except OSError as error:
            last = str(error)
        time.sleep(0.1)
    raise RunError(f"{url}/ready: {last}, after {timeout_s:g} s")


def load_here(arguments: Sequence[str]) -> RunResult:
    """One run of `headrace bench load` in this process, in place of what it would print."""
    from headrace.cli.bench.load.command import experiment_of

    experiment, options = experiment_of(arguments)
    return experiment.run(options)


def load_apart(
    arguments: Sequence[str], *, timeout_s: float, on: Sequence[int] | None = None
) -> dict[str, Any]:
    """`headrace bench load` as a process: what it says with --json. RunError where nothing."""
    return json_of([*HEADRACE, "bench", "load", *arguments, "--json"], timeout_s=timeout_s, on=on)


def json_of(
    command: Sequence[str], *, timeout_s: float, on: Sequence[int] | None = None
) -> dict[str, Any]:
    """The JSON that a command prints at last; its stderr goes to ours."""
    with pinned(on):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        out, _ = process.communicate(timeout=timeout_s)
    except BaseException:
        process.kill()
        process.wait()
        raise
    lines = out.strip().splitlines()
    if process.returncode not in STATUSES_WITH_FIGURES or not lines:
        raise RunError(f"{' '.join(command)} ended with {process.returncode}, without figures")
    found: dict[str, Any] = json.loads(lines[-1])
    return found
