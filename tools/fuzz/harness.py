"""The loop all fuzzers share: mutate, try, sort what happened, keep what must not happen.

Run a fuzzer as a module from the repository root (as a script, `gguf.py` and its neighbours would
hide the libraries they are named after):

    python -m tools.fuzz.gguf --seed 1 --seconds 600

Input number I of seed S is the same on every machine, so `--seed S --first I --iterations 1` shows
a failure again. Memory is bounded by a limit on the process, time by an alarm for each input. With
`--atheris` (pip install atheris) libFuzzer chooses what to mutate by the code it reaches.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

MIB = 1 << 20


class TooSlowError(Exception):
    """One input took longer than it may."""


@dataclass(frozen=True)
class Target:
    """What is fuzzed.

    seeds: valid inputs. mutate: a new input of the seeds; takes all chance from its Random.
    attempt: tries one input and says how it ended in a word ("opened", "CheckpointError"); any
    exception is a finding.
    """

    seeds: Sequence[bytes]
    mutate: Callable[[Sequence[bytes], random.Random], bytes]
    attempt: Callable[[bytes], str]


@dataclass
class Report:
    """outcomes: inputs by how they ended. findings: the first input of each kind of failure."""

    iterations: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """number: of the input. text: the traceback."""

    number: int
    data: bytes
    text: str


def run(
    target: Target,
    *,
    seed: int,
    first: int = 0,
    iterations: int | None = None,
    seconds: float | None = None,
    limit_s: float = 5.0,
    on_progress: Callable[[Report], None] | None = None,
) -> Report:
    """Try inputs `first`, `first` + 1, ... until one of the bounds is reached.

    limit_s: the most one input may take. on_progress: called about once a minute.
    """
    if iterations is None and seconds is None:
        raise ValueError("a bound is required: iterations or seconds")
    report = Report()
    start = last = time.monotonic()
    before = signal.signal(signal.SIGALRM, _too_slow)
    try:
        number = first
        while iterations is None or number < first + iterations:
            now = time.monotonic()
            report.seconds = now - start
            if seconds is not None and report.seconds >= seconds:
                break
            if on_progress is not None and now - last > 60:
                last = now
                on_progress(report)
            data = target.mutate(target.seeds, random.Random(f"{seed}:{number}"))
            _attempt(target, data, number, limit_s, report)
            number += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    report.seconds = time.monotonic() - start
    return report


def _attempt(target: Target, data: bytes, number: int, limit_s: float, report: Report) -> None:
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        outcome = target.attempt(data)
    # Finding exceptions nobody thought of is the purpose here; a panic of Rust is a BaseException.
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        signal.setitimer(signal.ITIMER_REAL, 0)
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        outcome = f"FINDING {type(error).__name__} at {place}"
        text = "".join(traceback.format_exception(error))
        report.findings.setdefault(outcome, Finding(number, data, text))
    signal.setitimer(signal.ITIMER_REAL, 0)
    report.iterations += 1
    report.outcomes[outcome] += 1


def _too_slow(signum: int, frame: FrameType | None) -> NoReturn:
    raise TooSlowError("one input took longer than it may")


def limit_memory(extra_bytes: int) -> None:
    """Let this process's address space grow by `extra_bytes` from now on, and no further."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + extra_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(
    make_target: Callable[[], Target], description: str | None, *, memory_mib: int = 512
) -> None:
    """The command line of a fuzzer; ends with status 1 when something was found.

    memory_mib: what inputs may take beyond what is taken at start, unless the command line says.
    """
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--limit-s", type=float, default=5.0, help="for one input")
    parser.add_argument(
        "--memory-mib", type=int, default=memory_mib, help="beyond what is taken at start"
    )
    parser.add_argument("--keep", type=Path, help="folder for inputs that fail")
    parser.add_argument("--atheris", action="store_true", help="guided by coverage (atheris)")
    options = parser.parse_args()
    if options.iterations is None and options.seconds is None:
        options.iterations = 10_000
    target = make_target()
    if options.atheris:
        _run_atheris(target, options)
    limit_memory(options.memory_mib * MIB)
    report = run(
        target, seed=options.seed, first=options.first, iterations=options.iterations,
        seconds=options.seconds, limit_s=options.limit_s,
        on_progress=lambda so_far: print(summary(so_far), flush=True),
    )  # fmt: skip
    print(summary(report))
    for name, finding in report.findings.items():
        print(f"\n{name}, input {finding.number}\n{finding.text}")
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256(finding.data).hexdigest()[:12]
            (options.keep / f"{digest}.bin").write_bytes(finding.data)
    sys.exit(1 if report.findings else 0)


def summary(report: Report) -> str:
    """One line: inputs, seconds, and how many ended how."""
    outcomes = ", ".join(f"{count} {name}" for name, count in report.outcomes.most_common())
    return f"{report.iterations} inputs in {report.seconds:.0f} s: {outcomes}"


def _run_atheris(target: Target, options: argparse.Namespace) -> NoReturn:
    """libFuzzer's loop; it ends the process itself, at the first finding or at a bound."""
    import tempfile

    import atheris  # no dependency of the project

    atheris.instrument_all()

    def custom_mutator(data: bytes, max_size: int, seed: int) -> bytes:
        return target.mutate([data, *target.seeds], random.Random(seed))[:max_size]

    with tempfile.TemporaryDirectory() as corpus:
        for index, data in enumerate(target.seeds):
            (Path(corpus) / str(index)).write_bytes(data)
        arguments = [sys.argv[0], corpus, f"-seed={options.seed or 1}", f"-max_len={MIB}"]
        arguments += [f"-timeout={max(1, int(options.limit_s))}"]
        arguments += [f"-rss_limit_mb={options.memory_mib + 512}"]
        if options.iterations is not None:
            arguments.append(f"-runs={options.iterations}")
        if options.seconds is not None:
            arguments.append(f"-max_total_time={int(options.seconds)}")
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            arguments.append(f"-artifact_prefix={options.keep}/")
        atheris.Setup(arguments, target.attempt, custom_mutator=custom_mutator)
        atheris.Fuzz()
    sys.exit(0)
