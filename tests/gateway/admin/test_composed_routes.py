"""Models made of others, and A/B tests, as the admin API tells them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.gateway.admin.house import House, admin
from tests.gateway.harness import ask
from tests.gateway.openai_provider import fails
from tests.gateway.serving.composed.models import says

OPEN = {"require_key": False}
MODELS: dict[str, Any] = {
    "small": ["a/small"],
    "strong": ["a/strong"],
    "careful": {"cascade": {"stages": ["small", "strong"], "accept": {"by": "rules"}}},
    "drafted": {"pipeline": {"draft": "small", "decide": {"by": "rules"}, "final": "strong"}},
    "auto": {"choose": {"by": "rules", "default": "small", "rules": [
        {"if": {"matches": "(?i)prove"}, "use": "strong"},
        {"if": {"matches": "careful"}, "use": "careful"},
    ]}},
    "routed": {"choose": {"by": "model", "default": "small", "model": {
        "ask": "small", "classes": {"easy": "small", "hard": "strong"}}}},
    "canary": {
        "variants": {"old": {"weight": 1, "targets": ["a/small"]},
                     "new": {"weight": 1, "targets": ["a/strong"]}},
        "assign_by": "user", "rollback": {"error_share": 0.5, "window_requests": 5},
    },
}  # fmt: skip


async def explained(house: House, model: str, text: str, **more: Any) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
    told: dict[str, Any] = (await house.client.post("/api/explain", json={"body": body})).json()
    return told


async def told_of(house: House, model: str) -> dict[str, Any]:
    told = (await house.client.get("/api/routes")).json()
    found: dict[str, Any] = next(one for one in told["models"] if one["name"] == model)
    return found


def targets(told: dict[str, Any]) -> list[str]:
    return [one["target"] for one in told["candidates"]]


async def test_what_would_be_chosen_is_said_and_stages_are_in_their_order(tmp_path: Path) -> None:
    async with admin(tmp_path, access=OPEN, models=MODELS) as house:
        for model in ("careful", "drafted"):
            told = await explained(house, model, "hi")
            assert targets(told) == ["a/small", "a/strong"]
            assert told["choice"]["model"] is None
            assert (
                "small -> strong; an answer is accepted if rules hold" in told["choice"]["said"][0]
            )
        proved = await explained(house, "auto", "prove it")
        assert proved["choice"]["said"] == ["auto: rule 1 (matches) -> strong"]
        assert (proved["choice"]["model"], targets(proved)) == ("strong", ["a/strong"])
        assert targets(await explained(house, "auto", "hi")) == ["a/small"]
        nested = await explained(house, "auto", "be careful")
        assert len(nested["choice"]["said"]) == 2 and targets(nested) == ["a/small", "a/strong"]
        routed = await explained(house, "routed", "hi")
        assert "hi" in routed["choice"]["question"][1][1] and routed["choice"]["model"] is None
        plain = await explained(house, "small", "hi")
        assert plain["choice"] is None and plain["note"] == ""
        wrong = {"model": "small", "messages": "x", "max_tokens": "y"}
        told = (await house.client.post("/api/explain", json={"body": wrong})).json()
        assert "messages" in told["note"]
        assert not house.provider.requests


async def test_how_a_model_made_of_others_finds_who_answers(tmp_path: Path) -> None:
    async with admin(tmp_path, access=OPEN, models=MODELS) as house:
        careful = await told_of(house, "careful")
        assert "small -> strong; " in careful["made_of"]
        assert [one["target"] for one in careful["targets"]] == ["a/small", "a/strong"]
        assert (await told_of(house, "auto"))["made_of"] == (
            "one of small, strong, careful, by rules"
        )
        assert (await told_of(house, "small"))["made_of"] == ""


async def test_sides_and_the_one_that_was_taken_out(tmp_path: Path) -> None:
    answer = says(small="fine", strong=fails(500))
    more = {"breaker": {"min_attempts": 1000}, "retries": {"attempts": 2}}
    async with admin(tmp_path, answer, access=OPEN, models=MODELS, **more) as house:
        told = await told_of(house, "canary")
        assert told["assign_by"] == "user"
        assert [(one["name"], one["weight"], one["taken_out"]) for one in told["variants"]] == [
            ("old", 1.0, False), ("new", 1.0, False),
        ]  # fmt: skip
        users = [f"u{at}" for at in range(40)]
        sides = {one: (await explained(house, "canary", "hi", user=one)) for one in users}
        assert {one["variant"] for one in sides.values()} == {"old", "new"}
        for user in users:
            body = {"model": "canary", "messages": [{"role": "user", "content": "hi"}]}
            assert (await ask(house.gateway.app, {**body, "user": user})).status == 200
        (_, new) = (await told_of(house, "canary"))["variants"]
        assert new["taken_out"] and new["targets"] == ["a/strong"]
        health = (await ask(house.gateway.app, b"", path="/health", method="GET")).json
        assert health["models"]["canary"]["variants_out"] == ["new"]
        assert "variants_out" not in health["models"]["small"]
