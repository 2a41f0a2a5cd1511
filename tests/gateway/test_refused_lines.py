"""Requests that are refused before they are anybody's turn leave a line, if they have a key."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.accounts.parts import KEY, OTHER_KEY, accounts_of, hierarchy
from tests.gateway.harness import ask, gateway

SETTINGS: dict[str, Any] = {
    "providers": {"a": "http://127.0.0.1:9/v1"},
    "models": {"chat": ["a/m"]},
    "listen": {"max_body_bytes": 2048},
}
LARGE = b'{"model": "chat", "input": "' + b"x" * 2048 + b'"}'


@pytest.mark.parametrize(
    ("path", "body", "status", "operation", "says"),
    [
        ("/v1/chat/completions", b"{", 400, "chat", "not valid JSON"),
        ("/v1/chat/completions", b'{"messages": []}', 400, "chat", "model: a name"),
        ("/v1/messages", b'{"model": "chat", "stream": 7}', 400, "chat", "stream: true or"),
        ("/v1/completions", LARGE, 413, "text_completion", "more than 2,048 bytes"),
        ("/v1/embeddings", b"[1]", 400, "embeddings", "JSON object"),
        ("/v1/embeddings", b'{"model": "chat"}', 400, "embeddings", "input"),
        ("/v1/embeddings", LARGE, 413, "embeddings", "more than 2,048 bytes"),
    ],
)
async def test_a_body_that_cannot_be_read(
    path: str, body: bytes, status: int, operation: str, says: str
) -> None:
    entries: list[Entry] = []
    accounts = accounts_of(hierarchy())
    await accounts.start()
    built = gateway(SETTINGS, entries, accounts=accounts)
    headers = {"authorization": f"Bearer {KEY}", "x-request-id": "req-of-mine"}
    assert (await ask(built.app, body, path=path, headers=headers)).status == status
    (entry,) = entries
    assert (entry.outcome, entry.status, entry.operation) == ("refused", status, operation)
    assert (entry.id, entry.key, entry.team) == ("req-of-mine", "k", "red")
    assert says in entry.error and entry.cost_nusd is None and entry.usage is None
    # Who has no key, or a wrong one, fills no disk.
    for other in ({}, {"authorization": f"Bearer {OTHER_KEY}"}):
        assert (await ask(built.app, body, path=path, headers=other)).status == 401
    built.close()
    assert len(entries) == 1


@pytest.mark.parametrize("access", [{}, {"anonymous": {"limits": [{"rpm": 9}]}}])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_where_no_keys_are_asked_for_strangers_leave_none(
    path: str, access: dict[str, Any]
) -> None:
    entries: list[Entry] = []
    settings = {**SETTINGS, "access": {"require_key": False, **access}}
    built = gateway(settings, entries)
    for body, status in ((b"{", 400), (LARGE, 413)):
        assert (await ask(built.app, body, path=path)).status == status
    built.close()
    assert not entries


async def test_what_leaves_no_lines_leaves_none_when_it_is_refused() -> None:
    entries: list[Entry] = []
    accounts = accounts_of(hierarchy())
    await accounts.start()
    built = gateway(SETTINGS, entries, accounts=accounts)
    headers = {"authorization": f"Bearer {KEY}"}
    for path in ("/v1/messages/count_tokens", "/v1/responses/input_tokens", "/api/show"):
        for body in (b"{", LARGE):
            told = await ask(built.app, body, path=path, headers=headers)
            assert told.status in (400, 413), path
    built.close()
    assert not entries
