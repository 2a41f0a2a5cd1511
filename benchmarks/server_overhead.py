"""What the server costs beside the engine: `python -m benchmarks.server_overhead [--json]`.

`headrace serve` runs as ever, with an engine process that computes nothing (mock_engine.py) on the
real link. It answers a new request at once and tells how long it had it, which is taken off: the
time to the first token is then the server's, the link's and the client's. Every open stream gets a
token every --step-ms: the server's CPU time per event, each a write of its own ("paced"). In a
second run tokens come as fast as they can be sent ("fast"), which a server that is behind writes
several at a time, and from 64 on joins: events per second, tokens per event, CPU time per event of
server and client, and, from samples of the server's main thread, in which code its time goes; a
line of code that calls the kernel has the kernel's time. --api takes the streams of another API;
of those that do not tell what the engine took, TTFT has that too. Three processes share the
machine: where it has fewer cores, times have waits for one in them; CPU times have not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import uvloop
from rich.console import Console
from rich.table import Table

from tools.soak.server import write_model

STREAMS = (1, 32, 128)
SAMPLE_S = 0.002
PROMPT = "Continue the count: one, two, three, "
READY_TIMEOUT_S = 60
# Of each stream in a paced round; the request's own share is then a few percent.
PACED_TOKENS = 80
# The last event with its metrics and the end mark.
TAIL_BYTES = 4096

T = TypeVar("T")


class Api(NamedTuple):
    """How a stream is asked for, and read."""

    path: str
    fields: dict[str, Any]
    """Of the body beside the limit of tokens."""
    limit: str
    """The field of that; of Ollama's it is one of `options`."""
    event: bytes = b"data: {"
    """What each event has once."""


_TURNS = [{"role": "user", "content": PROMPT}]
_OWN = {"stream": True, "return_metrics": True}
_MODEL = "mock"
_LINE = b"}\n"
APIS = {
    "completions": Api("/v1/completions", {"prompt": PROMPT, **_OWN}, "max_tokens"),
    "chat": Api("/v1/chat/completions", {"messages": _TURNS, **_OWN}, "max_tokens"),
    "anthropic": Api(
        "/v1/messages", {"model": _MODEL, "messages": _TURNS, "stream": True}, "max_tokens"
    ),
    "ollama": Api("/api/chat", {"model": _MODEL, "messages": _TURNS}, "options", _LINE),
    "ollama-generate": Api("/api/generate", {"model": _MODEL, "prompt": PROMPT}, "options", _LINE),
}


