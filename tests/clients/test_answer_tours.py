"""Answers that programs read, by the clients they are read with: calls, schemas, typed agents.

Every tour asserts on what the model that ships answers: calls of the right name with arguments that
validate, objects of the schema, and streams that add up to the whole.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.test_tours import _clients_python, _tour
from tests.system.conftest import serve  # noqa: F401  (a fixture)

pytestmark = pytest.mark.clients


def test_openai_of_the_tests(serve: Callable[..., Any]) -> None:  # noqa: F811
    """The newest major version, which the other clients do not take yet."""
    server = serve(None)
    _tour(sys.executable, "openai_answers", server.url, server.model)


@pytest.mark.parametrize(
    "name",
    [
        "openai_answers",
        "langchain_answers",
        "llama_index_answers",
        "litellm_answers",
        "instructor_answers",
        "pydantic_ai",
        "agents",
    ],
)
def test_answers(serve: Callable[..., Any], name: str) -> None:  # noqa: F811
    python = _clients_python()
    server = serve(None)
    _tour(python, name, server.url, server.model)
