"""Streams beside large JSON bodies: `python -m benchmarks.large_bodies [--model M] [--only TEXT]`.

Starts `headrace serve`, keeps one stream running and GET /health coming, and sends bodies of each
kind, one and then eight at once: half a million biases, eight million token ids, texts of 16 MB,
and the largest bodies that pass the bounds. Prints what became of them, and the longest gap between
two events of the stream and the longest wait for /health meanwhile, beside those of a quiet second.
Exits with 1 where a gap was longer than 0.3 s. Times need a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection
from urllib.parse import urlsplit

import httpx
import uvloop
from rich.console import Console
from rich.table import Table

from headrace.server.model.served import FURTHER_VALUES, MIN_TEXT_TOKENS
from tests.system.conftest import RunningServer, start_server, stop_server

MAX_GAP_S = 0.3
AT_ONCE = 8
QUIET_S = 2.0
HEALTH_EVERY_S = 0.02
BODY_BYTES = 16 * 2**20 - 1024
COMPLETIONS, CHAT, TOKENIZE, DETOKENIZE = (
    "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize",
)  # fmt: skip


@dataclass
class Watch:
    """The events of the stream and the waits for /health, by the clock in seconds."""

    events_s: list[float] = field(default_factory=list)
    waits_s: list[tuple[float, float]] = field(default_factory=list)
    """When each was asked, and how long it took."""

    def worst(self, from_s: float, to_s: float) -> tuple[float, float]:
        """The longest gap and the longest wait that lie within, in part or whole."""
        gaps = [
            later - earlier
            for earlier, later in itertools.pairwise(self.events_s)
            if later >= from_s and earlier <= to_s
        ]
        waits = [
            took_s for at_s, took_s in self.waits_s if at_s + took_s >= from_s and at_s <= to_s
        ]
        return max(gaps, default=float("nan")), max(waits, default=float("nan"))


def bodies(vocab_size: int) -> dict[str, tuple[str, Callable[[], bytes]]]:
    """Path and body of each kind."""
    draw = random.Random(1)

    def of(**fields: object) -> Callable[[], bytes]:
        return lambda: json.dumps({"max_tokens": 1, **fields}).encode()

    words = "word " * (BODY_BYTES // 5)
    lines = 'x = [{"a": 1}, "b\\n"]\n' * (BODY_BYTES // 32)
    legal = FURTHER_VALUES + vocab_size - 8
    names = {f"x{number}": 1 for number in range(legal)}
    return {
        "500k biases": (
            COMPLETIONS,
            of(prompt="x", logit_bias={str(number): 1.5 for number in range(500_000)}),
        ),
        "8M ids": (COMPLETIONS, lambda: b'{"prompt":[' + b"1," * (BODY_BYTES // 2 - 20) + b"1]}"),
        "1M ids": (COMPLETIONS, of(prompt=[draw.randrange(256) for _ in range(MIN_TEXT_TOKENS)])),
        "1M ids to text": (
            DETOKENIZE, of(tokens=[draw.randrange(256) for _ in range(MIN_TEXT_TOKENS)])
        ),
        "unknown names": (COMPLETIONS, of(prompt="x", **names)),
        "a bias per token": (
            COMPLETIONS,
            of(prompt="x", logit_bias={str(number): 1.5 for number in range(vocab_size)}),
        ),
        "60k messages": (
            CHAT, of(messages=[{"role": "user", "content": "x"}] * min(60_000, legal // 2 - 8))
        ),
        "16 MB of words": (COMPLETIONS, of(prompt=words)),
        "16 MB of words, cut": (COMPLETIONS, of(prompt=words, truncate_prompt_tokens=9)),
        "16 MB of words to ids": (TOKENIZE, of(prompt=words, return_token_strs=True)),
        "3 MB of words to ids": (TOKENIZE, of(prompt=words[: 3 * 2**20], return_token_strs=True)),
        "16 MB of code in a message": (CHAT, of(messages=[{"role": "user", "content": lines}])),
    }  # fmt: skip


async def stream(client: httpx.AsyncClient, watch: Watch) -> None:
    """A stream that never ends: another begins where one is over, without a gap between them."""
    while True:
        fields = {"prompt": "x", "max_tokens": 1900, "ignore_eos": True, "stream": True}
        async with client.stream("POST", COMPLETIONS, json=fields) as reply:
            async for _ in reply.aiter_raw():
                watch.events_s.append(time.perf_counter())
        watch.events_s.append(float("nan"))


async def probe(client: httpx.AsyncClient, watch: Watch) -> None:
    """GET /health again and again."""
    while True:
        begun_s = time.perf_counter()
        await client.get("/health")
        watch.waits_s.append((begun_s, time.perf_counter() - begun_s))
        await asyncio.sleep(HEALTH_EVERY_S)


def post(url: str, path: str, body: bytes) -> str:
    """Status and code of one body. In a thread with a plain socket: the watch goes on meanwhile."""
    where = urlsplit(url)
    connection = HTTPConnection(str(where.hostname), where.port, timeout=120)
    try:
        connection.request("POST", path, body, {"content-type": "application/json"})
        reply = connection.getresponse()
        content = reply.read()
    finally:
        connection.close()
    return (
        "200" if reply.status == 200 else f"{reply.status} {json.loads(content)['error']['code']}"
    )


async def send(url: str, path: str, body: bytes, count: int) -> Counter[str]:
    """Statuses and codes of so many of a body at once."""
    return Counter(
        await asyncio.gather(*(asyncio.to_thread(post, url, path, body) for _ in range(count)))
    )


def progress(what: str, took_s: float, gap_s: float) -> None:
    """A line on stderr for each row: all of them take minutes."""
    sys.stderr.write(f"{what}: {took_s:.1f} s, longest gap of the stream {1e3 * gap_s:.0f} ms\n")
    sys.stderr.flush()


async def measure(server: RunningServer, vocab_size: int, only: str) -> list[dict[str, object]]:
    """One row for each kind and number of bodies."""
    rows: list[dict[str, object]] = []
    watch = Watch()
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
        beside = [asyncio.ensure_future(task(client, watch)) for task in (stream, probe)]
        await asyncio.sleep(1)
        for name, (path, make) in {"nothing": ("", bytes), **bodies(vocab_size)}.items():
            if only not in name:
                continue
            body = await asyncio.to_thread(make)
            for count in (1, AT_ONCE) if path else (0,):
                await asyncio.sleep(0.5)
                from_s = time.perf_counter()
                statuses = await send(server.url, path, body, count)
                if not count:
                    await asyncio.sleep(QUIET_S)
                to_s = time.perf_counter()
                await asyncio.sleep(0.5)
                gap_s, wait_s = watch.worst(from_s, to_s)
                progress(f"{count} x {name}" if count else name, to_s - from_s, gap_s)
                rows.append(
                    {
                        "bodies": f"{count} x {name}" if count else name,
                        "MB each": round(len(body) / 1e6, 1),
                        "replies": ", ".join(f"{n} x {what}" for what, n in statuses.items()),
                        "seconds": round(to_s - from_s, 2),
                        "stream gap ms": round(1e3 * gap_s),
                        "health ms": round(1e3 * wait_s),
                    }
                )
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    return rows


def main() -> int:
    """Run it; 1 where a stream stood still for longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", help="a checkpoint [default: the embedded one]")
    parser.add_argument("--vocab-size", type=int, default=8192, help="of that model")
    parser.add_argument("--only", default="", help="kinds of bodies whose name has this text")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    server = start_server(options.model, "--log-level", "error")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rows = runner.run(measure(server, options.vocab_size, options.only))
    finally:
        stop_server(server)
    if not rows:
        raise SystemExit(f"--only {options.only}: no kind of bodies has this text in its name")
    if options.json:
        sys.stdout.write("".join(json.dumps(row) + "\n" for row in rows))
    else:
        table = Table(*rows[0])
        for row in rows:
            table.add_row(*map(str, row.values()))
        Console().print(table)
    return int(any(float(str(row["stream gap ms"])) > 1e3 * MAX_GAP_S for row in rows))


if __name__ == "__main__":
    sys.exit(main())