def serve_with_mock(model: str, samples: Path | None) -> None:
    """The server's process; with `samples`, its main thread is looked at every SAMPLE_S."""
    from headrace.cli.main import cli
    from headrace.engine.process import spawn

    real = subprocess.Popen

    def mocked(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("mock_engine.py")
        return real([command[0], str(script), *command[4:]], **options)

    vars(spawn)["subprocess"].Popen = mocked
    counts: Counter[str] = Counter()
    if samples is not None:
        threading.Thread(target=_sample, args=(counts, samples), daemon=True).start()
    template = Path(model).with_name("template.jinja")
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    flags = ["--port", "0", "--json", "--log-level", "warning", "--served-model-name", _MODEL]
    flags += ["--chat-template", str(template)]
    cli(["serve", model, *flags], standalone_mode=False)


def _sample(counts: Counter[str], path: Path) -> None:
    main = threading.main_thread().ident
    written_s = time.monotonic()
    while not path.with_suffix(".go").exists():
        time.sleep(0.1)
    while True:
        time.sleep(SAMPLE_S)
        frame = sys._current_frames().get(main or 0)
        if frame is not None:
            counts[f"{frame.f_code.co_filename}:{frame.f_code.co_name}"] += 1
        if time.monotonic() - written_s > 0.5:
            path.write_text(json.dumps(counts))
            written_s = time.monotonic()


@contextmanager
def serving(
    model: Path, step_s: float, samples: Path | None, *, version: Path | None = None
) -> Iterator[tuple[str, int]]:
    """A server's URL and process id. version: a checkout with its own .venv; None for this one."""
    python = sys.executable if version is None else str(version / ".venv/bin/python")
    command = [python, "-m", "benchmarks.server_overhead", "--serve", str(model)]
    if samples is not None:
        command += ["--samples", str(samples)]
    environment = os.environ | {"HEADRACE_MOCK_STEP_S": str(step_s)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=version
    )
    watchdog = threading.Timer(READY_TIMEOUT_S, process.kill)
    watchdog.start()
    assert process.stdout is not None
    line = process.stdout.readline()
    watchdog.cancel()
    try:
        if not line:
            raise RuntimeError(f"{' '.join(command)} ended with {process.wait()}")
        yield json.loads(line)["url"], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


async def stream(url: str, api: Api, max_tokens: int, first: list[float]) -> int:
    """One streamed answer on a connection of its own; events read.

    first: gets the seconds to the first token that the engine did not have the request.
    """
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    limit = {"num_predict": max_tokens} if api.limit == "options" else max_tokens
    body = json.dumps({**api.fields, api.limit: limit}).encode()
    head = (
        f"POST {api.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    begun_s = time.perf_counter()
    writer.write(head.encode() + body)
    events, first_s, tail = 0, 0.0, b""
    while data := await reader.read(1 << 16):
        found = data.count(api.event)
        if found and not events:
            first_s = time.perf_counter() - begun_s
        events += found
        tail = (tail + data)[-TAIL_BYTES:]
    writer.close()
    # The last event has what the engine itself took.
    engine_s = tail.rpartition(b'"prefill_s":')[2].partition(b",")[0]
    first.append(first_s - (float(engine_s) if b'"prefill_s":' in tail else 0.0))
    return events


def run(work: Coroutine[Any, Any, T]) -> T:
    """Its result; the client's loop is the server's kind, as its own share is in the figures."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def first_tokens(
    url: str, api: Api, streams: int, requests: int, max_tokens: int
) -> list[float]:
    """Times to first token while `streams` are open all the time; seconds."""
    first: list[float] = []
    left = requests

    async def work(delay_s: float) -> None:
        nonlocal left
        await asyncio.sleep(delay_s)
        while left > 0:
            left -= 1
            await stream(url, api, max_tokens, first)

    # Spread over a second: a crowd that comes in one moment is what flood.py is for.
    await asyncio.gather(*(work(index / streams) for index in range(streams)))
    return first


async def all_at_once(url: str, api: Api, streams: int, max_tokens: int) -> int:
    """Events of so many streams, each of `max_tokens`."""
    return sum(await asyncio.gather(*(stream(url, api, max_tokens, []) for _ in range(streams))))


def cost(url: str, pid: int, api: Api, streams: int, max_tokens: int) -> dict[str, float]:
    """What streams that begin together take: of the server's CPU time, the client's, and in all."""
    server_s, client_s, begun_s = cpu_s(pid), time.process_time(), time.perf_counter()
    events = run(all_at_once(url, api, streams, max_tokens))
    seconds = time.perf_counter() - begun_s
    return {
        "events_per_s": events / seconds,
        "tokens_per_event": streams * max_tokens / events,
        "server_cpu_us": 1e6 * (cpu_s(pid) - server_s) / events,
        "client_cpu_us": 1e6 * (time.process_time() - client_s) / events,
    }


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, of the threads it has now."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def _room(where: str) -> str:
    """The package a sampled line belongs to, for our own code the room and file."""
    path = where.rpartition(":")[0]
    if "/headrace/" in path:
        return "headrace " + path.rpartition("/headrace/")[2]
    if "site-packages/" in path:
        return path.rpartition("site-packages/")[2].split("/")[0]
    return Path(path).parent.name + "/" + Path(path).name


def first_token_ms(url: str, api: Api, streams: int) -> dict[str, float]:
    """Percentiles of the added time to the first token while so many streams are open."""
    # One stream alone is open all the time however short its requests are.
    tokens = 2 if streams == 1 else 40
    got = run(first_tokens(url, api, streams, max(200, 8 * streams), tokens))
    cuts = statistics.quantiles(got, n=100)
    return {"p50": round(1e3 * cuts[49], 2), "p99": round(1e3 * cuts[98], 2)}


def measure_first_tokens(model: Path, api: Api, step_s: float) -> dict[str, Any]:
    """Times to the first token by streams."""
    with serving(model, step_s, None) as (url, _):
        run(first_tokens(url, api, 4, 50, 8))
        return {"ttft_ms": {streams: first_token_ms(url, api, streams) for streams in STREAMS}}


def measure(model: Path, api: Api, step_s: float, samples: Path, rounds: int) -> dict[str, Any]:
    """Every figure."""
    facts: dict[str, Any] = {"ttft_ms": {}, "paced": {}, "fast": {}}
    with serving(model, step_s, None) as (url, pid):
        run(first_tokens(url, api, 4, 50, 8))
        for streams in STREAMS:
            facts["ttft_ms"][streams] = first_token_ms(url, api, streams)
            facts["paced"][streams] = _sorted(
                [cost(url, pid, api, streams, PACED_TOKENS) for _ in range(rounds)]
            )
    with serving(model, 0.0, samples) as (url, pid):
        run(all_at_once(url, api, 4, 100))
        samples.with_suffix(".go").touch()
        for streams in STREAMS:
            tokens = min(4000, 64000 // streams)
            facts["fast"][streams] = _sorted(
                [cost(url, pid, api, streams, tokens) for _ in range(rounds)]
            )
        time.sleep(0.6)
    counts = Counter(json.loads(samples.read_text()))
    # Waiting for something to happen shows as the frame that runs the loop.
    busy = {where: count for where, count in counts.items() if "asyncio/runners" not in where}
    total = sum(busy.values())
    rooms: Counter[str] = Counter()
    for where, count in busy.items():
        rooms[_room(where)] += count
    facts["where"] = {room: round(count / total, 3) for room, count in rooms.most_common(16)}
    return facts


def _sorted(costs: list[dict[str, float]]) -> dict[str, list[float]]:
    """The values of each figure, least first."""
    return {name: sorted(round(each[name], 1) for each in costs) for name in costs[0]}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--step-ms", type=float, default=25.0, help="a token of each stream every")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--api", choices=APIS, default="completions", help="whose streams")
    parser.add_argument("--ttft", action="store_true", help="times to the first token alone")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--samples", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_with_mock(options.serve, options.samples)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder), "Q8_0")
        samples = Path(folder) / "samples.json"
        api, step_s = APIS[options.api], options.step_ms / 1e3
        if options.ttft:
            facts = measure_first_tokens(model, api, step_s)
        else:
            facts = measure(model, api, step_s, samples, options.rounds)
    if options.json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return 0
    table = Table("streams", "added TTFT p50, ms", "p99, ms")
    for streams, ttft in facts["ttft_ms"].items():
        table.add_row(str(streams), str(ttft["p50"]), str(ttft["p99"]))
    console = Console()
    console.print(table)
    if options.ttft:
        return 0
    costs = Table("streams", "events/s", "tokens per event", "CPU per event: server, µs", "client")
    for kind in ("paced", "fast"):
        for streams, figures in facts[kind].items():
            costs.add_row(f"{streams}, {kind}", *map(_spread, figures.values()))
    where = Table("where its time goes", "share")
    for room, share in facts["where"].items():
        where.add_row(room, f"{share:.1%}")
    console.print(costs)
    console.print(where)
    return 0


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.1f} [{values[0]:,.1f}..{values[-1]:,.1f}]"


if __name__ == "__main__":
    sys.exit(main())
