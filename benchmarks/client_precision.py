"""How true the times are that `headrace bench load` writes down.

`python -m benchmarks.client_precision [--live] [--quick] [--json]` starts `headrace bench mock`,
which stamps each chunk with the time just before it handed it to the kernel and each reply with the
time at which it had the request, and loads it at 50 and 200 requests/s of 16 chunks. Both processes
read the same CLOCK_MONOTONIC, so a difference between the client's time and the mock's is the
client's error, and whatever lies between two processes on one machine. TTFT's error has both ends
in it: the way of the request to the mock, and that of the first chunk back. These errors are
judged. What was recovered is compared with what was programmed, too; that has the mock's own
lateness in it, which stands beside it. Client and mock have a core each where there are two. With
--live the client draws its view on a pseudo-terminal, as for whoever looks on, and how often it
did is told; without, it is --quiet. Exit status 1: the target was missed; 2: something failed.
`--quick` judges nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.load_runs import (
    RunError,
    as_script,
    cores,
    endpoint,
    json_of,
    load_here,
    mock_command,
)
from benchmarks.markdown import number, surroundings, surroundings_line, table, tell

if TYPE_CHECKING:
    from headrace.bench.record import RequestRecord

RATES = (50.0, 200.0)
CHUNKS = 16
# Requests are short: what is measured is the time of chunks.
INPUT_TOKENS = 32
TARGET_P50_MS = 1.0
TARGET_P99_MS = 3.0
ERRORS = ("chunk", "ttft", "itl", "tpot")
RECOVERED = ("ttft_programmed", "tpot_programmed")
NAMES = {
    "chunk": "chunk's time, error",
    "ttft": "TTFT, error",
    "itl": "ITL, error",
    "tpot": "TPOT, error",
    "e2e": "E2E, error",
    "ttft_programmed": "TTFT recovered against programmed",
    "tpot_programmed": "TPOT recovered against programmed",
    "mock_ttft": "of that the mock's own lateness: TTFT",
    "mock_tpot": "TPOT",
    "request": "request sent until the mock had it",
}


class Programme(NamedTuple):
    """What the mock is told. tokens_per_chunk: of all chunks but the first, which has one."""

    ttft_ms: float
    tpot_ms: float
    tokens_per_chunk: int

    @property
    def output_tokens(self) -> int:
        """So many make CHUNKS chunks."""
        return 1 + (CHUNKS - 1) * self.tokens_per_chunk

    @property
    def chunk_tokens(self) -> tuple[int, ...]:
        """Tokens of each chunk."""
        return (1, *(self.tokens_per_chunk,) * (CHUNKS - 1))


def errors_ms(
    record: RequestRecord, received_ns: int, programme: Programme
) -> dict[str, list[float]]:
    """The client's errors of one request, by metric, in milliseconds with their sign.

    received_ns: when the mock had the request, on the record's clock. The record is a completed
    one whose chunks carry stamps.
    """
    content = record.content
    at = [chunk.at_ns for chunk in content]
    stamps = [chunk.stamped_ns for chunk in content if chunk.stamped_ns is not None]
    if len(stamps) != len(at) or len(at) < 2 or record.sent_ns is None:
        raise ValueError(f"request {record.index} has chunks without stamps, or fewer than two")
    seen, true = at[0] - record.sent_ns, stamps[0] - received_ns
    tokens = programme.output_tokens - 1
    seen_tpot, true_tpot = (at[-1] - at[0]) / tokens, (stamps[-1] - stamps[0]) / tokens
    gaps = zip(pairwise(at), pairwise(stamps), strict=True)
    found: dict[str, list[float]] = {
        "chunk": [float(a - b) for a, b in zip(at, stamps, strict=True)],
        "ttft": [float(seen - true)],
        "itl": [float((b - a) - (d - c)) for (a, b), (c, d) in gaps],
        "tpot": [seen_tpot - true_tpot],
        "e2e": [float((at[-1] - record.sent_ns) - (stamps[-1] - received_ns))],
        "ttft_programmed": [seen - programme.ttft_ms * 1e6],
        "tpot_programmed": [seen_tpot - programme.tpot_ms * 1e6],
        "mock_ttft": [true - programme.ttft_ms * 1e6],
        "mock_tpot": [true_tpot - programme.tpot_ms * 1e6],
        "request": [float(received_ns - record.sent_ns)],
    }
    return {name: [value / 1e6 for value in values] for name, values in found.items()}


def is_chunked(record: RequestRecord, programme: Programme) -> bool:
    """Whether its chunks are those that were programmed; the mock's tokens are words."""
    sizes = tuple(len(chunk.text.split()) for chunk in record.content)
    return sizes == programme.chunk_tokens


