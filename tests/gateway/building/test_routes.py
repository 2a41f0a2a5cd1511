"""Routes of names that the file does not have."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from headrace.gateway.building import routes
from headrace.gateway.targets.health import Health
from tests.gateway.harness import gateway


def config(**more: Any) -> dict[str, Any]:
    return {
        "providers": {"p": {"base_url": "http://127.0.0.1:9/v1", "dialect": "openai-chat"}},
        "models": {"chat": ["p/own"]},
        **more,
    }


def test_what_clients_make_up_is_forgotten_with_its_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_MOST_UNKNOWN", 3)
    router = gateway(config(), []).router
    made: list[weakref.ref[Health]] = []
    for number in range(10):
        route = router.route(f"p/made-up-{number}")
        assert route is not None
        made.append(weakref.ref(route.targets[0].health))
        del route
    assert [one() is None for one in made] == [True] * 7 + [False] * 3


def test_a_target_of_the_file_keeps_its_health_under_its_full_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "_MOST_UNKNOWN", 1)
    router = gateway(config(), []).router
    own = router.routes["chat"].targets[0].health
    for name in ("p/own", "p/other", "p/own"):
        route = router.route(name)
        assert route is not None
        assert (route.targets[0].health is own) == (name == "p/own")
