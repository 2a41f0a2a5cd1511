"""As `vllm bench serve` measures.

Source: vLLM 0.33.0, vllm/benchmarks/serve.py (calculate_metrics) and
vllm/benchmarks/lib/endpoint_request_func.py (async_request_openai_chat_completions and
_completions). In a chat only events with content, reasoning or a tool call are tokens to it, since
0.33; in completions every event that has `choices` is, also the empty one that only says why the
stream ended.
"""

from __future__ import annotations

from headrace.bench.definitions.measure import (
    Clock,
    Definition,
    Measures,
    Metric,
    completed,
    gaps_ns,
    tool_start_ns,
)
from headrace.bench.record import RequestRecord


def measure(record: RequestRecord, clock: Clock) -> Measures | None:
    """None for a failed request, and for one that never got an event that counts."""
    # Only a chat opens with a role.
    chat = any(chunk.kind == "role" for chunk in record.chunks)
    chunks = record.content if chat else tuple(c for c in record.chunks if c.kind != "usage")
    if not completed(record) or not chunks:
        return None
    start = tool_start_ns(record, clock)
    ttft, latency = float(chunks[0].at_ns - start), float(chunks[-1].at_ns - start)
    # A count of 0 is taken for none, and one without a tokenizer for 1.
    tokens = record.usage.completion_tokens or record.client_output_tokens or 1
    times = {"ttft": ttft, "e2el": latency}
    if tokens > 1:
        times["tpot"] = (latency - ttft) / (tokens - 1)
    told = record.usage.prompt_tokens
    prompt = told if told is not None else record.client_prompt_tokens
    return Measures(times, {"itl": gaps_ns(chunks)}, tokens, prompt)


VLLM = Definition(
    name="vllm",
    source="vllm bench serve, vLLM 0.33.0",
    metrics=(
        Metric(
            "ttft",
            "ttft",
            "chat: first event with content; completions: first event with choices, even an empty "
            "one",
        ),
        Metric(
            "tpot",
            "tpot",
            "(e2el − ttft) / (n − 1) of each request with n ≥ 2 tokens; n from usage, else counted "
            "by the client, hidden reasoning included",
        ),
        Metric(
            "itl",
            "itl_chunk",
            "every gap between events that count, of all requests; an event of five tokens is one "
            "gap, and so is, in completions, the empty one at the end",
            "gap",
        ),
        Metric("e2el", "e2e", "last event that counts − start"),
    ),
    measure=measure,
    interpolation="linear",
    degrees=0,
    without_tpot="met",
    unlike=(
        "vllm divides by the time from its first sleep to its last response; a record by that from "
        "the first request sent to the last response.",
        "vllm takes a chat's event with an empty text for a token; a record cannot tell it from an "
        "event without any. Before 0.33 it took every event with choices of a chat for one.",
    ),
)
