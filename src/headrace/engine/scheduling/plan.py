"""What the scheduler hands out and is handed back: the rows of a step, what each of them gave, and
the counts of all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from headrace.engine.drafts.proposer import NO_DRAFTS, Drafts
from headrace.engine.kv.prefix_tree import Miss
from headrace.engine.messages import FinishReason
from headrace.engine.request import NO_POSITIONS, Request, State

Preemption = Literal["blocks", "priority"]
"""Why one is preempted: a running request had to grow, or one that comes before it took its place.
"""


class Row(NamedTuple):
    """Tokens [start, start + num_tokens) of a request and of its drafts, which are the last of
    them; `samples` when they are all it wants, and give new ones. scored: positions whose logits
    prompt_logprobs want.
    """

    request: Request
    start: int
    num_tokens: int
    samples: bool
    scored: range = NO_POSITIONS
    drafts: Drafts = NO_DRAFTS

    @property
    def num_drawn(self) -> int:
        """Places, the last of its tokens, after each of which a token is drawn."""
        if not self.samples:
            return 0
        token_ids, are_certain, following = self.drafts
        if are_certain:
            return 1 if following is None else 0
        return 1 + len(token_ids)

    @property
    def num_rated(self) -> int:
        """Places whose following token is certain and whose log probability is wanted; those that
        are drawn come after them."""
        drafts = self.drafts
        if not drafts.are_certain or self.request.params.logprobs is None:
            return 0
        return len(drafts.token_ids) + (drafts.following is not None)

    @property
    def num_logits(self) -> int:
        """Places whose logits are wanted, the prompt's scored ones among them."""
        return len(self.scored) + self.num_rated + self.num_drawn


class RowTokens(NamedTuple):
    """The tokens that a row gave, in order, and the reason to end after them, if there is one."""

    token_ids: Sequence[int] = ()
    ends: FinishReason | None = None
    put_off: bool = False
    """Whether nothing of the row was computed, for want of memory, so that it is planned again."""


class StepPlan(NamedTuple):
    """The rows of one step, at least one token each, and how many requests were preempted.

    started: requests that left the queue for the first time. copies: blocks, and those they are
    copied to before the rows are computed, in this order.
    """

    rows: list[Row]
    num_tokens: int
    num_preempted: int
    started: list[Request]
    copies: Sequence[tuple[int, int]] = ()
    limited_s: float = 0.0
    """Seconds that it is predicted to take, where a prompt got less of it for want of time; 0
    elsewhere."""

    def still_due(self) -> StepPlan:
        """The plan without the rows of those that have ended since, or that lack what a step in
        flight should have computed before them."""
        rows = [
            row
            for row in self.rows
            if row.request.state is State.RUNNING and row.start == row.request.num_computed
        ]
        if len(rows) == len(self.rows):
            return self
        return self._replace(rows=rows, num_tokens=sum(row.num_tokens for row in rows))

    @property
    def only_decodes(self) -> bool:
        """Whether each row is one token and its drafts."""
        return all(
            row.samples and row.num_tokens == 1 + len(row.drafts.token_ids) for row in self.rows
        )


@dataclass(slots=True)
class Totals:
    """Counters since start; prompt and prefix counts are of first admissions only.

    preemptions: by their reasons.
    """

    steps: int = 0
    limited_steps: int = 0
    """In which a prompt got less than there were tokens for, so that they end in time."""
    timeouts: int = 0
    certain_tokens: int = 0
    """RowTokens without being drawn: a grammar or a thinking budget left nothing else."""
    drafts: int = 0
    """Rows with tokens that were guessed, to be compared with those drawn."""
    draft_tokens: int = 0
    accepted_tokens: int = 0
    """Of the draft_tokens."""
    accepted_by_position: Counter[int] = field(default_factory=Counter)
    """The same, by their place among the drafts of their row, from 0."""

    def count_drafts(self, request: Request, drafts: Drafts, token_ids: Sequence[int]) -> None:
        """Of a row that gave its request these tokens."""
        if drafts.are_certain:
            num_certain = len(drafts.token_ids) + (drafts.following is not None)
            self.certain_tokens += min(len(token_ids), num_certain)
            return
        self.drafts += 1
        self.draft_tokens += len(drafts.token_ids)
        request.num_draft_tokens += len(drafts.token_ids)
        for place, (draft, token_id) in enumerate(zip(drafts.token_ids, token_ids, strict=False)):
            if draft != token_id:
                break
            self.accepted_tokens += 1
            request.num_accepted_tokens += 1
            self.accepted_by_position[place] += 1

    def count_admitted(self, request: Request, miss: Miss | None, *, is_looked_up: bool) -> None:
        """Of a request that runs for the first time. miss: why not more of it was cached;
        is_looked_up: whether that counts among the queries."""
        self.prompt_tokens += request.num_prompt
        if is_looked_up:
            self.prefix_queries_tokens += request.num_prompt
        self.prefix_hits_tokens += request.cached_tokens
        if miss is not None:
            self.miss_reasons[miss.reason] += 1

    preemptions: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    generation_tokens: int = 0
    computed_tokens: int = 0
    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    miss_reasons: Counter[str] = field(default_factory=Counter)
