"""2,000 requests at once against a small KV pool: `python -m benchmarks.flood [--json]`.

Starts `headrace serve` over a small random model (benchmarks/shaped_model.py) with room for few
requests. Some streams run already when everybody's request is sent in the same moment over
connections opened before, some with a high priority. Prints how long refusals took, that every
accepted request finished, the times to first token of high and ordinary priority, and the gaps
between the events of the streams that ran, before and while refusals were answered. The client is
one event loop on the same machine, so its own share of the work is in the figures: its CPU time,
all of it spent while answers wait, is printed too.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop
from rich.console import Console
from rich.table import Table

from tools.soak.server import BLOCK_SIZE, BLOCKS, serving, write_model

HIGH = -1
RUNNING = -2
# Streams run for so long before the flood.
QUIET_S = 0.5
# Of a stream that runs, with its prompt: enough for the flood, and blocks for each of them.
RUNNING_TOKENS = 1600
OPENING_AT_ONCE = 200


@dataclass
class Answer:
    """One request's fate. Seconds from its last byte written."""

    priority: int
    status: int = 0
    head_s: float = 0.0
    first_s: float | None = None
    end_s: float = 0.0
    events_s: list[float] = field(default_factory=list)
    """When each event came, by the clock."""
    retry_after: str = ""
    finish_reason: str = ""
    error: str = ""


def body(model: str, index: int, priority: int, max_tokens: int) -> bytes:
    """A streamed completion with a prompt of its own."""
    prompt = [(index * 7 + position * 13) % 256 for position in range(64)]
    fields = {
        "model": model, "prompt": prompt, "max_tokens": max_tokens, "seed": index,
        "ignore_eos": True, "stream": True, "priority": priority,
    }  # fmt: skip
    data = json.dumps(fields).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, answer: Answer
) -> None:
    """Send one request over an open connection and read all that comes."""
    begun_s = time.perf_counter()
    writer.write(data)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    answer.head_s = time.perf_counter() - begun_s
    answer.status = int(head.split(" ", 2)[1])
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:])
    }
    answer.retry_after = headers.get("retry-after", "")
    if "content-length" in headers:
        error = json.loads(await reader.readexactly(int(headers["content-length"])))
        answer.error = error["error"]["code"] or error["error"]["message"]
    else:
        await _read_stream(reader, answer, begun_s)
    answer.end_s = time.perf_counter() - begun_s


async def _read_stream(reader: asyncio.StreamReader, answer: Answer, begun_s: float) -> None:
    while size := int((await reader.readline()).strip(), 16):
        event = (await reader.readexactly(size + 2)).decode()
        answer.events_s.append(time.perf_counter())
        if answer.first_s is None and event.startswith("data: "):
            answer.first_s = time.perf_counter() - begun_s
        for line in event.splitlines():
            if line.startswith("data: {"):
                fields = json.loads(line.removeprefix("data: "))
                if "error" in fields:
                    answer.error = str(fields["error"]["code"])
                for choice in fields.get("choices", ()):
                    answer.finish_reason = choice["finish_reason"] or answer.finish_reason
    await reader.readline()


@dataclass
class Fates:
    """Of those who came at once, and of the streams that ran already; seconds by the clock."""

    answers: list[Answer]
    running: list[Answer]
    begun_s: float
    refused_s: float
    """When the last refusal was read."""
    cpu_s: float
    """The client's CPU time until all was read."""


