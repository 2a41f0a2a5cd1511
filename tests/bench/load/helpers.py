"""Runs against the mock for tests of the load generator."""

from __future__ import annotations

from typing import Any

from headrace.bench.client.endpoints import Endpoint, build_request
from headrace.bench.client.limits import ClientLimits
from headrace.bench.client.load_client import LoadClient
from headrace.bench.client.prompt import Prompt
from headrace.bench.load.conversations import Conversation, conversations
from headrace.bench.load.plan import LoadPlan
from headrace.bench.load.runner import LoadRunner
from headrace.bench.record import RequestRecord
from headrace.bench.workload import AWAITED_ANSWER, WorkItem

MS = 1_000_000
QUICK: dict[str, Any] = {"ttft_ms": 2, "tpot_ms": 1}


def endpoint(url: str, **fields: Any) -> Endpoint:
    return Endpoint(**{"kind": "openai-chat", "model": "m", "base_url": url, **fields})


def items(count: int, word: str = "prompt", tokens: int = 3) -> list[WorkItem]:
    return [WorkItem(prompt=Prompt(text=f"{word} {at}", max_tokens=tokens)) for at in range(count)]


def singles(count: int, word: str = "prompt", tokens: int = 3) -> list[Conversation]:
    return conversations(items(count, word, tokens))


def talk(session: int, turns: int, *, think_ms: float = 0) -> list[WorkItem]:
    """A conversation whose later turns hold the answers to the earlier ones."""
    messages: list[dict[str, Any]] = []
    made = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"question {session}.{turn}"})
        made.append(
            WorkItem(
                prompt=Prompt(messages=tuple(messages), max_tokens=2),
                session=session,
                turn=turn,
                think_ns=round(think_ms * MS) if turn else 0,
            )
        )
        messages.append({"role": "assistant", "content": AWAITED_ANSWER})
    return made


def make_runner(
    url: str,
    plan: LoadPlan,
    workload: list[Conversation],
    warmup: list[Conversation] | None = None,
    **limits: Any,
) -> LoadRunner:
    at = endpoint(url)
    origin = build_request(at, workload[0][0].prompt).origin
    client = LoadClient(origin, ClientLimits(**limits))
    return LoadRunner(client, at, plan, workload, warmup or [])


async def run_plan(
    url: str,
    plan: LoadPlan,
    workload: list[Conversation],
    warmup: list[Conversation] | None = None,
    **limits: Any,
) -> list[RequestRecord]:
    runner = make_runner(url, plan, workload, warmup, **limits)
    try:
        return await runner.run()
    finally:
        await runner.client.close()
