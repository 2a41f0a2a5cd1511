"""Answers within a schema from this server and from llama-server, beside free ones, in one run.

    python -m benchmarks.constrained_peer MODEL.gguf --llama FOLDER [--streams 1 8 32] [--rounds 5]

Both servers load the same file and answer the same requests to `/completion`: `--tokens` tokens of
each stream, free ones whatever the model likes, the others an array of objects that is longer than
that. Of the four kinds (two servers, free and within the schema) each has its turn in every round.
A figure is the median over rounds of tokens per second, from the first request sent to the last
answer whole; a ratio is the median of the rounds' own. --llama: the folder of
`python -m benchmarks.llamacpp.build`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.constrained_decode import SCHEMA, spread
from benchmarks.llamacpp.build import built
from benchmarks.markdown import surroundings, surroundings_line, table

READY_TIMEOUT_S = 180.0
PROMPT = "The customers and suppliers of last year, as JSON:\n"
SERVERS = ("headrace", "llama-server")


@contextmanager
def running(command: Sequence[str], port: int) -> Iterator[str]:
    """A server from its start to its end; its address once it answers /health."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not _is_ready(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server was not ready: {' '.join(command)}")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


async def tokens_per_s(url: str, streams: int, tokens: int, *, in_schema: bool) -> float:
    """Of all streams together, which begin at once."""
    # An idle connection may be closed by the server just as the next request is sent.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        begun_s = time.perf_counter()
        counts = await asyncio.gather(
            *(_ask(client, index, tokens, in_schema=in_schema) for index in range(streams))
        )
        elapsed_s = time.perf_counter() - begun_s
    if any(count != tokens for count in counts):
        raise RuntimeError(f"{url}: answers of {sorted(set(counts))} tokens, not of {tokens}")
    return sum(counts) / elapsed_s


async def _ask(client: httpx.AsyncClient, index: int, tokens: int, *, in_schema: bool) -> int:
    body: dict[str, Any] = {
        "prompt": PROMPT, "n_predict": tokens, "temperature": 0.8, "top_k": 0, "top_p": 1.0,
        "min_p": 0.0, "repeat_penalty": 1.0, "seed": index, "ignore_eos": True,
        "cache_prompt": False,
    }  # fmt: skip
    if in_schema:
        body["json_schema"] = SCHEMA
    reply = await client.post("/completion", json=body)
    if reply.status_code != 200:
        raise RuntimeError(f"{client.base_url}: {reply.status_code} {reply.text[:500]}")
    count: int = reply.json()["tokens_predicted"]
    return count


def commands(
    model: str, llama: str, streams: int, tokens: int, threads: int, ports: Sequence[int]
) -> list[list[str]]:
    """What starts each of SERVERS."""
    context = tokens + 64
    return [
        [sys.executable, "-m", "headrace", "serve", model, "--port", str(ports[0]), "--threads",
         str(threads), "--max-model-len", str(context), "--max-num-seqs", str(streams)],
        [llama, "-m", model, "--port", str(ports[1]), "--host", "127.0.0.1", "-t",
         str(threads), "-np", str(streams), "-c", str(streams * context), "--no-webui"],
    ]  # fmt: skip


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


def measure(urls: dict[str, str], streams: int, tokens: int, rounds: int) -> dict[str, Any]:
    """The figures of one number of streams."""
    kinds = [(server, in_schema) for server in SERVERS for in_schema in (False, True)]
    rates: dict[tuple[str, bool], list[float]] = {kind: [] for kind in kinds}
    for at in range(-1, rounds):
        for kind in kinds if at % 2 else reversed(kinds):
            server, in_schema = kind
            rate = asyncio.run(tokens_per_s(urls[server], streams, tokens, in_schema=in_schema))
            if at >= 0:  # the first round compiles the schema
                rates[kind].append(rate)
    found: dict[str, Any] = {"streams": streams, "rounds": rounds}
    for server in SERVERS:
        free, held = rates[server, False], rates[server, True]
        shares = [own / other for own, other in zip(held, free, strict=True)]
        found[server] = {
            "free_tokens_per_s": statistics.median(free), "free_spread_percent": spread(free),
            "schema_tokens_per_s": statistics.median(held), "schema_spread_percent": spread(held),
            "of_free": statistics.median(shares), "of_free_spread_percent": spread(shares),
        }  # fmt: skip
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, allow_abbrev=False, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", help="a GGUF file, which both load")
    parser.add_argument("--llama", type=Path, required=True)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    facts = surroundings(datetime.now(UTC))
    program = built(options.llama).tool("llama-server")
    found = []
    for streams in options.streams:
        ports = free_ports(len(SERVERS))
        started = commands(options.model, program, streams, options.tokens, options.threads, ports)
        with ExitStack() as stack:
            urls = {
                server: stack.enter_context(running(command, port))
                for server, command, port in zip(SERVERS, started, ports, strict=True)
            }
            found.append(measure(urls, streams, options.tokens, options.rounds))
    if options.json:
        print(json.dumps({"surroundings": facts, "figures": found}))
        return
    columns = ["streams", *(f"{server}: {of}" for server in SERVERS
               for of in ("free, tokens/s", "within the schema", "of free"))]  # fmt: skip
    rows = [[figures["streams"], *_cells(figures)] for figures in found]
    print(f"{table(columns, rows)}\n\n{surroundings_line(facts)}")


def _cells(figures: dict[str, Any]) -> Iterator[str]:
    for server in SERVERS:
        of = figures[server]
        yield f"{of['free_tokens_per_s']:.0f} ±{of['free_spread_percent']:.0f} %"
        yield f"{of['schema_tokens_per_s']:.0f} ±{of['schema_spread_percent']:.0f} %"
        yield f"{of['of_free']:.2f} ±{of['of_free_spread_percent']:.0f} %"


if __name__ == "__main__":
    main()
