"""Spans that a grammar forces: the names of a schema, what is between them, the rest of a choice.

An answer with them is, bit for bit, the one that single steps give. There the mask of such a place
has one id, so that it is drawn whatever bias and penalties make of its logit. Where something else
masks ids the two may have nothing in common, which is an error that only a draw finds: such places
are left to single steps.
"""

from __future__ import annotations

from headrace.engine.drafts.proposer import Proposal
from headrace.engine.request import Request


class ForcedSpans:
    """The proposer of what the grammars of requests leave no choice of."""

    def propose(self, request: Request, most: int) -> Proposal | None:
        """Those that follow the request's tokens, at most so many."""
        constraint, params = request.constraint, request.params
        if constraint is None:
            return None
        if params.allowed_token_ids is not None or params.bad_words_token_ids:
            return None
        span, ends = constraint.forced(request.token_ids, most)
        masked = params.min_tokens - (request.num_wanted - request.num_prompt)
        for index, token_id in enumerate(span[: max(0, masked)]):
            if request.ends_at(token_id):
                span, ends = span[:index], False
                break
        return Proposal(span, is_certain=True, ends=ends) if span else None
