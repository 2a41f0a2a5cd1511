"""From command to first token: starts servers in turn and times readiness and the first token.

    python benchmarks/first_token.py                              # the embedded model
    python benchmarks/first_token.py MODEL.gguf --peer LLAMA_SERVER  # beside llama-server

Every run is a fresh process; the file is in the page cache (it is read once before). With a peer
the two take turns: A B A B. Prints median, least and most of each time, in seconds, the peak
memory of all processes together (VmHWM, mapped files included), and for headrace the phases of the
load as the engine reports them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from process_memory import children

POLL_S = 0.005
LIMIT_S = 120.0


class Run(NamedTuple):
    """Seconds from the command to readiness and to the first token's arrival; memory by then."""

    ready_s: float
    first_token_s: float
    peak_bytes: int
    phases_s: dict[str, float]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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
    body = {"prompt": "def ", "max_tokens": 2, "temperature": 0, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
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


def _peak_bytes(pid: int) -> int:
    """The most that a process and its children have had in memory, each by itself."""
    status = Path(f"/proc/{pid}/status").read_text()
    own = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return own + sum(_peak_bytes(child) for child in children(pid))


def measure(command: list[str], port: int, *, phases: bool) -> Run:
    """One fresh process: its times."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        _wait_ready(port, start + LIMIT_S)
        ready = time.perf_counter()
        _first_token(port)
        first = time.perf_counter()
        found: dict[str, float] = {}
        if phases and process.stdout is not None:
            found = json.loads(process.stdout.readline())["phases_s"]
        return Run(ready - start, first - start, _peak_bytes(process.pid), found)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _summary(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}..{max(values):.2f}]"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?", help="a GGUF file; default: the embedded model")
    parser.add_argument("--peer", type=Path, help="path of a llama-server to measure beside")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.peer and not options.model:
        parser.error("--peer needs a MODEL both can load")
    if options.model and not Path(options.model).is_file():
        parser.error(f"{options.model} is not a file")
    threads = str(len(os.sched_getaffinity(0)))
    if options.model:
        with Path(options.model).open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
    runs: dict[str, list[Run]] = {}
    for _ in range(options.runs):
        port = _free_port()
        command = [sys.executable, "-m", "headrace.cli.main", "serve", "--json"]
        command += [options.model] if options.model else []
        runs.setdefault("headrace", []).append(
            measure([*command, "--port", str(port)], port, phases=True)
        )
        if options.peer:
            port = _free_port()
            peer = [str(options.peer), "-m", options.model, "--port", str(port)]
            peer += ["-np", "1", "-c", "4096", "-t", threads, "-tb", threads]
            runs.setdefault("llama-server", []).append(measure(peer, port, phases=False))
    result: dict[str, Any] = {name: [run._asdict() for run in them] for name, them in runs.items()}
    if options.json:
        print(json.dumps(result))
        return
    print(f"{options.runs} runs each")
    print(f"{'server':14} {'ready s':>20} {'first token s':>20} {'peak GB':>8}")
    for name, them in runs.items():
        ready, first = ([run[i] for run in them] for i in (0, 1))
        peak_gb = max(run.peak_bytes for run in them) / 1e9
        print(f"{name:14} {_summary(ready):>20} {_summary(first):>20} {peak_gb:8.2f}")
    for phase in runs["headrace"][0].phases_s:
        values = [run.phases_s[phase] for run in runs["headrace"]]
        print(f"  {phase:12} {_summary(values)}")


if __name__ == "__main__":
    main()
