"""As GuideLLM measures.

Source: vllm-project/guidellm v0.7.3 (ee7a7745), src/guidellm/schemas/request_stats.py,
schemas/statistics.py, benchmark/schemas/metrics.py, backends/openai/http.py. Its time per output
token includes the wait for the first. In distributions a request weighs as much as it has tokens
(TPOT) or gaps between them (ITL); percentiles are values that occurred, never between two.
"""

from __future__ import annotations

from headrace.bench.definitions.measure import (
    Clock,
    Definition,
    Measures,
    Metric,
    completed,
    first_times_ns,
    tool_start_ns,
)
from headrace.bench.record import RequestRecord


def measure(record: RequestRecord, clock: Clock) -> Measures | None:
    """None for a failed request."""
    end = record.end_ns
    if not completed(record) or end is None:
        return None
    start, content = tool_start_ns(record, clock), record.content if record.streamed else ()
    told = record.usage.completion_tokens
    # Where the server does not count, each chunk is taken for one token, and none for unknown.
    tokens = told if told is not None else (len(content) or None)
    times = {"request_latency": float(end - start)}
    weights: dict[str, float] = {}
    last = content[-1].at_ns if content else end
    if content:
        times |= first_times_ns(content, start, "time_to_first_token", "time_to_first_output_token")
        if tokens is not None and tokens > 1:
            times["inter_token_latency"] = (last - content[0].at_ns) / (tokens - 1)
            weights["inter_token_latency"] = tokens - 1
    rates = {}
    if tokens:
        times["time_per_output_token"] = (last - start) / tokens
        weights["time_per_output_token"] = tokens
        if end > start:
            rates["output_tokens_per_second"] = tokens * 1e9 / (end - start)
    return Measures(times, {}, tokens, record.usage.prompt_tokens, rates, weights)


GUIDELLM = Definition(
    name="guidellm",
    source="GuideLLM v0.7.3, vllm-project/guidellm ee7a7745",
    metrics=(
        Metric("time_to_first_token", "ttft", "first chunk that is not empty, reasoning included"),
        Metric(
            "time_to_first_output_token", "ttfot", "first chunk that is neither empty nor reasoning"
        ),
        Metric(
            "time_per_output_token",
            "tpot_incl",
            "(last chunk that is not empty − start) / n of each request: includes the wait for the "
            "first; weighed by n; n from usage, else the number of chunks",
        ),
        Metric(
            "inter_token_latency",
            "tpot",
            "(last chunk that is not empty − first) / (n − 1) of each request, weighed by n − 1",
        ),
        Metric("request_latency", "e2e", "end of the response − start"),
        Metric("output_tokens_per_second", None, "n / request_latency of each request", "rate"),
    ),
    measure=measure,
    interpolation="nearest",
    degrees=0,
    without_tpot="missed",
    unlike=(
        "GuideLLM puts 0 into its distributions for a request without a first token; here it has "
        "no value.",
    ),
)