async def flood(
    url: str, model: str, requests: int, high: int, max_tokens: int, num_running: int
) -> Fates:
    """All connections first, then every request in one go, those of high priority among them."""
    where = urlsplit(url)
    gate = asyncio.Semaphore(OPENING_AT_ONCE)

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with gate:
            return await asyncio.open_connection(where.hostname, where.port)

    running = [Answer(RUNNING) for _ in range(num_running)]
    before = [
        asyncio.ensure_future(
            ask(*await connect(), body(model, requests + index, RUNNING, RUNNING_TOKENS), each)
        )
        for index, each in enumerate(running)
    ]
    connections = await asyncio.gather(*(connect() for _ in range(requests)))
    every = max(1, requests // high) if high else requests + 1
    answers = [Answer(HIGH if index % every == every - 1 else 0) for index in range(requests)]
    datas = [
        body(model, index, answer.priority, max_tokens) for index, answer in enumerate(answers)
    ]
    await asyncio.sleep(QUIET_S)
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(
        *(
            ask(*connection, data, answer)
            for connection, data, answer in zip(connections, datas, answers, strict=True)
        )
    )
    cpu_s = time.process_time() - cpu_s
    for _, writer in connections:
        writer.close()
    await asyncio.gather(*before)
    refused_s = begun_s + max((each.end_s for each in answers if each.status == 429), default=0.0)
    return Fates(answers, running, begun_s, refused_s, cpu_s)


def gaps(running: list[Answer], from_s: float, to_s: float) -> list[float]:
    """Seconds between the events of each stream that ended within."""
    return [
        later - earlier
        for each in running
        for earlier, later in itertools.pairwise(each.events_s)
        if from_s <= later <= to_s
    ]


def quantiles(values: list[float]) -> dict[str, float]:
    """p50, p99 and the largest, in milliseconds."""
    ordered = sorted(values)
    if not ordered:
        return {}
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {
        name: round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)
        for name, share in at.items()
    }


def report(fates: Fates) -> dict[str, Any]:
    """Counts and times."""
    answers, begun_s = fates.answers, fates.begun_s
    refused = [answer for answer in answers if answer.status == 429]
    served = [answer for answer in answers if answer.status == 200]
    of = {
        name: [
            each.first_s for each in served if each.priority == value and each.first_s is not None
        ]
        for name, value in (("high", HIGH), ("ordinary", 0))
    }
    return {
        "requests": len(answers),
        "seconds": round(max(answer.end_s for answer in answers), 2),
        "of them the client's CPU": round(fates.cpu_s, 2),
        "statuses": dict(Counter(answer.status for answer in answers)),
        "refused without numbers": sum(1 for each in refused if not each.retry_after),
        "served whole": sum(1 for each in served if each.finish_reason == "length"),
        "errors": dict(Counter(each.error for each in served if each.error)),
        "refusal ms": quantiles([each.end_s for each in refused]),
        "first token ms, high": quantiles(of["high"]),
        "first token ms, ordinary": quantiles(of["ordinary"]),
        "whole answer ms": quantiles([each.end_s for each in served]),
        "running before": sum(each.finish_reason == "length" for each in fates.running),
        "their gaps before, ms": quantiles(gaps(fates.running, begun_s - QUIET_S / 2, begun_s)),
        "their gaps meanwhile, ms": quantiles(gaps(fates.running, begun_s, fates.refused_s)),
    }


def main() -> int:
    """Run it; 1 where an accepted request did not finish or a refusal lacked its numbers."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--high", type=int, default=20, help="of them, with a high priority")
    parser.add_argument("--running", type=int, default=2, help="streams that run already")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--queued", type=int, default=256, help="--max-num-queued-reqs")
    parser.add_argument("--codec", default="Q8_0")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder), options.codec)
        # Those that run have blocks beside the flood's small pool.
        blocks = BLOCKS + options.running * -(-(RUNNING_TOKENS + 64) // BLOCK_SIZE)
        flags = ["--max-num-queued-reqs", options.queued, "--num-gpu-blocks-override", blocks]
        with serving(model, *map(str, flags)) as server:
            work = flood(
                server.url,
                server.model,
                options.requests,
                options.high,
                options.max_tokens,
                options.running,
            )
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                facts = report(runner.run(asyncio.wait_for(work, 300)))
    if options.json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        table = Table("", "")
        for name, value in facts.items():
            table.add_row(name, str(value))
        Console().print(table)
    served = facts["statuses"].get(200, 0)
    whole = facts["served whole"] == served and facts["running before"] == options.running
    return int(not whole or facts["refused without numbers"] != 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}")
