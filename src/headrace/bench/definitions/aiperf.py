"""As NVIDIA AIPerf measures, and GenAI-Perf before it.

Source: ai-dynamo/aiperf, src/aiperf/metrics/types: ttft_metric.py at 58028d5b,
inter_token_latency_metric.py at 58dd5dea, request_latency_metric.py at 4f7ccffd,
time_to_first_output_token_metric.py at 0b758100, inter_chunk_latency_metric.py at 58028d5b. Content
is text, reasoning or tool call that is not empty. Its inter token latency is a mean of each request
(others call it TPOT), and its inter chunk latency is what others call ITL.
"""

from __future__ import annotations

from headrace.bench.definitions.measure import (
    Clock,
    Definition,
    Measures,
    Metric,
    client_counts,
    completed,
    first_times_ns,
    gaps_ns,
    last_ns,
    tool_start_ns,
)
from headrace.bench.record import RequestRecord


def measure(record: RequestRecord, clock: Clock) -> Measures | None:
    """None for a failed request."""
    if not completed(record):
        return None
    start, content = tool_start_ns(record, clock), record.content
    latency = float(last_ns(record, content) - start)
    tokens, prompt = client_counts(record)
    times, gaps, rates = {"request_latency": latency}, {}, {}
    if record.streamed and content:
        times |= first_times_ns(content, start, "time_to_first_token", "time_to_first_output_token")
        if len(content) > 1:
            times["time_to_second_token"] = float(content[1].at_ns - content[0].at_ns)
            gaps["inter_chunk_latency"] = gaps_ns(content)
        if tokens is not None and tokens > 1:
            times["inter_token_latency"] = (latency - times["time_to_first_token"]) / (tokens - 1)
        if times.get("inter_token_latency"):
            rates["output_token_throughput_per_user"] = 1e9 / times["inter_token_latency"]
    return Measures(times, gaps, tokens, prompt, rates)


AIPERF = Definition(
    name="aiperf",
    source="AIPerf, ai-dynamo/aiperf 58dd5dea",
    metrics=(
        Metric("time_to_first_token", "ttft", "first chunk that is not empty, reasoning included"),
        Metric(
            "time_to_first_output_token", "ttfot", "first chunk that is neither empty nor reasoning"
        ),
        Metric("time_to_second_token", None, "second chunk that is not empty − the first"),
        Metric(
            "inter_token_latency",
            "tpot",
            "(request_latency − time_to_first_token) / (n − 1) of each request with n ≥ 2 "
            "tokens; n counted by the client (the server's usage if the client did not count)",
        ),
        Metric(
            "inter_chunk_latency",
            "itl_chunk",
            "every gap between chunks that are not empty, of all requests",
            "gap",
        ),
        Metric("request_latency", "e2e", "last chunk that is not empty − start"),
        Metric(
            "output_token_throughput_per_user",
            "tps_user",
            "1 / inter_token_latency of each request",
            "rate",
        ),
    ),
    measure=measure,
    interpolation="linear",
    degrees=0,
    without_tpot="missed",
    unlike=(
        "AIPerf subtracts the tokens of the first chunk from n instead of 1 under "
        "--per-chunk-usage; here it is always 1, its default.",
    ),
)
