"""An agent's session through each dialect: a turn computes what is new in it, as from a cold start.

The same measurement on recorded sessions and other models: benchmarks/agent_sessions.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from benchmarks.agent_sessions import BLOCK, common, own_cell
from benchmarks.agents.dialects import BILLING, Messages
from benchmarks.agents.recorded import Conversation, Message, agents_of
from benchmarks.agents.replay import Cold, Replay, named_dialects
from tests.system.conftest import RunningServer, start_server, stop_server

pytestmark = pytest.mark.process

TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file of the project.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
            "required": ["path"],
        },
    },
}
MESSAGES: list[Message] = [
    {"role": "system", "content": "You help with Python. " * 8},
    {"role": "user", "content": "What does main.py do?"},
    {
        "role": "assistant",
        "content": "",
        "reasoning_content": "I have to read it first.",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "read_file", "arguments": '{"path":"main.py", "lines": 20}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "import os\n\nprint(os.getcwd())\n"},
    {
        "role": "assistant",
        "content": "It prints the working directory.",
        "reasoning_content": "One call of os.getcwd.",
    },
    {"role": "user", "content": "And how do I change it?"},
]
SESSION = Conversation(MESSAGES, [TOOL], [2, 4, 6])
TOKENS = 12


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = start_server(None, "--block-size", str(BLOCK))
    yield server
    assert stop_server(server) == 0


@pytest.fixture(scope="module")
def cold(server: RunningServer) -> Cold:
    return Cold(server.url, server.model, TOKENS)


@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("api", named_dialects())
def test_a_turn_computes_what_is_new_and_answers_as_a_cold_start(
    server: RunningServer, cold: Cold, api: str, agents: int
) -> None:
    cell = own_cell(server, "base", "kept", api, agents_of([SESSION], agents), cold, TOKENS)
    assert len(cell.turns) == 2 * agents
    for turn in cell.turns:
        assert turn.equal
        assert 0 < turn.computed <= turn.new + BLOCK < turn.prompt
    assert cell.counter_agrees


def test_a_billing_line_that_changes_costs_no_prefix(server: RunningServer) -> None:
    bodies = [Messages().body(SESSION.turn(0), SESSION.tools, turn) for turn in (0, 1)]
    lines = [body["system"][0]["text"] for body in bodies]
    assert lines == [BILLING.format(turn=turn) for turn in (0, 1)] and lines[0] != lines[1]
    replay = Replay(server.url, server.model, Messages(), [SESSION], TOKENS, "billing")
    asyncio.run(replay.run())
    second = replay.answers[0][1]
    assert second.cached_tokens >= replay.answers[0][0].prompt_tokens


def test_the_longest_common_beginning_is_counted() -> None:
    assert common([1, 2, 3], [[1, 2], [1, 2, 4], [2]]) == 2
    assert common([1, 2], []) == 0
