"""Clients of other APIs that the server speaks: Anthropic's, Ollama's and OpenAI's Responses."""

from __future__ import annotations

import pytest

from tests.clients.test_answer_tours import server  # noqa: F401  (a fixture)
from tests.clients.test_tours import _clients_python, _tour
from tests.system.conftest import RunningServer

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("name", ["anthropic", "ollama", "responses"])
def test_dialects(server: RunningServer, name: str) -> None:  # noqa: F811
    _tour(_clients_python(), name, server.url, server.model)
