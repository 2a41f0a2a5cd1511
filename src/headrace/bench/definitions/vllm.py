"""As `vllm bench serve` measures.

Source: vllm-project/vllm at 009e6d4a, vllm/benchmarks/serve.py (calculate_metrics), and at
02cfb534, vllm/benchmarks/lib/endpoint_request_func.py (async_request_openai_chat_completions and
_completions). Every event that has `choices` is a token to it: one that only names the role, and
the empty one that only says why the stream ended. Only the usage event is none.
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
    """None for a failed request, and for one that never got an event with choices."""
    chunks = tuple(chunk for chunk in record.chunks if chunk.kind != "usage")
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
    source="vllm bench serve, vllm-project/vllm 009e6d4a",
    metrics=(
        Metric("ttft", "ttft", "first event with choices, even one that only names the role"),
        Metric(
            "tpot",
            "tpot",
            "(e2el − ttft) / (n − 1) of each request with n ≥ 2 tokens; n from usage, else counted "
            "by the client, hidden reasoning included",
        ),
        Metric(
            "itl",
            "itl_chunk",
            "every gap between events with choices, of all requests; an event of five tokens is "
            "one gap, and so is the empty one at the end",
            "gap",
        ),
        Metric("e2el", "e2e", "last event with choices − start"),
    ),
    measure=measure,
    interpolation="linear",
    degrees=0,
    without_tpot="met",
    unlike=(
        "vllm divides by the time from its first sleep to its last response; a record by that from "
        "the first request sent to the last response.",
    ),
)
