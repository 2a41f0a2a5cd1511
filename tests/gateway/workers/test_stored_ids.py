"""A response that one worker told, and that another is asked to go on from."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.gateway.providers.test_responses_passed_on import both
from tests.gateway.upstream.scripted import served
from tests.gateway.workers.gateway_process import KEY, running, settings_for

pytestmark = pytest.mark.process

RESPONSES = "/v1/responses"
OTHER = "hr-other-key-000000000000000000000000000"


def test_every_worker_knows_which_key_was_told_it_also_after_a_restart(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(both) as provider:
            settings = settings_for(f"{provider.origin}/v1", store="gateway.db")
            settings["providers"]["p"]["responses"] = True
            settings["access"]["keys"]["other"] = {"key": OTHER}
            hello = {"model": "chat", "input": "hello"}
            goes_on = {**hello, "previous_response_id": "resp_1"}
            for start in ("first", "second"):
                async with running(tmp_path, settings, workers=2) as gateway:
                    if start == "first":
                        assert (await gateway.fresh("POST", RESPONSES, hello)).status == 200
                    for key, status in ((KEY, 200), (OTHER, 400)):
                        told = [
                            (await gateway.fresh("POST", RESPONSES, goes_on, key)).status
                            for _ in range(12)
                        ]
                        assert told == [status] * 12, f"after the {start} start"

    asyncio.run(check())
