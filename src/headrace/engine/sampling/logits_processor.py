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

from headrace.engine.drafts.thinking import Thinking
from headrace.engine.params import SAMPLERS, SamplingParams
from headrace.engine.sampling.sampler_order import acts, order_of
from headrace.engine.sampling.token_counts import TokenCounts
from headrace.ops.sampling_rows import Chain, LogitsEdit, Penalties, Stage

I32 = npt.NDArray[np.int32]
Bits = npt.NDArray[np.uint32]

_NO_IDS: I32 = np.zeros(0, np.int32)


class LogitsProcessor:
    """The edits and sampler chains of one request, for its text at any length."""

    def __init__(
        self,
        params: SamplingParams,
        prompt: list[int],
        end_ids: frozenset[int],
        num_tokens: int,
        thinking: Thinking | None = None,
    ) -> None:
        """num_tokens: ids below it can be drawn; an end id from there on needs no mask. thinking:
        of a request whose budget has `masked_ids`."""
        self._params = params
        self._num_prompt = len(prompt)
        self._num_tokens = num_tokens
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
        ends = {end for end in end_ids | set(params.stop_token_ids) if end < num_tokens}
        self._end_ids = _array(ends) if params.min_tokens and ends else None
        words = params.bad_words_token_ids
        self._banned = _array({word[0] for word in words if len(word) == 1})
        self._thinking = thinking if _masks_after_thinking(params) else None
        masked = () if params.thinking is None else params.thinking.masked_ids
        self._after_thinking = _array(token_id for token_id in masked if token_id < num_tokens)
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

    def masks_all(self, token_ids: list[int], bits: Bits | None) -> tuple[str, ...]:
        """The fields which together leave no id to follow a text; none of them where one is left.

        bits: what the grammar allows there, a bit of each id; None without one.
        """
        left = np.ones(self._num_tokens, np.bool_)
        if self._allowed is not None:
            left[:] = False
            left[self._allowed[self._allowed < self._num_tokens]] = True
        if bits is not None:
            left &= np.unpackbits(bits.view(np.uint8), bitorder="little")[: len(left)] != 0
        masked = self._masked(token_ids)
        left[masked[masked < self._num_tokens]] = False
        if left.any():
            return ()
        params = self._params
        masks_ends = len(token_ids) - self._num_prompt < params.min_tokens
        fields = {
            "the form of the answer": bits is not None,
            "allowed_token_ids": params.allowed_token_ids is not None,
            "bad_words": bool(params.bad_words_token_ids),
            "min_tokens": self._end_ids is not None and masks_ends,
        }
        return tuple(name for name, is_given in fields.items() if is_given)

    def _masked(self, token_ids: list[int]) -> I32:
        parts = [self._banned] if len(self._banned) else []
        length = len(token_ids) - self._num_prompt
        if self._end_ids is not None and length < self._params.min_tokens:
            parts.append(self._end_ids)
        if self._thinking is not None and self._thinking.was_closed_by_force(token_ids):
            parts.append(self._after_thinking)
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
        or _masks_after_thinking(params)
    )


def _masks_after_thinking(params: SamplingParams) -> bool:
    """Whether ids are masked once the budget has ended the reasoning. What else says which ids
    may come might leave these alone."""
    thinking = params.thinking
    return bool(
        thinking is not None
        and thinking.masked_ids
        and params.grammar is None
        and params.allowed_token_ids is None
    )


def _array(ids: Iterable[int]) -> I32:
    return np.array(list(ids), np.int32)
