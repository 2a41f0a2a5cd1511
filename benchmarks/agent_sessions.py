"""Recorded agent sessions replayed turn by turn: what each turn computes beside what is new in it.

    python -m benchmarks.agent_sessions --assets FOLDER [--llama FOLDER] [--models NAME ...]

Turn k sends a recorded conversation (system prompt, tools, thoughts, calls and their results) as it
was before the assistant's k-th message, through `/v1/chat/completions`, `/v1/messages` (with the
billing line that Claude Code changes in each request) and `/v1/responses` (whole, and with
`previous_response_id` and what is new alone, the model's own answers carried on, without tools), by
one agent and by four at once that share system
prompt and tools. A chat template keeps earlier thoughts or strips them once the user speaks again.

- new: prompt tokens less the longest common beginning with anything that was computed before in the
  same session, its answers included;
- computed: prompt tokens less those that the answer's own usage calls cached; the engine's counter
  of computed tokens must agree over all of a cell;
- bits: the answer equals the chat API's to the same conversation under a fresh cache salt: token
  ids and log probabilities through chat, what the client reads through the others, whose prompts
  must be as long as the chat's.

Figures are of turns from the second on. Texts are cut to a model's context (printed). llama-server
serves the same file with the same templates; its computed and cached tokens are those of its
`timings`, and its prompts those of its own templates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.agents.dialects import Answer
from benchmarks.agents.models import MODELS, AgentModel, agent_model
from benchmarks.agents.peer import replay_peer, start_peer
from benchmarks.agents.recorded import Conversation, agents_of, read_conversation
from benchmarks.agents.replay import Cold, Replay, named_dialects
from benchmarks.llamacpp.build import Peer
from benchmarks.markdown import surroundings, surroundings_line, table, tell
from tests.system.conftest import RunningServer, start_server, stop_server

TRACES = ("agentic_code_29.json", "agentic_curl_16.json")
BLOCK = 16
"""Tokens in a block of the servers' KV caches: the least, so that the aim is hardest."""
_DRAFTS = "vllm:spec_decode_num_draft_tokens_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"


def _computed(server: RunningServer) -> float:
    """Tokens computed since the start, without drafts that were not accepted."""
    now = server.metrics()
    return now["headrace:computed_tokens_total"] - now[_DRAFTS] + now[_ACCEPTED]


class Turn(NamedTuple):
    """A turn of an agent in a cell."""

    prompt: int
    new: int
    computed: int
    ttft_s: float
    equal: bool | None
    """Whether the answer is a cold start's; None of llama-server's, which are not compared."""


class Cell(NamedTuple):
    """The turns of all agents from the second on, through one API of one model."""

    model: str
    thoughts: str
    agents: int
    api: str
    turns: list[Turn]
    counter_agrees: bool | None

    def row(self) -> list[object]:
        """Of the table."""
        if not self.turns:
            return [self._name(), *["-"] * (len(COLUMNS) - 1)]
        times = sorted(turn.ttft_s * 1e3 for turn in self.turns)
        p95 = times[min(len(times) - 1, int(0.95 * len(times)))]
        equal = [turn.equal for turn in self.turns if turn.equal is not None]
        counter = {None: "-", True: "yes", False: "NO"}[self.counter_agrees]
        return [
            self._name(),
            f"{sum(turn.prompt for turn in self.turns):,}",
            f"{sum(turn.new for turn in self.turns):,}",
            f"{sum(turn.computed for turn in self.turns):,}",
            max(turn.computed - turn.new for turn in self.turns),
            f"{statistics.median(times):,.0f}",
            f"{p95:,.0f}",
            f"{sum(equal)}/{len(equal)}" if equal else "-",
            counter,
        ]

    def _name(self) -> str:
        return f"{self.model}, {self.thoughts}, {self.agents}, {self.api}"


COLUMNS = (
    "model, thoughts, agents, API",
    "prompt tokens",
    "new",
    "computed",
    "most over new in a turn",
    "TTFT p50, ms",
    "p95, ms",
    "bits equal",
    "counter agrees",
)


def common(ids: Sequence[int], before: Sequence[Sequence[int]]) -> int:
    """Tokens that `ids` begins with which any of `before` begins with too."""
    most = 0
    for other in before:
        length = min(len(ids), len(other))
        differ = next((i for i in range(length) if ids[i] != other[i]), length)
        most = max(most, differ)
    return most


def judge(answers: list[Answer], cold: list[Answer] | None) -> list[Turn]:
    """The turns of one agent from the second on; without `cold` answers are not compared."""
    turns: list[Turn] = []
    before: list[list[int]] = []
    for number, answer in enumerate(answers):
        reference = answer if cold is None else cold[number]
        ids = reference.prompt_ids
        if len(ids) != answer.prompt_tokens:
            raise RuntimeError(f"turn {number + 1}: {answer.prompt_tokens} tokens, not {len(ids)}")
        new = len(ids) - common(ids, before)
        equal = None if cold is None else _equal(answer, reference)
        computed = answer.prompt_tokens - answer.cached_tokens
        turns.append(Turn(len(ids), new, computed, answer.ttft_s, equal))
        before.append(ids + reference.ids)
    return turns[1:]


