"""Requests made of the OpenAPI document, against a server whose engine is a mock."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from headrace.config import ServerConfig
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says
from tools.fuzz import api

pytestmark = pytest.mark.process

Start = Callable[..., Running]

AUTH = {"authorization": "Bearer admin-key"}
KEYS = {"api_key": ("client-key",), "admin_api_key": "admin-key"}


@pytest.fixture(autouse=True)
def _needs_schemathesis() -> None:
    pytest.importorskip("schemathesis", reason="makes the requests")


def test_replies_are_what_the_document_says(start: Start) -> None:
    server = start(MockEngine(says("hello wörld", cut=3)), config=ServerConfig(**KEYS))
    outcome = api.run(server.url, seed=1, examples=5, key="admin-key")
    assert not outcome.failures, outcome.text
    told = server.client.get("/openapi.json", headers=AUTH).json()
    # All but the document itself, which was asked for to begin with.
    assert outcome.operations == sum(map(len, told["paths"].values())) - 1
    assert outcome.requests > 800
    assert server.engine.submitted, "no request was ever accepted"


def test_a_wrong_reply_is_found(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: a document that promises other replies does."""
    from headrace.server.routes import docs

    server = start(MockEngine(says("x")))
    told = server.client.get("/openapi.json").json()
    told["components"]["schemas"]["Model"]["properties"]["id"] = {"type": "integer"}
    told["paths"] = {"/v1/models": told["paths"]["/v1/models"]}
    body = json.dumps(told).encode()
    monkeypatch.setattr(docs, "_document", lambda *_: body)
    outcome = api.run(server.url, seed=1, examples=3)
    assert any("schema" in failure for failure in outcome.failures), outcome.text
