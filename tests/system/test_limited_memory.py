"""The largest body on every route of a server whose memory is limited: refused or answered, and
the server lives, as large afterwards as before."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from headrace.config import ServerConfig
from headrace.server.app import ROUTES
from headrace.server.model.served import MIN_TEXT_TOKENS
from tests.system.conftest import RunningServer, start_server, stop_server
from tests.waiting import runs, wait_until

pytestmark = [pytest.mark.process, pytest.mark.load]

ADDRESS_SPACE_BYTES = 2_000_000 * 1024
"""`ulimit -v 2000000`, at which one body once ended the server."""

KEY, ADMIN_KEY = "k" * 32, "a" * 32
BODY_BYTES = ServerConfig().max_body_bytes
# Of allocators' arenas and caches, after hundreds of megabytes came and went: some 160 MB. Without
# slices and trimming a server stayed 1.1 to 1.7 GB larger.
GROWTH_BYTES = 256 * 2**20
# A restart would end the engine that the others need: it reads no body.
PATHS = [path for method, path, _ in ROUTES if method == "POST" and "restart" not in path]
# Where a field is read; other bodies go to every route.
READERS = {
    b'"prompt":': ["/v1/completions", "/tokenize", "/completion", "/infill", "/api/generate"],
    b'"messages":': [
        "/v1/chat/completions",
        "/tokenize",
        "/apply-template",
        "/v1/messages",
        "/api/chat",
    ],
    b'"tokens":': ["/detokenize"],
}
EVERYWHERE = ("names",)
"""What a route does not know costs it most as hundreds of thousands of fields: a long value of a
field that it does not read is passed over."""


def _filled(before: str, unit: str, after: str, most: int = BODY_BYTES) -> bytes:
    return (before + unit * ((most - len(before) - len(after)) // len(unit)) + after).encode()


BODIES: dict[str, Callable[[], bytes]] = {
    "words": lambda: _filled('{"prompt":"', "word ", '"}'),
    "words and their names": lambda: _filled(
        '{"return_token_strs":true,"prompt":"', "wor d ", '"}'
    ),
    "words to be cut": lambda: _filled('{"truncate_prompt_tokens":9,"prompt":"', "word ", '"}'),
    "as many words as are tokenized": lambda: _filled(
        '{"return_token_strs":true,"prompt":"', " a", '"}', 2 * MIN_TEXT_TOKENS
    ),
    "a line": lambda: _filled('{"prompt":"', "a", '"}'),
    "blanks": lambda: _filled('{"prompt":"', " ", 'x"}'),
    "escapes": lambda: _filled('{"prompt":"', "\\n[:,", '"}'),
    "many prompts": lambda: json.dumps({"prompt": ["word " * 3200] * 1024}).encode(),
    "a message": lambda: _filled('{"messages":[{"role":"user","content":"', "word ", '"}]}'),
    "a message of beginnings": lambda: _filled(
        '{"messages":[{"role":"user","content":"', "<b", '"}]}', 4_000_000
    ),
    "messages": lambda: json.dumps(
        {"messages": [{"role": "user", "content": "word " * 40}] * 36_000}
    ).encode(),
    "ids": lambda: _filled('{"prompt":[', "1,", "1]}"),
    "ids to text": lambda: _filled('{"tokens":[', "1,", "1]}"),
    "as many ids as are taken": lambda: _filled(
        '{"max_tokens":1,"truncate_prompt_tokens":9,"prompt":[', "77,", "77]}", 3 * MIN_TEXT_TOKENS
    ),
    "as many ids to text as are taken": lambda: _filled(
        '{"tokens":[', "77,", "77]}", 3 * MIN_TEXT_TOKENS
    ),
    "biases": lambda: json.dumps(
        {"prompt": "x", "logit_bias": {str(number): 1.5 for number in range(500_000)}}
    ).encode(),
    "names": lambda: json.dumps(
        {"prompt": "x", **{f"{number:012}": 1 for number in range(700_000)}}
    ).encode(),
    "an id of a request": lambda: _filled('{"request_id":"', "x", '"}'),
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """The embedded model within the limit, which the engine's process has too."""
    flags = ("--api-key", KEY, "--admin-api-key", ADMIN_KEY)
    server = start_server(None, *flags, address_space_bytes=ADDRESS_SPACE_BYTES)
    yield server
    assert stop_server(server) == 0


def _resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def _post(server: RunningServer, path: str, content: bytes) -> httpx.Response:
    key = ADMIN_KEY if path.startswith("/admin") else KEY
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    return httpx.post(server.url + path, content=content, headers=headers, timeout=120)


def _readers(body: bytes) -> list[str]:
    return next((paths for field, paths in READERS.items() if field in body), PATHS)


def _usual(server: RunningServer) -> object:
    fields = {"prompt": "import os\n", "max_tokens": 4, "temperature": 0}
    return _post(server, "/v1/completions", json.dumps(fields).encode()).json()["choices"]


def test_no_body_ends_it_or_leaves_it_large(server: RunningServer) -> None:
    pid = server.process.pid
    usual = _usual(server)
    assert {path for paths in READERS.values() for path in paths} <= {*PATHS}
    assert _post(server, "/tokenize", b'{"prompt":"x"}').status_code == 200
    begun_bytes = _resident_bytes(pid)
    seen: dict[tuple[str, str], object] = {}
    for name, make in BODIES.items():
        body = make()
        assert len(body) <= BODY_BYTES
        for path in PATHS if name in EVERYWHERE else _readers(body):
            reply = _post(server, path, body)
            seen[name, path] = reply.status_code
            if reply.status_code != 200:
                assert reply.status_code < 500, (name, path, reply.text[:300])
                error = reply.json()["error"]  # a string in Ollama's form
                assert isinstance(error, str) or "message" in error
                assert len(reply.content) < 5000
            assert runs(pid)
    assert _usual(server) == usual
    assert seen["words", "/tokenize"] == seen["words and their names", "/tokenize"] == 400
    assert seen["words to be cut", "/v1/completions"] == 400
    assert seen["as many words as are tokenized", "/tokenize"] == 200
    assert seen["as many ids to text as are taken", "/detokenize"] == 200
    assert seen["as many ids as are taken", "/v1/completions"] == 200
    wait_until(
        lambda: _resident_bytes(pid) < begun_bytes + GROWTH_BYTES,
        lambda: f"small again: {_resident_bytes(pid) - begun_bytes} bytes more than before",
        patience_s=20,
    )


def test_large_bodies_at_once_do_not_end_it_either(server: RunningServer) -> None:
    kinds = ("words", "as many words as are tokenized", "ids", "biases", "a message")
    with ThreadPoolExecutor(8) as clients:
        began_s = time.monotonic()
        replies = [
            clients.submit(_post, server, path, BODIES[name]())
            for name in kinds
            for path in ("/tokenize", "/v1/completions")
            for _ in range(2)
        ]
        statuses = [reply.result(180).status_code for reply in replies]
    assert all(status in (200, 400, 429) for status in statuses), statuses
    assert time.monotonic() - began_s < 180
    assert runs(server.process.pid) and _usual(server)