def magnitudes(values: Sequence[float]) -> dict[str, float]:
    """p50, p99 and the largest of their absolute values; the sample at or above the rank."""
    ordered = sorted(abs(value) for value in values)

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return {"p50": at(0.5), "p99": at(0.99), "most": ordered[-1], "count": len(ordered)}


def beyond(errors: dict[str, dict[str, float]], metrics: Sequence[str]) -> list[str]:
    """Those of `metrics` that are beyond the target."""
    return [
        name
        for name in metrics
        if errors[name]["p50"] > TARGET_P50_MS or errors[name]["p99"] > TARGET_P99_MS
    ]


class Screen:
    """What was drawn on a pseudo-terminal: bytes, and how often (a write is a drawing)."""

    def __init__(self) -> None:
        self.drawn_bytes = 0
        self.drawings = 0


@contextmanager
def on_screen() -> Iterator[Screen]:
    """stderr of this process on a pseudo-terminal of 24 lines, which somebody reads meanwhile.

    A thread reads, as a terminal is another process's work: it takes the interpreter for some
    microseconds a drawing, of which there are two a second.
    """
    import pty
    import termios

    screen, before = Screen(), os.dup(2)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    os.dup2(theirs, 2)
    os.close(theirs)

    def read() -> None:
        while True:
            try:
                found = os.read(ours, 65_536)
            except OSError:  # on Linux, that nobody has the other end open any more
                return
            if not found:
                return
            screen.drawn_bytes += len(found)
            screen.drawings += 1

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield screen
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
        reader.join(5)
        os.close(ours)


def client(
    url: str, rate: float, requests: int, programme: Programme, *, live: bool
) -> dict[str, Any]:
    """Load and compare, in this process, which is the client's."""
    import headrace.bench.load.client_run as client_run
    from headrace.bench.client.endpoints import HttpRequest
    from headrace.bench.client.load_client import LoadClient
    from headrace.bench.client.raw import RawReply
    from headrace.bench.mock.http import RECEIVED_HEADER

    replies: list[RawReply] = []

    class NotingClient(LoadClient):
        """Keeps the replies: records do not have the header with the mock's time."""

        async def send(self, request: HttpRequest) -> RawReply:
            raw = await super().send(request)
            replies.append(raw)
            return raw

    vars(client_run)["LoadClient"] = NotingClient
    flags = [url, "--rate", f"{rate:g}", "--requests", str(requests)]
    flags += ["--input-tokens", str(INPUT_TOKENS), "--metrics-path", ""]
    flags += ["--output-tokens", str(programme.output_tokens), "--max-error-rate", "1"]
    screen = Screen()
    if live:
        with on_screen() as screen:
            done = load_here(flags)
        if not screen.drawings:
            raise RunError(f"{rate:g}/s: nothing was drawn, though --live was asked")
    else:
        done = load_here([*flags, "--quiet"])
    replies.sort(key=lambda raw: (raw.begun_ns, raw.end_ns))
    records = sorted(
        done.run.requests, key=lambda request: (request.begun_ns or 0, request.end_ns or 0)
    )
    found: dict[str, list[float]] = {}
    chunked = 0
    for record, raw in zip(records, replies, strict=True):
        if record.failure is not None or record.begun_ns is None:
            continue
        origin_ns = raw.begun_ns - record.begun_ns
        received_ns = int(raw.headers[RECEIVED_HEADER]) - origin_ns
        for name, values in errors_ms(record, received_ns, programme).items():
            found.setdefault(name, []).extend(values)
        chunked += is_chunked(record, programme)
    verdict = done.summary.client
    return {
        "rate": rate,
        "requests": len(records),
        "completed": done.summary.requests.completed,
        "offered_per_s": done.summary.offered_per_s,
        "chunked_as_programmed": chunked,
        "errors_ms": {name: magnitudes(values) for name, values in found.items()},
        "client_bound": verdict.client_bound,
        "schedule_lag_p99_ms": verdict.schedule_lag_p99_ms,
        "loop_lag_p99_ms": verdict.loop_lag_p99_ms,
        "cpu_share": verdict.cpu_share,
        "verdict": list(verdict.sentences),
        "drawings": screen.drawings,
        "drawn_bytes": screen.drawn_bytes,
    }


