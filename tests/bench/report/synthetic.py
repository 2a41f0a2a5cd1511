"""Runs as real servers make them: queueing, jitter, stalls of all streams, errors, /metrics.

A small simulation: requests come by Poisson at a rate that rises, a client sends at most so many at
once, the server answers more slowly the fuller it is. The same seed gives the same run.
"""

from __future__ import annotations

import heapq
import random

from headrace.bench.record import (
    Chunk,
    ClientHealth,
    Failure,
    RequestRecord,
    RunMetadata,
    RunRecord,
    Usage,
)

S = 1_000_000_000
MS = 1_000_000

_FAILURES = (
    ("http", "429 Too Many Requests: queue is full (64 of 64)", 429),
    ("truncated", "the connection ended before the stream did, after {} chunks", 200),
    ("stream", "engine died: <script>alert('xss')</script>", 200),
)


def simulated(
    *,
    seed: int = 7,
    requests: int = 400,
    rate: float = 12.0,
    slots: int = 48,
    gap_ms: float = 14.0,
    failing: float = 0.03,
    tokens: int = 60,
    metrics: bool = True,
    about: RunMetadata | None = None,
) -> RunRecord:
    """rate: at the end; at the start it is half of that. slots: requests that are sent at once."""
    draw = random.Random(seed)
    busy: list[int] = []  # when slots become free
    wanted, records = 0.0, []
    for index in range(requests):
        wanted += draw.expovariate(rate * (0.5 + 0.5 * index / requests))
        intended = int(wanted * S)
        while busy and busy[0] <= intended:
            heapq.heappop(busy)
        sent = intended if len(busy) < slots else heapq.heappop(busy)
        sent += int(draw.expovariate(1 / 0.4) * MS)
        record = _answered(draw, index, intended, sent, len(busy), gap_ms, tokens)
        if draw.random() < failing:
            record = _broken(draw, record)
        records.append(record)
        heapq.heappush(busy, record.end_ns or sent)
    return RunRecord(
        about={**ABOUT, "seed": seed, **(about or {})},
        requests=tuple(records),
        health=ClientHealth(
            schedule_lag_ns=tuple(int(draw.expovariate(1 / 0.3) * MS) for _ in range(requests)),
            loop_lag_ns=tuple(int(draw.expovariate(1 / 0.1) * MS) for _ in range(200)),
            cpu_share=(0.31, 0.28),
        ),
        server_metrics=tuple(_readings(draw, records)) if metrics else (),
    )


ABOUT: RunMetadata = {
    "headrace": "0.4.0",
    "command": "headrace bench run --url http://127.0.0.1:8000 --model headrace-base --rate 12 "
    "--requests 400 --goodput ttft:500 tpot:50",
    "endpoint": "http://127.0.0.1:8000/v1/chat/completions",
    "model": "headrace-base",
    "load": "Poisson, 12 requests/s",
    "dataset": "synthetic 256/60",
    "fingerprint": "9f8e7d6c5b4a3210",
    "started": "2026-11-21T07:00:00+00:00",
    "machine": "EPYC 9004, 2 cores, 8 GB",
    "stop": None,
}


