"""Keys: made, shown once, counted, taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.admin.house import House, admin
from tests.gateway.harness import Told, ask

ACCESS = {
    "organisations": {"acme": {"budgets": [{"usd": 1, "per": "1M", "calendar": True}]}},
    "teams": {"search": {"organisation": "acme", "limits": [{"rpm": 100}]}},
    "keys": {"ci": {"key": "a-key-that-stands-in-the-file", "team": "search"}},
}
CHAT = {"model": "own", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 10}


async def asked(house: House, key: str) -> Told:
    return await ask(house.gateway.app, CHAT, headers={"authorization": f"Bearer {key}"})


async def made(house: House, **wanted: Any) -> dict[str, str]:
    told = await house.client.post("/api/keys", json=wanted)
    assert told.status_code == 200, told.text
    found: dict[str, str] = told.json()
    return found


async def listed(house: House, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await house.client.get("/api/keys", params=query)).json()
    return found


async def test_a_key_is_made_works_at_once_and_is_shown_once(tmp_path: Path) -> None:
    async with admin(tmp_path, access=ACCESS) as house:
        new = await made(
            house, label="bot", team="search", models=["own"], rpm=5, expires_days=1,
            budgets=[{"usd": 0.5, "per": "1d"}],
        )  # fmt: skip
        assert (await asked(house, new["key"])).status == 200
        told = await house.client.get("/api/keys")
        assert new["key"] not in told.text and new["key"][:12] not in told.text
        bot = next(one for one in told.json()["keys"] if one["id"] == new["id"])
        assert (bot["label"], bot["organisation"], bot["team"]) == ("bot", "acme", "search")
        assert bot["ends"] == [new["key"][-4:]] and bot["source"] == "store"
        assert bot["expires_ms"] is not None and bot["models"] == ["own"]
        assert (house.lines[-1].key, house.lines[-1].organisation) == (new["id"], "acme")


async def test_what_is_used_of_budgets_at_every_level(tmp_path: Path) -> None:
    async with admin(tmp_path, access=ACCESS) as house:
        new = await made(house, team="search", budgets=[{"usd": 0.5, "per": "1d"}])
        for _ in range(3):
            assert (await asked(house, new["key"])).status == 200
        told = await listed(house)
        (budget,) = next(one for one in told["keys"] if one["id"] == new["id"])["meters"]
        assert (budget["limit_name"], budget["unit"]) == ("budget", "nusd")
        assert (budget["used"], budget["held"], budget["limit"]) == (54_000, 0, 500_000_000)
        assert (budget["used_text"], budget["limit_text"]) == ("$0.000054", "$0.50")
        groups = {one["name"]: one["meters"] for one in told["groups"]}
        assert groups["acme"][0]["used"] == 54_000 and groups["search"][0]["used"] == 3
        assert groups["search"][0]["window"] == "in the last minute"


async def test_a_key_is_rotated_blocked_and_deleted(tmp_path: Path) -> None:
    async with admin(tmp_path, access=ACCESS) as house:
        first = await made(house)
        path = f"/api/keys/{first['id']}"
        second = (await house.client.post(f"{path}/rotate", json={})).json()
        assert second["id"] == first["id"] and second["key"] != first["key"]
        assert (await asked(house, first["key"])).status == 401
        third = (await house.client.post(f"{path}/rotate", json={"overlap_days": 1})).json()
        for key in (second["key"], third["key"]):
            assert (await asked(house, key)).status == 200
        assert (await house.client.post(f"{path}/block")).json()["blocked"] is True
        assert (await asked(house, third["key"])).status == 401
        assert (await house.client.post(f"{path}/unblock")).json()["blocked"] is False
        assert (await asked(house, third["key"])).status == 200
        assert (await house.client.delete(path)).json()["removed"] is True
        assert (await asked(house, third["key"])).status == 401
        assert (await house.client.delete(path)).status_code == 404


async def test_a_key_is_changed_and_what_is_not_given_stays(tmp_path: Path) -> None:
    async with admin(tmp_path, access=ACCESS) as house:
        new = await made(
            house, label="bot", team="search", models=["own"], rpm=1, tpm=9000,
            budgets=[{"usd": 0.0001, "per": "1d", "calendar": True}],
        )  # fmt: skip
        assert (await asked(house, new["key"])).status == 200
        assert (await asked(house, new["key"])).status == 429
        path = f"/api/keys/{new['id']}"
        budgets = [{"usd": 5, "per": "1d", "calendar": True}]
        told = await house.client.patch(path, json={"rpm": None, "budgets": budgets})
        assert (told.status_code, told.json()["id"]) == (200, new["id"])
        assert (await asked(house, new["key"])).status == 200, "the same secret"
        (bot,) = (await listed(house, text=new["id"]))["keys"]
        assert (bot["label"], bot["team"], bot["models"]) == ("bot", "search", ["own"])
        tpm, budget = bot["meters"]
        assert (tpm["limit_name"], tpm["limit"]) == ("tpm", 9000)
        assert (budget["used"], budget["limit_text"]) == (36_000, "$5.00"), "it still counts"
        assert (budget["per"], budget["calendar"]) == ("1d", True)
        changes: dict[str, Any] = {
            "label": "x",
            "models": [],
            "tpm": None,
            "budgets": [],
            "expires_days": 2,
        }
        assert (await house.client.patch(path, json=changes)).status_code == 200
        (bot,) = (await listed(house, text=new["id"]))["keys"]
        assert (bot["label"], bot["models"], bot["meters"]) == ("x", [], [])
        assert bot["expires_ms"] is not None
        assert (await house.client.patch(path, json={"expires_days": None})).status_code == 200
        assert (await listed(house, text=new["id"]))["keys"][0]["expires_ms"] is None


async def test_a_budget_is_raised_for_a_while(tmp_path: Path) -> None:
    async with admin(tmp_path, access=ACCESS) as house:
        new = await made(house, team="search", budgets=[{"usd": 0.00001, "per": "1d"}])
        assert (await asked(house, new["key"])).status == 429
        path = f"/api/keys/{new['id']}"
        until_ms = 4_000_000_000_000
        raised = {"usd": 0.00001, "per": "1d", "raised_to_usd": 5, "raised_until_ms": until_ms}
        assert (await house.client.patch(path, json={"budgets": [raised]})).status_code == 200
        assert (await asked(house, new["key"])).status == 200
        (key,) = (await listed(house, text=new["id"]))["keys"]
        (budget,) = key["meters"]
        assert (budget["limit"], budget["amount"]) == (5 * 10**9, 10_000)
        assert (budget["raised_to"], budget["raised_until_ms"]) == (5 * 10**9, until_ms)
        over = {**raised, "raised_until_ms": 1}
        assert (await house.client.patch(path, json={"budgets": [over]})).status_code == 200
        assert (await asked(house, new["key"])).status == 429
        (key,) = (await listed(house, text=new["id"]))["keys"]
        (budget,) = key["meters"]
        assert (budget["limit"], budget["raised_to"]) == (10_000, None)


async def test_a_key_has_what_keys_of_the_file_may_have(tmp_path: Path) -> None:
    given = {"tags": ["a"], "guardrails": ["secrets"], "priority": "low", "data_collection": "deny",
             "zero_retention": True, "regions": ["eu"], "when_stores_are_down": "open"}  # fmt: skip
    async with admin(tmp_path, access=ACCESS, guardrails={"secrets": {"kind": "pii"}}) as house:
        new = await made(house, **given)
        assert (await asked(house, new["key"])).status != 200, "nobody promises so much"
        (bot,) = (await listed(house, text=new["id"]))["keys"]
        assert {name: bot[name] for name in given} == {**given, "priority": 1}
        taken: dict[str, Any] = {
            "tags": [], "guardrails": [], "priority": None, "data_collection": "allow",
            "zero_retention": False, "regions": None, "when_stores_are_down": None,
        }  # fmt: skip
        path = f"/api/keys/{new['id']}"
        assert (await house.client.patch(path, json={"label": "x"})).status_code == 200
        (bot,) = (await listed(house, text=new["id"]))["keys"]
        assert {name: bot[name] for name in given} == {**given, "priority": 1}
        assert (await house.client.patch(path, json=taken)).status_code == 200
        (bot,) = (await listed(house, text=new["id"]))["keys"]
        assert {name: bot[name] for name in given} == taken
        assert (await asked(house, new["key"])).status == 200


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"rpm": -1}, "rpm"),
        ({"guardrails": ["nobody"]}, "'nobody' is not a guardrail of this gateway"),
        ({"budgets": [{"usd": 5, "raised_to_usd": 4, "raised_until_ms": 9}]}, "raised_to"),
        ({"budgets": [{"usd": 5, "raised_to_usd": 9}]}, "belong together"),
        ({"team": "search"}, "team"),
        ({"budgets": [{"usd": 1}, {"usd": 2}]}, "keep the smaller"),
        ({"label": None}, "label"),
    ],
)
async def test_bad_changes_change_nothing(wanted: Any, said: str, tmp_path: Path) -> None:
    async with admin(tmp_path, access=ACCESS) as house:
        new = await made(house, label="bot", rpm=1)
        told = await house.client.patch(f"/api/keys/{new['id']}", json=wanted)
        assert told.status_code == 400 and said in told.json()["error"]["message"]
        (bot,) = (await listed(house, text=new["id"]))["keys"]
        assert (bot["label"], bot["meters"][0]["limit"]) == ("bot", 1)
        assert (await house.client.patch("/api/keys/no", json={})).status_code == 404


async def test_keys_of_the_file_are_shown_and_left_alone(tmp_path: Path) -> None:
    async with admin(tmp_path, access=ACCESS) as house:
        (ci,) = (await listed(house, text="CI"))["keys"]
        assert (ci["id"], ci["source"], ci["team"]) == ("ci", "file", "search")
        for told in (
            await house.client.post("/api/keys/ci/block"),
            await house.client.patch("/api/keys/ci", json={"rpm": 1}),
            await house.client.post("/api/keys/ci/rotate", json={}),
            await house.client.delete("/api/keys/ci"),
        ):
            assert (told.status_code, told.json()["error"]["code"]) == (409, "key_of_file")
        assert (await asked(house, "a-key-that-stands-in-the-file")).status == 200


async def test_without_a_store_it_says_how_to_have_one(tmp_path: Path) -> None:
    async with admin(tmp_path, access=ACCESS, store=False) as house:
        assert (await listed(house))["can_make"] is False
        told = await house.client.post("/api/keys", json={})
        assert (told.status_code, told.json()["error"]["code"]) == (409, "no_store")
        assert "access: {store:" in told.json()["error"]["message"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"team": "nobody"}, "there is no team 'nobody'"),
        ({"team": "search", "organisation": "acme"}, "give one"),
        ({"budgets": [{"usd": -1}]}, "budgets"),
        ({"budgets": [{"usd": 1, "per": "2d"}]}, "per"),
        ({"budgets": [{"usd": 1}, {"usd": 2}]}, "keep the smaller"),
        ({"rpm": 1.5}, "rpm"),
        ({"expires_days": 0}, "expires_days"),
        ({"guardrails": ["nobody"]}, "'nobody' is not a guardrail of this gateway"),
        ({"priority": "urgent"}, "priority"),
        ({"regions": []}, "regions"),
        ({"lable": "x"}, "did you mean 'label'?; there are label, organisation, team, user,"),
        ([], "object"),
    ],
)
async def test_bad_wishes_make_no_key(wanted: Any, said: str, tmp_path: Path) -> None:
    async with admin(tmp_path, access=ACCESS) as house:
        told = await house.client.post("/api/keys", json=wanted)
        assert told.status_code == 400 and said in told.json()["error"]["message"]
        assert (await listed(house))["total"] == 1


async def test_a_search_and_a_limit(tmp_path: Path) -> None:
    async with admin(tmp_path, access=ACCESS) as house:
        for label in ("one", "two", "twofold"):
            await made(house, label=label, organisation="acme")
        assert {one["label"] for one in (await listed(house, text="TWO"))["keys"]} == {
            "two", "twofold",
        }  # fmt: skip
        told = await listed(house, text="acme", limit=2)
        assert (len(told["keys"]), told["total"]) == (2, 4)
