"""Tokens that are computed before anybody has drawn them: where they come from, and how many.

A row of a step is the tokens that its request lacks, then drafts. A row that has all of the former
gives tokens: its drafts as far as they are accepted, and one more. Drafts are of two kinds.

    certain   nothing else can come (a grammar or a thinking budget leaves no choice): they are
              accepted as they are, nothing is drawn, and logits are taken only where log
              probabilities are wanted
    guessed   at each place the request's own token is drawn, from the logits, masks and penalties
              that it has there and with the random number of that position; a draft is accepted
              where it is the token drawn, and the first that is not ends the row

So an answer is, bit for bit, the one that a token at a time gives: a draw depends on (seed, choice,
position) and the tokens before it alone, and these are the same. A draft that is not accepted has
left nothing but K and V behind the request's length, where the next token's are written over it; no
block is shared before its tokens are the request's own. Drafts push nobody out: they get what
budget and blocks the tokens that are wanted leave. A budget for thinking is no proposer but the
bound of all of them, because no draft may pass the place where its closing ids are certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.engine.drafts.speculation import Speculation
from headrace.engine.request import Request


class Proposal(NamedTuple):
    """A proposal of what may follow a request's tokens."""

    token_ids: Sequence[int]
    is_certain: bool
    """Nothing else can follow, whatever the logits are; else it is a guess."""
    ends: bool = False
    """Nothing can follow the last of them; of one that is certain."""


class Proposer(Protocol):
    """A source of drafts. What it gives is a function of the request's tokens and parameters where
    it is certain; where it is a guess it may be anything."""

    def propose(self, request: Request, most: int) -> Proposal | None:
        """At most so many tokens, 1 or more, that may follow; None where it knows nothing."""
        ...


class Drafts(NamedTuple):
    """The drafts of a row. following: the token after them where that is certain as well, so that
    nothing is drawn after the last place; it is not computed yet."""

    token_ids: Sequence[int] = ()
    are_certain: bool = False
    following: int | None = None

    def within(self, room: int) -> Drafts:
        """So many of them at most: what is certain is still given by its following token."""
        if len(self.token_ids) <= room:
            return self
        kept = self.token_ids[:room]
        if self.are_certain:
            return Drafts(kept, True, self.token_ids[room])
        return Drafts(kept) if kept else NO_DRAFTS


NO_DRAFTS = Drafts()


class Drafter:
    """Proposers in the order in which they are asked; the first that has a proposal is taken, and
    where none has, what pays of a guess."""

    def __init__(
        self, proposers: Sequence[Proposer], speculation: Speculation | None = None
    ) -> None:
        self._proposers = tuple(proposers)
        self.speculation = speculation
        """Guesses of requests that decode."""
        self._proposed: dict[Request, Proposal | None] = {}
        """What proposers have for the requests of the step that began."""

    def begin_step(self, requests: Sequence[Request], most_guessed: int) -> None:
        """A step begins in which these requests decode, each for a token of its own, and at most so
        many guesses of all of them."""
        self._proposed.clear()
        if self.speculation is None:
            return
        guessed = []
        for request in requests:
            most = _most(request)
            if most < 1:  # its reasoning has to be closed
                continue
            proposal = self._proposed[request] = self._proposal(request, most)
            if proposal is None and most > 1 and _takes_guesses(request):
                guessed.append((request, most - 1))
        self.speculation.begin_step(guessed, len(requests), most_guessed)

    def drafts(self, request: Request, room: int) -> Drafts:
        """Drafts after all tokens of a request that is not at its end, for at most `room` more of
        them in its row; `room` may be 0.

        What the row gives is within the request's length and its budget for thinking.
        """
        most = request.max_len - len(request.token_ids)
        thinking = request.thinking
        left = None if thinking is None else thinking.left(request.token_ids)
        if thinking is not None and left == 0:
            closing = Proposal(thinking.closing(request.token_ids)[:most], is_certain=True)
            return _certain(request, closing, most, room)
        if left is not None:
            most = min(most, left)
        if request in self._proposed:
            proposal = self._proposed[request]
        else:
            proposal = self._proposal(request, min(most, room + 1))
        if proposal is not None and proposal.is_certain:
            return _certain(request, proposal, most, room)
        if proposal is not None:
            return _guessed(request, proposal.token_ids[: min(room, most - 1)])
        if self.speculation is None or request.lag > 1:
            return NO_DRAFTS
        return _guessed(request, self.speculation.drafts(request, min(room, most - 1)))

    def _proposal(self, request: Request, most: int) -> Proposal | None:
        """The first that there is, of a token at least."""
        for proposer in self._proposers:
            proposal = proposer.propose(request, most)
            if proposal is not None and proposal.token_ids:
                return proposal
        return None


def _guessed(request: Request, token_ids: Sequence[int]) -> Drafts:
    """Those before the first that would end the request, which is drawn in any case."""
    if not _takes_guesses(request):
        return NO_DRAFTS
    for index, token_id in enumerate(token_ids):
        if request.ends_at(token_id):
            token_ids = token_ids[:index]
            break
    return Drafts(token_ids) if token_ids else NO_DRAFTS


def _takes_guesses(request: Request) -> bool:
    return request.constraint is None or request.constraint.takes_guesses


def _most(request: Request) -> int:
    """Tokens that may come before the request's end, or before its reasoning has to be closed."""
    most = request.max_len - len(request.token_ids)
    left = None if request.thinking is None else request.thinking.left(request.token_ids)
    return most if left is None else min(most, left)


def _certain(request: Request, proposal: Proposal, most: int, room: int) -> Drafts:
    """Those of a proposal up to the first that ends the request."""
    token_ids, ends = proposal.token_ids, proposal.ends
    for index, token_id in enumerate(token_ids):
        if request.ends_at(token_id):
            token_ids, ends = token_ids[: index + 1], True
            break
    if ends or len(token_ids) > room or len(token_ids) >= most:
        last = min(len(token_ids) - 1, room)
        return Drafts(token_ids[:last], True, token_ids[last])
    return Drafts(token_ids, True)
