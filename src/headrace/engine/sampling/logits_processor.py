"""What one request does to its logits: bias and masks, penalties, and the order of its samplers.

All of it is a function of the request's parameters and of its tokens, so it does not depend on the
batch, on preemption, or on whether the tokens are drafts. What does not change from token to token
is made once; a request that asks for nothing has no LogitsProcessor. What its grammar allows is
found by `constraint` and is no edit: who draws passes over the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from headrace.engine.params import SAMPLERS, SamplingParams
from headrace.engine.sampling.sampler_order import acts, order_of
from headrace.engine.sampling.token_counts import TokenCounts
from headrace.ops.sampling_rows import Chain, LogitsEdit, Penalties, Stage

I32 = npt.NDArray[np.int32]

_NO_IDS: I32 = np.zeros(0, np.int32)


class LogitsProcessor:
    """The edits and sampler chains of one request, for its text at any length."""

    def __init__(
        self, params: SamplingParams, prompt: list[int], end_ids: frozenset[int], num_tokens: int
    ) -> None:
        """num_tokens: ids below it can be drawn; an end id from there on needs no mask."""
        self._params = params
        self._num_prompt = len(prompt)
        order = order_of(params)
        # Penalties that come first are an edit, and the rest may be the order of the backend.
        self._penalties_first = order[:1] == ("penalties",)
        stages = order[1:] if self._penalties_first else order
        is_default = stages == tuple(name for name in SAMPLERS if name in stages)
        self._stages: tuple[Stage, ...] = () if is_default else stages
        self._counts = None
        if "penalties" in order:
            self._counts = TokenCounts(prompt if params.repetition_penalty != 1 else ())
        self._bias_ids = _array(params.logit_bias)
        self._bias = np.array(list(params.logit_bias.values()), np.float32)
        allowed = params.allowed_token_ids
        self._allowed = None if allowed is None else _array(set(allowed))
        ends = {one for one in end_ids | set(params.stop_token_ids) if one < num_tokens}
        self._end_ids = _array(ends) if params.min_tokens and ends else None
        words = params.bad_words_token_ids
        self._banned = _array({word[0] for word in words if len(word) == 1})
        self._words: dict[int, list[list[int]]] = {}
        for word in words:
            if len(word) > 1:
                self._words.setdefault(word[-2], []).append(list(word))

    @property
    def reorders(self) -> bool:
        """Whether `chain` ever gives one."""
        return bool(self._stages)

    def chain(self, token_ids: list[int]) -> Chain | None:
        """The order in which the token after `token_ids` is drawn, where it is not the default."""
        if not self._stages:
            return None
        in_chain = "penalties" in self._stages
        return Chain(self._stages, self._penalties(token_ids) if in_chain else None)

    def edit(self, row: int, token_ids: list[int]) -> LogitsEdit | None:
        """What is changed in `row` of the logits that follow `token_ids`; None for nothing."""
        masked = self._masked(token_ids)
        penalties = self._penalties(token_ids) if self._penalties_first else None
        changes = len(masked) or len(self._bias_ids) or self._allowed is not None
        if not changes and penalties is None:
            return None
        return LogitsEdit(row, self._bias_ids, self._bias, self._allowed, masked, penalties)

    def _masked(self, token_ids: list[int]) -> I32:
        parts = [self._banned] if len(self._banned) else []
        length = len(token_ids) - self._num_prompt
        if self._end_ids is not None and length < self._params.min_tokens:
            parts.append(self._end_ids)
        if length and self._words:
            completed = [
                word[-1]
                for word in self._words.get(token_ids[-1], ())
                if len(word) <= length + 1 and token_ids[1 - len(word) :] == word[:-1]
            ]
            if completed:
                parts.append(_array(completed))
        if len(parts) < 2:
            return parts[0] if parts else _NO_IDS
        return np.concatenate(parts)

    def _penalties(self, token_ids: list[int]) -> Penalties | None:
        if self._counts is None:
            return None
        # Copies: a step may draw at several places of one request.
        ids, counts = map(np.copy, self._counts.of(token_ids[self._num_prompt :]))
        if not len(ids):
            return None
        params = self._params
        return Penalties(
            ids,
            counts,
            params.repetition_penalty,
            params.frequency_penalty,
            params.presence_penalty,
        )


def needs_logits_processor(params: SamplingParams) -> bool:
    """Whether anything but the default order of temperature and filters is asked for."""
    return bool(
        params.samplers != SAMPLERS
        or acts(params, "penalties")
        or params.logit_bias
        or params.allowed_token_ids is not None
        or params.bad_words_token_ids
        or params.min_tokens
    )


def _array(ids: Iterable[int]) -> I32:
    return np.array(list(ids), np.int32)