def _answered(
    draw: random.Random,
    index: int,
    intended: int,
    sent: int,
    beside: int,
    gap_ms: float,
    tokens: int,
) -> RequestRecord:
    load = 1 + beside / 24
    at = sent + int((45 * load + draw.lognormvariate(3, 0.7)) * MS)
    headers = sent + (at - sent) // 3
    chunks = [Chunk(headers, "role")]
    left = total = max(2, int(draw.gauss(tokens, tokens / 4)))
    while left > 0:
        held = min(left, draw.choice((1, 1, 1, 1, 2, 3)))
        chunks.append(Chunk(at, "text", " word" * held))
        left -= held
        gap = gap_ms * load * held * draw.uniform(0.85, 1.2)
        if draw.random() < 0.004:
            gap += draw.uniform(80, 400)
        at += int(gap * MS)
        # Every ten seconds the whole server stands still for a moment.
        if at % (10 * S) < 60 * MS:
            at += 700 * MS - at % (10 * S)
    chunks.append(Chunk(chunks[-1].at_ns + MS, "usage"))
    prompt = max(20, int(draw.gauss(256, 40)))
    return RequestRecord(
        index=index,
        measured=index >= 5,
        intended_ns=intended,
        begun_ns=intended,
        sent_ns=sent,
        headers_ns=headers,
        end_ns=chunks[-1].at_ns + MS,
        chunks=tuple(chunks),
        status=200,
        finish_reason="length" if draw.random() < 0.8 else "stop",
        usage=Usage(
            prompt_tokens=prompt, completion_tokens=total, cached_tokens=prompt // 4 // 16 * 16
        ),
        queue_ns=int(20 * load * MS),
        client_prompt_tokens=prompt - 9,
        client_output_tokens=total,
        output_tokens_asked=tokens,
    )


def _broken(draw: random.Random, of: RequestRecord) -> RequestRecord:
    kind, message, status = draw.choice(_FAILURES)
    chunks = of.chunks[: draw.randrange(1, len(of.chunks))] if status == 200 else ()
    end = chunks[-1].at_ns + MS if chunks else (of.sent_ns or 0) + 3 * MS
    failure = Failure(kind, message.format(len(chunks)))  # type: ignore[arg-type]
    return RequestRecord(
        index=of.index,
        measured=of.measured,
        intended_ns=of.intended_ns,
        sent_ns=of.sent_ns,
        headers_ns=of.headers_ns if chunks else end,
        end_ns=end,
        chunks=chunks,
        status=status,
        failure=failure,
    )


def _readings(draw: random.Random, records: list[RequestRecord]) -> list[tuple[int, str]]:
    """A text each second of the run, of counters that grow with what is in flight."""
    last = max(record.end_ns or 0 for record in records)
    total = dict.fromkeys(("output", "prompt", "hits", "preempted", "bytes", "ops", "busy"), 0.0)
    texts = []
    for second in range(last // S + 2):
        at = second * S
        running = sum((one.sent_ns or 0) <= at < (one.end_ns or 0) for one in records)
        busy = 0.2 + 0.7 * min(1.0, running / 40)
        total["output"] += running * 40
        total["prompt"] += 2600
        total["hits"] += 2600 * min(0.6, second / 60)
        total["preempted"] += max(0, running - 44) // 2
        total["busy"] += busy
        total["bytes"] += busy * 21e9 * draw.uniform(0.7, 0.95)
        total["ops"] += busy * 90e9 * min(1, 0.15 + running / 60) * draw.uniform(0.9, 1)
        texts.append(
            (
                at,
                METRICS.format(
                    running=min(running, 40),
                    waiting=max(0, running - 40),
                    kv=min(1.0, running / 50),
                    **total,
                ),
            )
        )
    return texts


METRICS = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{model_name="m",engine="0"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{model_name="m",engine="0"}} {waiting}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{model_name="m",engine="0"}} {kv}
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{{model_name="m",engine="0"}} {prompt}
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{{model_name="m",engine="0"}} {hits}
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{{model_name="m",engine="0"}} {preempted}
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{{model_name="m",engine="0"}} {prompt}
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{{model_name="m",engine="0"}} {output}
# TYPE headrace:step_bytes counter
headrace:step_bytes_total {bytes:.0f}
# TYPE headrace:step_operations counter
headrace:step_operations_total {ops:.0f}
# TYPE headrace:step_seconds histogram
headrace:step_seconds_bucket{{le="+Inf"}} 1
headrace:step_seconds_count 1
headrace:step_seconds_sum {busy}
# TYPE headrace:read_limit_bytes_per_second gauge
headrace:read_limit_bytes_per_second 21e9
# TYPE headrace:compute_limit_operations_per_second gauge
headrace:compute_limit_operations_per_second 2.2e11
"""
