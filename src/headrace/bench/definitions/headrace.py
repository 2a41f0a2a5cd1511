"""Our own definitions: what a reader of the stream sees, and nothing that he does not.

A chunk counts when it carries a character of the answer, of reasoning or of a tool call. A stream
opens with its first such chunk and ends with its last; what a server sends before (a role) or after
(why it stopped, usage) is no token. For n tokens in more than one chunk, always
e2e = ttft + tpot · (n − 1).
"""

from __future__ import annotations

from headrace.bench.definitions.measure import (
    Clock,
    Definition,
    Measures,
    Metric,
    completed,
    first_times_ns,
    gaps_ns,
    last_ns,
    start_ns,
)
from headrace.bench.definitions.tokens import streamed_tokens, token_gaps_ns
from headrace.bench.record import RequestRecord


def measure(record: RequestRecord, clock: Clock) -> Measures | None:
    """None for a request that failed or was never sent.

    tpot, tps_user, stall and gaps need two chunks: of tokens that came all at once nobody saw how
    long each took. A response without a stream has no times but the whole one.
    """
    if not completed(record):
        return None
    start, content = start_ns(record, clock), record.content
    end = last_ns(record, content)
    times = {"e2e": float(end - start)}
    if record.headers_ns is not None:
        times["ttfb"] = float(record.headers_ns - start)
    total, carried = record.output_tokens, streamed_tokens(record)
    if total:
        times["tpot_incl"] = (end - start) / total
    gaps: dict[str, tuple[float, ...]] = {}
    rates = {}
    if record.streamed and content:
        times |= first_times_ns(content, start, "ttft", "ttfot")
        if len(content) > 1:
            gaps = {"itl_chunk": gaps_ns(content), "itl_token": token_gaps_ns(content, carried)}
            times["stall"] = max(gaps["itl_chunk"])
            if carried is not None and carried > 1:
                times["tpot"] = (end - content[0].at_ns) / (carried - 1)
        if times.get("tpot"):
            rates["tps_user"] = 1e9 / times["tpot"]
    return Measures(times, gaps, total, record.prompt_tokens, rates)


HEADRACE = Definition(
    name="headrace",
    source="headrace itself",
    metrics=(
        Metric("ttfb", "ttfb", "status line − start"),
        Metric(
            "ttft", "ttft", "first chunk with a character of text, reasoning or tool call − start"
        ),
        Metric("ttfot", "ttfot", "first chunk with a character of text or tool call − start"),
        Metric(
            "tpot",
            "tpot",
            "(last such chunk − first) / (n − 1) of each request with n ≥ 2 tokens in two or more "
            "chunks; n as the server counts, less reasoning that it did not send",
        ),
        Metric("tpot_incl", "tpot_incl", "(last such chunk − start) / all n tokens"),
        Metric("itl_chunk", "itl_chunk", "every gap between such chunks, of all requests", "gap"),
        Metric(
            "itl_token",
            "itl_token",
            "every such gap shared among the tokens of the later chunk, of all requests; "
            "tokens by share of characters where the server does not count them chunk by "
            "chunk",
            "gap",
        ),
        Metric("stall", "stall", "longest gap of each request"),
        Metric(
            "e2e",
            "e2e",
            "last such chunk − start; end of the response if there is no such chunk",
        ),
        Metric("tps_user", "tps_user", "1 / tpot of each request", "rate"),
    ),
    measure=measure,
    interpolation="linear",
    degrees=0,
    without_tpot="met",
)
