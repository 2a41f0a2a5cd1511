"""What the engine has to answer over the mock, computed without blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.engine.messages import Submit, TokenLogprob
from headrace.engine.params import SAMPLERS, SamplingParams
from headrace.engine.sampling.sampler import Sampler, uniform
from headrace.ops.reference import sampling
from headrace.ops.sampling_rows import Chain, Penalties, SamplingRows, UnusableLogitsError
from tests.engine.mock import EOS, NUM_TOKENS, VOCAB, MockOps, logits_of, mix


def seen_of(states: Sequence[int], windows: Sequence[int]) -> list[npt.NDArray[np.uint64]]:
    """The states that layers with these windows see at the end of a text."""
    return [np.array(states[-window:], np.uint64) for window in windows]


def extended(states: list[int], token_ids: Sequence[int]) -> list[int]:
    """The states of a text and of the tokens that follow it, without blocks."""
    made = list(states)
    for token_id in token_ids:
        made.append(mix(made[-1] if made else 0, token_id, len(made)))
    return made


def adjusted(
    logits: npt.NDArray[np.float32],
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
) -> None:
    """Bias and masks by their words, one token after another."""
    stated = params.logit_bias or params.bad_words_token_ids or params.allowed_token_ids
    if not stated and params.allowed_token_ids is None and len(output) >= params.min_tokens:
        return
    ends = {EOS} if not params.ignore_eos else set()
    for token_id in range(VOCAB):
        if token_id in params.logit_bias:
            logits[token_id] += np.float32(params.logit_bias[token_id])
        masked = (
            (params.allowed_token_ids is not None and token_id not in params.allowed_token_ids)
            or (len(output) < params.min_tokens and token_id in ends | {*params.stop_token_ids})
            or any(
                [*output, token_id][-len(word) :] == list(word)
                for word in params.bad_words_token_ids
            )
        )
        if masked:
            logits[token_id] = -np.inf


def penalised(
    logits: npt.NDArray[np.float32],
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
) -> None:
    """The penalties by their words, one token after another."""
    by, often, once = (
        np.float32(penalty)
        for penalty in (
            params.repetition_penalty,
            params.frequency_penalty,
            params.presence_penalty,
        )
    )
    for token_id in range(VOCAB):
        if token_id in prompt or token_id in output:
            value = logits[token_id]
            logits[token_id] = value / by if value > 0 else value * by
        if token_id in output:
            logits[token_id] -= often * np.float32(list(output).count(token_id))
            logits[token_id] -= once


def order_of(
    params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> tuple[Chain | None, bool]:
    """The chain of a request, and whether its penalties come before that."""
    idle = {
        "penalties": (
            params.repetition_penalty == 1
            and params.frequency_penalty == params.presence_penalty == 0
        ),
        "temperature": params.temperature == 1,
        "min_p": params.min_p == 0,
        "top_k": params.top_k in (0, -1),
        "top_p": params.top_p == 1,
    }
    order = [name for name in params.samplers if not idle[name]]
    first = order[:1] == ["penalties"]
    order = order[first:]
    if order == [name for name in SAMPLERS if name in order]:
        return None, first
    ids = sorted({*prompt, *output} if params.repetition_penalty != 1 else {*output})
    penalties = Penalties(
        np.array(ids, np.int32),
        np.array([list(output).count(token_id) for token_id in ids], np.int32),
        params.repetition_penalty,
        params.frequency_penalty,
        params.presence_penalty,
    )
    stages: Any = tuple(order)
    return Chain(stages, penalties if "penalties" in order else None), first


def answer(
    submit: Submit, *, max_len: int = 1 << 30, windows: Sequence[int] = (0,)
) -> tuple[list[int], str]:
    """What the engine has to answer: new token ids and finish_reason. The seed has to be given.

    windows: of the model's layers.
    """
    params = submit.params
    tokens = list(submit.prompt_token_ids)
    new: list[int] = []
    if params.max_tokens == 0:
        return new, "length"
    states = extended([], tokens)
    while True:
        logits = logits_of(*seen_of(states, windows))
        adjusted(logits, params, submit.prompt_token_ids, new)
        chain, first = order_of(params, submit.prompt_token_ids, new)
        if first:
            penalised(logits, params, submit.prompt_token_ids, new)
        rows = SamplingRows(
            temperature=np.array([params.temperature], np.float32),
            top_k=np.array([max(params.top_k, 0)], np.int32),
            top_p=np.array([params.top_p], np.float32),
            min_p=np.array([params.min_p], np.float32),
            uniform=np.array([uniform(params.seed or 0, params.choice, len(tokens))]),
            chains=(chain,),
        )
        try:
            token_id = int(sampling.sample(logits[None], rows, NUM_TOKENS)[0])
        except UnusableLogitsError:
            return new, "error"
        tokens.append(token_id)
        states.append(mix(states[-1], token_id, len(states)))
        new.append(token_id)
        if token_id in params.stop_token_ids or (token_id == EOS and not params.ignore_eos):
            return new, "stop"
        if len(new) == params.max_tokens or len(tokens) >= max_len:
            return new, "length"


def prompt_scores(submit: Submit, *, windows: Sequence[int] = (0,)) -> list[TokenLogprob | None]:
    """What prompt_logprobs have to be."""
    prompt = submit.prompt_token_ids
    states = extended([], prompt)
    logits = [logits_of(*seen_of(states[: at + 1], windows)) for at in range(len(prompt) - 1)]
    sampler = Sampler(MockOps(), NUM_TOKENS)  # type: ignore[arg-type]
    rivals = submit.params.prompt_logprobs or 0
    return [None, *(sampler.score(row[None], [token], rivals)[0]
                    for row, token in zip(logits, prompt[1:], strict=True))]  # fmt: skip
