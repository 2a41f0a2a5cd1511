"""As LLMPerf measured; it is archived, and figures made with it are still about.

Source: ray-project/llmperf f1d6bed, token_benchmark_ray.py and
src/llmperf/ray_clients/openai_chat_completions_client.py. Only text counts, not reasoning or tool
calls. Its inter token latency is the sum of all waits, the one for the first token included, over
the number of events received, whether or not they held a token.
"""

from __future__ import annotations

from headrace.bench.definitions.measure import (
    Clock,
    Definition,
    Measures,
    Metric,
    client_counts,
    completed,
    tool_start_ns,
)
from headrace.bench.record import RequestRecord


def measure(record: RequestRecord, clock: Clock) -> Measures | None:
    """None for a failed request."""
    if not completed(record) or record.end_ns is None:
        return None
    start = tool_start_ns(record, clock)
    text = tuple(chunk for chunk in record.chunks if chunk.kind == "text" and chunk.text)
    # It never asks for usage, so no such event comes to it.
    received = sum(1 for chunk in record.chunks if chunk.kind != "usage")
    tokens, prompt = client_counts(record)
    latency = float(record.end_ns - start)
    waited = float(text[-1].at_ns - start) if text else 0.0
    times = {
        "ttft_s": float(text[0].at_ns - start) if text else 0.0,
        "inter_token_latency_s": waited / received if received and text else 0.0,
        "end_to_end_latency_s": latency,
    }
    rates = {}
    if tokens is not None and latency > 0:
        rates["request_output_throughput_token_per_s"] = tokens * 1e9 / latency
    return Measures(times, {}, tokens, prompt, rates)


LLMPERF = Definition(
    name="llmperf",
    source="LLMPerf, ray-project/llmperf f1d6bed",
    metrics=(
        Metric("ttft_s", "ttft", "first chunk with text − start; 0 if there is no such chunk"),
        Metric(
            "inter_token_latency_s",
            "tpot_incl",
            "(last chunk with text − start) / events received, the role's and the last empty one "
            "included; 0 where there is no text",
        ),
        Metric("end_to_end_latency_s", "e2e", "end of the response − start"),
        Metric(
            "request_output_throughput_token_per_s",
            None,
            "n / end_to_end_latency_s of each request; n counted by the client",
            "rate",
        ),
    ),
    measure=measure,
    interpolation="linear",
    degrees=1,
    without_tpot="missed",
    unlike=(
        "LLMPerf counts text with Llama's tokenizer whatever the model; a record is counted "
        "with the model's own.",
        "LLMPerf's wall time includes setting up its clients; a record's does not.",
    ),
)
