"""Conversations of several turns over two engines: by chance, and to the one with the prefix.

    python benchmarks/gateway_prefix.py [MODEL.gguf] --conversations 24 --turns 4 --at-once 4

Starts two `headrace serve` and one `headrace gateway` with three models of the same two engines:
`weighted`, `engine_load` and `prefix_aware`. They take turns; every round has conversations that
nobody has seen. Told are the engines' own prefix hits and, at the client, the time to the first
token of all turns but the first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx

LIMIT_S = 600.0
STRATEGIES = ("weighted", "engine_load", "prefix_aware")
WORDS = (
    "engine",
    "river",
    "because",
    "seven",
    "light",
    "nobody",
    "under",
    "paper",
    "often",
    "blue",
)
_QUERIES = "vllm:prefix_cache_queries_total"
_HITS = "vllm:prefix_cache_hits_total"


class Round(NamedTuple):
    """first_s: seconds to the first token of each turn but the first of a conversation. hit_share:
    of the prompt tokens that the engines looked up, those they found. wall_s: of the whole."""

    first_s: list[float]
    hit_share: float
    wall_s: float


class Started(NamedTuple):
    """A process, and the line of JSON it printed."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]

    @property
    def url(self) -> str:
        """Where it listens."""
        url: str = self.ready["url"]
        return url


def start(*arguments: str, cwd: Path | None = None) -> Started:
    """`headrace` with these; RuntimeError if it ends instead."""
    command = [sys.executable, "-m", "headrace.cli.main", *arguments, "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{' '.join(command)} ended with {process.wait()}")
    return Started(process, json.loads(line))


def gateway_file(engines: list[Started]) -> str:
    """JSON is YAML."""
    names = [f"engine{at}" for at in range(len(engines))]
    targets = [
        f"{name}/{engine.ready['model']}" for name, engine in zip(names, engines, strict=True)
    ]
    return json.dumps(
        {
            "access": {"require_key": False},
            "log": {"level": "warning"},
            "providers": {
                name: {"base_url": f"{engine.url}/v1", "dialect": "openai-chat"}
                for name, engine in zip(names, engines, strict=True)
            },
            "models": {
                name: {"strategy": name, "targets": targets, "engines": {"interval_s": 0.25}}
                for name in STRATEGIES
            },
        }
    )


def counters(engines: list[Started]) -> tuple[float, float]:
    """Prompt tokens looked up and found, of all engines."""
    looked_up = found = 0.0
    for engine in engines:
        for line in httpx.get(f"{engine.url}/metrics", timeout=LIMIT_S).text.splitlines():
            if line.startswith(_QUERIES + "{"):
                looked_up += float(line.rpartition(" ")[2])
            elif line.startswith(_HITS + "{"):
                found += float(line.rpartition(" ")[2])
    return looked_up, found


def words(source: random.Random, count: int) -> str:
    """Text that no other conversation begins with."""
    return " ".join(source.choice(WORDS) for _ in range(count))


async def conversation(
    client: httpx.AsyncClient, model: str, source: random.Random, options: argparse.Namespace
) -> list[float]:
    """Seconds to the first token of each turn but the first."""
    messages = [{"role": "system", "content": words(source, options.system_words)}]
    found = []
    for turn in range(options.turns):
        messages.append({"role": "user", "content": words(source, options.turn_words)})
        body = {
            "model": model, "messages": messages, "max_tokens": options.tokens, "temperature": 0,
            "stream": True,
        }  # fmt: skip
        began = time.perf_counter()
        first_s = 0.0
        said = ""
        async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
            reply.raise_for_status()
            async for line in reply.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                choices = json.loads(line[6:]).get("choices") or [{}]
                text = choices[0].get("delta", {}).get("content") or ""
                if text and not first_s:
                    first_s = time.perf_counter() - began
                said += text
        messages.append({"role": "assistant", "content": said or "-"})
        if turn and first_s:
            found.append(first_s)
    return found


async def play(url: str, model: str, seed: int, options: argparse.Namespace) -> list[float]:
    """All conversations, so many at once."""
    source = random.Random(f"{model} {seed}")
    seats = asyncio.Semaphore(options.at_once)

    async def one(own: random.Random, client: httpx.AsyncClient) -> list[float]:
        async with seats:
            return await conversation(client, model, own, options)

    limits = httpx.Limits(max_connections=options.at_once)
    async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S, limits=limits) as client:
        works = [one(random.Random(source.random()), client) for _ in range(options.conversations)]
        return [first_s for each in await asyncio.gather(*works) for first_s in each]


def measure(
    gateway: Started, engines: list[Started], model: str, seed: int, options: argparse.Namespace
) -> Round:
    """One round of one strategy."""
    looked_up, found = counters(engines)
    began = time.perf_counter()
    first_s = asyncio.run(play(gateway.url, model, seed, options))
    wall_s = time.perf_counter() - began
    time.sleep(0.3)  # the engines' last report
    looked_up_after, found_after = counters(engines)
    share = (found_after - found) / max(1.0, looked_up_after - looked_up)
    return Round(first_s, share, wall_s)


def report(rounds: dict[str, list[Round]]) -> str:
    """A table of Markdown: medians over the rounds."""
    lines = [
        "| strategy | prefix hits, share | TTFT median, s | TTFT 95 %, s | wall, s |",
        "|---|---|---|---|---|",
    ]
    for name, them in rounds.items():
        hits = statistics.median(each.hit_share for each in them)
        middle = statistics.median(statistics.median(each.first_s) for each in them)
        high = statistics.median(
            sorted(each.first_s)[int(0.95 * len(each.first_s))] for each in them
        )
        wall = statistics.median(each.wall_s for each in them)
        lines.append(f"| `{name}` | {hits:.2f} | {middle:.3f} | {high:.3f} | {wall:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--conversations", type=int, default=24)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--at-once", type=int, default=4, help="conversations side by side")
    parser.add_argument("--system-words", type=int, default=200)
    parser.add_argument("--turn-words", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=16, help="tokens generated a turn")
    parser.add_argument("--threads", type=int, default=1, help="of each engine")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", type=Path, help="folder for the figures")
    options = parser.parse_args()
    serve = ["serve", *([options.model] if options.model else []), "--log-level", "warning"]
    serve += ["--threads", str(options.threads)]
    started: list[Started] = []
    rounds: dict[str, list[Round]] = {name: [] for name in STRATEGIES}
    try:
        engines = [start(*serve) for _ in range(2)]
        started += engines
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            (folder / "gateway.yaml").write_text(gateway_file(engines), encoding="utf-8")
            gateway = start("gateway", cwd=folder)
            started.append(gateway)
            for seed in range(options.rounds):
                for name in STRATEGIES:
                    rounds[name].append(measure(gateway, engines, name, seed, options))
    finally:
        for each in reversed(started):
            each.process.terminate()
            each.process.wait(timeout=30)
    print(report(rounds))
    if options.save is not None:
        options.save.mkdir(parents=True, exist_ok=True)
        told = {
            "options": {name: str(value) for name, value in vars(options).items()},
            "rounds": {name: [each._asdict() for each in them] for name, them in rounds.items()},
        }
        path = options.save / "gateway_prefix.json"
        path.write_text(json.dumps(told, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
