"""One request inside the engine: its tokens, how many of them are computed, where its KV lies.

There are no phases. A request wants every token it has computed; when that is reached, the logits
of the last one give a new token, which it then wants too. Prefill, chunks, prefix hits, decode and
recomputing after a preemption are all this one rule. A step may compute drafts behind the last one
(engine/drafts/proposer.py); they are none of its tokens until they are accepted.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.engine.drafts.thinking import Thinking
    from headrace.engine.grammars.constraint import Constraint
    from headrace.engine.kv.prefix_tree import BlockSet, Node, Promise
    from headrace.engine.messages import FinishReason, TokenLogprob
    from headrace.engine.params import SamplingParams
    from headrace.engine.sampling.logits_processor import LogitsProcessor


NO_POSITIONS = range(0)

RESERVE_AFTER_PREEMPTIONS = 3
"""A request preempted this often gets blocks for its full length and is not preempted again."""


class State(Enum):
    """The state of a request. A preempted one is WAITING again; so is one waiting for a prefix.
    COMPILING: its grammar is not ready, and the scheduler does not know it yet."""

    COMPILING = "compiling"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class GroupTable:
    """The blocks that a running request has of one group of layers."""

    blocks: list[BlockSet]
    """Of positions [0, len * block_size): those dropped, then those of the request's nodes, then
    its very own."""
    num_dropped: int = 0
    """Entries at the beginning that lie before its window: 0 there, none of its."""
    num_synced: int = 0
    """Entries that the row of the request's slot is known to hold, but for those since dropped."""
    num_cleared: int = 0
    """Dropped entries that are 0 in that row."""


