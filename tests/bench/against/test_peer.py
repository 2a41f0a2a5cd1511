"""What a server is: read from the process that listens, from its addresses, without secrets."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.bench.against import peer
from headrace.bench.against.peer import (
    ServerFacts,
    is_here,
    listening_command,
    masked,
    server_facts,
    with_file,
)
from headrace.bench.client.endpoints import Endpoint
from headrace.embedded import embedded_model


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["a", "--api-key", "sk-1", "-c", "8"], "a --api-key ******** -c 8"),
        (["a", "--api-key=sk-1"], "a --api-key=********"),
        (["a", "--hf-token", "t", "--tokenizer", "path"], "a --hf-token ******** --tokenizer path"),
        (["a", "--max-num-batched-tokens", "512"], "a --max-num-batched-tokens 512"),
        (["a", "--api-key", "--port", "1"], "a --api-key --port 1"),
    ],
)
def test_secrets_of_a_command_line_are_masked(arguments: list[str], shown: str) -> None:
    assert masked(arguments) == shown


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_who_listens_is_found() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        own = Path("/proc/self/cmdline").read_bytes().decode().split("\0")[:-1]
        assert listening_command(url) == masked(own)
    assert listening_command(url) is None
    assert listening_command("http://192.0.2.1:80") is None


def test_only_loopback_is_this_machine() -> None:
    assert is_here("http://localhost:1") and is_here("http://[::1]:1")
    assert not is_here("http://192.0.2.1:1") and not is_here("http://example.com")


def facts_of(monkeypatch: pytest.MonkeyPatch, replies: dict[str, Any]) -> ServerFacts:
    """Of a server that answers so at these addresses and nowhere else."""

    async def reply(_endpoint: Endpoint, path: str) -> tuple[int, bytes] | None:
        return (200, json.dumps(replies[path]).encode()) if path in replies else (404, b"")

    monkeypatch.setattr(peer, "_get", reply)
    endpoint = Endpoint(kind="openai-completions", base_url="http://192.0.2.1:80", model="m")
    return asyncio.run(server_facts(endpoint))


def test_llama_server_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    meta = {"n_params": 596, "size": 634, "ftype": "Q8_0"}
    found = facts_of(
        monkeypatch,
        {
            "/props": {
                "build_info": "b1-abc",
                "total_slots": 4,
                "default_generation_settings": {"n_ctx": 512},
            },
            "/v1/models": {"data": [{"id": "n"}, {"id": "m", "meta": meta}]},
        },
    )
    assert found.build == "llama.cpp b1-abc"
    assert (found.parameters, found.weight_bytes) == (596, 634)
    assert (found.slots, found.context) == (4, 512)


def test_other_servers_say_their_owner_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {"data": [{"id": "m", "owned_by": "vllm"}]}
    found = facts_of(monkeypatch, {"/version": {"version": "1.2"}, "/v1/models": models})
    assert (found.build, found.parameters, found.weight_bytes) == ("vllm 1.2", None, None)


def test_sizes_of_ours_are_those_of_its_file() -> None:
    found = with_file(ServerFacts(url="http://127.0.0.1:1"), embedded_model())
    size = embedded_model().stat().st_size
    assert found.weight_bytes is not None and 0.9 * size < found.weight_bytes < size
    # Q8_0 takes 34 bytes for 32 values.
    assert found.parameters == pytest.approx(found.weight_bytes * 32 / 34, rel=0.02)
