"""instructor needs a model that answers in JSON: here one that says nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from tests.clients.test_tours import clients_python, run_tours
from tests.server.conftest import MODEL, start, tokenizer, uvicorn_thread  # noqa: F401  (fixtures)
from tests.server.mock_engine import INFO, MockEngine, says


@pytest.mark.clients
def test_instructor(start: Callable[..., Any]) -> None:  # noqa: F811
    python = clients_python()
    answer = '```json\n{"name": "Ada", "age": 36}\n```'
    info = structs.replace(INFO, max_model_len=4096, pool_tokens=4096)  # its prompt has a schema
    server = start(MockEngine(says(answer, cut=3), info=info))
    run_tours(python, server.url, MODEL, "instructor")
