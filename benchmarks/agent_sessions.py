"""What a session of an agent computes from its second turn on.

    python -m benchmarks.agent_sessions --sessions FOLDER --template FILE [--vocabulary FOLDER]
        [--llama FOLDER] [--turns 6] [--json]

FOLDER has recorded sessions (bodies of chat requests whose messages grow: system, tools, answers
with reasoning and calls, results), the template is Qwen3's. Turn k sends the recorded conversation
up to its k-th answer and has 16 tokens generated. Every session goes through /v1/chat/completions
with the reasoning of earlier answers and without, through /v1/messages with a billing line that
changes each turn, and through /v1/responses; alone, and four sessions at once.

    new       tokens of the prompt behind the longest beginning that a turn before it computed
    computed  tokens of the prompt that the server did not find in its cache, as it reports them

Aim: computed <= new + one block. Every turn through chat is sent again with a salt of its own, a
cold start: its tokens and log probabilities have to be the same. With --llama (a folder built by
`python -m benchmarks.llamacpp.build`) llama-server serves the same file and the same chat requests,
with --kv-unified --cache-ram 8192 --ctx-checkpoints 32. The model is of Qwen3's shape, small, with
random weights; texts are cut to --chars characters, so that a run takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))

from shaped_model import Shape, mixture, tensors, tokenizer

from headrace.weights.gguf_writer import write_gguf_file

SHAPE = Shape(256, 4, 8, 4, 64, 512, 151936)
NEW_TOKENS = 16
AGENTS = 4
BLOCK_TOKENS = 16
READY_S = 120.0

Body = dict[str, Any]


class Turn(NamedTuple):
    """What one turn of a session came to."""

    prompt_tokens: int
    new_tokens: int | None
    """None for the first turn."""
    computed_tokens: int
    ttft_s: float
    is_exact: bool | None
    """Whether a cold start gave the same; None where none was made."""


class Way(NamedTuple):
    """An API by which sessions are sent."""

    name: str
    path: str
    body: Callable[[Body, int], Body]
    """From the body of a chat request and the turn's number to that of the API."""
    usage: Callable[[Body], tuple[int, int]]
    """Prompt tokens of a reply's usage, and how many of them were cached."""


def shortened(value: Any, chars: int) -> Any:
    """The same with every text cut."""
    if isinstance(value, str):
        return value[:chars]
    if isinstance(value, list):
        return [shortened(item, chars) for item in value]
    if isinstance(value, dict):
        keep = {"arguments", "id", "tool_call_id", "name", "role", "type"}
        return {k: v if k in keep else shortened(v, chars) for k, v in value.items()}
    return value


def turns_of(session: Body, most: int, chars: int) -> Iterator[Body]:
    """The chat requests of a session, each up to an answer that was recorded."""
    messages = [shortened(message, chars) for message in session["messages"]]
    tools = shortened(session["tools"], chars)
    count = 0
    for index, message in enumerate(messages):
        if message["role"] == "assistant" and count < most:
            count += 1
            yield {"messages": messages[:index], "tools": tools}


def without_reasoning(body: Body) -> Body:
    """The request with answers as clients send them that keep no reasoning."""
    dropped = {"reasoning_content", "reasoning"}
    return {
        **body,
        "messages": [
            {key: value for key, value in message.items() if key not in dropped}
            for message in body["messages"]
        ],
    }


def chat_body(body: Body, turn: int) -> Body:
    """A request to /v1/chat/completions."""
    return {**body, "max_tokens": NEW_TOKENS, "temperature": 0, "logprobs": True, "seed": 0,
            "top_logprobs": 1, "return_token_ids": True, "return_metrics": True}  # fmt: skip


def messages_body(body: Body, turn: int) -> Body:
    """A request to /v1/messages, as Claude Code begins it."""
    billing = f"x-anthropic-billing-header: cc_version=2.1.0; cch={turn:05d};"
    system = [{"type": "text", "text": billing}]
    turns: list[Body] = []
    for message in without_reasoning(body)["messages"]:
        role, text = message["role"], message.get("content") or ""
        if role == "system":
            system.append({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}})
        elif role == "tool":
            result = {
                "type": "tool_result",
                "tool_use_id": message["tool_call_id"],
                "content": text,
            }
            if turns and turns[-1]["role"] == "user" and turns[-1]["content"][0]["type"] != "text":
                turns[-1]["content"].append(result)
            else:
                turns.append({"role": "user", "content": [result]})
        else:
            parts: list[Body] = [{"type": "text", "text": text}] if text else []
            for call in message.get("tool_calls") or ():
                function = call["function"]
                parts.append({"type": "tool_use", "id": call["id"], "name": function["name"],
                              "input": json.loads(function["arguments"] or "{}")})  # fmt: skip
            turns.append({"role": role, "content": parts or [{"type": "text", "text": " "}]})
    tools = [
        {
            "name": tool["function"]["name"],
            "description": tool["function"].get("description", ""),
            "input_schema": tool["function"].get("parameters") or {"type": "object"},
        }
        for tool in body["tools"]
    ]
    return {"system": system, "messages": turns, "tools": tools, "max_tokens": NEW_TOKENS,
            "temperature": 0, "model": "qwen3"}  # fmt: skip


