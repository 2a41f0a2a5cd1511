"""Answers that programs read, by the clients they are read with: calls, schemas, typed agents.

Every tour asserts on what the model that ships answers: calls of the right name with arguments that
validate, objects of the schema, and streams that add up to the whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.clients.test_tours import _clients_python, _tour
from tests.system.conftest import RunningServer, start_server, stop_server

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """The model that ships, served once for all tours of a file."""
    running = start_server(None)
    yield running
    stop_server(running)


def test_openai(server: RunningServer) -> None:
    """The major version that the tests' own environment has; the other clients bring an older."""
    _tour(sys.executable, "openai_answers", server.url, server.model)


@pytest.mark.parametrize(
    "name",
    [
        "langchain_answers",
        "llama_index_answers",
        "litellm_answers",
        "instructor_answers",
        "pydantic_ai",
        "agents",
    ],
)
def test_answers(server: RunningServer, name: str) -> None:
    _tour(_clients_python(), name, server.url, server.model)
