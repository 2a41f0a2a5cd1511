"""What is said of a request: that it has started, how far it is, and what each step gave it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.engine.messages import Output, Prefill, Started
from headrace.engine.request import Request
from headrace.engine.sampling.sampler import SampledToken


def started(request: Request) -> Started:
    """Of a request that has left the queue."""
    return Started(request.request_id, _queue_s(request))


def _queue_s(request: Request) -> float:
    assert request.admitted_s is not None, "it has left the queue"
    return request.admitted_s - request.arrived_s


def prefilled(request: Request, now_s: float) -> Output:
    """After a step that computed a part of its prompt and not its end."""
    assert request.admitted_s is not None, "it has left the queue"
    computed = min(request.num_computed, request.num_prompt)
    spent_s = now_s - request.admitted_s
    return Output(
        request.request_id,
        [],
        num_preemptions=request.num_preemptions,
        prefill=Prefill(computed, request.cached_tokens, spent_s),
    )


def output(
    request: Request, tokens: Sequence[SampledToken], num_taken: int, *, is_first: bool
) -> Output:
    """What the tokens of a row came to, once `request` has taken so many of them.

    is_first: no token had come of it before; what is said once goes with it, and is given away.
    """
    taken = tokens[:num_taken]
    first_s, admitted_s = request.first_token_s, request.admitted_s
    said = Output(
        request_id=request.request_id,
        token_ids=[each.token_id for each in taken if each.token_id is not None],
        logprobs=[each.logprob for each in taken if each.logprob is not None] or None,
        finish_reason=request.finish_reason,
        stop_reason=request.stop_reason,
        ends_with_text=request.constraint is not None and request.constraint.verdict == "ended",
        error=tokens[-1].error if tokens and request.finish_reason == "error" else None,
        error_code=tokens[-1].error_code if tokens and request.finish_reason == "error" else None,
        cached_tokens=request.cached_tokens if first_s is not None else 0,
        num_preemptions=request.num_preemptions,
        draft_tokens=request.num_draft_tokens,
        accepted_tokens=request.num_accepted_tokens,
    )
    later_tokens = request.num_wanted - request.num_prompt - request.num_first_tokens
    if first_s is not None and later_tokens > 0:
        said = msgspec.structs.replace(
            said, decode_s=request.last_token_s - first_s, decode_tokens=later_tokens
        )
    if not is_first or first_s is None or admitted_s is None:
        return said
    scores, request.prompt_logprobs = request.prompt_logprobs, None
    return msgspec.structs.replace(
        said,
        queue_s=_queue_s(request),
        prefill_s=first_s - admitted_s,
        cache_miss=request.cache_miss,
        prompt_logprobs=scores,
    )
