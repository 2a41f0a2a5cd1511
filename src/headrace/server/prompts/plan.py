"""What a call asks of the engine: one request per prompt and candidate, numbered prompt by prompt.

Every check that needs the model is made here, before the first of them is submitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from headrace.engine.limits import (
    Limits,
    check_logprobs,
    check_priority,
    check_prompt,
    check_thinking,
)
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.protocol.openai.sampling import SamplingFields
from headrace.server.generation.pieces import LEAST_TIMEOUT_S
from headrace.server.model.served import ServedModel
from headrace.server.prompts.params import output_tokens, sampling_params
from headrace.server.prompts.prompt import Prompt
from headrace.structured.grammar import Grammar


@dataclass(frozen=True)
class EndpointOptions:
    """Options that an endpoint reads from its own fields."""

    max_tokens: int | None
    """None for default_tokens, or, where that is None, as many as fit."""
    tokens_param: str
    logprobs: int | None
    logprobs_param: str
    """With `tokens_param`: the fields that say so."""
    candidates: int
    """Answers to generate per prompt."""
    default_tokens: int | None = None
    prompt_logprobs: int | None = None
    """Of the engine; for each candidate of a prompt the first one asks."""

    @property
    def room(self) -> int:
        """Tokens of output that a prompt has to leave place for."""
        return self.default_tokens or 1 if self.max_tokens is None else self.max_tokens


@dataclass(frozen=True)
class SubmitPlan:
    """The submissions of one request, and how they belong to prompts and choices."""

    submits: list[Submit]
    """Submission of each candidate."""
    prompts: Sequence[Prompt]
    choices: int
    """Candidates per prompt."""
    asks_of_prompt: bool

    def prompt_of(self, index: int) -> Prompt:
        """The prompt of candidate `index`."""
        return self.prompts[index // self.choices]

    @property
    def queued_tokens(self) -> list[int]:
        """Prompt tokens of each request; choices of one prompt have them only once."""
        return [
            0 if index % self.choices else len(submit.prompt_token_ids)
            for index, submit in enumerate(self.submits)
        ]


def make_plan(
    model: ServedModel,
    fields: SamplingFields,
    prompts: Sequence[Prompt],
    wanted: EndpointOptions,
    *,
    bad_words: tuple[tuple[int, ...], ...],
    grammar: Grammar | None = None,
    engine_id: str,
    timeout_s: float | None,
) -> SubmitPlan:
    """The requests of a call; raises RequestError for what the model or the engine cannot do.

    bad_words: as ids. grammar: of every answer; None for free text. engine_id: what the
    engine's names of them begin with. timeout_s: what is left of the call's time.
    """
    limits = model.limits
    _check(fields, wanted, limits)
    base = sampling_params(
        fields,
        limits,
        model.sampling_defaults,
        logprobs=wanted.logprobs,
        bad_words=bad_words,
        grammar=grammar,
    )
    submits: list[Submit] = []
    for prompt in prompts:
        params = msgspec.structs.replace(
            base,
            max_tokens=_max_tokens(prompt, fields, wanted, limits),
            thinking=prompt.thinking,
        )
        for choice in range(wanted.candidates):
            id = f"{engine_id}-{len(submits)}"
            submits.append(_submit(id, prompt, params, fields, wanted, choice, timeout_s))
    asks = wanted.prompt_logprobs is not None
    return SubmitPlan(submits, prompts, wanted.candidates, asks)


def _check(fields: SamplingFields, wanted: EndpointOptions, limits: Limits) -> None:
    check_logprobs(wanted.logprobs or 0, limits, wanted.logprobs_param)
    check_logprobs(fields.prompt_logprobs or 0, limits, "prompt_logprobs")
    check_priority(fields.priority, limits)


def _max_tokens(
    prompt: Prompt, fields: SamplingFields, wanted: EndpointOptions, limits: Limits
) -> int:
    """Tokens of output of a prompt's answers, once the prompt is checked."""
    check_prompt(prompt.token_ids, limits, prompt.param)
    if prompt.thinking is not None:
        check_thinking(prompt.thinking, limits)
    return output_tokens(
        len(prompt.token_ids),
        wanted.max_tokens,
        limits,
        prompt_param=prompt.param,
        tokens_param=wanted.tokens_param,
        min_tokens=fields.min_tokens,
        default=wanted.default_tokens,
    )


def _submit(
    id: str,
    prompt: Prompt,
    params: SamplingParams,
    fields: SamplingFields,
    wanted: EndpointOptions,
    choice: int,
    timeout_s: float | None,
) -> Submit:
    """The request of one choice; the first of a prompt asks for what is said of the prompt."""
    is_first = choice == 0
    return Submit(
        id,
        prompt.token_ids,
        msgspec.structs.replace(
            params,
            choice=choice,
            prompt_logprobs=wanted.prompt_logprobs if is_first else None,
        ),
        cache_salt=fields.cache_salt or "",
        priority=fields.priority,
        timeout_s=timeout_s,
        report_prefill=fields.return_progress and is_first,
    )


def time_left_s(asked_s: float | None, limit_s: float | None, spent_s: float) -> float | None:
    """What is left of a call's time: the least of what the client asked and the server allows."""
    allowed = [one for one in (asked_s, limit_s) if one is not None]
    return max(LEAST_TIMEOUT_S, min(allowed) - spent_s) if allowed else None
