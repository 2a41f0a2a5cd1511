"""As `vllm bench serve` measures, now and before 0.33.

Source: the packages vllm 0.33.0 (4ba787ec9) and 0.32.0 (5df63a720), vllm/benchmarks/serve.py
(calculate_metrics) and vllm/benchmarks/lib/endpoint_request_func.py
(async_request_openai_chat_completions and _completions, _choice_has_streamed_output). Of
completions every event that has `choices` is a token to both, also the empty one that only says why
the stream ended. Of a chat 0.33 takes those with content, reasoning or a tool call; before, it was
as in completions: the event that only names the role, which servers send before they have computed
anything, stopped the clock of TTFT.
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
from headrace.bench.record import Chunk, RequestRecord


def measure_content(record: RequestRecord, clock: Clock) -> Measures | None:
    """None for a failed request, and for one that never got an event with content."""
    return _measure(record, clock, record.content)


def measure_choices(record: RequestRecord, clock: Clock) -> Measures | None:
    """None for a failed request, and for one that never got an event with choices."""
    chunks = tuple(chunk for chunk in record.chunks if chunk.kind != "usage")
    return _measure(record, clock, chunks)


def _measure(record: RequestRecord, clock: Clock, chunks: tuple[Chunk, ...]) -> Measures | None:
    """By the events that count."""
    if not completed(record) or not chunks:
        return None
    start = tool_start_ns(record, clock)
    ttft, latency = float(chunks[0].at_ns - start), float(chunks[-1].at_ns - start)
    # A count of 0 is taken for none, and one without a tokenizer for 1.
    tokens = record.usage.completion_tokens or record.client_output_tokens or 1
    times = {"ttft": ttft, "e2el": latency}
    if tokens > 1:
        times["tpot"] = (latency - ttft) / (tokens - 1)
    return Measures(times, {"itl": gaps_ns(chunks)}, tokens, record.prompt_tokens)


_TPOT = Metric(
    "tpot",
    "tpot",
    "(e2el − ttft) / (n − 1) of each request with n ≥ 2 tokens; n from usage, else counted "
    "by the client, hidden reasoning included",
)
_E2EL = Metric("e2el", "e2e", "last event that counts − start")
_DURATION = (
    "vllm divides by the time from its first sleep to its last response; a record by that from "
    "the first request sent to the last response."
)
_USAGE = (
    "An event with choices, usage and no content is not a token here; for vllm it is one "
    "wherever events with choices are."
)

VLLM = Definition(
    name="vllm",
    source="vllm bench serve, vLLM 0.33.0 (4ba787ec9)",
    metrics=(
        Metric(
            "ttft",
            "ttft",
            "chat: first event with content; completions: first event with choices, even an empty "
            "one",
        ),
        _TPOT,
        Metric(
            "itl",
            "itl_chunk",
            "every gap between events that count, of all requests; an event of five tokens is one "
            "gap, and so is, in completions, the empty one at the end",
            "gap",
        ),
        _E2EL,
    ),
    measure=measure_content,
    of_completions=measure_choices,
    interpolation="linear",
    degrees=0,
    without_tpot="met",
    unlike=(
        _DURATION,
        "vllm takes a chat event with an empty text and no role for a token; a record cannot "
        "distinguish it from an event without any text.",
        "vllm does not see reasoning in a field named reasoning_content, as older servers "
        "send it; here it is content.",
        _USAGE,
    ),
)

VLLM_BEFORE_0_33 = Definition(
    name="vllm-0.32",
    source="vllm bench serve before vLLM 0.33, as in 0.32.0 (5df63a720)",
    metrics=(
        Metric("ttft", "ttft", "first event with choices, even one that only names the role"),
        _TPOT,
        Metric(
            "itl",
            "itl_chunk",
            "every gap between events with choices, of all requests, those of the role and of the "
            "empty event at the end included; an event of five tokens is one gap",
            "gap",
        ),
        _E2EL,
    ),
    measure=measure_choices,
    interpolation="linear",
    degrees=0,
    without_tpot="met",
    unlike=(
        _DURATION,
        _USAGE,
        "Versions before that (vllm-project/vllm 3aee4a4f) end a chat's e2el with the event of "
        "usage.",
    ),
)
