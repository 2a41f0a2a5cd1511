"""The ids that a draft and its target both have: the padding behind a tokenizer's ids may differ.

A request of which some id is unknown to the draft has no drafts. Of another its parameters and
masks, which are of the target's ids, are cut to the draft's.
"""

from __future__ import annotations

import msgspec
import numpy as np

from headrace.engine.grammars.constraint import Look
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request


class SharedIds:
    """The ids below both sizes of vocabularies."""

    def __init__(self, of_draft: int, of_target: int) -> None:
        """of_draft, of_target: the widths of their logits."""
        self._size = of_draft
        self._is_narrow = of_draft < of_target
        self._mask_words = (of_draft + 31) // 32
        self._same_words = self._mask_words == (of_target + 31) // 32

    def has_all_of(self, request: Request) -> bool:
        """Whether the draft knows every id of a request."""
        return not self._is_narrow or max(request.token_ids, default=0) < self._size

    def look_of(self, look: Look) -> Look:
        """What a grammar allows, with bits for the draft's ids."""
        if look.bits is None or self._same_words:
            return look
        bits = np.zeros(self._mask_words, np.uint32)
        shared = min(len(bits), len(look.bits))
        bits[:shared] = look.bits[:shared]
        return look._replace(bits=bits)

    def params_of(self, params: SamplingParams) -> SamplingParams:
        """What a request's drafts are drawn with: without log probabilities, and without ids that
        the draft does not have."""
        params = msgspec.structs.replace(params, logprobs=None, prompt_logprobs=None)
        if not self._is_narrow:
            return params
        size, allowed = self._size, params.allowed_token_ids
        words = params.bad_words_token_ids
        return msgspec.structs.replace(
            params,
            logit_bias={at: bias for at, bias in params.logit_bias.items() if at < size},
            allowed_token_ids=None if allowed is None else tuple(at for at in allowed if at < size),
            bad_words_token_ids=tuple(word for word in words if max(word) < size),
        )
