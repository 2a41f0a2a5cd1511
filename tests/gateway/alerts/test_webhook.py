"""What is told to a webhook: signed, tried again, never waited for."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.gateway.accounts.alert import Alert
from headrace.gateway.accounts.window import Window
from headrace.gateway.alerts.sender import AlertSender
from headrace.gateway.alerts.webhook import read_receiver
from headrace.gateway.settings.alerts import AlertSettings
from headrace.gateway.settings.secret import Sources
from tests.gateway.alerts.receiver import SECRET, receiving

ALERT = Alert(
    level="team",
    name="search",
    unit="nusd",
    model="*",
    window=Window("1d", True),
    threshold=0.5,
    limit=2 * 10**9,
    used=10**9,
    at_ms=1_790_000_000_000,
    resets_at_ms=1_790_035_200_000,
)
SOURCES = Sources({"HOOK_SECRET": SECRET}, Path())


class Waits:
    """A sleep that does not wait."""

    def __init__(self) -> None:
        self.waited_s: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waited_s.append(seconds)
        await asyncio.sleep(0)


def telling(
    url: str,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    wall_s: Callable[[], float] = lambda: 1_790_000_000.5,
    **more: Any,
) -> AlertSender:
    ids = iter(range(1000))
    return AlertSender(
        AlertSettings(url=url, secret="env:HOOK_SECRET", **more),
        SOURCES,
        wall_s=wall_s,
        source=random.Random(1),
        new_id=lambda: f"alert-{next(ids)}",
        sleep=sleep,
    )


def test_lost_counters_are_told_once_in_a_while_and_their_return() -> None:
    now_s = 1_790_000_000.0

    async def check() -> None:
        nonlocal now_s
        async with receiving() as receiver:
            told = telling(receiver.url, wall_s=lambda: now_s)
            for second in (0, 5, 70):
                now_s = 1_790_000_000.0 + second
                told.counters("Redis: ConnectionError", None)
                told.counters("Redis: ConnectionError", 2.5)
            await told.close()
            bodies = [one.json for one in receiver.posts]
            assert [one["event"] for one in bodies] == 2 * ["counters.lost", "counters.back"]
            assert bodies[0]["data"] == {"problem": "Redis: ConnectionError"}
            assert bodies[1]["data"] == {"lasted_s": 2.5}

    asyncio.run(check())


def test_an_outage_that_lasts_is_told_though_one_was_just_before() -> None:
    now_s = 0.0

    async def check() -> None:
        nonlocal now_s
        async with receiving() as receiver:
            told = telling(receiver.url, wall_s=lambda: now_s)
            told.counters("a moment", None)
            now_s = 1.0
            told.counters("a moment", 1.0)
            now_s = 30.0
            told.counters("for good", None)
            for second in (31.0, 59.0, 60.0, 61.0, 200.0):
                now_s = second
                told.tick()
            now_s = 7_230.0
            told.counters("for good", 7_200.0)
            told.tick()
            await told.close()
            told_of = [(one.json["event"], one.json["data"]) for one in receiver.posts]
            assert told_of == [
                ("counters.lost", {"problem": "a moment"}),
                ("counters.back", {"lasted_s": 1.0}),
                ("counters.lost", {"problem": "for good"}),
                ("counters.back", {"lasted_s": 7_200.0}),
            ]
            assert [one.json["created_s"] for one in receiver.posts][2] == 60

    asyncio.run(check())


def test_a_budget_is_told_with_a_signature_over_time_and_body() -> None:
    async def check() -> None:
        async with receiving() as receiver:
            told = telling(receiver.url)
            told.budget(ALERT)
            await receiver.has(1)
            await told.close()
        (post,) = receiver.posts
        assert post.path == "/hook/of-a-secret?token=abc123"
        assert post.is_signed
        assert post.headers["x-headrace-timestamp"] == "1790000000"
        assert post.headers["x-headrace-id"] == post.json["id"] == "alert-0"
        assert post.json["event"] == "budget.threshold"
        assert post.json["data"] == {
            "level": "team", "name": "search", "model": "*", "window": "1d", "threshold": 0.5,
            "unit": "nusd", "used": 10**9, "limit": 2 * 10**9, "resets_at_s": 1_790_035_200,
        }  # fmt: skip
        assert "team search has used $1.00 of $2.00" in post.json["text"]

    asyncio.run(check())


def test_slack_is_told_a_text() -> None:
    async def check() -> None:
        async with receiving() as receiver:
            told = telling(receiver.url, format="slack")
            told.breaker("openai/gpt-5<&>", "open", "server 500: something the client said")
            await receiver.has(1)
            await told.close()
        (post,) = receiver.posts
        assert post.json == {
            "text": "headrace gateway: openai/gpt-5&lt;&amp;&gt; failed too often and is paused"
        }

    asyncio.run(check())


def test_a_receiver_that_fails_is_tried_again_with_growing_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check() -> None:
        waits = Waits()
        async with receiving(("500 X", "429 X", "503 X", "200 OK")) as receiver:
            told = telling(receiver.url, sleep=waits)
            told.budget(ALERT)
            told.breaker("p/m", "closed", "")
            await receiver.has(5)
            await told.close()
        ids = [post.json["id"] for post in receiver.posts]
        assert ids == ["alert-0"] * 4 + ["alert-1"]
        assert all(post.is_signed for post in receiver.posts)
        assert waits.waited_s == sorted(waits.waited_s) and len(waits.waited_s) == 3

    asyncio.run(check())


@pytest.mark.parametrize("answer", ["400 X", "302 X\r\nlocation: /elsewhere", "410 X"])
def test_what_is_refused_is_not_tried_again_and_no_redirect_is_followed(
    answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        async with receiving((answer,)) as receiver:
            told = telling(receiver.url, sleep=Waits())
            told.budget(ALERT)
            await receiver.has(1)
            await told.close()
        assert len(receiver.posts) == 1

    with caplog.at_level(logging.DEBUG):
        asyncio.run(check())
    assert f"did not accept budget.threshold: status {answer[:3]}" in caplog.text
    for secret in (SECRET, "abc123", "of-a-secret"):
        assert secret not in caplog.text


def test_telling_never_waits_and_what_has_no_room_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        stuck = asyncio.Event()

        async def forever(_seconds: float) -> None:
            await stuck.wait()

        async with receiving(("500 X",)) as receiver:
            told = telling(receiver.url, sleep=forever)
            for _ in range(300):
                told.budget(ALERT)
            await receiver.has(1)
            assert told._webhook is not None
            assert told._webhook.lost == 100
            await told._webhook.close(0.01)

    asyncio.run(check())
    assert "another was lost" in caplog.text
    assert "200 were not sent" in caplog.text


def test_lost_lines_are_told_at_first_and_then_now_and_then() -> None:
    async def check() -> None:
        now_s = 1_000.0
        async with receiving() as receiver:
            told = telling(receiver.url, wall_s=lambda: now_s)
            for lines in (0, 3, 5, 5):
                told.lost(lines)
            now_s += 301
            told.lost(9)
            told.lost(9)
            await receiver.has(2)
            await told.close()
        assert [post.json["data"] for post in receiver.posts] == [
            {"lost": 3, "lost_now": 3},
            {"lost": 9, "lost_now": 6},
        ]

    asyncio.run(check())


def test_another_configuration_is_told_from_then_on() -> None:
    async def check() -> None:
        async with receiving() as first, receiving() as second:
            told = telling(first.url)
            told.budget(ALERT)
            told.reconfigure(AlertSettings(url=second.url))
            told.budget(ALERT)
            await first.has(1)
            await second.has(1)
            assert "x-headrace-signature" not in second.posts[0].headers
            told.reconfigure(None)
            told.budget(ALERT)
            await told.close()
        assert (len(first.posts), len(second.posts)) == (1, 1)

    asyncio.run(check())


@pytest.mark.parametrize(
    "url", ["ftp://a.example/x", "https://", "https://user:pass@a.example/", "http://a:port/"]
)
def test_what_is_no_address_is_refused_without_it(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_receiver(url)
    assert "alerts.url" in str(refused.value)
    assert "pass" not in str(refused.value)


def test_settings_show_nothing() -> None:
    assert "abc" not in repr(AlertSettings(url="https://a.example/abc", secret="abc"))
