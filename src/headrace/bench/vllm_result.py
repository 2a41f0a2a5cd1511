"""A run under the keys of `vllm bench serve --save-result`, for scripts that read those files.

Source: vLLM 0.33.0 (4ba787ec9), vllm/benchmarks/serve.py. What vLLM takes from its command line
(model_id, request_rate, …) is in `vllm_keys`. Values are as vLLM defines them, from the
actual send time; a failed request has length 0 and empty lists, as there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.bench.concurrency import Flight, flights, peak_in_flight, whole_window
from headrace.bench.definitions import Definition, Measures
from headrace.bench.definitions.measure import tool_start_ns
from headrace.bench.definitions.vllm import VLLM
from headrace.bench.goodput import judge
from headrace.bench.record import RequestRecord, RunMetadata, RunRecord
from headrace.bench.slo import Slo
from headrace.bench.vllm_form import DEFAULT_FORM, VllmForm

Value = None | int | float | str | list[int] | list[float] | list[str] | list[list[float]]


_Pair = tuple[RequestRecord, Measures | None]


def vllm_keys(about: RunMetadata, *, rate: float | None, concurrency: int | None) -> RunMetadata:
    """Keys that are known before a run. rate: requests per second; None: as they can be sent."""
    return {
        "date": about.get("started"),
        "endpoint_type": about.get("endpoint_kind"),
        "model_id": about.get("model"),
        "tokenizer_id": about.get("tokenizer"),
        "request_rate": "inf" if rate is None else rate,
        "max_concurrency": concurrency,
    }


def vllm_result(
    run: RunRecord, *, slo: Slo | None = None, form: VllmForm = DEFAULT_FORM
) -> dict[str, Value]:
    """Times are in milliseconds where the key says so, in seconds elsewhere.

    request_goodput is None without an SLO, or with one that vLLM could not judge.
    """
    records = [record for record in run.requests if record.measured]
    vllm = VLLM.of_api(run.api)
    pairs: list[_Pair] = [(record, vllm.measure(record, "sent")) for record in records]
    good = [got for _, got in pairs if got is not None]
    whole = whole_window(flights(records))
    seconds = whole.seconds if whole is not None else 0.0
    prompt = sum(one.prompt_tokens or 0 for one in good)
    output = sum(one.output_tokens or 0 for one in good)
    result: dict[str, Value] = {
        "num_prompts": len(records),
        "duration": seconds,
        "completed": len(good),
        "failed": len(pairs) - len(good),
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "request_throughput": _per_s(len(good), seconds),
        "request_goodput": _goodput(slo, records, seconds, vllm),
        "output_throughput": _per_s(output, seconds),
        "total_token_throughput": _per_s(prompt + output, seconds),
        "max_output_tokens_per_s": _busiest_second(pairs),
        "max_concurrent_requests": _peak(pairs),
    }
    for metric in VLLM.metrics:
        if form.metrics is not None and metric.name not in form.metrics:
            continue
        if metric.each == "gap":
            samples = [gap for one in good for gap in one.gaps_ns.get(metric.name, ())]
        else:
            samples = [one.times_ns[metric.name] for one in good if metric.name in one.times_ns]
        result |= _statistics(metric.name, samples, form.percentiles)
    return result | _details(pairs) if form.detailed else result


def _per_s(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0


def _goodput(
    slo: Slo | None, records: Sequence[RequestRecord], seconds: float, vllm: Definition
) -> float | None:
    if slo is None or any(vllm.metric(one.metric) is None for one in slo.conditions):
        return None
    return judge(slo, records, seconds, definition=vllm, clock="sent").requests_per_s


def _statistics(
    name: str, samples_ns: list[float], percentiles: Sequence[float]
) -> dict[str, Value]:
    """Of no samples vLLM says 0."""
    values = np.asarray(samples_ns or [0.0]) / 1e6
    found: dict[str, Value] = {
        f"mean_{name}_ms": float(values.mean()),
        f"median_{name}_ms": float(np.median(values)),
        f"std_{name}_ms": float(values.std()),
    }
    for percentile in percentiles:
        word = str(int(percentile)) if int(percentile) == percentile else str(percentile)
        found[f"p{word}_{name}_ms"] = float(np.percentile(values, percentile))
    return found


def _spans(pairs: Sequence[_Pair]) -> list[tuple[Flight, Measures]]:
    """Of completed requests: start to last event with choices."""
    spans = []
    for record, got in pairs:
        if got is not None:
            start = tool_start_ns(record, "sent")
            spans.append((Flight(start, start + round(got.times_ns["e2el"])), got))
    return spans


def _peak(pairs: Sequence[_Pair]) -> int:
    return peak_in_flight([flight for flight, _ in _spans(pairs)])


def _busiest_second(pairs: Sequence[_Pair]) -> float:
    """Events with choices in the fullest of the seconds since the first was sent."""
    spans = _spans(pairs)
    if not spans:
        return 0.0
    first = min(flight.start_ns for flight, _ in spans)
    at = [
        flight.start_ns - first + np.cumsum([got.times_ns["ttft"], *got.gaps_ns["itl"]])
        for flight, got in spans
    ]
    return float(np.bincount((np.concatenate(at) // 1e9).astype(np.int64)).max())


def _details(pairs: Sequence[_Pair]) -> dict[str, Value]:
    """In the order of the requests."""
    got = [one for _, one in pairs]
    # One that was never sent has no start; vLLM would have given it the time it was taken up.
    starts = [
        tool_start_ns(record, "intended" if record.sent_ns is None else "sent")
        for record, _ in pairs
    ]
    return {
        "input_lens": [(one.prompt_tokens or 0) if one else 0 for one in got],
        "output_lens": [(one.output_tokens or 0) if one else 0 for one in got],
        "ttfts": [one.times_ns["ttft"] / 1e9 if one else 0.0 for one in got],
        "itls": [[gap / 1e9 for gap in one.gaps_ns["itl"]] if one else [] for one in got],
        "latencies": [one.times_ns["e2el"] / 1e9 if one else 0.0 for one in got],
        "start_times": [start / 1e9 for start in starts],
        "queue_times": [
            max(0, start - record.intended_ns) / 1e9
            for start, (record, _) in zip(starts, pairs, strict=True)
        ],
        "generated_texts": [
            "".join(chunk.text for chunk in record.chunks if chunk.kind == "text")
            for record, _ in pairs
        ],
        "errors": [record.failure.message if record.failure else "" for record, _ in pairs],
    }
