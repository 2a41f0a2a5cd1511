"""The playground: models side by side, on the administrator's account."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.admin.house import House, admin
from tests.gateway.admin.listening import events, over_sockets
from tests.gateway.openai_provider import STREAM_HEAD, answers, chunk, fails, framed
from tests.waiting import until

ASKED = {"models": ["chat", "own"], "messages": [{"role": "user", "content": "<script>"}]}


async def tried(house: House, **more: Any) -> list[dict[str, Any]]:
    async with (
        over_sockets(house) as client,
        client.stream("POST", "/api/try", json={**ASKED, **more}) as reply,
    ):
        assert reply.status_code == 200
        return [one async for one in events(reply)]


def of(found: list[dict[str, Any]], at: int, kind: str) -> list[dict[str, Any]]:
    return [one for one in found if one["at"] == at and one["kind"] == kind]


@pytest.mark.parametrize("stream", [True, False])
async def test_both_answer_and_their_bills_are_in_the_ledger(stream: bool, tmp_path: Path) -> None:
    async with admin(tmp_path, answers("Hello <b>there</b>")) as house:
        found = await tried(house, stream=stream, params={"temperature": 0, "max_tokens": 9})
        for at, model, target in ((0, "chat", "a/m"), (1, "own", "a/o")):
            (began,) = of(found, at, "began")
            assert (began["model"], began["target"], began["status"]) == (model, target, 200)
            text = "".join(one["text"] for one in of(found, at, "text"))
            assert text.strip() == "Hello <b>there</b>"
            (ended,) = of(found, at, "ended")
            assert (ended["prompt_tokens"], ended["completion_tokens"]) == (12, 3)
            assert (ended["cost_nusd"], ended["cost_usd"]) == (18_000, "0.000018")
            assert ended["total_ms"] > 0 and ended["finish"] == "stop"
        assert [one.key for one in house.lines] == ["admin", "admin"]
        assert {one.id for one in house.lines} == {one["id"] for one in found if "id" in one}
        assert b'"temperature":0' in house.provider.requests[0]


async def test_a_failure_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    answer = answers()

    async def one_fails(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        fail = fails(400, "no such <i>thing</i>")
        await (fail if b'"o"' in request else answer)(number, request, writer)

    async with admin(tmp_path, one_fails) as house:
        found = await tried(house, models=["own", "chat", "nobody"])
        assert "no such <i>thing</i>" in of(found, 0, "failed")[0]["text"]
        assert of(found, 1, "text") and not of(found, 1, "failed")
        assert "is not served here" in of(found, 2, "failed")[0]["text"]
        assert all(of(found, at, "ended") for at in range(3))


async def test_who_leaves_ends_all_of_them_and_pays_for_what_came(tmp_path: Path) -> None:
    gone = 0

    async def forever(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal gone
        writer.write(STREAM_HEAD)
        try:
            for _ in range(2000):
                writer.write(framed(chunk({"content": "word "})))
                await writer.drain()
                await asyncio.sleep(0.005)
        except ConnectionError:
            gone += 1
            raise

    async with admin(tmp_path, forever) as house, over_sockets(house) as client:
        async with client.stream("POST", "/api/try", json=ASKED) as reply:
            seen = set()
            async for one in events(reply):
                seen |= {one["at"]} if one["kind"] == "text" else set()
                if seen == {0, 1}:
                    break
        await until(lambda: len(house.lines) == 2, "two lines in the ledger")
        assert [one.outcome for one in house.lines] == ["client_gone"] * 2
        assert all(one.usage is not None for one in house.lines)
        await until(lambda: gone == 2, "both providers saw the client leave")
        assert house.feed.listeners == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"models": []}, "models"),
        ({"models": ["chat"] * 7}, "models"),
        ({"messages": []}, "messages"),
        ({"params": {"stream": True}}, "params.stream"),
        ({"model": "chat"}, "model"),
    ],
)
async def test_bad_wishes_ask_nobody(more: dict[str, Any], said: str, tmp_path: Path) -> None:
    async with admin(tmp_path) as house:
        told = await house.client.post("/api/try", json={**ASKED, **more})
        assert told.status_code == 400 and said in told.json()["error"]["message"]
        assert not house.provider.requests and not house.lines


async def test_the_admins_own_key_is_no_key_of_others(tmp_path: Path) -> None:
    """It works on the data port, is unlike any other, and is told nowhere."""
    from tests.gateway.admin.house import OWN_KEY
    from tests.gateway.harness import ask

    async with admin(tmp_path) as house:
        body = {"model": "own", "messages": []}
        for key, status in ((OWN_KEY, 200), (OWN_KEY[:-1], 401), ("", 401)):
            headers = {"authorization": f"Bearer {key}"}
            assert (await ask(house.gateway.app, body, headers=headers)).status == status
        for path in ("/api/config", "/api/about", "/api/keys", "/api/routes", "/api/log"):
            assert OWN_KEY not in (await house.client.get(path)).text


async def test_lines_come_as_requests_end(tmp_path: Path) -> None:
    async with admin(tmp_path) as house, over_sockets(house) as client:
        async with client.stream("GET", "/api/log/stream?model=own") as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            assert reply.headers["cache-control"] == "no-store"
            await until(lambda: house.feed.listeners == 1, "one listener")
            found = await tried(house)
            assert len(of(found, 1, "ended")) == 1
            first = await anext(events(reply))
            assert (first["line"]["entry"]["model"], first["lost"]) == ("own", 0)
        await until(lambda: house.feed.listeners == 0, "no listener")
