"""Both answers lie in the request log, the shadow's under the request's id."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers
from tests.gateway.request_log.parts import log_of
from tests.gateway.shadow.test_shadowed import shadowed, told_all
from tests.gateway.test_serving import CHAT
from tests.gateway.upstream.scripted import served


@pytest.mark.parametrize("stream", [False, True])
async def test_both_answers_are_kept_to_be_compared(tmp_path: Path, stream: bool) -> None:
    own: dict[str, Any] = {"enabled": True, "path": "log.sqlite3"}
    log = log_of(own, tmp_path, now_s=1_790_000_000.0)
    async with served(answers("real one")) as real, served(answers("copied one")) as copy:
        config = {**shadowed(real.origin, copy.origin), "request_log": own}
        built = gateway(config, [], request_log=log)
        await ask(built.app, {**CHAT, "stream": stream})
        await told_all(built)
        async with asyncio.timeout(10):
            while log.standing.written < 2:
                await asyncio.sleep(0.005)
        told, shadow = await log.find("req-1"), await log.find("req-1/1")
        built.close()
    assert told is not None and told.reply is not None and "real one" in told.reply.text
    assert shadow is not None and shadow.reply is not None and "copied one" in shadow.reply.text
    assert (shadow.target, shadow.key) == ("s/big", "shadow")
    assert shadow.request is not None and told.request is not None
    assert shadow.request.text == told.request.text


async def test_who_is_not_logged_is_not_logged_here_either(tmp_path: Path) -> None:
    own: dict[str, Any] = {"enabled": True, "path": "log.sqlite3"}
    log = log_of(own, tmp_path, now_s=1_790_000_000.0)
    async with served(answers("real one")) as real, served(answers("copied one")) as copy:
        config = {**shadowed(real.origin, copy.origin), "request_log": own}
        built = gateway(config, [], request_log=log)
        await ask(built.app, CHAT, headers={"x-headrace-log": "off"})
        await told_all(built)
        async with asyncio.timeout(10):
            while log.standing.written < 2:
                await asyncio.sleep(0.005)
        shadow = await log.find("req-1/1")
        built.close()
    assert shadow is not None and shadow.request is None and shadow.reply is None