def measure(
    rates: Sequence[float], seconds: float, programme: Programme, *, live: bool
) -> list[dict[str, Any]]:
    """One run at each rate, against a mock of its own."""
    free = cores()
    ours, theirs = (free[:1], free[1:2]) if len(free) > 1 else (None, None)
    flags = ["--ttft", f"{programme.ttft_ms:g}", "--tpot", f"{programme.tpot_ms:g}"]
    flags += ["--tokens-per-chunk", str(programme.tokens_per_chunk)]
    runs = []
    for rate in rates:
        requests = max(2, round(rate * seconds))
        tell(f"{rate:g}/s: {requests} requests of {CHUNKS} chunks, about {requests / rate:.0f} s")
        with endpoint(mock_command(*flags), on=theirs) as mock:
            command = [sys.executable, "-m", "benchmarks.client_precision", "--client", mock.url]
            command += ["--rates", f"{rate:g}", "--requests", str(requests)]
            command += ["--programme", json.dumps(programme)] + ["--live"] * live
            runs.append(json_of(command, timeout_s=10 * seconds + 120, on=ours))
    return runs


def report(runs: Sequence[dict[str, Any]], programme: Programme) -> str:
    """The table and what it says."""
    columns = ["ms"]
    for run in runs:
        columns += [f"{run['rate']:g}/s p50", "p99", "most"]
    rows: list[list[object]] = []
    for name, title in NAMES.items():
        row: list[object] = [title]
        for run in runs:
            row += [number(run["errors_ms"][name][key], 3) for key in ("p50", "p99", "most")]
        rows.append(row)
    lines = [
        f"Programmed: TTFT {programme.ttft_ms:g} ms, TPOT {programme.tpot_ms:g} ms, {CHUNKS} "
        f"chunks, the first of 1 token, the others of {programme.tokens_per_chunk}. Errors are "
        "magnitudes.",
        "",
        table(columns, rows),
        "",
    ]
    for run in runs:
        errors, recovered = (beyond(run["errors_ms"], names) for names in (ERRORS, RECOVERED))
        lines.append(
            f"* {run['rate']:g}/s: {run['completed']} of {run['requests']} requests completed, "
            f"{run['chunked_as_programmed']} of them in the chunks that were programmed. Within "
            f"{TARGET_P50_MS:g} ms at p50 and {TARGET_P99_MS:g} ms at p99: errors against the "
            f"mock's stamps {_judgement(errors)}, what was programmed {_judgement(recovered)}. "
            + " ".join([*run["verdict"], *_view(run)])
        )
    return "\n".join(lines)


def _view(run: dict[str, Any]) -> list[str]:
    if not run["drawings"]:
        return []
    return [f"The live view was on: {run['drawings']} drawings, {run['drawn_bytes']:,} bytes."]


def _judgement(beyond_target: Sequence[str]) -> str:
    return f"no ({', '.join(beyond_target)})" if beyond_target else "yes"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument("--seconds", type=float, default=60.0, help="of each rate")
    parser.add_argument("--ttft-ms", type=float, default=100.0)
    parser.add_argument("--tpot-ms", type=float, default=5.0)
    parser.add_argument("--tokens-per-chunk", type=int, default=4)
    parser.add_argument("--live", action="store_true", help="with the live view on a terminal")
    parser.add_argument("--quick", action="store_true", help="seconds, and nothing is judged")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--requests", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--programme", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        programme = Programme(*json.loads(options.programme))
        rate, requests = options.rates[0], options.requests
        found = client(options.client, rate, requests, programme, live=options.live)
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    programme = Programme(options.ttft_ms, options.tpot_ms, options.tokens_per_chunk)
    facts = surroundings(datetime.now(UTC))
    tell(surroundings_line(facts))
    seconds = 2.0 if options.quick else options.seconds
    runs = measure(options.rates, seconds, programme, live=options.live)
    if options.json:
        told = {"machine": facts, "programme": programme._asdict(), "runs": runs}
        sys.stdout.write(json.dumps(told) + "\n")
    else:
        sys.stdout.write(f"{report(runs, programme)}\n\n{surroundings_line(facts)}\n")
    whole = all(run["chunked_as_programmed"] == run["requests"] for run in runs)
    met = whole and not any(beyond(run["errors_ms"], ERRORS) for run in runs)
    return int(not options.quick and not met)


if __name__ == "__main__":
    sys.exit(as_script(main))
