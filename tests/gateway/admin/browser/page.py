"""The admin page of a gateway that runs, in headless Chromium."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.chromium import opened
from tests.cli.gateway_process import Process, started
from tests.gateway.openai_provider import (
    DONE,
    END,
    STREAM_HEAD,
    body_of,
    chunk,
    completion,
    framed,
    reply,
    usage_chunk,
)
from tests.gateway.upstream.scripted import Scripted, served

KEY = "the-key-of-the-administrator"
HTML = "<script>window.broken = true</script><b>bold</b>"


@dataclass
class Turns:
    """The models of the provider answer word by word, each after it was let."""

    words: tuple[str, ...] = ("first", "second", HTML)
    let: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    slow: bool = False

    async def answer(self, _number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        asked = body_of(request)
        model = asked["model"]
        if model == "broken":
            error = {"message": f"the provider says {HTML}", "type": "x"}
            writer.write(reply(500, {"error": error}))
            return
        if not asked.get("stream"):
            writer.write(reply(200, completion(" ".join(self.words), model)))
            return
        let = self.let.setdefault(model, asyncio.Semaphore(0))
        writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": ""})))
        for word in self.words:
            if self.slow:
                await let.acquire()
            writer.write(framed(chunk({"content": f"{word} "})))
            await writer.drain()
        writer.write(framed(chunk({}, "stop")) + framed(usage_chunk()) + framed(DONE) + END)


@dataclass
class Seen:
    """page: a Playwright page that has the admin page open, not yet with the key. asked: addresses
    of every request it made. failed: what went wrong in it."""

    page: Any
    process: Process
    config: Path
    provider: Scripted
    turns: Turns
    asked: list[str]

    @property
    def url(self) -> str:
        return str(self.process.announced["admin"])

    def written(self) -> dict[str, Any]:
        """The gateway's file."""
        found: dict[str, Any] = json.loads(self.config.read_text(encoding="utf-8"))
        return found

    def write(self, settings: dict[str, Any]) -> None:
        self.config.write_text(json.dumps(settings), encoding="utf-8")

    async def open(self, view: str = "") -> None:
        """With the key."""
        await self.page.goto(f"{self.url}/#{view}")
        field_ = self.page.get_by_label("Admin key")
        await field_.fill(KEY)
        await self.page.get_by_role("button", name="Open").click()
        await self.page.locator("#nav a").first.wait_for()

    async def go(self, title: str) -> None:
        await self.page.locator("#nav").get_by_role("link", name=title).click()
        await self.page.get_by_role("heading", level=1, name=title).wait_for()

    async def chat(self, model: str, text: str, *, key: str = "", stream: bool = False) -> int:
        """A request of a client."""
        body = {
            "model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 9,
            "stream": stream,
        }  # fmt: skip
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(base_url=self.process.url, timeout=20) as client:
            told = await client.post("/v1/chat/completions", json=body, headers=headers)
        return told.status_code


@asynccontextmanager
async def seen(browser: Any, folder: Path, **settings: Any) -> AsyncIterator[Seen]:
    """A gateway and its page in a browser. folder: for its file and its ledger."""
    turns = Turns()
    async with served(turns.answer) as provider:
        config = folder / "gateway.yaml"
        price = {"input": 1.0, "output": 2.0}
        written = {
            "admin": {"port": 0, "key": KEY},
            "providers": {"a": {"base_url": f"{provider.origin}/v1", "dialect": "openai-chat"}},
            "models": {
                "chat": {"targets": [{"model": "a/quick", "price": price}]},
                "large": {"targets": [{"model": "a/slow", "price": price}]},
                "broken": {"targets": [{"model": "a/broken"}], "retries": {"attempts": 1}},
            },
            "access": {"require_key": False},
            "ledger": {"path": "ledger.sqlite3"},
            **settings,
        }
        # JSON is YAML, too.
        config.write_text(json.dumps(written), encoding="utf-8")
        async with started(config) as process:
            own = str(process.announced["admin"])
            async with opened(browser, own) as (page, asked):
                yield Seen(page, process, config, provider, turns, asked)