@dataclass(slots=True, eq=False)
class Request:
    """State of one request. Only the scheduler and the KV cache change it."""

    request_id: str
    token_ids: list[int]
    """Prompt and output."""
    num_prompt: int
    params: SamplingParams
    max_len: int
    """Tokens at which it ends with "length"; as many as the prompt has where that is only to be
    read."""
    end_ids: frozenset[int] = frozenset()
    """Ids that end it, of the model (none where ignored); params.stop_token_ids come beside."""
    cache_salt: str = ""
    seed: int = 0
    """Of its random stream."""
    priority: int = 0
    """Lower comes first."""
    arrival: int = 0
    """Order of submission, which decides among equals."""
    arrived_s: float = 0.0

    state: State = State.WAITING
    num_computed: int = 0
    num_in_flight: int = 0
    """Tokens behind those that steps in flight compute: 0 but between a step's beginning and its
    results."""
    num_due: int = 0
    """Tokens that steps in flight will give it, if it does not end with one before."""
    num_preemptions: int = 0
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None

    tables: list[GroupTable] = field(default_factory=list)
    """Of each group, while RUNNING."""
    num_covered: int = 0
    """Tokens that have blocks in all tables."""
    nodes: list[Node] = field(default_factory=list)
    """Shared nodes of its full computed blocks, from the root down; of each group it holds the
    parts of those not dropped."""
    promise: Promise | None = None
    """The block it will compute next, where others may wait for it."""
    waits_for: Promise | None = None
    """While WAITING: the promise of a running request that has to be settled first."""
    slot: int = -1
    """Its row in arrays kept over steps, in [0, max_num_seqs) while RUNNING."""

    cached_tokens: int = 0
    cache_miss: str | None = None
    admitted_s: float | None = None
    first_token_s: float | None = None
    """When its first token was drawn, or its prompt read where nothing is to be drawn."""
    num_first_tokens: int = 0
    """How many came in that step."""
    last_token_s: float = 0.0
    """When its last token was drawn."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    """Of its num_draft_tokens, which were guessed, those that came."""
    reports_prefill: bool = False
    """Whether its reader is to know how much of the prompt is computed."""
    num_scored: int = 0
    """Positions of the prompt whose logits have been used for prompt_logprobs."""
    prompt_logprobs: list[TokenLogprob | None] | None = None
    """What they came to, until it is handed out; None where they are not wanted."""
    draws_from_text: bool = False
    """Whether what it draws follows from which tokens it has, and not only from how many."""
    logits_processor: LogitsProcessor | None = None
    """What edits its logits; made when its first token is drawn."""
    constraint: Constraint | None = None
    """What its grammar allows next; None where it has none."""
    thinking: Thinking | None = None
    """How much it may think; None where that is not bounded."""
    _keys: list[bytes] = field(default_factory=list)

    @property
    def num_wanted(self) -> int:
        """Tokens that have to be computed before the next one can be drawn."""
        return len(self.token_ids)

    @property
    def num_coming(self) -> int:
        """Tokens that it has once no step is in flight."""
        return len(self.token_ids) + self.num_due

    @property
    def num_begun(self) -> int:
        """Tokens that are computed once no step is in flight: where the next row begins."""
        return self.num_computed + self.num_in_flight

    @property
    def lag(self) -> int:
        """Tokens wanted whose computation has not begun; at least 1 unless finished, or all that
        it still wants is in flight."""
        if not self.num_in_flight:
            return len(self.token_ids) - self.num_computed
        coming = self.num_coming
        if self.num_due and coming >= self.max_len:
            return 0  # the last one, which is not computed
        return coming - self.num_begun

    @property
    def rank(self) -> tuple[int, int]:
        """Its place in every order: who comes first is lower."""
        return self.priority, self.arrival

    @property
    def is_reserved(self) -> bool:
        """Whether it gets, or has, blocks for its full length."""
        return self.num_preemptions >= RESERVE_AFTER_PREEMPTIONS

    @property
    def sits_out(self) -> bool:
        """Whether what may come next is not known and is found beside the steps; where it has all
        the tokens it may have, whether the answer is whole."""
        constraint = self.constraint
        return (
            constraint is not None
            and self.max_len > self.num_prompt
            and constraint.sits_out(len(self.token_ids))
        )

    @property
    def num_to_hold(self) -> int:
        """Tokens for which it gets blocks when it enters."""
        return self.max_len if self.is_reserved else self.num_wanted

    @property
    def unscored(self) -> int:
        """Positions of the prompt whose logits are still wanted for prompt_logprobs."""
        if self.params.prompt_logprobs is None:
            return 0
        return self.num_prompt - 1 - self.num_scored

    def to_score(self, start: int, count: int) -> range:
        """Those of positions [start, start + count) whose logits prompt_logprobs still want."""
        if not self.unscored:
            return NO_POSITIONS
        return range(max(start, self.num_scored), min(start + count, self.num_prompt - 1))

    def block_key(self, index: int, block_size: int) -> bytes:
        """The tokens of full block `index` as bytes: what equal blocks are found by."""
        keys = self._keys
        while len(keys) <= index:
            start = len(keys) * block_size
            keys.append(self.key_of(start, start + block_size))
        return keys[index]

    def key_of(self, start: int, stop: int) -> bytes:
        """Tokens [start, stop) as bytes."""
        return array("i", self.token_ids[start:stop]).tobytes()

    def ends_at(self, token_id: int) -> bool:
        """Whether this id ends it wherever it comes."""
        return token_id in self.end_ids or token_id in self.params.stop_token_ids

    def append(self, token_id: int) -> FinishReason | None:
        """Take a new token; the reason to end with it, if it is one, in the order of the API."""
        self.token_ids.append(token_id)
        if token_id in self.end_ids:
            return "stop"
        if token_id in self.params.stop_token_ids:
            self.stop_reason = token_id
            return "stop"
        if self.constraint is not None:
            if self.constraint.take(self.token_ids) == "ended":
                return "stop"
            if self.sits_out:
                return None  # it may be whole
        return "length" if len(self.token_ids) >= self.max_len else None
