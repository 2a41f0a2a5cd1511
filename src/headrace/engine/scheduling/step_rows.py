"""The rows of one step as they are planned: how much of each request, and which drafts behind it.

What a step may compute is bounded by tokens, which the scheduler deals out, and by places whose
logits are wanted, which are dealt out here. Tokens that are wanted come before drafts of others.
"""

from __future__ import annotations

from headrace.engine.drafts.proposer import NO_DRAFTS, Drafter, Drafts
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.request import Request
from headrace.engine.scheduling.plan import Row

PROMPT_LOGIT_ROWS = 64
"""Positions of prompts whose logits a step gives for prompt_logprobs, of all requests together: 39
MB at 151,936 tokens in the vocabulary, as many as the decodes of the default max_num_seqs give."""

DRAFT_LOGIT_ROWS = 128
"""Places behind drafts whose logits a step gives, of all requests together: twice that memory."""


class StepRows:
    """The rows of a step, in the order in which they were given their tokens."""

    def __init__(self, kv: KVCache, drafter: Drafter | None, most_chunk: int | None = None) -> None:
        """most_chunk: tokens of a row at most, its drafts included; None for no such limit."""
        self.rows: list[Row] = []
        self.num_logits_left = PROMPT_LOGIT_ROWS
        self._num_draft_logits_left = DRAFT_LOGIT_ROWS
        self._kv = kv
        self._drafter = drafter
        self._most_chunk = most_chunk

    def add(self, request: Request, budget: int, *, drafts_too: bool = True) -> int:
        """Plan as much of what `request` lacks as the budget allows, then drafts if they are to
        come at once; how much that is.
        """
        count = self.chunk(request, budget)
        if count:
            start = request.num_begun
            scored = request.to_score(start, count)
            self.num_logits_left -= len(scored)
            draws = count == request.lag and request.num_coming < request.max_len
            drafts = NO_DRAFTS
            if draws and drafts_too and self._drafter is not None:
                drafts = self._drafts(self._drafter, request, budget - count)
                count += len(drafts.token_ids)
            self.rows.append(Row(request, start, count, draws, scored, drafts))
        return count

    def add_drafts(self, budget: int, *, guesses: bool) -> int:
        """Add drafts to the rows there are, which have none yet; how many tokens that is.

        guesses: those that are not certain too, of the drafter's speculation.
        """
        if self._drafter is None:
            return 0
        decoding = [row.request for row in self.rows if row.samples] if guesses else []
        self._drafter.begin_step(decoding, min(budget, self._num_draft_logits_left))
        spent = 0
        for index, row in enumerate(self.rows):
            if not row.samples:
                continue
            drafts = self._drafts(self._drafter, row.request, budget - spent)
            if drafts is not NO_DRAFTS:
                count = row.num_tokens + len(drafts.token_ids)
                self.rows[index] = row._replace(num_tokens=count, drafts=drafts)
                spent += len(drafts.token_ids)
        return spent

    def chunk(self, request: Request, budget: int) -> int:
        """How many tokens of `request` the budget and the rows of logits allow."""
        count = min(request.lag, budget)
        if self._most_chunk is not None:
            count = min(count, self._most_chunk)
        if request.unscored > self.num_logits_left:
            again = request.num_scored - request.num_begun
            count = min(count, again + self.num_logits_left)
        return count

    def _drafts(self, drafter: Drafter, request: Request, room: int) -> Drafts:
        """Drafts behind all that a request wants, as far as blocks and rows of logits go."""
        if request.constraint is not None and request.constraint.pace.is_slow:
            room = 0  # what is known of it is what may come next, and no more
        if self._most_chunk is not None:
            room = min(room, max(0, self._most_chunk - request.lag))
        drafts = drafter.drafts(request, room)
        if not drafts.token_ids:
            return drafts
        wants_logits = not drafts.are_certain or request.params.logprobs is not None
        if wants_logits:
            drafts = drafts.within(self._num_draft_logits_left)
        if not self._kv.grow(request, len(drafts.token_ids)):
            drafts = drafts.within(max(0, request.num_covered - request.num_wanted))
        if wants_logits:
            self._num_draft_logits_left -= len(drafts.token_ids)
        return drafts
