"""Routes as they stand, who would be asked, and targets that are taken out by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.gateway.admin.gatehouse import Reloaded
from headrace.gateway.admin.in_process import InProcess
from tests.gateway.admin.house import House, admin
from tests.gateway.harness import Told, ask
from tests.gateway.openai_provider import Answer, answers, body_of, fails

OPEN = {"require_key": False}
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}


def one_fails(model: str) -> Answer:
    """The others answer."""
    fail, answer = fails(500, "boom <b>"), answers()

    async def told(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        await (fail if body_of(request)["model"] == model else answer)(number, request, writer)

    return told


async def asked(house: House) -> Told:
    return await ask(house.gateway.app, CHAT)


async def targets(house: House, model: str = "chat") -> list[dict[str, Any]]:
    told = (await house.client.get("/api/routes")).json()
    found: list[dict[str, Any]] = next(one for one in told["models"] if one["name"] == model)[
        "targets"
    ]
    return found


async def breaker(house: House, target: str, state: str) -> int:
    told = await house.client.post(f"/api/targets/{target}/breaker", json={"state": state})
    return told.status_code


async def test_how_targets_do(tmp_path: Path) -> None:
    aliases = {"default": "chat"}
    async with admin(
        tmp_path, one_fails("m"), access=OPEN, aliases=aliases, retries={"attempts": 2}
    ) as house:
        assert (await asked(house)).status == 200
        told = (await house.client.get("/api/routes")).json()
        assert told["workers"] == 1 and [one["name"] for one in told["models"]] == ["chat", "own"]
        chat = told["models"][0]
        assert (chat["strategy"], chat["aliases"], chat["usable"]) == ("ordered", ["default"], True)
        failed, answered = chat["targets"]
        assert "boom <b>" in failed["last_failure"] and failed["first_token_s"] is None
        assert answered["first_token_s"] > 0 and answered["in_flight"] == 0
        assert (failed["price"]["input"], answered["price"]) == (10**9, None)
        (provider,) = told["providers"]
        assert (provider["name"], provider["keys"], provider["resting_keys"]) == ("a", 1, 0)
        assert provider["refused"] == []


async def test_why_a_key_is_refused_is_told(tmp_path: Path) -> None:
    async with admin(tmp_path, fails(401, "no such <key>"), access=OPEN) as house:
        assert (await asked(house)).status == 502
        (provider,) = (await house.client.get("/api/routes")).json()["providers"]
        assert provider["refused"] == ["key 1 of 1: authentication 401: no such <key>"]


async def test_a_target_that_was_taken_out_gets_nothing_until_it_is_put_back(
    tmp_path: Path,
) -> None:
    async with admin(tmp_path, access=OPEN) as house:
        assert (await asked(house)).headers["x-headrace-target"] == "a/m"
        assert await breaker(house, "a/m", "open") == 200
        out, other = await targets(house)
        assert (out["taken_out"], out["usable"], out["breaker"]) == (True, False, "open")
        assert out["for_s"] is None and other["usable"]
        assert (await asked(house)).headers["x-headrace-target"] == "a/n"
        told = (await house.client.post("/api/explain", json={"body": CHAT})).json()
        assert [one["target"] for one in told["candidates"]] == ["a/n"]
        assert told["left_out"][0]["reason"] == "an administrator took it out of service"
        assert await breaker(house, "a/m", "closed") == 200
        assert (await asked(house)).headers["x-headrace-target"] == "a/m"


async def test_a_breaker_that_failures_opened_is_closed_by_hand(tmp_path: Path) -> None:
    settings = {"min_attempts": 1, "share": 0.5, "cooldown_s": 60}
    async with admin(tmp_path, one_fails("m"), access=OPEN, breaker=settings) as house:
        await asked(house)
        (failed, _) = await targets(house)
        assert (failed["breaker"], failed["taken_out"]) == ("open", False) and failed["for_s"] > 50
        assert await breaker(house, "a/m", "closed") == 200
        (failed, _) = await targets(house)
        assert (failed["breaker"], failed["usable"]) == ("closed", True)


async def test_targets_and_states_that_there_are_not(tmp_path: Path) -> None:
    async with admin(tmp_path, access=OPEN) as house:
        assert await breaker(house, "a/unknown", "open") == 404
        assert await breaker(house, "a/m", "ajar") == 400


async def test_explaining_refuses_what_a_request_would_be_refused(tmp_path: Path) -> None:
    async with admin(tmp_path, access=OPEN) as house:
        for body, status, said in (
            ({"model": "chatt"}, 404, "did you mean"),
            ({}, 400, "a name is required"),
            ({"model": "chat", "provider": {"order": 3}}, 400, "order"),
        ):
            told = await house.client.post("/api/explain", json={"body": body})
            assert told.status_code == status and said in told.json()["error"]["message"]
        only = {**CHAT, "provider": {"only": ["b"]}}
        told = await house.client.post("/api/explain", json={"body": only})
        assert told.json()["candidates"] == [] and len(told.json()["left_out"]) == 2
        assert not house.provider.requests, "nothing was sent"


async def test_it_is_explained_for_a_key(tmp_path: Path) -> None:
    keys = {"ci": {"key": "hr-0123456789abcdef0123", "models": ["own"]}}
    async with admin(tmp_path, access={"keys": keys}) as house:
        made = (await house.client.post("/api/keys", json={"label": "bot"})).json()["id"]

        async def told(key: str, model: str = "chat") -> tuple[int, str]:
            body = {"body": {"model": model}, "key": key}
            reply = await house.client.post("/api/explain", json=body)
            return reply.status_code, reply.text

        assert (
            (await told("bot"))[0] == (await told(made))[0] == (await told("ci", "own"))[0] == 200
        )
        status, said = await told("ci")
        assert status == 403 and "model_not_allowed" in said
        status, said = await told("doesnotexist")
        assert status == 404 and "no key has the id or label 'doesnotexist'" in said
        await house.client.post("/api/keys", json={"label": "bot"})
        status, said = await told("bot")
        assert status == 404 and "2 keys have the label 'bot'" in said and made in said
        wrong = {"body": CHAT, "keyy": "ci"}
        assert (await house.client.post("/api/explain", json=wrong)).status_code == 400


async def test_the_settings_and_reading_them_anew(tmp_path: Path) -> None:
    async with admin(tmp_path, access=OPEN) as house:
        told = await house.client.get("/api/config")
        assert "sk-of-the-provider" not in told.text and "(hidden)" in told.text
        assert told.json()["settings"]["models"]["chat"]["strategy"] == "ordered"
        told = await house.client.post("/api/reload")
        assert told.json()["changed"] == ["models.chat"] and told.json()["error"] is None


async def test_a_file_that_is_not_taken_is_an_error_as_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(self: InProcess) -> Reloaded:
        return Reloaded(error="gateway.yaml:3: models.chat: wrong")

    monkeypatch.setattr(InProcess, "reload", refused)
    async with admin(tmp_path, access=OPEN) as house:
        told = await house.client.post("/api/reload")
        error = told.json()["error"]
        assert told.status_code == 409 and error["code"] == "not_taken"
        assert error["message"] == "gateway.yaml:3: models.chat: wrong"