def responses_body(body: Body, turn: int) -> Body:
    """A request to /v1/responses with all items."""
    items: list[Body] = []
    for message in without_reasoning(body)["messages"]:
        role, text = message["role"], message.get("content") or ""
        if role == "tool":
            items.append({"type": "function_call_output", "call_id": message["tool_call_id"],
                          "output": text})  # fmt: skip
            continue
        if text:
            items.append({"type": "message", "role": role, "content": text})
        for call in message.get("tool_calls") or ():
            items.append({"type": "function_call", "call_id": call["id"], **call["function"]})
    tools = [{"type": "function", "strict": False, **tool["function"]} for tool in body["tools"]]
    return {"input": items, "tools": tools, "max_output_tokens": NEW_TOKENS, "temperature": 0,
            "store": False}  # fmt: skip


def _chat_usage(reply: Body) -> tuple[int, int]:
    usage = reply["usage"]
    return usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {})["cached_tokens"]


def _messages_usage(reply: Body) -> tuple[int, int]:
    usage = reply["usage"]
    cached = usage.get("cache_read_input_tokens") or 0
    return usage["input_tokens"] + cached, cached


def _responses_usage(reply: Body) -> tuple[int, int]:
    usage = reply["usage"]
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


CHAT = Way("chat", "/v1/chat/completions", chat_body, _chat_usage)
STRIPPED = Way(
    "chat, no reasoning",
    "/v1/chat/completions",
    lambda body, turn: chat_body(without_reasoning(body), turn),
    _chat_usage,
)
MESSAGES = Way("messages", "/v1/messages", messages_body, _messages_usage)
RESPONSES = Way("responses", "/v1/responses", responses_body, _responses_usage)
WAYS = (CHAT, STRIPPED, MESSAGES, RESPONSES)


def shared(left: Sequence[int], right: Sequence[int]) -> int:
    """How many ids two sequences begin with alike."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))


def play(client: httpx.Client, way: Way, bodies: Sequence[Body], salt: str) -> list[Turn]:
    """One session, turn by turn."""
    turns: list[Turn] = []
    seen: list[list[int]] = []
    for number, body in enumerate(bodies):
        request = way.body(body, number) | {"cache_salt": salt}
        # The prompt's ids, by the template alone, which no API has a say in.
        rendered = body if way is CHAT else without_reasoning(body)
        ids = _posted(client, "/tokenize", rendered)["tokens"]
        began_s = time.perf_counter()
        reply = _posted(client, way.path, request)
        ttft_s = time.perf_counter() - began_s
        exact = None
        if way.path == CHAT.path:
            ttft_s = reply["choices"][0]["metrics"]["ttft_s"]
            cold = _posted(client, way.path, request | {"cache_salt": f"{salt}-{number}"})
            exact = _answer(cold) == _answer(reply)
        prompt_tokens, cached = way.usage(reply)
        assert prompt_tokens == len(ids), (way.name, prompt_tokens, len(ids))
        known = max((shared(ids, earlier) for earlier in seen), default=None)
        # The last token is computed whatever is cached: its logits give the first new one.
        new = None if known is None else prompt_tokens - min(known, prompt_tokens - 1)
        turns.append(Turn(prompt_tokens, new, prompt_tokens - cached, ttft_s, exact))
        seen.append(ids)
    return turns


def _answer(reply: Body) -> tuple[object, object]:
    choice = reply["choices"][0]
    return choice["token_ids"], choice["logprobs"]


def _posted(client: httpx.Client, path: str, body: Body) -> Body:
    reply = client.post(path, json=body)
    if reply.status_code != 200:
        raise SystemExit(f"{path}: {reply.status_code} {reply.text[:500]}")
    found: Body = reply.json()
    return found


def play_llama(client: httpx.Client, bodies: Sequence[Body]) -> list[Turn]:
    """One session through llama-server, whose timings say what it computed."""
    turns = []
    for body in bodies:
        request = {**without_reasoning(body), "max_tokens": NEW_TOKENS, "temperature": 0}
        timings = _posted(client, CHAT.path, request)["timings"]
        computed, cached = timings["prompt_n"], timings["cache_n"]
        ttft_s = timings["prompt_ms"] / 1000
        turns.append(Turn(computed + cached, None, computed, ttft_s, None))
    return turns


@contextmanager
def server(command: Sequence[str], ready: str) -> Iterator[httpx.Client]:
    """A server on a free port of this machine, as its client; `{port}` in the command is that."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [part.replace("{port}", str(port)) for part in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
            for _ in range(int(READY_S * 10)):
                try:
                    if client.get(ready).status_code == 200:
                        break
                except httpx.HTTPError:
                    pass
                time.sleep(0.1)
            else:
                raise SystemExit(f"{command[0]} was not ready after {READY_S:.0f} s")
            yield client
    finally:
        process.terminate()
        process.wait(30)


