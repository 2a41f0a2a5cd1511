"""A model with variants, through a whole gateway."""

from __future__ import annotations

from typing import Any

from headrace.gateway.explaining import explanation_of
from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers, fails
from tests.gateway.test_serving import CHAT
from tests.gateway.upstream.scripted import served


def split(control: Any, new: Any, weight: float, **model: Any) -> dict[str, Any]:
    """A gateway's file with `weight` of 100 for `new`."""
    return {
        "providers": {
            name: {"base_url": f"{one}/v1", "dialect": "openai-chat"}
            for name, one in (("a", control), ("b", new))
        },
        "models": {
            "chat": {
                "variants": {
                    "control": {"weight": 100 - weight, "targets": ["a/m0"]},
                    "new": {"weight": weight, "targets": "b/m1"},
                },
                **model,
            }
        },
        "retries": {"backoff_s": 0.01, "backoff_max_s": 0.02},
    }


async def test_a_user_has_one_side_and_the_line_and_a_header_tell_it() -> None:
    entries: list[Entry] = []
    async with served(answers("old")) as control, served(answers("new")) as new:
        built = gateway(split(control.origin, new.origin, 50), entries)
        for user in ("u1", "u2", "u3", "u4", "u5", "u6") * 2:
            told = await ask(built.app, {**CHAT, "user": user})
            side = told.headers["x-headrace-variant"]
            assert ("new" in told.json["choices"][0]["message"]["content"]) == (side == "new")
            assert "x-headrace-variant-assigned" not in told.headers
    sides = [one.variant for one in entries]
    assert sides[:6] == sides[6:] and set(sides) == {"control", "new"}
    assert [one.assigned for one in entries] == sides


async def test_a_side_that_fails_falls_back_and_both_are_told() -> None:
    entries: list[Entry] = []
    async with served(answers("old")) as control, served(fails(500)) as new:
        built = gateway(split(control.origin, new.origin, 100), entries)
        told = await ask(built.app, {**CHAT, "user": "u"})
        assert told.status == 200 and told.headers["x-headrace-variant"] == "control"
        assert told.headers["x-headrace-variant-assigned"] == "new"
    (entry,) = entries
    assert (entry.variant, entry.assigned, entry.outcome) == ("control", "new", "answered")
    assert [one.target for one in entry.attempts] == ["b/m1", "a/m0"]


async def test_a_canary_that_fails_is_taken_out_and_explained() -> None:
    entries: list[Entry] = []
    rollback = {"error_share": 0.5, "window_requests": 5}
    async with served(answers("old")) as control, served(fails(500)) as new:
        settings = split(control.origin, new.origin, 100, rollback=rollback)
        settings["breaker"] = {"min_attempts": 1000}
        built = gateway(settings, entries)
        for at in range(8):
            told = await ask(built.app, {**CHAT, "user": str(at)})
            assert told.status == 200
        assert len(new.requests) == 5, "then it is asked no more"
        decision = explanation_of(built, "chat", b'{"user":"u"}', now_s=0.0).decision
        assert [one.target.name for one in decision.candidates] == ["a/m0"]
        assert "new was taken out" in decision.candidates[0].reasons[0]
        assert "variant new was taken out" in decision.left_out[0].reason
    assert [one.assigned for one in entries] == ["new"] * 5 + ["control"] * 3


async def test_explain_says_the_side_of_a_user() -> None:
    built = gateway(split("http://127.0.0.1:9", "http://127.0.0.1:9", 10), [])
    seen = set()
    for at in range(60):
        body = f'{{"user":"u{at}"}}'.encode()
        decision = explanation_of(built, "chat", body, now_s=0.0).decision
        first = decision.candidates[0]
        seen.add((decision.assigned, first.variant, first.target.name, first.reasons[0]))
    assert seen == {
        ("control", "control", "a/m0", "variant control: 90 of 100 by user"),
        ("new", "new", "b/m1", "variant new: 10 of 100 by user"),
    }


async def test_a_request_may_choose_where_the_file_lets_it() -> None:
    entries: list[Entry] = []
    chosen = {"x-headrace-variant": "new"}
    async with served(answers("old")) as control, served(answers("new")) as new:
        built = gateway(split(control.origin, new.origin, 0), entries)
        told = await ask(built.app, CHAT, headers=chosen)
        assert told.status == 400 and told.json["error"]["code"] == "variant_not_allowed"
        assert not new.requests and not control.requests
        built = gateway(split(control.origin, new.origin, 0, variant_choosers=["*"]), entries)
        told = await ask(built.app, CHAT, headers=chosen)
        assert told.status == 200 and told.headers["x-headrace-variant"] == "new"
        told = await ask(built.app, CHAT, headers={"x-headrace-variant": "old"})
        assert told.status == 400 and "there are control, new" in told.json["error"]["message"]


async def test_an_answer_of_one_side_is_not_given_to_the_other_from_the_cache() -> None:
    entries: list[Entry] = []
    async with served(answers("old")) as control, served(answers("new")) as new:
        settings = split(control.origin, new.origin, 50)
        settings["cache"] = {"enabled": True, "models": ["chat"], "scope": "all"}
        built = gateway(settings, entries)
        for user in ("u1", "u2", "u3", "u4", "u5", "u6", "u7"):
            told = await ask(built.app, {**CHAT, "temperature": 0, "user": user})
            assert told.status == 200 and told.headers["x-headrace-variant"] in ("control", "new")
        assert len(control.requests) == len(new.requests) == 1
    hits = [one for one in entries if one.cache]
    assert len(hits) == 5 and all(one.variant == one.assigned for one in hits)
    assert all((one.target == "b/m1") == (one.variant == "new") for one in hits)
