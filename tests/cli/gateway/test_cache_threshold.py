"""`headrace gateway cache-threshold` with an embedder behind a real gateway's file."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.gateway.group import gateway
from headrace.errors import ConfigError
from tests.gateway.openai_provider import body_of, reply
from tests.gateway.upstream.scripted import served

# Longer texts lie further round; "zzz" is as good as 5 characters.
_ANGLE = 0.002


async def embedder(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    import math

    data = [
        {
            "object": "embedding",
            "index": at,
            "embedding": [math.cos(_ANGLE * len(one)), math.sin(_ANGLE * len(one))],
        }
        for at, one in enumerate(body_of(request)["input"])
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    writer.write(reply(200, {"object": "list", "data": data, "model": "e", "usage": usage}))


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """A gateway's file whose embedder runs beside the test."""
    origin: list[Any] = []
    ready, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with served(embedder) as scripted:
            origin.append(scripted.origin)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    path = tmp_path / "gateway.yaml"
    path.write_text(
        f"providers:\n  own: {origin[0]}/v1\nmodels:\n  embedder: [own/e]\n"
        "access: {require_key: false}\n",
        encoding="utf-8",
    )
    yield path
    loops[0].call_soon_threadsafe(stop.set)
    thread.join(10)


def run(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(gateway, ["cache-threshold", "--config", str(config), *arguments])


def written(tmp_path: Path, different: int) -> Path:
    path = tmp_path / "pairs.jsonl"
    pairs = [{"a": "How do I pay", "b": "What way is there to pay", "same": True}]
    pairs += [{"a": "ab" * (at % 7 + 1), "b": "c" * 400, "same": False} for at in range(different)]
    path.write_text("".join(json.dumps(one) + "\n" for one in pairs), encoding="utf-8")
    return path


def test_a_threshold_is_recommended_and_told_as_json(config: Path, tmp_path: Path) -> None:
    pairs = written(tmp_path, 400)
    told = run(config, "--model", "own/e", "--pairs", str(pairs), "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.output)
    assert (found["pairs"], found["recommended"]) == (401, 0.8)
    assert found["thresholds"][0]["hits"]["count"] == 1
    assert found["thresholds"][0]["false_hits"] == {
        "count": 0, "of": 400, "low": 0.0, "high": pytest.approx(0.0095, abs=1e-4),
    }  # fmt: skip
    text = run(config, "--model", "embedder", "--pairs", str(pairs)).output
    assert "recommended" in text and "threshold: 0.8 " in text


def test_too_few_pairs_show_nothing(config: Path, tmp_path: Path) -> None:
    text = run(config, "--model", "own/e", "--pairs", str(written(tmp_path, 20))).output
    assert "381 different pairs" in text and "there are 20" in text


def test_what_cannot_be_asked(config: Path) -> None:
    assert isinstance(run(config).exception, ConfigError)
    missing = run(config, "--model", "own/e", "--pairs", "nowhere.jsonl")
    assert isinstance(missing.exception, ConfigError)
    wrong = run(config, "--model", "nobody/e")
    assert wrong.exit_code != 0
