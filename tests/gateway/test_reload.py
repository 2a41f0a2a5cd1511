"""A file that is read anew and not taken leaves nothing behind; taken, it fails no request."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.gateway import run
from headrace.gateway.alerts.sender import AlertSender
from headrace.gateway.assemble import (
    CliOverrides,
    Current,
    Surroundings,
    log_changes,
    made,
    settings_from,
)
from headrace.gateway.building.accounts import accounts_of
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.settings.access import AccessSettings
from headrace.gateway.settings.secret import Sources
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers, fails
from tests.gateway.upstream.scripted import served

FILE = """
access: {require_key: false}
providers: {a: {base_url: "http://192.0.2.1/v1"}}
models: {chat: a/m}
"""


@pytest.mark.parametrize("fails_at", ["alerts", "accounts"])
async def test_a_gateway_that_is_not_taken_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(FILE)
    sources = Sources({}, tmp_path)
    settings = settings_from(path, CliOverrides())
    accounts = await accounts_of(
        AccessSettings(require_key=False), sources, now_ns=lambda: 0, random_bytes=bytes,
        on_alert=lambda alert: None,
    )  # fmt: skip
    telling = AlertSender(
        None, sources, wall_s=lambda: 0.0, source=random.Random(1), new_id=lambda: "1"
    )
    around = Surroundings()
    first = made(path, settings, accounts, around)
    current = Current(first)
    closed: list[Gateway] = []
    close = Gateway.close

    def noted(gateway: Gateway) -> None:
        closed.append(gateway)
        close(gateway)

    monkeypatch.setattr(Gateway, "close", noted)
    if fails_at == "alerts":
        path.write_text(FILE + "alerts: {url: env:NOBODY_SET_THIS}\n")
    else:

        def refuses(records: object) -> None:
            raise ConfigError("two keys are one")

        monkeypatch.setattr(accounts, "reconfigure", refuses)
    said = run._reload(path, CliOverrides(), accounts, current, None, around, telling)
    assert said and current.gateway is first
    assert len(closed) == 1 and closed[0] is not first
    assert all(one.pool._closed for one in closed[0].providers.values())
    assert not any(one.pool._closed for one in first.providers.values())
    first.close()
    await accounts.close()


def test_a_reload_says_that_secrets_were_read_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(FILE)
    settings = settings_from(path, CliOverrides())
    with caplog.at_level("INFO"):
        log_changes(settings, settings)
    assert "changed: no settings; secrets were read again too" in caplog.text


async def test_a_request_under_way_is_tried_again_by_the_gateway_it_came_to() -> None:
    tries = 0

    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            current.replace(gateway(settings, []))
            await fails(500)(number, request, writer)
        else:
            await answers()(number, request, writer)

    async with served(answer) as provider:
        settings = {
            "providers": {"p": {"base_url": f"{provider.origin}/v1"}},
            "models": {"chat": "p/m"},
            "retries": {"backoff_s": 0.01},
        }
        before = gateway(settings, [])
        current = Current(before)
        body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
        assert (await ask(current, body)).status == 200
        assert tries == 2 and current.gateway is not before
        assert before.providers["p"].pool.resting == 0
        current.gateway.close()