def _equal(answer: Answer, cold: Answer) -> bool:
    if answer.visible != cold.visible:
        return False
    if answer.ids:
        return (answer.ids, answer.logprobs) == (cold.ids, cold.logprobs)
    # Those of text parts alone.
    return not answer.logprobs or answer.logprobs == cold.logprobs


def own_cell(
    server: RunningServer, name: str, thoughts: str, api: str,
    agents: list[Conversation], cold: Cold, tokens: int,
) -> Cell:  # fmt: skip
    """One cell of ours."""
    dialect, stored = named_dialects()[api]
    salt = f"{thoughts} {len(agents)} {api}"
    replay = Replay(server.url, server.model, dialect, agents, tokens, salt, stored=stored)
    before = _computed(server)
    asyncio.run(replay.run())
    time.sleep(0.3)
    counted = _computed(server) - before
    answers = [answer for of_agent in replay.answers for answer in of_agent]
    # Of an answer every token but the last is an input too.
    told = sum(a.prompt_tokens - a.cached_tokens + a.output_tokens - 1 for a in answers)
    turns: list[Turn] = []
    for agent, of_agent, prompts in zip(agents, replay.answers, replay.prompts, strict=True):
        tools = [] if stored else agent.tools
        references = [asyncio.run(cold.answer(prompt, tools)) for prompt in prompts]
        turns += judge(of_agent, references)
    return Cell(name, thoughts, len(agents), api, turns, counted == told)


def peer_cell(
    peer: Peer, model: AgentModel, name: str, thoughts: str,
    agents: list[Conversation], tokens: int,
) -> Cell:  # fmt: skip
    """The same of llama-server, started for this cell; no turns where it died of them."""
    threads = len(os.sched_getaffinity(0))
    template = model.templates[thoughts]
    process, url = start_peer(peer.tool("llama-server"), model, template, len(agents), threads)
    try:
        answers = asyncio.run(replay_peer(url, agents, tokens))
    except httpx.TransportError as error:
        time.sleep(1.0)
        tell(f"llama-server: {error}; its exit status: {process.poll()}")
        answers = []
    finally:
        process.terminate()
        process.wait(timeout=30)
    if not all(answer.prompt_tokens for of_agent in answers for answer in of_agent):
        tell("llama-server: an answer ended without its timings")
        answers = []
    turns = [turn for of_agent in answers for turn in judge(of_agent, None)]
    return Cell(name, thoughts, len(agents), "llama-server", turns, None)


def measure(name: str, options: argparse.Namespace, folder: Path) -> list[Cell]:
    """All cells of a model."""
    model = agent_model(name, options.assets, folder)
    lengths = model.lengths
    given = {"turns": options.turns, "text_characters": options.text_characters}
    lengths = lengths._replace(**{key: value for key, value in given.items() if value})
    tell(f"{name}: {lengths}")
    traces = options.assets / "traces" / "agentic-prompts"
    recorded = [
        read_conversation(traces / trace, lengths, one_text=model.one_text) for trace in TRACES
    ]
    cells = []
    for thoughts, template in model.templates.items():
        flags = ["--chat-template", str(template), "--max-model-len", str(model.context)]
        flags += ["--block-size", str(BLOCK)]
        server = start_server(model.path, *flags)
        try:
            cold = Cold(server.url, server.model, options.tokens)
            for count in options.agents:
                agents = agents_of(recorded, count)
                for api in named_dialects():
                    tell(f"{name}, thoughts {thoughts}, {count} at once, {api}")
                    cells.append(
                        own_cell(server, name, thoughts, api, agents, cold, options.tokens)
                    )
        finally:
            stop_server(server)
        for count in options.agents if options.llama else ():
            tell(f"{name}, thoughts {thoughts}, {count} at once, llama-server")
            agents = agents_of(recorded, count)
            peer = _peer(options.llama)
            cells.append(peer_cell(peer, model, name, thoughts, agents, options.tokens))
    return cells


def _peer(folder: Path) -> Peer:
    from benchmarks.llamacpp.build import built

    return built(folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--assets", type=Path, required=True, help="folder of public test material")
    parser.add_argument("--llama", type=Path, help="folder of the built llama.cpp")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--tokens", type=int, default=16, help="most tokens of an answer")
    parser.add_argument("--turns", type=int, help="most turns of a session")
    parser.add_argument("--text-characters", type=int, help="most characters of a text")
    parser.add_argument("--folder", type=Path, help="where models are kept")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    facts = surroundings(datetime.now(UTC))
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.models:
            cells += measure(name, options, options.folder or Path(scratch))
            tell(table(COLUMNS, [cell.row() for cell in cells if cell.model == name]))
    if options.json:
        print(json.dumps({"facts": facts, "cells": [_plain(cell) for cell in cells]}))
        return
    print(table(COLUMNS, [cell.row() for cell in cells]))
    print(f"\n{surroundings_line(facts)}")
    if missed := [cell for cell in cells if not _holds(cell)]:
        print(f"{len(missed)} cells of ours miss the aim")
        sys.exit(1)


def _holds(cell: Cell) -> bool:
    """Whether no turn computes more than is new and a block, and all are a cold start's."""
    if cell.counter_agrees is None:
        return True
    return all(turn.equal and turn.computed <= turn.new + BLOCK for turn in cell.turns)


def _plain(cell: Cell) -> dict[str, Any]:
    return {**cell._asdict(), "turns": [turn._asdict() for turn in cell.turns]}


if __name__ == "__main__":
    main()
