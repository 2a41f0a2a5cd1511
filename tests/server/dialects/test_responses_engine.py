"""Turns of a conversation on a whole server with the model that ships: what is computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.embedded import embedded_model
from headrace.errors import HeadraceError
from tests.server.serve_process import Process, spawn

pytestmark = pytest.mark.process

BLOCK_TOKENS = 16


@pytest.fixture(scope="module")
def model() -> Path:
    try:
        return embedded_model()
    except HeadraceError as error:
        pytest.skip(f"this build has no embedded model: {error}")


def answered(server: Process, **fields: Any) -> dict[str, Any]:
    body = {"model": server.ready["model"], "temperature": 0, "max_output_tokens": 24, **fields}
    reply = server.post("/v1/responses", **body)
    assert reply.status_code == 200, reply.text
    told: dict[str, Any] = reply.json()
    return told


def whole_blocks(tokens: int) -> int:
    return tokens // BLOCK_TOKENS * BLOCK_TOKENS


def test_a_later_turn_computes_its_new_tokens_and_a_restart_forgets_nothing(
    model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "responses.db"
    settings: dict[str, Any] = {"backend": "cpu", "responses_store": str(path)}
    server = spawn(model, **settings).wait_ready()
    words = "Tell me what a river does, from its spring to the sea, in a few plain words."
    first = answered(server, input=words, instructions="You answer briefly and plainly.")
    second = answered(
        server,
        input="And then?",
        instructions="You answer briefly and plainly.",
        previous_response_id=first["id"],
    )
    usage = first["usage"]
    known = usage["input_tokens"] + usage["output_tokens"] - 1
    cached = second["usage"]["input_tokens_details"]["cached_tokens"]
    assert cached >= whole_blocks(usage["input_tokens"])
    assert whole_blocks(known) - cached <= BLOCK_TOKENS
    assert server.end()[0] == 0

    server = spawn(model, **settings).wait_ready()
    third = answered(server, input="Thank you.", previous_response_id=second["id"])
    assert third["previous_response_id"] == second["id"]
    assert third["usage"]["input_tokens"] > known
    missing = server.post("/v1/responses", model=server.ready["model"], input="x",
                          previous_response_id="resp_none")  # fmt: skip
    assert missing.status_code == 400
    code, err = server.end()
    assert code == 0
    assert "Traceback" not in err
