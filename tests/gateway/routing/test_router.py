"""Models, their fallbacks, what holds for a while, and what stays where it was."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter

import pytest

from headrace.errors import RequestError
from headrace.gateway.routing.explain import ask_to_explain
from headrace.gateway.routing.query import RoutingQuery, query_from_body
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.sticky import IDLE_S, Sticky
from headrace.gateway.settings.secret import Secret
from headrace.gateway.targets.auth import InTurn, KeyHeader
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.failure import Failure
from tests.gateway.routing.parts import (
    A,
    B,
    C,
    asking,
    left_out,
    names,
    provider,
    route,
    router,
    target,
)


def test_models_one_after_another_each_once() -> None:
    routes = (route("m", A, fallbacks=("o",)), route("n", B), route("o", C, fallbacks=("m",)))
    one = router(*routes, aliases={"alias": "m"})
    decision = one.decide(asking("m", models=["n", "m", "alias"]), 0.0)
    assert names(decision) == ["a/m", "b/m", "c/m"]
    assert [found.model for found in decision.candidates] == ["m", "n", "o"]
    assert names(one.decide(asking("alias"), 0.0)) == ["a/m", "c/m"]
    assert names(one.decide(asking("", models=["n"]), 0.0)) == ["b/m"]
    for old in ("fallback", "load-balance"):
        assert names(one.decide(asking("n", route=old), 0.0)) == ["b/m"]


def test_names_that_nobody_has() -> None:
    one = router(route("gpt-5", A), aliases={"large": "gpt-5"})
    with pytest.raises(RequestError) as caught:
        one.decide(asking("gtp-5"), 0.0)
    assert caught.value.code == "model_not_found" and caught.value.param == "model"
    assert "did you mean 'gpt-5'?" in str(caught.value)
    with pytest.raises(RequestError, match="did you mean 'large'"):
        one.decide(asking("lagre"), 0.0)
    with pytest.raises(RequestError, match="a name is required"):
        asking("")


def test_routes_of_names_that_are_not_in_the_file() -> None:
    made = route("a/x", target("a/x"))
    one = Router({}, {}, Sticky(), random.Random(1),
                 unknown=lambda name: made if name == "a/x" else None)  # fmt: skip
    assert names(one.decide(asking("a/x"), 0.0)) == ["a/x"]
    with pytest.raises(RequestError):
        one.decide(asking("b/x"), 0.0)


def test_what_is_left_alone_says_why_and_for_how_long() -> None:
    broken, full = target("broken/m"), target("full/m", max_in_flight=1)
    key = KeyHeader(Secret("k", "a test"), "authorization")
    auth = InTurn((key,))
    tired = target("tired/m", provider=provider("tired", auth=auth))
    broken.health.failed(100.0, "server 502: the words of another", cool_s=4.0)
    full.health.began(100.0)
    limited = Failure(kind="rate_limit", message="for who asked", status=429, retry_after_s=9.0)
    auth.failed(key, limited, 100.0, "m")
    one = router(route("m", broken, full, tired, A))
    decision = one.decide(asking(), 101.0)
    assert names(decision) == ["a/m"]
    assert left_out(decision) == {
        "broken/m": "paused for 3.0 s: server 502",
        "full/m": "it is serving 1 requests, as many as allowed",
        "tired/m": "all keys of tired rest for 8.0 s, since m was refused: rate_limit 429",
    }
    for_s = {found.target: found.for_s for found in decision.left_out}
    assert for_s == {"broken/m": pytest.approx(3.0), "full/m": 0.0, "tired/m": pytest.approx(8.0)}
    full.health.ended()
    assert len(names(one.decide(asking(), 109.0))) == 4


def test_sessions_stay_where_they_were_served() -> None:
    one = router(route("m", A, B, C, sticky="session"), seed=2)
    ask = asking(session="s")
    one.served("m", ask, B, 0.0)
    for _ in range(20):
        decision = one.decide(ask, IDLE_S)
        assert names(decision)[0] == "b/m" and len(names(decision)) == 3
    assert decision.candidates[0].reasons[0] == "served the same session last"
    again = {names(one.decide(ask, IDLE_S + 1.0))[0] for _ in range(30)}
    assert len(again) == 1, "a session's own draw, the same in every process"


def test_sessions_are_spread_by_weight_before_they_were_served() -> None:
    heavy = target("heavy/m", weight=3.0)
    one = router(route("m", heavy, B, sticky="session"), seed=2)
    first = Counter(
        names(one.decide(asking(session=f"session {number}"), 0.0))[0] for number in range(1000)
    )
    assert first["heavy/m"] == pytest.approx(750, abs=50)


def test_a_session_goes_on_elsewhere_if_its_target_cannot() -> None:
    one = router(route("m", A, B, sticky="session", strategy="ordered"))
    ask = asking(session="s")
    one.served("m", ask, B, 0.0)
    assert names(one.decide(ask, 0.0)) == ["b/m", "a/m"]
    decision = one.decide(asking(session="s", provider={"ignore": ["b"]}), 0.0)
    assert names(decision) == ["a/m"]
    one.served("m", ask, A, 1.0)
    assert names(one.decide(ask, 1.0))[0] == "a/m"


def test_a_sort_of_the_client_goes_before_the_session() -> None:
    cheap, dear = target("cheap/m", usd=(1.0, 1.0)), target("dear/m", usd=(2.0, 2.0))
    one = router(route("m", cheap, dear, sticky="session", strategy="price"))
    one.served("m", asking(session="s"), dear, 0.0)
    assert names(one.decide(asking(session="s"), 0.0))[0] == "dear/m"
    assert names(one.decide(asking("m:floor", session="s"), 0.0))[0] == "cheap/m"


def test_prompts_that_begin_alike_stay_together() -> None:
    one = router(route("m", A, B, C, sticky="prefix"))

    def ask(first: str, last: str) -> RoutingQuery:
        body = {"model": "m", "messages": [{"role": "system", "content": first},
                                           {"role": "user", "content": last}]}  # fmt: skip
        return query_from_body(JsonObject.read(json.dumps(body).encode()), "m")

    one.served("m", ask("x" * 5000, "one"), C, 0.0)
    for number in range(20):
        assert names(one.decide(ask("x" * 5000, str(number)), 1.0))[0] == "c/m"
    assert ask("short", "one").prefix is None
    assert ask("y" * 5000, "one").prefix != ask("x" * 5000, "one").prefix


@pytest.mark.parametrize(
    ("early", "late"),
    [
        ("system", "messages"),
        ("tools", "messages"),
        ("instructions", "input"),
        ("tools", "instructions"),
        ("messages", "temperature"),
        ("input", "temperature"),
    ],
)
def test_prompts_of_every_dialect_begin_where_providers_begin_them(early: str, late: str) -> None:
    def prefix(first: str, last: str, **more: str) -> int | None:
        # What comes late in a prompt may come early in a body.
        body = {"model": "m", late: last, early: first, **more}
        return query_from_body(JsonObject.read(json.dumps(body).encode()), "m").prefix

    same = prefix("x" * 5000, "one")
    assert same is not None and same == prefix("x" * 5000, "two")
    assert prefix("y" * 5000, "one") != same
    assert prefix("x" * 4000, "one") is None
    if late in ("messages", "input"):
        assert prefix("x" * 3000, "y" * 3000) != prefix("x" * 3000, "z" * 3000)
    keyed = prefix("short", "one", prompt_cache_key="k")
    assert keyed is not None and keyed == prefix("z" * 5000, "two", prompt_cache_key="k")
    assert keyed != prefix("short", "one", prompt_cache_key="l")


@pytest.mark.process
def test_a_prefix_is_the_same_in_every_process() -> None:
    code = (
        "from headrace.gateway.routing.query import query_from_body\n"
        "from headrace.protocol.json_object import JsonObject\n"
        'body = b\'{"model": "m", "system": "\' + b\'x\' * 5000 + b\'"}\'\n'
        "print(query_from_body(JsonObject.read(body), 'm').prefix)"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, check=True, text=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(told) == 1 and told != {"None\n"}


def test_without_sticky_nothing_is_kept() -> None:
    one = router(route("m", A, B, C))
    ask = asking(session="s", prefix=5)
    one.served("m", ask, B, 0.0)
    one.served("no-such", ask, B, 0.0)
    assert len({names(one.decide(ask, 0.0))[0] for _ in range(30)}) == 3


def test_sessions_are_bounded() -> None:
    sticky = Sticky(most=2, idle_s=10.0)
    for session in ("a", "b", "a", "c"):
        sticky.had("m", session, f"{session}/m", 0.0)
    assert len(sticky) == 2
    assert [sticky.target("m", one, 10.0) for one in "abc"] == ["a/m", None, "c/m"]
    assert sticky.target("m", "a", 10.1) is None and len(sticky) == 1
    assert sticky.target("other", "c", 0.0) is None


def test_explain_asks_nobody_and_says_why() -> None:
    cheap, dear = target("cheap/m", usd=(1.0, 2.0)), target("dear/m", usd=(9.0, 9.0))
    one = router(route("m", dear, cheap, A))
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 2976}],
            "max_tokens": 500, "provider": {"ignore": ["a"], "order": ["dear"]}}  # fmt: skip
    decision = one.decide(ask_to_explain(one, "m:floor", json.dumps(body).encode()), 0.0)
    assert names(decision) == ["dear/m", "cheap/m"]
    first, second = decision.candidates
    assert first.reasons[0] == "number 1 of provider.order"
    assert second.reasons[0].startswith("price: about $0.002")
    assert first.model == "m" and second.score < 3_000_000
    assert left_out(decision) == {"a/m": "it is in provider.ignore"}
    assert all(found.health.requests == 0 for found in (cheap, dear, A))
    with pytest.raises(RequestError, match="provider"):
        ask_to_explain(one, "m", b'{"provider": 1}')


def test_latest_is_the_name_without_it_unless_there_is_one() -> None:
    tagged = route("own:latest", target("t/own"))
    one = router(route("m", A), tagged, route("own", B), aliases={"alias": "m"})
    assert names(one.decide(asking("m:latest"), 0.0)) == names(one.decide(asking("m"), 0.0))
    assert one.own_name("alias:latest") == "m"
    assert names(one.decide(asking("own:latest"), 0.0)) == ["t/own"]
    with pytest.raises(RequestError, match="'n:latest' is not served here"):
        one.decide(asking("n:latest"), 0.0)
