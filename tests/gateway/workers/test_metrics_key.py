"""The key for metrics in every worker, before and after the file is read anew."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.gateway.openai_provider import answers
from tests.gateway.upstream.scripted import served
from tests.gateway.workers.gateway_process import CHAT, Running, running, settings_for, until

pytestmark = pytest.mark.process

FIRST, SECOND = "hr-to-see-first-0123456789", "hr-to-see-second-0123456789"
ADMIN_KEY = "an-admin-key-0123456789"


async def _statuses(gateway: Running, key: str) -> set[int]:
    """On several connections, which any worker may get."""
    return {(await gateway.fresh("GET", "/metrics", key=key)).status for _ in range(12)}


def test_it_opens_metrics_of_every_worker_and_neither_models_nor_the_admin_port(
    tmp_path: Path,
) -> None:
    async def check() -> None:
        async with served(answers()) as provider:
            settings = settings_for(str(provider.origin), metrics_key=FIRST)
            settings["admin"] = {"port": 0, "key": ADMIN_KEY}
            async with running(tmp_path, settings, workers=2) as gateway:
                assert await _statuses(gateway, FIRST) == {200}
                assert await _statuses(gateway, SECOND) == {401}
                assert (await gateway.chat(FIRST)).status == 401
                admin = gateway.at(gateway.told["admin"])
                assert (await admin.fresh("GET", "/api/overview", key=FIRST)).status == 401
                shown = await admin.fresh("GET", "/api/config", key=ADMIN_KEY)
                assert shown.status == 200 and FIRST.encode() not in shown.body

                settings["access"]["metrics_key"] = SECOND
                gateway.reload(settings)

                async def is_taken() -> bool:
                    return await _statuses(gateway, SECOND) == {200}

                await until(is_taken)
                assert await _statuses(gateway, FIRST) == {401}
                told = await gateway.fresh("POST", "/v1/chat/completions", CHAT, SECOND)
                assert told.status == 401
            assert not provider.requests
            log = gateway.log.read_text()
            assert FIRST not in log and SECOND not in log

    asyncio.run(check())
