"""2,000 requests at once against a small KV pool: `python -m benchmarks.flood [--json]`.

Starts `headrace serve` over a small random model (benchmarks/shaped_model.py) with room for few
requests, sends everybody's request in the same moment over connections opened before, some with a
high priority, and prints how long refusals took, that every accepted request finished, and the
times to first token of high and ordinary priority. The client is one event loop on the same
machine, so its own share of the work is in the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import uvloop
from rich.console import Console
from rich.table import Table

from tools.soak.server import serving, write_model

HIGH = -1
OPENING_AT_ONCE = 200


@dataclass
class Answer:
    """One request's fate. Seconds from its last byte written."""

    priority: int
    status: int = 0
    head_s: float = 0.0
    first_s: float | None = None
    end_s: float = 0.0
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
        "POST /v1/completions HTTP/1.1\r\nHost: flood\r\nContent-Type: application/json\r\n"
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


async def flood(url: str, model: str, requests: int, high: int, max_tokens: int) -> list[Answer]:
    """All connections first, then every request in one go, those of high priority among them."""
    where = urlsplit(url)
    gate = asyncio.Semaphore(OPENING_AT_ONCE)

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with gate:
            return await asyncio.open_connection(where.hostname, where.port)

    connections = await asyncio.gather(*(connect() for _ in range(requests)))
    every = max(1, requests // high) if high else requests + 1
    answers = [Answer(HIGH if index % every == every - 1 else 0) for index in range(requests)]
    datas = [
        body(model, index, answer.priority, max_tokens) for index, answer in enumerate(answers)
    ]
    await asyncio.gather(
        *(
            ask(*connection, data, answer)
            for connection, data, answer in zip(connections, datas, answers, strict=True)
        )
    )
    for _, writer in connections:
        writer.close()
    return answers


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


def report(answers: list[Answer], seconds: float) -> dict[str, object]:
    """Counts and times."""
    refused = [one for one in answers if one.status == 429]
    served = [one for one in answers if one.status == 200]
    of = {
        name: [one.first_s for one in served if one.priority == value and one.first_s is not None]
        for name, value in (("high", HIGH), ("ordinary", 0))
    }
    return {
        "requests": len(answers),
        "seconds": round(seconds, 2),
        "statuses": dict(Counter(one.status for one in answers)),
        "refused without numbers": sum(1 for one in refused if not one.retry_after),
        "served whole": sum(1 for one in served if one.finish_reason == "length"),
        "errors": dict(Counter(one.error for one in served if one.error)),
        "refusal ms": quantiles([one.end_s for one in refused]),
        "first token ms, high": quantiles(of["high"]),
        "first token ms, ordinary": quantiles(of["ordinary"]),
        "whole answer ms": quantiles([one.end_s for one in served]),
    }


def main() -> int:
    """Run it; 1 where an accepted request did not finish or a refusal lacked its numbers."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--high", type=int, default=20, help="of them, with a high priority")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--queued", type=int, default=256, help="--max-num-queued-reqs")
    parser.add_argument("--codec", default="Q8_0")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder), options.codec)
        with serving(model, "--max-num-queued-reqs", str(options.queued)) as server:
            begun_s = time.perf_counter()
            work = flood(
                server.url, server.model, options.requests, options.high, options.max_tokens
            )
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                answers = runner.run(asyncio.wait_for(work, 300))
            facts = report(answers, time.perf_counter() - begun_s)
    if options.json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        table = Table("", "")
        for name, value in facts.items():
            table.add_row(name, str(value))
        Console().print(table)
    served = facts["statuses"].get(200, 0)  # type: ignore[attr-defined]
    return int(facts["served whole"] != served or facts["refused without numbers"] != 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}")
