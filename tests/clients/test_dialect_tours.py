"""Clients of other APIs that the server speaks: Anthropic's, Ollama's and OpenAI's Responses."""

from __future__ import annotations

import httpx2
import pytest

from tests.clients.test_answer_tours import server  # noqa: F401  (a fixture)
from tests.clients.test_tours import _clients_python, _tour
from tests.system.conftest import RunningServer

pytestmark = pytest.mark.clients


@pytest.mark.parametrize(
    ("name", "path"),
    [("anthropic", "/v1/messages"), ("ollama", "/api/chat"), ("responses", "/v1/responses")],
)
def test_dialects(server: RunningServer, name: str, path: str) -> None:  # noqa: F811
    python = _clients_python()
    if httpx2.post(f"{server.url}{path}", json={}).status_code == 404:
        pytest.skip(f"the server has no {path}")
    _tour(python, name, server.url, server.model)
