"""The engine killed by its id at random moments under load: `python -m benchmarks.engine_kills`.

Starts `headrace serve` over a small random model (benchmarks/shaped_model.py), keeps clients busy
with streams and whole replies, and kills the engine's process with SIGKILL `--kills` times, each a
random moment after it served again. Prints what became of every request (answered, ended with an
error event, refused with a 503, or lost: no answer and no error), and the time from each kill until
/ready says 200. The exit status is 1 if a request was lost or the server did not come back. The
client is on the same machine and its load is in the figures; /proc tells which process is the
engine, so it runs on Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from tools.soak.server import Server, serving, write_model

LOOK_EVERY_S = 0.005
PATIENCE_S = 120.0
# More than the server's YOUNG_S: such an engine has its successor at once.
SERVED_S = (5.5, 8.0)


def main() -> int:
    """Run, print, and say whether all was well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--codec", default="Q8_0")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--served-s", type=float, nargs=2, default=SERVED_S, metavar=("LEAST", "MOST"),
        help="seconds the engine serves before it is killed",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", dest="as_json")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder), asked.codec)
        with serving(model, "--max-engine-restarts", str(2 * asked.kills)) as server:
            figures = asyncio.run(_run(server, asked))
    if asked.as_json:
        print(json.dumps(figures))
    else:
        _show(figures)
    return int(figures["requests"].get("lost", 0) > 0 or len(figures["recovery_s"]) < asked.kills)


async def _run(server: Server, asked: argparse.Namespace) -> dict[str, Any]:
    rng = random.Random(asked.seed)
    seen: Counter[str] = Counter()
    limits = httpx.Limits(max_connections=asked.clients + 2)
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S, limits=limits) as client:
        stop = asyncio.Event()
        busy = [
            asyncio.ensure_future(_client(client, random.Random(f"{asked.seed} {i}"), seen, stop))
            for i in range(asked.clients)
        ]
        recovery_s = []
        for kill in range(1, asked.kills + 1):
            await asyncio.sleep(rng.uniform(*asked.served_s))
            recovery_s.append(await _kill(client, server, kill))
        stop.set()
        await asyncio.gather(*busy)
    return {
        "kills": asked.kills,
        "clients": asked.clients,
        "requests": dict(seen),
        "recovery_s": [round(each, 4) for each in recovery_s],
        "recovery_p50_s": round(_percentile(recovery_s, 0.50), 4),
        "recovery_p99_s": round(_percentile(recovery_s, 0.99), 4),
    }


async def _kill(client: httpx.AsyncClient, server: Server, kill: int) -> float:
    """Kill the engine; seconds until the server is ready with another."""
    os.kill(_engine_pid(server), signal.SIGKILL)
    began_s = time.perf_counter()
    while (now_s := time.perf_counter()) - began_s < PATIENCE_S:
        ready = await client.get("/ready")
        if ready.status_code == 200 and ready.json().get("restarts", 0) >= kill:
            return time.perf_counter() - began_s
        await asyncio.sleep(LOOK_EVERY_S)
    raise RuntimeError(f"not ready {now_s - began_s:.0f} s after kill {kill}: {ready.text}")


def _engine_pid(server: Server) -> int:
    tasks = Path(f"/proc/{server.process.pid}/task").iterdir()
    (pid,) = {int(each) for task in tasks for each in (task / "children").read_text().split()}
    return pid


async def _client(
    client: httpx.AsyncClient, rng: random.Random, seen: Counter[str], stop: asyncio.Event
) -> None:
    """Ask one thing after the other; where the server says when to come again, come then."""
    while not stop.is_set():
        body = {
            "prompt": [rng.randrange(256) for _ in range(rng.randint(4, 64))],
            "max_tokens": rng.randint(8, 96),
            "ignore_eos": True,
            "stream": rng.random() < 0.7,
        }
        try:
            reply = await client.post("/v1/completions", json=body)
        except httpx.HTTPError as error:
            seen["lost"] += 1
            print(f"lost: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        seen[_fate(reply, streamed=body["stream"])] += 1
        if reply.status_code == 503:
            await asyncio.sleep(min(0.2, float(reply.headers.get("retry-after", 0.2))))


def _fate(reply: httpx.Response, *, streamed: Any) -> str:
    if reply.status_code != 200:
        return f"refused: {reply.json()['error']['code']}"
    if not streamed:
        return "answered"
    lines = [line for line in reply.text.splitlines() if line.startswith("data: ")]
    if lines and lines[-1] == "data: [DONE]":
        return "answered"
    error = json.loads(lines[-1].removeprefix("data: ")).get("error") if lines else None
    return f"ended by an error event: {error['code']}" if error else "lost"


def _percentile(values: list[float], share: float) -> float:
    """The smallest value that so large a share is not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _show(figures: dict[str, Any]) -> None:
    table = Table(title=f"{figures['kills']} kills, {figures['clients']} clients")
    table.add_column("what became of requests")
    table.add_column("count", justify="right")
    for fate, count in sorted(({"lost": 0} | figures["requests"]).items()):
        table.add_row(fate, str(count))
    table.add_section()
    table.add_row("recovery p50", f"{figures['recovery_p50_s']:.2f} s")
    table.add_row("recovery p99", f"{figures['recovery_p99_s']:.2f} s")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