def summary(name: str, agents: int, sessions: Sequence[Sequence[Turn]]) -> Body:
    """The figures of one cell, of the turns after the first."""
    later = [turn for session in sessions for turn in session[1:]]
    new = [turn.new_tokens for turn in later if turn.new_tokens is not None]
    over = [turn.computed_tokens - turn.new_tokens for turn in later if turn.new_tokens is not None]
    exact = [turn.is_exact for session in sessions for turn in session if turn.is_exact is not None]
    times = sorted(turn.ttft_s for turn in later)
    return {
        "way": name,
        "agents": agents,
        "turns": len(later),
        "prompt_tokens": sum(turn.prompt_tokens for turn in later),
        "new_tokens": sum(new) if new else None,
        "computed_tokens": sum(turn.computed_tokens for turn in later),
        "most_over_new": max(over, default=None),
        "bits_equal": f"{sum(map(bool, exact))} of {len(exact)}" if exact else None,
        "ttft_p50_ms": 1000 * statistics.median(times),
        "ttft_p95_ms": 1000 * times[min(len(times) - 1, int(0.95 * len(times)))],
    }


def run(options: argparse.Namespace, progress: Callable[[str], None]) -> list[Body]:
    """Every cell."""
    files = sorted(options.sessions.glob("agentic_*.json"))
    recorded = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    long = sorted(recorded, key=lambda session: -len(session["messages"]))[:AGENTS]
    sessions = [list(turns_of(session, options.turns, options.chars)) for session in long]
    rows: list[Body] = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "qwen3.gguf"
        write_gguf_file(model, _metadata(options), list(tensors(SHAPE, mixture("Q8_0"))))
        serve = [sys.executable, "-m", "headrace.cli.main", "serve", str(model), "--port", "{port}",
                 "--chat-template", str(options.template), "--served-model-name", "qwen3",
                 "--log-level", "error"]  # fmt: skip
        with server(serve, "/ready") as client:
            for way in WAYS:
                progress(f"headrace, {way.name}")
                alone = [play(client, way, sessions[0], f"alone {way.name}")]
                rows.append(summary(way.name, 1, alone))
                with ThreadPoolExecutor(AGENTS) as threads:
                    together = threads.map(
                        lambda at, way=way: play(client, way, sessions[at], f"{at} {way.name}"),
                        range(AGENTS),
                    )
                    rows.append(summary(way.name, AGENTS, list(together)))
        if options.llama is not None:
            from benchmarks.llamacpp.build import built

            threads_used = str(len(os.sched_getaffinity(0)))
            llama = [built(options.llama).tool("llama-server"), "-m", str(model), "--port",
                     "{port}", "--jinja", "--chat-template-file", str(options.template), "-c",
                     str(40960 * AGENTS), "-np", str(AGENTS), "-t", threads_used, "--kv-unified",
                     "--cache-ram", "8192", "--ctx-checkpoints", "32"]  # fmt: skip
            with server(llama, "/health") as client:
                progress("llama-server")
                rows.append(summary("llama-server", 1, [play_llama(client, sessions[0])]))
                with ThreadPoolExecutor(AGENTS) as pool:
                    played = list(pool.map(lambda bodies: play_llama(client, bodies), sessions))
                rows.append(summary("llama-server", AGENTS, played))
    return rows


def _metadata(options: argparse.Namespace) -> Body:
    return {
        "general.architecture": "qwen3",
        "general.name": "random weights of a small Qwen3",
        "general.file_type": mixture("Q8_0").file_type,
        "general.quantization_version": 2,
        "qwen3.block_count": SHAPE.layers,
        "qwen3.context_length": 40960,
        "qwen3.embedding_length": SHAPE.hidden,
        "qwen3.feed_forward_length": SHAPE.intermediate,
        "qwen3.attention.head_count": SHAPE.heads,
        "qwen3.attention.head_count_kv": SHAPE.kv_heads,
        "qwen3.attention.key_length": SHAPE.head_dim,
        "qwen3.attention.value_length": SHAPE.head_dim,
        "qwen3.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen3.rope.freq_base": 1_000_000.0,
        **tokenizer(SHAPE, options.vocabulary),
    }


def main() -> None:
    """Play all, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--sessions", type=Path, required=True, help="folder of agentic_*.json")
    parser.add_argument("--template", type=Path, required=True, help="Qwen3's chat template")
    parser.add_argument("--vocabulary", type=Path, help="folder with vocab.json and merges.txt")
    parser.add_argument("--llama", type=Path, help="folder of a built llama.cpp")
    parser.add_argument("--turns", type=int, default=6, help="of a session (default: 6)")
    parser.add_argument("--chars", type=int, default=600, help="of each text (default: 600)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    console = Console(stderr=True)
    rows = run(options, lambda words: console.print(words, style="dim"))
    if options.json:
        print(json.dumps(rows))
        return
    table = Table()
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="left" if name == "way" else "right")
    for row in rows:
        table.add_row(*(_shown(value) for value in row.values()))
    Console().print(table)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return (
        f"{value:,.1f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


if __name__ == "__main__":
    main()
