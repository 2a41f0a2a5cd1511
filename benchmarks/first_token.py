"""From command to first token: starts servers in turn and times readiness and the first token.

    python benchmarks/first_token.py                              # the embedded model
    python benchmarks/first_token.py MODEL --peer 'llama-server -m MODEL -np 1 --port {port}'

Every run is a fresh process; the files are in the page cache (they are read once before), and the
modules' bytecode lies in a folder of the benchmark's own, as an installation has it: with
PYTHONDONTWRITEBYTECODE in the environment every start would compile the sources, which took
0.3 s. With a peer, any server with OpenAI's completions API, the two take turns: A B A B. --touch
has so much memory touched and freed before every run: a virtual machine whose host takes free pages
back lets whoever comes after a pause pay for it, 0.2 to 1 s of system time for a gigabyte. Prints
median, least and most of each time, in seconds, and for headrace the phases of the load as both
processes report them. Then the peak of memory of one more run of each, in whose times asking for it
would show: all processes of a server together (Pss, so that shared pages count once, mapped files
included), and what they have a second later, at rest.
"""

from __future__ import annotations

import argparse
import http.client
import json
import mmap
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.process_memory import Peak, proportional
from headrace.bench.against.process import free_port

POLL_S = 0.005
MEMORY_POLL_S = 0.01
LIMIT_S = 600.0
END_S = 30.0
SETTLE_S = 1.0
"""From the first token until a server is at rest."""
READ_BYTES = 1 << 24


class Run(NamedTuple):
    """Seconds from the command to readiness and to the first token's arrival; memory by then, and
    at rest after it."""

    ready_s: float
    first_token_s: float
    peak_bytes: int | None
    idle_bytes: int | None
    phases_s: Mapping[str, float]


def _wait_ready(port: int, deadline: float) -> None:
    while time.perf_counter() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass  # nobody listens yet
        finally:
            connection.close()
        time.sleep(POLL_S)
    raise TimeoutError(f"not ready within {LIMIT_S:.0f} s")


def _first_token(port: int) -> None:
    body = {"prompt": "def ", "max_tokens": 2, "temperature": 0, "ignore_eos": True, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    connection.request("GET", "/v1/models", headers={"Accept": "application/json"})
    body["model"] = json.loads(connection.getresponse().read())["data"][0]["id"]
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    reply = connection.getresponse()
    while line := reply.readline():
        if line.startswith(b"data: {") and json.loads(line[6:])["choices"]:
            return
    raise RuntimeError("the stream ended without a token")


def touch(num_bytes: int) -> None:
    """Have the host back so much free memory, in huge pages as weights take them, by a process that
    writes to it and ends."""
    pages = num_bytes // mmap.PAGESIZE
    code = f"import mmap; m = mmap.mmap(-1, {pages * mmap.PAGESIZE}, mmap.MAP_PRIVATE | "
    code += "mmap.MAP_ANONYMOUS); m.madvise(mmap.MADV_HUGEPAGE); "
    code += f"m[:: mmap.PAGESIZE] = bytes({pages})"
    subprocess.run([sys.executable, "-c", code], check=True)


@contextmanager
def with_bytecode() -> Iterator[Mapping[str, str]]:
    """The environment of servers that find the bytecode of their modules, as the first one of them
    leaves it, in a folder that goes with the block."""
    # A server that was ended may write one more.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        yield environment


def measure(
    command: list[str], environment: Mapping[str, str], *, phases: bool, memory: bool
) -> Run:
    """One fresh process, whose command has {port} in it: its times, or its memory too."""
    port = free_port()
    words = [word.replace("{port}", str(port)) for word in command]
    start = time.perf_counter()
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        env=environment,
    )  # fmt: skip
    try:
        with ExitStack() as stack:
            polled = Peak(process.pid, proportional, every_s=MEMORY_POLL_S)
            if memory:
                stack.enter_context(polled)
            _wait_ready(port, start + LIMIT_S)
            ready = time.perf_counter()
            _first_token(port)
            first = time.perf_counter()
        if memory:
            time.sleep(SETTLE_S)
        found: Mapping[str, float] = {}
        if phases and process.stdout is not None:
            told = json.loads(process.stdout.readline())
            server = {f"server: {name}": s for name, s in told["server_phases_s"].items()}
            found = {**told["phases_s"], **server}
        peak = polled.most if memory else None
        idle = proportional(process.pid) if memory else None
        return Run(ready - start, first - start, peak, idle, found)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=END_S)


def _read(model: Path) -> None:
    """Every file of the model, which brings it into the page cache."""
    for path in model.iterdir() if model.is_dir() else [model]:
        with path.open("rb", buffering=0) as file:
            while file.read(READ_BYTES):
                pass


def _summary(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}..{max(values):.2f}]"


def lines(runs: Mapping[str, list[Run]]) -> Iterator[str]:
    """The table: a line for each server, and one for each phase of headrace's load."""
    yield f"{'server':18} {'ready s':>20} {'first token s':>20} {'peak Pss GB':>11} {'at rest':>7}"
    for name, of_server in runs.items():
        timed = [run for run in of_server if run.peak_bytes is None]
        ready = _summary([run.ready_s for run in timed])
        first = _summary([run.first_token_s for run in timed])
        peak_gb = max(run.peak_bytes or 0 for run in of_server) / 1e9
        idle_gb = max(run.idle_bytes or 0 for run in of_server) / 1e9
        yield f"{name:18} {ready:>20} {first:>20} {peak_gb:11.2f} {idle_gb:7.2f}"
    for phase in runs["headrace"][0].phases_s:
        yield f"  {phase:18} {_summary([run.phases_s[phase] for run in runs['headrace']])}"


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?", help="a file or folder; default: the embedded model")
    parser.add_argument("--peer", help="command of a server of the same model, with {port} in it")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--touch", type=float, default=0.0, help="GB of memory, before every run")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(words)
    if options.peer and not options.model:
        parser.error("--peer needs a MODEL both can load")
    if options.model and not Path(options.model).exists():
        parser.error(f"{options.model} is not there")
    if options.model:
        _read(Path(options.model))
    own = [sys.executable, "-m", "headrace", "serve", *filter(None, [options.model])]
    commands = {"headrace": [*own, "--json", "--port", "{port}"]}
    if options.peer:
        commands["peer"] = shlex.split(options.peer)
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    with with_bytecode() as environment:
        measure(commands["headrace"], environment, phases=False, memory=False)
        for number in range(options.runs + 1):
            for name, command in commands.items():
                if options.touch:
                    touch(int(options.touch * 1e9))
                is_last = number == options.runs
                runs[name].append(
                    measure(command, environment, phases=name == "headrace", memory=is_last)
                )
    if options.json:
        result: dict[str, Any] = {
            name: [each._asdict() for each in of] for name, of in runs.items()
        }
        print(json.dumps(result))
        return
    print(f"{options.runs} runs each", *lines(runs), sep="\n")


if __name__ == "__main__":
    main()
