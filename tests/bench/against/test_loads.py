"""Loads of two servers: the same prompts for both, others in every run and case."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from headrace.bench.against.cases import AgainstCase
from headrace.bench.against.loads import Loads
from headrace.bench.client.endpoints import Endpoint
from headrace.bench.load.tokenization import ClientTokenization, load_tokenization
from tests.cli.bench.test_load import mock

A, B = (AgainstCase(name, 2, 8, 1, "prefill") for name in "ab")
NOW = datetime(2026, 11, 29, tzinfo=UTC)


@pytest.fixture(scope="module")
def tokenization() -> ClientTokenization:
    return load_tokenization(None)


def prompts_of(seed: int, tokenization: ClientTokenization) -> list[str]:
    """What a server is sent for A, A and B."""
    with mock() as server:
        endpoint = Endpoint(kind="openai-completions", base_url=server.url, model="mock")
        loads = Loads(endpoint, tokenization, seed=seed, request_timeout_s=60, now=lambda: NOW)
        for case in (A, A, B):
            assert loads(case).summary.requests.completed == 2
        return [json.loads(request.body)["prompt"] for request in server.received]


# Each of nine runs collects the garbage of the whole process first, that of other tests too.
@pytest.mark.long
def test_servers_of_one_seed_have_the_same_prompts_and_none_twice(
    tokenization: ClientTokenization,
) -> None:
    ours, peer = prompts_of(7, tokenization), prompts_of(7, tokenization)
    assert sorted(ours) == sorted(peer)
    assert len(set(ours)) == 6
    assert set(ours).isdisjoint(prompts_of(8, tokenization))
